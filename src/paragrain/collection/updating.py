"""New texts in a collection that is there: one Parquet file rewritten, images and all else kept."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.columns import with_values, writable_type, wrong_column
from paragrain.collection.reading import reading, rows_as_taken
from paragrain.collection.record import LIST_FIELDS, SCHEMA, TEXT_FIELDS, combined, digest
from paragrain.collection.shards import (
    FINGERPRINT,
    Entry,
    announce,
    footer_fingerprint,
    manifest_path,
    parquet_writer,
    read_manifest,
    write_manifest,
)
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import replacing

UPDATABLE = (*TEXT_FIELDS, "paragraph_score", "annotation", "group", "url", "graph", "split")
"""The fields of a record that can be given new values in place."""

_Changes = dict[int, dict[str, Any]]  # row of the file: the new values, by field


def update_records(folder: Path, file: Path, changes: Mapping[str, Mapping[str, Any]]) -> int:
    """Give some fields of some records in one Parquet file new values; all else stays as it is.

    The order of the rows and the row groups stay, so that a collection that is already open goes
    on working, and so do other tools' columns. The file is rewritten beside its place, a row group
    at a time, and then replaced; after a kill at any moment it is the old or the new one, and an
    import finds its records finished either way. If nothing changes, nothing is written. Two
    processes must not update one file at the same time.

    A file without a column for a new value gets that column. Tools that ask for the same columns
    in all files of a collection, as `datasets` does, want all of them updated.

    Args:
        folder: of the collection.
        file: one of `Collection.files`.
        changes: for some of the file's ids, new values of some of `UPDATABLE`: a list of strings
            for a field of many texts, a string or None for one of a single text, a whole number
            from 0 to 10 or None for the score.

    Returns:
        How many records have changed.

    Raises:
        UsageError: `file` is not in the collection, or `changes` has an id that is not in the
            file, another field, or a value that does not suit its field, such as a text with
            an unpaired surrogate, which is not valid Unicode. Nothing was written.
        ParagrainError: the file is damaged.
    """
    if file.parent.resolve() != (folder / "records").resolve():
        raise UsageError(f"{file} is no file of the collection {folder}: take one of its records/")
    for id, values in changes.items():
        for field, value in values.items():
            _check(id, field, value)
    _clear_away_remains(file)
    with reading(file):
        metadata = pq.read_metadata(file)
        reason = wrong_column(metadata.schema.to_arrow_schema())
    if reason:
        raise ParagrainError(f"{file} cannot be updated, since {reason}")
    before = footer_fingerprint(metadata)
    manifest = None if before is None else read_manifest(file, before)
    rows, total = _plan(file, changes)
    after = None if before is None else total
    finished = manifest
    if manifest and rows:
        items = _with_splits(manifest["items"], changes)
        finished = {**manifest, "fingerprint": after, "items": items}
    if rows:
        with replacing(file) as temporary:
            _rewrite(file, temporary, rows, after)
            if manifest and finished:
                announce(file, manifest, finished)
    if finished:  # where nothing changes, a killed run may have left it undone
        write_manifest(file, finished)
    return len(rows)


def _with_splits(items: list[list[Any]], changes: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """A manifest's items with the new splits of some of them."""
    entries = [Entry(*item) for item in items]
    return [list(e._replace(split=changes.get(e.id, {}).get("split", e.split))) for e in entries]


def _check(id: str, field: str, value: Any) -> None:
    """Refuse a value that cannot be written."""
    if field not in UPDATABLE:
        raise UsageError(
            f"the field {field!r} of {id!r} cannot be updated: choose from {', '.join(UPDATABLE)}"
        )
    if field in LIST_FIELDS:
        fits = isinstance(value, list) and all(isinstance(text, str) for text in value)
    elif field == "paragraph_score":
        fits = value is None or (type(value) is int and 0 <= value <= 10)
    elif field == "split":
        fits = isinstance(value, str) and bool(value)
    else:
        fits = value is None or isinstance(value, str)
    if not fits:
        raise UsageError(f"{value!r} is no value for the field {field!r}: correct that of {id!r}")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the new {field!r} of {id!r} holds an unpaired surrogate, which is not valid Unicode: "
            "leave that text out"
        ) from None


def _clear_away_remains(file: Path) -> None:
    """Delete the temporary files of a killed run."""
    for target in (file, manifest_path(file)):
        if target.parent.is_dir():
            for path in list(target.parent.iterdir()):
                if path.name.startswith(f".{target.name}.") and path.suffix == ".tmp":
                    path.unlink()


def _plan(file: Path, changes: Mapping[str, Mapping[str, Any]]) -> tuple[_Changes, str]:
    """The rows that change, and the fingerprint of the file afterwards; images are not read."""
    rows: _Changes = {}
    digests = []
    seen: set[str] = set()
    for row, (record, sound) in enumerate(rows_as_taken(file)):
        if sound:
            seen.add(record.id)
            wanted = changes.get(record.id, {})
            new = {field: v for field, v in wanted.items() if getattr(record, field) != v}
            if new:
                rows[row] = new
                record = replace(record, **new)
        digests.append(digest(record))
    if unknown := [id for id in changes if id not in seen]:
        raise UsageError(f"{file} has no record {unknown[0]!r}: give each file its own ids")
    return rows, f"{combined(digests):032x}"


def _rewrite(source: Path, target: Path, rows: _Changes, fingerprint: str | None) -> None:
    """Copy a Parquet file with new values in some rows, holding one row group at a time."""
    changed = {field for new in rows.values() for field in new}
    with reading(source):
        parquet = pq.ParquetFile(source)
    with parquet:
        schema = _new_schema(parquet, changed)
        with parquet_writer(target, schema, _dictionary_columns(parquet.metadata)) as writer:
            first = 0
            for index in range(parquet.num_row_groups):
                with reading(source):
                    table = parquet.read_row_group(index)
                own = {r: rows[first + r] for r in range(len(table)) if first + r in rows}
                first += len(table)
                table = _changed(table, schema, changed, own)
                writer.write_table(table, row_group_size=max(1, len(table)))
            if fingerprint is not None:
                writer.add_key_value_metadata({FINGERPRINT: fingerprint})


def _changed(table: pa.Table, schema: pa.Schema, fields: set[str], rows: _Changes) -> pa.Table:
    """A row group with new values in some fields, and the columns that it lacked."""
    for place, column in enumerate(schema):
        if column.name in fields:
            if place == table.num_columns:
                empty = pa.nulls(len(table), column.type)
                table = table.append_column(column, pa.chunked_array([empty]))
            values = {row: new[column.name] for row, new in rows.items() if column.name in new}
            array = with_values(column.name, table.column(place), column.type, values)
            table = table.set_column(place, column, array)
    return table


def _new_schema(parquet: pq.ParquetFile, fields: set[str]) -> pa.Schema:
    """The file's schema with all metadata of its footer, and with columns that can be changed."""
    schema = parquet.schema_arrow
    metadata = {**(parquet.metadata.metadata or {}), **(schema.metadata or {})}
    for ours in (FINGERPRINT, b"ARROW:schema"):  # both are written anew
        metadata.pop(ours, None)
    replaced = []
    for name in (name for name in SCHEMA.names if name in fields):
        place = schema.get_field_index(name)
        if place < 0:
            schema = schema.append(SCHEMA.field(name))
            replaced.append(name)
            continue
        old = schema.field(place)
        new = old.with_type(writable_type(name, old.type)).with_nullable(True)
        schema = schema.set(place, new)
        if new.type != old.type:
            replaced.append(name)
    _describe(metadata, replaced)
    return schema.with_metadata(metadata)


def _describe(metadata: dict[bytes, bytes], columns: list[str]) -> None:
    """Tell `datasets` of new columns, where the file has a description for it."""
    try:
        description = json.loads(metadata[b"huggingface"])
        features = description["info"]["features"]
        ours = json.loads(SCHEMA.metadata[b"huggingface"])["info"]["features"]
        features.update({name: ours[name] for name in columns})
    except (KeyError, ValueError, TypeError, AttributeError):  # none, or another tool's idea of it
        return
    metadata[b"huggingface"] = json.dumps(description).encode()


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The columns that are dictionary encoded."""
    group = metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return [column.path_in_schema for column in columns if column.has_dictionary_page]
