"""Rarer kinds of pictures, and sound pictures with broken metadata, decode to what they show."""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageCms

from paragrain.images import UNREADABLE, BadImage, decode, media_type

GREY = np.arange(256, dtype=np.uint8).reshape(16, 16)
ALPHA = np.roll(GREY, 3, axis=0)[:, ::-1]
RGB = np.stack([GREY, ALPHA, np.roll(GREY, 5)], axis=-1)
BOMB = zlib.compress(bytes(100 << 20), 9)


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def shown(data: bytes) -> np.ndarray:
    return np.asarray(decode(data)).astype(int)


def on_white(pixels: np.ndarray) -> np.ndarray:
    mode = "LA" if pixels.shape[-1] == 2 else "RGBA"
    image = Image.frombytes(mode, pixels.shape[1::-1], pixels.tobytes()).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB")).astype(int)


def turning(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


# --- Depths -----------------------------------------------------------------------------------


def chunk(kind: bytes, content: bytes, damage: int = 0) -> bytes:
    checksum = zlib.crc32(kind + content) ^ damage
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(pixels: np.ndarray, bits: int, colour: int, *extra: bytes) -> bytes:
    rows = [b"\0" + row.tobytes() for row in pixels.astype(">u2" if bits == 16 else "u1")]
    head = struct.pack(">IIBBBBB", 16, 16, bits, colour, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(extra) + body


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    ones = (values[..., None] >> np.arange(bits)[::-1]) & 1
    return np.packbits(ones.astype(np.uint8).reshape(len(values), -1), axis=1)


DEEP = RGB.astype(int) * 257
GREYS = np.stack([GREY, ALPHA], axis=-1)


def test_sixteen_bit_png_with_transparency_equals_its_eight_bit_version() -> None:
    np.testing.assert_array_equal(shown(png(GREYS.astype(int) * 257, 16, 4)), on_white(GREYS))
    both = np.concatenate([RGB, ALPHA[..., None]], axis=-1)
    np.testing.assert_array_equal(shown(png(both.astype(int) * 257, 16, 6)), on_white(both))
    key = chunk(b"tRNS", struct.pack(">H", 40 * 257))
    clear = np.where(GREY == 40, 255, GREY)
    np.testing.assert_array_equal(shown(png(DEEP[..., 0], 16, 0, key))[..., 0], clear)
    key = chunk(b"tRNS", struct.pack(">HHH", *DEEP[3, 4].tolist()))
    expected = RGB.copy()
    expected[3, 4] = 255
    np.testing.assert_array_equal(shown(png(DEEP, 16, 2, key)), expected)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_clear_grey_at_any_depth(bits: int) -> None:
    values = GREY >> (8 - bits)
    full = values.astype(int) * 255 // (2**bits - 1)
    for clear in (0, 1):
        key = chunk(b"tRNS", struct.pack(">H", clear))
        data = png(packed(values, bits), bits, 0, key)
        np.testing.assert_array_equal(shown(data)[..., 0], np.where(values == clear, 255, full))
    colours = np.roll(RGB.reshape(-1, 3), 7)[: 2**bits]
    alphas = (np.arange(2**bits) * 50 % 256).astype(np.uint8)
    table = chunk(b"PLTE", colours.tobytes()) + chunk(b"tRNS", alphas.tobytes())
    expected = np.concatenate([colours[values], alphas[values][..., None]], axis=-1)
    data = png(packed(values, bits), bits, 3, table)
    np.testing.assert_array_equal(shown(data), on_white(expected))


def tiff(
    pixels: bytes, bits: int, photometric: int, order: str = "<", *, kind: int = 1, samples: int = 1
) -> bytes:
    """A TIFF of 16 x 16 pixels; `kind` 1 unsigned, 2 signed, 3 floats."""
    tags = {256: 16, 257: 16, 259: 1, 262: photometric, 277: samples, 278: 16, 339: kind}
    long = {273: 8, 279: len(pixels)}
    entries = [struct.pack(order + "HHIHH", tag, 3, 1, v, 0) for tag, v in tags.items()]
    entries += [struct.pack(order + "HHII", tag, 4, 1, v) for tag, v in long.items()]
    entries.append(struct.pack(order + "HHIHH", 258, 3, samples, bits, bits * (samples > 1)))
    if samples > 1:
        entries.append(struct.pack(order + "HHIHH", 338, 3, 1, 2, 0))
    entries.sort(key=lambda entry: struct.unpack_from(order + "H", entry)[0])
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8 + len(pixels))
    return start + pixels + struct.pack(order + "H", len(entries)) + b"".join(entries) + b"\0" * 4


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("photometric", [0, 1])
def test_tiff_where_zero_is_white_or_black_at_every_depth(photometric: int, order: str) -> None:
    def stored(values: np.ndarray, top: float) -> np.ndarray:
        return top - values if photometric == 0 else values

    for bits in (1, 2, 4):
        values = GREY >> (8 - bits)
        data = tiff(packed(stored(values, 2**bits - 1), bits).tobytes(), bits, photometric, order)
        np.testing.assert_array_equal(
            shown(data)[..., 0], values.astype(int) * 255 // (2**bits - 1)
        )
    wide = GREY.astype(int)
    for name, bits, kind, values in [
        ("u1", 8, 1, stored(wide, 255)),
        ("u2", 16, 1, stored(wide * 257, 65535)),
        ("i4", 32, 2, stored(wide * 257, 65535)),
        ("f4", 32, 3, stored(wide / 255, 1)),
        ("f4", 32, 3, stored(wide.astype(float), 255)),
    ]:
        data = tiff(values.astype(order + name).tobytes(), bits, photometric, order, kind=kind)
        np.testing.assert_array_equal(shown(data)[..., 0], GREY, err_msg=name)
    alphas = np.stack([stored(GREY, 255), ALPHA], axis=-1).astype(np.uint8)
    data = tiff(alphas.tobytes(), 8, photometric, order, samples=2)
    np.testing.assert_array_equal(shown(data), on_white(GREYS))


def test_tiff_of_twelve_bits_and_of_the_whole_range_of_32() -> None:
    data = tiff(packed(GREY.astype(int) * 16, 12).tobytes(), 12, 1)
    np.testing.assert_array_equal(shown(data)[..., 0], GREY)
    whole = (GREY.astype(np.int64) * 0x01010101).astype("<u4")
    np.testing.assert_array_equal(shown(tiff(whole.tobytes(), 32, 1))[..., 0], GREY)


def test_lab_has_the_colours_of_rgb() -> None:
    image = Image.fromarray(RGB // 2 + 60).resize((64, 64), Image.Resampling.BICUBIC)
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    lab = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
    assert np.abs(shown(encode(lab, "TIFF")) - np.asarray(image)).mean() < 4


# --- Metadata ---------------------------------------------------------------------------------


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def broken_pngs() -> Iterator[tuple[str, bytes]]:
    whole = encode(noise())
    many = b"".join(chunk(b"tEXt", b"%d\0" % n + bytes(1 << 20)) for n in range(70))
    for name, extra in {
        "profile bomb": chunk(b"iCCP", b"x\0\0" + BOMB),
        "text bomb": chunk(b"zTXt", b"x\0\0" + BOMB),
        "raw profile bomb": chunk(b"zTXt", b"Raw profile type exif\0\0" + BOMB),
        "international text bomb": chunk(b"iTXt", b"x\0\1\0\0\0" + BOMB),
        "70 MB of text": many,
        "empty profile": chunk(b"iCCP", b""),
        "unknown compression": chunk(b"zTXt", b"x\0\7what"),
        "text with a wrong checksum": chunk(b"tEXt", b"a\0b", damage=1),
        "unknown with a wrong checksum": chunk(b"abCd", b"zz", damage=1),
        "resolution with a wrong checksum": chunk(b"pHYs", bytes(9), damage=1),
        "short gamma": chunk(b"gAMA", b"a"),
        "short colours": chunk(b"cHRM", b"a"),
        "empty rendering": chunk(b"sRGB", b""),
        "short animation": chunk(b"acTL", b"a"),
        "broken frame": chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", b"a"),
        "short transparency": chunk(b"tRNS", b"a"),
    }.items():
        yield f"PNG, {name}", whole[:33] + extra + whole[33:]
    yield "PNG, bomb at the end", whole[:-12] + chunk(b"zTXt", b"x\0\0" + BOMB) + whole[-12:]


def segment(marker: int, content: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def broken_jpegs() -> Iterator[tuple[str, bytes]]:
    whole = encode(noise(), "JPEG", quality=95)
    for name, extra in {
        "short profile": segment(0xE2, b"ICC_PROFILE\0"),
        "half a profile": segment(0xE2, b"ICC_PROFILE\0\1"),
        "short Adobe": segment(0xEE, b"Adobe"),
        "broken Photoshop": segment(0xED, b"Photoshop 3.0\x008BIM\x03\xed\xff\xff\xff\xff"),
        "broken frames": segment(0xE2, b"MPF\0garbage"),
        "EXIF in a circle": segment(
            0xE1, b"Exif\0\0II*\0\x08\0\0\0\1\0\x69\x87\4\0\1\0\0\0\x08\0\0\0\x08\0\0\0"
        ),
        "6 MB of XMP": segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + bytes(65000)) * 100,
    }.items():
        yield f"JPEG, {name}", whole[:2] + extra + whole[2:]
    yield "JPEG, short JFIF", whole[:2] + segment(0xE0, b"JFIF\0") + whole[20:]


def broken_others() -> Iterator[tuple[str, bytes]]:
    gif = encode(noise().convert("P"), "GIF", comment=b"x" * 300)
    place = gif.index(b"!\xfe")
    for name, extra in {
        "empty application": b"!\xff\0",
        "short control": b"!\xf9\x01\x01\0",
        "10 MB of comment": b"!\xfe" + (b"\xff" + b"a" * 255) * 40_000 + b"\0",
    }.items():
        yield f"GIF, {name}", gif[:place] + extra + gif[place:]
    whole = encode(noise(), "TIFF")
    (start,) = struct.unpack_from("<I", whole, 4)
    (count,) = struct.unpack_from("<H", whole, start)
    own = [whole[start + 2 + 12 * n : start + 14 + 12 * n] for n in range(count)]
    for tag, kind, number, value in [
        (0x10E, 5, 1, 0xFFFFFFF0),
        (0x112, 3, 9, 0xFFFFFFF0),
        (34675, 7, 1000, 0x7FFFFFFF),
        (700, 1, 0x7FFFFFFF, 8),
    ]:
        added = struct.pack("<HHII", tag, kind, number, value)
        entries = sorted([*own, added], key=lambda entry: struct.unpack_from("<H", entry)[0])
        body = struct.pack("<H", len(entries)) + b"".join(entries) + b"\0" * 4
        yield f"TIFF, tag {tag}", whole[:4] + struct.pack("<I", len(whole)) + whole[8:] + body


BROKEN = {**dict(broken_pngs()), **dict(broken_jpegs()), **dict(broken_others())}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_metadata_never_costs_the_picture(name: str) -> None:
    kind = name.split(",")[0]
    plain = noise().convert("P") if kind == "GIF" else noise()
    options = {"quality": 95} if kind == "JPEG" else {}
    np.testing.assert_array_equal(shown(BROKEN[name]), shown(encode(plain, kind, **options)))
    assert media_type(BROKEN[name]) == f"image/{kind.lower()}"


@pytest.mark.parametrize("name", [name for name in BROKEN if name.startswith(("PNG", "TIFF"))])
def test_broken_metadata_does_not_let_broken_pixels_pass(name: str) -> None:
    data = BROKEN[name]
    for size in (len(data) - 10, len(data) - 1500)[name.startswith("TIFF") :]:
        with pytest.raises(BadImage):
            decode(data[:size])
    if name.startswith("PNG"):
        place = data.rindex(b"IDAT") + 40
        with pytest.raises(BadImage):
            decode(data[:place] + b"\xff\0\xff" + data[place + 3 :])


def test_the_orientation_is_kept_where_other_metadata_is_broken() -> None:
    upright = noise().transpose(Image.Transpose.ROTATE_270)
    bad = chunk(b"zTXt", b"x\0\0" + BOMB)
    for kind, extra in {"PNG": bad, "JPEG": segment(0xE2, b"ICC_PROFILE\0")}.items():
        options: dict[str, Any] = {"quality": 95} if kind == "JPEG" else {}
        whole = encode(noise(), kind, exif=turning(6), **options)
        place = 33 if kind == "PNG" else 2
        found = decode(whole[:place] + extra + whole[place:])
        assert found.size == upright.size
        plain = decode(encode(noise(), kind, **options))
        expected = plain.transpose(Image.Transpose.ROTATE_270)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


# --- HEIC -------------------------------------------------------------------------------------


def corners() -> Image.Image:
    image = Image.new("RGB", (96, 64), "white")
    for x, y, colour in [(0, 0, "red"), (48, 0, "green"), (0, 32, "blue"), (48, 32, "black")]:
        image.paste(colour, (x, y, x + 48, y + 32))
    return image


def heic(image: Image.Image, exif: bytes = b"", **options: Any) -> bytes:
    made = pillow_heif.from_pillow(image)
    if exif:
        made.info["exif"] = exif
    buffer = io.BytesIO()
    made.save(buffer, quality=-1, chroma=444, **options)
    return buffer.getvalue()


STORED = {  # how a camera stores an upright picture under each orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("container", [True, False], ids=["by the container", "by EXIF alone"])
def test_heic_is_turned_exactly_once(orientation: int, container: bool) -> None:
    stored = corners().transpose(STORED[orientation])
    if container:
        data = heic(stored, turning(orientation))
        assert b"irot" in data or b"imir" in data
    else:
        whole = heic(stored, turning(1))
        data = whole.replace(turning(1)[6:], turning(orientation)[6:])
        assert b"irot" not in data
    assert np.abs(shown(data) - np.asarray(corners()).astype(int)).max() <= 2


def test_heic_of_ten_bits_with_alpha_and_of_several_pictures() -> None:
    assert media_type(heic(corners())) == "image/heic"
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    deep = pillow_heif.from_bytes("RGB;16", (64, 64), np.stack([ramp] * 3, -1).tobytes())
    buffer = io.BytesIO()
    deep.save(buffer, quality=-1, chroma=444)
    assert np.abs(shown(buffer.getvalue())[..., 0] - (ramp >> 8)).max() <= 1
    clear = corners().convert("RGBA")
    clear.putalpha(128)
    assert decode(heic(clear)).getpixel((90, 60)) == (127, 127, 127)
    several = pillow_heif.from_pillow(corners())
    several.add_from_pillow(Image.new("RGB", (96, 64), "yellow"))
    buffer = io.BytesIO()
    several.save(buffer, quality=-1, chroma=444)
    assert np.abs(shown(buffer.getvalue()) - np.asarray(corners()).astype(int)).max() <= 2


def test_heic_that_is_cut_too_large_or_has_broken_exif() -> None:
    data = heic(corners())
    for size in (20, len(data) // 2, len(data) - 1):
        with pytest.raises(BadImage):
            decode(data[:size])
    with pytest.raises(BadImage, match="the limit is 1,000"):
        decode(data, max_pixels=1000)
    broken = heic(corners(), turning(6)).replace(turning(6)[6:14], b"garbage!")
    assert decode(broken).size == (64, 96)


def test_what_is_not_read_is_named_by_its_bytes() -> None:
    for start, suffix in [
        (b"\0\0\0\x18ftypcrx \0\0\0\1", ".cr3"),
        (b"FUJIFILMCCD-RAW 0201", ".raf"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", ".jxl"),
        (b"8BPS\0\1", ".psd"),
    ]:
        with pytest.raises(BadImage) as caught:
            decode(start + bytes(100))
        assert caught.value.reason == UNREADABLE[suffix]
    assert UNREADABLE[".cr2"] == "RAW photographs (.cr2) are not read: export as JPEG"
    version = struct.pack("<HHIBBBB", 50706, 1, 4, 1, 4, 0, 0)
    body = struct.pack("<H", 1) + version + b"\0" * 4
    with pytest.raises(BadImage, match="RAW"):
        decode(b"II*\0\x08\0\0\0" + body)
