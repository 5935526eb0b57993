"""Scores of the images that a model has learned from, and of the others, from the same ranks.

What it has learned from is known from its checkpoint (`encoders/trained_on.py`), by the bytes of
each image, so that copies under other ids, in other collections and other splits are known; or from
an audit, which finds pictures that were saved anew too.

The gallery is always whole; a part is made of queries. An image and its texts belong to the seen or
overlapping part if anything marks the image, and to the other if nothing does. Nothing is ranked
anew, so the recalls of the two parts, weighted by their queries, make that of all.
"""

from collections import abc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.trained_on import TrainedOn, Use, content_key, group_key, id_key
from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.query_ranks import QueryRanks
from paragrain.evaluation.results import Result
from paragrain.retrieval import scores_from_ranks

PARTS = ("all", "overlapping", "disjoint")
SEEN_PARTS = ("all", "seen", "unseen")


def with_parts(
    result: Result, marks: Mapping[str, abc.Collection[str]], source: Mapping[str, Any]
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


def with_trained_on(
    result: Result, benchmark: Benchmark, collection: Collection, encoder: ImageTextEncoder
) -> Result:
    """The result with an entry `trained_on`; None in it where the model does not tell.

    Returns:
        `trained_on` in `about` holds `sets` (what the model has learned from); for each of `splits`
        the number of `images`, of those `trained` on, of those among them with the `same_content`
        (the others share a group with such an image), and of those `validated` on (the best step
        was chosen by them); `same_id`, the number of images with other bytes under the id of an
        image that was trained on, in a set of the same name; and `parts`, the scores of all, seen
        and unseen queries as in an audited result (see `with_parts`), None where nothing was
        trained on.
    """
    known = encoder.trained_on
    about: dict[str, Any] | None = None
    if known is not None:
        same, seen = _marks(known, "trained", benchmark)
        validated = _marks(known, "validated", benchmark)[1] & ~seen
        ids = known.has("trained", [id_key(collection.name, id) for id in benchmark.ids]) & ~seen
        counts = {"trained": seen, "same_content": same, "validated": validated}
        own = np.asarray(benchmark.splits, dtype=object)
        about = {
            "sets": known.sets,
            "splits": {
                split: {
                    "images": int((own == split).sum()),
                    **{name: int((rows & (own == split)).sum()) for name, rows in counts.items()},
                }
                for split in dict.fromkeys(benchmark.splits)
            },
            "same_id": int(ids.sum()),
            "parts": parts_of(result, seen, SEEN_PARTS) if seen.any() else None,
        }
    return replace(result, about={**result.about, "trained_on": about})


def _marks(known: TrainedOn, use: Use, benchmark: Benchmark) -> tuple[np.ndarray, np.ndarray]:
    """bool `[N]`: images of the bytes of one that was used; these and those of their groups."""
    same = known.has(use, [content_key(content) for content in benchmark.contents])
    group = known.has(use, [group_key(content) for content in benchmark.contents])
    return same, same | group | np.isin(benchmark.groups, benchmark.groups[same])
