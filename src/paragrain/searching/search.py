"""Exact search: the images of a collection whose vectors are nearest to a text's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paragrain.collection import Collection
from paragrain.embeddings import embed, none_embedded
from paragrain.encoders.base import ImageTextEncoder, encode_tokens
from paragrain.errors import UsageError
from paragrain.retrieval import top_k


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


@dataclass(frozen=True)
class SearchResult(Sequence[Hit]):
    """Hits, best first, and what became of the query.

    Attributes:
        hits: best first; equal scores in the order of the collection.
        query: the text that was asked.
        cut: the end of the query that was not read, "" if all of it was.
        tokens: tokens of the whole query, special tokens included.
        budget: how many of them are read.
        failed: (id, reason) of images that could not be searched.
    """

    hits: list[Hit]
    query: str
    cut: str
    tokens: int
    budget: int
    failed: list[tuple[str, str]]

    def __len__(self) -> int:
        """Number of hits."""
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        """A hit, or several."""
        return self.hits[index]


def search(
    collection: Collection,
    encoder: ImageTextEncoder,
    query: str,
    *,
    k: int = 5,
    tokens: int | None = None,
    split: str | None = None,
    show: bool = True,
) -> SearchResult:
    """Find the `k` images that a text describes best, comparing with every image.

    Args:
        collection: its images are embedded once and cached; a rerun embeds only new ones.
        encoder: from `load_encoder`, or a run's `.encoder`.
        query: any length; what is beyond the budget is not read, and told in `.cut`.
        k: number of hits; the first five of fifteen are the five.
        tokens: budget; by default all that the encoder can read.
        split: search one split only.
        show: whether to show progress.

    Raises:
        UsageError: an empty query, k below 1, an unknown split, or too large a budget.
    """
    if not query.strip():
        raise UsageError("the query is empty: describe what you are looking for")
    if k < 1:
        raise UsageError(f"k is the number of images to find, at least 1, not {k}")
    tokenized = encoder.tokenize([query], encoder.max_tokens if tokens is None else tokens)
    embeddings = embed(collection, encoder, split=split, show=show)
    if not embeddings.ids:
        raise none_embedded(collection, split, embeddings.failed)
    indices, scores = top_k(encode_tokens(encoder, tokenized), embeddings.vectors, k)
    ids = [embeddings.ids[index] for index in indices[0]]
    records = collection.get(ids, images=False)
    hits = [
        Hit(id, records[id].image.path, float(score))
        for id, score in zip(ids, scores[0], strict=True)
    ]
    return SearchResult(
        hits,
        query,
        encoder.unread(query, int(tokenized.kept[0])),
        int(tokenized.lengths[0]),
        tokenized.budget,
        embeddings.failed,
    )
