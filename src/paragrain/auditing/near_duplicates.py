"""Images that look the same: near hashes first, then a closer look at each candidate."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from paragrain.auditing.image_fingerprints import INSETS, LUMA, ImageFingerprints
from paragrain.auditing.record_pairs import Members, RecordPairs, closest, rank, spread
from paragrain.auditing.registration import leftover, start_of
from paragrain.runtime import cores

T = TypeVar("T")

RADIUS = 7
"""Most bits in which the perceptual hashes of a candidate differ."""

_QUERIES = 256  # whose hashes are compared by one thread in a row
_COMPARED = 2048  # pairs of tiny copies
_LAID = 64  # pairs of small copies: what they need fits into a cache
_TRIED = 32  # laid over each picture, nearest hashes first; more look alike in scans of plain pages
_STARTS = np.stack([start_of(inset) for inset in INSETS])
_RIVALS = 20  # looked at of each picture; more copies than that are a placeholder's


def near_hashes(
    table: np.ndarray,
    queries: np.ndarray | None,
    radius: int = RADIUS,
    kept: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of 64-bit hashes that differ in at most `radius` bits.

    Args:
        table: uint64 [N].
        queries: uint64 [Q]; None to compare `table` with itself, each pair once.
        radius: most bits.
        kept: which of some pairs and their bits to keep, bool [P]; asked before all are put
            together, all pairs of a query at once.

    Returns:
        int64 [P, 2] rows of `table` and of `queries`, and the bits uint8 [P].

    >>> near_hashes(np.array([0, 7, 255], np.uint64), np.array([3], np.uint64), 2)
    (array([[0, 0],
           [1, 0]]), array([2, 1], dtype=uint8))
    """
    asked = table if queries is None else queries

    def rows_near(number: int) -> tuple[np.ndarray, np.ndarray]:
        """One query at a time: what is compared stays in a cache."""
        start = number + 1 if queries is None else 0
        bits = np.bitwise_count(table[start:] ^ asked[number])
        rows = np.flatnonzero(bits <= radius)
        return rows + start, bits[rows]

    def work(start: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.arange(start, min(start + _QUERIES, len(asked)))
        rows, bits = zip(*map(rows_near, numbers.tolist()), strict=True)
        query = np.repeat(numbers, [len(own) for own in rows])
        found, apart = np.stack([np.concatenate(rows), query], axis=1), np.concatenate(bits)
        own = slice(None) if kept is None else kept(found, apart)
        return found[own], apart[own]

    done = _in_threads(work, len(asked), _QUERIES)
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(pairs for pairs, _ in done)])
    bits = np.concatenate([np.zeros(0, np.uint8), *(bits for _, bits in done)])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], bits[order]


def near_images(
    train: ImageFingerprints, other: ImageFingerprints | None
) -> tuple[RecordPairs, int]:
    """Pairs of records whose images look the same though their pixels differ.

    A candidate (near hashes of the whole or of an inset, neither flat) must pass one of two closer
    looks: at tiny copies as they are (`difference`), or at small ones that are laid over each other
    with allowance for crop, exposure and colours (`registration.leftover`). The second is for the
    `_TRIED` with the nearest hashes of each picture.

    Pictures that are partly plain are judged more strictly, since one object may be all that tells
    two apart: they are not taken for crops, what differs may lie at an edge only, and one picture
    is no copy of two different ones. Where it passes for a copy of several that do not pass for
    copies of each other, the nearest is kept. That tells a copy's original from its near
    duplicates.

    Returns:
        The pairs, as close as one minus the difference in grey (1 is white against black), and the
        number of candidates that were looked at and refused.
    """
    left = _Pictures.of(train)
    right = left if other is None else _Pictures.of(other)
    tries = _candidates(left, right)
    pairs, numbers = np.unique(tries[:, :2], axis=0, return_inverse=True)
    plain = left.table["plain"][pairs[:, 0]] | right.table["plain"][pairs[:, 1]]
    differences = _as_they_are(left, right, pairs)
    later = np.isinf(differences)
    # Badly laid, near duplicates differ all over, and one object no longer stands out.
    again = later[numbers] & ~(plain[numbers] & (tries[:, 2] > 0))
    aligned = _aligned(left, right, tries[again], plain[numbers[again]])
    np.minimum.at(differences, numbers[again], aligned)
    # What is found as it is comes before what has to be laid over each other.
    order = np.lexsort((differences, later))
    passed = order[np.isfinite(differences[order])]
    passed = passed[_without_rivals(left, right, pairs[passed], plain[passed])]
    rows = spread(pairs[passed], (left.members(), right.members()))
    closeness = 1 - differences[passed][rows[:, 2]] / 255
    found = rows[:, :2] if other is not None else np.sort(rows[:, :2], axis=1)
    return closest(found, closeness), len(pairs) - len(passed)


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far tiny copies are apart, float64 [P]; infinite if they show different pictures.

    The root mean square of the differences in grey, in levels of 255. Different pictures are those
    where a sample's grey differs by more than 8 levels, or by more than 2 plus eight times the
    upper quartile (a spot in an otherwise equal picture); where the colour (Cb or Cr) of a 2 x 2
    block differs by more than 16, or by more than 4 plus eight times the upper quartile; or where
    the greys correlate below 0.9.

    Args:
        one, other: [P, 16, 16, 3] RGB.

    >>> one = np.zeros((1, 16, 16, 3))
    >>> one[:, :8] = 200
    >>> other = one.copy()
    >>> other[:, 2, 2] = 150
    >>> difference(one, one), difference(one, other)
    (array([0.]), array([inf]))
    """
    found = np.full(len(one), np.inf)
    luma = LUMA.astype(np.float64).round(3)
    grey, other_grey = one @ luma, other @ luma
    apart = np.abs(grey - other_grey)
    rows = np.flatnonzero(apart.max((1, 2), initial=0) <= 8)
    apart, grey, other_grey = apart[rows], grey[rows], other_grey[rows]
    colour = (one[rows] - other[rows])[..., [2, 0]] - (grey - other_grey)[..., None]
    tint = np.abs(0.25 * colour.reshape(len(rows), 8, 2, 8, 2, 2).sum((2, 4)) * [0.564, 0.713])
    worst, worst_tint = apart.max((1, 2), initial=0), tint.max((1, 2, 3), initial=0)
    spot = (worst > 2) & (worst > 2 + 8 * _upper_quartile(apart))
    stain = (worst_tint > 4) & (worst_tint > 4 + 8 * _upper_quartile(tint))
    one_off, other_off = (g - g.mean((1, 2), keepdims=True) for g in (grey, other_grey))
    together = (one_off * other_off).mean((1, 2))
    alone = np.sqrt((one_off**2).mean((1, 2)) * (other_off**2).mean((1, 2)))
    same = ~spot & ~stain & (worst_tint <= 16) & (together >= 0.9 * alone)
    found[rows[same]] = np.sqrt((apart[same] ** 2).mean((1, 2)))
    return found


def _upper_quartile(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    rank = 3 * flat.shape[1] // 4
    return np.asarray(np.partition(flat, rank, axis=1)[:, rank])


@dataclass(frozen=True, eq=False)
class _Pictures:
    """The different pictures of a side that are not flat.

    Attributes:
        side: all of its images.
        images: int64 [N], the first of `side` with the pixels of each picture.
        table: [N], their fingerprints.
    """

    side: ImageFingerprints
    images: np.ndarray
    table: np.ndarray

    @classmethod
    def of(cls, side: ImageFingerprints) -> "_Pictures":
        images = np.unique(side.table["pixels"], return_index=True)[1]
        images = images[~side.table["flat"][images]]
        return cls(side, images, side.table[images])

    def members(self) -> Members:
        """The rows of all records with the same pixels as each picture."""
        unique, numbers = np.unique(self.side.table["pixels"], return_inverse=True)
        place = np.full(len(unique), -1)
        place[numbers[self.images]] = np.arange(len(self.images))
        own = place[numbers]
        return Members.by_number(own[own >= 0], self.side.rows[own >= 0], len(self.images))


def _candidates(left: _Pictures, right: _Pictures) -> np.ndarray:
    """What to try: int64 [T, 4] picture of `left` and of `right`, inset, and whose inset it is.

    The inset of one (0 of `left`, 1 of `right`) and the whole of the other have near hashes.
    """
    within = left is right
    tries = []
    # Of the whole pictures, and within one side, one of the two ways meets all pairs.
    ways = [(n, whose) for n in range(1, len(INSETS)) for whose in range(1 if within else 2)]
    for inset, whose in [(0, 0), *ways]:

        def kept(pairs: np.ndarray, bits: np.ndarray, whole: bool = inset == 0) -> np.ndarray:
            # Identical pixels are a finding of their own.
            pixels = left.table["pixels"][pairs[:, 0]], right.table["pixels"][pairs[:, 1]]
            others = np.flatnonzero(pixels[0] != pixels[1])
            order = others[np.argsort(bits[others], kind="stable")]
            chosen = np.zeros(len(pairs), bool)
            chosen[order] = rank(pairs[order, 1]) < _TRIED
            if whole:
                more = others[~chosen[others]]
                chosen[more] = np.isfinite(_as_they_are(left, right, pairs[more]))
            return chosen

        hashes = left.table["hashes"][:, inset * (whose == 0)]
        queries = right.table["hashes"][:, inset * (whose == 1)]
        pairs, _ = near_hashes(hashes, None if within and inset == 0 else queries, kept=kept)
        swapped = within & (pairs[:, 0] > pairs[:, 1])
        told = np.empty((len(pairs), 4), np.int64)
        told[:, :2] = np.sort(pairs, axis=1) if within else pairs
        told[:, 2], told[:, 3] = inset, whose ^ swapped
        tries.append(told)
    return np.concatenate(tries)


def _as_they_are(left: _Pictures, right: _Pictures, pairs: np.ndarray) -> np.ndarray:
    """`difference` of each pair, float64 [P]."""
    used, places = zip(*(np.unique(pairs[:, n], return_inverse=True) for n in (0, 1)), strict=True)
    ones, others = left.side.tiny(left.images[used[0]]), right.side.tiny(right.images[used[1]])

    def compare(start: int) -> np.ndarray:
        own = slice(start, start + _COMPARED)
        return difference(ones[places[0][own]], others[places[1][own]])

    spans = range(0, len(pairs), _COMPARED)
    return np.concatenate([np.zeros(0), *(compare(start) for start in spans)])


def _aligned(left: _Pictures, right: _Pictures, tries: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """How far pairs are apart when laid over each other, float64 [T]; infinite if different."""

    def lay(start: int) -> np.ndarray:
        own = tries[start : start + _LAID]
        pictures = (
            left.side.small(left.images[own[:, 0]]),
            right.side.small(right.images[own[:, 1]]),
        )
        mine = (own[:, 3] == 0)[:, None, None, None]
        one, other = np.where(mine, *pictures), np.where(mine, *pictures[::-1])
        found = leftover(one, other, _STARTS[own[:, 2]])
        strict = plain[start : start + _LAID]
        return np.where(strict & ~found.edged, np.inf, found.difference)

    return np.concatenate([np.zeros(0), *_in_threads(lay, len(tries), _LAID)])


def _in_threads(work: Callable[[int], T], count: int, step: int) -> list[T]:
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, range(0, count, step)))


def _without_rivals(
    left: _Pictures, right: _Pictures, pairs: np.ndarray, plain: np.ndarray
) -> np.ndarray:
    """Which pairs remain when no plain picture is the copy of two different ones.

    Args:
        left, right: either side.
        pairs: int64 [P, 2] pictures of either side, nearest first.
        plain: bool [P], which pairs the rule is for.

    Returns:
        bool [P].
    """
    partners: dict[tuple[bool, int], list[tuple[_Pictures, int]]] = {}
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


def _same(one: tuple[_Pictures, int], other: tuple[_Pictures, int]) -> bool:
    """Whether two plain pictures pass for copies of each other."""
    pair = np.array([[one[1], other[1]]])
    if np.isfinite(_as_they_are(one[0], other[0], pair)[0]):
        return True
    tries = np.array([[one[1], other[1], 0, 0]])
    return bool(np.isfinite(_aligned(one[0], other[0], tries, np.ones(1, bool)))[0])
