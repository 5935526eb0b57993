"""One writer for each collection: a lock that goes with the process that holds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paragrain.errors import ParagrainError
from paragrain.locks import Held, hold


@contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Keep others from writing to the records of a collection; readers are not kept from it.

    It goes when the process ends, however that comes about, and the files `.lock` and
    `.lock.owner` that may stay behind lock nothing.

    Raises:
        ParagrainError: another process, or another part of this one, writes to the collection.
    """
    try:
        with hold(folder / ".lock"):
            yield
    except Held:
        raise ParagrainError(
            f"another import or annotation is writing to {folder}: wait for it, or stop it first"
        ) from None
