"""From a Parquet column, ours or another tool's, to values of a record's field, and back."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from paragrain.collection.record import FIELDS, LIST_FIELDS, SCHEMA, ImageRef


def wrong_column(schema: pa.Schema) -> str | None:
    """What is wrong with the columns of a Parquet file, if anything is."""
    if "id" not in schema.names:
        return "it has no column `id`"
    for name in FIELDS:
        if name in schema.names and not _fits(name, schema.field(name).type):
            return f"its column `{name}` has the type {schema.field(name).type}"
    return None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the same values without a dictionary or views, which other tools write.

    Lists of any form become large lists. What is neither text, nor bytes, nor such a list stays.

    >>> plain_type(pa.list_view(pa.dictionary(pa.int8(), pa.string_view())))
    LargeListType(large_list<item: large_string>)
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        return pa.large_string()
    if kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or _is_fixed(kind):
        return pa.large_binary()
    return kind


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """An array, or all chunks of one, as an array of `plain_type`."""
    kind = plain_type(array.type)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    chunks = [chunk if chunk.type == kind else chunk.cast(kind) for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], kind), *chunks])


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_fixed_size_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    return plain_type(kind) in (pa.large_string(), pa.null())


def _fits(name: str, kind: pa.DataType) -> bool:
    """Whether a column's type can be read as the field: other tools widen and narrow types."""
    if name == "image":
        return pa.types.is_struct(kind) and all(
            _is_text(part.type) or plain_type(part.type) == pa.large_binary()
            for part in kind
            if part.name in ("bytes", "path")
        )
    if name == "id":
        return _is_text(kind) or pa.types.is_integer(kind)
    if name == "paragraph_score":
        return kind == pa.null() or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    kind = plain_type(kind)
    return _is_text(kind.value_type if name in LIST_FIELDS and _is_list(kind) else kind)


def writable_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a column whose values change: its own where that can hold any, or `SCHEMA`'s."""
    ours = SCHEMA.field(name).type
    if name == "paragraph_score":
        return ours if kind == pa.null() else kind
    if name in LIST_FIELDS:
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return kind if lists and kind.value_type in (pa.string(), pa.large_string()) else ours
    if pa.types.is_dictionary(kind) and kind.value_type in (pa.string(), pa.large_string()):
        return pa.dictionary(pa.int32(), kind.value_type)  # narrower ones may run out of numbers
    return kind if kind in (pa.string(), pa.large_string()) else ours


def with_values(
    name: str, column: pa.ChunkedArray, kind: pa.DataType, values: Mapping[int, Any]
) -> pa.Array:
    """A column as an array of type `kind`, which `writable_type` gave, with new values in it.

    Args:
        name: of the field.
        column: as it was read.
        kind: of the new column.
        values: what to put in, by row.
    """
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    chunks = column.chunks
    if pa.types.is_dictionary(column.type) and plain == column.type.value_type:
        chunks = [chunk.dictionary_decode() for chunk in chunks]
    elif column.type != plain:
        chunks = [pa.array(python_values(name, column), plain)]
    order = np.arange(len(column))
    order[list(values)] = len(column) + np.arange(len(values))
    changed = pa.concat_arrays([*chunks, pa.array(list(values.values()), plain)]).take(order)
    return changed.dictionary_encode() if pa.types.is_dictionary(kind) else changed


def python_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """One column as Python values that suit the field of a record; nothing becomes a default."""
    if name == "image":
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # an empty table, or one past 2 GiB
            array = pa.concat_arrays(array.chunks)
        names = [part.name for part in array.type]
        parts = dict(zip(names, array.flatten(), strict=True))  # null where the struct is
        nothing = pa.nulls(len(array))
        data = parts.get("bytes", nothing).to_pylist()
        paths = _strings(plain(parts.get("path", nothing)))
        return [ImageRef(d, p) for d, p in zip(data, paths, strict=True)]
    array = plain(column)
    if name in LIST_FIELDS:
        return _lists(array)
    if name == "paragraph_score":
        return [int(v) if v is not None and v == v else None for v in array.to_pylist()]
    texts = _strings(array)
    if name == "id":
        return ["" if text is None else str(text) for text in texts]
    return [text or "train" for text in texts] if name == "split" else texts


def _lists(array: pa.Array) -> list[list[str]]:
    """Lists of strings, cut from the flat values: several times as quick as `to_pylist`."""
    if not pa.types.is_large_list(array.type):
        return [[] if text is None else [text] for text in _strings(array)]
    flat, ends = _strings(array.values), array.offsets.to_pylist()
    lists = (flat[first:end] for first, end in pairwise(ends))
    if array.null_count:  # what a missing list spans is not its
        there = array.is_valid().to_pylist()
        lists = (texts if is_there else [] for texts, is_there in zip(lists, there, strict=True))
    return [[text for text in texts if text is not None] for texts in lists]


def _strings(array: pa.Array) -> list[Any]:
    """Strings; bytes that are not UTF-8, which other tools may write, show as \xff escapes."""
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if b is None else b.decode("utf-8", "backslashreplace") for b in raw]
