"""Every picture that users bring decodes to the same upright RGB, or is refused with a reason."""

import io
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFile

from paragrain import images
from paragrain.images import BadImage, content_hash, decode, media_type


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int = 40, height: int = 30) -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def same(a: Image.Image, b: Image.Image, *, within: int = 0) -> bool:
    difference = np.asarray(a).astype(int) - np.asarray(b).astype(int)
    return a.size == b.size and a.mode == b.mode and int(np.abs(difference).max()) <= within


def grey_ramp() -> np.ndarray:
    return np.arange(256, dtype=np.uint8).reshape(16, 16)


# --- Depth and colour -------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [257, 256])
def test_sixteen_bit_grey_equals_its_eight_bit_version(scale: int) -> None:
    deep = Image.fromarray(grey_ramp().astype(np.uint16) * scale)
    assert deep.mode == "I;16"
    plain = decode(encode(Image.fromarray(grey_ramp())))
    assert same(decode(encode(deep)), plain)
    assert same(decode(encode(deep, "TIFF")), plain)


def test_sixteen_bit_big_endian_tiff_and_pgm_equal_the_eight_bit_version() -> None:
    plain = decode(encode(Image.fromarray(grey_ramp())))
    words = grey_ramp().astype(np.uint16) * 257
    big = Image.frombytes("I;16B", (16, 16), words.astype(">u2").tobytes())
    assert same(decode(encode(big, "TIFF")), plain)
    pgm = b"P5 16 16 65535\n" + words.astype(">u2").tobytes()
    assert same(decode(pgm), plain)


@pytest.mark.parametrize(
    "values",
    [
        grey_ramp().astype(np.int32) * 257,
        grey_ramp().astype(np.int32) * 1_000_000 - 5,
        grey_ramp().astype(np.float32) / 255,
        grey_ramp().astype(np.float32),
        grey_ramp().astype(np.float32) * 7 - 900,
    ],
    ids=["int 16 bits", "int stretched", "float to 1", "float to 255", "float stretched"],
)
def test_thirty_two_bit_grey_by_the_stated_rules(values: np.ndarray) -> None:
    decoded = decode(encode(Image.fromarray(values), "TIFF"))
    assert same(decoded, decode(encode(Image.fromarray(grey_ramp()))))


def test_a_flat_or_broken_float_image_decodes() -> None:
    for value in (np.nan, np.inf, -3.0, 1000.0):
        data = encode(Image.fromarray(np.full((2, 2), value, np.float32)), "TIFF")
        assert decode(data).size == (2, 2)


def logo() -> Image.Image:
    """A logo with clear, half clear and solid parts, in colours that all modes can hold."""
    image = Image.new("RGBA", (24, 24), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    draw.ellipse((2, 2, 16, 16), fill=(90, 90, 90, 255))
    draw.rectangle((12, 12, 22, 22), fill=(10, 10, 10, 255))
    return image


def on_white(image: Image.Image) -> Image.Image:
    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, mask=image.getchannel("A"))
    return flat


def palette_logo() -> bytes:
    clear = 2
    image = Image.new("P", (24, 24), clear)
    image.putpalette([90, 90, 90, 10, 10, 10, 200, 0, 0])
    draw = ImageDraw.Draw(image)
    draw.ellipse((2, 2, 16, 16), fill=0)
    draw.rectangle((12, 12, 22, 22), fill=1)
    return encode(image, transparency=clear)


def palette_logo_with_alpha_table() -> bytes:
    with Image.open(io.BytesIO(palette_logo())) as image:
        return encode(image, transparency=bytes([255, 255, 0]))


def key_colour_logo() -> bytes:
    image = Image.new("RGB", (24, 24), (200, 0, 0))
    image.paste(logo(), mask=logo().getchannel("A"))
    return encode(image, transparency=(200, 0, 0))


@pytest.mark.parametrize(
    "data",
    [
        encode(logo()),
        encode(logo().convert("LA")),
        encode(logo(), "WEBP", lossless=True, exact=True),
        encode(logo(), "TIFF"),
        encode(logo(), "GIF"),
        palette_logo(),
        palette_logo_with_alpha_table(),
        key_colour_logo(),
    ],
    ids=["RGBA", "LA", "WebP", "TIFF", "GIF", "palette", "palette with alphas", "key colour"],
)
def test_transparent_versions_of_a_logo_equal_the_one_on_white(data: bytes) -> None:
    assert same(decode(data), on_white(logo()))


def test_half_transparency_blends_with_white() -> None:
    assert decode(encode(Image.new("RGBA", (1, 1), (255, 0, 0, 51)))).getpixel((0, 0)) == (
        255,
        204,
        204,
    )


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_modes_without_transparency(mode: str) -> None:
    image = noise().convert(mode)
    assert same(decode(encode(image)), image.convert("RGB"))


def test_cmyk_jpeg_has_the_colours_of_the_rgb_one() -> None:
    image = Image.new("RGB", (32, 16), (250, 40, 30))
    image.paste((20, 60, 220), (16, 0, 32, 16))
    data = encode(image.convert("CMYK"), "JPEG", quality=95)
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.mode == "CMYK"
    assert same(decode(data), image, within=12)


# --- Orientation and frames -------------------------------------------------------------------


def corners() -> Image.Image:
    """Wider than high, each corner in its own colour."""
    image = Image.new("RGB", (48, 32), "white")
    for x, y, colour in [(0, 0, "red"), (24, 0, "green"), (0, 16, "blue"), (24, 16, "black")]:
        image.paste(colour, (x, y, x + 24, y + 16))
    return image


INVERSE = {  # how a camera stores an upright picture under each orientation
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turned_photos_come_out_upright(kind: str, orientation: int) -> None:
    turn = INVERSE[orientation]
    stored = corners() if turn is None else corners().transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "AVIF": {"quality": 95}}.get(kind, {})
    decoded = decode(encode(stored, kind, exif=exif, **options))
    points = [(12, 8), (36, 8), (12, 24), (36, 24)]
    assert decoded.size == (48, 32)
    for point in points:
        expected, found = corners().getpixel(point), decoded.getpixel(point)
        assert np.allclose(expected, found, atol=12), (point, expected, found)


def test_nothing_is_left_that_would_turn_it_twice() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    decoded = decode(encode(corners(), "JPEG", exif=exif))
    assert decoded.size == (32, 48)
    assert decoded.getexif().get(0x0112) is None
    assert type(decoded) is Image.Image


@pytest.mark.parametrize("orientation", [0, 9, 300])
def test_a_senseless_orientation_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert decode(encode(corners(), "JPEG", exif=exif)).size == (48, 32)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    data = encode(red, kind, save_all=True, append_images=[blue], **options)
    assert same(decode(data), red)


def test_one_pixel_and_extreme_shapes() -> None:
    for size in [(1, 1), (2, 2), (26, 28), (1, 1000), (690, 15420)]:
        assert decode(encode(Image.new("L", size))).size == size


# --- Files in disorder ------------------------------------------------------------------------

WHOLE = {
    "JPEG": encode(noise(), "JPEG"),
    "progressive": encode(noise(), "JPEG", progressive=True),
    "PNG": encode(noise()),
    "WEBP": encode(noise(), "WEBP"),
    "BMP": encode(noise(), "BMP"),
    "TIFF": encode(noise(), "TIFF"),
    "AVIF": encode(noise(), "AVIF"),
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("accept_truncated", [False, True])
def test_truncated_files_are_refused_whatever_pillow_is_set_to(
    kind: str, accept_truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", accept_truncated)
    data = WHOLE[kind]
    decode(data)
    for cut in [1, 2, len(data) // 2, len(data) - 50, len(data) - 3]:
        with pytest.raises(BadImage):
            decode(data[: len(data) - cut])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is accept_truncated


def test_the_reasons_are_short_and_plain() -> None:
    data = WHOLE["JPEG"]
    reasons = {}
    for size in [0, 3, 50, len(data) // 2, len(data) - 2]:
        with pytest.raises(BadImage) as caught:
            decode(data[:size])
        reasons[size] = caught.value.reason
        assert str(caught.value) == caught.value.reason
    assert reasons[0] == "an empty file"
    assert reasons[3] == "truncated or damaged in its header"
    assert {reasons[size] for size in reasons if size >= 50} == {"truncated"}


def test_bytes_after_the_end_of_a_jpeg_do_no_harm() -> None:
    data = WHOLE["JPEG"]
    assert same(decode(data + b"\0" * 7 + b"camera maker's notes \xff\xd8\xff"), decode(data))


@pytest.mark.parametrize(
    "data",
    [b"hello", b"\0" * 100, b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS-Adobe-3.0 EPSF"],
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(BadImage, match="not an image"):
        decode(data)


def test_random_damage_never_raises_anything_else() -> None:
    rng = np.random.default_rng(1)
    for data in WHOLE.values():
        for _ in range(30):
            damaged = bytearray(data)
            for place in rng.integers(0, len(data), 8):
                damaged[place] = rng.integers(256)
            with suppress(BadImage):
                decode(bytes(damaged), max_pixels=1_000_000)


def test_a_huge_png_of_few_bytes_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    huge = encode(Image.new("1", (15_000, 15_000)))
    assert len(huge) < 50_000
    with monkeypatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was unpacked"))
        with pytest.raises(BadImage) as caught:
            decode(huge)
    assert caught.value.reason == "too many pixels (225,000,000; the limit is 100,000,000)"
    small = encode(Image.new("L", (20, 10)))
    with pytest.raises(BadImage, match="the limit is 199"):
        decode(small, max_pixels=199)
    assert decode(small, max_pixels=200).size == (20, 10)
    monkeypatch.setattr(images, "MAX_PIXELS", 10)
    with pytest.raises(BadImage, match="the limit is 10"):
        decode(small)


def test_pillow_limits_and_warnings_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x010F] = "maker" * 20
    whole = exif.tobytes()
    data = encode(noise(), "JPEG", exif=whole[: len(whole) // 2])
    with pytest.warns(UserWarning, match="."):
        Image.open(io.BytesIO(data)).getexif()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        assert decode(data).size == (40, 30)
        assert list(warnings.filters) == before
    assert Image.MAX_IMAGE_PIXELS == 50


def test_many_threads_at_once_keep_the_settings_and_the_pictures() -> None:
    before = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    barrier = threading.Barrier(4)
    reference = {kind: decode(data) for kind, data in WHOLE.items()}

    def work(_: int) -> bool:
        barrier.wait(10)
        return all(same(decode(data), reference[kind]) for kind, data in WHOLE.items())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    after = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    assert after == before


# --- Names, types, hashes ---------------------------------------------------------------------


def test_a_path_and_its_bytes_are_one(tmp_path: Path) -> None:
    path = tmp_path / "naïve 50% #1.png"  # the bytes count, not the name
    path.write_bytes(WHOLE["JPEG"])
    assert same(decode(path), decode(WHOLE["JPEG"]))
    with pytest.raises(BadImage, match="cannot be read: No such file"):
        decode(tmp_path / "absent.png")
    with pytest.raises(BadImage, match="cannot be read: Is a directory"):
        decode(tmp_path)


def test_the_media_type_comes_from_the_bytes() -> None:
    kinds = {kind: media_type(data) for kind, data in WHOLE.items()}
    assert kinds == {
        "JPEG": "image/jpeg",
        "progressive": "image/jpeg",
        "PNG": "image/png",
        "WEBP": "image/webp",
        "BMP": "image/bmp",
        "TIFF": "image/tiff",
        "AVIF": "image/avif",
    }
    stereo = encode(noise(), "MPO", save_all=True, append_images=[noise()])
    assert media_type(stereo) == "image/jpeg"
    assert same(decode(stereo), decode(WHOLE["JPEG"]))
    with pytest.raises(BadImage):
        media_type(b"no image")


def test_equal_bytes_have_equal_hashes() -> None:
    assert content_hash(b"a") == content_hash(b"a") != content_hash(b"b")
    assert len(content_hash(b"a")) == 32
