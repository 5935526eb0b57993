"""Exact search: the images of a collection whose vectors are nearest to a text's."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from PIL import Image

from paragrain.collection import Collection
from paragrain.collection.reading import inside
from paragrain.embeddings import Embeddings, embed, none_embedded
from paragrain.encoders.base import ImageTextEncoder, Tokens, encode_tokens
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.tokens import is_whole
from paragrain.errors import UsageError
from paragrain.files import write_text
from paragrain.images import BadImage, content_hash, decode
from paragrain.retrieval import top_k
from paragrain.tables import Table


@dataclass(frozen=True)
class Hit:
    """One image that was found.

    Attributes:
        id: its id in the collection.
        path: its file name or path, as far as known.
        score: cosine of its vector with the query's, from -1 to 1.
    """

    id: str
    path: str | None
    score: float
    _collection: Collection = field(repr=False, compare=False)
    _content: str | None = field(repr=False, compare=False)

    @property
    def image(self) -> Image.Image:
        """The picture, upright RGB, read and decoded when it is asked for.

        Raises:
            BadImage: it cannot be read any more.
        """
        [record] = self._collection.get(self.id).values()
        return decode(self._collection.image_bytes(record))

    @property
    def file(self) -> Path | None:
        """The absolute path of a file that holds just this image; None if none is known.

        It lies in the collection's folder, or where the image was imported from, if what is there
        is still the same.
        """
        if self.path is None:
            return None
        own = self._collection.folder
        arguments = (self._collection.info.get("import") or {}).get("arguments") or {}
        for root in (own, arguments.get("folder"), arguments.get("images")):
            if isinstance(root, str | Path):
                try:
                    file = inside(Path(root), self.path)
                    content = content_hash(file.read_bytes())
                except (BadImage, OSError):
                    continue
                if content == self._content or (self._content is None and root == own):
                    return file
        return None


@dataclass(frozen=True, repr=False)
class SearchResult(Sequence[Hit]):
    """Hits, best first, and what became of the query.

    Attributes:
        hits: best first; equal scores in the order of the collection.
        query: the text that was asked.
        truncated: the end of the query that was not read, "" if all of it was.
        tokens: tokens of the whole query, special tokens included.
        max_length: how many of them are read.
        failed: (id, reason) of images that could not be searched.
    """

    hits: list[Hit]
    query: str
    truncated: str
    tokens: int
    max_length: int
    failed: list[tuple[str, str]]

    def __len__(self) -> int:
        """Number of hits."""
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        """A hit, or several."""
        return self.hits[index]

    def __repr__(self) -> str:
        """The query and the first few hits."""
        query = self.query if len(self.query) <= 40 else self.query[:37] + "..."
        first = ", ".join(f"{hit.id} {hit.score:.4f}" for hit in self.hits[:3])
        more = f", and {len(self) - 3:,} more" if len(self) > 3 else ""
        return f"<SearchResult {query!r}: {first}{more}>"

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON can say it."""
        return {
            "query": self.query,
            "hits": [
                {
                    "id": hit.id,
                    "path": hit.path,
                    "file": str(hit.file) if hit.file else None,
                    "score": hit.score,
                }
                for hit in self.hits
            ],
            "tokens": self.tokens,
            "max_length": self.max_length,
            "truncated": self.truncated,
            "failed": [list(item) for item in self.failed],
        }

    def to_frame(self) -> Any:
        """A pandas table with one row a hit: rank, id, path, file, score.

        Raises:
            ParagrainError: pandas is not installed.
        """
        return Table("", _COLUMNS, self._rows()).data_frame()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as .json (all of it) or .csv (one row a hit), whole or not at all.

        Raises:
            UsageError: the name ends in something else.
        """
        target = Path(path)
        if target.suffix == ".json":
            write_text(target, json.dumps(self.as_dict(), indent=2) + "\n")
        elif target.suffix == ".csv":
            Table("", _COLUMNS, self._rows()).write_csv(target)
        else:
            raise UsageError(f"hits are written as .json or .csv, not as {target.name}")

    def _rows(self) -> list[tuple[Any, ...]]:
        return [
            (rank, hit.id, hit.path, str(hit.file) if hit.file else None, hit.score)
            for rank, hit in enumerate(self.hits, 1)
        ]


_COLUMNS = ("rank", "id", "path", "file", "score")


@overload
def search(
    collection: str | os.PathLike[str] | Collection,
    encoder: str | os.PathLike[str] | ImageTextEncoder,
    query: str,
    *,
    k: int = ...,
    max_length: int | None = ...,
    split: str | None = ...,
    progress: bool = ...,
) -> SearchResult: ...


@overload
def search(
    collection: str | os.PathLike[str] | Collection,
    encoder: str | os.PathLike[str] | ImageTextEncoder,
    query: list[str] | tuple[str, ...],
    *,
    k: int = ...,
    max_length: int | None = ...,
    split: str | None = ...,
    progress: bool = ...,
) -> list[SearchResult]: ...


def search(
    collection: str | os.PathLike[str] | Collection,
    encoder: str | os.PathLike[str] | ImageTextEncoder,
    query: str | list[str] | tuple[str, ...],
    *,
    k: int = 5,
    max_length: int | None = None,
    split: str | None = None,
    progress: bool = True,
) -> SearchResult | list[SearchResult]:
    """The `k` images that a text describes best, by cosine, compared with every image.

    Image embeddings come from the collection's cache, and are added to it where they are missing.

    Args:
        collection: what to search, or its folder.
        encoder: embeds the images and the query; or its name, as for `load_encoder`.
        query: any text; what does not fit the length is told in `.truncated`. Of several
            texts there is a result each.
        k: number of hits; the first five of fifteen are the five.
        max_length: of the query; by default the encoder's own, `.max_length`.
        split: search one split only.
        progress: whether to show progress.

    Raises:
        UsageError: an empty query, k below 1, an unknown split, or too large a maximum length.
    """
    queries = list(query) if isinstance(query, list | tuple) else [query]
    if not queries:
        raise UsageError("there is no query: describe what you are looking for")
    for text in queries:
        if not isinstance(text, str):
            raise UsageError(f"a query is a text, not {type(text).__name__}")
        if not text.strip():
            raise UsageError("the query is empty: describe what you are looking for")
    if not is_whole(k) or k < 1:
        raise UsageError(f"k is the number of images to find, at least 1, not {k!r}")
    collection, encoder = Collection.open(collection), load_encoder(encoder)
    tokenized = encoder.tokenize(queries, encoder.max_length if max_length is None else max_length)
    embeddings = embed(collection, encoder, split=split, progress=progress)
    if not embeddings.ids:
        raise none_embedded(collection, split, embeddings.failed)
    results = _ask(collection, encoder, queries, tokenized, embeddings, k)
    return results[0] if isinstance(query, str) else results


def _ask(
    collection: Collection,
    encoder: ImageTextEncoder,
    queries: list[str],
    tokenized: Tokens,
    embeddings: Embeddings,
    k: int,
) -> list[SearchResult]:
    indices, scores = top_k(encode_tokens(encoder, tokenized), embeddings.vectors, k)
    found = [[embeddings.ids[index] for index in row] for row in indices]
    records = collection.get((id for ids in found for id in ids), images=False)
    return [
        SearchResult(
            [
                Hit(id, records[id].image.path, float(score), collection, records[id].content)
                for id, score in zip(ids, row, strict=True)
            ],
            query,
            encoder.unread(query, int(tokenized.kept[number])),
            int(tokenized.lengths[number]),
            tokenized.max_length,
            embeddings.failed,
        )
        for number, (query, ids, row) in enumerate(zip(queries, found, scores, strict=True))
    ]
