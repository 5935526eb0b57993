"""What the audit knows of each image of a collection: computed once, kept beside it.

In `<collection>/audit/<version>/`, for each batch of different images that a run has finished:

    <name>.copies.npy   uint8 [B, 1280, 3], tiny copies of 16 x 16 and small ones of 32 x 32
    <name>.marks.npy    content hash, hash of the pixels, perceptual hashes, whether flat or plain

Both appear whole or not at all, the marks last; so a run may be killed at any moment, or two may
work at once. Copies stay on disk and are read where two images are compared.
"""

import os
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paragrain.audit.perceptual import INSETS, SIDE, SMALL, Look, look
from paragrain.collection import Collection, Record
from paragrain.embeddings import ahead, known_contents, records_with_images
from paragrain.errors import ParagrainError
from paragrain.files import replacing
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

VERSION = "v2"
"""Raised whenever the same image would get other marks."""

BATCH = 2048
"""Images in one pair of files: what a kill can lose."""

MARKS = np.dtype(
    [
        ("content", "S32"),
        ("pixels", "S32"),
        ("hashes", "<u8", (len(INSETS),)),
        ("flat", "?"),
        ("plain", "?"),
    ]
)
_CELLS = SIDE * SIDE + SMALL * SMALL


@dataclass(eq=False)
class Fingerprints:
    """The images of a collection, or of a split, as the audit compares them.

    Attributes:
        ids: of all N records, those without a usable image too, in the order of the collection.
        rows: int64 [M], of each image that can be used, the place of its record in `ids`.
        marks: `MARKS` [M].
        failed: (id, reason) of each image that cannot be used.
        computed: images looked at by this call.
    """

    ids: list[str]
    rows: np.ndarray
    marks: np.ndarray
    failed: list[tuple[str, str]]
    computed: int
    _store: "_Store"
    _places: np.ndarray

    def tiny(self, images: np.ndarray) -> np.ndarray:
        """Tiny copies of some images by their number in `rows`: uint8 [len(images), 256, 3]."""
        return self._store.copies(self._places[images])[:, : SIDE * SIDE]

    def small(self, images: np.ndarray) -> np.ndarray:
        """Small copies of some images: uint8 [len(images), 1024, 3]."""
        return self._store.copies(self._places[images])[:, SIDE * SIDE :]


def fingerprints(
    collection: Collection, split: str | None = None, *, progress: bool = True
) -> Fingerprints:
    """Look at all images of a collection that were not looked at yet.

    Args:
        collection: where they are; if its folder cannot be written, nothing is kept.
        split: only the records of this split.
        progress: whether to show a progress bar.

    Raises:
        UsageError: there is no such split.
        ParagrainError: the disk is full.
    """
    contents = known_contents(collection, split)
    store = _Store(collection.folder / "audit" / VERSION)
    failed: list[tuple[str, str]] = []
    missing = [id for id, content in contents.items() if content not in store]
    before = len(store)

    def prepare(record: Record) -> "_Prepared":
        return _prepare(record, collection, store)

    with progress_bar("looking", len(missing), unit="images", show=progress) as advance:
        for done in ahead(prepare, records_with_images(collection, split, missing), 64):
            if done.reason:
                failed.append((done.id, done.reason))
            else:
                contents[done.id] = done.content
                store.add(done)
            advance(1, f"{len(failed)} failed" if failed else "")
    store.write()
    bad = {id for id, _ in failed}
    ids = list(contents)
    rows = [row for row, id in enumerate(ids) if id not in bad]
    places = store.places([str(contents[ids[row]]) for row in rows])
    return Fingerprints(
        ids,
        np.asarray(rows, np.int64),
        store.marks[places],
        failed,
        len(store) - before,
        store,
        places,
    )


@dataclass(frozen=True)
class _Prepared:
    """One record on its way: how its image looks, or nothing if that is known, or why it failed."""

    id: str
    content: str = ""
    pixels: str = ""
    look: Look | None = None
    reason: str = ""


def _prepare(record: Record, collection: Collection, store: "_Store") -> _Prepared:
    """Read, decode and look at one image; runs in a thread."""
    try:
        data = collection.image_bytes(record)
        # Of the bytes themselves: what the record says may be older than its file.
        content = content_hash(data)
        if content in store:
            return _Prepared(record.id, content)
        image = decode(data)
        return _Prepared(record.id, content, pixel_hash(image), look(image))
    except BadImage as error:
        return _Prepared(record.id, reason=error.reason)


def pixel_hash(image: "Image.Image") -> str:
    """128 bits of an upright RGB picture, as 32 hexadecimal digits: its size and every pixel."""
    digest = blake2b(f"{image.width} x {image.height}".encode(), digest_size=16)
    digest.update(image.tobytes())
    return digest.hexdigest()


class _Store:
    """Marks and copies by content hash, on disk as the module describes.

    Attributes:
        marks: `MARKS` [S]; complete after `write`.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(folder, os.W_OK)
        except OSError:
            writable = False
        self.marks = np.zeros(0, MARKS)
        self._copies: list[Path] = []
        self._sizes: list[int] = []
        self._known: set[str] = set()
        self._waiting: list[_Prepared] = []
        for path in sorted(folder.glob("*.marks.npy")):
            self._read(path)
        if not writable:
            self._temporary = tempfile.TemporaryDirectory(prefix="paragrain-audit-")
            folder = Path(self._temporary.name)
        self._folder = folder

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, content: object) -> bool:
        return content in self._known

    def _read(self, path: Path) -> None:
        """Take in what a run wrote; what a failing disk left is computed again."""
        try:
            marks = np.load(path, allow_pickle=False)
            other = path.with_name(path.name.replace(".marks.", ".copies."))
            copies = np.load(other, mmap_mode="r", allow_pickle=False)
        except (OSError, EOFError, ValueError):
            return
        sound = marks.dtype == MARKS and marks.ndim == 1 and copies.dtype == np.uint8
        if sound and copies.shape == (len(marks), _CELLS, 3):
            self._take(marks, other)

    def _take(self, marks: np.ndarray, copies: Path) -> None:
        self.marks = np.concatenate([self.marks, marks])
        self._sizes.append(len(marks))
        self._copies.append(copies)
        self._known.update(marks["content"].astype(str).tolist())

    def add(self, done: _Prepared) -> None:
        """Keep one image that is not there yet; every `BATCH` of them go to disk."""
        if done.content in self._known:
            return
        self._known.add(done.content)
        self._waiting.append(done)
        if len(self._waiting) >= BATCH:
            self.write()

    def write(self) -> None:
        """Put what is not on disk yet there."""
        looks = [(one, one.look) for one in self._waiting if one.look is not None]
        if not looks:
            return
        rows = [
            (one.content, one.pixels, seen.hashes, seen.flat, seen.plain) for one, seen in looks
        ]
        marks = np.array(rows, MARKS)
        stem = self._folder / uuid.uuid4().hex
        paths = stem.with_suffix(".copies.npy"), stem.with_suffix(".marks.npy")
        with _disk(self._folder):
            copies = np.stack(
                [
                    np.concatenate([copy.reshape(-1, 3) for copy in (seen.tiny, seen.small)])
                    for _, seen in looks
                ]
            )
            for path, values in zip(paths, (copies, marks), strict=True):
                with replacing(path) as temporary, temporary.open("wb") as file:
                    np.save(file, values)
        self._take(marks, paths[0])
        self._waiting = []

    def places(self, contents: Sequence[str]) -> np.ndarray:
        """Where each content lies in `marks`, int64."""
        asked = np.array(contents, "S32")
        order = np.argsort(self.marks["content"], kind="stable")
        return order[np.searchsorted(self.marks["content"], asked, sorter=order)]

    def copies(self, places: np.ndarray) -> np.ndarray:
        """Tiny and small copies, uint8 [len(places), 1280, 3]."""
        found = np.empty((len(places), _CELLS, 3), np.uint8)
        starts = np.cumsum([0, *self._sizes])
        parts = np.searchsorted(starts, places, side="right") - 1
        for part in np.unique(parts):
            own = parts == part
            stored = np.load(self._copies[part], mmap_mode="r", allow_pickle=False)
            found[own] = stored[places[own] - starts[part]]
        return found


@contextmanager
def _disk(folder: Path) -> "Iterator[None]":
    """Say in one sentence that the disk does not take what is written."""
    try:
        yield
    except OSError as error:
        raise ParagrainError(
            f"fingerprints of images cannot be written to {folder} ({error.strerror or error}): "
            "make room and run it again; what is done so far is kept"
        ) from error
