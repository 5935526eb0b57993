"""Lay one small picture over another, allow for crop, exposure and colours, look at what is left.

Where the edges lie (without turning) is found by iterative registration (Lucas and Kanade, "An
iterative image registration technique", 1981) of the greys under a tone curve, as robust least
squares. Then one of the two is painted anew in the colours of the other. What is left over most of
the picture tells copies from other pictures; where the largest of it lies tells an inscription from
another object.

All is compiled, one pair after the other: pictures and equations of a pair fit the first cache.
"""

from typing import NamedTuple

import numpy as np

from paragrain.audit.kernels import compiled
from paragrain.audit.perceptual import LUMA, SMALL

MOST = 0.4
"""Of a copy, three quarters of the cells differ by less, in standard deviations of the grey."""

SPOILT = 0.14
"""Most of the cells of a copy that may differ by much more than the others (an inscription)."""

_CELLS = SMALL * SMALL
_REACH = 2.6  # cells of SMALL by which an edge may have moved: 8 %
_STEPS = 10
_SETTLED = 0.01  # cells; less than this in a step, and the registration is done
_CORRELATION = 0.7  # of the greys before registration; less is hopeless
_RED, _GREEN, _BLUE = (float(part) for part in LUMA)

# Where a plain picture may differ: a line of text at its upper or lower edge, a mark in a corner.
# Anything deeper inside is another object.
_DEEP = 4  # cells, 12 %
_CORNER = 5  # cells, 16 %


class Leftover(NamedTuple):
    """How well pairs of pictures lie over each other.

    Attributes:
        difference: float64 [P], root mean square of what is left, in levels of 255; infinite if
            they are different pictures, were both rich in detail.
        edged: bool [P], whether what differs much lies at an edge or in a corner.
    """

    difference: np.ndarray
    edged: np.ndarray


def start_of(inset: float) -> np.ndarray:
    """Where the cells of an inset lie in the whole: start and step of columns, then of rows.

    Args:
        inset: the share cut off at each edge.

    >>> start_of(0.25)
    array([7.75, 0.5 , 7.75, 0.5 ])
    """
    step = 1 - 2 * inset
    return np.array([inset * SMALL - 0.5 + 0.5 * step, step] * 2)


def leftover(one: np.ndarray, other: np.ndarray, start: np.ndarray) -> Leftover:
    """Lay each of `one` over its partner in `other`.

    Args:
        one, other: uint8 [P, SMALL * SMALL, 3] RGB.
        start: float64 [P, 4], where the cells of `other` lie in `one`, about; see `start_of`.

    >>> one = np.random.default_rng(0).integers(0, 200, (1, SMALL * SMALL, 3), dtype=np.uint8)
    >>> leftover(one, one + 20, start_of(0)[None]).difference.round(1)
    array([0.])
    >>> leftover(one, 255 - one[:, ::-1], start_of(0)[None]).difference
    array([inf])
    """
    found = Leftover(np.empty(len(one)), np.empty(len(one), np.bool_))
    sides = np.ascontiguousarray(one), np.ascontiguousarray(other)
    _all_leftover(*sides, start, found.difference, found.edged)
    return found


@compiled
def _all_leftover(one, other, start, difference, edged):  # type: ignore[no-untyped-def]
    for pair in range(len(one)):
        left, right = _planes(one[pair]), _planes(other[pair])
        difference[pair], edged[pair] = _leftover(left, right, start[pair])


@compiled
def _planes(picture):  # type: ignore[no-untyped-def]
    """Red, green, blue and grey, float64 [4, SMALL * SMALL]."""
    planes = np.empty((4, _CELLS))
    for i in range(_CELLS):
        red, green, blue = picture[i, 0], picture[i, 1], picture[i, 2]
        planes[0, i], planes[1, i], planes[2, i] = red, green, blue
        planes[3, i] = _RED * red + _GREEN * green + _BLUE * blue
    return planes


@compiled
def _leftover(one, other, start):  # type: ignore[no-untyped-def]
    """Of one pair of `_planes`: the difference, and whether it is edged."""
    laid, inside = _laid(one, start)
    if _covariance(laid[3], other[3]) < _CORRELATION * _spread(laid[3]) * _spread(other[3]):
        return np.inf, False
    place = _registered(one[3:], other[3], start)
    for axis in (0, 2):
        end = place[axis] + (SMALL - 1) * place[axis + 1] - (SMALL - 1)
        if abs(place[axis]) > _REACH or abs(end) > _REACH:
            return np.inf, False
    laid, inside = _laid(one, place)
    share, levels = _repainted(laid, other, inside)
    back, own_levels = _repainted(other, laid, inside)
    if _ranked(back, 0.5) < _ranked(share, 0.5):
        share, levels = back, own_levels
    return _judged(share, inside, levels)


@compiled
def _judged(share, inside, levels):  # type: ignore[no-untyped-def]
    """From what is left of each cell, in standard deviations, to difference and `edged`."""
    seen, count = np.empty(_CELLS), 0
    for i in range(_CELLS):
        if inside[i] > 0 and _inner(i):
            seen[count] = share[i]
            count += 1
    third = _ranked(seen[:count], 0.75)
    spots, square = 0, 0.0
    vertical, horizontal, upper, lower = 0, 0, False, False
    for i in range(_CELLS):
        if inside[i] == 0 or not _inner(i):
            continue
        square += share[i] * share[i]
        if share[i] > 0.08 + 8 * third:
            spots += 1
            row, column = i // SMALL, i % SMALL
            vertical = max(vertical, min(row, SMALL - 1 - row))
            horizontal = max(horizontal, min(column, SMALL - 1 - column))
            upper, lower = upper or row < SMALL // 2, lower or row >= SMALL // 2
    sound = third <= MOST and spots <= SPOILT * count
    at_edge = vertical < _DEEP or max(vertical, horizontal) < _CORNER
    edged = spots == 0 or (at_edge and not (upper and lower))
    return (levels * np.sqrt(square / count) if sound else np.inf), edged


@compiled
def _inner(cell):  # type: ignore[no-untyped-def]
    """Whether a cell is not at the border, where resampling has spoilt it."""
    return 0 < cell // SMALL < SMALL - 1 and 0 < cell % SMALL < SMALL - 1


@compiled
def _covariance(one, other):  # type: ignore[no-untyped-def]
    means = one.sum() / _CELLS, other.sum() / _CELLS
    total = 0.0
    for i in range(_CELLS):
        total += (one[i] - means[0]) * (other[i] - means[1])
    return total / _CELLS


@compiled
def _spread(plane):  # type: ignore[no-untyped-def]
    """Standard deviation, 1 at least."""
    return max(np.sqrt(_covariance(plane, plane)), 1.0)


@compiled
def _ranked(values, share):  # type: ignore[no-untyped-def]
    """The value that `share` of all values are below, by Hoare's selection."""
    values = values.copy()
    rank = int(share * len(values))
    low, high = 0, len(values) - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return values[rank]


@compiled
def _laid(planes, place):  # type: ignore[no-untyped-def]
    """Sample planes [C, SMALL * SMALL] where `place` says, bilinearly.

    Returns:
        float64 [C, SMALL * SMALL], and float64 [SMALL * SMALL], 1 where a cell lies inside of them.
    """
    low, part = np.empty((2, SMALL), np.int64), np.empty((2, SMALL))
    within = np.empty((2, SMALL))
    for axis in range(2):
        for i in range(SMALL):
            at = place[2 * axis] + place[2 * axis + 1] * i
            within[axis, i] = -0.3 <= at <= SMALL - 0.7
            at = min(max(at, 0.0), SMALL - 1.0)
            low[axis, i] = min(int(at), SMALL - 2)
            part[axis, i] = at - low[axis, i]
    moved, inside = np.empty(planes.shape), np.empty(_CELLS)
    for i in range(_CELLS):
        y, x = i // SMALL, i % SMALL
        inside[i] = within[1, y] * within[0, x]
        first, down, across = low[1, y] * SMALL + low[0, x], part[1, y], part[0, x]
        for c in range(len(planes)):
            own = planes[c]
            upper = own[first] + across * (own[first + 1] - own[first])
            first_lower = own[first + SMALL]
            lower = first_lower + across * (own[first + SMALL + 1] - first_lower)
            moved[c, i] = upper + down * (lower - upper)
    return moved, inside


@compiled
def _registered(grey, target, start):  # type: ignore[no-untyped-def]
    """Improve `start` so that a grey, sampled there and under a tone curve, looks like `target`.

    Args:
        grey: float64 [1, SMALL * SMALL].
        target: float64 [SMALL * SMALL].
        start: float64 [4].
    """
    place, tones = start.copy(), np.array([0.0, 1.0, 0.0])
    rows, rest = np.zeros((7, _CELLS)), np.empty((1, _CELLS))
    # A straight curve where there is no reason for another.
    ridge = np.array([1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 5000.0])
    wanted = np.zeros((7, 1))
    for _ in range(_STEPS):
        moved, inside = _laid(grey, place)
        for i in range(_CELLS):
            value = moved[0, i] / 255
            rest[0, i] = target[i] - 255 * (tones[0] + (tones[1] + tones[2] * value) * value)
            if not _inner(i):
                inside[i] = 0
                continue
            slope = 0.5 * (tones[1] + 2 * tones[2] * value)
            rows[0, i] = slope * (moved[0, i + 1] - moved[0, i - 1])
            rows[2, i] = slope * (moved[0, i + SMALL] - moved[0, i - SMALL])
            rows[1, i], rows[3, i] = rows[0, i] * (i % SMALL), rows[2, i] * (i // SMALL)
            rows[4, i], rows[5, i], rows[6, i] = 255, 255 * value, 255 * value * value
        wanted[6, 0] = -tones[2]
        found = _solved(rows, rest, _weight(rest[0], 1.0, inside), ridge, wanted)
        change = 0.0
        for n in range(4):
            # `rows` are by the cells of `moved`; a cell of `grey` is as many as the step says.
            new = place[n] + found[n, 0] * place[n | 1]
            new = min(max(new, 0.8), 1.2) if n % 2 else min(max(new, -4.0), 4.0)
            change = max(change, abs(new - place[n]) * (SMALL if n % 2 else 1))
            place[n] = new
        for n in range(3):
            tones[n] = min(max(tones[n] + found[4 + n, 0], -3.0), 3.0)
        if change < _SETTLED:
            break
    return place


@compiled
def _repainted(one, other, inside):  # type: ignore[no-untyped-def]
    """Give `one` the colours of `other` as well as a smooth change of all of them can.

    Args:
        one, other: float64 [4, SMALL * SMALL].
        inside: float64 [SMALL * SMALL].

    Returns:
        What is left, of the worst of the three colours: float64 [SMALL * SMALL], in standard
        deviations of the grey of `other`; and how many levels one of those is.
    """
    levels = _spread(other[3])
    rows, ridge, unchanged = np.empty((6, _CELLS)), np.empty(6), np.zeros((6, 3))
    for i in range(_CELLS):
        grey = one[3, i]
        rows[0, i], rows[1, i], rows[2, i], rows[3, i] = one[0, i], one[1, i], one[2, i], 255
        rows[4, i], rows[5, i] = grey * grey / 255, grey * grey * grey / 255**2
    for a in range(6):
        ridge[a] = 300
    for c in range(3):
        unchanged[c, c] = 1
    weight, rest = inside, np.empty(_CELLS)
    for _ in range(4):
        painting = _solved(rows, other[:3], weight, ridge, unchanged)
        for i in range(_CELLS):
            rest[i] = 0
            for c in range(3):
                left = other[c, i]
                for a in range(6):
                    left -= painting[a, c] * rows[a, i]
                rest[i] = max(rest[i], abs(left))
        weight = _weight(rest, 2.0, inside)
    for i in range(_CELLS):
        rest[i] /= levels
    return rest, levels


@compiled
def _weight(rest, least, inside):  # type: ignore[no-untyped-def]
    """Cauchy's weights, so that a part that differs does not spoil the rest; 0 outside."""
    weight = np.empty(_CELLS)
    for i in range(_CELLS):
        weight[i] = abs(rest[i])
    spread = least + 2 * _ranked(weight, 0.5)
    for i in range(_CELLS):
        share = rest[i] / spread
        weight[i] = inside[i] / (1 + share * share)
    return weight


@compiled
def _solved(rows, values, weight, ridge, wanted):  # type: ignore[no-untyped-def]
    """Weighted least squares of [n, cells] on [m, cells], drawn to `wanted` [n, m]."""
    size, sides = len(rows), len(values)
    # To the right of the matrix stand the values.
    matrix, weighted = np.empty((size, size + sides)), np.empty(_CELLS)
    for a in range(size):
        for i in range(_CELLS):
            weighted[i] = rows[a, i] * weight[i]
        for b in range(a, size + sides):
            partner = rows[b] if b < size else values[b - size]
            total = 0.0
            for i in range(_CELLS):
                total += weighted[i] * partner[i]
            matrix[a, b] = total
            if b < size:
                matrix[b, a] = total
            else:
                matrix[a, b] += ridge[a] * wanted[a, b - size]
        matrix[a, a] += ridge[a] + (1e-3 * matrix[a, a] if ridge[a] < 1 else 0.0) + 1e-6
    for a in range(size):  # positive definite: elimination needs no pivots
        for b in range(size):
            if b != a:
                factor = matrix[b, a] / matrix[a, a]
                for c in range(a, size + sides):
                    matrix[b, c] -= factor * matrix[a, c]
    found = np.empty((size, sides))
    for a in range(size):
        for m in range(sides):
            found[a, m] = matrix[a, size + m] / matrix[a, a]
    return found
