"""Which images are sent to a model, and how; and by which content hash their replies are known."""

import io
from dataclasses import dataclass, field
from hashlib import blake2b

from PIL import Image

from paragrain.annotation.settings import ImageRule
from paragrain.collection import Collection, Record
from paragrain.embeddings.linked import is_content_hash, linked_contents, linked_paths
from paragrain.images import BadImage, content_hash, decode

RULE_VERSION = 1  # raised whenever the same image would be sent otherwise

_EDITED = "its file was edited after the import: run `paragrain update` on the collection first"


@dataclass(frozen=True)
class Picture:
    """An image as it is sent: JPEG bytes of an upright RGB image of one frame, and its size."""

    data: bytes = field(repr=False)
    width: int
    height: int
    media_type: str = "image/jpeg"


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
    size = _sent_size(*image.size, rule)
    if size != image.size:
        # `reducing_gap` shrinks by whole factors first: much faster, no visible difference.
        image = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=rule.quality)
    return Picture(buffer.getvalue(), *size)


def _sent_size(width: int, height: int, rule: ImageRule) -> tuple[int, int]:
    """The size in pixels at which an image is sent; raises BadImage if it cannot be.

    >>> _sent_size(26, 28, ImageRule())
    Traceback (most recent call last):
        ...
    paragrain.images.BadImage: too small to be described (26 x 28; the least side is 28)
    """
    size, (short, long) = f"{width} x {height}", sorted((width, height))
    if short < rule.min_side:
        raise BadImage(f"too small to be described ({size}; the least side is {rule.min_side})")
    if long > rule.max_ratio * short:
        raise BadImage(f"too narrow to be described ({size}; at most {rule.max_ratio:g} to 1)")
    scale = min(1.0, rule.max_side / long)
    sent = round(width * scale), round(height * scale)
    if min(sent) < rule.min_side:
        raise BadImage(
            f"too narrow to be described ({size}; scaled down to {rule.max_side}, "
            f"its shorter side is under {rule.min_side})"
        )
    return sent


class Contents:
    """The content hashes of a collection's records, checked against files beside it.

    What a record says of itself counts if it is a hash (another tool's column of that name may
    hold anything), and if the file that it links to (`--store paths`) is as it was then: texts for
    an edited picture would be stored with what the old one was.

    Attributes:
        linked: changes whenever a linked file does; empty if there is none.
    """

    def __init__(self, collection: Collection) -> None:
        """Look at all linked files; those that were never seen, or have changed, are hashed."""
        self._collection = collection
        self._now = linked_contents(collection, linked_paths(collection))
        both = "\n".join(f"{path}\n{content}" for path, content in sorted(self._now.items()))
        self.linked = blake2b(both.encode(), digest_size=16).hexdigest() if self._now else ""

    def of(self, record: Record) -> str | None:
        """The hash that a record tells, its image unread; None if it tells none.

        Raises:
            BadImage: the file that it links to was edited since.
        """
        content = record.content if is_content_hash(record.content) else None
        path = record.image.path
        if content is not None and path and self._now.get(path, content) != content:
            raise BadImage(_EDITED)
        return content

    def read(self, record: Record) -> tuple[bytes, str]:
        """The image of a record that was read with it, and its hash.

        Raises:
            BadImage: it cannot be read, or is not the one that was imported.
        """
        data = self._collection.image_bytes(record)
        content = self.of(record)
        if content is None or record.image.path in self._now:
            found = content_hash(data)
            if content is not None and found != content:
                raise BadImage(_EDITED)
            content = found
        return data, content
