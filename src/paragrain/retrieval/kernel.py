"""Compiled loops over a tile of scores while it is still in the cache; nothing is allocated.

The compiled code is kept on disk between processes (beside this file, or in the user's cache if
that folder cannot be written), so only the first call ever waits a second or two for the compiler.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with the cache on disk, or without one where no folder can be written."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@_compiled
def erase(scores, first, last, start):  # type: ignore[no-untyped-def]
    """Set to minus infinity, in row i, the columns of texts first[i] to last[i] (exclusive).

    Args:
        scores: [R, C] float32, changed in place.
        first, last: [R] int64, text numbers.
        start: the text number of column 0.
    """
    rows, columns = scores.shape
    for i in range(rows):
        for j in range(max(first[i] - start, 0), min(last[i] - start, columns)):
            scores[i, j] = -np.inf


@_compiled
def count(  # type: ignore[no-untyped-def]
    scores,
    row_low,
    row_high,
    column_low,
    column_high,
    row_reach,
    row_over,
    column_reach,
    column_over,
):
    """Add, for each row and each column, how many scores reach `low` and how many exceed `high`.

    Four rows at a time, so that the column's bounds and counts are loaded once for four scores; the
    inner loop becomes vector compares and subtractions.

    Args:
        scores: [R, C] float32.
        row_low, row_high: [R] float32; column_low, column_high: [C] float32.
        row_reach, row_over: [R] uint32; column_reach, column_over: [C] uint32; added to.
    """
    rows, columns = scores.shape
    fours = rows - rows % 4
    for i in range(0, fours, 4):
        s0, s1, s2, s3 = scores[i], scores[i + 1], scores[i + 2], scores[i + 3]
        l0, l1, l2, l3 = row_low[i], row_low[i + 1], row_low[i + 2], row_low[i + 3]
        h0, h1, h2, h3 = row_high[i], row_high[i + 1], row_high[i + 2], row_high[i + 3]
        # numba widens integer sums to 64 bits, which halves the lanes of a vector: narrow them.
        r0 = r1 = r2 = r3 = o0 = o1 = o2 = o3 = np.uint32(0)
        for j in range(columns):
            a, b, c, d = s0[j], s1[j], s2[j], s3[j]
            r0, o0 = np.uint32(r0 + (a >= l0)), np.uint32(o0 + (a > h0))
            r1, o1 = np.uint32(r1 + (b >= l1)), np.uint32(o1 + (b > h1))
            r2, o2 = np.uint32(r2 + (c >= l2)), np.uint32(o2 + (c > h2))
            r3, o3 = np.uint32(r3 + (d >= l3)), np.uint32(o3 + (d > h3))
            low, high = column_low[j], column_high[j]
            column_reach[j] += (
                np.uint32(a >= low)
                + np.uint32(b >= low)
                + np.uint32(c >= low)
                + np.uint32(d >= low)
            )
            column_over[j] += (
                np.uint32(a > high)
                + np.uint32(b > high)
                + np.uint32(c > high)
                + np.uint32(d > high)
            )
        row_reach[i] += r0
        row_reach[i + 1] += r1
        row_reach[i + 2] += r2
        row_reach[i + 3] += r3
        row_over[i] += o0
        row_over[i + 1] += o1
        row_over[i + 2] += o2
        row_over[i + 3] += o3
    for i in range(fours, rows):
        for j in range(columns):
            score = scores[i, j]
            row_reach[i] += score >= row_low[i]
            row_over[i] += score > row_high[i]
            column_reach[j] += score >= column_low[j]
            column_over[j] += score > column_high[j]


@njit(nogil=True, fastmath=True)
def _dot(left, right):  # type: ignore[no-untyped-def]
    total = 0.0
    for d in range(left.shape[0]):
        total += np.float64(left[d]) * np.float64(right[d])
    return total


@njit(nogil=True)
def _place(least, most, low, high):  # type: ignore[no-untyped-def]
    """Where a score from `least` to `most` lies: 0 below `low`, 1 to `high`, 2 above, -1 open."""
    if most < low:
        return 0
    if least > high:
        return 2
    if least >= low and most <= high:
        return 1
    return -1


@_compiled
def settle(  # type: ignore[no-untyped-def]
    upper,
    images,
    texts,
    image_rest,
    text_rest,
    row_low,
    row_high,
    column_low,
    column_high,
    slack,
    margin,
    most_scored,
    most_open,
    row_reach,
    row_over,
    column_reach,
    column_over,
):
    """Count as `count` does, from upper bounds of the scores; see `bounded`.

    Args:
        upper: [R, C] float32; minus infinity where a pair is not to be counted.
        images: [R, D]; texts: [C, D]; float32.
        image_rest: [R] float32; text_rest: [C]; a score lies at most twice their product below its
            bound.
        slack, margin: rounding of the bounds, and of the scores that `count` would see.
        most_scored, most_open: give up after scoring more pairs, or leaving more open.
        The others as for `count`.

    Returns:
        How many pairs were scored, and how many of those stayed open for lying at a tie's edge.
    """
    rows, columns = upper.shape
    row_floor = (row_low - np.float32(slack + margin)).astype(np.float32)
    column_floor = (column_low - np.float32(slack + margin)).astype(np.float32)
    scored = still_open = 0
    for i in range(0, rows, 4):
        for start in range(0, columns, 128):
            stop = min(start + 128, columns)
            if i + 4 <= rows:
                s0, s1 = upper[i, start:stop], upper[i + 1, start:stop]
                s2, s3 = upper[i + 2, start:stop], upper[i + 3, start:stop]
                f0, f1, f2, f3 = row_floor[i], row_floor[i + 1], row_floor[i + 2], row_floor[i + 3]
                floor = column_floor[start:stop]
                hits = np.uint32(0)
                for j in range(stop - start):
                    f = floor[j]
                    hits = np.uint32(
                        hits
                        + np.uint32((s0[j] >= f) | (s0[j] >= f0))
                        + np.uint32((s1[j] >= f) | (s1[j] >= f1))
                        + np.uint32((s2[j] >= f) | (s2[j] >= f2))
                        + np.uint32((s3[j] >= f) | (s3[j] >= f3))
                    )
                if hits == 0:
                    continue
            for row in range(i, min(i + 4, rows)):
                for j in range(start, stop):
                    bound = upper[row, j]
                    if bound < row_floor[row] and bound < column_floor[j]:
                        continue
                    most = np.float64(bound) + (slack + margin)
                    gap = 2 * np.float64(image_rest[row]) * np.float64(text_rest[j])
                    least = np.float64(bound) - gap - (slack + margin)
                    in_row = _place(least, most, row_low[row], row_high[row])
                    in_column = _place(least, most, column_low[j], column_high[j])
                    if in_row < 0 or in_column < 0:
                        score = _dot(images[row], texts[j])
                        scored += 1
                        least, most = score - margin, score + margin
                        in_row = _place(least, most, row_low[row], row_high[row])
                        in_column = _place(least, most, column_low[j], column_high[j])
                        still_open += in_row < 0 or in_column < 0
                        if scored > most_scored or still_open > most_open:
                            return scored, still_open
                    row_reach[row] += np.uint32(in_row > 0)
                    row_over[row] += np.uint32(in_row > 1)
                    column_reach[j] += np.uint32(in_column > 0)
                    column_over[j] += np.uint32(in_column > 1)
    return scored, still_open


@_compiled
def keep_best(scores, queries, gallery, start, margin, best, indices):  # type: ignore[no-untyped-def]
    """Merge a tile into the running list of the best gallery rows of each query.

    A score of the tile only nominates: whoever comes within `margin` of the list is scored again
    in double precision, rounded to float32, and takes its place by (score falling, row rising). So
    the list depends neither on the tile nor on its own length.

    Args:
        scores: [Q, C] float32, of gallery rows `start` to `start + C`.
        queries: [Q, D]; gallery: [N, D]; float32.
        best: [Q, K] float32, falling, minus infinity where empty; changed in place.
        indices: [Q, K] int64; changed in place.
    """
    kept = best.shape[1]
    for q in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            if scores[q, j] < best[q, kept - 1] - margin:
                continue
            total = 0.0
            for d in range(queries.shape[1]):
                total += np.float64(queries[q, d]) * np.float64(gallery[start + j, d])
            score = np.float32(total)
            if score <= best[q, kept - 1]:
                continue
            place = kept - 1
            while place > 0 and best[q, place - 1] < score:
                best[q, place] = best[q, place - 1]
                indices[q, place] = indices[q, place - 1]
                place -= 1
            best[q, place] = score
            indices[q, place] = start + j
