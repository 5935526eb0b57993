"""`Record`, the one row type of every data set, and its form in Arrow and Parquet."""

import builtins
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from paragrain.errors import UsageError

TEXT_FIELDS = ("captions", "generated", "paragraph", "description", "negatives")
"""The fields of a record that hold text about its image."""

LIST_FIELDS = ("captions", "generated", "negatives")
"""The text fields that hold any number of texts; the others hold one or none."""


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

    id: str
    image: ImageRef = field(default_factory=ImageRef)
    split: str = "train"
    captions: list[str] = field(default_factory=list)
    description: str | None = None
    generated: list[str] = field(default_factory=list)
    negatives: list[str] = field(default_factory=list)
    paragraph: str | None = None
    paragraph_score: int | None = None
    group: str | None = None
    source: str | None = None
    url: str | None = None
    graph: str | None = None
    content: str | None = None
    annotation: str | None = None

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


FIELDS = tuple(f.name for f in fields(Record))


def _hugging_face_features() -> dict[bytes, bytes]:
    """The schema metadata from which `datasets` knows that `image` is a picture.

    Lists are called by their older name, "Sequence", which old and new releases both read.
    """
    text = {"dtype": "string", "_type": "Value"}
    features: dict[str, Any] = dict.fromkeys(FIELDS, text)
    features |= {name: {"feature": text, "_type": "Sequence"} for name in LIST_FIELDS}
    features["image"] = {"_type": "Image"}
    features["paragraph_score"] = {"dtype": "int32", "_type": "Value"}
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def _schema() -> pa.Schema:
    types: dict[str, pa.DataType] = {name: pa.string() for name in FIELDS}
    texts = pa.list_(pa.field("element", pa.string()))  # Parquet's own name, which comes back
    types |= dict.fromkeys(LIST_FIELDS, texts)
    types["image"] = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    types["paragraph_score"] = pa.int32()
    return pa.schema(types, metadata=_hugging_face_features())


SCHEMA: pa.Schema = _schema()
"""The Arrow schema of a collection's Parquet files."""


def to_table(records: Iterable[Record]) -> pa.Table:
    """The records as one Arrow table of `SCHEMA`."""
    return pa.Table.from_pylist(
        [{**vars(record), "image": vars(record.image)} for record in records], schema=SCHEMA
    )


def digest(record: Record) -> int:
    """A 128-bit number from all of a record but its image bytes, for which `content` stands.

    A record without an annotation has the digest that it had before there were annotations.

    Raises:
        UnicodeEncodeError: a text holds an unpaired surrogate, which UTF-8 cannot express.
    """
    row = {**vars(record), "image": record.image.path}
    if record.annotation is None:
        del row["annotation"]
    text = json.dumps(row, ensure_ascii=False, sort_keys=True)
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=16).digest(), "big")


def combined(digests: Iterable[int]) -> int:
    """One 128-bit number for many records in whatever order and shards: the sum of theirs.

    >>> combined([2, 3]) == combined([combined([3]), 2])
    True
    """
    return sum(digests) % 2**128
