"""Compiled loops of the audit: near hashes, tiny pictures, near texts.

Kernels that find pairs write as many as there is room for and return how many there are, so that
the caller can come again with more room.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

BANDS = 4
"""A hash of 64 bits is cut into so many words of 16. Two hashes at most 7 bits apart have a word
with at most one: all of them are found by looking up 17 values a word."""


_FREEDOM = {"reassoc", "contract", "nsz"}
"""Sums may be taken in another order, several terms at once; infinities keep their meaning."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with the cache on disk, or without one where no folder can be written."""
    try:
        return njit(nogil=True, fastmath=_FREEDOM, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True, fastmath=_FREEDOM)(function)


@compiled
def bits_set(value):  # type: ignore[no-untyped-def]
    """Number of ones in a uint64."""
    value = value - ((value >> np.uint64(1)) & np.uint64(0x5555555555555555))
    value = (value & np.uint64(0x3333333333333333)) + (
        (value >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((value * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def near_hashes(  # type: ignore[no-untyped-def]
    table, order, starts, queries, offset, radius, pairs, bits
):
    """Find all rows of `table` within `radius` (at most 7) bits of each query.

    Args:
        table: [N] uint64.
        order: [4, N] int32, rows of the table by the value of each of their words.
        starts: [4, 65537] int64, where each value begins in `order`.
        queries: [Q] uint64.
        offset: -1, or the row of the table that the first query is: then only later rows count.
        radius: most bits.
        pairs: [C, 2] int32, for (row, query); bits: [C] uint8. Written to.

    Returns:
        The number of pairs; if it exceeds C, the others are not written.
    """
    found = 0
    for q in range(len(queries)):
        query = queries[q]
        for band in range(BANDS):
            word = np.int64((query >> np.uint64(16 * band)) & np.uint64(0xFFFF))
            for flip in range(17):
                value = word if flip == 16 else word ^ (1 << flip)
                for place in range(starts[band, value], starts[band, value + 1]):
                    row = order[band, place]
                    if offset >= 0 and row <= offset + q:
                        continue
                    apart = query ^ table[row]
                    distance = bits_set(apart)
                    if distance > radius:
                        continue
                    first = 0  # it is met once for each near word, and counts in the first
                    while bits_set((apart >> np.uint64(16 * first)) & np.uint64(0xFFFF)) > 1:
                        first += 1
                    if first < band:
                        continue
                    if found < len(pairs):
                        pairs[found, 0], pairs[found, 1] = row, q
                        bits[found] = distance
                    found += 1
    return found


@compiled
def compare(one, other):  # type: ignore[no-untyped-def]
    """`perceptual.difference` of two tiny copies, uint8 [256, 3] each."""
    grey = np.empty(256)
    colour = np.zeros((64, 2))
    sums = np.zeros(5)
    for i in range(256):
        a = 0.299 * one[i, 0] + 0.587 * one[i, 1] + 0.114 * one[i, 2]
        b = 0.299 * other[i, 0] + 0.587 * other[i, 1] + 0.114 * other[i, 2]
        grey[i] = abs(a - b)
        if grey[i] > 8:
            return np.inf
        block = (i // 32) * 8 + (i % 16) // 2
        colour[block, 0] += 0.564 * (np.float64(one[i, 2]) - other[i, 2] - (a - b)) / 4
        colour[block, 1] += 0.713 * (np.float64(one[i, 0]) - other[i, 0] - (a - b)) / 4
        sums += np.array([a, b, a * a, b * b, a * b])
    tint = np.abs(colour).ravel()
    if tint.max() > 16 or (tint.max() > 4 and tint.max() > 4 + 8 * np.sort(tint)[96]):
        return np.inf
    if grey.max() > 2 and grey.max() > 2 + 8 * np.sort(grey)[192]:
        return np.inf
    mean_a, mean_b, aa, bb, ab = sums / 256
    spread = (aa - mean_a * mean_a) * (bb - mean_b * mean_b)
    if ab - mean_a * mean_b < 0.9 * np.sqrt(max(spread, 0.0)):
        return np.inf
    return np.sqrt((grey * grey).mean())


@compiled
def compare_pairs(ones, others, pairs, differences):  # type: ignore[no-untyped-def]
    """`compare` of ones[pairs[i, 0]] with others[pairs[i, 1]], for each i, into `differences`.

    Args:
        ones: uint8 [N, 256, 3]; others: uint8 [M, 256, 3]; pairs: [P, 2] int; differences: [P].
    """
    for i in range(len(pairs)):
        differences[i] = compare(ones[pairs[i, 0]], others[pairs[i, 1]])


@compiled
def shingles(data, ends, values, value_ends):  # type: ignore[no-untyped-def]
    """Hash every three words in a row of each text; sorted, each once.

    Args:
        data: uint8, the folded texts one after the other, words apart by a space.
        ends: [T] int64, where each text ends in `data`.
        values: uint64, room for as many as there are words; written to.
        value_ends: [T] int64, where each text's values end; written to.
    """
    start = total = 0
    for t in range(len(ends)):
        words, before, last, first = 0, np.uint64(0), np.uint64(0), total
        word = np.uint64(14695981039346656037)
        for i in range(start, ends[t] + 1):
            if i < ends[t] and data[i] != 32:
                word = (word ^ np.uint64(data[i])) * np.uint64(1099511628211)
                continue
            words += 1
            if words >= 3:
                mixed = (before * np.uint64(31) + last) * np.uint64(0x9E3779B97F4A7C15) + word
                values[total] = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
                total += 1
            before, last, word = last, word, np.uint64(14695981039346656037)
        own = np.unique(values[first:total])
        values[first : first + len(own)] = own
        total = first + len(own)
        value_ends[t] = total
        start = ends[t]


@compiled
def near_texts(  # type: ignore[no-untyped-def]
    tokens, starts, postings, posting_starts, ids, wanted, later, least, pairs, overlaps, seen
):
    """Find the texts whose sets of tokens have a Jaccard index of at least `least`.

    Sets that overlap so much share a token among the first `n - ceil(least n) + 1` of either, in
    any common order; so only those are looked up, rarest first (Bayardo et al., "Scaling up all
    pairs similarity search", 2007).

    Args:
        tokens: int32, each text's tokens, rising; starts: [T + 1] int64, where each text's begin.
        postings: int32, texts that have each token among their first; posting_starts: likewise.
        ids: int32, the texts to look up, rising.
        wanted: [T] bool, the texts that may be found.
        later: whether of two texts that are both looked up and wanted only the later one counts.
        least: the least index.
        pairs: [C, 2] int32, for (found, looked up); overlaps: [C] float32. Written to.
        seen: [T] int32, all -1.

    Returns:
        The number of pairs; if it exceeds C, the others are not written.
    """
    found = 0
    for e in ids:
        size = starts[e + 1] - starts[e]
        for place in range(starts[e], starts[e] + size - int(np.ceil(least * size - 1e-9)) + 1):
            token = tokens[place]
            for posting in range(posting_starts[token], posting_starts[token + 1]):
                t = postings[posting]
                if seen[t] == e or not wanted[t] or t == e or (later and t < e):
                    continue
                seen[t] = e
                other = starts[t + 1] - starts[t]
                if min(size, other) < least * max(size, other):
                    continue
                i, j, common = starts[e], starts[t], 0
                while i < starts[e + 1] and j < starts[t + 1]:
                    if tokens[i] == tokens[j]:
                        common, i, j = common + 1, i + 1, j + 1
                    elif tokens[i] < tokens[j]:
                        i += 1
                    else:
                        j += 1
                overlap = common / (size + other - common)
                if overlap >= least - 1e-9:
                    if found < len(pairs):
                        pairs[found, 0], pairs[found, 1] = t, e
                        overlaps[found] = overlap
                    found += 1
    return found
