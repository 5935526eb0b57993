"""Image embeddings on disk: three files and the parts that are to be put into them."""

import hashlib
import json
import os
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paragrain.errors import ParagrainError
from paragrain.files import read_json, replacing, write_json

FORMAT = 1


class Cache:
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
    def open(cls, folder: Path, dim: int) -> "Cache":
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

    def tidy(self, keep: frozenset[str] | None, fingerprint: str, encoder: str) -> None:
        """Put everything into `vectors.npy`, leaving out what is not in `keep`, if it is given."""
        ids = [id for id in self.vectors if keep is None or id in keep]
        if self.folder is None or (not self._parts and ids == self._consolidated):
            return
        rows = [self.vectors[id] for id in ids]
        vectors = np.stack(rows) if rows else np.zeros((0, self._dim), dtype=np.float32)
        # Three files cannot change at once. Until they agree again, this part holds everything.
        self._write_part(ids, vectors)
        self.put(ids, [vectors], fingerprint, encoder)

    def put(
        self, ids: list[str], blocks: Iterable[np.ndarray], fingerprint: str, encoder: str
    ) -> None:
        """Write `vectors.npy` anew from float32 blocks `[n, D]`, one after another; drop parts."""
        if self.folder is None:
            return
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(ids), self._dim)}
        digest = _digest(ids)
        with _disk(self.folder):
            path = self.folder / "vectors.npy"
            with replacing(path) as temporary:
                with temporary.open("wb") as file:
                    np.lib.format.write_array_header_1_0(file, header)
                    for block in blocks:
                        data = np.ascontiguousarray(block, dtype="<f4").data
                        digest.update(data)
                        file.write(data)
                write_json(self.folder / "ids.json", ids)
            manifest = {
                "format": FORMAT,
                "vision_fingerprint": fingerprint,
                "encoder": encoder,
                "rows": len(ids),
                "dim": self._dim,
                "checksum": digest.hexdigest(),
            }
            write_json(self.folder / "manifest.json", manifest)
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._parts = []
        self._consolidated = ids


def _digest(ids: list[str]) -> "hashlib.blake2b":
    return hashlib.blake2b(json.dumps(ids).encode(), digest_size=16)


def _checksum(ids: list[str], vectors: np.ndarray) -> str:
    digest = _digest(ids)
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Say in one sentence that the disk does not take what is written."""
    try:
        yield
    except OSError as error:
        raise ParagrainError(
            f"image embeddings cannot be written to {folder} ({error.strerror or error}): make "
            "room "
            "and run it again; what is done so far is kept"
        ) from error
