"""What was left out, by name: any number of them in little memory, all of them in one file."""

import json
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from paragrain.files import replacing

KEPT = 1000
"""So many are kept in memory; the others are on disk alone."""

Pair = tuple[str, str]
"""The id, or the place, of what was left out, and the reason."""


class Skipped:
    """Everything that was left out, in order: the first `KEPT` in memory, the others in a file.

    That file has no name, so that no kill leaves it behind.

    Attributes:
        first: the first of them, `KEPT` at most.

    >>> skipped = Skipped(Path("."))
    >>> skipped.append(("7", "truncated"))
    >>> len(skipped), list(skipped)
    (1, [('7', 'truncated')])
    """

    def __init__(self, near: Path):
        """Keep what does not fit into memory on the disk where `near` is, or is to be."""
        self.first: list[Pair] = []
        self._near = near
        self._rest: IO[str] | None = None
        self._count = 0

    def append(self, pair: Pair) -> None:
        """Add one."""
        self._count += 1
        if len(self.first) < KEPT:
            self.first.append(pair)
            return
        if self._rest is None:
            above = (self._near, *self._near.absolute().parents)
            folder = next(path for path in above if path.is_dir())
            self._rest = tempfile.TemporaryFile(  # noqa: SIM115  (it stays open)
                "w+", encoding="ascii", dir=folder
            )
            weakref.finalize(self, self._rest.close)
        self._rest.write(_line(*pair))

    def extend(self, pairs: Iterable[Pair]) -> None:
        """Add some."""
        for pair in pairs:
            self.append(pair)

    def example(self) -> str:
        """The first of them for the end of a sentence, such as " (7: truncated)"; "" if none."""
        return f" ({self.first[0][0]}: {self.first[0][1]})" if self.first else ""

    def clear(self) -> None:
        """Forget all."""
        self.first.clear()
        self._count = 0
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        """All of them; none may be added meanwhile."""
        yield from self.first
        if self._rest is not None:
            self._rest.seek(0)
            for line in self._rest:
                value = json.loads(line)
                yield value["id"], value["reason"]

    def write(self, path: Path) -> None:
        """Name them in a file of JSON lines; where there are none there is to be no file.

        Names that are no valid Unicode stay escaped.
        """
        if not self:
            path.unlink(missing_ok=True)
            return
        with replacing(path) as temporary, temporary.open("w", encoding="ascii") as file:
            file.writelines(_line(*pair) for pair in self)


def _line(id: str, reason: str) -> str:
    return json.dumps({"id": id, "reason": reason}) + "\n"
