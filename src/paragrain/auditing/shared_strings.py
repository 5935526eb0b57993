"""Texts that two collections share: equal when folded, or equal in most of their shingles."""

import re
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from paragrain.auditing.record_pairs import Members, RecordPairs, closest, equal_pairs, spread
from paragrain.collection import Collection
from paragrain.files import digest

FIELDS = ("captions", "description", "paragraph", "generated")
"""The fields that are compared: all that is said to be true of an image."""

MIN_WORDS = 8
"""Shorter texts are compared as a whole only: one word more makes another text of them."""

WORDS = 3
"""Words of a shingle."""

_ASKED = 1024  # texts whose candidates are compared at once

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
        digests: S16 [T], 128 bits of each folded text.
        rows: int64 [T], the place of its record.
        shingles: int64 [S], hashes of each text's different shingles, text after text.
        sizes: int64 [T], how many shingles each text has; short texts have none.
    """

    digests: np.ndarray
    rows: np.ndarray
    shingles: np.ndarray
    sizes: np.ndarray


def read_texts(collection: Collection, rows: dict[str, int], split: str | None = None) -> Texts:
    """All texts of a collection, or of a split; one that holds no word is left out.

    Args:
        collection: where they are.
        rows: the row of each id.
        split: only records of this split.
    """
    digests: list[bytes] = []
    places: list[int] = []
    shingles = [np.zeros(0, np.int64)]
    for record in collection.records(split, fields=FIELDS):
        folded = dict.fromkeys(fold(text) for name in FIELDS for text in record.texts(name))
        for text in filter(None, folded):
            digests.append(digest(text))
            places.append(rows[record.id])
            shingles.append(hash_shingles(text if text.count(" ") >= MIN_WORDS - 1 else ""))
    return Texts(
        np.array(digests, "V16"),
        np.array(places, np.int64),
        np.concatenate(shingles),
        np.array([len(own) for own in shingles[1:]], np.int64),
    )


def hash_shingles(text: str) -> np.ndarray:
    """Hashes of the different shingles of a folded text, int64; they hold in this process only.

    >>> len(hash_shingles("a man walks a dog and a cat"))
    6
    """
    words = text.split()
    different = set(zip(*(words[n:] for n in range(WORDS)), strict=False))
    return np.fromiter(map(hash, different), np.int64, len(different))


def equal_texts(train: Texts, other: Texts | None) -> RecordPairs:
    """Pairs of records with a text in common, whatever its case and punctuation."""
    return equal_pairs(
        (train.digests, train.rows), None if other is None else (other.digests, other.rows)
    )


def near_texts(train: Texts, other: Texts | None, least: float) -> RecordPairs:
    """Pairs of records with texts that are not equal but nearly so.

    The measure is the Jaccard index of the sets of shingles. It is exact: every pair of at least
    `least` is found.

    Args:
        train: from `read_texts`.
        other: likewise; None to compare `train` with itself.
        least: the least index, above 0.
    """
    sides = [train] if other is None else [train, other]
    digests = np.concatenate([side.digests for side in sides])
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    # From here on texts are the different ones, by number.
    sets = _incidence(sides, first)
    of_sides = np.split(number, [len(train.digests)])[: len(sides)]
    members = [
        Members.by_number(own, side.rows, len(first))
        for own, side in zip(of_sides, sides, strict=True)
    ]
    present = [np.flatnonzero(np.diff(side.bounds)) for side in members]
    found, overlaps = _similar_sets(sets, present[0], present[-1], least)
    if other is None:
        once = found[:, 0] > found[:, 1]
        found, overlaps = found[once], overlaps[once]
    rows = spread(found, (members[0], members[-1]))
    closeness, pairs = overlaps[rows[:, 2]], rows[:, :2]
    if other is None:
        apart = pairs[:, 0] != pairs[:, 1]
        pairs, closeness = np.sort(pairs[apart], axis=1), closeness[apart]
    return closest(pairs, closeness)


def _incidence(sides: list[Texts], chosen: np.ndarray) -> csr_array:
    """Ones where a chosen text holds a shingle, [texts, shingles], the rarest shingles first."""
    sizes = np.concatenate([side.sizes for side in sides])
    starts = np.cumsum(sizes) - sizes
    own = sizes[chosen]
    bounds = np.concatenate([[0], np.cumsum(own)])
    places = np.arange(bounds[-1]) + np.repeat(starts[chosen] - bounds[:-1], own)
    values = np.concatenate([side.shingles for side in sides])[places]
    unique, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    by_count = np.empty(len(unique), np.int64)
    by_count[np.argsort(counts, kind="stable")] = np.arange(len(unique))
    ones = np.ones(len(values), np.int32)
    sets = csr_array((ones, by_count[inverse], bounds), shape=(len(chosen), len(unique)))
    sets.sort_indices()
    return sets


def _similar_sets(
    sets: csr_array, left: np.ndarray, right: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs int64 [P, 2] of different rows with a Jaccard index of at least `least`, and the index.

    Sets that overlap so much share one of the first `n - ceil(least n) + 1` of either, in any
    common order; so only those are looked up, rarest first (Bayardo et al., "Scaling up all pairs
    similarity search", 2007).
    """
    sizes = np.diff(sets.indptr)
    prefix = sizes - np.ceil(least * sizes - 1e-9).astype(np.int64) + 1
    leading = np.arange(sets.nnz) - np.repeat(sets.indptr[:-1], sizes) < np.repeat(prefix, sizes)
    bounds = np.concatenate([[0], np.cumsum(leading)])[sets.indptr]
    heads = csr_array((sets.data[leading], sets.indices[leading], bounds), shape=sets.shape)
    looked_up = heads[left].T.tocsr()
    pairs, overlaps = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for start in range(0, len(right), _ASKED):
        asked = right[start : start + _ASKED]
        query, place = (heads[asked] @ looked_up).nonzero()
        found = np.stack([left[place], asked[query]], axis=1)
        small, large = np.sort(sizes[found], axis=1).T
        found = found[(found[:, 0] != found[:, 1]) & (small >= least * large)]
        common = sets[found[:, 0]].multiply(sets[found[:, 1]]).sum(axis=1)
        overlap = common / (sizes[found].sum(axis=1) - common)
        kept = overlap >= least - 1e-9
        pairs.append(found[kept])
        overlaps.append(overlap[kept])
    return np.concatenate(pairs), np.concatenate(overlaps)
