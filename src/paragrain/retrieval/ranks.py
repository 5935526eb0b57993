"""Exact ranks in both directions from one pass, with ties counted and groups respected.

A query's rank is told by three numbers, of which every recall and rank follows:

- `num_gt`: wrong items that score higher than the query's best right item,
- `tied_negatives`: wrong items that tie with it,
- `tied_positives`: right items that tie with it, itself included.

Image to text, an image is answered by the best of its own texts. Text to image, a text is answered
by its own image. Judged strictly, nothing else is right. Judged leniently, any text of any image of
the same group is right for an image, any image of the group for a text, and no member of the group
counts against another; and so is a text that says the same as one of these, wherever it stands,
with the images of the group where it does. Images without texts ask nothing, yet stay in the
gallery.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paragrain.errors import UsageError
from paragrain.progress import progress_bar
from paragrain.retrieval.answers import Answers, Layout, lenient_answers, strict_answers
from paragrain.retrieval.saved_counts import SavedCounts
from paragrain.retrieval.tiles import count_tiles
from paragrain.retrieval.vectors import full_precision, same_place, take

TIE = 1e-6
"""Scores that differ by no more than this are a tie. The float32 dot of the same two unit vectors
differs by some 1e-7 with the place in the product at which it is computed, so copies tie."""


@dataclass(frozen=True)
class DirectionRanks:
    """How the right items of each query of one direction fared.

    Attributes:
        num_gt, tied_negatives, tied_positives: [Q] int64, as in the module's description; the last
            is at least 1.
        gallery: number of items that were ranked.

    >>> ranks = DirectionRanks(np.array([0, 2]), np.array([0, 3]), np.array([1, 1]), gallery=9)
    >>> ranks.worst, ranks.expected
    (array([1, 6]), array([1. , 4.5]))
    """

    num_gt: np.ndarray
    tied_negatives: np.ndarray
    tied_positives: np.ndarray
    gallery: int

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.num_gt)

    @property
    def worst(self) -> np.ndarray:
        """[Q] int64: rank of the best right item, counted from 1, if it loses every tie."""
        return 1 + self.num_gt + self.tied_negatives

    @property
    def expected(self) -> np.ndarray:
        """[Q] float64: mean rank of the first right item when ties are broken at random.

        Of `tied_positives` right items laid at random among `tied_negatives` wrong ones, the first
        has on average tied_negatives / (tied_positives + 1) wrong ones before it.
        """
        return 1 + self.num_gt + self.tied_negatives / (self.tied_positives + 1)


@dataclass(frozen=True)
class RanksPair:
    """Both directions under one way of judging."""

    image_to_text: DirectionRanks
    text_to_image: DirectionRanks


@dataclass(frozen=True)
class Ranks:
    """Ranks of a set of images and texts, in the order in which the caller gave them.

    Attributes:
        strict, lenient: the same queries judged both ways; equal where nothing is shared.
        image_queries: [Q] int64, the rows of the images that have texts, rising; the image-to-text
            query number q is the image in row `image_queries[q]`. Each text is a query, in order.
        images: number of images, with and without texts.
        grouped_images: number of images that share their group with another image.
        shared_texts: number of texts that say the same as one of another group.
    """

    strict: RanksPair
    lenient: RanksPair
    image_queries: np.ndarray
    images: int
    grouped_images: int
    shared_texts: int = 0


def exact_ranks(
    images: Any,
    texts: Any,
    text_image: Any,
    *,
    groups: Any = None,
    wordings: Any = None,
    tile: tuple[int, int] | None = None,
    resume: Path | None = None,
    progress: bool = False,
) -> Ranks:
    """Rank all texts for each image and all images for each text, by cosine.

    Args:
        images: [N, D] floating, rows of length 1: arrays, or tensors on any device. If a side lies
            on a CUDA device, the work is done there.
        texts: [M, D] likewise.
        text_image: [M] integers; the row of the image that each text belongs to.
        groups: [N] integers, equal for images that show the same; None if each stands for itself.
            `group_numbers` makes them from names.
        wordings: [M] integers, equal for texts that say the same; None if each says its own.
            `group_numbers` makes them from the texts. Under one wording any of its images is
            right for any of its texts, and nothing else of theirs is.
        tile: images and texts scored at once; None for the device's own choice. It bounds the
            memory and changes no result.
        resume: a file that keeps the counts every half minute and goes in the end, so that a call
            that was killed goes on when it is made again with the same vectors.
        progress: show a progress bar.

    Raises:
        ParagrainError: there are no images or no texts, or vectors hold NaN or infinity.
        UsageError: shapes or types that do not fit, vectors that do not have length 1, or texts
            that belong to no image.

    Two images lie at right angles. The first has two texts: one of its own making (1.0 against 0.0)
    and one that rather tells of the other image (0.6 against 0.8). The second has one (0.0 against
    1.0). Each image finds one of its texts first; the middle text finds the wrong image first.

    >>> images = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> texts = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> ranks = exact_ranks(images, texts, [0, 0, 1])
    >>> ranks.strict.image_to_text.num_gt, ranks.strict.text_to_image.num_gt
    (array([0, 0]), array([0, 1, 0]))

    If both images show the same thing, that wrong image is right in the lenient judgement.

    >>> ranks = exact_ranks(images, texts, [0, 0, 1], groups=[7, 7])
    >>> ranks.strict.text_to_image.num_gt, ranks.lenient.text_to_image.num_gt
    (array([0, 1, 0]), array([0, 0, 0]))

    If the middle text and the last are in the same words, it may find either image.

    >>> ranks = exact_ranks(images, texts, [0, 0, 1], wordings=[3, 8, 8])
    >>> ranks.lenient.text_to_image.num_gt, ranks.shared_texts
    (array([0, 0, 0]), 2)
    """
    images, texts = same_place(images, texts)
    text_image = _text_image(text_image, len(texts), len(images))
    layout = Layout.of(
        text_image,
        _numbers(groups, len(images), "groups", "images"),
        _numbers(wordings, len(texts), "wordings", "texts"),
    )
    images, texts = take(images, layout.image_order), take(texts, layout.text_order)
    with full_precision():
        answers = [strict_answers(layout, images, texts, TIE)]
        if layout.asked_images:
            answers.append(lenient_answers(layout, images, texts, TIE))
        all_targets = [answer.targets for answer in answers]
        saved = None
        if resume is not None and not isinstance(images, torch.Tensor):
            last = all_targets[-1]
            places = (layout.image_order, layout.text_order, last.first, last.last)
            saved = SavedCounts(resume, [images, texts, *places, last.image_best, last.text_best])
        with progress_bar("ranking", len(images), unit="images", show=progress) as advance:
            count_tiles(
                *(images, texts, all_targets),
                tile=_tile(tile),
                advance=advance,
                saved=saved,
            )
        if saved is not None:
            saved.remove()

    queries = np.flatnonzero(np.bincount(text_image, minlength=len(images)))
    # Where the lenient judgement did not ask, nothing is shared and the strict counts are its own.
    image_counts, text_counts = _counts(answers[0])
    strict = _in_callers_order(layout, image_counts, text_counts, queries)
    if layout.asked_images:
        lenient_image_counts, lenient_text_counts = _counts(answers[1])
        image_counts[:, : layout.asked_images] = lenient_image_counts[:, : layout.asked_images]
        text_counts[:, : layout.asked_texts] = lenient_text_counts[:, : layout.asked_texts]
    lenient = _in_callers_order(layout, image_counts, text_counts, queries)
    return Ranks(strict, lenient, queries, len(images), layout.grouped_images, layout.shared_texts)


def group_numbers(names: Sequence[str | None]) -> np.ndarray:
    """Turn names into the integers that `exact_ranks` takes; None is a group of its own.

    Only what the caller names is a group. Images that merely carry an equal text are not joined by
    it: "a photo" under a thousand images would make any of them right for any text of the others.
    That is what `wordings` are for. Equal texts tie, so even the strict judgement gives each its
    fair share.

    >>> group_numbers(["beach", None, "beach", None])
    array([0, 1, 0, 2])
    """
    numbers: dict[object, int] = {}
    keys = ((name,) if name is not None else index for index, name in enumerate(names))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _counts(answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """`num_gt`, `tied_negatives` and `tied_positives`, [3, N] and [3, M], in the layout's order."""
    counts = answers.targets
    image_tied_negatives = counts.image_num_ge - counts.image_num_gt - answers.image_outside
    text_tied_negatives = counts.text_num_ge - counts.text_num_gt - answers.text_outside
    # A right score a hair from the edge of the tie may be taken for in here and for out there.
    return (
        np.stack(
            [counts.image_num_gt, np.maximum(image_tied_negatives, 0), answers.image_tied_positives]
        ),
        np.stack(
            [counts.text_num_gt, np.maximum(text_tied_negatives, 0), answers.text_tied_positives]
        ),
    )


def _in_callers_order(
    layout: Layout, image_counts: np.ndarray, text_counts: np.ndarray, queries: np.ndarray
) -> RanksPair:
    images, texts = np.empty_like(image_counts), np.empty_like(text_counts)
    images[:, layout.image_order] = image_counts
    texts[:, layout.text_order] = text_counts
    return RanksPair(
        image_to_text=_direction(images[:, queries], gallery=texts.shape[1]),
        text_to_image=_direction(texts, gallery=images.shape[1]),
    )


def _direction(counts: np.ndarray, gallery: int) -> DirectionRanks:
    num_gt, tied_negatives, tied_positives = counts
    return DirectionRanks(num_gt, tied_negatives, tied_positives, gallery)


def _text_image(text_image: Any, texts: int, images: int) -> np.ndarray:
    rows = np.asarray(text_image)
    if rows.shape != (texts,) or not np.issubdtype(rows.dtype, np.integer):
        raise UsageError(
            f"text_image must hold one whole number for each of the {texts} texts, not "
            f"{rows.dtype} of shape {rows.shape}."
        )
    outside = (rows < 0) | (rows >= images)
    if outside.any():
        text = outside.argmax()
        raise UsageError(
            f"{outside.sum()} texts belong to no image; the first, text {text}, names image row "
            f"{rows[text]} of {images}."
        )
    return rows.astype(np.int64)


def _numbers(given: Any, size: int, name: str, what: str) -> np.ndarray:
    """Integers that join what is equal: as they were given, or each of its own."""
    if given is None:
        return np.arange(size)
    numbers = np.asarray(given)
    if numbers.shape != (size,) or not np.issubdtype(numbers.dtype, np.integer):
        raise UsageError(
            f"{name} must hold one whole number for each of the {size} {what}, not "
            f"{numbers.dtype} of shape {numbers.shape}; group_numbers makes them from names."
        )
    return numbers


def _tile(tile: tuple[int, int] | None) -> tuple[int, int] | None:
    if tile is not None and min(tile) < 1:
        raise UsageError(f"A tile must hold at least one image and one text, not {tile}.")
    return tile
