"""What a source holds, as digests: millions of ids and stamps in few bytes each."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

DIGEST_BYTES = 16
"""Of an id, and of a stamp: that two of four million ids share one is a case in 10^25."""


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


class Wanted:
    """The ids and stamps of items in their order, about 50 bytes for each.

    Attributes:
        first: bool, one for each item: it has an id, and none before it has the same.
        missing: bool, one for each item: it is still to be made. `first` to begin with.

    >>> wanted = Wanted([("a", "1"), ("b", "1"), ("a", "2"), ("", "1")])
    >>> wanted.first
    array([ True,  True, False, False])
    >>> wanted.places(["b", "c", "a"])
    array([ 1, -1,  0])
    """

    def __init__(self, items: Iterable[tuple[str, str]]):
        """Read (id, stamp) of every item once."""
        ids, stamps = bytearray(), bytearray()
        for id, stamp in items:
            ids += _digest(id)
            stamps += _digest(stamp)
        kind = f"S{DIGEST_BYTES}"
        self._ids, self._stamps = np.frombuffer(ids, kind), np.frombuffer(stamps, kind)
        order = np.argsort(self._ids, kind="stable")
        in_order = self._ids[order]
        new = np.ones(len(order), bool)
        new[1:] = in_order[1:] != in_order[:-1]
        self._sorted, self._order = in_order[new], order[new].astype(np.int64)
        self.first = np.zeros(len(order), bool)
        self.first[self._order] = True
        self.first &= self._ids != np.bytes_(_digest(""))
        self.missing = self.first.copy()

    def __len__(self) -> int:
        """Number of items."""
        return len(self._ids)

    def holds(self, place: int, id: str, stamp: str) -> bool:
        """Whether the item at `place` has this id and stamp."""
        if place >= len(self):
            return False
        own = _digests([id])[0], _digests([stamp])[0]
        return own == (self._ids[place], self._stamps[place])

    def stamp(self, place: int) -> str:
        """The digest of a stamp, 32 hexadecimal digits."""
        return bytes(self._stamps[place]).ljust(DIGEST_BYTES, b"\0").hex()

    def places(self, ids: Iterable[str]) -> np.ndarray:
        """The place of the first item with each id, int64; -1 where there is none."""
        digests = _digests(ids)
        if not len(self._sorted):
            return np.full(len(digests), -1)
        at = np.minimum(np.searchsorted(self._sorted, digests), len(self._sorted) - 1)
        return np.where(self._sorted[at] == digests, self._order[at], -1)

    def same_stamps(self, places: np.ndarray, stamps: Iterable[str]) -> np.ndarray:
        """Whether the items at `places` have these stamps, bool; False at a place of -1."""
        digests = _digests(stamps)
        if not len(self):
            return np.zeros(len(digests), bool)
        return (places >= 0) & (self._stamps[places] == digests)


def _digests(texts: Iterable[str]) -> np.ndarray:
    """The digests of some texts."""
    return np.frombuffer(b"".join(map(_digest, texts)), f"S{DIGEST_BYTES}")
