"""Writing a collection as a sync: only what is missing or changed is made, a kill loses little."""

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.reading import inside, read_shard
from paragrain.collection.record import Record, digest
from paragrain.collection.shards import MEBIBYTE, Row, finished_shards, shard_path, write_shard
from paragrain.collection.wanted import Wanted
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, replacing, write_json
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar

FORMAT = 1
"""Version of the layout on disk, kept in `collection.json`."""


class BadRecord(ParagrainError):
    """A source's item that cannot become a record; its message is the reason, in a few words."""


@dataclass(frozen=True)
class Item:
    """One thing that a source can turn into a record.

    Attributes:
        id: the id of the record.
        stamp: a short string that changes when the item's source changes, such as its size and
            time; an item whose stamp is already in the collection is not made again.
        make: makes the record. It is called from one of several threads, and may raise
            `BadImage`, `BadRecord` or `OSError`: the item is then skipped and named.
        trusted: the image needs no check, since it was made a moment ago.
    """

    id: str
    stamp: str
    make: Callable[[], Record]
    trusted: bool = False


@dataclass
class ImportReport:
    """What one import did.

    Attributes:
        folder: the collection.
        written: records made and written in this run.
        kept: records that were there already and unchanged.
        removed: records taken out since the source no longer has them.
        skipped: (id, reason) of everything that could not be taken in, whole or in part.
        splits: number of records of each split.
        notes: what else the user should know; nothing went wrong there.
    """

    folder: Path
    written: int = 0
    kept: int = 0
    removed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    splits: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def write_collection(
    folder: Path,
    items: Iterable[Item] | Callable[[], Iterable[Item]],
    *,
    name: str,
    source: str,
    licence: str | None = None,
    created_by: str | None = None,
    problems: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    shard_rows: int = 1000,
    shard_bytes: int = 128 * MEBIBYTE,
    max_pixels: int | None = None,
    show: bool = True,
) -> ImportReport:
    """Make the collection in `folder` hold exactly `items`, doing only what is missing.

    Records whose id and stamp are there already stay untouched; changed and new ones are
    appended in the order of `items`; those that `items` lacks go. A shard is finished when its
    manifest stands beside it, so a run that was killed continues where it was, and ends in the
    collection that an undisturbed run would have made.

    Args:
        folder: made if absent; if it exists, it must be empty or a collection of this data set.
        items: read twice, so a function that begins anew is the way to stream millions: 50 bytes
            of each stay in memory. An iterator, which can be read only once, becomes a list
            first. Of two items with one id the later is skipped and named.
        name: what the data set is called.
        source: the kind of source, such as "folder".
        licence: of the data, as far as known.
        created_by: the program; by default this package and its version.
        problems: (id, reason) of what the source itself could not take in; they join `skipped`.
            Looked at after the first reading of `items`, which may have filled it.
        notes: remarks of the source for the report; looked at when `problems` is.
        shard_rows: most records in one Parquet file.
        shard_bytes: image bytes after which a Parquet file ends.
        max_pixels: see `images.decode`, which checks every image that is not trusted.
        show: whether to show a progress bar.

    Raises:
        UsageError: `folder` holds something else, or a collection that shares no id with `items`.
        ParagrainError: nothing can be imported, or `items` differ when they are read again.
    """
    folder = Path(folder)
    if isinstance(items, Iterator):
        items = list(items)
    read = items if callable(items) else partial(iter, items)
    with progress_bar(f"looking through {name}", None, unit="items", show=show) as advance:
        wanted = Wanted(_identities(read(), advance))
    report = ImportReport(folder, skipped=list(problems), notes=list(notes))
    there = _compare(folder, wanted)
    _refuse_another_data_set(folder, there)
    info = {
        "format": FORMAT,
        "name": name,
        "source": source,
        "licence": licence,
        "created_by": created_by or f"paragrain {version('paragrain')}",
    }
    write_json(folder / "collection.json", {**info, "complete": False})
    _clear_away_remains(folder, there.splits)
    _drop_stale(folder, there)
    report.removed = there.gone
    report.kept = int(np.sum(wanted.first & ~wanted.missing))
    unfit: list[tuple[str, str]] = []
    make = partial(_make, folder=folder, max_pixels=max_pixels)
    number = max(there.splits, default=-1) + 1
    before = len(report.skipped)
    total = int(np.sum(wanted.missing))
    with progress_bar(f"importing {name}", total, unit="records", show=show) as advance:
        made = _in_order(make, _missing(read, wanted, unfit), advance)
        for rows in _shards(made, report, shard_rows, shard_bytes):
            there.splits[number] = _splits(write_shard(folder, number, rows))
            number += 1
    report.skipped[before:before] = unfit
    for _, splits in sorted(there.splits.items()):
        for split, count in splits.items():
            report.splits[split] = report.splits.get(split, 0) + count
    _write_skipped(folder, report.skipped)
    if report.skipped and not report.splits:
        first = f"{report.skipped[0][0]}: {report.skipped[0][1]}"
        raise ParagrainError(
            f"none of the {len(report.skipped):,} items of {name} can be imported ({first}): see "
            f"{folder / 'skipped.jsonl'}"
        )
    write_json(
        folder / "collection.json",
        {
            **info,
            "complete": True,
            "splits": report.splits,
            "skipped": len(report.skipped),
            "notes": report.notes,
        },
    )
    return report


# --- What is wanted and what is there ---------------------------------------------------------


@dataclass
class _There:
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


def _identities(items: Iterable[Item], advance: Callable[..., None]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items, 1):
        yield item.id, item.stamp
        if not number % 1000:
            advance(1000)


def _compare(folder: Path, wanted: Wanted) -> _There:
    """Find what of a collection stays, and mark it as no longer missing."""
    there = _There()
    for number, manifest in finished_shards(folder):
        there.splits[number] = _splits(manifest)
        places = wanted.places(id for id, _, _ in manifest["items"])
        stays = wanted.same_stamps(places, (stamp for _, stamp, _ in manifest["items"]))
        stays &= wanted.missing[places] if len(wanted) else False  # an earlier shard may have it
        wanted.missing[places[stays]] = False
        there.gone += int(np.sum(places < 0))
        there.shares |= bool(np.any(places >= 0))
        if not stays.all():
            there.stale[number] = stays
    return there


def _splits(manifest: Mapping[str, Any]) -> Counter[str]:
    return Counter(split for _, _, split in manifest["items"])


def _refuse_another_data_set(folder: Path, there: _There) -> None:
    """Refuse a folder whose content this import would destroy, or would be mixed up with."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder to write the collection to")
    if folder.is_dir() and not (folder / "collection.json").is_file():
        if all(path.name.startswith(".") for path in folder.iterdir()):
            return
        raise UsageError(
            f"{folder} holds other files and is no collection: choose a new or an empty folder"
        )
    finished = {shard_path(folder, number) for number in there.splits}
    others = [p for p in (folder / "records").glob("*.parquet") if p not in finished]
    foreign = [path for path in others if _has_rows(path)]
    if foreign and not _was_interrupted(folder):
        raise UsageError(
            f"{folder} holds records that no import of this program made ({foreign[0].name}): "
            "choose another folder, or delete that one first"
        )
    if any(there.splits.values()) and not there.shares:
        raise UsageError(
            f"{folder} holds a collection that shares no id with this import, which would empty "
            "it: choose another folder, or delete that one first"
        )


def _has_rows(path: Path) -> bool:
    """Whether a Parquet file is whole, and so may be somebody's data rather than a remain."""
    try:
        return bool(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return False


def _was_interrupted(folder: Path) -> bool:
    """Whether the last import into `folder` was killed, and may have left unfinished shards."""
    try:
        info = read_json(folder / "collection.json")
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and info.get("complete") is False


def _clear_away_remains(folder: Path, shards: Iterable[int]) -> None:
    """Delete what a killed run left: temporary files, and shards without a fitting manifest."""
    records = folder / "records"
    records.mkdir(exist_ok=True)
    finished = {shard_path(folder, number) for number in shards}
    unfinished = [p for p in records.glob("part-*") if p.with_suffix(".parquet") not in finished]
    ours = ("records/.part-*.tmp", ".collection.json.*.tmp", ".skipped.jsonl.*.tmp")
    temporary = [path for pattern in ours for path in folder.glob(pattern)]
    for path in unfinished + temporary:
        path.unlink()


def _drop_stale(folder: Path, there: _There) -> None:
    """Take out of the shards what is gone or has changed."""
    if not there.stale:
        return
    for number, manifest in finished_shards(folder):
        if (stays := there.stale.get(number)) is None:
            continue
        path = shard_path(folder, number)
        if stays.any():
            entries = zip(manifest["items"], stays.tolist(), strict=True)
            stamps = {id: stamp for (id, stamp, _), stay in entries if stay}
            rows = [(r, stamps[r.id], digest(r)) for r in read_shard(path) if r.id in stamps]
            there.splits[number] = _splits(write_shard(folder, number, rows, before=manifest))
        else:
            path.with_suffix(".json").unlink()
            path.unlink()
            del there.splits[number]


# --- Making and writing records ---------------------------------------------------------------


def _missing(
    read: Callable[[], Iterable[Item]], wanted: Wanted, unfit: list[tuple[str, str]]
) -> Iterator[Item]:
    """The items still to be made, read again; those that have no place are named."""
    if wanted.first.all() and not wanted.missing.any():
        return
    first, missing = wanted.first.tobytes(), wanted.missing.tobytes()
    count = 0
    for place, item in enumerate(read()):
        count += 1
        if place < len(wanted) and not missing[place]:
            if not item.id:
                unfit.append((item.id, "it has no id"))
            elif not first[place]:
                unfit.append((item.id, "this id came before; the later one is left out"))
        elif wanted.holds(place, item.id, item.stamp):
            yield item
        else:
            count = -1
            break
    if count != len(wanted):
        raise ParagrainError("the source changed while it was imported: run the import again")


def _make(item: Item, *, folder: Path, max_pixels: int | None) -> tuple[Item, Row | str]:
    """The record of an item, checked; or the reason why there is none."""
    try:
        record = item.make()
        if record.id != item.id:
            raise ValueError(f"item {item.id!r} made a record with the id {record.id!r}")
        data = record.image.bytes
        if data is None and record.image.path is not None:
            data = inside(folder, record.image.path).read_bytes()
        if data is not None:
            record.content = content_hash(data)
            if not item.trusted:
                decode(data, max_pixels=max_pixels)
        return item, (record, item.stamp, digest(record))
    except UnicodeEncodeError:
        return item, "its text holds an unpaired surrogate, which is not valid Unicode"
    except BadImage as error:
        return item, error.reason
    except ParagrainError as error:
        return item, str(error)
    except OSError as error:
        return item, f"cannot be read: {error.strerror or error}"


def _in_order(
    make: Callable[[Item], tuple[Item, Row | str]],
    items: Iterable[Item],
    advance: Callable[..., None],
) -> Iterator[tuple[Item, Row | str]]:
    """Make items in a few threads (decoders let go of the GIL); at most a handful wait."""
    workers = min(8, os.cpu_count() or 1)
    waiting: deque[Future[tuple[Item, Row | str]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
                advance()
        while waiting:
            yield waiting.popleft().result()
            advance()


def _shards(
    made: Iterable[tuple[Item, Row | str]],
    report: ImportReport,
    shard_rows: int,
    shard_bytes: int,
) -> Iterator[list[Row]]:
    """Gather the rows of one shard after another; skipped items go to the report."""
    rows: list[Row] = []
    size = 0
    for item, row in made:
        if isinstance(row, str):
            report.skipped.append((item.id, row))
            continue
        rows.append(row)
        size += len(row[0].image.bytes or b"")
        report.written += 1
        if len(rows) >= shard_rows or size >= shard_bytes:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _write_skipped(folder: Path, skipped: list[tuple[str, str]]) -> None:
    """Name what was skipped in `skipped.jsonl`; ids that are no valid Unicode stay escaped."""
    path = folder / "skipped.jsonl"
    if not skipped:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for id, reason in skipped:
            file.write(json.dumps({"id": id, "reason": reason}) + "\n")
