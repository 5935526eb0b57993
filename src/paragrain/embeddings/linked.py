"""The contents of images that lie as files beside a collection, and may be edited in place.

What the records say of a linked file (`--store paths`) was true when it was imported. So each is
hashed once here, and again whenever its size, its times or its inode are others: no old vector is
used for a new picture. What was found is kept in `<collection>/embeddings/files.json`. A change
that leaves even the time of the last change as it was (a clock that was put back) is not seen.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from paragrain.collection import Collection
from paragrain.collection.image_files import linked
from paragrain.collection.reading import inside
from paragrain.files import read_json, write_text
from paragrain.images import BadImage, content_hash
from paragrain.progress import progress_bar

STATES = "files.json"
_CONTENT_HASH = re.compile(r"[0-9a-f]{32}")


def is_content_hash(text: str | None) -> bool:
    """Whether a text can be a content hash; a column of that name may hold anything.

    >>> is_content_hash(content_hash(b"")), is_content_hash("a dog"), is_content_hash(None)
    (True, False, False)
    """
    return _CONTENT_HASH.fullmatch(text or "") is not None


def linked_paths(collection: Collection) -> set[str]:
    """The paths of images whose bytes are not in the Parquet files."""
    return set().union(*map(linked, collection.files()))


def linked_contents(
    collection: Collection, paths: Iterable[str], *, progress: bool = False
) -> dict[str, str]:
    """The content hash of the files at some paths of a collection, as they are now.

    Files that cannot be read are left out.

    Args:
        collection: whose folder they lie in.
        paths: of its records.
        progress: whether to show progress where files must be read.
    """
    states = collection.folder / "embeddings" / STATES
    known = _read(states)
    found: dict[str, list[int | str]] = {}
    stale: list[str] = []
    for path in paths:
        state = _state(collection, path)
        if state is not None and known.get(path, [])[:-1] == state:
            found[path] = known[path]
        elif state is not None:
            stale.append(path)
    with progress_bar("checking files", len(stale), unit="images", show=progress) as advance:
        for path in stale:
            state = _state(collection, path)  # before it is read: an edit from now on is seen
            with suppress(OSError, BadImage):
                data = inside(collection.folder, path).read_bytes()
                if state is not None:
                    found[path] = [*state, content_hash(data)]
            advance()
    if stale:
        with suppress(OSError):  # in a folder that cannot be written they are hashed each time
            write_text(states, json.dumps({**known, **found}))
    return {path: str(state[-1]) for path, state in found.items()}


def _state(collection: Collection, path: str) -> list[int | str] | None:
    """What changes when a file does; None if there is no such file."""
    try:
        stat = inside(collection.folder, path).stat()
    except (OSError, BadImage):
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(path: Path) -> dict[str, list[int | str]]:
    """What was found before; nothing if it cannot be read."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: state for name, state in value.items() if isinstance(state, list) and state}
