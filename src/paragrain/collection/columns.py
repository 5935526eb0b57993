"""From a Parquet column, ours or another tool's, to values of a record's field, and back."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from paragrain.collection.fields import FIELDS, STRING, ImageRef, normal
from paragrain.errors import ParagrainError

_STRINGS = (pa.string(), pa.large_string())
_LISTS = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)


def wrong_column(schema: pa.Schema) -> str | None:
    """What is wrong with the columns of a Parquet file, if anything is."""
    if "id" not in schema.names:
        return "it has no column `id`"
    for name in FIELDS:
        if name in schema.names and not fits(name, schema.field(name).type):
            return f"its column `{name}` has the type {schema.field(name).type}"
    return None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the same values without a dictionary or views, which other tools write.

    Lists of any form become large lists. What is neither text nor bytes nor made of them stays.

    >>> plain_type(pa.list_view(pa.dictionary(pa.int8(), pa.string_view())))
    LargeListType(large_list<item: large_string>)
    """
    if types.is_dictionary(kind):
        kind = kind.value_type
    if any(is_list(kind) for is_list in _LISTS):
        return pa.large_list(plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([part.with_type(plain_type(part.type)) for part in kind])
    if kind in _STRINGS or kind == pa.string_view():
        return pa.large_string()
    if types.is_fixed_size_binary(kind) or kind in (pa.binary(), pa.binary_view()):
        return pa.large_binary()
    return kind


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """An array, or all chunks of one, as an array of `plain_type`."""
    kind = plain_type(array.type)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    chunks = [chunk if chunk.type == kind else chunk.cast(kind) for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], kind), *chunks])


def fits(name: str, kind: pa.DataType) -> bool:
    """Whether a column's type can be read as a field: other tools widen and narrow types."""
    if name == "id" and types.is_integer(kind):
        return True
    if name == "image" and not types.is_struct(kind):
        return False
    return _readable(plain_type(kind), FIELDS[name].type, bytes_too=name == "image")


def _readable(kind: pa.DataType, wanted: pa.DataType, bytes_too: bool) -> bool:
    if kind == pa.null():
        return True
    if types.is_list(wanted):
        if types.is_large_list(kind):
            return _readable(kind.value_type, wanted.value_type, bytes_too)
        return wanted.value_type == STRING and _readable(kind, STRING, bytes_too)
    if types.is_struct(wanted):
        return types.is_struct(kind) and all(
            _readable(kind.field(part.name).type, part.type, bytes_too)
            for part in wanted
            if kind.get_field_index(part.name) >= 0
        )
    if types.is_integer(wanted) or types.is_floating(wanted):
        return types.is_integer(kind) or types.is_floating(kind)
    return kind == pa.large_string() or (bytes_too and kind == pa.large_binary())


def writable_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a column whose values change: its own where that can hold any, or the table's."""
    field = FIELDS[name]
    if field.is_nested:
        return field.type
    if field.is_list:
        is_plain = types.is_list(kind) or types.is_large_list(kind)
        return kind if is_plain and kind.value_type in _STRINGS else field.type
    if field.type != STRING:
        return field.type if kind == pa.null() else kind
    if types.is_dictionary(kind) and kind.value_type in _STRINGS:
        return pa.dictionary(pa.int32(), kind.value_type)  # narrower ones may run out of numbers
    return kind if kind in _STRINGS else field.type


def with_values(
    name: str, column: pa.ChunkedArray, kind: pa.DataType, values: Mapping[int, Any]
) -> pa.Array:
    """A column as an array of type `kind`, which `writable_type` gave, with new values by row."""
    plain = kind.value_type if types.is_dictionary(kind) else kind
    chunks = column.chunks
    if types.is_dictionary(column.type) and plain == column.type.value_type:
        chunks = [chunk.dictionary_decode() for chunk in chunks]
    elif column.type != plain:
        chunks = [pa.array(python_values(name, column), plain)]
    order = np.arange(len(column))
    order[list(values)] = len(column) + np.arange(len(values))
    changed = pa.concat_arrays([*chunks, pa.array(list(values.values()), plain)]).take(order)
    return changed.dictionary_encode() if types.is_dictionary(kind) else changed


def python_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """One column as Python values that suit the field of a record; nothing becomes a default."""
    if name == "image":
        return _images(column)
    field, array = FIELDS[name], plain(column)
    if field.is_nested or types.is_integer(field.type):
        try:
            return [normal(value, field.type) for value in array.to_pylist()]
        except UnicodeDecodeError:
            raise ParagrainError(f"the column `{name}` holds text that is not UTF-8") from None
    if field.is_list:
        return _lists(array)
    texts = _strings(array)
    if name == "id":
        return ["" if text is None else str(text) for text in texts]
    return [text or "train" for text in texts] if name == "split" else texts


def _images(column: pa.ChunkedArray) -> list[ImageRef]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # an empty table, or one past 2 GiB
        array = pa.concat_arrays(array.chunks)
    names = [part.name for part in array.type]
    parts = dict(zip(names, array.flatten(), strict=True))  # null where the struct is
    nothing = pa.nulls(len(array))
    data = parts.get("bytes", nothing).to_pylist()
    paths = _strings(plain(parts.get("path", nothing)))
    return [ImageRef(d, p) for d, p in zip(data, paths, strict=True)]


def _lists(array: pa.Array) -> list[list[str]]:
    """Lists of strings, cut from the flat values: several times as quick as `to_pylist`."""
    if not types.is_large_list(array.type):
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
