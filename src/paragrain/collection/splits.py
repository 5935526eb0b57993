"""Shares of a collection for validation and test, with copies of an image on one side."""

from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path

import numpy as np

from paragrain.collection.reading import Collection
from paragrain.collection.shards import finished_shards
from paragrain.collection.updating import update_collection
from paragrain.errors import UsageError
from paragrain.files import digest

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
        place = int.from_bytes(digest(key, size=8)) / 2**64
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


def families(ties: Iterable[Iterable[str]]) -> np.ndarray:
    """Number what is tied together, int64 `[N]`, in order of first appearance.

    Args:
        ties: N times some names, one at least; two with a name in common have one number, and so
            have those that are tied through any number of others.

    >>> families([["a", "x"], ["b"], ["c", "x"], ["b", "c"]])
    array([0, 0, 0, 0])
    >>> families([["b"], ["a", "x"], ["c"], ["x"]])
    array([0, 1, 2, 1])
    """
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = name = parents[parent]
        return name

    firsts: list[str] = []
    for first, *others in ties:
        firsts.append(first)
        for other in others:
            parents[root(other)] = root(first)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(root(name), len(numbers)) for name in firsts], np.int64)


def moved(
    collection: Collection, shares: Shares, movable: Callable[[str, str], bool]
) -> dict[str, str]:
    """The images that have to change their split, by id, and to which.

    Images that are tied, by a group, equal bytes or equal pixels, however many steps it takes, go
    together: where one of them cannot move, to its split, else to the one that their least key
    decides. `movable` says by id and split whether an image may change its split.
    """
    rows = list(_rows(collection))
    numbers = families(ties for _, ties, _, _ in rows).tolist()
    keys: dict[int, str] = {}  # the least of each family
    fixed: dict[int, str] = {}
    for number, (key, _, id, split) in zip(numbers, rows, strict=True):
        keys[number] = min(key, keys.get(number, key))
        if not movable(id, split):
            fixed.setdefault(number, split)
    wanted = {number: fixed.get(number) or shares.split_of(key) for number, key in keys.items()}
    return {
        id: wanted[number]
        for number, (_, _, id, split) in zip(numbers, rows, strict=True)
        if wanted[number] != split and movable(id, split)
    }


def _rows(collection: Collection) -> Iterator[tuple[str, list[str], str, str]]:
    """Key, ties to others, id and split of every record."""
    shards = finished_shards(collection.folder)
    pixels = {entry.id: entry.pixels for shard in shards for entry in shard.entries}
    for record in collection.records(fields=("group", "content")):
        key = key_of(record.group, record.content, record.id)
        ties = [key] + ([f"content {record.content}"] if record.content else [])
        ties += [f"pixels {same}"] if (same := pixels.get(record.id)) else []
        yield key, ties, record.id, record.split


def settle_splits(
    folder: Path, shares: Shares, fresh: Set[str], unsaid: Iterable[str] | None
) -> None:
    """Bring images that are tied to each other, by group, bytes or pixels, into one split.

    Those of `fresh`, new images whose split nobody says, may move. Where the shares are new,
    `unsaid` are all such images: of these, too, what is in "train" is divided.
    """
    if not any(True for _ in finished_shards(folder)):
        return
    divided = set(unsaid or ())
    splits = moved(
        Collection.open(folder),
        shares,
        lambda id, split: id in fresh or (id in divided and split == TRAIN),
    )
    update_collection(folder, {id: {"split": split} for id, split in splits.items()})
