"""How a picture looks, in few bytes: a perceptual hash to find candidates, a tiny copy to check.

The hash is the usual one (64 low frequencies of a 32 x 32 grey cosine transform, each above the
median or not). It forgets detail: pictures that differ in one small object are often 0 to 7 bits
apart. So every candidate is checked on tiny copies in colour, of 16 x 16, made with a smooth
kernel: recompression and scaling move each of their samples a little, another object moves a few of
them a lot.
"""

from typing import NamedTuple

import numpy as np
from PIL import Image

from paragrain.audit.kernels import compare

SIDE = 16
"""Side of a tiny copy."""

MIN_SPREAD = 3.0
"""Below this standard deviation of its 32 x 32 grey copy, in levels of 255, a picture is flat:
what its hash says is noise."""

_SIDE = 32
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_STEPS = np.arange(_SIDE)
_COSINES = np.cos(np.pi * (2 * _STEPS + 1) * _STEPS[:8, None] / (2 * _SIDE)).astype(np.float32)


class Look(NamedTuple):
    """What is kept of a picture: its 64-bit hash, uint8 [16, 16, 3] RGB, and whether it is flat."""

    hash: int
    tiny: np.ndarray
    flat: bool


def look(image: Image.Image) -> Look:
    """Hash and tiny copy of an RGB picture of any size.

    >>> values = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    >>> picture = Image.fromarray(values).resize((200, 200))
    >>> look(picture).hash == look(picture.resize((150, 100))).hash, look(picture).flat
    (True, False)
    """
    small = image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    grey = np.asarray(small, np.float32) @ _LUMA
    low = (_COSINES @ grey @ _COSINES.T).ravel()
    bits = np.packbits(low > np.median(low))
    tiny = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return Look(int.from_bytes(bits.tobytes(), "big"), tiny, bool(grey.std() < MIN_SPREAD))


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
