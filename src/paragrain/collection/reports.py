"""What one import can be asked for, what it did, and what it left out."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, TypedDict

from paragrain.collection.image_files import Store
from paragrain.collection.kept_texts import KEPT as KEPT_TEXTS
from paragrain.collection.kept_texts import REPLACED
from paragrain.files import replacing
from paragrain.words import counted

KEPT = 1000
"""So much of what was left out is kept in memory; all of it is on disk."""

Pair = tuple[str, str]
"""The id, or the place, of what was left out, and the reason."""


class WriteOptions(TypedDict, total=False):
    """Keyword arguments that every importer hands on to `write_collection`; all may be absent.

    Attributes:
        licence: of the data, as far as known; by default what the collection says already.
        store: "bytes" keeps the images in the Parquet files, "paths" as files of the folder; by
            default as the collection has them, and "bytes" for a new one.
        max_pixels: see `images.decode`.
        val: share of the images, from 0 to 1, that go into the split "val"; only images whose
            split no source says, and copies (by group, bytes or pixels) stay on one side. By
            default as in the import before, so that new images join them; none moves out of "val".
        test: the same for the split "test".
        verify: hash every image, and so see another picture under the same name, size and time.
        drop_texts: have each record hold the texts of this import's sources and no others, and
            forget the texts of images that are gone.
        remember: how to repeat this import: its kind and its arguments, as JSON can hold them.
        progress: whether to show a progress bar.
    """

    licence: str | None
    store: Store | None
    max_pixels: int | None
    val: float | None
    test: float | None
    verify: bool
    drop_texts: bool
    remember: Mapping[str, Any] | None
    progress: bool


@dataclass
class ImportReport:
    """What one import did.

    Attributes:
        folder: the collection.
        written: records made and written in this run.
        kept: records that were there already and unchanged.
        removed: records taken out since the source no longer has them.
        renamed: how many of these are back under another id, with the same picture.
        skipped: (id, reason) of what could not be taken in, whole or in part; where that is
            very much, of the first 1,000. All of it is named in `skipped.jsonl`.
        skipped_total: how much that is.
        splits: number of records of each split.
        notes: what else the user should know; nothing went wrong there.
        carried: text fields that this import says nothing about and that were kept for a record
            which was made anew, and for how many records.
        replaced: text fields in whose place this import has others, and in how many records.
        dropped: text fields that went since that was asked for, and of how many records.
        waiting: pictures that are gone and whose texts are kept.
    """

    folder: Path
    written: int = 0
    kept: int = 0
    removed: int = 0
    renamed: int = 0
    skipped: list[Pair] = field(default_factory=list)
    skipped_total: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    carried: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    waiting: int = 0


def texts_notes(report: ImportReport) -> list[str]:
    """What became of the texts that were there before, one sentence for each kind of fate."""
    notes = []
    if report.carried:
        notes.append(f"kept, though this import does not bring them: {_listed(report.carried)}")
    if report.replaced:
        notes.append(
            f"replaced by those of this import: {_listed(report.replaced)} "
            f"(the old ones are in {report.folder / REPLACED})"
        )
    if report.dropped:
        notes.append(f"dropped, as asked for: {_listed(report.dropped)}")
    if report.waiting:
        notes.append(
            f"texts of {counted(report.waiting, 'image')} not here any more, or changed, wait in "
            f"{report.folder / KEPT_TEXTS} for the same bytes to come back; --drop-texts drops them"
        )
    return notes


def _listed(counts: Mapping[str, int]) -> str:
    """`captions` of 12 images and the like."""
    return ", ".join(f"{name} of {counted(count, 'image')}" for name, count in counts.items())


class Skipped:
    """Everything that was left out, in order: the first `KEPT` in memory, all of it in a file.

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
        above = (near, *near.absolute().parents)
        self._near = next(path for path in above if path.is_dir())
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.first: list[Pair] = []
        self._count = 0
        self._file = SpooledTemporaryFile(  # noqa: SIM115  (it stays open)
            1 << 16, "w+", encoding="ascii", dir=str(self._near)
        )

    def append(self, pair: Pair) -> None:
        """Add one."""
        if self._count < KEPT:
            self.first.append(pair)
        self._count += 1
        id, reason = pair
        self._file.write(json.dumps({"id": id, "reason": reason}) + "\n")

    def extend(self, pairs: Iterable[Pair]) -> None:
        """Add some."""
        for pair in pairs:
            self.append(pair)

    def example(self) -> str:
        """The first of them for the end of a sentence, such as " (7: truncated)"; "" if none."""
        return f" ({self.first[0][0]}: {self.first[0][1]})" if self.first else ""

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def _lines(self) -> Iterator[str]:
        self._file.seek(0)
        try:
            yield from self._file
        finally:
            self._file.seek(0, 2)

    def __iter__(self) -> Iterator[Pair]:
        """All of them; none may be added meanwhile."""
        for line in self._lines():
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
            file.writelines(self._lines())
