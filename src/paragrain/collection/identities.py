"""What a source holds, as digests: millions of ids and stamps in few bytes each."""

from collections.abc import Iterable

import numpy as np

from paragrain.files import digest

DIGEST_BYTES = 16
"""Of an id, and of a stamp: that two of four million ids share one is a case in 10^25."""


def _digests(texts: Iterable[str]) -> np.ndarray:
    data = bytearray()
    for text in texts:
        data += digest(text)
    return np.frombuffer(data, f"S{DIGEST_BYTES}")


class TextIndex:
    """Where each of many texts stands, found by its digest.

    >>> TextIndex(["a", "b", "a"]).places(["b", "c", "a"]), TextIndex("aba").all_places("a")
    (array([ 1, -1,  0]), [0, 2])
    """

    def __init__(self, texts: Iterable[str] | np.ndarray):
        """Read the texts, or take their digests."""
        found = texts if isinstance(texts, np.ndarray) else _digests(texts)
        self._order = np.argsort(found, kind="stable").astype(np.int64)
        self._sorted = found[self._order]

    def places(self, texts: Iterable[str]) -> np.ndarray:
        """The first place of each text, int64; -1 where there is none."""
        wanted = _digests(texts)
        if not len(self._sorted):
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1)

    def all_places(self, text: str) -> list[int]:
        """Every place of a text, in order."""
        wanted = _digests([text])[0]
        first, end = (int(np.searchsorted(self._sorted, wanted, s)) for s in ("left", "right"))
        return self._order[first:end].tolist()

    def firsts(self) -> np.ndarray:
        """Whether each place is the first of its text, bool."""
        new = np.ones(len(self._order), bool)
        new[1:] = self._sorted[1:] != self._sorted[:-1]
        first = np.zeros(len(self._order), bool)
        first[self._order[new]] = True
        return first


class Identities:
    """The ids and stamps of a source's items in their order, about 50 bytes for each.

    Attributes:
        first: bool, one for each item: it has an id, and none before it has the same.
        missing: bool, one for each item: it is still to be made. `first` to begin with.

    >>> Identities([("a", "1"), ("b", "1"), ("a", "2"), ("", "1")]).first
    array([ True,  True, False, False])
    """

    def __init__(self, items: Iterable[tuple[str, str]]):
        """Read (id, stamp) of every item once."""
        ids, stamps = bytearray(), bytearray()
        for id, stamp in items:
            ids += digest(id)
            stamps += digest(stamp)
        self._ids, self._stamps = (np.frombuffer(d, f"S{DIGEST_BYTES}") for d in (ids, stamps))
        index = TextIndex(self._ids)
        self.places = index.places
        self.first = index.firsts() & (self._ids != _digests([""])[0])
        self.missing = self.first.copy()

    def __len__(self) -> int:
        """Number of items."""
        return len(self._ids)

    def holds(self, place: int, id: str, stamp: str) -> bool:
        """Whether the item at `place` has this id and stamp."""
        if place >= len(self):
            return False
        return _digests([id, stamp]).tolist() == [self._ids[place], self._stamps[place]]

    def stamp(self, place: int) -> str:
        """The digest of a stamp, 32 hexadecimal digits."""
        return bytes(self._stamps[place]).ljust(DIGEST_BYTES, b"\0").hex()

    def same_stamps(self, places: np.ndarray, stamps: Iterable[str]) -> np.ndarray:
        """Whether the items at `places` have these stamps, bool; False at a place of -1."""
        digests = _digests(stamps)
        if not len(self):
            return np.zeros(len(digests), bool)
        return (places >= 0) & (self._stamps[places] == digests)
