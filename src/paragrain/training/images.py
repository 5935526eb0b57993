"""Images themselves, for runs whose losses need more than embeddings: decoded in every step."""

import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from torch import Tensor

from paragrain.collection import Collection, Record
from paragrain.embeddings import ahead, records_with_images
from paragrain.encoders.base import ImageTextEncoder, encode_pixels
from paragrain.errors import ParagrainError
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar

EMBED_BATCH = 64
"""Images of one forward pass that keeps no activations."""


class ImageReader:
    """The images of a split in any order, with no more than a batch or two in memory.

    Each is decoded once to see whether it can be used. Images that are files are read where they
    are. Those that a collection keeps in its own files can only be read together with their
    neighbours there, so they are copied once, as they are, to a nameless temporary file, which is
    gone when the run ends, however it ends.

    Args:
        collection, split: where the images come from.
        encoder: what preprocesses them.
        folder: where the temporary file may lie, or beside it while it is not there.
        progress: whether to show a progress bar.

    Attributes:
        contents: id and content hash of each image that can be used, in the collection's order.
        failed: (id, reason) of those that cannot.

    Raises:
        ParagrainError: the images cannot be copied.
    """

    def __init__(
        self,
        collection: Collection,
        encoder: ImageTextEncoder,
        split: str,
        folder: Path,
        *,
        progress: bool,
    ) -> None:
        self._collection, self._encoder = collection, encoder
        self.contents: dict[str, str] = {}
        self.failed: list[tuple[str, str]] = []
        self._records: dict[str, Record] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        records = collection.records(split, images=True, fields=())
        total = collection.splits.get(split)
        try:
            there = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
            self._file = tempfile.TemporaryFile(dir=there)  # noqa: SIM115
            with progress_bar("reading images", total, unit="images", show=progress) as advance:
                for record, content, reason in ahead(self._checked, records, EMBED_BATCH):
                    if reason:
                        self.failed.append((record.id, reason))
                    else:
                        self.contents[record.id] = content
                        self._keep(record)
                    advance()
        except OSError as error:
            raise ParagrainError(
                f"images cannot be copied to {folder} ({error.strerror or error}): make room, "
                "and train again"
            ) from error

    def _checked(self, record: Record) -> tuple[Record, str, str]:
        """A record with the hash of its image's bytes, or why it cannot be used."""
        try:
            data = self._collection.image_bytes(record)
            self._encoder.pixels(decode(data))
        except BadImage as error:
            return record, "", error.reason
        return record, content_hash(data), ""

    def _keep(self, record: Record) -> None:
        """Copy the bytes of a stored image away, and remember where they are."""
        data, record.image.bytes = record.image.bytes, None
        self._records[record.id] = record
        if data is not None:
            self._places[record.id] = self._file.tell(), len(data)
            self._file.write(data)

    def stream(self, ids: Iterable[str], batch_size: int) -> Iterator[Tensor]:
        """Pixels float32 `[3, H, W]` of images by id, about a batch ahead of their use.

        Raises:
            ParagrainError: an image that could be used when the run began cannot be any more.
        """
        return ahead(self._pixels, ids, batch_size)

    def _pixels(self, id: str) -> Tensor:
        record, place = self._records[id], self._places.get(id)
        if place is None:
            return _pixels(record, self._collection, self._encoder)
        with self._lock:
            self._file.seek(place[0])
            data = self._file.read(place[1])
        return _pixels(record, self._collection, self._encoder, data)


def embed_anew(
    collection: Collection, encoder: ImageTextEncoder, split: str | None, ids: Sequence[str]
) -> np.ndarray:
    """Unit vectors float32 `[N, D]` of images by the encoder as it is now; nothing is cached.

    `paragrain.embeddings.embed` keeps what it computes, and vision that changes with every step
    would leave a folder for each time that it is looked at.

    Args:
        collection: where the images come from.
        encoder: its image side; it may be in training mode.
        split: the split of the records.
        ids: of N records, in the order of the collection.

    Raises:
        ParagrainError: an image that could be used when the run began cannot be any more.
    """

    def prepare(record: Record) -> Tensor:
        return _pixels(record, collection, encoder)

    pixels = ahead(prepare, records_with_images(collection, split, list(ids)), EMBED_BATCH)
    parts = []
    while batch := list(islice(pixels, EMBED_BATCH)):
        parts.append(encode_pixels(encoder, batch))
    return np.concatenate(parts)


def _pixels(
    record: Record, collection: Collection, encoder: ImageTextEncoder, data: bytes | None = None
) -> Tensor:
    """Read (unless `data` is there), decode and preprocess one image."""
    try:
        return encoder.pixels(decode(collection.image_bytes(record) if data is None else data))
    except BadImage as error:
        raise ParagrainError(
            f"the image of {record.id} in {collection.folder} could be used when the run began "
            f"and cannot be now ({error.reason}): put it back, and train again to go on"
        ) from error
