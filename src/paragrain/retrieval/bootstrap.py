"""How far a recall could have come out otherwise: resampling, and tests for two models.

Everything rests on stored ranks; nothing is ranked anew. What is drawn again and again is whole
groups of images (an image that shares its group with none is a group of its own), each with all its
texts: the five captions of one photograph are hard or easy together, and so are two photographs of
one scene, so drawing them one by one would make intervals too narrow. Groups that ask nothing are
not drawn. The gallery stays as it is: an interval tells of other queries against this gallery, not
of a larger or smaller one. Where every query hits, or none, all draws are equal and tell nothing:
`recall_interval` then takes the exact binomial bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paragrain.errors import UsageError

RESAMPLES = 2000
LEVEL = 0.95
_CHUNK = 1 << 22  # weights that are held at once
_DEAR = 20  # a multinomial draw costs this many times as much for a kind as counting for a unit


@dataclass(frozen=True)
class Units:
    """Hit probabilities of queries, summed within each unit of resampling.

    Attributes:
        sums: [U, C] float64, for C columns (a direction at a K, of a model).
        counts: [U, C] float64; queries of the unit in that column. No row is all zero.
    """

    sums: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[tuple[np.ndarray, np.ndarray]]) -> "Units":
        """Sum up columns of (hit probabilities [Q], number of the unit of each query [Q]).

        >>> units = Units.of([(np.array([1.0, 0.0, 0.5]), np.array([7, 2, 7]))])
        >>> units.sums.tolist(), units.counts.tolist()
        ([[0.0], [1.5]], [[1.0], [2.0]])
        """
        _, rows = np.unique(np.concatenate([unit for _, unit in columns]), return_inverse=True)
        size = int(rows.max()) + 1
        parts = np.split(rows, np.cumsum([len(unit) for _, unit in columns])[:-1])
        pairs = []
        for (hits, _), part in zip(columns, parts, strict=True):
            order = np.lexsort((hits, part))  # a sum's last digit depends on the order of its terms
            pairs.append((hits[order], part[order]))
        return cls(
            np.stack([np.bincount(part, hits, size) for hits, part in pairs], 1),
            np.stack([np.bincount(part, minlength=size) for _, part in pairs], 1).astype(float),
        )

    def __len__(self) -> int:
        """Number of units, U."""
        return len(self.sums)

    @property
    def means(self) -> np.ndarray:
        """[C] float64: mean hit probability of each column, from 0 to 1."""
        return self.sums.sum(0) / self.counts.sum(0)


def resample(units: Units, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Means of all columns in each of `resamples` draws of U units with replacement.

    All columns see the same draws, so a difference of two of them is a paired one. A draw is told
    by how often each unit is in it, and one product with the sums gives all its means. Units with
    equal rows are one kind, whose share of a draw is multinomial: the 118,287 images of COCO are a
    few hundred kinds. That short cut does not change the distribution, and the order of the columns
    changes no draw. Memory beside the units is bounded (some 100 MB).

    Returns:
        [resamples, C] float64, from 0 to 1; NaN where a draw holds no query of a column.

    Raises:
        UsageError: fewer than one resample.

    Four queries of four images, two of them hits. Each draw is the mean of four of them.

    >>> units = Units.of([(np.array([1.0, 0.0, 1.0, 0.0]), np.arange(4))])
    >>> draws = resample(units, resamples=1000, seed=0)
    >>> sorted(set(draws[:, 0].tolist()))
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> interval(draws).tolist()
    [[0.0], [1.0]]
    """
    if resamples < 1:
        raise UsageError(f"there must be at least one resample, not {resamples}")
    rng = np.random.default_rng(seed)
    both = np.hstack([units.sums, units.counts])
    _, first, members = np.unique(both, axis=0, return_index=True, return_counts=True)
    appearance = np.argsort(first)  # which does not depend on the order of the columns
    kinds, members = both[first[appearance]], members[appearance]
    height = max(1, min(resamples, _CHUNK // len(kinds)))
    means = np.empty((resamples, units.sums.shape[1]))
    for start in range(0, resamples, height):
        rows = min(height, resamples - start)
        totals = _draws(rng, members, rows) @ kinds
        sums, counts = np.hsplit(totals, 2)
        with np.errstate(invalid="ignore"):
            means[start : start + rows] = sums / counts
    return means


def _draws(rng: np.random.Generator, members: np.ndarray, rows: int) -> np.ndarray:
    """[rows, P] float64: how often each of P kinds is in a draw of as many units as there are."""
    total = int(members.sum())
    if len(members) * _DEAR < total:
        return rng.multinomial(total, members / total, size=rows).astype(np.float64)
    kind = np.repeat(np.arange(len(members)), members)
    drawn = np.empty((rows, len(members)))
    for row in drawn:
        row[:] = np.bincount(kind[rng.integers(0, total, total)], minlength=len(members))
    return drawn


def interval(draws: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Percentile interval of the columns of `draws` [R, C]: [2, C], low and high; NaN is left out.

    >>> interval(np.arange(101.0)[:, None], 0.9)
    array([[ 5.],
           [95.]])
    """
    tail = 50 * (1 - level)
    return np.nanpercentile(draws, [tail, 100 - tail], axis=0)


def recall_interval(units: Units, draws: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Intervals of recalls from their `resample` draws [R, C]: [2, C], from 0 to 1.

    Percentiles; where each of a column's n units hits in full, or none hits at all, Clopper and
    Pearson's bound (Biometrika 1934) for n independent trials.

    Forty queries, none of them a hit: recall may well be 8 %.

    >>> units = Units.of([(np.zeros(40), np.arange(40)), (np.ones(40), np.arange(40))])
    >>> recall_interval(units, resample(units)).round(3).tolist()
    [[0.0, 0.912], [0.088, 1.0]]
    """
    bounds = interval(draws, level)
    exact = ((1 - level) / 2) ** (1 / np.maximum(1, (units.counts > 0).sum(0)))
    bounds[1] = np.where(units.sums.sum(0) <= 0, 1 - exact, bounds[1])
    full = np.isclose(units.sums.sum(0), units.counts.sum(0), rtol=0, atol=1e-9)
    bounds[0] = np.where(full, exact, bounds[0])
    return bounds


def two_sided(draws: np.ndarray) -> float:
    """p-value of "there is no difference" from R draws of a difference, two-sided.

    Twice the smaller share of draws on one side of zero (draws at zero count for both, and one more
    is added to each side, so that p is never zero): below 0.05 just where the 95 % percentile
    interval leaves zero out. Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 15.4.

    >>> two_sided(np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, -0.1]))
    0.4
    >>> two_sided(np.zeros(9))
    1.0
    """
    least = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2 * (least + 1) / (len(draws) + 1))


@dataclass(frozen=True)
class SignTest:
    """Votes for two models, and how likely so lopsided a vote is if each is a fair coin.

    Attributes:
        first, second: votes for each; whoever finds no difference does not vote.
        p: two-sided, exact.
    """

    first: int
    second: int
    p: float

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray) -> "SignTest":
        """Let each query (or unit) vote for the model that gives it the higher value; [Q] each.

        >>> SignTest.of(np.array([1, 1, 0, 1.0]), np.array([1, 0, 1, 0.5]))
        SignTest(first=2, second=1, p=1.0)
        """
        # Sums of probabilities differ in the last digits with the order of addition.
        gain = np.where(np.isclose(first, second, rtol=0, atol=1e-9), 0, first - second)
        votes = int((gain > 0).sum()), int((gain < 0).sum())
        return cls(*votes, sign_p(*votes))


def sign_p(first: int, second: int) -> float:
    """Exact two-sided p-value of `first` against `second` votes of fair coins.

    Twice the binomial tail of the smaller count, at most 1, in logarithms, so that a hundred
    thousand votes neither overflow nor take long.

    >>> round(sign_p(9, 1), 6)  # 2 * (1 + 10) / 2**10
    0.021484
    >>> sign_p(0, 0), sign_p(3, 3)
    (1.0, 1.0)
    """
    total, least = first + second, min(first, second)
    places = np.arange(1, least + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((total - places + 1) / places))])
    tail = np.log(np.exp(logs - logs[-1]).sum()) + logs[-1]
    return float(min(1.0, np.exp(tail + (1 - total) * np.log(2))))
