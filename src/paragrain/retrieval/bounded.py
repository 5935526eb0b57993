"""Which pairs cannot matter, told from a few leading dimensions, so that most are never scored.

In the principal axes of the vectors, the first few dimensions hold nearly all of their length. What
the remaining ones can add to a score is at most the product of the lengths that remain
(Cauchy-Schwarz), so one extra dimension that holds this length turns a narrow product into an upper
bound of all scores. A pair whose bound lies below what both its image and its text ask for counts
for neither and is skipped. The others are scored in double precision; where even that leaves in
doubt on which side of a tie's edge the float32 score falls, the tile is counted in full. So the
counts are those of the full product, each and every one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paragrain.retrieval import kernel

if TYPE_CHECKING:
    from paragrain.retrieval.tiles import Judgement

LEADING = (16, 24, 32, 48, 64, 96, 128)
"""The numbers of leading dimensions to choose from."""

_UNIT = 2.0**-24  # half the distance from 1 to the next float32
_SAMPLE = (512, 4096)  # images and texts by which the number is chosen
_AXES = 4096  # vectors of each side from which the axes are computed
_FEW = 1 << 24  # pairs below which choosing takes longer than it saves
_SIFT = _DOT = 30  # a comparison, and a dot of two rows by their width, in multiply-adds
_GAIN = 1.5  # how many times cheaper it must look
RARE = 50
"""Of so many pairs one may be scored by itself; more would cost as much as the whole tile."""


@dataclass(frozen=True)
class Bound:
    """Vectors whose products are upper bounds of the scores.

    Attributes:
        images, texts: [N, d + 1] and [M, d + 1] float32; leading dimensions in the principal axes,
            and in the last column the length that they leave out.
        slack: how far rounding may put a true score above its bound.
        margin: how far the float32 score of a pair may lie from its true score. Rounding errors of
            a sum over the D dimensions add up as a random walk does, so it grows with the root of
            D; at D = 256 it is 1.3e-6, where the greatest error seen in 10^8 pairs was 7.6e-7.
    """

    images: np.ndarray
    texts: np.ndarray
    slack: float
    margin: float

    @classmethod
    def of(cls, images: np.ndarray, texts: np.ndarray, axes: np.ndarray) -> "Bound":
        """Bound the scores of `images` [N, D] and `texts` [M, D] by the columns of `axes` [D, d].

        >>> images, texts = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[[0, 2, 1]]
        >>> bound = Bound.of(images, texts, np.eye(3)[:, :1])
        >>> (bound.images @ bound.texts.T).round(3)
        array([[1., 0., 0.],
               [0., 1., 1.],
               [0., 1., 1.]], dtype=float32)
        """
        width, leading = axes.shape
        return cls(
            images=_with_rest(images, axes),
            texts=_with_rest(texts, axes),
            slack=(leading + 16) * _UNIT * 1.02,
            margin=1.35 * _UNIT * np.sqrt(width),
        )


def choose_bound(
    images: np.ndarray, texts: np.ndarray, judgement: "Judgement", leading: int | None
) -> Bound | None:
    """The bound that promises most on a sample of the pairs; None if none is worth while.

    Args:
        images, texts: [N, D], [M, D] float32.
        judgement: what is asked for.
        leading: this number of dimensions instead, whatever it promises; 0 for None.
    """
    width = images.shape[1]
    if leading is None and (len(images) * len(texts) < _FEW or width <= LEADING[0]):
        return None
    if leading == 0:
        return None
    axes = principal_axes(images, texts)
    if leading is None:
        costs = {d: _cost(images, texts, judgement, axes[:, :d]) for d in LEADING if d < width}
        leading = min(costs, key=lambda d: costs[d])
        if costs[leading] * _GAIN > width:
            return None
    return Bound.of(images, texts, axes[:, :leading])


def principal_axes(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """[D, D] float64, columns by falling share of the length of both sides, weighed alike."""
    moments = np.zeros((images.shape[1], images.shape[1]))
    for side in (images, texts):
        rows = side[_spread(len(side), _AXES)].astype(np.float64)
        moments += rows.T @ rows / len(rows)
    return np.ascontiguousarray(np.linalg.eigh(moments)[1][:, ::-1])


def _with_rest(vectors: np.ndarray, axes: np.ndarray) -> np.ndarray:
    out = np.empty((len(vectors), axes.shape[1] + 1), np.float32)
    for start in range(0, len(vectors), 4096):
        part = vectors[start : start + 4096].astype(np.float64)
        lead = part @ axes
        rest = np.einsum("nd,nd->n", part, part) - np.einsum("nd,nd->n", lead, lead)
        out[start : start + 4096, :-1] = lead
        out[start : start + 4096, -1] = np.sqrt(np.maximum(rest, 0) + 1e-14) * (1 + 1e-6)
    return out


def _cost(images: np.ndarray, texts: np.ndarray, judgement: "Judgement", axes: np.ndarray) -> float:
    """Multiply-adds per pair, all told; the full product has as many as the vectors are wide."""
    rows, columns = _spread(len(images), _SAMPLE[0]), _spread(len(texts), _SAMPLE[1])
    images, texts = images[rows], texts[columns]
    bound = Bound.of(images, texts, axes)
    upper = bound.images @ bound.texts.T
    first, last = judgement.first[rows, None], judgement.last[rows, None]
    upper[(columns >= first) & (columns < last)] = -np.inf
    image_low, image_high, text_low, text_high = judgement.bounds()
    found = kernel.settle(
        *(upper, images, texts, bound.images[:, -1], bound.texts[:, -1]),
        *(image_low[rows], image_high[rows], text_low[columns], text_high[columns]),
        *(bound.slack, bound.margin, upper.size // RARE, upper.size),
        *np.zeros((2, len(rows)), np.uint32),
        *np.zeros((2, len(columns)), np.uint32),
    )
    share = found[0] / upper.size
    if share > 1 / RARE:
        return np.inf
    return float(axes.shape[1] + _SIFT + share * _DOT * len(axes))


def _spread(total: int, most: int) -> np.ndarray:
    """At most `most` numbers below `total`, evenly spread."""
    return np.linspace(0, total - 1, min(most, total)).astype(np.int64)
