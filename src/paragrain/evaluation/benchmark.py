"""What is evaluated: the images of a split, their texts, and who belongs to whom."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np

from paragrain.collection import Collection, Record
from paragrain.collection.fields import POSITIVE_FIELDS
from paragrain.collection.splits import families
from paragrain.embeddings import embed, none_embedded
from paragrain.encoders.base import ImageTextEncoder, Tokens, encode_tokens
from paragrain.errors import UsageError
from paragrain.evaluation.stored import KS, QueryRanks
from paragrain.retrieval import RetrievalScores, exact_ranks, group_numbers, scores_from_ranks

DEFAULT_SPLIT = "test"

RIGHT_FIELDS = ("paragraph", *(name for name in POSITIVE_FIELDS if name != "paragraph"))
"""The text fields that images can be evaluated by, the one that is taken by default first."""


@dataclass(frozen=True, eq=False, repr=False)
class Benchmark:
    """N images and the M texts of one field that ask for them, and are asked for by them.

    The image embeddings belong to the image tower of one encoder; every encoder that shares it (all
    that were fine-tuned from it) can be scored.

    Attributes:
        text_field: which texts: one of `paragraph`, `captions`, `description`, `generated`.
        split: the split they are from; None for the whole collection.
        ids: N ids, in the order of the collection.
        images: float32 `[N, D]` unit vectors; images without texts stay in the gallery.
        groups: int64 `[N]`, the same number for images that show the same thing.
        texts: M texts, image by image.
        text_image: int64 `[M]`, the row of the image of each text.
        vision_fingerprint: of the image tower that made the vectors.
        contents: the content hash of each image.
        splits: the split of each image.
        failed: (id, reason) of images that could not be embedded, which are left out.
        empty_texts: texts of nothing but white space, which are left out.
        cache: where the image embeddings are kept, and the ranks of a killed evaluation; None if
            nothing can be written there.
    """

    text_field: str
    split: str | None
    ids: list[str]
    images: np.ndarray
    groups: np.ndarray
    texts: list[str]
    text_image: np.ndarray
    vision_fingerprint: str
    contents: list[str]
    splits: list[str]
    failed: list[tuple[str, str]] = field(default_factory=list)
    empty_texts: int = 0
    cache: Path | None = None

    @classmethod
    def load(
        cls,
        collection: Collection,
        encoder: ImageTextEncoder,
        texts: str,
        *,
        split: str | None = None,
        ids: Sequence[str] | None = None,
        one_to_one: bool = False,
        progress: bool = True,
    ) -> "Benchmark":
        """Embed the images of a split (cached) and read its texts.

        Args:
            collection, encoder, texts, split: as in `evaluate`; `None` is the whole collection.
            ids: take (and embed) only these images, of those of the split.
            one_to_one: take only the first text of each image.
            progress: whether to show progress.

        Raises:
            UsageError: there is no such split or field.
            UsageError: no image of the split has such a text.
        """
        if texts not in RIGHT_FIELDS:  # refused before anything is computed
            raise UsageError(
                f"images cannot be evaluated by {texts!r}: choose from {', '.join(RIGHT_FIELDS)}"
            )
        wanted = None if ids is None else frozenset(ids)
        embeddings = embed(collection, encoder, split=split, ids=wanted, progress=progress)
        if not embeddings.ids:
            raise none_embedded(collection, split, embeddings.failed)
        row_of = {id: row for row, id in enumerate(embeddings.ids)}
        records: list[Record] = []
        found: list[str] = []
        text_image: list[int] = []
        empty = 0
        for record in collection.records(split, fields=(texts, "group")):
            if record.id not in row_of:
                continue
            records.append(record)
            own = [text for text in record.texts(texts) if text.strip()]
            empty += len(record.texts(texts)) - len(own)
            own = own[:1] if one_to_one else own
            found += own
            text_image += [row_of[record.id]] * len(own)
        if not found:
            have = fields_with_texts(collection, split)
            raise UsageError(
                f"no image of {collection.place(split)} has a text in {texts!r}: "
                + (f"evaluate on {', '.join(have)}" if have else "import texts first")
            )
        return cls(
            texts,
            split,
            embeddings.ids,
            embeddings.vectors,
            groups_of(records, embeddings.contents),
            found,
            np.asarray(text_image, dtype=np.int64),
            encoder.vision_fingerprint,
            embeddings.contents,
            [record.split for record in records],
            embeddings.failed,
            empty,
            embeddings.cache,
        )

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits over what is measured, whatever its order: ids, contents, texts.

        Not over the rest of the records: of two imports of the same data from lists of other names
        each says another `source`, and results on both are results on one benchmark.
        """
        own: list[list[str]] = [[] for _ in self.ids]
        for text, image in zip(self.texts, self.text_image.tolist(), strict=True):
            own[image].append(text)
        rows = sorted(zip(self.ids, self.contents, map(sorted, own), strict=True))
        text = json.dumps(rows, ensure_ascii=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        """What it is, in one line."""
        return (
            f"<Benchmark of {len(self.ids):,} images, split {self.split or 'all'}, and "
            f"{len(self.texts):,} texts of {self.text_field}>"
        )

    def tokenize(
        self,
        encoder: ImageTextEncoder,
        max_length: int,
        normalise: str = "none",
        truncation: str = "tokens",
    ) -> Tokens:
        """The texts as tokens of `encoder`, cut at `tokens`; see `ImageTextEncoder.tokenize`."""
        return encoder.tokenize(self.texts, max_length, normalise=normalise, truncation=truncation)

    def rank(
        self,
        encoder: ImageTextEncoder,
        tokens: Tokens,
        *,
        progress: bool = False,
        **encoding: int,
    ) -> QueryRanks:
        """Encode the texts with `encoder` and rank both ways.

        A ranking that was killed goes on where it was; what it has counted lies beside the image
        vectors, in a hidden file that goes when it is done.

        Raises:
            UsageError: `encoder` has another image tower than the one that made the vectors.
        """
        if encoder.vision_fingerprint != self.vision_fingerprint:
            raise UsageError(
                f"{encoder.name} has another image tower than the vectors of this benchmark: "
                "load the benchmark with it"
            )
        vectors = encode_tokens(encoder, tokens, progress=progress, **encoding)
        name = f".ranking-{blake2b(vectors.data, digest_size=8).hexdigest()}.npz"
        ranks = exact_ranks(
            self.images,
            vectors,
            self.text_image,
            groups=self.groups,
            wordings=group_numbers([wording(text) for text in self.texts]),
            resume=self.cache and self.cache / name,
            progress=progress,
        )
        return QueryRanks(self.ids, self.groups, self.text_image, ranks)

    def score(
        self,
        encoder: ImageTextEncoder,
        tokens: Tokens,
        *,
        ks: Sequence[int] = KS,
        progress: bool = False,
        **encoding: int,
    ) -> RetrievalScores:
        """`rank`, summed up."""
        return scores_from_ranks(
            self.rank(encoder, tokens, progress=progress, **encoding).ranks, ks
        )


def default_split(collection: Collection) -> str | None:
    """`test` if the collection has such a split, else None: all of it."""
    return DEFAULT_SPLIT if DEFAULT_SPLIT in collection.splits else None


def wording(text: str) -> str:
    """What two texts have in common that say the same: all but case and white space.

    >>> wording(" A dog\\n runs. ") == wording("a dog runs."), wording("a dog") == wording("a dog.")
    (True, False)
    """
    return " ".join(text.casefold().split())


def groups_of(records: Sequence[Record], contents: Sequence[str]) -> np.ndarray:
    """Number the groups of records, int64 `[N]`: those with one number show the same thing.

    Records of one group belong together, and so do records of byte-identical images.

    Args:
        records: N records.
        contents: the content hash of the image of each, as `embed` found it.

    >>> records = [Record("a", group="g"), Record("b"), Record("c", group="g"), Record("d")]
    >>> groups_of(records, ["1", "2", "3", "1"])
    array([0, 1, 0, 0])
    """
    return families(
        [f"content {content}", *([f"group {record.group}"] if record.group else [])]
        for record, content in zip(records, contents, strict=True)
    )


def fields_with_texts(
    collection: Collection,
    split: str | None,
    fields: Sequence[str] = RIGHT_FIELDS,
) -> list[str]:
    """Those of `fields` in which any record of the split has a text."""
    found: set[str] = set()
    for record in collection.records(split, fields=fields):
        found.update(name for name in fields if any(text.strip() for text in record.texts(name)))
    return [name for name in fields if name in found]
