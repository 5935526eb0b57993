"""Numbers with their intervals: one type, the bootstrap, and tests for two models.

The bootstrap rests on stored ranks; nothing is ranked anew. What is drawn again and again is whole
groups of images (an image that shares its group with none is a group of its own), each with all its
texts: the five captions of one photograph are hard or easy together, and so are two photographs of
one scene, so drawing them one by one would make intervals too narrow. Groups that ask nothing are
not drawn. The gallery stays as it is: an interval tells of other queries against this gallery, not
of a larger or smaller one. Where every query hits, or none, all draws are equal and tell nothing:
`recall_interval` then takes the exact binomial bound.

Let a model's recall be a random variable of two things: the queries that happened to be in the
benchmark (q) and the seed of its training (s). By the law of total variance

    Var(recall) = Var_q( mean over s ) + mean over q of Var_s( recall | q )

The first term is estimated by the bootstrap variance of the mean over the seeds at hand, the second
by the variance of the seeds' recalls on the queries at hand (divisor S - 1): `StandardDeviations`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paragrain.errors import UsageError

RESAMPLES = 2000
LEVEL = 0.95
_CHUNK = 1 << 22  # weights that are held at once
_DEAR = 20  # a multinomial draw costs this many times as much for a kind as counting for a unit


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN where it is not defined.

    The format says how it is shown, a share of 0 to 1 as percent by `%`:

    >>> f"{Estimate(41.37, 39.5, 43.3):.1f}", f"{Estimate(3.14, 1.2, 5.0):+.1f}"
    ('41.4 (39.5 to 43.3)', '+3.1 (1.2 to 5.0)')
    >>> f"{Estimate.proportion(1, 10):.1%}", f"{Estimate():.1f}"
    ('10.0 % (1.8 to 40.4)', '-')

    Attributes:
        value, low, high: the number and the ends of its interval.
        n: of how many things it is a share; None if it is none.
        p: two-sided p-value of "it is zero"; None where that is not asked.
        seeds: the number of each seed of training, where `value` is their mean.
        draws: `[R]` bootstrap draws; those of two models on one benchmark are paired.
        query_draws: `[R]` the same draws without what the seeds leave open.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int | None = None
    p: float | None = None
    seeds: tuple[float, ...] = ()
    draws: np.ndarray | None = field(default=None, repr=False, compare=False)
    query_draws: np.ndarray | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_draws(cls, value: float, draws: np.ndarray, **known: Any) -> "Estimate":
        """With the percentile interval of draws `[R]`; NaN among them is left out.

        >>> Estimate.from_draws(2.0, np.array([1.0, 2.0, np.nan, 3.0])).low
        1.05
        """
        if math.isnan(value):
            return cls()
        low, high = interval(draws).tolist() if not np.isnan(draws).all() else (math.nan, math.nan)
        return cls(float(value), low, high, **known)

    @classmethod
    def difference(cls, value: float, draws: np.ndarray) -> "Estimate":
        """Of draws `[R]` of a difference, with the p-value of none; see `two_sided`."""
        # Equal means differ in their last digits, and -0 is 0.
        draws = np.round(draws[~np.isnan(draws)], 9) + 0.0
        return cls.from_draws(value, draws, p=two_sided(draws))

    @classmethod
    def proportion(cls, count: int, n: int) -> "Estimate":
        """`count` of `n` things as a share from 0 to 1, with Wilson's interval.

        >>> round(Estimate.proportion(0, 20).high, 6)
        0.161125
        >>> Estimate.proportion(0, 0).as_dict()
        {'value': None, 'low': None, 'high': None, 'n': 0}
        """
        from scipy.stats import binomtest

        if not n:
            return cls(n=0)
        found = binomtest(count, n).proportion_ci(LEVEL, "wilson")
        return cls(count / n, float(found.low), float(found.high), n)

    def __sub__(self, other: "Estimate") -> "Estimate":
        """The difference of two models on the same draws of queries."""
        if self.draws is None or other.draws is None:
            raise ValueError("only estimates with draws have a difference")
        return Estimate.difference(self.value - other.value, self.draws - other.draws)

    @property
    def defined(self) -> bool:
        """Whether there is a number at all."""
        return not math.isnan(self.value)

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out, as it does where p is below 0.05.

        There is no correction for the number of comparisons.
        """
        return self.low > 0 or self.high < 0

    def __format__(self, spec: str) -> str:
        """Such as "41.4 (39.5 to 43.3)"; a dash where there is no number."""
        if not self.defined:
            return "-"
        spec = spec or ".1f"
        value, *ends = (
            format(number, wanted).replace("%", "")
            for number, wanted in (
                (self.value, spec),
                (self.low, spec.lstrip("+")),
                (self.high, spec.lstrip("+")),
            )
        )
        unit = " %" if spec.endswith("%") else ""
        return value + unit + ("" if math.isnan(self.low) else f" ({ends[0]} to {ends[1]})")

    def as_dict(self, digits: int | None = None) -> dict[str, Any]:
        """For JSON: NaN as None, what is not known left out; rounded, if `digits` says so."""

        def plain(number: float) -> float | None:
            if math.isnan(number):
                return None
            return number if digits is None else round(number, digits)

        value: dict[str, Any] = {
            name: plain(getattr(self, name)) for name in ("value", "low", "high")
        }
        value |= {} if self.n is None else {"n": self.n}
        value |= {} if self.p is None else {"p": plain(self.p)}
        return value | ({"seeds": [plain(seed) for seed in self.seeds]} if self.seeds else {})

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Estimate":
        """Back from `as_dict`.

        >>> Estimate.from_dict(Estimate(1.0, p=0.5).as_dict()) == Estimate(1.0, p=0.5)
        True
        """
        known: dict[str, Any] = {k: math.nan if v is None else v for k, v in plain.items()}
        return cls(**{**known, "seeds": tuple(plain.get("seeds", ()))})


# --- The bootstrap ----------------------------------------------------------------------------
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
    """Percentile interval of draws `[R]` or `[R, C]`: `[2]` or `[2, C]`; NaN is left out.

    >>> interval(np.arange(101.0), 0.9)
    array([ 5., 95.])
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

    Of two models' hits and misses it is McNemar's exact test.

    >>> round(sign_p(9, 1), 6)  # 2 * (1 + 10) / 2**10
    0.021484
    >>> sign_p(0, 0), sign_p(3, 3)
    (1.0, 1.0)
    """
    from scipy.stats import binomtest

    votes = first + second
    return float(binomtest(first, votes).pvalue) if votes else 1.0


# --- Seeds ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandardDeviations:
    """Standard deviations of a recall in percentage points, by their two sources.

    Attributes:
        queries: from the choice of queries (bootstrap), of the mean over seeds.
        seeds: between seeds; `None` with one seed, which cannot tell.
        run: both together, of one run: sqrt(queries^2 + seeds^2).
        mean: both together, of the mean over S seeds: sqrt(queries^2 + seeds^2 / S).

    >>> std = StandardDeviations.of(np.array([40.0, 44.0]), queries=2.0)
    >>> round(std.seeds**2), round(std.run**2), round(std.mean**2)
    (8, 12, 8)
    """

    queries: float
    seeds: float | None
    run: float
    mean: float

    @classmethod
    def of(cls, recalls: np.ndarray, queries: float) -> "StandardDeviations":
        """From the recalls [S] of the seeds and the bootstrap deviation of their mean."""
        seeds = float(np.std(recalls, ddof=1)) if len(recalls) > 1 else None
        between = seeds or 0.0
        together = (queries**2 + between**2) ** 0.5
        return cls(queries, seeds, together, (queries**2 + between**2 / len(recalls)) ** 0.5)


def with_seeds(draws: np.ndarray, seeds: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Draws [R] of the mean over S seeds, moved by what the seeds leave open.

    Each is moved by (deviation between seeds) / sqrt(S) times a draw of Student's t with S - 1
    degrees of freedom, as Behrens and Fisher do; one seed moves nothing, since it cannot tell.

    >>> with_seeds(np.zeros(3), [40.0], np.random.default_rng()).tolist()
    [0.0, 0.0, 0.0]
    """
    if len(seeds) < 2:
        return draws
    between = float(np.std(seeds, ddof=1))
    t = rng.standard_t(len(seeds) - 1, len(draws))
    moved: np.ndarray = draws + between / len(seeds) ** 0.5 * t
    return moved
