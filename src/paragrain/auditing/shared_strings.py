"""Texts that two collections share: equal when folded, or equal in most of their shingles."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from paragrain.audit import kernels
from paragrain.audit.pairs import Groups, Pairs, closest, equal_pairs, spread
from paragrain.collection import Collection

FIELDS = ("captions", "description", "paragraph", "generated")
"""The fields that are compared: all that is said to be true of an image."""

MIN_WORDS = 8
"""Shorter texts are compared as a whole only: one word more makes another text of them."""

_NO_WORD = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """A text without case and punctuation, its words apart by one space.

    >>> fold(" A man's dog -- RUNNING!")
    'a man s dog running'
    """
    return _NO_WORD.sub(" ", text.casefold()).strip()


@dataclass(eq=False)
class Texts:
    """The texts of a collection, folded.

    Attributes:
        digests: S16 [T] 128 bits of each folded text (as hexadecimal, S32).
        rows: int64 [T], the place of its record.
        values: uint64, hashes of the shingles of each text, one text after the other.
        starts: int64 [T + 1], where each text's values begin; short texts have none.
    """

    digests: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    starts: np.ndarray


def read_texts(collection: Collection, rows: dict[str, int], split: str | None = None) -> Texts:
    """All texts of a collection, or of a split; one that holds no word is left out.

    Args:
        collection: where they are.
        rows: the row of each id.
        split: only records of this split.
    """
    digests: list[bytes] = []
    places: list[int] = []
    values: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    batch: list[bytes] = []

    def finish() -> None:
        own, sizes = _shingles(batch)
        values.append(own)
        counts.append(sizes)
        batch.clear()

    for record in collection.records(split, fields=FIELDS):
        folded = dict.fromkeys(fold(text) for name in FIELDS for text in record.texts(name))
        for text in folded:
            if not text:
                continue
            data = text.encode("utf-8", "replace")
            digests.append(blake2b(data, digest_size=16).hexdigest().encode())
            places.append(rows[record.id])
            batch.append(data if data.count(b" ") >= MIN_WORDS - 1 else b"")
            if len(batch) == 1 << 16:
                finish()
    finish()
    return Texts(
        np.array(digests, "S32"),
        np.array(places, np.int64),
        np.concatenate(values),
        np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
    )


def _shingles(batch: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all shingles of some texts, and how many each has."""
    texts = list(batch)
    data = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    values = np.zeros(len(data) // 2 + 1, np.uint64)
    value_ends = np.zeros(len(texts), np.int64)
    kernels.shingles(data, ends, values, value_ends)
    total = int(value_ends[-1]) if texts else 0
    return values[:total].copy(), np.diff(value_ends, prepend=0)


def equal_texts(train: Texts, other: Texts | None) -> Pairs:
    """Pairs of records with a text in common, whatever its case and punctuation."""
    sides = [None if side is None else (side.digests, side.rows) for side in (train, other)]
    assert sides[0] is not None
    return equal_pairs(sides[0], sides[1])


def near_texts(train: Texts, other: Texts | None, least: float) -> Pairs:
    """Pairs of records with texts that are not equal but nearly so.

    The measure is the Jaccard index of the sets of three words in a row. It is exact: every pair
    of at least `least` is found.

    Args:
        train: from `read_texts`.
        other: likewise; None to compare `train` with itself.
        least: the least index, above 0.
    """
    sides = [train] if other is None else [train, other]
    digests = np.concatenate([side.digests for side in sides])
    sizes = np.concatenate([np.diff(side.starts) for side in sides])
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    tokens, starts = _tokens(sides, sizes, first, number)
    # From here on texts are the different ones, by number.
    of_sides = np.split(number, [len(train.digests)])[: len(sides)]
    members = [
        Groups.by_number(own, side.rows, len(first))
        for own, side in zip(of_sides, sides, strict=True)
    ]
    present = [np.diff(side.bounds) > 0 for side in members]
    asked = np.flatnonzero(present[-1] & (np.diff(starts) > 0)).astype(np.int32)
    found, overlaps = _search(tokens, starts, asked, present[0], other is None, least)
    rows = spread(found, (members[0], members[-1]))
    closeness = overlaps[rows[:, 2]].astype(np.float64)
    pairs = rows[:, :2]
    if other is None:
        apart = pairs[:, 0] != pairs[:, 1]
        pairs, closeness = np.sort(pairs[apart], axis=1), closeness[apart]
    return closest(pairs, closeness)


def _tokens(
    sides: list[Texts], sizes: np.ndarray, first: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each different text's shingles as numbers that rise with frequency; where each begins."""
    kept = np.zeros(len(sizes), bool)
    kept[first] = True
    values = np.concatenate([side.values for side in sides])[np.repeat(kept, sizes)]
    unique, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    rank = np.empty(len(unique), np.int32)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(unique), dtype=np.int32)
    texts, tokens = np.repeat(number[kept], sizes[kept]), rank[inverse]
    order = np.lexsort((tokens, texts))
    starts = np.cumsum(np.concatenate([[0], np.bincount(texts, minlength=len(first))]))
    return tokens[order], starts


def _search(
    tokens: np.ndarray,
    starts: np.ndarray,
    asked: np.ndarray,
    wanted: np.ndarray,
    within: bool,
    least: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (found, asked) of texts and their Jaccard index."""
    sizes = np.diff(starts)
    prefix = sizes - np.ceil(least * sizes - 1e-9).astype(np.int64) + 1
    leading = np.arange(len(tokens)) - np.repeat(starts[:-1], sizes) < np.repeat(prefix, sizes)
    owners = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[leading]
    heads = tokens[leading]
    order = np.argsort(heads, kind="stable")
    last = int(tokens.max(initial=-1)) + 1
    posting_starts = np.searchsorted(heads[order], np.arange(last + 1))
    room = 1 << 16
    while True:
        pairs, overlaps = np.empty((room, 2), np.int32), np.empty(room, np.float32)
        seen = np.full(len(sizes), -1, np.int32)
        found = kernels.near_texts(
            *(tokens, starts, owners[order], posting_starts, asked, wanted),
            *(within, least, pairs, overlaps, seen),
        )
        if found <= room:
            return pairs[:found].astype(np.int64), overlaps[:found]
        room = found
