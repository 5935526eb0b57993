"""Compiled loops over a tile of scores while it is still in the cache; nothing is allocated.

The compiled code is kept on disk between processes (beside this file, or in the user's cache if
that folder cannot be written), so only the first call ever waits a second or two for the compiler.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile with the cache on disk, or without one where no folder can be written."""
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)


@_compiled
def mask_positives(scores, first, last, start):  # type: ignore[no-untyped-def]
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
    row_num_ge,
    row_num_gt,
    column_num_ge,
    column_num_gt,
):
    """Add, for each row and each column, how many scores reach `low` and how many exceed `high`.

    Four rows at a time, so that the column's bounds and counts are loaded once for four scores; the
    inner loop becomes vector compares and subtractions.

    Args:
        scores: [R, C] float32.
        row_low, row_high: [R] float32; column_low, column_high: [C] float32.
        row_num_ge, row_num_gt: [R] uint32; column_num_ge, column_num_gt: [C] uint32; added to.
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
            column_num_ge[j] += (
                np.uint32(a >= low)
                + np.uint32(b >= low)
                + np.uint32(c >= low)
                + np.uint32(d >= low)
            )
            column_num_gt[j] += (
                np.uint32(a > high)
                + np.uint32(b > high)
                + np.uint32(c > high)
                + np.uint32(d > high)
            )
        row_num_ge[i] += r0
        row_num_ge[i + 1] += r1
        row_num_ge[i + 2] += r2
        row_num_ge[i + 3] += r3
        row_num_gt[i] += o0
        row_num_gt[i + 1] += o1
        row_num_gt[i + 2] += o2
        row_num_gt[i + 3] += o3
    for i in range(fours, rows):
        for j in range(columns):
            score = scores[i, j]
            row_num_ge[i] += score >= row_low[i]
            row_num_gt[i] += score > row_high[i]
            column_num_ge[j] += score >= column_low[j]
            column_num_gt[j] += score > column_high[j]


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


@partial(_compiled, fastmath=True)
def code_scores(codes, steps, query, scores):  # type: ignore[no-untyped-def]
    """Multiply each row of `codes` [N, D] int8 with a query [D] float32 and with its step [N].

    Into `scores` [N] float32; the conversion to float32 is part of the vectorised loop.
    """
    for row in range(codes.shape[0]):
        total = np.float32(0)
        for d in range(codes.shape[1]):
            total += query[d] * np.float32(codes[row, d])
        scores[row] = total * steps[row]
