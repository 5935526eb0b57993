"""Lay one small picture over another, allow for crop, exposure and colours, look at what is left.

Where the edges lie (without turning) is found by iterative registration (Lucas and Kanade, "An
iterative image registration technique", 1981) of the greys under a tone curve, as robust least
squares. Then one of the two is painted anew in the colours of the other. What is left over most of
the picture tells copies from other pictures; where the largest of it lies tells an inscription from
another object.

Pictures are float64 [P, 4, 32, 32], red, green, blue and grey; all of P are worked on at once.
"""

from typing import NamedTuple

import numpy as np

from paragrain.auditing.image_fingerprints import LUMA, SMALL

MOST = 0.4
"""Of a copy, three quarters of the cells differ by less, in standard deviations of the grey."""

SPOILT = 0.14
"""Most of the cells of a copy that may differ by much more than the others (an inscription)."""

_REACH = 2.6  # cells of SMALL by which an edge may have moved: 8 %
_STEPS = 10
_SETTLED = 0.01  # cells; less than this in a step, and the registration is done
_CORRELATION = 0.7  # of the greys before registration; less is hopeless

# Where a plain picture may differ: a line of text at its upper or lower edge, a mark in a corner.
# Anything deeper inside is another object.
_DEEP = 4  # cells, 12 %
_CORNER = 5  # cells, 16 %

_CELLS = np.arange(SMALL)
_FROM_EDGE = np.minimum(_CELLS, SMALL - 1 - _CELLS)
# Cells at the border are spoilt by resampling.
_INNER = (_FROM_EDGE[:, None] > 0) & (_FROM_EDGE > 0)


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
        one, other: uint8 [P, SMALL, SMALL, 3] RGB.
        start: float64 [P, 4], where the cells of `other` lie in `one`, about; see `start_of`.

    >>> one = np.random.default_rng(0).integers(0, 200, (1, SMALL, SMALL, 3), dtype=np.uint8)
    >>> leftover(one, one + 20, start_of(0)[None]).difference.round(1)
    array([0.])
    >>> leftover(one, 255 - one[:, ::-1, ::-1], start_of(0)[None]).difference
    array([inf])
    """
    found = Leftover(np.full(len(one), np.inf), np.zeros(len(one), bool))
    left, right = _planes(one), _planes(other)
    grey, target = _sampled(left[:, 3:], start)[0][:, 0], right[:, 3]
    rows = np.flatnonzero(_covariance(grey, target) >= _CORRELATION * _std(grey) * _std(target))
    place = _registered(left[rows, 3:], right[rows, 3], start[rows])
    ends = place[:, ::2] + (SMALL - 1) * (place[:, 1::2] - 1)
    near = (np.abs(place[:, ::2]) <= _REACH).all(1) & (np.abs(ends) <= _REACH).all(1)
    rows, place = rows[near], place[near]
    if len(rows):
        laid, inside = _sampled(left[rows], place)
        rest, back = _repainted(laid, right[rows], inside), _repainted(right[rows], laid, inside)
        turned = _quantile(back, 0.5) < _quantile(rest, 0.5)
        levels = np.where(turned, _std(laid[:, 3]), _std(right[rows, 3]))
        rest = np.where(turned[:, None, None], back, rest)
        found.difference[rows], found.edged[rows] = _judged(rest, inside & _INNER, levels)
    return found


def _planes(pictures: np.ndarray) -> np.ndarray:
    colours = np.moveaxis(pictures.astype(np.float64), 3, 1)
    grey = np.tensordot(LUMA, colours, (0, 1))
    return np.concatenate([colours, grey[:, None]], axis=1)


def _sampled(planes: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Planes [P, C, 32, 32] sampled where `place` [P, 4] says, bilinearly; and which cells are in.

    Columns and rows are mixed by matrices with two entries a row, which is what bilinear means.
    """
    at = place[:, ::2, None] + place[:, 1::2, None] * _CELLS
    columns, rows = np.moveaxis((at >= -0.3) & (at <= SMALL - 0.7), 1, 0)
    weights = np.maximum(0, 1 - np.abs(np.clip(at, 0, SMALL - 1)[..., None] - _CELLS))
    sampled = weights[:, 1:] @ planes @ weights[:, :1].swapaxes(2, 3)
    return sampled, rows[:, :, None] & columns[:, None]


def _registered(grey: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Improve `start` so that a grey, sampled there and under a tone curve, looks like `target`.

    Args:
        grey: [P, 1, 32, 32]; target: [P, 32, 32]; start: [P, 4].
    """
    places, tones = start.copy(), np.tile([0.0, 1.0, 0.0], (len(start), 1))
    # A straight curve where there is no reason for another.
    ridge = np.array([1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 5000.0])
    moving = np.arange(len(start))
    for _ in range(_STEPS):
        if not len(moving):
            break
        moved, inside = _sampled(grey[moving], places[moving])
        value, (constant, linear, square) = moved[:, 0] / 255, tones[moving].T[..., None, None]
        rest = target[moving] - 255 * (constant + (linear + square * value) * value)
        slope = 255 * (linear + 2 * square * value)
        across, down = slope * np.gradient(value, axis=2), slope * np.gradient(value, axis=1)
        ones = np.full_like(value, 255)
        edges = (across, across * _CELLS, down, down * _CELLS[:, None])
        rows = np.stack([*edges, ones, ones * value, ones * value * value], axis=1)
        wanted = np.zeros((len(moving), 7, 1))
        wanted[:, 6, 0] = -tones[moving, 2]
        weight = _weight(rest, 1.0, inside & _INNER)
        found = _solved(rows, rest[:, None], weight, ridge, wanted)[..., 0]
        # `rows` are by the cells of `moved`; a cell of `grey` is as many as the step says.
        new = places[moving] + found[:, :4] * places[moving][:, [1, 1, 3, 3]]
        new = np.clip(new, [-4, 0.8, -4, 0.8], [4, 1.2, 4, 1.2])
        change = (np.abs(new - places[moving]) * [1, SMALL, 1, SMALL]).max(1)
        places[moving] = new
        tones[moving] = np.clip(tones[moving] + found[:, 4:], -3, 3)
        moving = moving[change >= _SETTLED]
    return places


def _repainted(one: np.ndarray, other: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Give `one` the colours of `other` as well as a smooth change of all of them can.

    Returns:
        What is left, of the worst of the three colours: [P, 32, 32], in standard deviations of the
        grey of `other`.
    """
    grey = one[:, 3:]
    shades = [np.full_like(grey, 255), grey**2 / 255, grey**3 / 255**2]
    rows = np.concatenate([one[:, :3], *shades], axis=1)
    weight = inside.astype(np.float64)
    for _ in range(4):
        painting = _solved(rows, other[:, :3], weight, np.full(6, 300.0), np.eye(6, 3)[None])
        painted = np.einsum("pac,paij->pcij", painting, rows)
        rest = np.abs(other[:, :3] - painted).max(1)
        weight = _weight(rest, 2.0, inside)
    scaled: np.ndarray = rest / _std(other[:, 3])[:, None, None]
    return scaled


def _judged(
    rest: np.ndarray, inside: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """From what is left of each cell, in standard deviations, to difference and `edged`."""
    count = inside.sum((1, 2))
    ordered = np.sort(np.where(inside, rest, np.inf).reshape(len(rest), -1), axis=1)
    third = ordered[np.arange(len(rest)), (0.75 * count).astype(int)]
    spots = inside & (rest > 0.08 + 8 * third[:, None, None])
    vertical = np.where(spots.any(2), _FROM_EDGE, 0).max(1)
    horizontal = np.where(spots.any(1), _FROM_EDGE, 0).max(1)
    halves = spots[:, : SMALL // 2].any((1, 2)) & spots[:, SMALL // 2 :].any((1, 2))
    at_edge = (vertical < _DEEP) | (np.maximum(vertical, horizontal) < _CORNER)
    sound = (third <= MOST) & (spots.sum((1, 2)) <= SPOILT * count)
    mean_square = (rest**2 * inside).sum((1, 2)) / count
    return np.where(sound, levels * np.sqrt(mean_square), np.inf), at_edge & ~halves


def _covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    found: np.ndarray = (one * other).mean((1, 2)) - one.mean((1, 2)) * other.mean((1, 2))
    return found


def _std(grey: np.ndarray) -> np.ndarray:
    """Standard deviation [P], 1 at least."""
    return np.maximum(grey.std((1, 2)), 1.0)


def _quantile(values: np.ndarray, share: float) -> np.ndarray:
    """The value [P] that `share` of all values are below."""
    flat = values.reshape(len(values), -1)
    rank = int(share * flat.shape[1])
    return np.asarray(np.partition(flat, rank, axis=1)[:, rank])


def _weight(rest: np.ndarray, least: float, inside: np.ndarray) -> np.ndarray:
    """Cauchy's weights, so that a part that differs does not spoil the rest; 0 outside."""
    spread = least + 2 * _quantile(np.abs(rest), 0.5)[:, None, None]
    weight: np.ndarray = inside / (1 + (rest / spread) ** 2)
    return weight


def _solved(
    rows: np.ndarray, values: np.ndarray, weight: np.ndarray, ridge: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Weighted least squares of rows [P, n, ...] on [P, m, ...], drawn to `wanted` [n, m]."""
    flat = rows.reshape(*rows.shape[:2], -1)
    weighted = flat * weight.reshape(len(rows), 1, -1)
    matrix = weighted @ flat.swapaxes(1, 2)
    diagonal = np.arange(len(ridge))
    matrix[:, diagonal, diagonal] *= 1 + 1e-3 * (ridge < 1)
    matrix[:, diagonal, diagonal] += ridge + 1e-6
    target = weighted @ values.reshape(*values.shape[:2], -1).swapaxes(1, 2)
    return np.linalg.solve(matrix, target + ridge[:, None] * wanted)
