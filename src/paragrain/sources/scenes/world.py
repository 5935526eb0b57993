"""Worlds of scenes as collections: splits, near-twins, all texts, deterministic in a seed."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Unpack

from paragrain.collection import (
    ImageRef,
    ImportReport,
    Item,
    Record,
    WriteOptions,
    write_collection,
)
from paragrain.errors import UsageError
from paragrain.sources.registry import importer
from paragrain.sources.scenes.graph import Scene, near_twin, sample_scene
from paragrain.sources.scenes.language import (
    alt_text,
    description,
    hard_negatives,
    paragraph,
    short_captions,
)
from paragrain.sources.scenes.render import PIXELS, png

FAMILY = 8
"""Scenes of a family: without near-twins, the bag of its objects would identify every scene."""

VERSION = 1  # raised whenever the same seed would give another picture or text


def split_sizes(size: int) -> dict[str, int]:
    """Scenes in each split of a world with `size` training scenes.

    >>> split_sizes(8000)
    {'train': 8000, 'val': 500, 'test': 1000, 'twins': 1000}
    """
    test = min(1000, max(20, size // 8)) // 2 * 2
    return {"train": size, "val": test // 2, "test": test, "twins": test}


def scenes_of(split: str, count: int, seed: int, *, family: int = 1) -> Iterator[tuple[str, Scene]]:
    """The first `count` scenes of a split, with their ids; any number gives the same beginning.

    Scenes come in families of `family` that follow each other: the first is drawn at random, and
    each of the others differs from it in one late-told fact (see `near_twin`).
    """
    for index in range(count):
        rng = random.Random(f"scene {seed} {split} {index // family}")
        members = [sample_scene(rng)]
        while len(members) <= index % family:
            twin, _ = near_twin(members[0], rng)
            if twin not in members:
                members.append(twin)
        yield f"s{seed}-{split}-{index:06d}", members[-1]


def write_record(identity: str, scene: Scene, split: str, pixels: int = PIXELS) -> Record:
    """A scene's record with picture and all texts.

    In the training split `captions` holds the alt-text alone; in the others five clean reference
    captions, worded apart from `generated`.
    """
    rng = random.Random(f"texts {identity}")
    captions = (
        [alt_text(scene, rng)] if split == "train" else short_captions(scene, rng, reference=True)
    )
    return Record(
        id=identity,
        image=ImageRef(bytes=png(scene, pixels), path=f"{identity}.png"),
        split=split,
        captions=captions,
        generated=short_captions(scene, rng),
        negatives=hard_negatives(scene, rng),
        paragraph=paragraph(scene, rng),
        description=description(scene, rng),
        source="scenes",
        graph=scene.to_json(),
    )


def scene_of(record: Record) -> Scene | None:
    """The scene that a record shows; None if its graph is absent or of another kind.

    >>> scene = sample_scene(random.Random(0))
    >>> scene_of(Record("7", graph=scene.to_json())) == scene
    True
    >>> scene_of(Record("8", graph='{"objects": []}')) is None
    True
    """
    if record.graph is None:
        return None
    try:
        return Scene.from_json(record.graph)
    except ValueError:
        return None


@importer("scenes")
def import_scenes(
    out: Path,
    *,
    size: int = 8000,
    seed: int = 0,
    pixels: int = PIXELS,
    family: int = FAMILY,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Write a world of `size` training scenes, with validation, test and near-twin splits.

    Args:
        out: folder of the collection.
        size: number of training scenes; the other splits follow from it (`split_sizes`).
        seed: decides everything; two seeds share no scene.
        pixels: side of the pictures, a multiple of 3, at least 96.
        family: so many scenes in a row are near-twins, as the photographs of one series are; in
            the split `test` they are all unrelated.
        options: see `WriteOptions`.

    Raises:
        UsageError: if `size` or `pixels` is out of range.
    """
    if size < 1:
        raise UsageError(f"a world needs at least one training scene, not {size}")
    if family < 1:
        raise UsageError(f"a family has one scene or more, not {family}")
    if pixels < PIXELS or pixels % 3:
        raise UsageError(
            f"pictures are a multiple of 3 and at least {PIXELS} px wide, not {pixels}"
        )
    stamp = f"scenes {VERSION} {pixels} {family}"
    items = (
        Item(identity, stamp, partial(write_record, identity, scene, split, pixels), trusted=True)
        for split, count in split_sizes(size).items()
        for identity, scene in scenes_of(
            split, count, seed, family=1 if split == "test" else family
        )
    )
    options.setdefault("licence", "CC0-1.0")
    return write_collection(out, items, name=f"scenes (seed {seed})", source="scenes", **options)
