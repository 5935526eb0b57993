"""New texts in a collection that is there: Parquet files rewritten, images and all else kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from paragrain.collection.columns import wrong_column
from paragrain.collection.fields import FIELDS, Record
from paragrain.collection.reading import Collection, reading, rows_as_taken
from paragrain.collection.shards import rewrite
from paragrain.errors import ParagrainError, UsageError

Changes = Mapping[str, Mapping[str, Any]]
"""New values of some records' fields, by id and by field."""

UPDATABLE = tuple(n for n, field in FIELDS.items() if field.role != "record" or n == "split")
"""The fields of a record that can be given new values in place."""


def update_records(folder: Path, file: Path, changes: Changes) -> int:
    """Give some fields of some records in one Parquet file new values; all else stays as it is.

    A collection that is already open goes on working; for what a kill leaves see `shards.rewrite`.
    If nothing changes, nothing is written. Two processes must not update one file at the same time.

    A file without a column for a new value gets that column. Tools that ask for the same columns
    in all files of a collection, as `datasets` does, want all of them updated; for fields that are
    new in the table `align_columns` does that.

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
    changes = {
        id: {field: _checked(id, field, value) for field, value in values.items()}
        for id, values in changes.items()
    }
    with reading(file):
        reason = wrong_column(pq.read_schema(file))
    if reason:
        raise ParagrainError(f"{file} cannot be updated, since {reason}")
    there = {record.id for record, sound in rows_as_taken(file, fields=()) if sound}
    if unknown := [id for id in changes if id not in there]:
        raise UsageError(f"{file} has no record {unknown[0]!r}: give each file its own ids")

    def change(row: int, record: Record, sound: bool) -> dict[str, Any]:
        new = changes.get(record.id, {}) if sound else {}
        return {field: v for field, v in new.items() if getattr(record, field) != v}

    return rewrite(file, change)


def _checked(id: str, field: str, value: Any) -> Any:
    """A value as it can be written."""
    if field not in UPDATABLE:
        raise UsageError(
            f"the field {field!r} of {id!r} cannot be updated: choose from {', '.join(UPDATABLE)}"
        )
    try:
        if field == "split" and not value:
            raise ValueError
        json.dumps(value, ensure_ascii=False).encode()
        return FIELDS[field].checked(value)
    except UnicodeEncodeError:
        raise UsageError(
            f"the new {field!r} of {id!r} holds an unpaired surrogate, which is not valid Unicode: "
            "leave that text out"
        ) from None
    except (ValueError, TypeError):
        raise UsageError(
            f"{value!r} is no value for the field {field!r}: correct that of {id!r}"
        ) from None


def update_collection(folder: Path, changes: Changes) -> None:
    """Give records new values, in whatever file they lie; see `update_records`."""
    changes = {id: values for id, values in changes.items() if values}
    if not changes:
        return
    for file, ids in Collection.open(folder).files().items():
        own = {id: changes[id] for id in ids if id in changes}
        if own:
            update_records(folder, file, own)


def align_columns(folder: Path) -> None:
    """Give every file the optional columns that any has, for tools that ask the same of all."""
    optional = {name for name, field in FIELDS.items() if field.optional}
    if not optional:
        return
    files = sorted((folder / "records").glob("part-*.parquet"))
    names = {file: {*pq.read_schema(file).names} for file in files}
    wanted = optional & {name for own in names.values() for name in own}
    for file, own in names.items():
        if wanted - own:
            rewrite(file, lambda *_: {}, wanted)
