"""Pairs of records: equal keys, and which pairs to list where there are too many."""

from typing import NamedTuple

import numpy as np

PARTNERS = 10
"""Of pairs of the same kind, each record is listed with so many others at most; a placeholder that
stands for ten thousand lost images would make fifty million pairs."""


class RecordPairs(NamedTuple):
    """Pairs of rows, TRAIN then EVAL.

    Attributes:
        rows: int64 [P, 2].
        closeness: float64 [P].
        total: number of all pairs, those that are not listed too.
    """

    rows: np.ndarray
    closeness: np.ndarray
    total: int


def equal_pairs(
    train: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray] | None
) -> RecordPairs:
    """All pairs with equal keys, within what `PARTNERS` allows.

    Of a group, each member is paired with the first few of the other side: so none is left out.

    Args:
        train: keys [N] of any sortable kind, and int64 [N] the row of each; rows may repeat.
        other: likewise; None to compare `train` with itself: then the first row is the lower one.

    >>> keys, rows = np.array(["a", "b", "a"]), np.arange(3)
    >>> equal_pairs((keys, rows), None).rows
    array([[0, 2]])
    """
    keys, left = _by_key(*train)
    if other is None:
        right, places = left, np.stack([np.flatnonzero(np.diff(left.bounds) > 1)] * 2)
    else:
        others, right = _by_key(*other)
        places = np.stack(np.intersect1d(keys, others, True, return_indices=True)[1:])
    sizes = (np.diff(left.bounds)[places[0]], np.diff(right.bounds)[places[1]])
    rows = spread(places.T, (left, right))[:, :2]
    if other is None:
        total = int((sizes[0] * (sizes[0] - 1) // 2).sum())
        rows = np.sort(rows[rows[:, 0] != rows[:, 1]], axis=1)
    else:
        total = int((sizes[0] * sizes[1]).sum())
    rows = np.unique(rows, axis=0)
    # Two records may share several keys: listed once, they count once.
    several = total - len(rows) if _all_listed(sizes) else 0
    return RecordPairs(rows, np.ones(len(rows)), total - several)


class Members(NamedTuple):
    """Rows in groups: those of group g are `rows[bounds[g] : bounds[g + 1]]`."""

    rows: np.ndarray
    bounds: np.ndarray

    @classmethod
    def by_number(cls, numbers: np.ndarray, rows: np.ndarray, count: int) -> "Members":
        """Group rows by a number from 0 to `count - 1`."""
        order = np.lexsort((rows, numbers))
        return cls(rows[order], np.searchsorted(numbers[order], np.arange(count + 1)))

    def of(self, group: int) -> np.ndarray:
        """The rows of one group."""
        return self.rows[self.bounds[group] : self.bounds[group + 1]]


def _all_listed(sizes: tuple[np.ndarray, np.ndarray]) -> bool:
    return bool((np.minimum(*sizes) <= PARTNERS).all())


def _by_key(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Members]:
    """Each different key, rising, and its rows."""
    unique, numbers = np.unique(keys, return_inverse=True)
    return unique, Members.by_number(numbers, rows, len(unique))


def spread(pairs: np.ndarray, groups: tuple[Members, Members]) -> np.ndarray:
    """From pairs of groups to pairs of their members, within what `PARTNERS` allows.

    Args:
        pairs: int64 [P, 2], numbers of a group on either side.
        groups: of either side.

    Returns:
        int64 [Q, 3]: row, row, and which pair it comes from.
    """
    made = [np.zeros((0, 3), np.int64)]
    for number, (left, right) in enumerate(pairs.tolist()):
        ones, others = groups[0].of(left), groups[1].of(right)
        for few, many in (
            (ones[:PARTNERS], others),
            (ones[PARTNERS:], others[:PARTNERS]),
        ):
            first, second = np.meshgrid(few, many, indexing="ij")
            made.append(
                np.stack([first.ravel(), second.ravel(), np.full(first.size, number)], axis=1)
            )
    return np.concatenate(made)


def closest(rows: np.ndarray, closeness: np.ndarray) -> RecordPairs:
    """Each pair of rows once, as close as it is at its closest, within what `PARTNERS` allows.

    A pair is listed if it is among the closest of either of its records.
    """
    order = np.lexsort((rows[:, 1], rows[:, 0], -closeness))
    _, once = np.unique(rows[order], axis=0, return_index=True)
    order = order[np.sort(once)]
    rows, closeness = rows[order], closeness[order]
    kept = (rank(rows[:, 0]) < PARTNERS) | (rank(rows[:, 1]) < PARTNERS)
    return RecordPairs(rows[kept], closeness[kept], len(rows))


def rank(values: np.ndarray) -> np.ndarray:
    """How many equal values come before each.

    >>> rank(np.array([5, 3, 5, 5]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - first
    return rank
