"""Which columns of a Parquet file hold the images, texts and ids, by their names and types."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from paragrain.collection.columns import fits, plain_type
from paragrain.collection.fields import LIST_FIELDS, NESTED_FIELDS, TEXT_FIELDS
from paragrain.errors import UsageError
from paragrain.sources.texts import ID_COLUMNS, field_of

IMAGE_COLUMNS = (
    "image", "img", "jpg", "jpeg", "png", "webp", "picture", "photo", "image_bytes", "img_bytes",
    "bytes", "image_data", "content",
)  # fmt: skip
"""Names of columns of images, the most telling first."""

FURTHER = {"sentences": "captions", "sentence": "captions", "raw": "captions"}
"""Columns of texts with other names than those of a table of texts."""

TURNS = ("conversations", "conversation", "messages")
"""Columns of conversations about the image."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a file are for.

    Attributes:
        image: the column of the images.
        bytes: where their bytes are, such as "image.bytes"; `None` if only paths are there.
        path: where their paths are, if anywhere.
        id: the column that could be the id.
        fields: the field of a record that each column of texts fills.
        turns: the column of conversations, if one is used.
        prose: further columns of text.
        unread: columns that are called after a field and hold something else, with its type.
    """

    image: str
    bytes: str | None
    path: str | None
    id: str | None
    fields: dict[str, str] = field(default_factory=dict)
    turns: str | None = None
    prose: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def choose(
    schema: pa.Schema,
    image: str | None,
    texts: Sequence[str],
    aim: str | None,
    id: str | None,
) -> Columns:
    """Choose the columns; those that are named must be there.

    Args:
        schema: of the file.
        image: the column of the images; by default the only one that can be, or the first of
            `IMAGE_COLUMNS`.
        texts: the columns of the texts; by default all that are called after a field, or as in
            `FURTHER` and `TURNS`.
        aim: the field that `texts` fill; by default that of their names, or captions.
        id: the column of the ids; by default the first of `ID_COLUMNS`.

    Raises:
        UsageError: a column is not there, or it is not clear which holds the images.
    """
    if aim is not None and aim not in TEXT_FIELDS:
        choices = ", ".join(TEXT_FIELDS)
        raise UsageError(f"a record has no texts called {aim!r}: choose from {choices}")
    for name in (image, *texts, id):
        if name is not None and name not in schema.names:
            raise UsageError(f"it has no column `{name}`: it has {', '.join(schema.names)}")
    image = image or _image(schema)
    kind = schema.field(image).type
    low = {name.lower(): name for name in schema.names if name != image}
    id = id or next((low[name] for name in ID_COLUMNS if name in low), None)
    fields = {} if texts else _fields(schema, {image, id})
    turns = next((name for name in fields if name.lower() in TURNS), None)
    for name in texts:
        turns = name if name.lower() in TURNS else turns
        known = field_of(name) or FURTHER.get(name.lower())
        fields[name] = aim or known or ("description" if name == turns else "captions")
    others = _others(schema, {image, id, *fields})
    prose = tuple(name for name in others if _is_text(schema.field(name).type))
    unread = () if texts else _unread(schema, {image, id, *fields})
    if texts:
        fields |= {name: name for name in others if name in ("split", "group", "url")}
    parts = [part.name for part in kind] if pa.types.is_struct(kind) else []
    if parts:
        inner = {part: f"{image}.{part}" for part in parts}
        places = inner.get("bytes"), inner.get("path")
    else:
        is_bytes = plain_type(kind) == pa.large_binary()
        places = (image, None) if is_bytes else (None, image)
    return Columns(image, *places, id, fields, turns, prose, unread)


def _unread(schema: pa.Schema, taken: set[str | None]) -> tuple[str, ...]:
    """Columns that are called after a field of a record and have no type for it."""
    return tuple(
        f"`{name}` ({schema.field(name).type})"
        for name in _others(schema, taken)
        if (field := field_of(name) or FURTHER.get(name.lower()))
        and not _fits(field, schema.field(name).type)
    )


def _image(schema: pa.Schema) -> str:
    able = [name for name in schema.names if _can_be_image(schema.field(name).type)]
    low = {name.lower(): name for name in able}
    if best := next((low[name] for name in IMAGE_COLUMNS if name in low), None):
        return best
    if len(able) == 1:
        return able[0]
    has = ", ".join(schema.names)
    if able:
        raise UsageError(f"images may be in {', '.join(able)}: name one with --image-column")
    paths = [name for name in schema.names if name.lower() in IMAGE_COLUMNS]
    texts = [name for name in paths if _is_text(schema.field(name).type)]
    if texts:
        return texts[0]
    raise UsageError(f"no column holds images: it has {has}; name one with --image-column")


def _can_be_image(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        parts = {part.name: plain_type(part.type) for part in kind}
        return (parts.get("bytes") in (pa.large_binary(), pa.null()) and "path" in parts) or (
            parts.get("bytes") == pa.large_binary()
        )
    return plain_type(kind) == pa.large_binary()


def _fields(schema: pa.Schema, taken: set[str | None]) -> dict[str, str]:
    """The field of every column that is called after one and has the type for it."""
    fields: dict[str, str] = {}
    for name in _others(schema, taken):
        kind = schema.field(name).type
        field = field_of(name) or FURTHER.get(name.lower())
        if field is None and name.lower() in TURNS and _is_list(kind):
            field = "description"
        if field is None or not _fits(field, kind):
            continue
        if field in LIST_FIELDS or field not in fields.values():
            fields[name] = field
    return fields


def _others(schema: pa.Schema, taken: set[str | None]) -> list[str]:
    return [name for name in schema.names if name not in taken]


def _fits(field: str, kind: pa.DataType) -> bool:
    if field in NESTED_FIELDS:
        return fits(field, kind)
    if field in ("group", "paragraph_score") and pa.types.is_integer(kind):
        return True
    if field == "paragraph_score":
        return pa.types.is_floating(kind)
    if plain_type(kind) == pa.large_binary():  # text of tools that do not say so
        return True
    return _is_text(kind) or (_is_list(kind) and field in TEXT_FIELDS)


def _is_text(kind: pa.DataType) -> bool:
    return plain_type(kind) == pa.large_string()


def _is_list(kind: pa.DataType) -> bool:
    kind = plain_type(kind)
    if not pa.types.is_large_list(kind):
        return False
    return _is_text(kind.value_type) or pa.types.is_struct(kind.value_type)
