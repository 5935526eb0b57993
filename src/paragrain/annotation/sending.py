"""Which images are sent to a model, and how: one stated rule for all backends."""

import io

from PIL import Image

from paragrain.annotation.calls import Picture
from paragrain.annotation.settings import ImageRule
from paragrain.images import BadImage, decode

RULE_VERSION = 1  # raised whenever the same image would be sent otherwise


def prepare(data: bytes, rule: ImageRule) -> Picture:
    """Decode an image, refuse what models cannot see, scale it down and encode it anew.

    The picture is the one that is embedded too (`images.decode`: upright, first frame, on white),
    scaled down so that its longer side has at most `rule.max_side` pixels, as JPEG of
    `rule.quality`.

    Raises:
        BadImage: it cannot be decoded, its shorter side has less than `rule.min_side` pixels,
            before or after scaling, or its sides differ by more than `rule.max_ratio`.

    >>> import numpy as np
    >>> buffer = io.BytesIO()
    >>> Image.fromarray(np.zeros((1000, 2000, 3), np.uint8)).save(buffer, "PNG")
    >>> picture = prepare(buffer.getvalue(), ImageRule())
    >>> picture.width, picture.height, picture.media_type
    (1024, 512, 'image/jpeg')
    """
    image = decode(data)
    width, height = sent_size(*image.size, rule)
    if (width, height) != image.size:
        # `reducing_gap` shrinks by whole factors first: much faster, no visible difference.
        image = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=rule.quality)
    return Picture(buffer.getvalue(), width, height)


def sent_size(width: int, height: int, rule: ImageRule) -> tuple[int, int]:
    """The size in pixels at which an image is sent.

    Raises:
        BadImage: it is too small or too narrow to be sent.

    >>> sent_size(3000, 1500, ImageRule())
    (1024, 512)
    >>> sent_size(26, 28, ImageRule())
    Traceback (most recent call last):
        ...
    paragrain.images.BadImage: too small to be described (26 x 28; the least side is 28)
    """
    short, long = sorted((width, height))
    if short < rule.min_side:
        raise BadImage(
            f"too small to be described ({width} x {height}; the least side is {rule.min_side})"
        )
    if long > rule.max_ratio * short:
        raise BadImage(
            f"too narrow to be described ({width} x {height}; at most {rule.max_ratio:g} to 1)"
        )
    scale = min(1.0, rule.max_side / long)
    sent = round(width * scale), round(height * scale)
    if min(sent) < rule.min_side:
        raise BadImage(
            f"too narrow to be described ({width} x {height}; scaled down to {rule.max_side}, "
            f"its shorter side is under {rule.min_side})"
        )
    return sent
