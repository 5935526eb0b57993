"""The image embeddings of a collection: computed once, kept beside it, brought up to date."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from paragrain.collection import Collection, Record
from paragrain.embeddings.linked import is_content_hash, linked_contents, linked_paths
from paragrain.embeddings.store import EmbeddingStore
from paragrain.encoders.base import ImageTextEncoder, encode_pixels
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.tokens import check_batch_size
from paragrain.errors import ParagrainError
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar
from paragrain.runtime import In, Out, cores, map_ahead

FEW = 0.1
"""Up to this share of missing vectors, records are fetched one by one instead of streamed."""


@dataclass(eq=False, repr=False)
class Embeddings:
    """The image embeddings of a collection or of one split of it.

    Attributes:
        ids: of the N records that have a vector, in the order of the collection.
        vectors: float32 `[N, D]`, of unit length.
        contents: the content hash of the image of each.
        fingerprint: of the image tower that made them.
        failed: (id, reason) of each record whose image cannot be used.
        computed: vectors computed by this call.
        reused: records that needed none, since the cache or an equal image had theirs.
        cache: where the vectors are kept; `None` if the collection's folder cannot be written.
    """

    ids: list[str]
    vectors: np.ndarray
    contents: list[str]
    fingerprint: str
    failed: list[tuple[str, str]]
    computed: int
    reused: int
    cache: Path | None = None

    def __repr__(self) -> str:
        """How many there are."""
        return (
            f"<Embeddings of {len(self.ids):,} images ({self.computed:,} computed, "
            f"{self.reused:,} reused, {len(self.failed):,} failed)>"
        )


def embed(
    collection: str | Path | Collection,
    encoder: str | Path | ImageTextEncoder,
    *,
    split: str | None = None,
    ids: str | Iterable[str] | None = None,
    batch_size: int = 64,
    progress: bool = True,
) -> Embeddings:
    """The image embeddings of a collection; only those that are not there yet are computed.

    A vector belongs to the bytes of an image and to a image tower: a changed image is embedded
    anew, an added one alone, equal images once, and encoders that differ only in their text side
    share all. The column `content` of a record is believed, where it holds a hash; where it does
    not, and of files that have changed (see `linked`), the bytes are read and hashed. A collection
    in a folder that cannot be written works too, without a cache.

    Args:
        collection: where the images come from, or its folder.
        encoder: on whichever device it is; or its name, as for `load_encoder`.
        split: only the records of this split.
        ids: only the records of these ids, or of one; what is cached of others stays there.
        batch_size: images in one forward pass.
        progress: whether to show a progress bar.

    Raises:
        UsageError: there is no such split, or the batch size is none.
        ParagrainError: the encoder gives vectors that are not finite, or the disk is full.
    """
    collection, encoder = Collection.open(collection), load_encoder(encoder)
    check_batch_size(batch_size)
    fingerprint = encoder.vision_fingerprint
    store = EmbeddingStore.open(
        collection.folder / "embeddings" / fingerprint,
        (encoder.dim,),
        fingerprint=fingerprint,
        encoder=encoder.name,
    )
    contents = known_contents(collection, split, progress=progress)
    if ids is not None:
        wanted = {ids} if isinstance(ids, str) else set(ids)
        contents = {id: content for id, content in contents.items() if id in wanted}
    missing = [id for id, content in contents.items() if content not in store]
    failed: dict[str, str] = {}
    computed = 0
    batch: dict[str, torch.Tensor] = {}

    def prepare(record: Record) -> _Prepared:
        return _prepare(record, collection, encoder, store)

    def finish_batch() -> int:
        vectors = encode_pixels(encoder, list(batch.values()))
        store.add(list(batch), vectors)
        done = len(batch)
        batch.clear()
        return done

    records = records_with_images(collection, split, missing)
    with progress_bar("embedding", len(missing), unit="images", show=progress) as advance:
        for done in ahead(prepare, records, batch_size):
            if done.reason:
                failed[done.id] = done.reason
            else:
                contents[done.id] = done.content
                if done.pixels is not None and done.content not in store:
                    batch.setdefault(done.content, done.pixels)
            if len(batch) == batch_size:
                computed += finish_batch()
            advance(1, f"{len(failed)} failed" if failed else "")
        if batch:
            computed += finish_batch()
    # Some records alone do not tell which vectors the collection needs no more.
    keep = None if ids is not None else _contents_to_keep(collection, split, contents)
    store.tidy(keep)

    embedded = [id for id in contents if id not in failed]
    own = [str(contents[id]) for id in embedded]
    return Embeddings(
        ids=embedded,
        vectors=store.rows(own),
        contents=own,
        fingerprint=fingerprint,
        failed=list(failed.items()),
        computed=computed,
        reused=len(embedded) - computed,
        cache=store.folder,
    )


def none_embedded(
    collection: Collection, split: str | None, failed: Sequence[tuple[str, str]]
) -> ParagrainError:
    """The error of a split of which no image can be used."""
    why = f" ({failed[0][0]}: {failed[0][1]})" if failed else ""
    return ParagrainError(
        f"none of the {len(failed):,} images of {collection.place(split)} can be used{why}: "
        "import them again"
    )


# --- Which images, and their bytes ------------------------------------------------------------


def known_contents(
    collection: Collection, split: str | None = None, *, progress: bool = False
) -> dict[str, str | None]:
    """The content hash of each record, in order; `None` where the record does not tell it.

    A column of that name that another tool wrote may hold anything; only hashes count. Of an image
    that lies as a file, the file tells, as it is now; if it is gone, what it was.
    """
    linked = linked_paths(collection)
    contents: dict[str, str | None] = {}
    path_of: dict[str, str] = {}
    for record in collection.records(split, fields=("content",)):
        contents[record.id] = record.content if is_content_hash(record.content) else None
        if record.image.path in linked:
            path_of[record.id] = record.image.path
    if path_of:
        now = linked_contents(collection, dict.fromkeys(path_of.values()), progress=progress)
        contents |= {id: now[path] for id, path in path_of.items() if path in now}
    return contents


def _contents_to_keep(
    collection: Collection, split: str | None, contents: dict[str, str | None]
) -> frozenset[str] | None:
    """Contents of all splits, so that those that are gone drop out; `None` if not all are known."""
    every = contents if split is None else known_contents(collection) | contents
    known = frozenset(content for content in every.values() if content)
    return known if all(every.values()) else None


def records_with_images(
    collection: Collection, split: str | None, missing: list[str]
) -> Iterator[Record]:
    """The missing records with their images, reading as little as possible."""
    if not missing:
        return
    if len(missing) <= FEW * len(collection):
        for start in range(0, len(missing), 256):
            yield from collection.get(missing[start : start + 256]).values()
        return
    wanted = set(missing)
    for record in collection.records(split, images=True, fields=()):
        if record.id in wanted:
            yield record


@dataclass(frozen=True)
class _Prepared:
    """One record on its way: its pixels, or nothing if its vector is there, or why it failed."""

    id: str
    content: str = ""
    pixels: torch.Tensor | None = None
    reason: str = ""


def _prepare(
    record: Record, collection: Collection, encoder: ImageTextEncoder, store: EmbeddingStore
) -> _Prepared:
    """Read, decode and preprocess one image; runs in a thread beside the forward pass."""
    try:
        data = collection.image_bytes(record)
        # Of the bytes themselves: what the record says may be older than its file.
        content = content_hash(data)
        if content in store:
            return _Prepared(record.id, content)
        return _Prepared(record.id, content, encoder.pixels(decode(data)))
    except BadImage as error:
        return _Prepared(record.id, reason=error.reason)


def ahead(function: Callable[[In], Out], items: Iterable[In], batch_size: int) -> Iterator[Out]:
    """`map(function, items)` in threads that work ahead, but never by more than a batch or so."""
    return map_ahead(function, items, threads=max(2, min(16, cores())), ahead=batch_size)
