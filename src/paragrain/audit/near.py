"""Images that look the same: near hashes first, then a closer look at each candidate."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from paragrain.audit import kernels
from paragrain.audit.aligning import leftover, start_of
from paragrain.audit.fingerprints import Fingerprints
from paragrain.audit.pairs import Groups, Pairs, closest, rank, spread
from paragrain.audit.perceptual import INSETS
from paragrain.runtime import cores

RADIUS = 7
"""Most bits in which the perceptual hashes of a candidate differ."""

_BLOCK = 1024
_LAID = 512
_TRIED = 32  # laid over each picture, nearest hashes first; more look alike in scans of plain pages
_STARTS = np.stack([start_of(inset) for inset in INSETS])
_RIVALS = 20  # looked at of each picture; more copies than that are a placeholder's


def near_hashes(
    table: np.ndarray,
    queries: np.ndarray | None,
    radius: int = RADIUS,
    kept: "Callable[[np.ndarray, np.ndarray], np.ndarray] | None" = None,
) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of 64-bit hashes that differ in at most `radius` bits, exactly.

    Multi-index hashing (Norouzi, Punjani and Fleet, 2012) over four words of 16 bits.

    Args:
        table: uint64 [N].
        queries: uint64 [Q]; None to compare `table` with itself, each pair once.
        radius: 0 to 7.
        kept: which of some pairs and their bits to keep, bool [P]; asked before all are put
            together, all pairs of a query at once.

    Returns:
        int64 [P, 2] rows of `table` and of `queries`, and the bits uint8 [P].

    >>> near_hashes(np.array([0, 7, 255], np.uint64), np.array([3], np.uint64), 2)
    (array([[0, 0],
           [1, 0]]), array([2, 1], dtype=uint8))
    """
    words = [
        ((table >> np.uint64(16 * band)) & np.uint64(0xFFFF)).astype(np.uint16)
        for band in range(kernels.BANDS)
    ]
    order = np.stack([np.argsort(word, kind="stable").astype(np.int32) for word in words])
    counts = [np.bincount(word, minlength=1 << 16) for word in words]
    starts = np.stack([np.concatenate([[0], np.cumsum(count)]) for count in counts])
    asked = table if queries is None else queries

    def work(start: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, bits = _block(table, order, starts, asked, queries is None, radius, start)
        own = np.ones(len(pairs), bool) if kept is None else kept(pairs, bits)
        return pairs[own], bits[own]

    with ThreadPoolExecutor(cores()) as pool:
        done = list(pool.map(work, range(0, len(asked), _BLOCK)))
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(pairs for pairs, _ in done)])
    bits = np.concatenate([np.zeros(0, np.uint8), *(bits for _, bits in done)])
    rows = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[rows], bits[rows]


def _block(
    table: np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
    asked: np.ndarray,
    within: bool,
    radius: int,
    start: int,
) -> tuple[np.ndarray, np.ndarray]:
    queries = asked[start : start + _BLOCK]
    room = 1 << 14
    while True:
        pairs, bits = np.empty((room, 2), np.int32), np.empty(room, np.uint8)
        offset = start if within else -1
        found = kernels.near_hashes(table, order, starts, queries, offset, radius, pairs, bits)
        if found <= room:
            return pairs[:found].astype(np.int64) + np.array([0, start]), bits[:found]
        room = found


def near_images(train: Fingerprints, other: Fingerprints | None) -> tuple[Pairs, int]:
    """Pairs of records whose images look the same though their pixels differ.

    A candidate (near hashes of the whole or of an inset, neither flat) must pass one of two closer
    looks: at tiny copies as they are (`perceptual.difference`), or at small ones that are laid over
    each other with allowance for crop, exposure and colours (`aligning.leftover`). The second is
    for the `_TRIED` with the nearest hashes of each picture.

    Pictures that are partly plain are judged more strictly, since one object may be all that tells
    two apart: they are not taken for crops, what differs may lie at an edge only, and one picture
    is no copy of two different ones. Where it passes for a copy of several that do not pass for
    copies of each other, the nearest is kept. That tells a copy's original from its near-twins.

    Returns:
        The pairs, as close as one minus the difference in grey (1 is white against black), and the
        number of candidates that were looked at and refused.
    """
    left = _Images.of(train)
    right = left if other is None else _Images.of(other)
    tries = _candidates(left, right)
    pairs, numbers = np.unique(tries[:, :2], axis=0, return_inverse=True)
    plain = left.plain[pairs[:, 0]] | right.plain[pairs[:, 1]]
    differences = _as_they_are(left, right, pairs)
    later = np.isinf(differences)
    # Badly laid, near-twins differ all over, and one object no longer stands out.
    again = later[numbers] & ~(plain[numbers] & (tries[:, 2] > 0))
    aligned = _aligned(left, right, tries[again], plain[numbers[again]])
    np.minimum.at(differences, numbers[again], aligned)
    # What is found as it is comes before what has to be laid over each other.
    order = np.lexsort((differences, later))
    passed = order[np.isfinite(differences[order])]
    passed = passed[_without_rivals(left, right, pairs[passed], plain[passed])]
    rows = spread(pairs[passed], (left.groups(), right.groups()))
    closeness = 1 - differences[passed][rows[:, 2]] / 255
    found = rows[:, :2] if other is not None else np.sort(rows[:, :2], axis=1)
    return closest(found, closeness), len(pairs) - len(passed)


@dataclass(frozen=True, eq=False)
class _Images:
    """The different pictures of a side that are not flat: rows of its marks, what they say."""

    side: Fingerprints
    rows: np.ndarray
    hashes: np.ndarray
    pixels: np.ndarray
    plain: np.ndarray

    @classmethod
    def of(cls, side: Fingerprints) -> "_Images":
        marks = side.marks
        rows = np.unique(marks["pixels"], return_index=True)[1]
        rows = rows[~marks["flat"][rows]]
        own = marks[rows]
        return cls(side, rows, own["hashes"], own["pixels"], own["plain"])

    def tiny(self, images: np.ndarray) -> np.ndarray:
        return self.side.tiny(self.rows[images])

    def small(self, images: np.ndarray) -> np.ndarray:
        return self.side.small(self.rows[images])

    def groups(self) -> Groups:
        """The rows of all records with the same pixels as each picture."""
        unique, numbers = np.unique(self.side.marks["pixels"], return_inverse=True)
        place = np.full(len(unique), -1)
        place[numbers[self.rows]] = np.arange(len(self.rows))
        own = place[numbers]
        return Groups.by_number(own[own >= 0], self.side.rows[own >= 0], len(self.rows))


def _candidates(left: _Images, right: _Images) -> np.ndarray:
    """What to try: int64 [T, 4] picture of `left` and of `right`, inset, and whose inset it is.

    The inset of one (0 of `left`, 1 of `right`) and the whole of the other have near hashes.
    """
    within = left is right
    tries = []
    # Of the whole pictures, and within one side, one of the two ways meets all pairs.
    for inset, whose in [
        (0, 0),
        *((n, w) for n in range(1, len(INSETS)) for w in range(2 - within)),
    ]:
        hashes = [left.hashes[:, inset * (whose == 0)], right.hashes[:, inset * (whose == 1)]]

        def kept(pairs: np.ndarray, bits: np.ndarray, whole: bool = inset == 0) -> np.ndarray:
            # Identical pixels are a finding of their own.
            other = left.pixels[pairs[:, 0]] != right.pixels[pairs[:, 1]]
            order = np.flatnonzero(other)
            order = order[np.argsort(bits[order], kind="stable")]
            chosen = np.zeros(len(pairs), bool)
            chosen[order] = rank(pairs[order, 1]) < _TRIED
            if whole:
                more = np.flatnonzero(other & ~chosen)
                chosen[more] = np.isfinite(_as_they_are(left, right, pairs[more]))
            return chosen

        queries = None if within and inset == 0 else hashes[1]
        pairs, _ = near_hashes(hashes[0], queries, kept=kept)
        swapped = within & (pairs[:, 0] > pairs[:, 1])
        told = np.empty((len(pairs), 4), np.int64)
        told[:, :2] = np.sort(pairs, axis=1) if within else pairs
        told[:, 2], told[:, 3] = inset, whose ^ swapped
        tries.append(told)
    return np.concatenate(tries)


def _as_they_are(left: _Images, right: _Images, pairs: np.ndarray) -> np.ndarray:
    """`perceptual.difference` of each pair, float64 [P]."""
    used = [np.unique(pairs[:, column], return_inverse=True) for column in (0, 1)]
    compact = np.stack([places for _, places in used], axis=1)
    differences = np.empty(len(pairs))
    kernels.compare_pairs(left.tiny(used[0][0]), right.tiny(used[1][0]), compact, differences)
    return differences


def _aligned(left: _Images, right: _Images, tries: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """How far pairs are apart when laid over each other, float64 [T]; infinite if different."""

    def look(start: int) -> np.ndarray:
        own = tries[start : start + _LAID]
        sides = left.small(own[:, 0]), right.small(own[:, 1])
        mine = (own[:, 3] == 0)[:, None, None]
        found = leftover(np.where(mine, *sides), np.where(mine, *sides[::-1]), _STARTS[own[:, 2]])
        strict = plain[start : start + _LAID]
        return np.where(strict & ~found.edged, np.inf, found.difference)

    with ThreadPoolExecutor(cores()) as pool:
        done = list(pool.map(look, range(0, len(tries), _LAID)))
    return np.concatenate([np.zeros(0), *done])


def _without_rivals(
    left: _Images, right: _Images, pairs: np.ndarray, plain: np.ndarray
) -> np.ndarray:
    """Which pairs remain when no plain picture is the copy of two different ones.

    Args:
        left, right: either side.
        pairs: int64 [P, 2] pictures of either side, nearest first.
        plain: bool [P], which pairs the rule is for.

    Returns:
        bool [P].
    """
    partners: dict[tuple[bool, int], list[tuple[_Images, int]]] = {}
    kept = np.ones(len(pairs), bool)
    for number in np.flatnonzero(plain):
        one, other = (left, int(pairs[number, 0])), (right, int(pairs[number, 1]))
        for picture, partner in ((one, other), (other, one)):
            rivals = partners.get((picture[0] is left, picture[1]), [])
            if any(not _same(rival, partner) for rival in rivals[:_RIVALS]):
                kept[number] = False
        if kept[number]:
            partners.setdefault((True, one[1]), []).append(other)
            partners.setdefault((right is left, other[1]), []).append(one)
    return kept


def _same(one: tuple[_Images, int], other: tuple[_Images, int]) -> bool:
    """Whether two plain pictures pass for copies of each other."""
    images = [np.array([number]) for _, number in (one, other)]
    if np.isfinite(_as_they_are(one[0], other[0], np.stack(images, axis=1))[0]):
        return True
    tries = np.array([[one[1], other[1], 0, 0]])
    return bool(np.isfinite(_aligned(one[0], other[0], tries, np.ones(1, bool)))[0])
