"""Reading a collection: streamed, without touching image bytes unless they are asked for."""

import os
from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.columns import python_values, wrong_column
from paragrain.collection.fields import FIELDS, Record, combined, record_digest
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import digest, read_json
from paragrain.images import BadImage

FINGERPRINT = b"paragrain.fingerprint"
"""Key in the footer under which the sum of the records' digests stands."""


@dataclass
class _Group:
    """One row group of one Parquet file, and which of its rows are sound.

    `rows` are positions within the group; `start` is the place of the first sound row in the
    collection. `stored` says whether image bytes of some row lie in the file.
    """

    path: Path
    index: int
    start: int
    rows: list[int]
    stored: bool


class Collection:
    """A data set on disk, opened for reading; make one with `Collection.open`.

    It is a folder with `records/*.parquet` in the layout of `SCHEMA`; columns other than `id`
    may be absent. Rows that cannot be used are left out and named in `problems`.

    Attributes:
        folder: where it lies.
        info: what `collection.json` says, or nothing if another tool wrote the folder.
    """

    def __init__(self, folder: Path, files: dict[Path, pq.FileMetaData], info: dict[str, Any]):
        """Use `Collection.open`, which finds the files."""
        self.folder = folder
        self.info = info
        self._files = files
        self._problems: list[tuple[str, str]] = []

    @classmethod
    def open(cls, path: "str | os.PathLike[str] | Collection") -> "Collection":
        """Open the collection in a folder; one that is open already is given back.

        Raises:
            UsageError: there is no such folder, it is no collection, or `path` is no path.
            ParagrainError: it has no records.
        """
        if isinstance(path, Collection):
            return path
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"a collection is named by its folder, not by {type(path).__name__}")
        folder = Path(path)
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}: check the path of the collection")
        paths = sorted(p for p in folder.glob("records/*.parquet") if not p.name.startswith("."))
        if not paths and not (folder / "collection.json").is_file():
            raise UsageError(
                f"{folder} is not a collection, since it has no records/*.parquet: "
                "make one with `paragrain import`"
            )
        info = read_info(folder)
        collection = cls(folder, {}, info)
        if info.get("complete") is False:
            collection._problems.append(
                ("collection.json", "the import was interrupted: run it again to finish it")
            )
        for file in paths:
            collection._take_in(file)
        if not sum(metadata.num_rows for metadata in collection._files.values()):
            why = "".join(f"; {name}: {reason}" for name, reason in collection._problems[:3])
            raise ParagrainError(f"the collection {folder} has no records{why}")
        return collection

    def _take_in(self, file: Path) -> None:
        """Read a Parquet file's footer; a file that cannot be used is a problem, not an error."""
        try:
            metadata = pq.read_metadata(file)
            reason = wrong_column(metadata.schema.to_arrow_schema())
        except (OSError, pa.ArrowException) as error:
            reason = f"not a readable Parquet file ({str(error).splitlines()[0]})"
        if reason:
            self._problems.append((file.name, reason))
        else:
            self._files[file] = metadata

    def __repr__(self) -> str:
        return f"Collection.open({str(self.folder)!r})"

    @property
    def name(self) -> str:
        """The data set's name, or else its folder's."""
        return str(self.info.get("name") or self.folder.resolve().name)

    @property
    def model(self) -> str | None:
        """The model that it remembers (see `use`), if any."""
        model = self.info.get("model")
        if model is not None and not (isinstance(model, str) and model):
            raise UsageError(
                f"the model in {self.folder / 'collection.json'} is no name but {model!r}: name "
                f"one by `paragrain use MODEL {self.folder}`"
            )
        return model

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(id, or "row N of FILE", or file; reason) of everything that had to be left out."""
        _ = self._scan  # finds them
        return self._problems

    def __len__(self) -> int:
        """Number of records."""
        return len(self._scan[0])

    @cached_property
    def splits(self) -> dict[str, int]:
        """Number of records of each split, in order of appearance."""
        return dict(Counter(self._scan[1]))

    def ids(self, split: str | None = None) -> list[str]:
        """The ids of all records, or of those of one split, in the order of the collection.

        Raises:
            UsageError: there is no such split.
        """
        self._check_split(split)
        ids, splits, _ = self._scan
        return [id for id, own in zip(ids, splits, strict=True) if split in (None, own)]

    def files(self) -> dict[Path, list[str]]:
        """Each Parquet file, and the ids of its sound records in order; none where it has none."""
        ids, _, groups = self._scan
        found: dict[Path, list[str]] = {file: [] for file in self._files}
        for group in groups:
            found[group.path] += ids[group.start : group.start + len(group.rows)]
        return found

    def records(
        self,
        split: str | None = None,
        *,
        images: bool = False,
        fields: str | Iterable[str] | None = None,
    ) -> Iterator[Record]:
        """Stream the records in order, a row group at a time.

        Args:
            split: only this split.
            images: whether to read the image bytes too; without them `image.bytes` is `None`.
            fields: names of the fields to read; the others keep their defaults. `id`, `split` and
                `image` are always there.

        Raises:
            UsageError: there is no such split or field.
        """
        self._check_split(split)
        wanted = _columns(fields, images)
        return self._stream(split, wanted)

    def _stream(self, split: str | None, columns: set[str]) -> Iterator[Record]:
        _, splits, groups = self._scan
        for group in groups:
            own = splits[group.start : group.start + len(group.rows)]
            rows = [row for row, s in zip(group.rows, own, strict=True) if split in (None, s)]
            if rows:
                yield from _read_group(group.path, group.index, columns, rows)

    def get(self, ids: str | Iterable[str], *, images: bool = True) -> dict[str, Record]:
        """A few records, or one, with their images unless not wanted, in the order asked for.

        Only the row groups that hold them are read: at most some MiB for each.

        Raises:
            UsageError: there is no record with one of the ids, or they are no ids.
        """
        if isinstance(ids, bytes) or not isinstance(ids, Iterable):
            raise UsageError(f"a record is asked for by its id, a text, not by {ids!r}")
        asked = [ids] if isinstance(ids, str) else list(ids)
        unknown = [id for id in asked if not isinstance(id, str) or id not in self._places]
        if unknown:
            raise UsageError(
                f"the collection {self.folder} has no record {unknown[0]!r}"
                + (f" (and {len(unknown) - 1} more that were asked for)" if unknown[1:] else "")
            )
        rows: dict[int, list[int]] = {}
        for id in dict.fromkeys(asked):
            number, row = self._places[id]
            rows.setdefault(number, []).append(row)
        columns = _columns(None, images=images)
        groups = self._scan[2]
        found = {
            record.id: record
            for number, places in rows.items()
            for record in _read_group(groups[number].path, groups[number].index, columns, places)
        }
        return {id: found[id] for id in asked}  # each once

    def image_bytes(self, record: Record) -> bytes:
        """The encoded image of one of this collection's records, wherever it is kept.

        Raises:
            BadImage: the record has no image, or its file is missing, unreadable or lies outside
                the collection's folder.
        """
        if record.image.bytes is not None:
            return record.image.bytes
        number, _ = self._places.get(record.id, (None, 0))
        if number is not None and self._scan[2][number].stored:
            stored = self.get([record.id])[record.id].image.bytes
            if stored is not None:
                return stored
        if record.image.path is None:
            raise BadImage("the record has no image")
        try:
            return inside(self.folder, record.image.path).read_bytes()
        except OSError as error:
            raise BadImage(f"cannot be read: {error.strerror or error}") from error

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change when any record does, but not with their order.

        The writer keeps one in each Parquet file's footer; those of other tools are read through
        once, without their image bytes, for which the file's size then stands.
        """
        digests = []
        for file, metadata in self._files.items():
            kept = footer_fingerprint(metadata)
            if kept is not None:
                digests.append(int(kept, 16))
            else:
                digests += [record_digest(record) for record in file_records(file)]
                digests.append(file.stat().st_size)
        return digest(combined(digests).to_bytes(16)).hex()

    def place(self, split: str | None) -> str:
        """The collection, or a split of it, as error messages name it."""
        return str(self.folder) if split is None else f"the split {split!r} of {self.folder}"

    def _check_split(self, split: str | None) -> None:
        if split is not None and split not in list(self.splits):  # also what cannot be hashed
            raise UsageError(
                f"the collection {self.folder} has no split {split!r}: "
                f"it has {', '.join(self.splits)}"
            )

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Row group (its number in the scan) and row within it of every id."""
        ids, _, groups = self._scan
        return {
            ids[group.start + i]: (number, row)
            for number, group in enumerate(groups)
            for i, row in enumerate(group.rows)
        }

    @cached_property
    def _scan(self) -> tuple[list[str], list[str], list[_Group]]:
        """Ids and splits of all sound rows, and where they lie; finds the problems."""
        ids: list[str] = []
        splits: list[str] = []
        groups: list[_Group] = []
        seen: set[str] = set()
        for file, metadata in self._files.items():
            first = 0
            for index in range(metadata.num_row_groups):
                nulls, size = null_images(metadata, index)
                group = _Group(file, index, len(ids), [], stored=nulls != size)
                columns = {"id", "split"} if nulls == 0 else {"id", "split", "image.path"}
                values = read_columns(file, index, columns)
                paths = values.get("image") or [None] * size
                names = values.get("split") or ["train"] * size
                rows = zip(values["id"], names, paths, strict=True)
                for row, (id, split, image) in enumerate(rows):
                    reason = _unsound(id, image and image.path, seen)
                    if reason:
                        where = id or f"row {first + row} of {file.name}"
                        self._problems.append((where, reason))
                        continue
                    seen.add(id)
                    ids.append(id)
                    splits.append(split)
                    group.rows.append(row)
                groups.append(group)
                first += size
        return ids, splits, groups


def inside(folder: Path, path: str) -> Path:
    """The real place of a record's path.

    Raises:
        BadImage: that place is not below `folder`, be it by "..", an absolute path or a link.
    """
    try:
        place = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a link in a loop, a NUL in the name
        raise BadImage(f"cannot be read: {error}") from error
    if not place.is_relative_to(folder.resolve()):
        raise BadImage("its path leaves the collection's folder")
    return place


def footer_fingerprint(metadata: pq.FileMetaData) -> str | None:
    """The fingerprint that the writer left in a Parquet file; other tools leave none."""
    kept = (metadata.metadata or {}).get(FINGERPRINT)
    return None if kept is None else kept.decode("ascii", "replace")


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn what goes wrong inside, where a Parquet file is read, into a `ParagrainError`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ParagrainError(
            f"{file} is damaged ({str(error).splitlines()[0]}): import the data again"
        ) from error


def rows_as_taken(file: Path, fields: Iterable[str] | None = None) -> Iterator[tuple[Record, bool]]:
    """All records of one Parquet file without image bytes; whether a `Collection` takes each."""
    metadata = pq.read_metadata(file)
    seen: set[str] = set()
    for index in range(metadata.num_row_groups):
        nulls, _ = null_images(metadata, index)
        for record in _read_group(file, index, _columns(fields, False), None):
            path = None if nulls == 0 else record.image.path  # of stored images it is a name only
            sound = _unsound(record.id, path, seen) is None
            if sound:
                seen.add(record.id)
            yield record, sound


def file_records(file: Path) -> Iterator[Record]:
    """All records of one Parquet file without image bytes, sound or not."""
    return (record for record, _ in rows_as_taken(file))


# --- Row groups -------------------------------------------------------------------------------


def read_info(folder: Path) -> dict[str, Any]:
    """What `collection.json` says; nothing where there is none.

    Raises:
        ParagrainError: it cannot be read.
    """
    path = folder / "collection.json"
    try:
        info = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ParagrainError(f"{path} cannot be read ({error}): import the data again") from error
    return info if isinstance(info, dict) else {}


def known_info(folder: Path) -> dict[str, Any]:
    """What `collection.json` says; nothing where it cannot be read, as an import mends it."""
    try:
        return read_info(folder)
    except ParagrainError:
        return {}


def _columns(fields: str | Iterable[str] | None, images: bool) -> set[str]:
    """The Parquet columns that hold some fields of a record."""
    names = set(FIELDS if fields is None else [fields] if isinstance(fields, str) else fields)
    if unknown := sorted(names - set(FIELDS)):
        raise UsageError(f"a record has no field {unknown[0]!r}: choose from {', '.join(FIELDS)}")
    names = (names - {"image"}) | {"id", "split", "image.path"}
    return names | {"image.bytes"} if images else names


def null_images(metadata: pq.FileMetaData, index: int) -> tuple[int | None, int]:
    """How many rows of a row group have no image bytes (`None`: not known), and its rows."""
    group = metadata.row_group(index)
    for column in range(group.num_columns):
        chunk = group.column(column)
        if chunk.path_in_schema == "image.bytes":
            known = chunk.is_stats_set and chunk.statistics.has_null_count
            return chunk.statistics.null_count if known else None, group.num_rows
    return group.num_rows, group.num_rows


def _unsound(id: str, path: str | None, seen: Names[str]) -> str | None:
    """Why a row cannot be used, or `None`."""
    if not id:
        return "it has no id"
    if id in seen:
        return "this id came before; the later one is left out"
    if path is not None:
        pure = PurePosixPath(path.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts:
            return "its path leaves the collection's folder"
    return None


def read_columns(file: Path, index: int, columns: set[str]) -> dict[str, list[Any]]:
    """Some columns of a row group, by the name of the record's field; absent ones are left out.

    Raises:
        ParagrainError: the file is damaged there.
    """
    with reading(file), pq.ParquetFile(file) as parquet:
        table = parquet.read_row_group(index, columns=sorted(columns))
    return {name: python_values(name, table[name]) for name in table.column_names}


def _read_group(
    file: Path, index: int, columns: set[str], rows: Iterable[int] | None
) -> Iterator[Record]:
    """Records from a row group of a Parquet file: some rows, or all."""
    values = read_columns(file, index, columns)
    names = tuple(values)
    every = list(zip(*values.values(), strict=True))
    for row in range(len(every)) if rows is None else rows:
        yield Record(**dict(zip(names, every[row], strict=True)))
