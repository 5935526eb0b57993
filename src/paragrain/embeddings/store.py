"""Embeddings of images on disk: appended as they are computed, mapped into memory when opened."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from paragrain.errors import ParagrainError
from paragrain.files import digest, read_json, replacing, write_json
from paragrain.locks import hold

Kind = Literal["pooled", "patches"]
"""What of an image: its embedding, or the states of its patches."""

FORMAT = 2
_DTYPE = np.dtype("<f4")
_HEADER = 128  # bytes before the rows of a .npy file, whatever their number: NumPy leaves room
_ENTRY = np.dtype([("content", "S32"), ("space", "S1"), ("digest", "S16"), ("end", "S1")])
_WAIT = 600.0  # seconds for another run that appends or rewrites
_DEAD = 0.25  # share of rows that nothing refers to, above which the files are written anew


class EmbeddingStore:
    """Embeddings of one image tower and one kind, by the content hash of the image.

    `KIND.npy` holds the rows and `KIND.txt` a line for each: content hash and digest of the row. A
    batch is appended to the first, then to the second, so a row counts when its line is whole; of
    two lines with one content the later counts. Rows are held against their digests when the store
    is opened, unless the files are as the last check left them. One run appends at a time, others
    wait; readers need not.

    Attributes:
        folder: where they are kept; `None` if nothing can be written there, and what is added
            stays in memory.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, ...], kind: Kind, about: dict[str, Any]
    ) -> None:
        self.folder: Path | None = folder if _writable(folder) else None
        self._rows, self._lines = folder / f"{kind}.npy", folder / f"{kind}.txt"
        self._manifest = folder / f"{kind}.json"
        self._about = {"format": FORMAT, **about, "kind": kind, "shape": list(shape)}
        self._shape = shape
        self._size = _DTYPE.itemsize * int(np.prod(shape))
        self._row_of: dict[str, int] = {}
        self._count = 0
        self._inodes: list[int] = []
        self._mapped = np.zeros((0, *shape), _DTYPE)
        self._in_memory: dict[str, np.ndarray] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        shape: tuple[int, ...],
        *,
        kind: Kind = "pooled",
        fingerprint: str = "",
        encoder: str = "",
    ) -> "EmbeddingStore":
        """Open what is there, if it is of this shape; make the folder.

        Args:
            folder: of one image tower in one collection.
            shape: of a row: `(D,)`, or `(patches, width)`.
            kind: what the rows are.
            fingerprint, encoder: of the image tower; for people who look at the manifest.

        Raises:
            ParagrainError: another run holds the files for minutes, or the disk is full.
        """
        store = cls(folder, shape, kind, {"vision_fingerprint": fingerprint, "encoder": encoder})
        store._read_new()
        if store._row_of and store._stamp() != store._known_stamp():
            store._check()
        return store

    def __len__(self) -> int:
        """Number of images that have a row."""
        return len(self._row_of) + len(self._in_memory)

    def __contains__(self, content: object) -> bool:
        """Whether there is a row for an image of this content."""
        return content in self._row_of or content in self._in_memory

    def __iter__(self) -> Iterator[str]:
        """The contents that have a row."""
        yield from self._row_of
        yield from self._in_memory

    def rows(self, contents: Sequence[str]) -> np.ndarray:
        """The rows of some contents, float32 [n, *shape]; not to be written to.

        Neighbours in the store are not copied: they stay on disk until they are looked at.

        Raises:
            KeyError: there is none for one of them.
        """
        if any(content in self._in_memory for content in contents):
            rows = [self._in_memory.get(c, None) for c in contents]
            found = [
                self._mapped[self._row_of[c]] if row is None else row
                for c, row in zip(contents, rows, strict=True)
            ]
            return np.stack(found)
        places = np.fromiter((self._row_of[c] for c in contents), np.int64, len(contents))
        if len(places) and (np.diff(places) == 1).all():
            return self._mapped[places[0] : places[-1] + 1]
        return self._mapped[places]

    def add(self, contents: Sequence[str], rows: np.ndarray) -> None:
        """Append rows [n, *shape], at once on disk; they take the place of earlier ones.

        Raises:
            ParagrainError: the disk is full.
        """
        rows = np.ascontiguousarray(rows, _DTYPE)
        if rows.shape != (len(contents), *self._shape):
            raise ValueError(
                f"rows of shape {rows.shape} do not fit {len(contents)} x {self._shape}"
            )
        if self.folder is None:
            self._in_memory.update(zip(contents, rows, strict=True))
            return
        with self._disk(), hold(self.folder / ".lock", _WAIT, self._busy()):
            self._read_new()
            for path in (self._rows, self._lines):
                path.touch()
            with self._rows.open("r+b") as file:
                file.write(_header(self._count + len(rows), self._shape))
                file.seek(_HEADER + self._count * self._size)
                file.write(rows.data)
                file.truncate()
            with self._lines.open("r+b") as file:
                file.seek(self._count * _ENTRY.itemsize)
                file.write(_lines(contents, rows))
                file.truncate()
            self._read_new()

    def tidy(self, keep: Iterable[str] | None = None) -> None:
        """Note that all is checked; leave out what is not in `keep` where that saves much.

        Args:
            keep: contents that are still needed; `None` if that is not known.

        Raises:
            ParagrainError: the disk is full.
        """
        if self.folder is None or not self._count:
            return
        with self._disk(), hold(self.folder / ".lock", _WAIT, self._busy()):
            self._read_new()
            kept = list(self._row_of)
            if keep is not None:
                needed = set(keep)
                kept = [content for content in kept if content in needed]
            if self._count - len(kept) > _DEAD * self._count:
                self._rewrite(kept)
            elif self._stamp() != self._known_stamp():
                self._note()

    def _read_new(self) -> None:
        """Take in the lines that this run or others have appended, and map their rows."""
        try:
            files = [path.stat() for path in (self._rows, self._lines)]
            if [file.st_ino for file in files] != self._inodes:  # written anew, by whomever
                self._inodes = [file.st_ino for file in files]
                self._row_of, self._count = {}, 0
                self._mapped = np.zeros((0, *self._shape), _DTYPE)
            with self._lines.open("rb") as file:
                file.seek(self._count * _ENTRY.itemsize)
                data = file.read()
        except OSError:
            return
        rows = max(0, files[0].st_size - _HEADER) // self._size
        count = min(self._count + len(data) // _ENTRY.itemsize, rows)
        if count <= self._count:
            return
        entries = np.frombuffer(data, _ENTRY, count - self._count)
        if not (self._count or self._fits(entries)):
            return
        new = entries["content"].astype(str).tolist()
        self._row_of.update(zip(new, range(self._count, count), strict=True))
        self._count = count
        shape = (count, *self._shape)
        self._mapped = np.memmap(self._rows, _DTYPE, "r", offset=_HEADER, shape=shape)

    def _fits(self, entries: np.ndarray) -> bool:
        """Whether the files are what this class writes, of rows of this shape."""
        with self._rows.open("rb") as file:
            try:
                version = np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            except ValueError:
                return False
        told = version == (1, 0) and shape[1:] == self._shape and dtype == _DTYPE
        return bool(told and (entries["space"] == b" ").all() and (entries["end"] == b"\n").all())

    def _check(self) -> None:
        """Find rows by what is in them; those that no line tells of are computed again."""
        if self.folder is None:
            self._row_of = self._rows_by_digest()
            return
        with self._disk(), hold(self.folder / ".lock", _WAIT, self._busy()):
            self._read_new()
            found = self._rows_by_digest()
            as_told = found == self._row_of
            self._row_of = found
            if as_told:
                self._note()
            else:
                self._rewrite(list(found))

    def _rows_by_digest(self) -> dict[str, int]:
        """Where the row of each content is, whatever the order of the lines."""
        data = self._lines.read_bytes()
        entries = np.frombuffer(data, _ENTRY, len(data) // _ENTRY.itemsize)
        contents = entries["content"].astype(str).tolist()
        digest_of = dict(zip(contents, entries["digest"].tolist(), strict=True))
        row_of = {_digest(row): number for number, row in enumerate(self._mapped)}
        return {content: row_of[own] for content, own in digest_of.items() if own in row_of}

    def _rewrite(self, contents: list[str]) -> None:
        """Write both files anew with these contents only, while the lock is held.

        The rows take their place first: should the old lines stay, `_check` finds them all.
        """
        with replacing(self._lines) as lines, replacing(self._rows) as rows:
            row_file, line_file = rows.open("wb"), lines.open("wb")
            with row_file, line_file:
                row_file.write(_header(len(contents), self._shape))
                for start in range(0, len(contents), 4096):
                    own = contents[start : start + 4096]
                    part = np.ascontiguousarray(self.rows(own))
                    row_file.write(part.data)
                    line_file.write(_lines(own, part))
        self._read_new()
        self._note()

    def _note(self) -> None:
        write_json(self._manifest, {**self._about, "rows": self._count, "checked": self._stamp()})

    def _stamp(self) -> list[int]:
        """Sizes and times of the files as they are now."""
        stats = [path.stat() for path in (self._rows, self._lines)]
        return [number for stat in stats for number in (stat.st_size, stat.st_mtime_ns)]

    def _known_stamp(self) -> list[int] | None:
        try:
            manifest = read_json(self._manifest)
            return list(manifest["checked"]) if manifest["format"] == FORMAT else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _busy(self) -> str:
        return f"another run is writing to {self.folder}: wait for it, and run this again"

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Say in one sentence that the disk does not take what is written."""
        try:
            yield
        except OSError as error:
            raise ParagrainError(
                f"image embeddings cannot be written to {self.folder} "
                f"({error.strerror or error}): make room and run it again; what is done so far "
                "is kept"
            ) from error


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _digest(row: np.ndarray) -> bytes:
    return digest(row.data, size=8).hex().encode()


def _lines(contents: Sequence[str], rows: np.ndarray) -> bytes:
    return b"".join(
        f"{content} ".encode() + _digest(row) + b"\n"
        for content, row in zip(contents, rows, strict=True)
    )


def _header(rows: int, shape: tuple[int, ...]) -> bytes:
    """Of a .npy file of so many rows; NumPy pads it so that its size does not depend on them."""
    file = io.BytesIO()
    header = {"descr": _DTYPE.str, "fortran_order": False, "shape": (rows, *shape)}
    np.lib.format.write_array_header_1_0(file, header)
    assert file.tell() == _HEADER
    return file.getvalue()
