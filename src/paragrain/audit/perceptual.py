"""How a picture looks, in few bytes: perceptual hashes to find candidates, small copies to check.

The hash is the usual one (64 low frequencies of a 32 x 32 grey cosine transform, each above the
median or not). It forgets detail: pictures that differ in one small object are often 0 to 7 bits
apart. So every candidate is checked on tiny copies in colour, of 16 x 16, made with a smooth
kernel: recompression and scaling move each of their samples a little, another object moves a few of
them a lot.

Cropping moves everything. So the hash is taken of two insets of the picture too: that of a cropped
copy is near one of them. Such candidates, and those that are brighter, tinted or written on, are
laid over each other as copies of 32 x 32 (`aligning`).
"""

from typing import NamedTuple

import numpy as np
from PIL import Image

from paragrain.audit.kernels import compare

SIDE = 16
"""Side of a tiny copy."""

SMALL = 32
"""Side of a small copy."""

INSETS = (0.0, 0.02, 0.045)
"""Shares of the sides that are cut off at each edge before hashing."""

MIN_SPREAD = 3.0
"""Below this standard deviation of its 32 x 32 grey copy, in levels of 255, a picture is flat:
what its hash says is noise."""

DETAIL = 0.85
"""A picture is plain if less of it shows detail: a drawing, a diagram, a product on white. Two of
those that differ by one object are different pictures."""

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_MIDDLE = 128
_STEPS = np.arange(SMALL)
_COSINES = np.cos(np.pi * (2 * _STEPS + 1) * _STEPS[:8, None] / (2 * SMALL)).astype(np.float32)


class Look(NamedTuple):
    """What is kept of a picture.

    Attributes:
        hashes: 64 bits of each of `INSETS`.
        tiny: uint8 [16, 16, 3] RGB.
        small: uint8 [32, 32, 3] RGB.
        flat: whether it is of one colour, or nearly so.
        plain: whether parts of it are; see `DETAIL`.
    """

    hashes: tuple[int, ...]
    tiny: np.ndarray
    small: np.ndarray
    flat: bool
    plain: bool


def look(image: Image.Image) -> Look:
    """Hashes and small copies of an RGB picture of any size.

    >>> values = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    >>> picture = Image.fromarray(values).resize((200, 200))
    >>> look(picture).hashes[0] == look(picture.resize((150, 100))).hashes[0], look(picture).flat
    (True, False)
    """
    small = image.resize((SMALL, SMALL), Image.Resampling.BILINEAR)
    tiny = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    grey = np.asarray(small, np.float32) @ LUMA
    middle = image.resize((_MIDDLE, _MIDDLE), Image.Resampling.BILINEAR)
    greys = [grey]
    for inset in INSETS[1:]:
        edge = inset * _MIDDLE
        box = (edge, edge, _MIDDLE - edge, _MIDDLE - edge)
        inner = middle.resize((SMALL, SMALL), Image.Resampling.BILINEAR, box=box)
        greys.append(np.asarray(inner, np.float32) @ LUMA)
    detail = _around(grey, np.maximum) - _around(grey, np.minimum) > 2
    return Look(
        tuple(_hash(grey) for grey in greys),
        tiny,
        np.asarray(small),
        bool(grey.std() < MIN_SPREAD),
        bool(detail.mean() < DETAIL),
    )


def _around(grey: np.ndarray, least_or_most: np.ufunc) -> np.ndarray:
    """Of each 3 x 3 cells, [SMALL - 2, SMALL - 2]."""
    of_rows = least_or_most.reduce([grey[:-2], grey[1:-1], grey[2:]])
    return np.asarray(least_or_most.reduce([of_rows[:, :-2], of_rows[:, 1:-1], of_rows[:, 2:]]))


def _hash(grey: np.ndarray) -> int:
    low = (_COSINES @ grey @ _COSINES.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """How far two tiny copies are apart; infinite if they show different pictures.

    Args:
        one, other: uint8 [16, 16, 3].

    Returns:
        The root mean square of the differences in grey, in levels of 255. Different pictures are
        those where a sample's grey differs by more than 8 levels, or by more than 2 plus eight
        times the upper quartile (a spot in an otherwise equal picture); where the colour (Cb or Cr)
        of a 2 x 2 block differs by more than 16, or by more than 4 plus eight times the upper
        quartile; or where the greys correlate below 0.9.

    >>> one = np.zeros((16, 16, 3), np.uint8)
    >>> one[:8] = 200
    >>> other = one.copy()
    >>> other[2, 2] = 150
    >>> difference(one, one), difference(one, other)
    (0.0, inf)
    """
    return float(compare(one.reshape(-1, 3), other.reshape(-1, 3)))
