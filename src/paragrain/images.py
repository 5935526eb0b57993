"""The one place that decodes images: bytes or a path in, an upright RGB picture out."""

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageChops, ImageCms, ImageFile

from paragrain.containers import PNG, TIFF, Tiff, without_metadata
from paragrain.errors import ParagrainError
from paragrain.files import digest

MAX_PIXELS = 100_000_000
"""Most pixels that `decode` accepts unless told otherwise: a stranger's file of a few kilobytes
can unpack to gigabytes. Set it here to change it for everything."""

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
"""What is read, by Pillow's names, beside HEIC. Some of Pillow's other readers start programs
(EPS)."""

IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .gif .webp .bmp .dib .tif .tiff .avif .avifs .jp2 .j2k .jpx "
    ".ppm .pgm .pbm .pnm .mpo .heic .heif .heics .heifs .hif".split()
)
"""Files with these extensions are taken for images, in upper or lower case."""

_RAW = (
    ".3fr .arw .cr2 .cr3 .crw .dcr .dng .erf .gpr .iiq .kdc .mos .mrw .nef .nrw .orf .pef .raf "
    ".raw .rw2 .rwl .sr2 .srf .srw .x3f"
).split()

UNREADABLE = {
    **{suffix: f"RAW photographs ({suffix}) are not read: export as JPEG" for suffix in _RAW},
    **{
        suffix: f"{suffix} images are not read: convert to JPEG or PNG"
        for suffix in (".exr", ".jxl", ".psb", ".psd", ".svg", ".svgz", ".tga", ".xcf")
    },
}
"""Extensions of pictures of kinds that are not read, in lower case, and what to say of each."""

_PNG_END = b"IEND\xaeB`\x82"
_UPRIGHT = {  # what undoes each value of the EXIF orientation tag; 1 is upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION_TAG = 0x0112
_BITS_PER_SAMPLE = 258
_PHOTOMETRIC = 262
_SAMPLE_FORMAT = 339
_DNG_VERSION = 50706
_HEIF_BRANDS = frozenset(
    b"heic heix heim heis hevc hevx hevm hevs mif1 mif2 msf1 jpeg avci avcs".split()
)
_HEIF_TURNS = (b"\0\0\0\x09irot", b"\0\0\0\x09imir")
_SIGNATURES = {  # how pictures begin that are not read
    b"ftypcrx ": ".cr3",
    b"FUJIFILMCCD-RAW": ".raf",
    b"IIU\0": ".rw2",
    b"IIRO": ".orf",
    b"IIRS": ".orf",
    b"MMOR": ".orf",
    b"FOVb": ".x3f",
    b"\xff\x0a": ".jxl",
    b"\0\0\0\x0cJXL ": ".jxl",
    b"8BPS\0\1": ".psd",
    b"8BPS\0\2": ".psb",
    b"v/1\1": ".exr",
    b"gimp xcf": ".xcf",
}


T = TypeVar("T", bound=Image.Image)


class BadImage(ParagrainError):
    """An image that cannot be used; `reason`, also its message, says why in a few words."""

    def __init__(self, reason: str):
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


def decode(data: bytes | Path, *, max_pixels: int | None = None) -> Image.Image:
    """Decode one image completely into an upright RGB picture without any metadata.

    - EXIF orientation is applied, in every format that has it; in HEIC only where the container
      itself does not say how the picture is turned.
    - Of an animation or a file of several pages, the first; of several HEIC pictures, the primary.
    - Transparency of any kind is laid on white.
    - CMYK is converted; in JPEG it is stored inverted, as Adobe does, and read so. Lab is taken to
      sRGB.
    - Samples of 9 to 16 bits keep their upper 8 bits: 16-bit grey `257 * v` equals 8-bit `v`.
    - 32-bit integers are read as 16-bit if all lie in 0..65535; floats as 0..1, or as 0..255, if
      all lie in there. Otherwise both are stretched linearly from their least to their largest
      value, since nothing says what white is. TIFF may say that zero is white.
    - Colour profiles are not applied, as in the pipelines that BLIP and CLIP were trained with.
    - Metadata never costs the picture: what cannot be read is read without its metadata, save the
      orientation if that can be read.
    - A file that ends too early is refused, though most of it could be shown.

    It may be called from several threads at once, and no warning of Pillow's gets out.

    Args:
        data: the encoded image, or the path of a file that holds it.
        max_pixels: refuse an image of more pixels before unpacking it; by default `MAX_PIXELS`.

    Raises:
        BadImage: it cannot be read, is no image, is cut off or damaged, or has too many pixels.

    >>> data = io.BytesIO()
    >>> Image.new("LA", (1, 1), (0, 128)).save(data, "PNG")  # black, half transparent
    >>> decode(data.getvalue()).getpixel((0, 0))
    (127, 127, 127)
    """
    if isinstance(data, Path):
        data = _read(data)
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    with _quiet_strict_pillow():
        upright = _either(lambda data: _decode(data, limit), data)
    upright.info = {}  # nobody shall turn it a second time
    return upright


def media_type(data: bytes) -> str:
    """The media type that the bytes themselves show, such as "image/jpeg", whatever the name.

    Raises:
        BadImage: they are no image that `decode` reads.
    """
    with _quiet_strict_pillow():
        kind = _either(_open, data).format or ""
    return {"MPO": "image/jpeg", "HEIF": "image/heic"}.get(kind) or Image.MIME[kind]


def content_hash(data: bytes) -> str:
    """128 bits of BLAKE2b of the bytes, as 32 hexadecimal digits: equal files, equal hashes.

    >>> content_hash(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return digest(data).hex()


def pixels_hash(image: Image.Image) -> str:
    """128 bits of BLAKE2b of a decoded picture: equal however it is stored and labelled.

    >>> pixels_hash(Image.new("RGB", (2, 1))) == pixels_hash(Image.new("RGB", (1, 2)))
    False
    """
    return digest(f"{image.mode} {image.width} {image.height} ", image.tobytes()).hex()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadImage(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


class _TooLarge(BadImage):
    """More pixels than allowed."""


def _either(read: Callable[[bytes], T], data: bytes) -> T:
    """What `read` makes of a file, or else of the same picture without its metadata."""
    try:
        return read(data)
    except _TooLarge:
        raise
    except BadImage as error:
        try:
            bare = without_metadata(data)
        except (LookupError, ValueError, struct.error, zlib.error):
            bare = None
        if bare is None:
            raise
        try:
            return read(bare)
        except BadImage:
            raise error from None


def _decode(data: bytes, limit: int) -> Image.Image:
    """Upright and RGB."""
    samples = _samples(data)
    image = _open(samples.data)
    pixels = image.width * image.height
    if pixels > limit:
        raise _TooLarge(f"too many pixels ({pixels:,}; the limit is {limit:,})")
    if image.format == "PNG" and _PNG_END not in data:
        raise BadImage("truncated")  # its pixels may all be there, yet the file was cut
    try:
        image.load()
        return _flat(_turned(image, data), samples)
    except Exception as error:  # the data is a stranger's: its reader may raise anything
        raise BadImage(_reason(error)) from error


class _Samples(NamedTuple):
    """What Pillow does not tell of the samples of a picture, and the file as it is to open it."""

    data: bytes
    bits: int = 16
    unsigned: bool = False
    negative: bool = False


def _samples(data: bytes) -> _Samples:
    if data.startswith(PNG) and len(data) > 24:
        return _Samples(data, bits=data[24])
    tiff = _tiff(data)
    if tiff is None:
        return _Samples(data)
    # Pillow knows at few depths that zero may be white: it gets the negative to read.
    negative = tiff.short(_PHOTOMETRIC) == 0
    return _Samples(
        tiff.with_short(_PHOTOMETRIC, 1) if negative else data,
        bits=tiff.short(_BITS_PER_SAMPLE) or 16,
        unsigned=tiff.short(_SAMPLE_FORMAT) in (None, 1),
        negative=negative,
    )


def _open(data: bytes) -> ImageFile.ImageFile:
    """Read the header only."""
    if not data:
        raise BadImage("an empty file")
    if kind := _unread_kind(data):
        raise BadImage(kind)
    try:
        if _is_heif(data):
            # The reader alone: wheels of pillow-heif bring an encoder under the GPL. Not registered
            # with Pillow: what the program around us opens is its own affair.
            from pi_heif import HeifImageFile

            return HeifImageFile(io.BytesIO(data))
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError as error:
        if data.startswith((b"\xff\xd8\xff", PNG, b"GIF8")):
            raise BadImage("truncated or damaged in its header") from error
        if data.startswith(TIFF):
            raise BadImage("a TIFF that is damaged or of a kind that is not read") from error
        raise BadImage("not an image of a known format") from error
    except Exception as error:
        raise BadImage(_reason(error)) from error


def _is_heif(data: bytes) -> bool:
    """Whether the first box names a brand of HEIC, and none of AVIF, which Pillow reads."""
    if data[4:8] != b"ftyp":
        return False
    box = data[8 : max(16, min(int.from_bytes(data[:4], "big"), 1024))]
    brands = {box[place : place + 4] for place in range(0, len(box), 4)}
    return bool(brands & _HEIF_BRANDS) and not brands & {b"avif", b"avis"}


def _unread_kind(data: bytes) -> str | None:
    """Why a picture of a known kind is not read, if the bytes show such a one."""
    for start, suffix in _SIGNATURES.items():
        if data.startswith(start) or (start == b"ftypcrx " and data[4:12] == start):
            return UNREADABLE[suffix]
    tiff = _tiff(data)
    if tiff is None:
        return None
    # Pillow would show the thumbnail that comes first.
    raw = _DNG_VERSION in tiff.tags or data[8:10] == b"CR"
    return UNREADABLE[".dng" if data[8:10] != b"CR" else ".cr2"] if raw else None


def _tiff(data: bytes) -> Tiff | None:
    try:
        return Tiff(data) if data[:4] in TIFF else None
    except struct.error:
        return None


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return "truncated" if "truncated" in text.lower() else f"damaged ({text.splitlines()[0]})"


def _turned(image: ImageFile.ImageFile, data: bytes) -> Image.Image:
    try:
        if image.format == "HEIF":  # its reader has followed the container's own turns
            turned = any(box in data for box in _HEIF_TURNS)
            value: Any = None if turned else image.info.get("original_orientation")
        else:
            value = image.getexif().get(_ORIENTATION_TAG)
        turn = _UPRIGHT.get(value[0] if isinstance(value, bytes | tuple) else value)
    except Exception:  # metadata in disorder is no reason to lose a sound picture
        return image
    return image if turn is None else image.transpose(turn)


def _flat(image: Image.Image, samples: _Samples) -> Image.Image:
    """Any mode to RGB; always a new image."""
    key, bits = image.info.get("transparency"), samples.bits
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image)
        if samples.unsigned and bits == 32 and values.dtype == np.int32:
            values = values.view(np.uint32)
        image = Image.fromarray(_to_8_bits(values, bits))
        if isinstance(key, int):
            image.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    elif isinstance(key, int) and image.mode == "L" and bits < 8:
        image.info["transparency"] = key * 255 // (2**bits - 1)
    elif isinstance(key, tuple) and bits == 16:  # Pillow keeps the upper 8 bits of the pixels
        image.info["transparency"] = tuple(value >> 8 for value in key)
    elif image.mode == "LAB":
        lab, rgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        image = ImageCms.profileToProfile(image, lab, rgb, outputMode="RGB") or image
    if samples.negative:
        grey, *alpha = image.split()
        image = Image.merge(image.mode, [ImageChops.invert(grey), *alpha])
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def _to_8_bits(values: np.ndarray, bits: int = 16) -> np.ndarray:
    """Grey values of 9 to 16 or 32 bits, or floats, to uint8, by the rules in `decode`.

    >>> _to_8_bits(np.array([[0, 255, 256, 65535]], np.uint16))
    array([[  0,   0,   1, 255]], dtype=uint8)
    >>> _to_8_bits(np.array([[0.0, 0.5, 1.0]], np.float32))
    array([[  0, 128, 255]], dtype=uint8)
    >>> _to_8_bits(np.array([[-10, 70_000, 69_990]], np.int32))
    array([[  0, 255, 255]], dtype=uint8)
    """
    if values.dtype.kind == "f":
        values = np.nan_to_num(values.astype(np.float64))
        low, high = values.min(), values.max()
        if low >= 0 and high <= 255:
            return np.rint(values * 255 if high <= 1 else values).astype(np.uint8)
    else:
        low, high = values.min(), values.max()
        if low >= 0 and high <= 65535:
            return (values >> (bits - 8 if 8 < bits < 16 else 8)).astype(np.uint8)
    span = (values.astype(np.float64) - low) / (float(high) - float(low) or 1.0)
    return np.rint(span * 255).astype(np.uint8)


_pillow_lock = threading.Lock()
_pillow_users = 0
_pillow_before: tuple[Any, ...] = ()


@contextmanager
def _quiet_strict_pillow() -> Iterator[None]:
    """Pillow's global switches as `decode` needs them, while any thread is in there.

    Pillow keeps them in module variables, and the program around us may have set them: accepting
    truncated files, or a pixel limit of its own (ours is checked instead). Its warnings, all
    about metadata, go by a filter that is taken out again.
    """
    global _pillow_users, _pillow_before
    with _pillow_lock:
        _pillow_users += 1
        if _pillow_users == 1:
            switches = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS
            ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = False, None
            warnings.filterwarnings("ignore", module=r"PIL\.")
            _pillow_before = (*switches, warnings.filters[0])
    try:
        yield
    finally:
        with _pillow_lock:
            _pillow_users -= 1
            if not _pillow_users:
                ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, ours = _pillow_before
                # Not `warnings.catch_warnings`: it would undo what other threads set meanwhile.
                if ours in warnings.filters:
                    warnings.filters.remove(ours)  # type: ignore[attr-defined]
