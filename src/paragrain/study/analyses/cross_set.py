"""How the texts of one data set lie to the images of another.

The paper shows a cross-data-set alignment without a definition. Here it is two matrices over K
benchmarks of equally many pairs, and a number for each:

- **Nearest texts**, the one to read: for the images of set a, the share whose nearest text, among
  the texts of all sets together, is from set b. The texts of the very image are left out in every
  set, so that finding its own text does not count: what is left is whether texts of that kind
  (short or long, this style or that) draw images of set a. Rows sum to 100 %; where the kind of
  text does not matter, each cell is near 100 / K. It depends on no scale and not on the modality
  gap.
- **Centroids**: the cosine between the centroid of the images of a and that of the texts of b,
  each less the mean of the K centroids of its modality, without which the gap would be in every
  cell. It tells whether sets of other topics lie in the same direction for both modalities. Two
  sets are opposite by construction and sets of the same images have one centroid, so this is left
  out unless three or more sets all hold different images. Sets of like topics have centred
  centroids that are mostly chance: the interval then reaches far to both sides of zero.
- **Matched cosine** of each set: the mean cosine of its own pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paragrain import plots
from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.pages import Block, Figure, Heading
from paragrain.stats import RESAMPLES, Estimate, interval
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.analyses.sample import EmbeddedPairs, image_draws, mean_over_images
from paragrain.study.figures import draw_matrix
from paragrain.study.plan import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_ROWS = 512  # images compared at once
_CHUNK = 200  # resamples at once


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers [K, K], images of a set down and texts of a set across, with 95 % intervals."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class CrossSet:
    """What the module describes.

    Attributes:
        names: of the K benchmarks.
        pairs: drawn from each.
        nearest: in percent.
        centroids: cosines; None unless three or more sets all hold different images.
        matched: the mean cosine of the pairs of each set.
        seed, resamples: of the intervals.
    """

    names: list[str]
    pairs: int
    nearest: Matrix
    centroids: Matrix | None
    matched: list[Estimate]
    seed: int
    resamples: int


def cross_set(
    sets: Mapping[str, EmbeddedPairs], *, resamples: int = RESAMPLES, seed: int = 0
) -> CrossSet:
    """Compare K benchmarks, each drawn by `draw_pairs` with the same encoder and size.

    Args:
        sets: the pairs of each, by name.
        resamples, seed: of the intervals.

    Raises:
        UsageError: fewer than two sets, or sets of unequal size, which would draw unequally.
    """
    sizes = {name: len(pairs.ids) for name, pairs in sets.items()}
    if len(sets) < 2 or len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError(
            f"texts of several sets are compared in equal numbers, not {told or 'of none'}: draw "
            "pairs of two or more benchmarks with the same size"
        )
    nearest = [
        mean_over_images(100 * own, resamples=resamples, seed=seed)
        for own in _nearest(list(sets.values()))
    ]
    matched = [
        mean_over_images(
            np.einsum("nd,nd->n", pairs.images, pairs.texts, dtype=np.float64)[:, None],
            resamples=resamples,
            seed=seed,
        )[0]
        for pairs in sets.values()
    ]
    apart = len({tuple(pairs.ids) for pairs in sets.values()}) == len(sets) > 2
    shares = np.array([[(cell.value, cell.low, cell.high) for cell in row] for row in nearest])
    return CrossSet(
        list(sets),
        next(iter(sizes.values())),
        Matrix(*np.moveaxis(shares, 2, 0)),
        _centroids(list(sets.values()), resamples, seed) if apart else None,
        matched,
        seed,
        resamples,
    )


def _nearest(sets: Sequence[EmbeddedPairs]) -> list[np.ndarray]:
    """Of each set [N, K]: 1 where the nearest text of another image is, 0 elsewhere."""
    texts = np.concatenate([pairs.texts for pairs in sets])
    owner = np.repeat(np.arange(len(sets)), [len(pairs.texts) for pairs in sets])
    everyone = np.array([id for pairs in sets for id in pairs.ids])
    found = []
    for pairs in sets:
        ids = np.array(pairs.ids)
        best = []
        for start in range(0, len(ids), _ROWS):
            rows = slice(start, start + _ROWS)
            scores = pairs.images[rows] @ texts.T
            scores[ids[rows, None] == everyone[None]] = -np.inf
            best.append(owner[scores.argmax(1)])
        found.append(np.eye(len(sets))[np.concatenate(best)])
    return found


def _centroids(sets: Sequence[EmbeddedPairs], resamples: int, seed: int) -> Matrix:
    """Cosines [K, K] of centred centroids, and the bounds of their intervals."""
    whole = _centred_cosines(*(np.stack([getattr(p, m).mean(0) for p in sets]) for m in _SIDES))
    draws = [
        image_draws(len(pairs.ids), resamples=resamples, seed=seed + place) / len(pairs.ids)
        for place, pairs in enumerate(sets)
    ]
    drawn = []
    for start in range(0, resamples, _CHUNK):
        rows = slice(start, start + _CHUNK)
        sides = [
            np.stack([own[rows] @ getattr(p, m) for own, p in zip(draws, sets, strict=True)], 1)
            for m in _SIDES
        ]
        drawn.append(_centred_cosines(*sides))
    bounds = interval(np.concatenate(drawn).reshape(resamples, -1))
    return Matrix(whole, *bounds.reshape(2, *whole.shape))


_SIDES = ("images", "texts")


def _centred_cosines(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Cosines [..., K, K] of centroids [..., K, D], each less the mean of the K.

    Less their mean (2, 0), the images are (1, 0), (-1, 0), nothing; the texts swap two.

    >>> images = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    >>> np.diag(_centred_cosines(images, images[[1, 0, 2]])).tolist()
    [-1.0, -1.0, 0.0]
    """
    sides = []
    for side in (images, texts):
        centred = np.asarray(side, np.float64) - side.mean(-2, keepdims=True)
        sides.append(centred / np.maximum(np.linalg.norm(centred, axis=-1, keepdims=True), 1e-12))
    cosines: np.ndarray = sides[0] @ np.swapaxes(sides[1], -1, -2)
    return cosines


def draw_cross_set(found: CrossSet) -> "Drawing":
    """The share of nearest texts and, where it means anything, the cosine of the centroids."""
    matrices = [(found.nearest.value, "nearest text of another image, %", 0, (0.0, 100.0))]
    if found.centroids is not None:
        matrices.append((found.centroids.value, "cosine of centred centroids", 2, (-1.0, 1.0)))
    drawing, panels = plots.panels(len(matrices), size=(5.4, 3.4))
    for axes, (values, title, digits, limits) in zip(panels, matrices, strict=True):
        draw_matrix(axes, values, found.names, found.names, digits=digits, limits=limits)
        plots.dress(axes, "texts of", "images of", title, grid=False)
    return drawing


def _compute(context: AnalysisContext) -> dict[str, CrossSet]:
    names = context.models()
    benchmarks = context.study.benchmarks(names[0])
    if len(benchmarks) < 2:
        return {}
    found = {}
    for name in dict.fromkeys((names[0], names[-1])):
        # Shares are of equal sets: all are as large as the smallest benchmark.
        least = min(len(np.unique(context.benchmark(name, b).text_image)) for b in benchmarks)
        found[name] = cross_set(
            {context.study.benchmark_title(b): context.pairs(name, b, least) for b in benchmarks}
        )
    return found


def _blocks(
    study: Study, found: Mapping[str, CrossSet], collection: Collection | None
) -> Iterator[Block]:
    yield Heading("Across the benchmarks", 3, folded=True)
    for name, own in found.items():
        yield Figure(
            draw_cross_set(own),
            f"{study.title(name)}: of the images of each benchmark, the share whose nearest text "
            "of another image is from each benchmark. The paper shows a matrix across data sets "
            "and does not define it; this definition is ours.",
            f"across-{name}",
        )


ANALYSIS = Analysis(CrossSet, _compute, _blocks)
