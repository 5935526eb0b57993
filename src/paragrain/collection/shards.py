"""The Parquet files of a collection, and the manifests that say which of them are finished."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.columns import with_values, writable_type
from paragrain.collection.fields import (
    FIELDS,
    Record,
    combined,
    record_digest,
    schema_for,
    schema_of,
    to_table,
)
from paragrain.collection.reading import FINGERPRINT, footer_fingerprint, reading, rows_as_taken
from paragrain.files import read_json, replacing, write_text
from paragrain.locks import hold

MEBIBYTE = 2**20
GROUP_BYTES = 8 * MEBIBYTE
"""Image bytes after which a row group ends: what reading a single image costs at most."""

_FEW_VALUES = {"split", "source", "group"}  # columns that repeat themselves

MANIFESTS = "manifests"
"""The folder of the manifests: `records` holds Parquet files alone, as other tools want it."""


def writing_alone(folder: Path) -> AbstractContextManager[None]:
    """Keep others from writing to the records of a collection; readers are not kept from it.

    Raises:
        ParagrainError: another process, or another part of this one, writes to the collection.
    """
    busy = f"another import or annotation is writing to {folder}: wait for it, or stop it first"
    return hold(folder / ".lock", busy=busy)


class Row(NamedTuple):
    """A record on its way into a shard, and what its manifest says of it."""

    record: Record
    stamp: str
    digest: int
    pixels: str | None


class Entry(NamedTuple):
    """What a manifest says of a record."""

    id: str
    stamp: str
    split: str
    content: str | None
    pixels: str | None


@dataclass(frozen=True)
class Shard:
    """A finished Parquet file.

    Attributes:
        path: of the file.
        fingerprint: the sum of its records' digests, 32 hexadecimal digits; also in its footer.
        entries: what the manifest says of its records, in their order.
    """

    path: Path
    fingerprint: str
    entries: list[Entry]

    @property
    def splits(self) -> Counter[str]:
        """Records of each split."""
        return Counter(entry.split for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """The manifest."""
        return {"fingerprint": self.fingerprint, "items": [list(e) for e in self.entries]}

    def write_manifest(self, following: "Shard | None" = None) -> None:
        """Say that the file is finished, as it is, and as `following` says it will be in a moment.

        Without the second, a file that was replaced would pass for unfinished until its manifest
        is replaced too, and a kill in between would have the next import make its records anew,
        without what was written about them since.
        """
        value = self.as_json() | ({} if following is None else {"next": following.as_json()})
        target, text = manifest_path(self.path), json.dumps(value, ensure_ascii=False)
        if not target.is_file() or target.read_bytes() != text.encode():
            write_text(target, text)

    def delete(self) -> None:
        """Delete the file and its manifest."""
        manifest_path(self.path).unlink()
        self.path.unlink()


def shard_path(folder: Path, number: int) -> Path:
    """The Parquet file of a shard."""
    return folder / "records" / f"part-{number:05d}.parquet"


def manifest_path(path: Path) -> Path:
    """The manifest of the Parquet file at `path`."""
    return path.parent.parent / MANIFESTS / f"{path.stem}.json"


def read_shard(path: Path, fingerprint: str | None) -> Shard | None:
    """The shard at `path`, if the file with that fingerprint has a manifest that fits it."""
    try:
        value = read_json(manifest_path(path))
    except (OSError, ValueError):
        return None
    for said in (value, value.get("next")) if isinstance(value, dict) else ():
        if isinstance(said, dict) and said.get("fingerprint") == fingerprint is not None:
            try:
                return Shard(path, fingerprint, [Entry(*item) for item in said["items"]])
            except (KeyError, TypeError):
                continue
    return None


def finished_shards(folder: Path, paths: Iterable[Path] | None = None) -> Iterator[Shard]:
    """Every shard whose manifest fits its Parquet file, or those of some paths, one at a time."""
    if paths is None:
        manifests = sorted((folder / MANIFESTS).glob("part-*.json"))
        paths = [folder / "records" / f"{place.stem}.parquet" for place in manifests]
    for path in paths:
        try:
            shard = read_shard(path, footer_fingerprint(pq.read_metadata(path)))
        except (OSError, pa.ArrowException):
            continue
        if shard is not None:
            yield shard


# --- Writing ----------------------------------------------------------------------------------


def parquet_writer(
    path: Path, schema: pa.Schema, dictionary: Iterable[str] = ()
) -> pq.ParquetWriter:
    """A writer with the settings of all collections, and more columns dictionary encoded."""
    columns = sorted(_FEW_VALUES | {*dictionary} - {"image.bytes"})
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=columns)


def write_shard(path: Path, rows: list[Row]) -> Shard:
    """Write one Parquet file and then its manifest, which says that the file is finished."""
    records = [row.record for row in rows]
    entries = [Entry(r.id, stamp, r.split, r.content, pixels) for r, stamp, _, pixels in rows]
    shard = Shard(path, f"{combined(row.digest for row in rows):032x}", entries)
    schema = schema_for(records)
    with replacing(path) as temporary, parquet_writer(temporary, schema) as writer:
        for group in _row_groups(records):
            writer.write_table(to_table(group, schema))
        writer.add_key_value_metadata({FINGERPRINT: shard.fingerprint})
    shard.write_manifest()
    return shard


def _row_groups(records: list[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.image.bytes or b"")
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


Change = Callable[[int, Record, bool], Mapping[str, Any] | None]
"""New values of the record in a row, by field, or None to take it out.

Called with the number of the row, the record without its image, and whether a `Collection` takes
it."""


def rewrite(path: Path, change: Change, columns: Iterable[str] = ()) -> int:
    """Give rows of a Parquet file new values, or take them out; all else stays as it is.

    The order of the rows and the row groups stay, and so do other tools' columns. The file is
    written anew beside its place, a row group at a time, and then replaced; after a kill at any
    moment it is the old or the new one, and its records count as finished either way.

    Args:
        path: of the file, of which some row has to stay.
        change: what becomes of each record.
        columns: fields of which it gets the columns that it lacks, beside those of new values.

    Returns:
        How many records have changed or gone.

    Raises:
        ParagrainError: the file is damaged.
    """
    _clear_away_remains(path)
    with reading(path):
        metadata = pq.read_metadata(path)
    before = footer_fingerprint(metadata)
    shard = read_shard(path, before)
    rows: dict[int, Mapping[str, Any] | None] = {}
    digests: list[int] = []
    for row, (record, sound) in enumerate(rows_as_taken(path)):
        new = change(row, record, sound)
        if new is None or new:
            rows[row] = new
        if new is not None:
            digests.append(record_digest(replace(record, **new) if new else record))
    fingerprint = None if before is None else f"{combined(digests):032x}"
    missing = [name for name in columns if name not in metadata.schema.to_arrow_schema().names]
    after = shard
    if shard and rows:
        after = replace(shard, fingerprint=str(fingerprint), entries=_changed(shard.entries, rows))
    if rows or missing:
        with replacing(path) as temporary:
            _copy(path, temporary, rows, missing, fingerprint)
            if shard and after and shard != after:
                shard.write_manifest(following=after)
    if after:  # where nothing changes, a killed run may have left it undone
        after.write_manifest()
    return len(rows)


def _clear_away_remains(path: Path) -> None:
    """Delete the temporary files of a killed run."""
    for target in (path, manifest_path(path)):
        for remain in list(target.parent.glob(f".{target.name}.*.tmp")):
            remain.unlink()


def _changed(entries: list[Entry], rows: Mapping[int, Mapping[str, Any] | None]) -> list[Entry]:
    """A manifest's entries with the new splits, and without what goes."""
    changed = ((entry, rows.get(row, {})) for row, entry in enumerate(entries))
    return [e._replace(split=new.get("split", e.split)) for e, new in changed if new is not None]


def _copy(
    source: Path,
    target: Path,
    rows: Mapping[int, Mapping[str, Any] | None],
    columns: Iterable[str],
    fingerprint: str | None,
) -> None:
    """Copy a Parquet file with changes in some rows, holding one row group at a time."""
    changed = {*columns}.union(*(new for new in rows.values() if new))
    with reading(source):
        parquet = pq.ParquetFile(source)
    with parquet:
        schema = _new_schema(parquet, changed)
        with parquet_writer(target, schema, _dictionary_columns(parquet.metadata)) as writer:
            first = 0
            for index in range(parquet.num_row_groups):
                with reading(source):
                    table = parquet.read_row_group(index)
                size = len(table)
                own = {r: rows[first + r] for r in range(size) if first + r in rows}
                first += size
                table = _with_changes(table, schema, changed, own)
                if len(table) or not size:
                    writer.write_table(table, row_group_size=max(1, len(table)))
            if fingerprint is not None:
                writer.add_key_value_metadata({FINGERPRINT: fingerprint})


def _with_changes(
    table: pa.Table,
    schema: pa.Schema,
    fields: set[str],
    rows: Mapping[int, Mapping[str, Any] | None],
) -> pa.Table:
    """A row group with new values in some fields, the columns that it lacked, and fewer rows."""
    for place, column in enumerate(schema):
        if column.name in fields:
            if place == table.num_columns:
                empty = pa.nulls(len(table), column.type)
                table = table.append_column(column, pa.chunked_array([empty]))
            name = column.name
            values = {row: new[name] for row, new in rows.items() if new and name in new}
            array = with_values(name, table.column(place), column.type, values)
            table = table.set_column(place, column, array)
    if None in rows.values():
        stays = [row not in rows or rows[row] is not None for row in range(len(table))]
        table = table.filter(pa.array(stays))
    return table


def _new_schema(parquet: pq.ParquetFile, fields: set[str]) -> pa.Schema:
    """The file's schema with all metadata of its footer, and with columns that can be changed."""
    schema = parquet.schema_arrow
    metadata = {**(parquet.metadata.metadata or {}), **(schema.metadata or {})}
    for ours in (FINGERPRINT, b"ARROW:schema"):  # both are written anew
        metadata.pop(ours, None)
    table = schema_of(fields)
    replaced = []
    for name in (name for name in FIELDS if name in fields):
        place = schema.get_field_index(name)
        if place < 0:
            schema = schema.append(table.field(name))
            replaced.append(name)
            continue
        old = schema.field(place)
        new = old.with_type(writable_type(name, old.type)).with_nullable(True)
        schema = schema.set(place, new)
        if new.type != old.type:
            replaced.append(name)
    _describe(metadata, replaced, table)
    return schema.with_metadata(metadata)


def _describe(metadata: dict[bytes, bytes], columns: list[str], table: pa.Schema) -> None:
    """Tell `datasets` of new columns, where the file has a description for it."""
    try:
        description = json.loads(metadata[b"huggingface"])
        ours = json.loads(table.metadata[b"huggingface"])["info"]["features"]
        description["info"]["features"].update({name: ours[name] for name in columns})
    except (KeyError, ValueError, TypeError, AttributeError):  # none, or another tool's idea of it
        return
    metadata[b"huggingface"] = json.dumps(description).encode()


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The columns that are dictionary encoded."""
    group = metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return [column.path_in_schema for column in columns if column.has_dictionary_page]
