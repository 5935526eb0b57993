"""How far two judges agree about the same paragraphs, with intervals; and which to show them."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from paragrain.collection import Record
from paragrain.errors import UsageError
from paragrain.stats import Estimate
from paragrain.tables import Table

_SCORES = np.arange(11)
_APART = _SCORES - _SCORES[:, None]  # second's score less the first's, by [first, second]


@dataclass(frozen=True)
class Agreement:
    """Agreement of two judges, each of whom gave a paragraph 0 to 10 or no score.

    Attributes:
        compared: paragraphs that both scored; all measures are of these.
        first_unscored: paragraphs without a score from the first judge.
        second_unscored: paragraphs without a score from the second.
        both_unscored: paragraphs that are counted in both of these.
        exact: share from 0 to 1 of equal scores.
        within_one: share of scores at most one apart.
        spearman: rank correlation, ties with their average rank; not defined where a judge gives
            everything the same score.
        difference: mean of the second's score less the first's, in points.
        kappa: Cohen's kappa with quadratic weights, 1 for equal scores and 0 for what chance would
            give; not defined where both judges give everything one and the same score.
        confusion: 11 rows of 11; row i, column j: paragraphs that the first judge gave i and the
            second j.
    """

    compared: int
    first_unscored: int
    second_unscored: int
    both_unscored: int
    exact: Estimate
    within_one: Estimate
    spearman: Estimate
    difference: Estimate
    kappa: Estimate
    confusion: list[list[int]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: value.as_dict() if isinstance(value, Estimate) else value
            for name, value in vars(self).items()
        }

    def table(self) -> Table:
        """The measures with their intervals."""
        shown = [
            ("same score, %", self.exact, 100, 1),
            ("at most one apart, %", self.within_one, 100, 1),
            ("Spearman's rank correlation", self.spearman, 1, 3),
            ("quadratic-weighted kappa", self.kappa, 1, 3),
            ("second less first, points", self.difference, 1, 2),
        ]
        rows = []
        for name, found, times, digits in shown:
            numbers = (found.value, found.low, found.high)
            cells = ("-" if np.isnan(v) else f"{times * v:.{digits}f}" for v in numbers)
            rows.append((name, *cells))
        header = ("", "value", "95 % from", "to")
        return Table(f"Agreement on {self.compared:,} paragraphs", header, rows)


def agreement(
    first: Sequence[int | None],
    second: Sequence[int | None],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Agreement:
    """Measure how far two judges agree.

    Intervals are percentile bootstrap ones: the paragraphs are drawn anew with replacement. A
    resample in which a measure is not defined is left out of its interval.

    Args:
        first: the scores of one judge, 0 to 10, None for none.
        second: the other's, of the same paragraphs in the same order.
        seed: of the draws.
        resamples: number of draws.

    Raises:
        UsageError: the lists differ in length, a score is not a whole number from 0 to 10, or
            there are no resamples.

    Two equal scores of four, three at most one apart; the fifth paragraph does not count.

    >>> found = agreement([2, 5, 7, 9, 4], [2, 5, 8, 6, None])
    >>> found.compared, found.exact.value, found.within_one.value, found.difference.value
    (4, 0.5, 0.75, -0.5)

    The ranks are 1 2 3 4 and 1 2 4 3: 1 - 6 (1 + 1) / (4 (16 - 1)) = 0.8.

    >>> round(found.spearman.value, 10)
    0.8
    >>> agreement([7, 7], [3, 9]).spearman.defined
    False
    """
    if len(first) != len(second):
        raise UsageError(
            f"the judges scored {len(first)} and {len(second)} paragraphs: "
            "give both the same ones, None where there is no score"
        )
    if resamples < 1:
        raise UsageError(f"{resamples} resamples give no interval: ask for 1 or more")
    for scores in (first, second):
        for place, score in enumerate(scores):
            if score is not None and score not in range(11):
                raise UsageError(
                    f"score {place} is {score!r}: scores are whole numbers from 0 to 10, or None"
                )
    counts = np.zeros((11, 11), dtype=np.int64)
    pairs = list(zip(first, second, strict=True))
    for a, b in pairs:
        if a is not None and b is not None:
            counts[a, b] += 1
    # Drawing pairs with replacement is drawing the counts of the 121 kinds of pair, and of counts
    # all measures are closed forms: scikit-learn's would take milliseconds for each draw.
    compared = int(counts.sum())
    shares = counts.ravel() / max(compared, 1)
    drawn = np.random.default_rng(seed).multinomial(compared, shares, size=resamples)
    values, draws = _measures(counts[None]), _measures(drawn.reshape(-1, 11, 11))
    return Agreement(
        compared=compared,
        first_unscored=sum(a is None for a in first),
        second_unscored=sum(b is None for b in second),
        both_unscored=pairs.count((None, None)),
        **{name: Estimate.from_draws(float(values[name][0]), draws[name]) for name in values},
        confusion=counts.tolist(),
    )


def _measures(counts: np.ndarray) -> dict[str, np.ndarray]:
    """All measures of R tables of counts, int64 `[R, 11, 11]`: float64 `[R]`, NaN if undefined."""
    rows, columns = counts.sum(axis=2), counts.sum(axis=1)  # of the first and the second judge
    total = rows.sum(axis=1)
    squares = (counts * _APART**2).sum(axis=(1, 2))
    by_chance = np.einsum("ri,ij,rj->r", rows, _APART**2, columns) / np.maximum(total, 1)
    one, other = _doubled_ranks(rows), _doubled_ranks(columns)
    together = np.einsum("ri,rij,rj->r", one, counts, other)
    alone = np.sqrt((rows * one**2).sum(axis=1) * (columns * other**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "exact": (counts * (_APART == 0)).sum(axis=(1, 2)) / total,
            "within_one": (counts * (abs(_APART) <= 1)).sum(axis=(1, 2)) / total,
            "spearman": (together / alone).clip(-1, 1),
            "difference": (counts * _APART).sum(axis=(1, 2)) / total,
            "kappa": 1 - np.where(by_chance == 0, np.nan, squares / by_chance),
        }


def _doubled_ranks(margin: np.ndarray) -> np.ndarray:
    """Twice the average rank of each score less twice the mean rank, float64 `[R, 11]`.

    The n of a score take the ranks after the `before` lower ones: on average before + (n + 1) / 2.
    """
    before = margin.cumsum(axis=1) - margin
    total = margin.sum(axis=1, keepdims=True)
    return (2 * before + margin - total).astype(np.float64)


def sample_scored(records: Iterable[Record], count: int, seed: int) -> list[str]:
    """Ids of `count` records drawn uniformly from those with a paragraph and a score, or of all.

    Every id gets a random-looking number from its hash with the seed, and the smallest win. So
    the sample depends on neither the order of the records nor their shards, a smaller sample is
    the beginning of a larger one, and new records displace few of an older sample.

    Args:
        records: such as `collection.records(fields=["paragraph", "paragraph_score"])`; streamed,
            with no more than `count` ids kept.
        count: how many, 1 or more.
        seed: another one gives another sample.

    Raises:
        UsageError: `count` is below 1.

    >>> records = [Record(str(n), paragraph="A dog.", paragraph_score=n) for n in range(9)]
    >>> sample = sample_scored([*records, Record("no score", paragraph="A cat.")], 3, seed=1)
    >>> len(sample), "no score" in sample, sample == sample_scored(records[::-1], 3, seed=1)
    (3, False, True)
    """
    if count < 1:
        raise UsageError(f"a sample of {count} paragraphs shows nothing: ask for 1 or more")
    scored = (r.id for r in records if r.paragraph and r.paragraph_score is not None)
    return drawn(scored, count, seed)


def drawn(ids: Iterable[str], count: int, seed: int) -> list[str]:
    """At most `count` of the ids, drawn by their hashes as `sample_scored` says."""

    def number(id: str) -> bytes:
        return blake2b(f"{seed} {id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

    return heapq.nsmallest(count, ids, key=number)
