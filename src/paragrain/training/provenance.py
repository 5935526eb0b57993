"""Which images a run learns from, which it is steered by, and which it leaves alone."""

from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.trained_on import TrainedOn, content_key, used_images
from paragrain.training.batches import TrainingSet
from paragrain.training.config import TrainConfig
from paragrain.training.schedule import Schedule
from paragrain.training.validation import Validation


def images_used(
    collection: Collection,
    encoder: ImageTextEncoder,
    config: TrainConfig,
    data: TrainingSet,
    schedule: Schedule,
    validation: Validation | None,
) -> TrainedOn:
    """All that the model will have learned from when the run ends, its start's past included."""
    shown = {data.records[row].id: data.contents[row] for row in schedule.shown()}
    known = used_images("trained", collection, config.split, shown, vision=config.train_vision)
    if validation is not None:
        known |= used_images(
            "validated", collection, config.validation_split, validation.contents, vision=False
        )
    return known if encoder.trained_on is None else encoder.trained_on | known


def splits_used(
    collection: Collection,
    config: TrainConfig,
    known: TrainedOn,
    validation: Validation | None,
) -> dict[str, dict[str, Any]]:
    """What each split is to a run, and what others have in common with the one it trains on.

    Returns:
        for each split its `use` ("trained", "validated" or None), its `images`, and of these the
        `same_content`: images whose bytes are among those that were trained on.
    """
    uses = {config.validation_split: "validated"} if validation is not None else {}
    uses[config.split] = "trained"
    splits: dict[str, dict[str, Any]] = {
        split: {"use": uses.get(split), "images": images, "same_content": 0}
        for split, images in collection.splits.items()
    }
    records = [record for record in collection.records(fields=("content",)) if record.content]
    same = known.has("trained", [content_key(record.content or "") for record in records])
    for record, seen in zip(records, same, strict=True):
        splits[record.split]["same_content"] += int(seen)
    return splits


def split_line(splits: dict[str, dict[str, Any]]) -> str:
    """Which splits a run uses, in words.

    >>> split_line({"train": {"use": "trained", "images": 400}, "test": {"use": None, "images": 9}})
    'trains on split train (400 images), validates on none, leaves test (9 images) alone'
    """

    def those(use: str | None) -> str:
        named = [f"{k} ({v['images']:,} images)" for k, v in splits.items() if v["use"] == use]
        return ", ".join(named)

    alone = those(None)
    return f"trains on split {those('trained')}, validates on {those('validated') or 'none'}" + (
        f", leaves {alone} alone" if alone else ""
    )
