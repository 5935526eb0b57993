"""A first study file for a collection: what its splits and texts allow, to be edited by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from paragrain.collection import Collection
from paragrain.collection.fields import FIELDS, TEXT_FIELDS
from paragrain.encoders.choosing import GOOD_ONES, holds_scenes_alone
from paragrain.encoders.loading import SHIPPED
from paragrain.errors import UsageError
from paragrain.training.recipes import load_recipe

LEAST = 0.5
"""A recipe is in the file if at least so many of the training images have all its texts."""

RECIPES = tuple(f"c{number}" for number in range(1, 11))
EVALUATION = ("test", "twins", "val", "restval")
"""Splits to measure on, the first that there is; else the smallest that is not trained on."""

_KINDS = (
    ("short", "captions", "short", "Short"),
    ("long", "paragraph", "long", "Long"),
    ("long-other", "description", "long", "Long, descriptions"),
)
_TINY = {"learning_rate": 5.0e-4, "batch_size": 128}  # as the shipped model wants it


def study_template(folder: Path, model: str | None = None, *, name: str | None = None) -> str:
    """The text of a study file for the collection in `folder`.

    Args:
        folder: of the collection.
        model: where training starts; by default the one that the collection remembers,
            or the one that ships for drawn scenes.
        name: of the study; by default after the folder.

    Raises:
        UsageError: there is no model, nothing to train by, or no split to measure on.
    """
    collection = Collection.open(folder)
    model = model or collection.model
    if model is None and holds_scenes_alone(collection):
        model = SHIPPED[0]
    if model is None:
        raise UsageError(
            f"{folder} remembers no model to start from: name one by --model, or once for all by "
            f"`paragrain use MODEL {folder}`, such as {GOOD_ONES}"
        )
    counts = _counts(collection)
    train, measured = _splits(folder, collection)
    recipes = _recipes(counts[train], collection.splits[train])
    groups = _groups(counts[train]) if not recipes else {}
    if not recipes and not groups:
        raise UsageError(
            f"the images of split {train!r} of {folder} have no texts to train by: write some "
            "with `paragrain annotate`"
        )
    cells = [*recipes, *(cell for group in groups.values() for cell in group["cells"])]
    benchmarks = {
        kind[0]: {
            "collection": "data",
            "split": measured,
            "texts": kind[1],
            "max_length": FIELDS[kind[1]].max_length,
            "kind": kind[2],
            "title": kind[3],
        }
        for kind in _KINDS
        if counts[measured][kind[1]]
    }
    if not benchmarks:
        raise UsageError(
            f"no image of split {measured!r} of {folder} has captions, a paragraph or a "
            "description to measure with: write texts for it, or name another split"
        )
    content = _content(name or _name(folder), folder, model, train, cells, recipes, benchmarks)
    if groups:
        content["groups"] = groups
    found = "; ".join(
        f"{split}: {images:,} images"
        + "".join(f", {counts[split][field]:,} with {field}" for field in counts[split])
        for split, images in collection.splits.items()
    )
    head = (
        f"# A study of the collection {folder.name}, made by `paragrain study new`; edit it.\n"
        f"# Found: {found}.\n"
        "# Each recipe, benchmark and seed multiplies the work: `paragrain study run FILE "
        "--dry-run` says by how much.\n"
    )
    head = "".join(c if c.isprintable() or c == "\n" else " " for c in head)
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _counts(collection: Collection) -> dict[str, Counter[str]]:
    """By split, how many images have a text of each field."""
    counts: dict[str, Counter[str]] = {split: Counter() for split in collection.splits}
    for record in collection.records(fields=("split", *TEXT_FIELDS)):
        own = counts.setdefault(record.split, Counter())
        for field in TEXT_FIELDS:
            own[field] += any(text.strip() for text in record.texts(field))
    return {split: +own for split, own in counts.items()}


def _splits(folder: Path, collection: Collection) -> tuple[str, str]:
    """The split to train on, and the one to measure on."""
    sizes = collection.splits
    train = "train" if "train" in sizes else max(sizes, key=lambda split: sizes[split])
    others = [split for split in EVALUATION if split in sizes and split != train]
    others += sorted((s for s in sizes if s not in (train, *others)), key=lambda s: sizes[s])
    if not others:
        raise UsageError(
            f"{folder} has one split alone, {train!r}, and recall on the images of the training "
            "says nothing: import it again with --val 0.1 --test 0.1"
        )
    return train, others[0]


def _recipes(own: Counter[str], images: int) -> list[str]:
    """The recipes whose texts at least half of the training images have."""

    def has(recipe: str) -> bool:
        fields = load_recipe(recipe).fields
        return all(own[field] >= LEAST * images for field in fields)

    return [recipe for recipe in RECIPES if has(recipe)]


def _groups(own: Counter[str]) -> dict[str, Any]:
    """Where no recipe fits: the kinds of text that there are, one by one."""
    cells = {
        f"{field}-alone": {"recipe": {"positives": [{"from": field, "select": "random"}]}}
        for field in own
        if not FIELDS[field].negative
    }
    if not cells:
        return {}
    return {
        "texts": {
            "kind": "ablation",
            "title": "Each kind of text alone",
            "question": "Which kind of text teaches most?",
            "cells": cells,
        }
    }


def _content(
    name: str,
    folder: Path,
    model: str,
    train: str,
    cells: list[str],
    recipes: list[str],
    benchmarks: dict[str, Any],
) -> dict[str, Any]:
    """The content of the file."""
    start = Path(model).name or model
    longest = "long" if "long" in benchmarks else next(reversed(benchmarks))
    settings: dict[str, Any] = dict(_TINY) if model in SHIPPED else {}
    if train != "train":
        settings["split"] = train
    content: dict[str, Any] = {
        "name": name,
        "title": f"Text recipes on {folder.name}",
        "question": "Which texts teach the text encoder most, for short and for long queries?",
        "model": model,
        "model_title": start,
        "train": "data",
        "settings": settings,
        "seeds": [0, 1, 2],
        "collections": {"data": {"path": str(folder)}},
        "recipes": recipes,
        "benchmarks": benchmarks,
        "curves": {
            "cut": {
                "benchmark": longest,
                "max_lengths": sorted({20, 40, 60, 80, 100, benchmarks[longest]["max_length"]}),
                "cells": [start, *cells],
            }
        },
        "analyses": {
            "benchmark": longest,
            "cells": [start, *cells],
            "right": cells[-1] if "c4" not in cells else "c4",
            "wrong": start,
        },
    }
    long_ones = [recipe for recipe in recipes if recipe in ("c4", "c5", "c6", "c9", "c10")]
    if "c1" in recipes and long_ones and longest != "short":
        above = {"first": "c1", "seconds": long_ones, "benchmarks": [longest]}
        text = "Recipes with a paragraph find more by long text than captions alone."
        content["claims"] = [{"text": text, "above": above}]
    return {key: value for key, value in content.items() if value != {}}


def _name(folder: Path) -> str:
    """A name for the study that may be a folder."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in folder.name)
    return f"{plain.strip('-_')}-study" if plain.strip("-_") else "study"
