"""The image vectors of a collection: computed once, kept beside it, brought up to date.

They lie in `<collection>/embeddings/<vision fingerprint>/`:

    vectors.npy     float32 [R, D], one row for each different image
    ids.json        the content hash of each row, as in the column `content` of the records
    manifest.json   encoder, counts, and a checksum of the two
    parts/*.npz     what a run has finished and not yet put into the three above

Everything appears whole or not at all, so a run may be killed at any moment, or two may work at
once: at worst something is computed twice.
"""

import hashlib
import json
import os
import re
import uuid
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from paragrain.collection import Collection, Record
from paragrain.encoders.base import ImageTextEncoder, encode_pixels
from paragrain.errors import ParagrainError
from paragrain.files import read_json, replacing, write_json
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar

FORMAT = 1
FEW = 0.1
"""Up to this share of missing vectors, records are fetched one by one instead of streamed."""

_CONTENT_HASH = re.compile(r"[0-9a-f]{32}")


@dataclass(eq=False)
class Embeddings:
    """The image vectors of a collection or of one split of it.

    Attributes:
        ids: of the N records that have a vector, in the order of the collection.
        vectors: float32 `[N, D]`, of unit length.
        contents: the content hash of the image of each.
        fingerprint: of the vision side that made them.
        failed: (id, reason) of each record whose image cannot be used.
        computed: vectors computed by this call.
        reused: records that needed none, since the cache or an equal image had theirs.
        cache: where the vectors are kept; `None` if the collection's folder cannot be written.
    """

    ids: list[str]
    vectors: np.ndarray
    contents: list[str]
    fingerprint: str
    failed: list[tuple[str, str]]
    computed: int
    reused: int
    cache: Path | None = None


def embed(
    collection: Collection,
    encoder: ImageTextEncoder,
    *,
    split: str | None = None,
    batch_size: int = 64,
    show: bool = True,
) -> Embeddings:
    """The image vectors of a collection; only those that are not there yet are computed.

    A vector belongs to the bytes of an image and to a vision side: a changed image is embedded
    anew, an added one alone, equal images once, and encoders that differ only in their text side
    share all. The column `content` of a record is believed, where it holds a hash; where it does
    not, the bytes are read and hashed. A collection in a folder that cannot be written works too,
    without a cache.

    Args:
        collection: where the images come from.
        encoder: on whichever device it is.
        split: only the records of this split.
        batch_size: images in one forward pass.
        show: whether to show a progress bar.

    Raises:
        UsageError: there is no such split.
        ParagrainError: the encoder gives vectors that are not finite, or the disk is full.
    """
    fingerprint = encoder.vision_fingerprint
    cache = _Cache.open(collection.folder / "embeddings" / fingerprint, encoder.dim)
    contents = known_contents(collection, split)
    missing = [id for id, content in contents.items() if content not in cache.vectors]
    failed: dict[str, str] = {}
    computed = 0
    batch: dict[str, torch.Tensor] = {}

    def prepare(record: Record) -> _Prepared:
        return _prepare(record, collection, encoder, cache)

    def finish_batch() -> int:
        vectors = encode_pixels(encoder, list(batch.values()))
        cache.add(list(batch), vectors)
        done = len(batch)
        batch.clear()
        return done

    records = records_with_images(collection, split, missing)
    with progress_bar("embedding", len(missing), unit="images", show=show) as advance:
        for done in ahead(prepare, records, batch_size):
            if done.reason:
                failed[done.id] = done.reason
            else:
                contents[done.id] = done.content
                if done.pixels is not None and done.content not in cache.vectors:
                    batch.setdefault(done.content, done.pixels)
            if len(batch) == batch_size:
                computed += finish_batch()
            advance(1, f"{len(failed)} failed" if failed else "")
        if batch:
            computed += finish_batch()
    cache.tidy(_contents_to_keep(collection, contents), encoder)

    ids = [id for id in contents if id not in failed]
    own = [str(contents[id]) for id in ids]
    vectors = [cache.vectors[content] for content in own]
    return Embeddings(
        ids=ids,
        vectors=np.stack(vectors) if vectors else np.zeros((0, encoder.dim), dtype=np.float32),
        contents=own,
        fingerprint=fingerprint,
        failed=list(failed.items()),
        computed=computed,
        reused=len(ids) - computed,
        cache=cache.folder,
    )


def none_embedded(
    collection: Collection, split: str | None, failed: Sequence[tuple[str, str]]
) -> ParagrainError:
    """The error of a split of which no image can be used."""
    why = f" ({failed[0][0]}: {failed[0][1]})" if failed else ""
    return ParagrainError(
        f"none of the {len(failed):,} images of {collection.place(split)} can be used{why}: "
        "import them again"
    )


# --- Which images, and their bytes ------------------------------------------------------------


def known_contents(collection: Collection, split: str | None = None) -> dict[str, str | None]:
    """The content hash of each record, in order; `None` where the record does not tell it.

    A column of that name that another tool wrote may hold anything; only hashes count.
    """
    contents: dict[str, str | None] = {}
    for record in collection.records(split, fields=("content",)):
        content = record.content or ""
        contents[record.id] = content if _CONTENT_HASH.fullmatch(content) else None
    return contents


def _contents_to_keep(
    collection: Collection, contents: dict[str, str | None]
) -> frozenset[str] | None:
    """Contents of all splits, so that those that are gone drop out; `None` if not all are known."""
    every = known_contents(collection) | contents
    known = frozenset(content for content in every.values() if content)
    return known if all(every.values()) else None


def records_with_images(
    collection: Collection, split: str | None, missing: list[str]
) -> Iterator[Record]:
    """The missing records with their images, reading as little as possible."""
    if not missing:
        return
    if len(missing) <= FEW * len(collection):
        for start in range(0, len(missing), 256):
            yield from collection.get(missing[start : start + 256]).values()
        return
    wanted = set(missing)
    for record in collection.records(split, images=True, fields=()):
        if record.id in wanted:
            yield record


@dataclass(frozen=True)
class _Prepared:
    """One record on its way: its pixels, or nothing if its vector is there, or why it failed."""

    id: str
    content: str = ""
    pixels: torch.Tensor | None = None
    reason: str = ""


def _prepare(
    record: Record, collection: Collection, encoder: ImageTextEncoder, cache: "_Cache"
) -> _Prepared:
    """Read, decode and preprocess one image; runs in a thread beside the forward pass."""
    try:
        data = collection.image_bytes(record)
        # Of the bytes themselves: what the record says may be older than its file.
        content = content_hash(data)
        if content in cache.vectors:
            return _Prepared(record.id, content)
        return _Prepared(record.id, content, encoder.pixels(decode(data)))
    except BadImage as error:
        return _Prepared(record.id, reason=error.reason)


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(function: Callable[[_In], _Out], items: Iterable[_In], batch_size: int) -> Iterator[_Out]:
    """`map(function, items)` in threads that work ahead, but never by more than a batch or so."""
    threads = max(2, min(16, os.cpu_count() or 2))
    waiting: deque[Future[_Out]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= batch_size + threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# --- What is on disk --------------------------------------------------------------------------


class _Cache:
    """Vectors by content hash, on disk as the module describes.

    Attributes:
        vectors: content hash to float32 `[D]`.
        folder: where they are kept; `None` if nothing can be written there.
    """

    def __init__(self, folder: Path | None, dim: int) -> None:
        self.folder = folder
        self.vectors: dict[str, np.ndarray] = {}
        self._dim = dim
        self._consolidated: list[str] | None = None
        self._parts: list[Path] = []

    @classmethod
    def open(cls, folder: Path, dim: int) -> "_Cache":
        """Read what is there, if it is whole; make the folder."""
        try:
            (folder / "parts").mkdir(parents=True, exist_ok=True)
            writable = os.access(folder / "parts", os.W_OK)
        except OSError:
            writable = False
        cache = cls(folder if writable else None, dim)
        for _ in range(3):  # another run may be replacing them at this moment
            if cache._read_consolidated(folder) or not (folder / "manifest.json").is_file():
                break
        # In this order: `tidy` deletes parts only when the consolidated files hold them.
        cache._parts = sorted((folder / "parts").glob("*.npz"))
        for part in cache._parts:
            cache._read_part(part)
        return cache

    def _read_consolidated(self, folder: Path) -> bool:
        """Take the consolidated files in, if they belong together."""
        try:
            ids = read_json(folder / "ids.json")
            vectors = np.load(folder / "vectors.npy", allow_pickle=False)
            manifest = read_json(folder / "manifest.json")
            if manifest["format"] != FORMAT or manifest["checksum"] != _checksum(ids, vectors):
                return False
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return False
        if not self._take(ids, vectors):
            return False
        self._consolidated = ids
        return True

    def _read_part(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as part:
                self._take(part["ids"].tolist(), part["vectors"])
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            pass  # a disk that failed half-way: what it held is computed again

    def _take(self, ids: list[str], vectors: np.ndarray) -> bool:
        sound = vectors.dtype == np.float32 and vectors.shape == (len(ids), self._dim)
        if sound:
            self.vectors.update(zip(ids, vectors, strict=True))
        return sound

    def add(self, ids: list[str], vectors: np.ndarray) -> None:
        """Keep the vectors of one batch, at once on disk too."""
        self._take(ids, vectors)
        self._write_part(ids, vectors)

    def _write_part(self, ids: Sequence[str], vectors: np.ndarray) -> None:
        if self.folder is None:
            return
        path = self.folder / "parts" / f"{uuid.uuid4().hex}.npz"
        with _disk(self.folder), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, ids=np.asarray(ids), vectors=vectors)
        self._parts.append(path)

    def tidy(self, keep: frozenset[str] | None, encoder: ImageTextEncoder) -> None:
        """Put everything into `vectors.npy`, leaving out what is not in `keep`, if it is given."""
        ids = [id for id in self.vectors if keep is None or id in keep]
        if self.folder is None or (not self._parts and ids == self._consolidated):
            return
        rows = [self.vectors[id] for id in ids]
        vectors = np.stack(rows) if rows else np.zeros((0, self._dim), dtype=np.float32)
        # Three files cannot change at once. Until they agree again, this part holds everything.
        self._write_part(ids, vectors)
        manifest = {
            "format": FORMAT,
            "vision_fingerprint": encoder.vision_fingerprint,
            "encoder": encoder.name,
            "rows": len(ids),
            "dim": self._dim,
            "checksum": _checksum(ids, vectors),
        }
        with _disk(self.folder):
            write_json(self.folder / "ids.json", ids)
            path = self.folder / "vectors.npy"
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, vectors)
            write_json(self.folder / "manifest.json", manifest)
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._parts = []
        self._consolidated = ids


def _checksum(ids: list[str], vectors: np.ndarray) -> str:
    digest = hashlib.blake2b(json.dumps(ids).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Say in one sentence that the disk does not take what is written."""
    try:
        yield
    except OSError as error:
        raise ParagrainError(
            f"image vectors cannot be written to {folder} ({error.strerror or error}): make room "
            "and run it again; what is done so far is kept"
        ) from error
