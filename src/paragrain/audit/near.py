"""Images that look the same: near hashes first, then a closer look at each candidate."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from paragrain.audit import kernels
from paragrain.audit.fingerprints import Fingerprints
from paragrain.audit.pairs import Groups, Pairs, closest, spread
from paragrain.runtime import cores

RADIUS = 7
"""Most bits in which the perceptual hashes of a candidate differ."""

_BLOCK = 4096
_RIVALS = 20  # looked at of each picture; more copies than that are a placeholder's


def near_hashes(
    table: np.ndarray, queries: np.ndarray | None, radius: int = RADIUS
) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of 64-bit hashes that differ in at most `radius` bits, exactly.

    Multi-index hashing (Norouzi, Punjani and Fleet, 2012) over four words of 16 bits.

    Args:
        table: uint64 [N].
        queries: uint64 [Q]; None to compare `table` with itself, each pair once.
        radius: 0 to 7.

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
    work = partial(_block, table, order, starts, asked, queries is None, radius)
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

    A candidate (near hashes, neither flat) must pass the closer look at tiny copies
    (`perceptual.difference`). And one picture is no copy of two different ones: where it passes for
    a copy of several that do not pass for copies of each other, the nearest is kept. That tells a
    copy's original from its near-twins.

    Returns:
        The pairs, as close as one minus the difference in grey (1 is white against black), and the
        number of candidates that were refused.
    """
    sides = [train] if other is None else [train, other]
    marks = [side.marks for side in sides]
    images = [np.unique(own["pixels"], return_index=True)[1] for own in marks]
    images = [kept[~own["flat"][kept]] for kept, own in zip(images, marks, strict=True)]
    hashes = [own["hash"][kept] for kept, own in zip(images, marks, strict=True)]
    candidates, _ = near_hashes(hashes[0], None if other is None else hashes[1])
    if other is not None:  # identical pixels are a finding of their own
        left, right = (own["pixels"][kept] for own, kept in zip(marks, images, strict=True))
        candidates = candidates[left[candidates[:, 0]] != right[candidates[:, 1]]]
    used = [np.unique(candidates[:, column]) for column in (0, 1)]
    tiny = [
        side.tiny(kept[rows])
        for side, kept, rows in zip(
            (sides[0], sides[-1]), (images[0], images[-1]), used, strict=True
        )
    ]
    compact = np.stack([np.searchsorted(used[c], candidates[:, c]) for c in (0, 1)], axis=1)
    differences = np.empty(len(candidates))
    kernels.compare_pairs(tiny[0], tiny[1], compact, differences)
    kept = np.flatnonzero(np.isfinite(differences))
    kept = kept[np.argsort(differences[kept], kind="stable")]
    names = (used[0], used[1] + (0 if other is None else len(images[0])))
    sound = _without_rivals(compact[kept], tiny, names)
    passed = kept[sound]
    groups = [
        _same_pixels(own, kept, side.rows)
        for own, kept, side in zip(marks, images, sides, strict=True)
    ]
    rows = spread(candidates[passed], (groups[0], groups[-1]))
    closeness = 1 - differences[passed][rows[:, 2]] / 255
    pairs = rows[:, :2] if other is not None else np.sort(rows[:, :2], axis=1)
    return closest(pairs, closeness), len(candidates) - len(passed)


def _same_pixels(marks: np.ndarray, images: np.ndarray, rows: np.ndarray) -> Groups:
    """The rows of all images with the same pixels as each of `images`."""
    unique, numbers = np.unique(marks["pixels"], return_inverse=True)
    place = np.full(len(unique), -1)
    place[numbers[images]] = np.arange(len(images))
    own = place[numbers]
    return Groups.by_number(own[own >= 0], rows[own >= 0], len(images))


def _without_rivals(
    pairs: np.ndarray, tiny: list[np.ndarray], names: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Which pairs remain when no picture is the copy of two different ones.

    Args:
        pairs: int64 [P, 2] rows of the two arrays of `tiny`, nearest first.
        tiny: uint8 [.., 256, 3], of either side.
        names: a number for each row of either side; equal for the same image.

    Returns:
        bool [P].
    """
    partners: dict[int, list[np.ndarray]] = {}
    kept = np.ones(len(pairs), bool)
    for number, (left, right) in enumerate(pairs.tolist()):
        one, other = int(names[0][left]), int(names[1][right])
        copies = tiny[0][left], tiny[1][right]
        for name, copy in ((one, copies[1]), (other, copies[0])):
            rivals = partners.get(name, [])
            if any(not np.isfinite(kernels.compare(rival, copy)) for rival in rivals[:_RIVALS]):
                kept[number] = False
        if kept[number]:
            partners.setdefault(one, []).append(copies[1])
            partners.setdefault(other, []).append(copies[0])
    return kept
