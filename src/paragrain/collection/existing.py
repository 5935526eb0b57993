"""What a collection holds already, compared with what an import wants, and brought down to that."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.fields import Record
from paragrain.collection.identities import Identities
from paragrain.collection.image_files import IMAGES, LINKED, delete_unused, linked
from paragrain.collection.kept_texts import keep
from paragrain.collection.reading import file_records, inside, known_info, rows_as_taken
from paragrain.collection.shards import (
    MANIFESTS,
    Shard,
    finished_shards,
    manifest_path,
    rewrite,
)
from paragrain.collection.splits import TRAIN
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash

if TYPE_CHECKING:
    from paragrain.collection.writing import Item

Read = Callable[[], Iterable["Item"]]

DAMAGED = "damaged"
"""The folder for Parquet files that cannot be read, and may hold what somebody wrote."""


class Existing:
    """The finished shards of a collection, compared with what its source has.

    What stays is no longer missing in `wanted`.

    Attributes:
        sizes: the records in each Parquet file.
        stale: of the files that lose records, which rows stay, as bools.
        gone: records with ids that are not wanted.
    """

    def __init__(self, folder: Path, wanted: Identities, *, anew: bool = False):
        """Compare; with `anew` nothing stays, so that each record is made again."""
        self.sizes: dict[Path, int] = {}
        self.stale: dict[Path, np.ndarray] = {}
        self.gone = 0
        self._folder, self._wanted = folder, wanted
        self._shares_ids = False
        for shard in finished_shards(folder):
            self.sizes[shard.path] = len(shard.entries)
            places = wanted.places(entry.id for entry in shard.entries)
            stays = wanted.same_stamps(places, (entry.stamp for entry in shard.entries))
            stays &= wanted.missing[places] if len(wanted) and not anew else False
            paths = _linked_paths(shard)
            stays &= np.array([path is None or (folder / path).is_file() for path in paths], bool)
            wanted.missing[places[stays]] = False  # so that no later shard has it too
            self.gone += int(np.sum(places < 0))
            self._shares_ids |= bool(np.any(places >= 0))
            if not stays.all():
                self.stale[shard.path] = stays

    def verify(self, read: Read) -> int:
        """Hash what would stay, and have what has changed since made again: how many."""
        # of each place: file, row, content, and where the collection has a link or a copy
        known: dict[int, tuple[Path, int, str | None, str | None]] = {}
        for shard in finished_shards(self._folder):
            places = self._wanted.places(entry.id for entry in shard.entries).tolist()
            stays = self.stale.get(shard.path, np.ones(len(places), bool))
            rows = zip(places, shard.entries, _linked_paths(shard), strict=True)
            for row, (place, entry, path) in enumerate(rows):
                if stays[row]:
                    known[place] = shard.path, row, entry.content, path
        changed = 0
        for place, item in enumerate(read()):
            if place not in known or not self._wanted.first[place]:
                continue
            file, row, content, path = known[place]
            own = content if path is None else content_hash((self._folder / path).read_bytes())
            if own != content or _content(item, self._folder) != content:
                self.stale.setdefault(file, np.ones(self.sizes[file], bool))[row] = False
                self._wanted.missing[place] = True
                changed += 1
        return changed

    def refuse_another_data_set(self, read: Read, *, name: str, source: str) -> None:
        """Refuse a collection that this import would destroy, or would be mixed up with."""
        folder, info = self._folder, known_info(self._folder)
        interrupted = info.get("complete") is False
        going_on = interrupted and (info.get("name"), info.get("source")) == (name, source)
        others = [p for p in (folder / "records").glob("*.parquet") if p not in self.sizes]
        foreign = [path for path in others if _has_rows(path)]
        if foreign and not interrupted:
            raise UsageError(
                f"{folder} holds records that no import of this program made, or that another "
                f"program has changed since ({foreign[0].name}): import into another folder"
            )
        another = any(self.sizes.values()) and not self._shares_ids and not going_on
        if another and not self._has_picture_of(read()):
            raise UsageError(
                f"{folder} holds a collection that shares no id and no picture with this import, "
                "which would empty it: choose another folder, or delete that one first"
            )

    def _has_picture_of(self, items: Iterable["Item"]) -> bool:
        """Whether a picture of the items is there already, under whatever name."""
        shards = finished_shards(self._folder)
        contents = {entry.content for shard in shards for entry in shard.entries} - {None}
        return any(_content(item, self._folder) in contents for item in items)

    def clear_remains(self) -> list[tuple[str, str]]:
        """Delete what a killed run left: temporary files, and shards without a fitting manifest.

        Such a shard may have been finished once, and annotated: what is written in it is kept. One
        that cannot be read is no killed run's, for these are whole or not there: it goes to
        `DAMAGED`, and is returned with what became of it.
        """
        folder = self._folder
        places = [folder / name for name in ("records", MANIFESTS)]
        for place in places:
            place.mkdir(exist_ok=True)
        unfinished = [p for p in places[0].glob("part-*.parquet") if p not in self.sizes]
        damaged: list[Path] = []
        keep(folder, _readable(unfinished, damaged))
        problems = [(path.name, _set_aside(folder, path)) for path in damaged]
        manifests = {manifest_path(path) for path in self.sizes}
        idle = [path for path in places[1].glob("part-*.json") if path not in manifests]
        for place in (folder, folder / IMAGES, *places):
            idle += place.glob(".*.tmp")
        for path in unfinished + idle:
            path.unlink(missing_ok=True)
        return problems

    def take_out_stale(self, *, all_splits: bool) -> tuple[dict[str, str], set[str | None]]:
        """Take out what is gone or has changed, and keep what is written about it.

        Returns by id the splits of what goes, without `all_splits` those that are not "train": an
        edited picture is another one, and yet no new one, so it stays on its side. And the contents
        of the records whose ids are not wanted any more.
        """
        splits: dict[str, str] = {}
        contents: set[str | None] = set()

        def leaving() -> Iterator[tuple[Record, str | None]]:
            for shard in finished_shards(self._folder, sorted(self.stale)):
                places = self._wanted.places(entry.id for entry in shard.entries).tolist()
                rows = zip(shard.entries, self.stale[shard.path], places, strict=True)
                records = file_records(shard.path)
                for record, (entry, stays, place) in zip(records, rows, strict=True):
                    if stays:
                        continue
                    if all_splits or entry.split != TRAIN:
                        splits[entry.id] = entry.split
                    if place < 0:
                        contents.add(entry.content)
                    yield record, entry.pixels

        if self.stale:
            keep(self._folder, leaving())
        dropped: set[str] = set()
        for shard in finished_shards(self._folder, sorted(self.stale)):
            stays = self.stale[shard.path]
            if any(entry.stamp.endswith(LINKED) for entry in shard.entries):
                dropped |= linked(shard.path)
            if stays.any():
                rewrite(shard.path, lambda row, *_, stays=stays: {} if stays[row] else None)
            else:
                shard.delete()
                del self.sizes[shard.path]
        delete_unused(self._folder, dropped, self.sizes)
        return splits, contents - {None}


def _linked_paths(shard: Shard) -> list[str | None]:
    """The paths of images that an import has put beside a shard; `None` for those within it."""
    links = [entry.stamp.endswith(LINKED) for entry in shard.entries]
    if not any(links):
        return [None] * len(links)
    records = (record for record, _ in rows_as_taken(shard.path, fields=()))
    return [r.image.path if link else None for r, link in zip(records, links, strict=True)]


def _content(item: "Item", folder: Path) -> str | None:
    """The content hash of an item's image as it is now; None if it cannot be had."""
    try:
        if item.file is not None:
            return content_hash(item.file.read_bytes())
        image = item.make().image
        if image.bytes is not None:
            return content_hash(image.bytes)
        return None if image.path is None else content_hash(inside(folder, image.path).read_bytes())
    except (ParagrainError, OSError):
        return None


def _has_rows(path: Path) -> bool:
    """Whether a Parquet file is whole, and so may be somebody's data rather than a remain."""
    try:
        return bool(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return False


def _readable(files: Iterable[Path], damaged: list[Path]) -> Iterator[tuple[Record, None]]:
    """The records of Parquet files that are about to go, as far as they can be read."""
    for file in files:
        try:
            yield from ((record, None) for record in file_records(file))
        except (ParagrainError, OSError, pa.ArrowException):
            damaged.append(file)


def _set_aside(folder: Path, path: Path) -> str:
    """Move a shard that cannot be read to `DAMAGED`; what became of it."""
    (folder / DAMAGED).mkdir(exist_ok=True)
    names = (f"{path.stem}{f'-{n}' if n else ''}{path.suffix}" for n in count())
    target = next(p for name in names if not (p := folder / DAMAGED / name).exists())
    path.rename(target)
    return (
        "damaged: its records are made again, without texts that only this file held; it is now "
        f"{DAMAGED}/{target.name}"
    )


def refuse_other_files(folder: Path) -> None:
    """Refuse what is no folder, or one that holds anything but a collection."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder to write the collection to")
    if folder.is_dir() and not (folder / "collection.json").is_file():
        if all(path.name.startswith(".") for path in folder.iterdir()):
            return
        raise UsageError(
            f"{folder} holds other files and is no collection: choose a new or an empty folder"
        )
