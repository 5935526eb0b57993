"""Parquet files with images inside, as Hugging Face's `datasets` and others write them."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection import (
    ImageRef,
    ImportReport,
    Item,
    Record,
    Skipped,
    WriteOptions,
    write_collection,
)
from paragrain.collection.fields import LIST_FIELDS
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import digest
from paragrain.images import content_hash
from paragrain.sources.cells import Values, take
from paragrain.sources.columns import Columns, choose
from paragrain.sources.finding import Below
from paragrain.sources.listing import record_id
from paragrain.sources.names import is_valid, leaves, shown, stem
from paragrain.sources.packed import Packed
from paragrain.sources.photo import merged, photo_item, said
from paragrain.sources.registry import importer
from paragrain.sources.samples import Found, check_store, expand_braces
from paragrain.sources.sharegpt4v import description
from paragrain.sources.texts import Texts, is_prose
from paragrain.sources.walking import walk

_SHARD = re.compile(r"(.+?)-\d+(?:-of-\d+)?(?:-[0-9a-f]+)?")
_SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "dev": "val", "eval": "val", "test": "test", "testing": "test",
}  # fmt: skip
"""Names of files and folders that say a split."""


@importer("parquet")
def import_parquet(
    files: Path,
    out: Path,
    *,
    images: Path | None = None,
    image_column: str | None = None,
    text_columns: Sequence[str] = (),
    field: str | None = None,
    id_column: str | None = None,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    name: str | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring Parquet files with images into a collection: Hugging Face's usual layout, and others.

    Columns that are not named are guessed by `columns.choose`, and a note says which were used:

    - The image: a column of structs with `bytes` and `path`, or of bytes; of several, one that is
      called `image`, `img`, `jpg` or the like.
    - Texts: columns that are called as those of `texts.read_texts`, or `sentences`, and
      `conversations`, of which the first turn of the model is the description. A list of objects
      gives their `raw`, `text`, `caption` or `value`.
    - The id: a column `image_id`, `id`, `key` or `cocoid`, else the image's path; if some row has
      none, or two have the same, the file's name and the number of the row.
    - The split: a column `split`, else the name of the file (`train-00000-of-00002.parquet`,
      where "validation" becomes "val") or of its folder, else `split`.

    Files are streamed: of each row its texts are in memory for a moment, of the images 64. A later
    run reads the texts again, and images only of rows that have changed.

    Args:
        files: a Parquet file, a folder of some to any depth, or a pattern such as
            `data/train-*.parquet`.
        out: the collection's folder.
        images: a folder for the images of which only the path is in the files.
        image_column: the column of the images.
        text_columns: the columns of the texts; each goes to the field of its name, or to `field`.
        field: the field for `text_columns`; by default captions.
        id_column: the column of the ids.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        split: of all rows for which nothing else says one.
        name: of the data set; by default that of the file or folder.
        options: see `WriteOptions`.

    Raises:
        UsageError: there are no Parquet files, or no column of images, or several.
        ParagrainError: none of the rows can be used.
    """
    found = _find(files, out)
    check_store(Found(tables=[(path, "") for path, _ in found]), options.get("store"))
    problems = Skipped(out)
    chosen = _choose(found, problems, image_column, text_columns, field, id_column)
    source = _Source(found, chosen, Below(images) if images else None)
    source.choose_ids(id_column)
    name = name or (files.stem if "*" not in files.name else "parquet")
    tables = Texts(texts)
    joined = tables.join(source.names(), root=files) if tables else {}
    notes: list[str] = []
    first = list(problems)

    def items() -> Iterator[Item]:
        problems.clear()
        problems.extend(first)
        source.unused.clear()
        count = 0
        for row in source.rows(problems):
            values = merged(said(split=row.split or split, source=name) | row.values, {})
            item = source.item(row, merged(values, joined.get(row.id, {})), problems)
            if item is not None:
                count += 1
                yield item
        problems.extend(tables.problems)
        notes[:] = source.notes() + tables.notes
        if not count:
            raise ParagrainError(f"no row of {files} can be used{problems.example()}: check it")

    return write_collection(
        out, items, name=name, source="parquet", problems=problems, notes=notes, **options
    )


# --- Files ------------------------------------------------------------------------------------


def _find(files: Path, out: Path) -> list[tuple[Path, str]]:
    """Path of every file, and its name below the folder without extension."""
    if files.is_dir():
        below = walk(files, own=out).files
        found = [(files / path, path) for path in below if path.lower().endswith(".parquet")]
    elif files.is_file():
        found = [(files, files.name)]
    else:
        matches = [match for name in expand_braces(str(files)) for match in _matches(Path(name))]
        found = [(path, path.name) for path in matches]
        if len({name for _, name in found}) < len(found):
            found = [(path, f"{path.parent.name}/{path.name}") for path, _ in found]
    if not found:
        raise UsageError(f"there are no Parquet files at {files}: check the path or the pattern")
    return [(path, shown(stem(name))) for path, name in found]


def _matches(pattern: Path) -> list[Path]:
    if "*" not in str(pattern):
        return [pattern] if pattern.is_file() else []
    fixed = Path(*pattern.parts[: next(n for n, p in enumerate(pattern.parts) if "*" in p)])
    return sorted(path for path in fixed.glob(str(pattern.relative_to(fixed))) if path.is_file())


def split_of(name: str) -> str | None:
    """The split that the name of a file says.

    >>> split_of("data/train-00000-of-00002"), split_of("default/validation/0000")
    ('train', 'val')
    >>> split_of("qual_dev-00000-of-00001"), split_of("photos")
    ('qual_dev', None)
    """
    path = PurePosixPath(name)
    shard = _SHARD.fullmatch(path.name)
    if shard and "-of-" in path.name:
        return _SPLITS.get(shard[1].lower(), shard[1])
    words = [shard[1] if shard else path.name, re.split(r"[-_.]", path.name)[0]]
    known = (_SPLITS.get(word.lower()) for word in (*words, *reversed(path.parts[:-1])))
    return next((split for split in known if split), None)


def _choose(
    found: list[tuple[Path, str]],
    problems: Skipped,
    image_column: str | None,
    text_columns: Sequence[str],
    field: str | None,
    id_column: str | None,
) -> dict[Path, Columns]:
    """The columns of every file that can be used; the others are problems."""
    chosen: dict[Path, Columns] = {}
    reason = ""
    for path, name in found:
        try:
            schema = pq.read_schema(path)
            chosen[path] = choose(schema, image_column, text_columns, field, id_column)
        except (OSError, pa.ArrowException):
            reason = "it is damaged or no Parquet file"
            problems.append((f"{name}.parquet", reason))
        except UsageError as error:
            reason = str(error)
            problems.append((f"{name}.parquet", reason))
    if not chosen:
        raise UsageError(f"{found[0][0]} cannot be used: {reason}")
    return chosen


# --- Rows -------------------------------------------------------------------------------------


@dataclass
class _Row:
    """What is known of a row without its image's bytes."""

    id: str
    file: Path
    place: int
    stamp: str
    path: str | None
    has_bytes: bool
    split: str | None
    values: Values = field(default_factory=dict)


class _Source:
    """The rows of some Parquet files."""

    def __init__(
        self,
        found: list[tuple[Path, str]],
        chosen: Mapping[Path, Columns],
        below: Below | None,
    ):
        self._files = [(path, name) for path, name in found if path in chosen]
        self._columns = chosen
        self._below = below
        self._packed = Packed()
        self._by = "row"
        self._told = ""
        self.unused: Counter[str] = Counter()

    def choose_ids(self, asked: str | None) -> None:
        """Decide what ids come from; see `import_parquet`."""
        for by in ("column", "path"):
            if asked is not None and by == "column":
                self._by, self._told = by, f"`{asked}`"
                return
            seen: set[bytes] = set()
            if all(self._is_new(id, seen) for id in self._ids(by)) and seen:
                self._by = by
                names = {columns.id for columns in self._columns.values()}
                self._told = f"`{names.pop()}`" if by == "column" else "the images' paths"
                return
        self._told = "the files' names and the rows"

    def _is_new(self, id: str | None, seen: set[bytes]) -> bool:
        if id is None:
            return False
        key = digest(id)
        count = len(seen)
        seen.add(key)
        return len(seen) > count

    def _ids(self, by: str) -> Iterator[str | None]:
        problems: list[tuple[str, str]] = []
        for path, name in self._files:
            columns = self._columns[path]
            wanted = columns.id if by == "column" else columns.path
            if wanted is None:
                yield None
                continue
            for row in _rows(path, name, [wanted], problems):
                yield record_id(_cell(row, wanted))

    def names(self) -> dict[str, str]:
        """The path of every row's image, by its id."""
        rows = self.rows(Skipped(Path()))
        return {row.id: row.path if row.path else f"{row.id}.jpg" for row in rows}

    def rows(self, problems: Any) -> Iterator[_Row]:
        """All rows that have an id; what is wrong with their texts becomes a problem."""
        for path, name in self._files:
            columns = self._columns[path]
            state = path.stat()
            stamp = f"{state.st_size} {state.st_mtime_ns}"
            wanted = [c for c in (columns.id, columns.path) if c]
            wanted += [*columns.fields, *columns.prose]
            has = _has_bytes(path, columns.bytes)
            for place, cells in enumerate(_rows(path, name, wanted, problems)):
                own = f"{name}/{place:06d}"
                image_path = _cell(cells, columns.path) if columns.path else None
                id: str | None = own
                if self._by == "column":
                    id = record_id(_cell(cells, columns.id)) if columns.id else None
                elif self._by == "path":
                    id = record_id(image_path)
                if id is None:
                    problems.append((own, "it has no id"))
                    continue
                is_path = isinstance(image_path, str) and is_valid(image_path)
                row = _Row(
                    id, path, place, f"{stamp} {place}",
                    image_path if is_path else None, has(place), split_of(name),
                )  # fmt: skip
                self._take(row, columns, cells, problems)
                yield row

    def _take(self, row: _Row, columns: Columns, cells: Mapping[str, Any], problems: Any) -> None:
        wrong: list[str] = []
        for column, name in columns.fields.items():
            value = cells.get(column)
            if column == columns.turns:
                value = description(value)
            if isinstance(value, list):
                value = [part for part in value if part is not None]
            if isinstance(value, bytes):
                value = value.decode("utf-8", "surrogateescape")
            if value is None or value == [] or value == "":
                continue
            take(row.values, name, value, wrong)
        problems.extend((row.id, reason) for reason in wrong)
        row.split = row.values.pop("split", None) or row.split
        for column in columns.prose:
            self.unused[column] += is_prose(cells.get(column))

    def item(self, row: _Row, values: Values, problems: Any) -> Item | None:
        """The item of a row, or `None` where there is no image: that is a problem."""
        if not row.has_bytes:
            return self._linked(row, values, problems)
        state = [row.stamp, row.path, values]
        stamp = content_hash(json.dumps(state, sort_keys=True).encode())
        column = self._columns[row.file].bytes or ""
        make = partial(_record, self._packed, row, column, values)
        return Item(row.id, stamp, make, says_split="split" in values)

    def _linked(self, row: _Row, values: Values, problems: Any) -> Item | None:
        if row.path is None:
            problems.append((row.id, "it has no image"))
            return None
        found = self._below.find(row.path) if self._below and not leaves(row.path) else []
        if self._below and len(found) == 1:
            return photo_item(row.id, self._below.folder / found[0], found[0], values)
        reason = f"fits {len(found)} files" if found else "is missing"
        where = "" if self._below else ": give its folder as images"
        problems.append((row.id, f"its image {row.path[:80]} {reason}{where}"))
        return None

    def notes(self) -> list[str]:
        """Which columns were used, and which texts were not."""
        columns = next(iter(self._columns.values()))
        told = [f"{name} from `{column}`" for column, name in columns.fields.items()]
        notes = [", ".join([f"image from `{columns.image}`", *told, f"id from {self._told}"])]
        if names := [f"`{name}` ({n:,} texts)" for name, n in self.unused.items() if n]:
            notes.append(f"columns that are not used: {', '.join(names)}")
        if columns.unread:
            notes.append(f"columns whose type is not read as text: {', '.join(columns.unread)}")
        return notes


def _rows(path: Path, name: str, columns: list[str], problems: Any) -> Iterator[dict[str, Any]]:
    """The rows as Python values; where the file is damaged, that is named and they end."""
    try:
        with pq.ParquetFile(path) as parquet:
            if not columns:
                yield from ({} for _ in range(parquet.metadata.num_rows))
                return
            for batch in parquet.iter_batches(256, columns=columns):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        problems.append((f"{name}.parquet", f"damaged ({reason}): the rows before that come in"))


def _cell(cells: Mapping[str, Any], column: str | None) -> Any:
    """The value under a name, or under `a.b` that of a struct."""
    if column is None:
        return None
    if column in cells:
        return cells[column]
    outer, _, inner = column.partition(".")
    value = cells.get(outer)
    return value.get(inner) if isinstance(value, dict) else None


def _has_bytes(path: Path, column: str | None) -> Any:
    """Tells of a row whether it has bytes; they are read only where the file does not say."""
    if column is None:
        return lambda _: False
    absent: set[int] = set()
    with pq.ParquetFile(path) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            metadata = parquet.metadata.row_group(group)
            chunks = (metadata.column(n) for n in range(metadata.num_columns))
            chunk = next(c for c in chunks if c.path_in_schema == column)
            known = chunk.statistics.null_count if chunk.statistics else None
            if known == metadata.num_rows:
                absent.update(range(start, start + metadata.num_rows))
            elif known != 0:
                absent.update(start + n for n in _empty(parquet, group, column))
            start += metadata.num_rows
    return lambda place: place not in absent


def _empty(parquet: pq.ParquetFile, group: int, column: str) -> Iterator[int]:
    place = 0
    try:
        for batch in parquet.iter_batches(64, [group], [column]):
            for row in batch.to_pylist():
                if not _cell(row, column):
                    yield place
                place += 1
    except (OSError, pa.ArrowException):
        return  # making the records says what is wrong


def _record(packed: Packed, row: _Row, column: str, values: Values) -> Record:
    data = packed.cell(row.file, column, row.place)
    sound = row.path and not leaves(row.path) and not row.path.startswith("/")
    lists = {name: list(values[name]) for name in LIST_FIELDS if name in values}
    return Record(row.id, ImageRef(data, row.path if sound else row.id), **{**values, **lists})
