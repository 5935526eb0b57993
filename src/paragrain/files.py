"""Files that are either whole or absent: everything is written beside its place, then renamed.

And the digest by which this program tells what is in them.
"""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragrain.errors import ParagrainError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a disk, a quota or a file that is full."""


def no_room(path: Path, error: Exception) -> ParagrainError:
    """The error of a file for which there is no room."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).split("\n")[0]
    return ParagrainError(
        f"{path} cannot be written ({reason}): make room and run the same again; what was whole "
        "before is as it was"
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block ends well.

    A kill at any moment leaves the old file, or none: never half a new one. So does a full disk.

    Raises:
        ParagrainError: there is no room.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole", encoding="utf-8")
    >>> target.read_text(encoding="utf-8")
    'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise no_room(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with its line ends untouched, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, whole or not at all; NaN is refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read one JSON value from `path`."""
    return json.loads(path.read_bytes())


def slug(name: str) -> str:
    """A name as a part of a path.

    >>> slug("CLIP ViT-B/16")
    'clip-vit-b-16'
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def digest(*parts: "str | Buffer", size: int = 16) -> bytes:
    """BLAKE2b of bytes, arrays and texts in UTF-8, one after the other, of `size` bytes.

    >>> digest("ab").hex() == digest(b"a", "b").hex()
    True
    """
    state = blake2b(digest_size=size)
    for part in parts:
        state.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
    return state.digest()
