"""The files below a folder: links followed once, what devices and programs leave told apart."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from paragrain.errors import UsageError
from paragrain.images import IMAGE_SUFFIXES, UNREADABLE
from paragrain.sources.names import shown

DROPPING_FOLDERS = frozenset(
    (
        "@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "@tmp",
        "@sharebin", "$recycle.bin", "recycler", "recycled", "system volume information",
        "__macosx", "lost+found", "ipod photo cache", "picasaoriginals", "thumbs", "thumbnails",
        "network trash folder", "temporary items", "found.000",
    )
)  # fmt: skip
"""Folders of thumbnails, trash and snapshots, in lower case: Synology, QNAP, Windows, macOS, ..."""

DROPPING_ENDS = (".lrdata", ".lrcat-data", ".aplibrary-thumbs", ".photoslibrary/resources")
"""Ends of such folders of catalogues: Lightroom's previews, the insides of Apple's libraries."""

DROPPING_FILES = frozenset(("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "zbthumbnail.info"))
DROPPING_STARTS = ("._", "synophoto_", "synofile_", "synoindex_")
"""Starts of files: the second halves that macOS writes on foreign disks, Synology's thumbnails."""


def dropping(path: str) -> str | None:
    """What has left a file behind, or hidden it; `None` if it is anybody's.

    >>> dropping("a/@eaDir/x.jpg/SYNOPHOTO_THUMB_M.jpg"), dropping("a/._x.jpg"), dropping("a/x.jpg")
    ('@eaDir', '._*', None)
    """
    *folders, name = path.split("/")
    for place, folder in enumerate(folders):
        low = folder.lower()
        whole = "/".join(folders[: place + 1]).lower()
        if low in DROPPING_FOLDERS or _is_hidden(low) or whole.endswith(DROPPING_ENDS):
            return folder
    low = name.lower()
    if low in DROPPING_FILES:
        return name
    if start := next((start for start in DROPPING_STARTS if low.startswith(start)), None):
        return name[: len(start)] + "*"
    return "hidden" if _is_hidden(name) else None


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name not in (".", "..")


@dataclass
class Walk:
    """What is below a folder.

    Attributes:
        files: relative paths, "/" between the parts, sorted.
        problems: (path, reason) of what could not be looked into.
        left_out: pictures that were left out, by what has left them behind.
    """

    files: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def notes(self, how: str = "") -> list[str]:
        """What was left out, in a sentence; `how` says how to take it."""
        if not self.left_out.total():
            return []
        kinds = ", ".join(f"{shown(kind)} {n:,}" for kind, n in sorted(self.left_out.items()) if n)
        total = f"{self.left_out.total():,} files that devices and programs leave are left out"
        return [f"{total} ({kinds}){how}"]


def walk(folder: Path, *, own: Path | None = None, everything: bool = False) -> Walk:
    """List the files below a folder.

    A linked folder is followed after all that are really there, and a folder that can be reached
    in several ways is taken once; a link to one that holds `folder` itself is a problem.

    Args:
        folder: where to begin.
        own: a folder to leave out, with all in it.
        everything: take what devices and programs leave, too.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: check the path of the images")
    found, seen = Walk(), set()
    if own is not None and own.is_dir():
        seen.add(_identity(own))
    to_follow = [""]
    while to_follow:
        links = sorted(to_follow)
        to_follow = []
        for start in links:
            if start and _holds(folder / start, folder):
                reason = "a link to a folder that holds this one, which is not followed"
                found.problems.append((shown(start), reason))
                continue
            to_look = [start]
            while to_look:
                inner, more = _look(folder, to_look.pop(), found, seen, everything)
                to_look += inner
                to_follow += more
    found.files.sort()
    return found


def _look(
    root: Path, place: str, found: Walk, seen: set[tuple[int, int]], everything: bool
) -> tuple[list[str], list[str]]:
    """Sort in what is in one folder; the folders and the linked folders in it."""
    folders: list[str] = []
    links: list[str] = []
    try:
        if (identity := _identity(root / place)) in seen:
            return [], []
        seen.add(identity)
        entries = list(os.scandir(root / place))
    except OSError as error:
        found.problems.append((shown(place), f"cannot be read: {error.strerror}"))
        return [], []
    for entry in entries:
        path = f"{place}/{entry.name}" if place else entry.name
        if _is_folder(entry):
            (links if entry.is_symlink() else folders).append(path)
        elif everything or (left_by := dropping(path)) is None:
            found.files.append(path)
        elif _is_picture(path) or entry.name.lower() in DROPPING_FILES:
            found.left_out[left_by] += 1
    return folders, links


def _is_picture(path: str) -> bool:
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in IMAGE_SUFFIXES or suffix in UNREADABLE


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself
        return False


def _identity(folder: Path) -> tuple[int, int]:
    state = folder.stat()
    return state.st_dev, state.st_ino


def _holds(link: Path, folder: Path) -> bool:
    return folder.resolve().is_relative_to(link.resolve()) and link.resolve() != folder.resolve()
