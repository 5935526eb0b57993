"""Writing a collection as a sync: only what is missing or changed is made, a kill loses little."""

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.reading import inside, read_shard
from paragrain.collection.record import Record, digest
from paragrain.collection.shards import MEBIBYTE, Row, finished_shards, shard_path, write_shard
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json, write_text
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
    items: Iterable[Item],
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
        items: read once; ids and stamps stay in memory, images never do. Of two items with one
            id the later is skipped and named.
        name: what the data set is called.
        source: the kind of source, such as "folder".
        licence: of the data, as far as known.
        created_by: the program; by default this package and its version.
        problems: (id, reason) of what the source itself could not take in; they join `skipped`.
        notes: remarks of the source for the report.
        shard_rows: most records in one Parquet file.
        shard_bytes: image bytes after which a Parquet file ends.
        max_pixels: see `images.decode`, which checks every image that is not trusted.
        show: whether to show a progress bar.

    Raises:
        UsageError: `folder` holds something else, or a collection that shares no id with `items`.
    """
    folder = Path(folder)
    report = ImportReport(folder, skipped=list(problems), notes=list(notes))
    wanted = _by_id(items, report)
    shards = finished_shards(folder)
    _refuse_another_data_set(folder, shards, wanted)
    info = {
        "format": FORMAT,
        "name": name,
        "source": source,
        "licence": licence,
        "created_by": created_by or f"paragrain {version('paragrain')}",
    }
    write_json(folder / "collection.json", {**info, "complete": False})
    _clear_away_remains(folder, shards)
    kept = _drop_stale(folder, shards, wanted, report)
    missing = [item for item in wanted.values() if item.id not in kept]
    make = partial(_make, folder=folder, max_pixels=max_pixels)
    number = max(shards, default=-1) + 1
    with progress_bar(f"importing {name}", len(missing), unit="records", show=show) as advance:
        made = _in_order(make, missing, advance)
        for rows in _shards(made, report, shard_rows, shard_bytes):
            shards[number] = write_shard(folder, number, rows)
            number += 1
    report.kept = len(kept)
    report.splits = dict(
        Counter(split for _, shard in sorted(shards.items()) for _, _, split in shard["items"])
    )
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


def _by_id(items: Iterable[Item], report: ImportReport) -> dict[str, Item]:
    wanted: dict[str, Item] = {}
    for item in items:
        if not item.id:
            report.skipped.append((item.id, "it has no id"))
        elif item.id in wanted:
            report.skipped.append((item.id, "this id came before; the later one is left out"))
        else:
            wanted[item.id] = item
    return wanted


def _refuse_another_data_set(
    folder: Path, shards: dict[int, dict[str, Any]], wanted: dict[str, Item]
) -> None:
    """Refuse a folder whose content this import would destroy, or would be mixed up with."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder to write the collection to")
    if folder.is_dir() and not (folder / "collection.json").is_file():
        if all(path.name.startswith(".") for path in folder.iterdir()):
            return
        raise UsageError(
            f"{folder} holds other files and is no collection: choose a new or an empty folder"
        )
    finished = {shard_path(folder, number) for number in shards}
    others = [p for p in (folder / "records").glob("*.parquet") if p not in finished]
    foreign = [path for path in others if _has_rows(path)]
    if foreign and not _was_interrupted(folder):
        raise UsageError(
            f"{folder} holds records that no import of this program made ({foreign[0].name}): "
            "choose another folder, or delete that one first"
        )
    there = {id for manifest in shards.values() for id, _, _ in manifest["items"]}
    if there and there.isdisjoint(wanted):
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


def _clear_away_remains(folder: Path, shards: dict[int, dict[str, Any]]) -> None:
    """Delete what a killed run left: temporary files, and shards without a fitting manifest."""
    records = folder / "records"
    records.mkdir(exist_ok=True)
    finished = {shard_path(folder, number) for number in shards}
    unfinished = [p for p in records.glob("part-*") if p.with_suffix(".parquet") not in finished]
    ours = ("records/.part-*.tmp", ".collection.json.*.tmp", ".skipped.jsonl.*.tmp")
    temporary = [path for pattern in ours for path in folder.glob(pattern)]
    for path in unfinished + temporary:
        path.unlink()


def _drop_stale(
    folder: Path,
    shards: dict[int, dict[str, Any]],
    wanted: dict[str, Item],
    report: ImportReport,
) -> set[str]:
    """Take out of the shards what is gone or has changed; return the ids that stay."""
    kept: set[str] = set()
    for number, manifest in list(shards.items()):
        stamps = {
            id: stamp
            for id, stamp, _ in manifest["items"]
            if id in wanted and wanted[id].stamp == stamp and id not in kept
        }
        report.removed += sum(id not in wanted for id, _, _ in manifest["items"])
        kept |= stamps.keys()
        if len(stamps) == len(manifest["items"]):
            continue
        path = shard_path(folder, number)
        if stamps:
            rows = [(r, stamps[r.id], digest(r)) for r in read_shard(path) if r.id in stamps]
            shards[number] = write_shard(folder, number, rows, before=manifest)
        else:
            path.with_suffix(".json").unlink()
            path.unlink()
            del shards[number]
    return kept


# --- Making and writing records ---------------------------------------------------------------


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
    lines = [json.dumps({"id": id, "reason": reason}) + "\n" for id, reason in skipped]
    if lines:
        write_text(path, "".join(lines))
    else:
        path.unlink(missing_ok=True)
