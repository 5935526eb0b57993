"""What a recipe finds in the data: a recipe that misses one of its fields is another recipe."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paragrain.collection import Collection, Record
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import RIGHT_FIELDS, fields_with_texts
from paragrain.training.supervision import Pick, Recipe, load_recipe, picked, recipe_names


@dataclass(frozen=True)
class Found:
    """How many images have texts for one pick of a recipe.

    Attributes:
        field: where the pick takes them from.
        negative: whether they are the wrong ones.
        images: that have a text for it; of negatives, one that none of the positives says too.
        of: images that are to have one: all, or those of its share; of negatives, those that have
            a positive.
        fewer: images that have fewer texts than the pick asks for.
        wanted: how many it asks for, if that is a number.
    """

    field: str
    negative: bool
    images: int
    of: int
    fewer: int
    wanted: int | None

    def __str__(self) -> str:
        """As it is told.

        >>> print(Found("generated", False, 480, 500, 12, 5))
        generated: 480 of 500 images (12 of them with fewer than 5)
        """
        few = f" ({self.fewer:,} of them with fewer than {self.wanted})" if self.fewer else ""
        return f"{self.field}: {self.images:,} of {self.of:,} images{few}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def found_line(found: Sequence[Found]) -> str:
    """What was found, in one line."""
    return "; ".join(map(str, found))


def count_found(records: Iterable[Record], recipe: Recipe) -> list[Found]:
    """What each pick of a recipe finds, the positives first.

    >>> records = [Record("1", captions=["a cat"]), Record("2", paragraph="A dog.", captions=[" "])]
    >>> print(found_line(count_found(records, load_recipe("c5"))))
    captions: 1 of 2 images; paragraph: 1 of 2 images
    """
    picks = (*recipe.positives, *recipe.negatives)
    have, of, fewer = ([0] * len(picks) for _ in range(3))
    for record in records:
        right, wrong = picked(record, recipe, seed=0, epoch=0)
        used = any(texts for _, texts in right)  # wrong texts alone teach nothing
        for place, (pick, texts) in enumerate((*right, *(wrong if used else ()))):
            of[place] += pick.shares(record.id)
            have[place] += bool(texts)
            fewer[place] += 0 < len(texts) < (_wanted(pick) or 0)
    return [
        Found(pick.source, n >= len(recipe.positives), have[n], of[n], fewer[n], _wanted(pick))
        for n, pick in enumerate(picks)
    ]


def settle_recipe(
    collection: Collection, recipe: Recipe, split: str, fallback: str | None
) -> Recipe:
    """The recipe, or that with a field in place of one that the data do not have.

    Args:
        collection, split: the data.
        recipe: as it was asked for.
        fallback: the field that stands in; its name becomes part of the recipe's.

    Raises:
        UsageError: no image has a text for one of the picks, so that it would be another recipe,
            and no fallback helps.
    """
    records = collection.records(split, fields=recipe.fields)
    try:
        check_found(count_found(records, recipe), recipe, collection, split)
    except UsageError:
        if fallback is None:
            raise
        found = count_found(collection.records(split, fields=recipe.fields), recipe)
        other = _replaced(recipe, found, fallback)
        records = collection.records(split, fields=other.fields)
        check_found(count_found(records, other), other, collection, split)
        return other
    return recipe


def check_found(found: Sequence[Found], recipe: Recipe, collection: Collection, split: str) -> None:
    """Refuse a recipe of which a whole field is missing.

    Raises:
        UsageError: it would be another recipe; says which, and what else could be done.
    """
    lost = [n for n, one in enumerate(found) if not one.images]
    if not lost:
        return
    one = found[lost[0]]
    what = (
        f"none of the {one.of:,} images of {collection.place(split)} has a text in {one.field}"
        if one.of
        else f"the share that {recipe.name} has of {one.field} takes in no image of "
        f"{collection.place(split)}"
    )
    there = fields_with_texts(collection, split, RIGHT_FIELDS)
    others = [field for field in there if field not in recipe.fields]
    advice = f"use {_left_name(recipe, lost)}"
    if one.negative:
        advice += ", or annotate negatives"
    elif others:
        advice += f", or --fallback {others[0]} to take {' or '.join(others)} in its place"
    else:
        advice += f", or give the images {one.field}"
    raise UsageError(f"{what}, so that {recipe.name} would not be what it says: {advice}")


def _left_name(recipe: Recipe, lost: Sequence[int]) -> str:
    """What a recipe would be without some of its picks, as advice."""
    right = len(recipe.positives)
    positives = tuple(p for n, p in enumerate(recipe.positives) if n not in lost)
    negatives = tuple(p for n, p in enumerate(recipe.negatives, right) if n not in lost)
    if not positives:
        return "a recipe of fields that are there"
    for name in recipe_names():
        known = load_recipe(name)
        if (known.positives, known.negatives) == (positives, negatives):
            return f"the recipe {name}, which is what is left"
    fields = " and ".join(dict.fromkeys(p.source for p in (*positives, *negatives)))
    return f"a recipe of your own, from {fields}"


def _replaced(recipe: Recipe, found: Sequence[Found], fallback: str) -> Recipe:
    """The recipe with `fallback` in place of the field that is missing."""
    lost = list(dict.fromkeys(one.field for one in found if not one.images))
    wrong = [one.field for one in found if not one.images and one.negative]
    reason = ""
    if fallback not in RIGHT_FIELDS:
        reason = f"there is no such text; choose from {', '.join(RIGHT_FIELDS)}"
    elif wrong:
        reason = "true texts cannot stand in for wrong ones"
    elif len(lost) > 1:
        reason = f"{' and '.join(lost)} are missing, and one field cannot be both"
    elif fallback in recipe.fields:
        reason = f"{recipe.name} has it already, so that its texts would count twice"
    if reason:
        raise UsageError(
            f"{fallback} cannot take the place of {' and '.join(lost)} in {recipe.name} "
            f"({reason}): write a recipe of your own"
        )
    picks = [
        pick.model_copy(update={"source": fallback}) if pick.source == lost[0] else pick
        for pick in recipe.positives
    ]
    name = f"{recipe.name} ({lost[0]} from {fallback})"
    return recipe.model_copy(update={"name": name, "positives": tuple(picks)})


def _wanted(pick: Pick) -> int | None:
    return pick.select if isinstance(pick.select, int) and pick.select > 1 else None
