"""What a collection holds already, compared with what an import wants, and brought down to that."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.kept import keep
from paragrain.collection.linking import IMAGES, LINKED, let_go, linked, paths_of
from paragrain.collection.reading import inside, read_shard
from paragrain.collection.record import Record, digest
from paragrain.collection.shards import (
    MANIFESTS,
    Row,
    entries,
    finished_shards,
    manifest_path,
    shard_path,
    write_shard,
)
from paragrain.collection.splitting import TRAIN
from paragrain.collection.wanted import Wanted
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json
from paragrain.images import content_hash

if TYPE_CHECKING:
    from paragrain.collection.writing import Item

Read = Callable[[], Iterable["Item"]]

DAMAGED = "damaged"
"""The folder for Parquet files that cannot be read, and may hold what somebody wrote."""


@dataclass
class There:
    """The finished shards of a collection, compared with what is wanted.

    Attributes:
        splits: records of each split in each shard.
        stale: of the shards that lose records, which rows stay, as bools.
        gone: records with ids that are not wanted.
        shares: whether any id is wanted.
    """

    splits: dict[int, Counter[str]] = field(default_factory=dict)
    stale: dict[int, np.ndarray] = field(default_factory=dict)
    gone: int = 0
    shares: bool = False

    def lose(self, number: int, row: int) -> None:
        """Note that one record of a shard does not stay."""
        stays = self.stale.setdefault(number, np.ones(self.splits[number].total(), bool))
        stays[row] = False


def compare(folder: Path, wanted: Wanted, *, anew: bool = False) -> There:
    """Find what of a collection stays, and mark it as no longer missing.

    Args:
        folder: of the collection.
        wanted: what the source has.
        anew: nothing stays, so that each record is made again.
    """
    there = There()
    for number, manifest in finished_shards(folder):
        there.splits[number] = split_counts(manifest)
        places = wanted.places(entry.id for entry in entries(manifest))
        stays = wanted.same_stamps(places, (entry.stamp for entry in entries(manifest)))
        stays &= wanted.missing[places] if len(wanted) and not anew else False
        stays &= _whole(folder, number, manifest)
        wanted.missing[places[stays]] = False  # so that no later shard has it too
        there.gone += int(np.sum(places < 0))
        there.shares |= bool(np.any(places >= 0))
        if not stays.all():
            there.stale[number] = stays
    return there


def _whole(folder: Path, number: int, manifest: Mapping[str, Any]) -> np.ndarray:
    """Whether the image of each record is where an import has put it, bool."""
    paths = _linked_paths(folder, number, manifest)
    return np.array([path is None or (folder / path).is_file() for path in paths], bool)


def _linked_paths(folder: Path, number: int, manifest: Mapping[str, Any]) -> list[str | None]:
    """The paths of images that an import has put beside a shard; `None` for those within it."""
    links = [entry.stamp.endswith(LINKED) for entry in entries(manifest)]
    if not any(links):
        return [None] * len(links)
    paths = paths_of(shard_path(folder, number))
    return [path if link else None for path, link in zip(paths, links, strict=True)]


def verify(folder: Path, wanted: Wanted, there: There, read: Read) -> int:
    """Hash what would stay, and have what holds other bytes than it did made again.

    Returns:
        How many images have changed under their name, size and time.
    """
    # of each place: shard, row, content, and where the collection has a link or a copy
    known: dict[int, tuple[int, int, str | None, str | None]] = {}
    for number, manifest in finished_shards(folder):
        places = wanted.places(entry.id for entry in entries(manifest)).tolist()
        stays = there.stale.get(number, np.ones(len(places), bool))
        paths = _linked_paths(folder, number, manifest)
        rows = zip(places, entries(manifest), paths, strict=True)
        for row, (place, entry, path) in enumerate(rows):
            if stays[row]:
                known[place] = number, row, entry.content, path
    changed = 0
    for place, item in enumerate(read()):
        if place not in known or not wanted.first[place]:
            continue
        number, row, content, path = known[place]
        own = content if path is None else content_hash((folder / path).read_bytes())
        if own != content or _content(item, folder) != content:
            there.lose(number, row)
            wanted.missing[place] = True
            changed += 1
    return changed


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


def split_counts(manifest: Mapping[str, Any]) -> Counter[str]:
    """Records of each split in a shard."""
    return Counter(entry.split for entry in entries(manifest))


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


def refuse_another_data_set(
    folder: Path, there: There, read: Read, *, name: str, source: str
) -> None:
    """Refuse a collection that this import would destroy, or would be mixed up with."""
    info = known_info(folder)
    interrupted = info.get("complete") is False
    going_on = interrupted and (info.get("name"), info.get("source")) == (name, source)
    finished = {shard_path(folder, number) for number in there.splits}
    others = [p for p in (folder / "records").glob("*.parquet") if p not in finished]
    foreign = [path for path in others if _has_rows(path)]
    if foreign and not interrupted:
        raise UsageError(
            f"{folder} holds records that no import of this program made, or that another program "
            f"has changed since ({foreign[0].name}): import into another folder"
        )
    another = any(there.splits.values()) and not there.shares and not going_on
    if another and not _same_pictures(folder, read):
        raise UsageError(
            f"{folder} holds a collection that shares no id and no picture with this import, "
            "which would empty it: choose another folder, or delete that one first"
        )


def _same_pictures(folder: Path, read: Read) -> bool:
    """Whether an import brings a picture that is there already, under whatever name."""
    contents = {e.content for _, manifest in finished_shards(folder) for e in entries(manifest)}
    contents.discard(None)
    return any(_content(item, folder) in contents for item in read())


def _has_rows(path: Path) -> bool:
    """Whether a Parquet file is whole, and so may be somebody's data rather than a remain."""
    try:
        return bool(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return False


def known_info(folder: Path) -> dict[str, Any]:
    """What `collection.json` says, nothing where there is none or it cannot be read."""
    try:
        info = read_json(folder / "collection.json")
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def remembered(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, *, drop_texts: bool = False
) -> Mapping[str, Any] | None:
    """How to repeat all imports into a collection at once.

    Of an import of the same kind as the one before, arguments that are not given now stay, and
    tables of texts add up, the newest last. Those that are not on the disk any more are forgotten;
    what they said stays in the records.

    Args:
        before: what is remembered already.
        now: kind and arguments of this import.
        drop_texts: this import drops texts of others, so it forgets their tables.

    >>> before = {"kind": "folder", "arguments": {"folder": "/a", "val": 0.1, "texts": ["/"]}}
    >>> now = {"kind": "folder", "arguments": {"folder": "/a", "texts": ["/b.csv"], "val": None}}
    >>> remembered(before, now)["arguments"]
    {'folder': '/a', 'val': 0.1, 'texts': ['/', '/b.csv']}
    >>> remembered(before, now, drop_texts=True)["arguments"]
    {'folder': '/a', 'val': 0.1, 'texts': ['/b.csv']}
    """
    if now is None or before is None or before.get("kind") != now.get("kind"):
        return now or before
    old, new = dict(before["arguments"]), dict(now["arguments"])
    given = {name: value for name, value in new.items() if value is not None}
    newest, others = new.get("texts") or [], old.pop("texts", None) or []
    kept = (path for path in others if path not in newest and Path(path).exists())
    texts = [] if drop_texts else list(kept)
    if texts or newest:
        given["texts"] = texts + newest
    return {**now, "arguments": {**old, **given}}


def clear_away_remains(folder: Path, shards: Iterable[int]) -> list[tuple[str, str]]:
    """Delete what a killed run left: temporary files, and shards without a fitting manifest.

    Such a shard may have been finished once, and annotated: what is written in it is kept. One
    that cannot be read is no killed run's, for these are whole or not there: it goes to `DAMAGED`.

    Returns:
        Name of each shard that cannot be read, and what became of it.
    """
    (folder / "records").mkdir(exist_ok=True)
    (folder / MANIFESTS).mkdir(exist_ok=True)
    finished = {shard_path(folder, number) for number in shards}
    unfinished = [p for p in (folder / "records").glob("part-*.parquet") if p not in finished]
    damaged: list[Path] = []
    keep(folder, _salvaged(unfinished, damaged))
    problems = [(path.name, _set_aside(folder, path)) for path in damaged]
    manifests = {manifest_path(path) for path in finished}
    idle = [p for p in (folder / MANIFESTS).glob("part-*.json") if p not in manifests]
    ours = (
        "records/.part-*.tmp",
        f"{MANIFESTS}/.part-*.tmp",
        ".collection.json.*.tmp",
        ".skipped.jsonl.*.tmp",
        ".kept_texts.jsonl.*.tmp",
        f"{IMAGES}/.*.tmp",
    )
    temporary = [path for pattern in ours for path in folder.glob(pattern)]
    for path in unfinished + idle + temporary:
        path.unlink(missing_ok=True)
    return problems


def _salvaged(files: Iterable[Path], damaged: list[Path]) -> Iterator[tuple[Record, None]]:
    """The records of Parquet files that are about to go, as far as they can be read."""
    for file in files:
        try:
            yield from ((record, None) for record in read_shard(file, images=False))
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


def drop_stale(folder: Path, there: There) -> None:
    """Take out of the shards what is gone or has changed, and keep what is written about it."""
    if not there.stale:
        return
    keep(folder, _leaving(folder, there))
    dropped: set[str] = set()
    for number, manifest in finished_shards(folder, sorted(there.stale)):
        path, stays = shard_path(folder, number), there.stale[number]
        if any(entry.stamp.endswith(LINKED) for entry in entries(manifest)):
            dropped |= linked(path)
        if stays.any():
            staying = {e.id: e for e, stay in zip(entries(manifest), stays, strict=True) if stay}
            rows = [
                Row(r, staying[r.id].stamp, digest(r), staying[r.id].pixels)
                for r in read_shard(path)
                if r.id in staying
            ]
            there.splits[number] = split_counts(write_shard(folder, number, rows, before=manifest))
        else:
            manifest_path(path).unlink()
            path.unlink()
            del there.splits[number]
    let_go(folder, dropped, (shard_path(folder, number) for number in there.splits))


def contents_gone(folder: Path, wanted: Wanted, there: There) -> set[str | None]:
    """The contents of the records whose ids are not wanted any more."""
    contents: set[str | None] = set()
    for _, manifest in finished_shards(folder, sorted(there.stale) if there.gone else ()):
        places = wanted.places(entry.id for entry in entries(manifest)).tolist()
        rows = zip(entries(manifest), places, strict=True)
        contents |= {entry.content for entry, place in rows if place < 0}
    return contents - {None}


def splits_of_changed(folder: Path, there: There, *, all_of_them: bool) -> dict[str, str]:
    """The splits of the records that do not stay, by id; those in "train" only if asked for.

    An edited picture is another one, and yet no new one: it stays on its side.
    """
    return {
        entry.id: entry.split
        for number, manifest in finished_shards(folder, sorted(there.stale))
        for entry, stays in zip(entries(manifest), there.stale[number], strict=True)
        if not stays and (all_of_them or entry.split != TRAIN)
    }


def _leaving(folder: Path, there: There) -> Iterator[tuple[Record, str | None]]:
    """The records that do not stay, without images, each with its `pixels_hash`."""
    for number, manifest in finished_shards(folder, sorted(there.stale)):
        rows = zip(entries(manifest), there.stale[number], strict=True)
        pixels = {entry.id: entry.pixels for entry, stays in rows if not stays}
        for record in read_shard(shard_path(folder, number), images=False):
            if record.id in pixels:
                yield record, pixels[record.id]
