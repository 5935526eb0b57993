"""Writing a collection as a sync: only what is missing or changed is made, a kill loses little."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from paragrain.collection.existing import Existing, refuse_other_files
from paragrain.collection.fields import FIELDS, NESTED_FIELDS, ImageRef, Record, record_digest
from paragrain.collection.identities import Identities
from paragrain.collection.image_files import LINKED, ImageFiles
from paragrain.collection.kept_texts import KeptTexts
from paragrain.collection.reading import inside, known_info
from paragrain.collection.reports import ImportReport, Pair, Skipped, WriteOptions, texts_notes
from paragrain.collection.shards import (
    MEBIBYTE,
    Row,
    finished_shards,
    shard_path,
    write_shard,
    writing_alone,
)
from paragrain.collection.splits import Shares, key_of, settle_splits
from paragrain.collection.updating import align_columns
from paragrain.errors import ParagrainError
from paragrain.files import write_json
from paragrain.images import BadImage, content_hash, decode, pixels_hash
from paragrain.progress import progress_bar
from paragrain.runtime import cores, map_ahead
from paragrain.words import counted

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
        file: holds the image and nothing else, so that it can be linked; none if there is none.
        says_split: its split comes from the source or the user, and is not the default.
    """

    id: str
    stamp: str
    make: Callable[[], Record]
    trusted: bool = False
    file: Path | None = None
    says_split: bool = True


Read = Callable[[], Iterable[Item]]


def write_collection(
    folder: Path,
    items: Iterable[Item] | Read,
    *,
    name: str,
    source: str,
    created_by: str | None = None,
    problems: Iterable[Pair] = (),
    notes: Iterable[str] = (),
    shard_rows: int = 1000,
    shard_bytes: int = 128 * MEBIBYTE,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Make the collection in `folder` hold exactly `items`, doing only what is missing.

    Records whose id and stamp are there already stay untouched; changed and new ones are
    appended in the order of `items`; those that `items` lacks go. A shard is finished when it has
    its manifest, so a run that was killed continues where it was, and ends in the
    collection that an undisturbed run would have made.

    What is written about a picture stays with it. A record that is made anew, be it since its
    texts have changed or since its file has another name, takes over each field that its source
    says nothing about; where the source has other texts, the old ones are written to
    `replaced_texts.jsonl`. Texts of pictures that are gone wait in `kept_texts.jsonl`.

    Args:
        folder: made if absent; if it exists, it must be empty or a collection of this data set.
        items: read twice, so a function that begins anew is the way to stream millions: 50 bytes
            of each stay in memory. An iterator, which can be read only once, becomes a list
            first. Of two items with one id the later is skipped and named.
        name: what the data set is called.
        source: the kind of source, such as "folder".
        created_by: the program; by default this package and its version.
        problems: (id, reason) of what the source itself could not take in; they join `skipped`.
            Looked at after the first reading of `items`, which may have filled it.
        notes: remarks of the source for the report; looked at when `problems` is.
        shard_rows: most records in one Parquet file.
        shard_bytes: image bytes after which a Parquet file ends.
        **options: see `WriteOptions`. Images kept as "paths" are hard links to those of
            `Item.file`, or copies if these cannot be linked. Whoever writes into a linked file
            changes both; deleting one leaves the other whole.

    Raises:
        UsageError: `folder` holds something else, or a collection that shares neither an id nor a
            picture with `items`; or the shares of the splits are none.
        ParagrainError: nothing can be imported, or `items` differ when they are read again.
    """
    folder = Path(folder)
    if isinstance(items, Iterator):
        items = list(items)
    refuse_other_files(folder)
    before = known_info(folder)
    store = options.get("store") or before.get("store") or "bytes"
    shares = _shares(options, before)
    progress = options.get("progress", True)
    again = items if callable(items) else partial(iter, items)
    read = again if store == "bytes" else partial(_to_link, again)
    with progress_bar(f"looking through {name}", None, unit="items", show=progress) as advance:
        wanted = Identities(_identities(read(), advance))
    skipped, failed = Skipped(folder), Skipped(folder)
    skipped.extend(problems)
    report = ImportReport(folder, notes=list(notes))
    drop = options.get("drop_texts", False)
    info = {
        **before,
        "format": FORMAT,
        "name": name,
        "source": source,
        "licence": options.get("licence") or before.get("licence"),
        "created_by": created_by or f"paragrain {version('paragrain')}",
        "store": store,
        "shares": {"val": shares.val, "test": shares.test},
        "import": remembered(before.get("import"), options.get("remember"), drop_texts=drop),
    }
    with writing_alone(folder):
        existing = Existing(folder, wanted, anew=drop)
        existing.refuse_another_data_set(read, name=name, source=source)
        if options.get("verify") and (changed := existing.verify(read)):
            report.notes.append(
                f"other bytes under the old name, size and time: {counted(changed, 'image')}"
            )
        begun = {**info, "shares": before.get("shares"), "complete": False}  # not yet divided
        write_json(folder / "collection.json", begun)
        skipped.extend(existing.clear_remains())
        report.removed = existing.gone
        report.kept = int(np.sum(wanted.first & ~wanted.missing))
        old_splits, gone = existing.take_out_stale(all_splits=bool(shares))
        maker = _Maker(folder, store, options.get("max_pixels"), drop, old_splits, shares)
        todo = _missing(read, wanted, skipped)
        total = int(np.sum(wanted.missing))
        with progress_bar(f"importing {name}", total, unit="records", show=progress) as advance:
            made = map_ahead(maker.make, todo, threads=min(8, cores()))
            number = 1 + max((int(path.stem.split("-")[1]) for path in existing.sizes), default=-1)
            for rows in _shards(made, report, failed, shard_rows, shard_bytes, advance):
                report.renamed += len(gone & {row.record.content for row in rows})
                gone.difference_update(row.record.content for row in rows)
                write_shard(shard_path(folder, number), rows)
                number += 1
        skipped.extend(failed)
        maker.kept.settle(drop=drop)
        if shares:
            anew = before.get("shares") != info["shares"]
            unsaid = (item.id for item in read() if not item.says_split) if anew else None
            settle_splits(folder, shares, maker.fresh, unsaid)
        _finish(folder, info, report, skipped, maker)
    return report


def _shares(options: WriteOptions, before: Mapping[str, Any]) -> Shares:
    """How much goes into "val" and "test": as asked for now, else as it was."""
    old = before.get("shares") or {}
    val, test = options.get("val"), options.get("test")
    return Shares(
        old.get("val", 0.0) if val is None else val, old.get("test", 0.0) if test is None else test
    )


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


def _to_link(read: Read) -> Iterator[Item]:
    """The items with stamps of their own: where its image is kept is a part of a record."""
    for item in read():
        yield replace(item, stamp=item.stamp + LINKED)


def _identities(items: Iterable[Item], advance: Callable[..., None]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items, 1):
        yield item.id, item.stamp
        if not number % 1000:
            advance(1000)


def _finish(
    folder: Path, info: Mapping[str, Any], report: ImportReport, skipped: Skipped, maker: "_Maker"
) -> None:
    """Say what came of the import, in the report and on disk."""
    kept = maker.kept
    report.carried, report.replaced = dict(kept.carried), dict(kept.replaced)
    report.dropped, report.waiting = dict(kept.dropped), kept.waiting
    report.skipped, report.skipped_total = skipped.first, len(skipped)
    for shard in finished_shards(folder):
        for split, count in shard.splits.items():
            report.splits[split] = report.splits.get(split, 0) + count
    if maker.files and maker.files.copied:
        report.notes.append(
            f"copied, since it could not be linked: {counted(maker.files.copied, 'image')}"
        )
    report.notes += texts_notes(report)
    names = folder / "skipped.jsonl"
    skipped.write(names)
    if skipped and not report.splits:
        id, reason = skipped.first[0]
        raise ParagrainError(
            f"none of the {len(skipped):,} items of {info['name']} can be imported "
            f"({id}: {reason}): see {names}"
        )
    if report.splits:
        align_columns(folder)
    result = {"splits": report.splits, "skipped": len(skipped), "notes": report.notes}
    write_json(folder / "collection.json", {**info, "complete": True, **result})


# --- Making and writing records ---------------------------------------------------------------


def _missing(read: Read, wanted: Identities, unfit: Skipped) -> Iterator[Item]:
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


class _Maker:
    """Makes the records of items; several threads use it.

    Attributes:
        kept: texts of records that left their shards, which new records take.
        files: where images go that are kept as files.
        fresh: the ids of new images whose split nobody says.
    """

    def __init__(
        self,
        folder: Path,
        store: str,
        max_pixels: int | None,
        drop: bool,
        splits: Mapping[str, str],
        shares: Shares,
    ) -> None:
        self.kept = KeptTexts(folder)
        self.files = None if store == "bytes" else ImageFiles(folder)
        self.fresh: set[str] = set()
        self._folder, self._max_pixels, self._drop = folder, max_pixels, drop
        self._splits, self._shares = splits, shares

    def make(self, item: Item) -> tuple[Item, Row | str]:
        """The record of an item, checked; or the reason why there is none."""
        try:
            return item, self._row(item)
        except UnicodeEncodeError:
            return item, "its text holds an unpaired surrogate, which is not valid Unicode"
        except BadImage as error:
            return item, error.reason
        except ParagrainError as error:
            return item, str(error)
        except OSError as error:
            return item, f"cannot be read: {error.strerror or error}"

    def _row(self, item: Item) -> Row:
        record = item.make()
        if record.id != item.id:
            raise ValueError(f"item {item.id!r} made a record with the id {record.id!r}")
        for name in NESTED_FIELDS:
            try:
                setattr(record, name, FIELDS[name].checked(getattr(record, name)))
            except (ValueError, TypeError) as error:
                raise BadRecord(f"its field {name} is of no use ({error})") from None
        data = record.image.bytes
        if data is None and record.image.path is not None:
            data = inside(self._folder, record.image.path).read_bytes()
        pixels = None
        if data is not None:
            record.content = content_hash(data)
            if not item.trusted:
                pixels = pixels_hash(decode(data, max_pixels=self._max_pixels))
            if self.files and item.file is not None and record.image.path is not None:
                path = self.files.put(item.id, item.file, record.image.path, data)
                record.image = ImageRef(path=path)
        says = item.says_split
        record, known = self.kept.take(record, pixels, says_split=says, texts=not self._drop)
        if not says and not known:
            record.split = self._splits.get(item.id, record.split)
            if self._shares and item.id not in self._splits:
                key = key_of(record.group, record.content, record.id)
                record.split = self._shares.split_of(key)
                self.fresh.add(record.id)
        return Row(record, item.stamp, record_digest(record), pixels)


def _shards(
    made: Iterable[tuple[Item, Row | str]],
    report: ImportReport,
    failed: Skipped,
    shard_rows: int,
    shard_bytes: int,
    advance: Callable[..., None],
) -> Iterator[list[Row]]:
    """Gather the rows of one shard after another; what cannot be made is named in `failed`."""
    rows: list[Row] = []
    size = 0
    for item, row in made:
        advance()
        if isinstance(row, str):
            failed.append((item.id, row))
            continue
        rows.append(row)
        size += len(row.record.image.bytes or b"")
        report.written += 1
        if len(rows) >= shard_rows or size >= shard_bytes:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows
