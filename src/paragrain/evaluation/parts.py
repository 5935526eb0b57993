"""Scores of the images that a training set shares, and of the others, from the same ranks.

The gallery is always whole; a part is made of queries. An image and its texts belong to the
overlapping part if anything marks the image, and to the disjoint part if nothing does. Nothing is
ranked anew, so the recalls of the two parts, weighted by their queries, make that of all.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from paragrain.evaluation.results import Result
from paragrain.evaluation.stored import QueryRanks
from paragrain.retrieval import scores_from_ranks

PARTS = ("all", "overlapping", "disjoint")


def with_parts(
    result: Result, marks: Mapping[str, Collection[str]], source: Mapping[str, Any]
) -> Result:
    """The result with a further entry `audited`: its scores for all, overlapping and disjoint.

    Args:
        result: as `evaluate` made it.
        marks: for each reason the ids of the images that it marks; ids that the result does not
            know (images that failed, or are not in the sample) do not count.
        source: what is said of the data that the images were compared with.

    Returns:
        `audited` in `about` holds `train` (the source), `marked` (images of the result by reason),
        and `parts`: of each, `images`, `texts` (both are queries), `scores` in percent and their
        `intervals` as in the whole result, strict and lenient; both are None for a part that asks
        nothing.
    """
    ids = result.queries.ids
    found = {
        reason: np.fromiter((id in own for id in ids), bool, len(ids))
        for reason, own in ((reason, frozenset(own)) for reason, own in marks.items())
    }
    overlapping = np.logical_or.reduce([np.zeros(len(ids), bool), *found.values()])
    audited = {
        "train": dict(source),
        "marked": {reason: int(marked.sum()) for reason, marked in found.items()},
        "parts": parts_of(result, overlapping, PARTS),
    }
    return replace(result, about={**result.about, "audited": audited})


def parts_of(result: Result, marked: np.ndarray, names: tuple[str, str, str]) -> dict[str, Any]:
    """Counts, scores and intervals of all queries, of those of marked images, and of the others.

    Args:
        result: whose ranks are told apart.
        marked: bool `[N]`, of its images.
        names: what the three parts are called.
    """
    rows = (marked | True, marked, ~marked)
    return {
        name: _part(result, result.queries.part(own)) for name, own in zip(names, rows, strict=True)
    }


def _part(result: Result, queries: QueryRanks) -> dict[str, Any]:
    """Counts, scores and intervals of some of the queries."""
    ks = list(result.image_to_text)
    counts = {"images": len(queries.ranks.image_queries), "texts": len(queries.text_image)}
    if not counts["texts"]:
        return {**counts, "scores": None, "intervals": None}
    scores = scores_from_ranks(queries.ranks, ks).as_dict()
    del scores["counts"]  # those of the gallery, which every part shares
    return {**counts, "scores": scores, "intervals": queries.intervals(ks)}
