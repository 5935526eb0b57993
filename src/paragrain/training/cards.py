"""What a checkpoint's README.md says of the run that made it."""

import re
from typing import Any

from paragrain.encoders.card import Story
from paragrain.training.config import TrainConfig
from paragrain.training.supervision import Recipe

_SETTINGS = ("learning_rate", "batch_size", "epochs", "max_steps", "temperature", "seed")


def story(
    settings: dict[str, Any],
    recipe: Recipe,
    config: TrainConfig,
    images: int,
    step: int,
    measured: dict[str, Any] | None,
) -> Story:
    """How the weights after `step` steps came to be.

    Args:
        settings: the content of the run's `run.yaml`.
        recipe: that supervised.
        config: the settings of the training.
        images: that were trained on.
        step: steps taken.
        measured: what `Validation.measure` gave; `None` without a validation split.
    """
    start, data = _public(settings["encoder"]["name"]), settings["collection"]
    licence = data.get("licence") or "not stated"
    side = "Both sides" if config.train_vision else "The text side and its projection"
    return Story(
        start=start,
        sections={
            "Data": f"{side} learned from {images:,} images and their texts, the split "
            f"`{config.split}` of the collection `{data['name']}` (fingerprint "
            f"`{data['fingerprint']}`), beginning at `{start}`.",
            "Recipe": _recipe(recipe),
            "Settings": _settings(config, step),
            "Recall": _recall(config, measured),
        },
        licence=f"Not chosen here. It follows from the start, `{start}`, and from the data, whose "
        f"licence is: {licence}.",
    )


def _public(name: str) -> str:
    """A name that tells no folders of this machine.

    >>> _public("facebook/dinov2-base+/home/me/models/text"), _public("mean-blip:/srv/blip@248")
    ('facebook/dinov2-base+text', 'mean-blip:blip@248')
    """
    return re.sub(r"(^|[+:])/(?:[^+]*/)?", r"\1", name)


def _recipe(recipe: Recipe) -> str:
    content = recipe.content()
    lines = [f"`{recipe.name}`, with the {recipe.loss} loss."]
    for side in ("positives", "negatives"):
        for pick in content.get(side) or ():
            lines.append(f"- {side}: " + ", ".join(f"{key} {value}" for key, value in pick.items()))
    return "\n".join([lines[0], *(["", *lines[1:]] if lines[1:] else [])])


def _settings(config: TrainConfig, step: int) -> str:
    values = config.settings()
    rows = [f"| {key} | {values[key]} |" for key in _SETTINGS if values[key] is not None]
    max_lengths = ", ".join(f"{field} {tokens}" for field, tokens in values["max_length"].items())
    rows += [f"| maximum lengths | {max_lengths} |", f"| steps taken | {step:,} |"]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _recall(config: TrainConfig, measured: dict[str, Any] | None) -> str:
    if measured is None or not measured["fields"]:
        return "Not measured: there were no texts to validate on."
    rows = []
    for field, scores in measured["fields"].items():
        strict, bounds = scores["strict"], scores["intervals"]["strict"]
        for direction in ("image_to_text", "text_to_image"):
            cells = []
            for k in ("R@1", "R@5", "R@10"):
                low, high = bounds[direction][k]
                cells.append(f"{strict[direction][k]:.1f} [{low:.1f}, {high:.1f}]")
            rows.append(f"| {field} | {direction.replace('_', ' ')} | {' | '.join(cells)} |")
    images = next(iter(measured["fields"].values()))["counts"]["images"]
    return "\n".join(
        [
            f"In percent, with 95 % intervals, among the {images:,} images of the split "
            f"`{config.validation_split}`, on which these weights were chosen from those of other "
            "epochs; texts are cut at the maximum lengths above.",
            "",
            "| texts | direction | R@1 | R@5 | R@10 |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
