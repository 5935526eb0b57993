"""Which images are sent: the cases on which several models crash, and what is sent instead."""

import io

import numpy as np
import pytest
from PIL import Image

from paragrain.annotation.pictures import prepare
from paragrain.annotation.settings import ImageRule
from paragrain.images import BadImage, decode, media_type

RULE = ImageRule()


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (26, 28), (1, 1000), (690, 15420), (281, 28)])
def test_odd_sizes_are_not_sent(size: tuple[int, int]) -> None:
    with pytest.raises(BadImage, match=rf"to be described \({size[0]} x {size[1]}; "):
        prepare(encoded(Image.new("RGB", size)), RULE)


@pytest.mark.parametrize(
    ("size", "sent"),
    [((28, 28), (28, 28)), ((280, 28), (280, 28)), ((640, 480), (640, 480)),
     ((4000, 3000), (1024, 768)), ((1000, 5000), (205, 1024))],
)  # fmt: skip
def test_sizes_that_are_sent(size: tuple[int, int], sent: tuple[int, int]) -> None:
    picture = prepare(encoded(Image.new("RGB", size)), RULE)
    assert (picture.width, picture.height) == sent
    assert decode(picture.data).size == sent


def test_a_narrow_image_that_is_allowed_may_still_be_too_narrow_when_scaled() -> None:
    with pytest.raises(BadImage, match="its shorter side is under 28"):
        prepare(encoded(Image.new("RGB", (100, 5000))), ImageRule(max_ratio=60))


def test_the_declared_type_is_that_of_the_bytes_whatever_came_in() -> None:
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        picture = prepare(encoded(noise(64, 48), kind), RULE)
        assert picture.media_type == media_type(picture.data) == "image/jpeg"


def test_of_a_two_frame_gif_the_first_frame_is_sent_as_it_is_embedded() -> None:
    first, second = Image.new("RGB", (40, 40), "red"), Image.new("RGB", (40, 40), "blue")
    data = encoded(first, "GIF", save_all=True, append_images=[second])
    picture = prepare(data, RULE)
    sent, embedded = decode(picture.data), decode(data)
    assert np.abs(np.asarray(sent, int) - np.asarray(embedded, int)).max() < 8
    red, green, blue = sent.getpixel((20, 20))
    assert red > 240
    assert max(green, blue) < 15


def test_turned_and_transparent_images_are_sent_upright_on_white() -> None:
    image = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = prepare(encoded(image, "PNG", exif=exif.tobytes()), RULE)
    assert (picture.width, picture.height) == (40, 60)
    assert decode(picture.data).getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", encoded(noise(200, 200))[:9000]])
def test_broken_images_are_refused(data: bytes) -> None:
    with pytest.raises(BadImage):
        prepare(data, RULE)
