"""Lay one small picture over another, allow for crop, exposure and colours, look at what is left.

Where the edges lie (without turning) is found by iterative registration (Lucas and Kanade, "An
iterative image registration technique", 1981) of the greys under a tone curve, as robust least
squares. Then one of the two is painted anew in the colours of the other. What is left over most of
the picture tells copies from other pictures; where the largest of it lies tells an inscription from
another object.
"""

from typing import NamedTuple

import numpy as np

from paragrain.audit.perceptual import LUMA, SMALL

MOST = 0.4
"""Of a copy, three quarters of the cells differ by less, in standard deviations of the grey."""

SPOILT = 0.14
"""Most of the cells of a copy that may differ by much more than the others (an inscription)."""

_REACH = 2.6  # cells of SMALL by which an edge may have moved: 8 %
_STEPS = 10
_CORRELATION = 0.7  # of the greys before registration; less is hopeless
_AXIS = np.arange(SMALL)
_INNER = np.zeros((SMALL, SMALL), bool)
_INNER[1:-1, 1:-1] = True

# Where a plain picture may differ: a line of text at its upper or lower edge, a mark in a corner.
# Anything deeper inside is another object.
_DEEP = 4  # cells, 12 %
_CORNER = 5  # cells, 16 %
_DISTANCE = np.minimum(_AXIS, _AXIS[::-1])


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
    count = len(one)
    found = Leftover(np.full(count, np.inf), np.zeros(count, bool))
    shape = (count, SMALL, SMALL, 3)
    left, right = (side.reshape(shape).astype(np.float64) for side in (one, other))
    greys = left @ LUMA, right @ LUMA
    moved, _ = _laid(greys[0][..., None], start)
    hopeful = np.flatnonzero(_correlation(moved[..., 0], greys[1]) >= _CORRELATION)
    place = _registered(greys[0][hopeful], greys[1][hopeful], start[hopeful])
    ends = place[:, [0, 2]] + (SMALL - 1) * place[:, [1, 3]] - (SMALL - 1)
    near = (np.abs(np.concatenate([place[:, [0, 2]], ends], axis=1)) <= _REACH).all(axis=1)
    hopeful, place = hopeful[near], place[near]
    if not len(hopeful):
        return found
    laid, inside = _laid(left[hopeful], place)
    target = right[hopeful]
    rest = _repainted(laid, target, inside)
    back = _repainted(target, laid, inside)
    spreads = [np.maximum((side @ LUMA).std(axis=(1, 2)), 1) for side in (target, laid)]
    parts = [
        part / spread[:, None, None] for part, spread in zip((rest, back), spreads, strict=True)
    ]
    better = np.median(parts[1], axis=(1, 2)) < np.median(parts[0], axis=(1, 2))
    share = np.where(better[:, None, None], parts[1], parts[0])
    levels = np.where(better, spreads[1], spreads[0])
    seen = inside & _INNER
    third = np.nanquantile(np.where(seen, share, np.nan).reshape(len(share), -1), 0.75, axis=1)
    spots = seen & (share > 0.08 + 8 * third[:, None, None])
    sound = (third <= MOST) & (spots.sum(axis=(1, 2)) <= SPOILT * seen.sum(axis=(1, 2)))
    square = np.where(seen, share**2, 0).sum(axis=(1, 2)) / np.maximum(seen.sum(axis=(1, 2)), 1)
    found.difference[hopeful[sound]] = (levels * np.sqrt(square))[sound]
    found.edged[hopeful] = [_edged(spot) for spot in spots]
    return found


def _edged(spots: np.ndarray) -> bool:
    """Whether all spots of a picture lie in one line of text at an edge, or in one corner."""
    rows, columns = np.nonzero(spots)
    if not len(rows):
        return True
    vertical, horizontal = _DISTANCE[rows].max(), _DISTANCE[columns].max()
    one_side = len(set((rows < SMALL // 2).tolist())) == 1
    return bool(one_side and (vertical < _DEEP or max(vertical, horizontal) < _CORNER))


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each pair of greys [P, SMALL, SMALL]: float64 [P]."""
    one = one - one.mean(axis=(1, 2), keepdims=True)
    other = other - other.mean(axis=(1, 2), keepdims=True)
    power = (one**2).sum(axis=(1, 2)) * (other**2).sum(axis=(1, 2))
    return (one * other).sum(axis=(1, 2)) / np.sqrt(np.maximum(power, 1e-9))


def _weights(start: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of linear interpolation along one axis: [P, SMALL, SMALL], and which cells lie inside."""
    at = start[:, None] + step[:, None] * _AXIS
    inside = (at >= -0.3) & (at <= SMALL - 0.7)
    at = np.clip(at, 0, SMALL - 1)[..., None]
    return np.maximum(0.0, 1 - np.abs(at - _AXIS)), inside


def _laid(pictures: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sample pictures [P, SMALL, SMALL, C] where `place` says; also what lies inside of them."""
    columns, in_columns = _weights(place[:, 0], place[:, 1])
    rows, in_rows = _weights(place[:, 2], place[:, 3])
    moved = np.einsum("pyi,pijc->pyjc", rows, pictures, optimize=True)
    moved = np.einsum("pxj,pyjc->pyxc", columns, moved, optimize=True)
    return moved, in_rows[:, :, None] & in_columns[:, None, :]


def _registered(one: np.ndarray, other: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Improve `start` so that `one`, sampled there and under a tone curve, looks like `other`.

    Args:
        one, other: float64 [P, SMALL, SMALL] greys.
        start: float64 [P, 4].
    """
    place = start.copy()
    tones = np.tile([0.0, 1.0, 0.0], (len(one), 1))
    rows = np.empty((*one.shape, 7))
    rows[..., 4] = 255
    for _ in range(_STEPS if len(one) else 0):
        moved, inside = _laid(one[..., None], place)
        value = moved[..., 0] / 255
        a, b, c = (tones[:, n, None, None] for n in range(3))
        rest = other - 255 * (a + b * value + c * value**2)
        slope = 255 * (b + 2 * c * value)
        rows[..., 0] = slope * np.gradient(value, axis=2)
        rows[..., 2] = slope * np.gradient(value, axis=1)
        rows[..., 1] = rows[..., 0] * _AXIS
        rows[..., 3] = rows[..., 2] * _AXIS[:, None]
        rows[..., 5], rows[..., 6] = 255 * value, 255 * value**2
        weight = _weight(rest, 1.0) * (inside & _INNER)
        # A straight curve where there is no reason for another.
        ridge = np.array([1e-6] * 6 + [5000.0])
        wanted = np.zeros((len(one), 7))
        wanted[:, 6] = -tones[:, 2]
        found = _solved(rows, rest[..., None], weight, ridge, wanted[..., None])[..., 0]
        # `rows` are by the cells of `moved`; a cell of `one` is as many as the step says.
        step = place[:, [1, 1, 3, 3]]
        place = np.clip(place + found[:, :4] * step, *_BOUNDS)
        tones = np.clip(tones + found[:, 4:], -3, 3)
    return place


_BOUNDS = np.array([[-4, 0.8, -4, 0.8], [4, 1.2, 4, 1.2]])


def _repainted(one: np.ndarray, other: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Give `one` the colours of `other` as well as a smooth change of all of them can.

    Args:
        one, other: float64 [P, SMALL, SMALL, 3].
        inside: bool [P, SMALL, SMALL].

    Returns:
        What is left, of the worst of the three colours: float64 [P, SMALL, SMALL], in levels.
    """
    grey = one @ LUMA
    rows = np.empty((*grey.shape, 6))
    rows[..., :3], rows[..., 3] = one, 255
    rows[..., 4], rows[..., 5] = grey**2 / 255, grey**3 / 255**2
    unchanged = np.broadcast_to(np.eye(6, 3), (len(one), 6, 3))
    weight = inside.astype(np.float64)
    rest = np.zeros(grey.shape)
    for _ in range(4):
        painting = _solved(rows, other, weight, np.full(6, 300.0), unchanged)
        rest = np.abs(other - np.einsum("pyxa,pac->pyxc", rows, painting)).max(axis=3)
        weight = _weight(rest, 2.0) * inside
    return rest


def _weight(rest: np.ndarray, least: float) -> np.ndarray:
    """Cauchy's weights, so that a part that differs does not spoil the rest."""
    spread = least + 2 * np.median(np.abs(rest), axis=(1, 2), keepdims=True)
    return 1 / (1 + (rest / spread) ** 2)


def _solved(
    rows: np.ndarray, values: np.ndarray, weight: np.ndarray, ridge: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Weighted least squares of [P, SMALL, SMALL, n] on [..., m], drawn to `wanted` [P, n, m]."""
    flat = rows.reshape(len(rows), SMALL * SMALL, -1)
    weighted = (flat * weight.reshape(len(rows), -1, 1)).transpose(0, 2, 1)
    matrix = weighted @ flat
    diagonal = np.einsum("paa->pa", matrix)
    diagonal += ridge + 1e-3 * diagonal * (ridge < 1) + 1e-6
    right = weighted @ values.reshape(len(rows), SMALL * SMALL, -1) + ridge[:, None] * wanted
    return np.linalg.solve(matrix, right)
