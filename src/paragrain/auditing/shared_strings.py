"""Strings that two collections share: URLs, and texts that are equal or nearly so."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

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

_PRODUCTS = 1 << 22  # shingles shared by candidates that are compared at once

_NO_WORD = re.compile(r"[\W_]+")
_TRACKING = re.compile(
    r"(?:utm_\w*|fbclid|gclid|gclsrc|dclid|msclkid|yclid|twclid|igshid|mc_cid|mc_eid|_ga|_gl"
    r"|ref_src)\Z",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(r"[^\x21-\x7e]|[\"<>\\^`{|}]")
_PORTS = {"http": 80, "https": 443}


def fold(text: str) -> str:
    """A text without case and punctuation, its words apart by one space.

    >>> fold(" A man's dog -- RUNNING!")
    'a man s dog running'
    """
    return _NO_WORD.sub(" ", text.casefold()).strip()


@dataclass(eq=False)
class FoldedTexts:
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


def read_texts(
    collection: Collection, rows: dict[str, int], split: str | None = None
) -> FoldedTexts:
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
    return FoldedTexts(
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


def equal_texts(train: FoldedTexts, other: FoldedTexts | None) -> RecordPairs:
    """Pairs of records with a text in common, whatever its case and punctuation."""
    return equal_pairs(
        (train.digests, train.rows), None if other is None else (other.digests, other.rows)
    )


def near_texts(train: FoldedTexts, other: FoldedTexts | None, least: float) -> RecordPairs:
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


def _incidence(sides: list[FoldedTexts], chosen: np.ndarray) -> csr_array:
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
    work = np.cumsum(heads[right] @ np.diff(looked_up.indptr))
    for asked in np.split(right, np.flatnonzero(np.diff(work // _PRODUCTS)) + 1):
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


def normalise_url(url: str) -> str | None:
    """One spelling for URLs that lead to the same picture; None if it is no web URL.

    http and https count as one, and so do host names in any case; default ports, fragments,
    trailing slashes and the parameters by which visitors are tracked go; escapes are written as
    RFC 3986 (section 6.2.2) says. What a server may tell apart (the case of a path, the order of
    parameters) stays.

    >>> normalise_url("HTTP://Example.org:80/a%7eb/%c3%a9/?utm_source=x&id=7#top")
    'example.org/a~b/%C3%A9?id=7'
    >>> normalise_url("https://example.org/a~b/é?id=7")
    'example.org/a~b/%C3%A9?id=7'
    >>> normalise_url("photos/7.jpg") is None
    True
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not host:
        return None
    place = host.rstrip(".") + ("" if port in (None, _PORTS[scheme]) else f":{port}")
    query = "&".join(
        part for part in parts.query.split("&") if part and not _TRACKING.match(part.split("=")[0])
    )
    return place + _spelled(parts.path).rstrip("/") + (f"?{_spelled(query)}" if query else "")


def _spelled(text: str) -> str:
    """Escapes in capitals, none for what needs none, and one for whatever does."""

    def plain(match: re.Match[str]) -> str:
        char = chr(int(match[1], 16))
        return char if char.isascii() and (char.isalnum() or char in "-._~") else match[0].upper()

    def escaped(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))

    return _TO_ESCAPE.sub(escaped, _ESCAPE.sub(plain, text))
