# ruff: noqa: RUF009  (the lines of the table are calls)
"""The table of record fields, which is the class `Record`; all that depends on them reads it.

A line of the class says the field's name, its type in Python and in Arrow, what role it plays, how
many tokens of a text are read, who writes it and which columns of other tables fill it. Schema,
importers, updates, kept texts, training, protocols and statistics ask `FIELDS`.
"""

import builtins
import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from paragrain.errors import UsageError
from paragrain.files import digest

STRING = pa.string()
IMAGE = pa.struct([("bytes", pa.binary()), ("path", STRING)])

Role = Literal["record", "text", "note", "fact"]


@dataclass(frozen=True)
class Field:
    """What is known of one field of a record.

    Attributes:
        type: its Arrow type; lists and structs may be nested.
        role: "text" is about the image; "note" is about such texts; "fact" is known of the image
            beside them. These follow the image's content from record to record. What has the role
            "record" is said anew by each import.
        max_length: tokens that training reads of one text, special tokens included, by default.
        writer: who writes it: the "source" of an import, "annotation", or the "collection".
        annotated_as: what annotation calls such texts.
        negative: wrong on purpose.
        columns: the names of columns of other tables that fill it, in lower case.
        values: the whole numbers that it can be.
        optional: it has a column only in files in which some record has it, so that a collection
            without it has the same bytes and the same fingerprint as before there was the field.
    """

    type: pa.DataType
    role: Role = "record"
    max_length: int | None = None
    writer: Literal["source", "annotation", "collection"] = "source"
    annotated_as: str | None = None
    negative: bool = False
    columns: tuple[str, ...] = ()
    values: range | None = None
    optional: bool = True

    @property
    def is_list(self) -> bool:
        """Whether it holds any number of values; nothing is then `[]`, else None."""
        return pa.types.is_list(self.type)

    @property
    def is_nested(self) -> bool:
        """Whether there are structs in it, or lists in lists."""
        inner = self.type.value_type if self.is_list else self.type
        return pa.types.is_nested(inner)

    @property
    def is_text(self) -> bool:
        """Whether it holds texts about the image and nothing else."""
        return self.role == "text" and not self.is_nested

    def checked(self, value: Any) -> Any:
        """`value` as the column gives it back: numbers of its width, structs with all their parts.

        Raises:
            ValueError: it does not suit the field.

        >>> Field(pa.list_(pa.struct([("box", pa.list_(pa.int32())), ("label", STRING)]))).checked(
        ...     [{"box": [1, 2]}]
        ... )
        [{'box': [1, 2], 'label': None}]
        """
        in_range = self.values is None or value is None or value in self.values
        if not (in_range and (_suits(value, self.type) or (value is None and not self.is_list))):
            raise ValueError(f"{value!r} does not suit {self.type}")
        return normal(pa.array([value], self.type)[0].as_py(), self.type)


def _suits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_suits(part, kind.value_type) for part in value)
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and all(
            kind.get_field_index(name) >= 0
            and (part is None or _suits(part, kind.field(name).type))
            for name, part in value.items()
        )
    if pa.types.is_floating(kind):
        return isinstance(value, int | float) and not isinstance(value, bool)
    wanted = int if pa.types.is_integer(kind) else bytes if pa.types.is_binary(kind) else str
    return type(value) is wanted


def normal(value: Any, kind: pa.DataType) -> Any:
    """A value of a similar type as one of `kind`: nothing is `[]` for lists, and so are parts."""
    if pa.types.is_list(kind):
        return [normal(part, kind.value_type) for part in value or []]
    if value is None or value != value:
        return None
    if pa.types.is_struct(kind):
        return {part.name: normal(value.get(part.name), part.type) for part in kind}
    if pa.types.is_integer(kind):
        return int(value)
    return float(value) if pa.types.is_floating(kind) else value


@dataclass
class ImageRef:
    """An image: its encoded bytes, or its path below the collection's folder.

    Where both are there the bytes count and the path is only a name. Where neither is, the
    record has no image. This is the layout of the Hugging Face `Image` feature.
    """

    bytes: builtins.bytes | None = None
    path: str | None = None

    def __repr__(self) -> str:
        """The path, and how many bytes there are: not the bytes, which may be megabytes."""
        size = None if self.bytes is None else f"<{len(self.bytes):,} bytes>"
        return f"ImageRef(bytes={size}, path={self.path!r})"


def column(type: pa.DataType, role: Role = "record", *, default: Any = None, **known: Any) -> Any:
    """A field of `Record`; `known` are attributes of `Field`, `default` may be a function."""
    row = Field(_as_in_parquet(type), role, **known)
    make = list if row.is_list else default if callable(default) else None
    says = {"default_factory": make} if make else {"default": default}
    return dataclasses.field(**says, metadata={"field": row})


def _as_in_parquet(kind: pa.DataType) -> pa.DataType:
    """The type as it comes back from a file, where the parts of lists are called `element`."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _as_in_parquet(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_as_in_parquet(part.type)) for part in kind])
    return kind


_always = partial(column, optional=False)
_text = partial(_always, STRING, "text", max_length=128)
_texts = partial(_always, pa.list_(STRING), "text", max_length=77)
_annotated = {"writer": "annotation"}


@dataclass
class Record:
    """One image with everything that is written about it.

    Attributes:
        id: unique in its collection; a string, never a number.
        image: the picture.
        split: "train", "val", "test" or any other name.
        captions: short texts that came with the image; the first is "the original".
        description: a long text that came with the image.
        generated: short texts that a model wrote.
        negatives: short texts that are wrong on purpose.
        paragraph: a text of several sentences that a model wrote.
        paragraph_score: how faithful a judge found the paragraph, 0 (wrong) to 10.
        group: records with equal groups show the same photo or scene, so that their texts are
            never each other's wrong answers.
        source: the data set it comes from.
        url: where the image was found.
        graph: the exact scene graph of a drawn scene, as JSON.
        content: `images.content_hash` of the image's bytes; the writer fills it in.
        annotation: who wrote `generated`, `negatives` and `paragraph`: models, prompt version,
            attempts and scores, as JSON; None where they came with the data.
    """

    id: str = _always(STRING, default=dataclasses.MISSING)
    image: ImageRef = _always(IMAGE, default=ImageRef)
    split: str = _always(STRING, default="train", columns=("split",))
    captions: list[str] = _texts(columns=("captions", "caption", "text", "alt", "alt_text"))
    description: str | None = _text(columns=("description",))
    generated: list[str] = _texts(**_annotated, annotated_as="captions", columns=("generated",))
    negatives: list[str] = _texts(
        **_annotated, annotated_as="negatives", columns=("negatives",), negative=True
    )
    paragraph: str | None = _text(**_annotated, annotated_as="paragraph", columns=("paragraph",))
    paragraph_score: int | None = _always(
        pa.int32(), "note", **_annotated, columns=("paragraph_score",), values=range(11)
    )
    group: str | None = _always(STRING, "fact", columns=("group",))
    source: str | None = _always(STRING)
    url: str | None = _always(STRING, "fact", columns=("url",))
    graph: str | None = _always(STRING, "fact")
    content: str | None = _always(STRING, writer="collection")
    annotation: str | None = _always(STRING, "note", **_annotated)

    def texts(self, field: str) -> list[str]:
        """The texts of one of `TEXT_FIELDS`: a list as it is, a single text as a list of 0 or 1.

        Raises:
            UsageError: there is no such text field.

        >>> Record("7", paragraph="A red circle. It is big.").texts("paragraph")
        ['A red circle. It is big.']
        >>> Record("7").texts("paragraph")
        []
        """
        if field not in TEXT_FIELDS:
            raise UsageError(
                f"a record has no texts called {field!r}: choose from {', '.join(TEXT_FIELDS)}"
            )
        value = getattr(self, field)
        if isinstance(value, list):
            return value
        return [] if value is None else [value]


FIELDS: dict[str, Field] = {f.name: f.metadata["field"] for f in dataclasses.fields(Record)}
"""The table: all fields of a record by name, in the order of the columns."""

TEXT_FIELDS = tuple(name for name, field in FIELDS.items() if field.is_text)
"""The fields of a record that hold text about its image."""

LIST_FIELDS = tuple(name for name in TEXT_FIELDS if FIELDS[name].is_list)
"""The text fields that hold any number of texts; the others hold one or none."""

POSITIVE_FIELDS = tuple(name for name in TEXT_FIELDS if not FIELDS[name].negative)
"""The text fields that are meant to be true of their image."""

NESTED_FIELDS = tuple(name for name, field in FIELDS.items() if field.is_nested and name != "image")
"""The fields with lists or structs in their values."""


def schema_of(optional: Iterable[str] = ()) -> pa.Schema:
    """The Arrow schema of a Parquet file, with some of the optional columns.

    Its metadata is that from which `datasets` knows that `image` is a picture.
    """
    named = {n: f for n, f in FIELDS.items() if not f.optional or n in {*optional}}
    features = {name: _feature(field.type) for name, field in named.items()}
    features["image"] = {"_type": "Image"}
    described = json.dumps({"info": {"features": features}}).encode()
    types = {name: field.type for name, field in named.items()}
    return pa.schema(types, metadata={b"huggingface": described})


def _feature(kind: pa.DataType) -> Any:
    """A type as `datasets` describes it.

    Lists are called by their older name, "Sequence", which old and new releases both read.
    """
    if pa.types.is_struct(kind):
        return {part.name: _feature(part.type) for part in kind}
    if pa.types.is_list(kind):
        inner = _feature(kind.value_type)
        structs = pa.types.is_struct(kind.value_type)  # a "Sequence" of them is turned inside out
        return [inner] if structs else {"feature": inner, "_type": "Sequence"}
    dtype = {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return {"dtype": dtype, "_type": "Value"}


SCHEMA: pa.Schema = schema_of()
"""The Arrow schema of a Parquet file without optional columns."""


def is_empty(value: Any) -> bool:
    """Whether a field says nothing."""
    return value is None or value == []


def schema_for(records: Iterable[Record]) -> pa.Schema:
    """The schema of a Parquet file of some records."""
    optional = [name for name, field in FIELDS.items() if field.optional]
    said = {n for record in records for n in optional if not is_empty(getattr(record, n))}
    return schema_of(said) if said else SCHEMA


def to_table(records: Iterable[Record], schema: pa.Schema = SCHEMA) -> pa.Table:
    """The records as one Arrow table."""
    return pa.Table.from_pylist(
        [{**vars(record), "image": vars(record.image)} for record in records], schema=schema
    )


def record_digest(record: Record) -> int:
    """A 128-bit number from all of a record but its image bytes, for which `content` stands.

    What came into the table later and is empty is left out: a record has the digest that it had
    before there was the field.

    Raises:
        UnicodeEncodeError: a text holds an unpaired surrogate, which UTF-8 cannot express.
    """
    row = {
        name: value
        for name, value in vars(record).items()
        if not (is_empty(value) and (FIELDS[name].optional or name == "annotation"))
    }
    row["image"] = record.image.path
    text = json.dumps(row, ensure_ascii=False, sort_keys=True)
    return int.from_bytes(digest(text.encode("utf-8")))


def combined(digests: Iterable[int]) -> int:
    """One 128-bit number for many records in whatever order and shards: the sum of theirs.

    >>> combined([2, 3]) == combined([combined([3]), 2])
    True
    """
    return sum(digests) % 2**128
