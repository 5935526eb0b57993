"""Which images of a benchmark the model has learned from: their recall is no test.

A checkpoint tells what it was trained on (`encoders/trained_on.py`) by the bytes of each image, so
that copies under other ids, in other collections and other splits are known. Pictures that were
saved anew are not: `paragrain audit` finds those.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.trained_on import TrainedOn, Use, content_key, group_key, id_key
from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.parts import parts_of
from paragrain.evaluation.results import Result

SEEN_PARTS = ("all", "seen", "unseen")


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
