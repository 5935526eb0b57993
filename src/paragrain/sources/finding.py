"""The one rule by which names find files, or the records of files, in every importer."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath

from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.names import (
    below,
    folded,
    is_elsewhere,
    is_valid,
    leaves,
    loosest,
    normal,
    normal_end,
    number,
    shown,
    spellings,
    stem,
)
from paragrain.sources.walking import Walk, walk

_MANY = 64
"""So many paths of one name are told apart by the folder above, so that all stay quick."""

_FORMS: tuple[Callable[[str], str], ...] = (str, normal, normal_end, folded)
"""What counts as equal: each letter; its normal form; extensions in any case; names in any case."""


class Finder:
    """Finds paths, or the ids that they belong to, by the names that lists give them.

    The first of these rules under which some path fits decides, and if several fit, the name is
    ambiguous. A name is tried as it stands, then with "\\" as "/", and in the end with its
    %-escapes undone and without `file://`.

    1. The id itself.
    2. The whole path, or with the root's name in front; an absolute path that lies below the
       root, by links or without.
    3. The end of the path: `b/x.jpg` of `a/b/x.jpg`. Then the same without extension.
    4. The reverse, for a path of another machine, which is absolute: `a/x.jpg` is the end of
       `/home/you/a/x.jpg`. And if `elsewhere`, for any name with folders in front.
    5. All of these in Unicode's normal form C; with the extension in any case; in any case.
    6. Of an absolute path, the one that shares the longest end with it.
    7. The same number, if the name is one, written in whatever way: `3`, `3.0`, `000003`.

    Attributes:
        by_number: how many names the last rule has found.
    """

    def __init__(
        self, paths: Mapping[str, str], root: Path | None = None, *, elsewhere: bool = False
    ):
        """Take the relative path of every id, and the folder that all start from."""
        self.by_number = 0
        self._paths = paths
        self._root = root
        self._name = "" if root is None else root.resolve().name
        self._elsewhere = elsewhere
        self._tails: dict[tuple[str, ...], list[str]] = {}
        self._deep: set[tuple[str, ...]] = set()
        for id, path in paths.items():
            names = {path.rpartition("/")[2], id.rpartition("/")[2]}
            for key in set(map(loosest, names)):
                self._tails.setdefault((key,), []).append(id)

    def find(self, name: str) -> list[str]:
        """No id, the one that fits, or all that do."""
        if name in self._paths:
            return [name]
        for spelling in spellings(name):
            if found := self._find(spelling):
                return found
        return self._find_number(name)

    def _find(self, key: str) -> list[str]:
        near = self._candidates(key.split("/"), 1)
        if not near:
            return []
        elsewhere = is_elsewhere(key)
        within = list(self._within(key))
        for form in _FORMS:
            wanted, whole = form(key), {form(path) for path in (key, *within)}
            paths = {id: form(self._paths[id]) for id in near}
            for cut in (str, stem):
                named = {id: cut(path) for id, path in paths.items()}
                found = [id for id, path in named.items() if path in whole]
                if found or (found := [id for id in named if named[id].endswith("/" + wanted)]):
                    return found
            ends = {id: path for id, path in paths.items() if wanted.endswith("/" + path)}
            if ends and (elsewhere or self._elsewhere):
                longest = max(map(len, ends.values()))
                return [id for id, path in ends.items() if len(path) == longest]
        return self._longest_end(key, near) if elsewhere else []

    def _within(self, key: str) -> Iterator[str]:
        """`a/x.jpg` of `photos/a/x.jpg` or `/home/me/photos/a/x.jpg`, if the root is `photos`."""
        if self._root is not None and is_elsewhere(key):
            yield from below(key, self._root)
        parts = key.split("/")
        yield from ("/".join(parts[i + 1 :]) for i, part in enumerate(parts) if part == self._name)

    def _longest_end(self, key: str, near: Iterable[str]) -> list[str]:
        wanted = folded(key).split("/")[::-1]
        lengths = {id: _common(wanted, folded(self._paths[id]).split("/")[::-1]) for id in near}
        most = max(lengths.values())
        return [id for id, length in lengths.items() if length == most] if most else []

    def _find_number(self, name: str) -> list[str]:
        wanted = number(name)
        if wanted is None:
            return []
        near = self._tails.get((wanted,), [])
        as_ids = [id for id in near if number(id) == wanted]
        found = as_ids or near
        self.by_number += len(found) == 1
        return list(found)

    def _candidates(self, parts: list[str], depth: int) -> list[str]:
        """Ids whose paths could fit: those of its last part, or of more if they are many."""
        tail = tuple(map(loosest, parts[-depth:]))
        near = self._tails.get(tail, [])
        if len(near) <= _MANY or len(parts) <= depth:
            return near
        if tail not in self._deep:
            self._deep.add(tail)
            for id in near:
                above = self._paths[id].split("/")[-depth - 1 :]
                if len(above) > depth:
                    self._tails.setdefault(tuple(map(loosest, above)), []).append(id)
        return self._candidates(parts, depth + 1) or near


def _common(some: list[str], others: list[str]) -> int:
    """How many first parts are equal."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(some), len(others)))


class Below:
    """Finds image files below a folder, which is looked through once a name is not a path in it.

    What devices and programs leave is found by its whole path only.
    """

    def __init__(self, folder: Path):
        """Take the folder; nothing is read yet."""
        self.folder = folder

    def find(self, name: str) -> list[str]:
        """Relative paths of the files that a name fits: none, the one, or several."""
        for spelling in spellings(name):
            if is_elsewhere(spelling):
                continue
            if os.path.isfile(self.folder / spelling):  # noqa: PTH113  (`Path.is_file` may raise)
                return [PurePosixPath(spelling).as_posix()]
        return sorted(self._finder.find(name))

    @cached_property
    def _finder(self) -> Finder:
        files = self.walked.files
        return Finder({path: path for path in files}, self.folder, elsewhere=True)

    @cached_property
    def walked(self) -> Walk:
        """The images below the folder."""
        found = walk(self.folder)
        found.files = [
            path
            for path in found.files
            if PurePosixPath(path).suffix.lower() in IMAGE_SUFFIXES and is_valid(path)
        ]
        return found

    def notes(self) -> list[str]:
        """What was left out when the folder was looked through, if it was."""
        return self.walked.notes() if "walked" in vars(self) else []


def name_problem(name: object) -> str | None:
    """Why something cannot be the name of an image's file, or `None` if it can.

    >>> name_problem("a.jpg"), name_problem("../a.jpg")
    (None, 'its file name leaves the folder of the images')
    """
    if not isinstance(name, str) or not name.strip():
        return "it names no image file"
    if shown(name) != name or "\0" in name:
        return "its file name is not valid"
    return "its file name leaves the folder of the images" if leaves(name) else None
