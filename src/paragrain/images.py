"""The one place that decodes images: bytes or a path in, an upright RGB picture out."""

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from paragrain.errors import ParagrainError

MAX_PIXELS = 100_000_000
"""Most pixels that `decode` accepts unless told otherwise: a stranger's file of a few kilobytes
can unpack to gigabytes. Set it here to change it for everything."""

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
"""What is read, by Pillow's names. Some of Pillow's other readers start programs (EPS)."""

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


class BadImage(ParagrainError):
    """An image that cannot be used; `reason`, also its message, says why in a few words."""

    def __init__(self, reason: str):
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


def decode(data: bytes | Path, *, max_pixels: int | None = None) -> Image.Image:
    """Decode one image completely into an upright RGB picture without any metadata.

    - EXIF orientation is applied, in every format that has it.
    - Of an animation or a file of several pages, the first.
    - Transparency of any kind is laid on white.
    - CMYK is converted; in JPEG it is stored inverted, as Adobe does, and read so.
    - 16-bit samples keep their upper 8 bits: 16-bit grey `257 * v` equals 8-bit `v`.
    - 32-bit integers are read as 16-bit if all lie in 0..65535; floats as 0..1, or as 0..255, if
      all lie in there. Otherwise both are stretched linearly from their least to their largest
      value, since nothing says what white is.
    - Colour profiles are not applied, as in the pipelines that BLIP and CLIP were trained with.
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
    with _quiet_strict_pillow():
        image = _open(data)
        _check_size(image, MAX_PIXELS if max_pixels is None else max_pixels)
        try:
            image.load()
            upright = _flat(_turned(image))
        except Exception as error:  # the data is a stranger's: its reader may raise anything
            raise BadImage(_reason(error)) from error
    if image.format == "PNG" and _PNG_END not in data:
        raise BadImage("truncated")  # the pixels are all there, yet the file was cut
    upright.info = {}  # nobody shall turn it a second time
    return upright


def media_type(data: bytes) -> str:
    """The media type that the bytes themselves show, such as "image/jpeg", whatever the name.

    Raises:
        BadImage: they are no image that `decode` reads.
    """
    with _quiet_strict_pillow():
        kind = _open(data).format or ""
    return "image/jpeg" if kind == "MPO" else Image.MIME[kind]


def content_hash(data: bytes) -> str:
    """128 bits of BLAKE2b of the bytes, as 32 hexadecimal digits: equal files, equal hashes.

    >>> content_hash(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return blake2b(data, digest_size=16).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadImage(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _open(data: bytes) -> ImageFile.ImageFile:
    """Read the header only."""
    if not data:
        raise BadImage("an empty file")
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError as error:
        if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8")):
            raise BadImage("truncated or damaged in its header") from error
        raise BadImage("not an image of a known format") from error
    except Exception as error:
        raise BadImage(_reason(error)) from error


def _check_size(image: Image.Image, limit: int) -> None:
    pixels = image.width * image.height
    if pixels > limit:
        raise BadImage(f"too many pixels ({pixels:,}; the limit is {limit:,})")


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return "truncated" if "truncated" in text.lower() else f"damaged ({text.splitlines()[0]})"


def _turned(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG)
    except Exception:  # metadata in disorder is no reason to lose a sound picture
        return image
    turn = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _flat(image: Image.Image) -> Image.Image:
    """Any mode to RGB; always a new image."""
    if image.mode == "F" or image.mode.startswith("I"):
        image = Image.fromarray(_to_8_bits(np.asarray(image)))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def _to_8_bits(values: np.ndarray) -> np.ndarray:
    """Grey values of 16 or 32 bits, or floats, to uint8, by the rules in `decode`.

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
            return (values >> 8).astype(np.uint8)
    span = (values.astype(np.float64) - low) / (float(high) - float(low) or 1.0)
    return np.rint(span * 255).astype(np.uint8)


class _PillowSettings:
    """Pillow's global switches as `decode` needs them, while any thread is in there.

    Pillow keeps them in module variables, and the program around us may have set them: accepting
    truncated files, or a pixel limit of its own (ours is checked instead). Its warnings, all
    about metadata, go by a filter that is taken out again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._truncated = ImageFile.LOAD_TRUNCATED_IMAGES
            self._limit = Image.MAX_IMAGE_PIXELS
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            Image.MAX_IMAGE_PIXELS = None
            warnings.filterwarnings("ignore", module=r"PIL\.")
            self._filter = warnings.filters[0]

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            ImageFile.LOAD_TRUNCATED_IMAGES = self._truncated
            Image.MAX_IMAGE_PIXELS = self._limit
            # Not `warnings.catch_warnings`: it would undo what other threads set meanwhile.
            if self._filter in warnings.filters:
                warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


_settings = _PillowSettings()


@contextmanager
def _quiet_strict_pillow() -> Iterator[None]:
    _settings.enter()
    try:
        yield
    finally:
        _settings.leave()
