"""What a recipe finds in the data: a recipe that misses one of its fields is another recipe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paragrain.collection import Collection, Record
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import RIGHT_FIELDS, fields_with_texts
from paragrain.training.recipes import Recipe, load_recipe, recipe_names
from paragrain.training.sampling import selected


@dataclass
class Coverage:
    """How many images have texts for one selection of a recipe.

    Attributes:
        field: where the selection takes them from.
        negative: whether they are the wrong ones.
        images: that have a text for it; of negatives, one that none of the positives says too.
        of: images that are to have one: all, or those of its share; of negatives, those that have
            a positive.
        fewer: images that have fewer texts than the selection asks for.
        wanted: how many it asks for, if that is a number above 1.

    >>> print(Coverage("generated", False, 480, 500, 12, 5))
    generated: 480 of 500 images (12 of them with fewer than 5)
    """

    field: str
    negative: bool
    images: int = 0
    of: int = 0
    fewer: int = 0
    wanted: int | None = None

    def __str__(self) -> str:
        """As it is told."""
        few = f" ({self.fewer:,} of them with fewer than {self.wanted})" if self.fewer else ""
        return f"{self.field}: {self.images:,} of {self.of:,} images{few}"


def count_coverage(records: Iterable[Record], recipe: Recipe) -> list[Coverage]:
    """What each selection of a recipe finds, the positives first.

    >>> records = [Record("1", captions=["a cat"]), Record("2", paragraph="A dog.", captions=[" "])]
    >>> print(*count_coverage(records, load_recipe("c5")), sep="; ")
    captions: 1 of 2 images; paragraph: 1 of 2 images
    """
    counts = [
        Coverage(
            selection.source,
            place >= len(recipe.positives),
            wanted=selection.select
            if isinstance(selection.select, int) and selection.select > 1
            else None,
        )
        for place, selection in enumerate(recipe.selections)
    ]
    for record in records:
        right, wrong = selected(record, recipe, seed=0, epoch=0)
        selected_texts = right + wrong if any(right) else right  # wrong texts alone teach nothing
        for count, selection, texts in zip(counts, recipe.selections, selected_texts, strict=False):
            count.of += selection.shares(record.id)
            count.images += bool(texts)
            count.fewer += 0 < len(texts) < (count.wanted or 0)
    return counts


def with_fallback(
    collection: Collection, recipe: Recipe, split: str, fallback: str | None
) -> Recipe:
    """The recipe, or that with a field in place of one that the data do not have.

    Args:
        collection, split: the data.
        recipe: as it was asked for.
        fallback: the field that stands in; its name becomes part of the recipe's.

    Raises:
        UsageError: no image has a text for one of the selections, so that it would be another
            recipe, and no fallback helps.
    """

    def count(recipe: Recipe) -> list[Coverage]:
        return count_coverage(collection.records(split, fields=recipe.fields), recipe)

    counts = count(recipe)
    if fallback is not None and not all(one.images for one in counts):
        recipe = _replaced(recipe, counts, fallback)
        counts = count(recipe)
    check_coverage(counts, recipe, collection, split)
    return recipe


def check_coverage(
    counts: Sequence[Coverage], recipe: Recipe, collection: Collection, split: str
) -> None:
    """Refuse a recipe of which a whole field is missing.

    Raises:
        UsageError: it would be another recipe; says which, and what else could be done.
    """
    lost = [place for place, count in enumerate(counts) if not count.images]
    if not lost:
        return
    one = counts[lost[0]]
    what = (
        f"none of the {one.of:,} images of {collection.place(split)} has a text in {one.field}"
        if one.of
        else f"the share that {recipe.name} has of {one.field} takes in no image of "
        f"{collection.place(split)}"
    )
    there = fields_with_texts(collection, split, RIGHT_FIELDS)
    others = [field for field in there if field not in recipe.fields]
    advice = f"use {_rest(recipe, lost)}"
    if one.negative:
        advice += ", or annotate negatives"
    elif others:
        advice += f", or --fallback {others[0]} to take {' or '.join(others)} in its place"
    else:
        advice += f", or give the images {one.field}"
    raise UsageError(f"{what}, so that {recipe.name} would not be what it says: {advice}")


def _rest(recipe: Recipe, lost: Sequence[int]) -> str:
    """What a recipe would be without some of its selections, as advice."""
    right = len(recipe.positives)
    positives = tuple(s for n, s in enumerate(recipe.positives) if n not in lost)
    negatives = tuple(s for n, s in enumerate(recipe.negatives, right) if n not in lost)
    if not positives:
        return "a recipe of fields that are there"
    for known in map(load_recipe, recipe_names()):
        if (known.positives, known.negatives) == (positives, negatives):
            return f"the recipe {known.name}, which is what is left"
    fields = " and ".join(dict.fromkeys(s.source for s in (*positives, *negatives)))
    return f"a recipe of your own, from {fields}"


def _replaced(recipe: Recipe, counts: Sequence[Coverage], fallback: str) -> Recipe:
    """The recipe with `fallback` in place of the field that is missing."""
    lost = list(dict.fromkeys(one.field for one in counts if not one.images))
    reason = ""
    if fallback not in RIGHT_FIELDS:
        reason = f"there is no such text; choose from {', '.join(RIGHT_FIELDS)}"
    elif any(one.negative and not one.images for one in counts):
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
    positives = tuple(
        selection.model_copy(update={"source": fallback})
        if selection.source == lost[0]
        else selection
        for selection in recipe.positives
    )
    name = f"{recipe.name} ({lost[0]} from {fallback})"
    return recipe.model_copy(update={"name": name, "positives": positives})
