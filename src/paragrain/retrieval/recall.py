"""Recall@K and median rank from exact ranks, in percent, both directions, strict and lenient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paragrain.errors import UsageError
from paragrain.retrieval.ranks import DirectionRanks, Ranks, RanksPair, exact_ranks


def hit_probability(ranks: DirectionRanks, k: int) -> np.ndarray:
    """Probability, per query, that a right item is in the top `k` when ties are broken at random.

    After the `num_gt` wrong items, k' = k - num_gt places are left (at most all) for a mixed bag
    of tied wrong and tied right ones. None of the right ones gets a place with the probability
    C(negatives, k') / C(negatives + positives, k').

    Returns:
        [Q] float64 from 0 to 1; 0 or 1 exactly where no tie is in question.

    A clear hit; a miss; one right against three wrong in a tie for three places.

    >>> ranks = DirectionRanks(np.array([2, 3, 0]), np.array([0, 0, 3]), np.array([1, 1, 1]), 9)
    >>> hit_probability(ranks, 3)
    array([1.  , 0.  , 0.75])
    """
    if k < 1:
        raise UsageError(f"K must be at least 1, not {k}.")
    negatives = ranks.tied_negatives.astype(np.float64)
    positives = ranks.tied_positives.astype(np.float64)
    places = np.clip(k - ranks.num_gt, 0, ranks.tied_negatives + ranks.tied_positives)
    miss = np.ones(len(ranks))
    # The quotient of binomials is a product of `places` factors, and also of `positives` factors.
    if places.max(initial=0) <= ranks.tied_positives.max(initial=0):
        for taken in range(int(places.max(initial=0))):
            factor = np.maximum(negatives - taken, 0)
            factor /= np.maximum(negatives + positives - taken, 1)
            miss *= np.where(taken < places, factor, 1)
    else:
        for number in range(1, int(ranks.tied_positives.max(initial=0)) + 1):
            factor = np.maximum(negatives - places + number, 0) / (negatives + number)
            miss *= np.where(number <= positives, factor, 1)
    return 1 - miss


def recall_at(ranks: DirectionRanks, k: int) -> float:
    """Recall@K in percent: the mean of `hit_probability` over the queries.

    Ties never help: if all vectors are equal, it is what drawing K items blindly would give.

    >>> collapsed = np.tile([1.0, 0.0], (4, 1))
    >>> recall_at(exact_ranks(collapsed, collapsed, [0, 1, 2, 3]).strict.text_to_image, 1)
    25.0
    """
    # Summed exactly, so that the order of the queries changes no digit.
    return 100 * math.fsum(hit_probability(ranks, k)) / len(ranks)


@dataclass(frozen=True)
class DirectionScores:
    """Scores of one direction.

    Attributes:
        recall: Recall@K in percent, by K.
        median_rank: median over the queries of the expected rank, counted from 1.
        tied_queries: queries in which a wrong item ties with the best right one.
    """

    recall: dict[int, float]
    median_rank: float
    tied_queries: int

    @classmethod
    def of(cls, ranks: DirectionRanks, ks: Sequence[int]) -> "DirectionScores":
        """Sum up the ranks of one direction."""
        return cls(
            recall={k: recall_at(ranks, k) for k in ks},
            median_rank=float(np.median(ranks.expected)),
            tied_queries=int((ranks.tied_negatives > 0).sum()),
        )

    def as_dict(self) -> dict[str, float | int]:
        """Flat, for result files: `{"R@1": 41.0, ..., "median_rank": 2.0, "tied_queries": 0}`."""
        recall = {f"R@{k}": value for k, value in self.recall.items()}
        return {**recall, "median_rank": self.median_rank, "tied_queries": self.tied_queries}


@dataclass(frozen=True)
class ScoresPair:
    """Both directions under one way of judging."""

    image_to_text: DirectionScores
    text_to_image: DirectionScores

    @classmethod
    def of(cls, ranks: RanksPair, ks: Sequence[int]) -> "ScoresPair":
        """Sum up the ranks of both directions."""
        return cls(
            DirectionScores.of(ranks.image_to_text, ks), DirectionScores.of(ranks.text_to_image, ks)
        )

    @property
    def mean_recall(self) -> float:
        """Mean of all Recall@K of both directions, in percent: one number to choose models by."""
        values = [*self.image_to_text.recall.values(), *self.text_to_image.recall.values()]
        return float(np.mean(values))

    def as_dict(self) -> dict[str, dict[str, float | int]]:
        """Nested by direction, for result files."""
        return {
            "image_to_text": self.image_to_text.as_dict(),
            "text_to_image": self.text_to_image.as_dict(),
        }


@dataclass(frozen=True)
class RetrievalScores:
    """Scores of a set of images and texts, and what they were computed over.

    Attributes:
        strict, lenient: the same queries judged both ways; equal where nothing is shared.
        images: images in the gallery, with and without texts.
        images_with_texts: image-to-text queries.
        texts: texts in the gallery, each of them a text-to-image query.
        grouped_images: images that share their group with another image.
        shared_texts: texts that say the same as one of another group.
    """

    strict: ScoresPair
    lenient: ScoresPair
    images: int
    images_with_texts: int
    texts: int
    grouped_images: int
    shared_texts: int

    def as_dict(self) -> dict[str, Any]:
        """Nested, for result files: strict and lenient scores, and the counts."""
        return {
            "strict": self.strict.as_dict(),
            "lenient": self.lenient.as_dict(),
            "counts": {
                "images": self.images,
                "images_with_texts": self.images_with_texts,
                "texts": self.texts,
                "grouped_images": self.grouped_images,
                "shared_texts": self.shared_texts,
            },
        }


def scores_from_ranks(ranks: Ranks, ks: Sequence[int] = (1, 5, 10)) -> RetrievalScores:
    """Sum up ranks that are already known."""
    return RetrievalScores(
        strict=ScoresPair.of(ranks.strict, ks),
        lenient=ScoresPair.of(ranks.lenient, ks),
        images=ranks.images,
        images_with_texts=len(ranks.image_queries),
        texts=len(ranks.strict.text_to_image),
        grouped_images=ranks.grouped_images,
        shared_texts=ranks.shared_texts,
    )


def retrieval_scores(
    images: Any,
    texts: Any,
    text_image: Any,
    groups: Any = None,
    wordings: Any = None,
    ks: Sequence[int] = (1, 5, 10),
    *,
    progress: bool = False,
) -> RetrievalScores:
    """Score how well images and texts find each other; arguments and errors as `exact_ranks`.

    Three images with a text each: the first two are found at once, and the third image prefers the
    second's text to its own.

    >>> images = np.eye(3)
    >>> texts = np.array([[1.0, 0.0, 0.0], [0.0, 0.8, 0.6], [0.8, 0.36, 0.48]])
    >>> scores = retrieval_scores(images, texts, [0, 1, 2], ks=(1, 10))
    >>> {k: round(value, 1) for k, value in scores.strict.image_to_text.recall.items()}
    {1: 66.7, 10: 100.0}
    >>> scores.as_dict()["strict"]["text_to_image"]["median_rank"]
    1.0
    """
    ranks = exact_ranks(
        images, texts, text_image, groups=groups, wordings=wordings, progress=progress
    )
    return scores_from_ranks(ranks, ks)
