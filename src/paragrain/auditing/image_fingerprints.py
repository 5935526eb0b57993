"""How images look, in few bytes, for the audit: computed once, kept beside the collection.

Perceptual hashes find candidates, small copies check them. The hash is the usual one (64 low
frequencies of a 32 x 32 grey cosine transform, each above the median or not). It forgets detail:
pictures that differ in one small object are often 0 to 7 bits apart. So every candidate is checked
on tiny copies in colour, of 16 x 16, made with a smooth kernel: recompression and scaling move each
of their samples a little, another object moves a few of them a lot.

Cropping moves everything. So the hash is taken of two insets of the picture too: that of a cropped
copy is near one of them. Such candidates, and those that are brighter, tinted or written on, are
laid over each other as copies of 32 x 32 (`registration`).

`<collection>/audit/<version>/<name>.npy` holds the `FINGERPRINT`s of each batch of images that a
run has finished, whole or not at all; so a run may be killed at any moment, or two may work at
once. Small copies stay on disk and are read where two images are compared.
"""

import os
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.recfunctions import repack_fields

from paragrain.collection import Collection, Record
from paragrain.embeddings import ahead, known_contents, records_with_images
from paragrain.errors import ParagrainError
from paragrain.files import replacing
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar

if TYPE_CHECKING:
    from PIL import Image

VERSION = "v3"
"""Raised whenever the same image would get another fingerprint."""

BATCH = 2048
"""Images in one file: what a kill can lose."""

SIDE = 16
"""Side of a tiny copy."""

SMALL = 32
"""Side of a small copy."""

INSETS = (0.0, 0.02, 0.045)
"""Shares of the sides that are cut off at each edge before hashing."""

MIN_SPREAD = 3.0
"""Below this standard deviation of its 32 x 32 grey copy, in levels of 255, a picture is flat:
what its hash says is noise."""

DETAIL = 0.85
"""A picture is plain if less of it shows detail: a drawing, a diagram, a product on white. Two of
those that differ by one object are different pictures."""

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_MIDDLE = 128
# Pillow's bilinear kernel from 32 to 16 cells: two cells to either side of each middle.
_HALVING = np.maximum(0, 1 - np.abs(np.arange(SMALL) - 2 * np.arange(SIDE)[:, None] - 0.5) / 2)
_HALVING /= _HALVING.sum(1, keepdims=True)
_STEPS = np.arange(SMALL)
_COSINES = np.cos(np.pi * (2 * _STEPS + 1) * _STEPS[:8, None] / (2 * SMALL)).astype(np.float32)

FINGERPRINT = np.dtype(
    [
        ("content", "S32"),  # hash of the file's bytes
        ("pixels", "S32"),  # hash of the upright picture's size and pixels
        ("hashes", "<u8", (len(INSETS),)),  # perceptual, of each inset
        ("flat", "?"),  # of one colour, or nearly so; see MIN_SPREAD
        ("plain", "?"),  # in parts; see DETAIL
        ("small", "u1", (SMALL, SMALL, 3)),  # RGB
    ]
)
_IN_MEMORY = ["content", "pixels", "hashes", "flat", "plain"]


@dataclass(eq=False)
class ImageFingerprints:
    """The images of a collection, or of a split, as the audit compares them.

    Attributes:
        ids: of all N records, those without a usable image too, in the order of the collection.
        rows: int64 [M], of each image that can be used, the place of its record in `ids`.
        table: [M], all fields of `FINGERPRINT` but `small`.
        failed: (id, reason) of each image that cannot be used.
        computed: images whose fingerprints this call has made.
    """

    ids: list[str]
    rows: np.ndarray
    table: np.ndarray
    failed: list[tuple[str, str]]
    computed: int
    _store: "_Store"
    _places: np.ndarray

    def small(self, images: np.ndarray) -> np.ndarray:
        """Small copies of some images by their number in `rows`: uint8 [images, 32, 32, 3]."""
        return self._store.small(self._places[images])

    def tiny(self, images: np.ndarray) -> np.ndarray:
        """Tiny copies of some images: float32 [images, 16, 16, 3]."""
        colours = np.moveaxis(self.small(images), 3, 1)
        # Pillow rounds halves up, after each of two passes.
        narrow = np.floor(colours @ _HALVING.T + 0.5)
        tiny = np.floor(_HALVING @ narrow + 0.5).astype(np.float32)
        return np.moveaxis(tiny, 1, 3)

    @property
    def flat_ids(self) -> list[str]:
        """Ids of pictures of one colour, or nearly so."""
        return [self.ids[row] for row in self.rows[self.table["flat"]]]


def image_fingerprints(
    collection: Collection, split: str | None = None, *, progress: bool = True
) -> ImageFingerprints:
    """Take the fingerprints of all images of a collection whose are not kept yet.

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

    def prepare(record: Record) -> tuple[str, str, np.void | None]:
        """Id, content and fingerprint (None if it is known); or id, why not, and None."""
        try:
            data = collection.image_bytes(record)
            # Of the bytes themselves: what the record says may be older than its file.
            content = content_hash(data)
            found = None if content in store else fingerprint(decode(data))
        except BadImage as error:
            return record.id, error.reason, None
        return record.id, content, found

    records = records_with_images(collection, split, missing)
    with progress_bar("fingerprinting", len(missing), unit="images", show=progress) as advance:
        for id, content, found in ahead(prepare, records, 64):
            if found is None and content not in store:
                failed.append((id, content))
            else:
                contents[id] = content
                store.add(content, found)
            advance(1, f"{len(failed)} failed" if failed else "")
    store.write()
    bad = {id for id, _ in failed}
    ids = list(contents)
    rows = [row for row, id in enumerate(ids) if id not in bad]
    places = store.places([str(contents[ids[row]]) for row in rows])
    table = store.table[places]
    computed = len(store) - before
    return ImageFingerprints(
        ids, np.asarray(rows, np.int64), table, failed, computed, store, places
    )


def fingerprint(image: "Image.Image") -> np.void:
    """The `FINGERPRINT` of an RGB picture of any size, its content left empty.

    >>> from PIL import Image
    >>> values = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    >>> picture = Image.fromarray(values).resize((200, 200))
    >>> one, other = fingerprint(picture), fingerprint(picture.resize((150, 100)))
    >>> bool(one["hashes"][0] == other["hashes"][0]), bool(one["flat"])
    (True, False)
    """
    from PIL import Image

    small = image.resize((SMALL, SMALL), Image.Resampling.BILINEAR)
    grey = np.asarray(small, np.float32) @ LUMA
    middle = image.resize((_MIDDLE, _MIDDLE), Image.Resampling.BILINEAR)
    greys = [grey]
    for inset in INSETS[1:]:
        edge = inset * _MIDDLE
        box = (edge, edge, _MIDDLE - edge, _MIDDLE - edge)
        inner = middle.resize((SMALL, SMALL), Image.Resampling.BILINEAR, box=box)
        greys.append(np.asarray(inner, np.float32) @ LUMA)
    detail = _around(grey, np.maximum) - _around(grey, np.minimum) > 2
    flat, plain = grey.std() < MIN_SPREAD, detail.mean() < DETAIL
    hashes = tuple(_hash(grey) for grey in greys)
    values = (b"", pixel_hash(image), hashes, flat, plain, np.asarray(small))
    return np.void(values, FINGERPRINT)


def _around(grey: np.ndarray, least_or_most: np.ufunc) -> np.ndarray:
    """Of each 3 x 3 cells, [SMALL - 2, SMALL - 2]."""
    of_rows = least_or_most.reduce([grey[:-2], grey[1:-1], grey[2:]])
    return np.asarray(least_or_most.reduce([of_rows[:, :-2], of_rows[:, 1:-1], of_rows[:, 2:]]))


def _hash(grey: np.ndarray) -> int:
    low = (_COSINES @ grey @ _COSINES.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")


def pixel_hash(image: "Image.Image") -> str:
    """128 bits of an upright RGB picture, as 32 hexadecimal digits: its size and every pixel."""
    digest = blake2b(f"{image.width} x {image.height}".encode(), digest_size=16)
    digest.update(image.tobytes())
    return digest.hexdigest()


class _Store:
    """Fingerprints by content hash, on disk as the module describes.

    Attributes:
        table: [S], all fields but `small`; complete after `write`.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(folder, os.W_OK)
        except OSError:
            writable = False
        self.table = repack_fields(np.zeros(0, FINGERPRINT)[_IN_MEMORY])
        self._files: list[Path] = []
        self._starts = [0]
        self._known: set[str] = set()
        self._waiting: list[np.void] = []
        for path in sorted(folder.glob("*.npy")):
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
            stored = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, EOFError, ValueError):
            return
        if stored.dtype != FINGERPRINT or stored.ndim != 1:
            return
        self.table = np.concatenate([self.table, repack_fields(stored[_IN_MEMORY])])
        self._starts.append(len(self.table))
        self._files.append(path)
        self._known.update(stored["content"].astype(str).tolist())

    def add(self, content: str, found: np.void | None) -> None:
        """Keep one image that is not there yet; every `BATCH` of them go to disk."""
        if found is None or content in self._known:
            return
        self._known.add(content)
        found["content"] = content
        self._waiting.append(found)
        if len(self._waiting) >= BATCH:
            self.write()

    def write(self) -> None:
        """Put what is not on disk yet there.

        Raises:
            ParagrainError: it does not take it.
        """
        if not self._waiting:
            return
        path = self._folder / f"{uuid.uuid4().hex}.npy"
        try:
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, np.array(self._waiting, FINGERPRINT))
        except OSError as error:
            raise ParagrainError(
                f"fingerprints of images cannot be written to {self._folder} "
                f"({error.strerror or error}): make room and run it again; what is done so far is "
                "kept"
            ) from error
        self._waiting = []
        self._read(path)

    def places(self, contents: Sequence[str]) -> np.ndarray:
        """Where each content lies in `table`, int64."""
        order = np.argsort(self.table["content"], kind="stable")
        asked = np.array(contents, "S32")
        return order[np.searchsorted(self.table["content"], asked, sorter=order)]

    def small(self, places: np.ndarray) -> np.ndarray:
        """Small copies, uint8 [len(places), 32, 32, 3]."""
        found = np.empty((len(places), SMALL, SMALL, 3), np.uint8)
        parts = np.searchsorted(self._starts, places, side="right") - 1
        for part in np.unique(parts):
            own = parts == part
            stored = np.load(self._files[part], mmap_mode="r", allow_pickle=False)
            found[own] = stored["small"][places[own] - self._starts[part]]
        return found
