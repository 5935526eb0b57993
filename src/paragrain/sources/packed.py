"""Images inside larger files, a piece at a time: compressed tars and columns of Parquet files."""

import bz2
import gzip
import lzma
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection import BadRecord

MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
"""First bytes of compressed files, and `tarfile`'s name for the kind; it knows no zst."""

BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What damaged compressed files raise."""

_OPENING: dict[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}

BATCH_ROWS = 64
"""Rows of a Parquet file whose images are in memory at a time."""

MOST_OPEN = 2
"""Files of either kind that are kept open: images are asked for almost in order."""


def compression(path: Path) -> str:
    """The kind of compression by the file's first bytes, "" if there is none that is known.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(6)
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "")


class Packed:
    """Reads pieces of packed files; several threads may use it."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._lock = Lock()
        self._tar = lru_cache(MOST_OPEN)(_Unpacked)
        self._table = lru_cache(MOST_OPEN)(_Cells)

    def piece(self, tar: Path, start: int, size: int) -> bytes:
        """Bytes of what a compressed tar holds; fewer if it is damaged before their end.

        The whole of it is unpacked to a nameless temporary file (where `TMPDIR` says).

        Raises:
            OSError: it cannot be read, or there is no room.
        """
        with self._lock:
            return self._tar(tar).read(start, size)

    def cell(self, table: Path, column: str, row: int) -> bytes:
        """The bytes in one row of a column of a Parquet file, or of its part, as "image.bytes".

        Raises:
            BadRecord: there are none, or the file is damaged there.
        """
        with self._lock:
            return self._table(table).read(column, row)


class _Unpacked:
    """The tar inside a compressed file, unpacked."""

    def __init__(self, path: Path):
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (it stays open)
        weakref.finalize(self, self._file.close)
        opening = _OPENING[compression(path)]
        try:
            with opening(path, "rb") as packed:
                while block := packed.read1(2**16):  # `read` would lose what is before the damage
                    self._file.write(block)
        except BROKEN as error:
            if isinstance(error, OSError) and error.errno is not None:  # such as a full disk
                raise

    def read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        return self._file.read(size)


class _Cells:
    """A column of bytes in a Parquet file, streamed; the last two batches can be asked again."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._parquet = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise BadRecord(f"{path.name} can no longer be read as Parquet") from error
        self._start, self._batch = 0, pa.array([], pa.binary())
        self._before = self._batch
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def read(self, column: str, row: int) -> bytes:
        try:
            if row < self._start - len(self._before) or not self._near(row):
                self._open_at(column, row)
            while row >= self._start + len(self._batch):
                self._start += len(self._batch)
                self._before, self._batch = self._batch, next(self._batches).column(0)
        except (pa.ArrowException, OSError, IndexError, StopIteration) as error:
            self._batches = iter(())
            raise BadRecord(f"{self._path.name} is damaged there") from error
        at = row - self._start
        data = (self._batch[at] if at >= 0 else self._before[at]).as_py()
        if isinstance(data, dict):  # a struct of which the column is a part
            data = data.get(column.rpartition(".")[2])
        if data is None:
            raise BadRecord(f"its {column} is empty")
        return bytes(data)

    def _near(self, row: int) -> bool:
        """Whether it takes no more than a few batches to come to a row."""
        return len(self._batch) > 0 and row < self._start + 4 * BATCH_ROWS

    def _open_at(self, column: str, row: int) -> None:
        """Begin anew, with the row group that holds a row."""
        start = group = 0
        metadata = self._parquet.metadata
        while start + metadata.row_group(group).num_rows <= row:
            start += metadata.row_group(group).num_rows
            group += 1
        self._batches = self._parquet.iter_batches(
            BATCH_ROWS, range(group, metadata.num_row_groups), [column]
        )
        self._start, self._batch = start, pa.array([], pa.binary())
        self._before = self._batch
