"""One writer for each collection: a lock that goes with the process that holds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from paragrain.errors import ParagrainError


@contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Keep others from writing to the records of a collection; readers are not kept from it.

    The lock is the system's own, on the file `.lock`: it goes when the process ends, however that
    comes about, and the file that stays behind locks nothing.

    Raises:
        ParagrainError: another process, or another part of this one, writes to the collection.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ParagrainError(
            f"another import or annotation is writing to {folder}: wait for it, or stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()
