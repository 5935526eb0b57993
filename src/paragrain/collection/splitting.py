"""Shares of a collection for validation and test, with copies of an image on one side."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from paragrain.collection.reading import Collection
from paragrain.collection.shards import entries, finished_shards
from paragrain.errors import UsageError

TRAIN = "train"
"""The split of an image of which nobody says another."""


class Shares:
    """How much of a collection goes into the splits "val" and "test"; the rest is "train".

    Attributes:
        val: from 0 to 1.
        test: from 0 to 1.

    >>> shares = Shares(val=0.1, test=0.2)
    >>> from collections import Counter
    >>> Counter(shares.split_of(f"image {n}") for n in range(10_000))
    Counter({'train': 6947, 'test': 2047, 'val': 1006})
    """

    def __init__(self, val: float = 0.0, test: float = 0.0):
        """Check the shares.

        Raises:
            UsageError: they are no shares, or nothing is left to train on.
        """
        for name, share in (("val", val), ("test", test)):
            if not 0 <= share < 1:
                raise UsageError(f"--{name} is a share from 0 to 1, such as 0.1, not {share:g}")
        if val + test >= 1:
            raise UsageError(f"--val {val:g} and --test {test:g} leave no image to train on")
        self.val, self.test = float(val), float(test)

    def __bool__(self) -> bool:
        """Whether there is anything to divide."""
        return bool(self.val or self.test)

    def split_of(self, key: str) -> str:
        """The split of all images with a key; a key alone decides, whatever else there is."""
        place = int.from_bytes(blake2b(key.encode("utf-8"), digest_size=8).digest(), "big") / 2**64
        if place < self.test:
            return "test"
        return "val" if place < self.test + self.val else TRAIN


def key_of(group: str | None, content: str | None, id: str) -> str:
    """What decides on the split of an image: its group, or its bytes, or where it has none its id.

    >>> key_of("g", "0a", "7"), key_of(None, "0a", "7"), key_of(None, None, "7")
    ('group g', 'content 0a', 'id 7')
    """
    if group:
        return f"group {group}"
    return f"content {content}" if content else f"id {id}"


def moved(
    collection: Collection, shares: Shares, movable: Callable[[str, str], bool]
) -> dict[str, str]:
    """The images that have to change their split, by id, and to which.

    Images that are tied, by a group, equal bytes or equal pixels, however many steps it takes, go
    together: where one of them cannot move, to its split, else to the one that their least key
    decides.

    Args:
        collection: the images.
        shares: how they are divided.
        movable: whether an image, by id and by split, may change its split.
    """
    first_key: dict[str, str] = {}  # of each tie: a key that stands for its whole family
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while (parent := parents.setdefault(key, key)) != key:
            parents[key] = parents[parent]
            key = parent
        return key

    rows = list(_rows(collection))
    for key, ties, _, _ in rows:
        for tie in ties:
            one, other = sorted((root(key), root(first_key.setdefault(tie, key))))
            parents[other] = one  # the least key of a family is its root
    fixed: dict[str, str] = {}
    for key, _, id, split in rows:
        if not movable(id, split):
            fixed.setdefault(root(key), split)
    wanted = {id: _wanted(root(key), fixed, shares) for key, _, id, _ in rows}
    return {
        id: wanted[id] for _, _, id, split in rows if wanted[id] != split and movable(id, split)
    }


def _wanted(family: str, fixed: dict[str, str], shares: Shares) -> str:
    return fixed.get(family) or shares.split_of(family)


def _rows(collection: Collection) -> Iterator[tuple[str, Iterable[str], str, str]]:
    """Key, ties to others, id and split of every record."""
    pixels = {
        entry.id: entry.pixels
        for _, manifest in finished_shards(collection.folder)
        for entry in entries(manifest)
    }
    for record in collection.records(fields=("group", "content")):
        key = key_of(record.group, record.content, record.id)
        ties = [key] + ([f"content {record.content}"] if record.content else [])
        ties += [f"pixels {same}"] if (same := pixels.get(record.id)) else []
        yield key, ties, record.id, record.split
