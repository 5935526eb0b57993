"""Running the loop over many images at once: a bounded number of calls under way, in any order."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragrain.annotation.asking import Asker
from paragrain.annotation.contents import Contents
from paragrain.annotation.finished import recall, remember
from paragrain.annotation.log import CallLog
from paragrain.annotation.loop import Outcome, annotate_image
from paragrain.annotation.remembering import Guides, Replay, replay
from paragrain.annotation.report import AnnotationReport, ImageLog, Unread, read_failed
from paragrain.annotation.sending import prepare
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Collection, Record, update_records
from paragrain.errors import ParagrainError
from paragrain.images import BadImage
from paragrain.runtime import cores

GIVE_UP_AFTER = 100
"""Images in a row that get no answer, after which a run stops: the server is gone."""

_ROWS = 1000  # records that are read at once without their images
_CHUNK = 16  # and with them
_MOST_CHANGES = 20_000
"""Records of one file whose texts wait to be written; other tools make files of any size."""


@dataclass
class _File:
    """One Parquet file of the collection on its way."""

    path: Path
    report: AnnotationReport
    waiting: int = 0
    fed: bool = False
    whole: bool = True  # all its records are looked at, and none has to be asked about again
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Work:
    """One image that needs calls."""

    record: Record
    data: bytes
    content: str
    known: Replay
    file: _File


@dataclass
class _Settled:
    """One image that is through: what came of it."""

    record: Record
    result: Outcome | BadImage
    content: str = ""
    caption: str | None = None
    replies: int = 0
    replayed: bool = False


class Runner:
    """Annotates files of a collection, in one process and one event loop."""

    def __init__(
        self,
        collection: Collection,
        settings: AnnotationSettings,
        log: CallLog,
        report: AnnotationReport,
        images: ImageLog,
        run: str,
        *,
        split: str | None = None,
        limit: int | None = None,
        advance: Callable[[int], None],
        trouble: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            collection: what to annotate.
            settings: how.
            log: where replies are kept, and found again.
            report: counts what happens.
            images: told of each image that is through, for others to read.
            run: name of these settings.
            split: annotate this split only.
            limit: stop after so many records.
            advance: called with the number of images that have come through.
            trouble: called twice a second with the reason why calls are waiting; empty if none is.
        """
        self.collection, self.settings, self.log = collection, settings, log
        self.report, self.images, self.advance, self.trouble = report, images, advance, trouble
        self.name, self.split, self.limit = run, split, limit
        self._ids = collection.files()
        self._contents = Contents(collection)
        self._run = f"{run} {self._contents.linked}"  # with the files beside it as they are
        self._guides = Guides(collection.folder / "annotation" / "images")
        self._unread = Unread(report)
        self._unanswered_in_a_row = 0
        self._failed_before = read_failed(collection.folder / "annotation")
        self._pool = ThreadPoolExecutor(max(2, cores()))

    async def run(self, files: Iterable[Path], asker: Asker) -> None:
        """Annotate all records of some Parquet files, and write the texts into them.

        A file is written as soon as all its records are through; when the run is stopped, by an
        error or by hand, what is there is written too.

        Raises:
            ParagrainError: nothing more can be had from a model; what was had is written.
        """
        queue: asyncio.Queue[_Work | None] = asyncio.Queue(maxsize=2 * _CHUNK)
        open_files: list[_File] = []
        # A few more images than calls, so that a free place finds one that is decoded.
        count = asker.in_flight + 2 * cores()
        try:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick(asker))
                works = [group.create_task(self._work(queue, asker)) for _ in range(count)]
                works.append(group.create_task(self._feed(files, queue, open_files, count)))
                await asyncio.wait(works)
                ticking.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for file in open_files:
                with suppress(OSError):  # the first error is the one to be told
                    await self._publish(file)
            self._pool.shutdown()
            asker.collect_notes()

    async def _tick(self, asker: Asker) -> None:
        """Have the disk hold each reply within a second, and say what is being waited for."""
        while True:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(self.log.sync)
            self.trouble(asker.trouble)

    # --- images in -----------------------------------------------------------------------------

    async def _feed(
        self,
        files: Iterable[Path],
        queue: "asyncio.Queue[_Work | None]",
        open_files: list[_File],
        workers: int,
    ) -> None:
        """Put all images that need calls into the queue; settle those that need none."""
        for path in files:
            if self.limit == 0:
                break
            known = recall(self.collection.folder, path, self._run, self.split)
            if known is not None and (self.limit is None or self.limit >= known.images):
                self.limit = None if self.limit is None else self.limit - known.images
                self.report.add(known)
                self.advance(known.images)
                continue
            file = _File(path, AnnotationReport(self.collection.folder))
            open_files.append(file)
            try:
                await self._feed_file(file, queue)
            except ParagrainError as error:  # damaged: the others go on
                self.report.failed.append((path.name, str(error)))
                file.whole = False
            file.fed = True
            await self._close_if_through(file)
            open_files[:] = [f for f in open_files if f.waiting or not f.fed]
        for _ in range(workers):
            await queue.put(None)

    async def _feed_file(self, file: _File, queue: "asyncio.Queue[_Work | None]") -> None:
        ids = self._ids[file.path]
        for first in range(0, len(ids), _ROWS):
            records = await self._in_thread(self._look, ids[first : first + _ROWS], file)
            for start in range(0, len(records), _CHUNK):
                chunk = records[start : start + _CHUNK]
                for work in await self._in_thread(self._read, chunk, file):
                    if isinstance(work, _Work):
                        file.waiting += 1
                        await queue.put(work)
                    else:
                        self._settle(file, work)
            if len(file.changes) >= _MOST_CHANGES:
                await self._publish(file)

    def _look(self, ids: list[str], file: _File) -> list[Record]:
        """Some records that are to be annotated, without their images."""
        found = self.collection.get(ids, images=False).values()
        records = [record for record in found if self.split in (None, record.split)]
        if self.limit is not None:
            file.whole &= len(records) <= self.limit
            records = records[: self.limit]
            self.limit -= len(records)
        return records

    def _read(self, records: list[Record], file: _File) -> list[_Work | _Settled]:
        """What is to be done about some records: work, or what came of them already."""
        known: dict[str, Replay] = {}
        works: list[_Work | _Settled] = []
        sound: list[Record] = []
        for record in records:
            try:
                content = self._contents.of(record)
            except BadImage as error:
                works.append(_Settled(record, error))
                continue
            sound.append(record)
            if content is not None:
                known[record.id] = self._replay(record, content)
        open_ids = [r.id for r in sound if r.id not in known or known[r.id].outcome is None]
        loaded = self.collection.get(open_ids)
        for record in sound:
            data, content = b"", record.content or ""  # known to be a hash, or read now
            if record.id in loaded:
                try:
                    data, content = self._contents.read(loaded[record.id])
                except BadImage as error:
                    works.append(_Settled(record, error))
                    continue
            memory = known.get(record.id) or self._replay(record, content)
            if memory.outcome is None:
                works.append(_Work(record, data, content, memory, file))
                continue
            self.report.reused += memory.found
            works.append(
                _Settled(record, memory.outcome, content, memory.caption, memory.found, True)
            )
        return works

    def _replay(self, record: Record, content: str) -> Replay:
        return replay(record, content, self.settings, self.log, self._guides)

    # --- images through ------------------------------------------------------------------------

    async def _work(self, queue: "asyncio.Queue[_Work | None]", asker: Asker) -> None:
        """Annotate one image after another."""
        while (work := await queue.get()) is not None:
            result: Outcome | BadImage
            replies, caption = 0, work.known.caption
            try:
                picture = await self._in_thread(prepare, work.data, self.settings.image)
            except BadImage as error:
                result = error
            else:
                work.data = b""  # the picture is all that is needed from here on
                loop = annotate_image(work.record, work.content, self.settings, caption)
                outcome, replies = await asker.drive(
                    loop, work.content, picture, fresh=work.known.fresh
                )
                self._watch(outcome)
                self._unread.outcome(outcome)
                result = outcome
            work.file.waiting -= 1
            settled = _Settled(work.record, result, work.content, caption, replies)
            self._settle(work.file, settled)
            await self._close_if_through(work.file)

    def _watch(self, outcome: Outcome) -> None:
        """Stop the run if the server does not answer any more."""
        failed = [f for f in outcome.lacking.values() if f.kind == "unanswered"]
        if failed and outcome.id in self._failed_before:
            return  # a sick image that takes no others with it
        self._unanswered_in_a_row = self._unanswered_in_a_row + 1 if failed else 0
        if self._unanswered_in_a_row >= GIVE_UP_AFTER:
            raise ParagrainError(
                f"{GIVE_UP_AFTER} images in a row got no answer, the last one since "
                f"{failed[0].detail}: see to the server and run the same command again, which "
                "goes on from here"
            )

    # --- texts out -----------------------------------------------------------------------------

    def _settle(self, file: _File, settled: _Settled) -> None:
        """Count what came of one image, and keep its texts until its file is written."""
        result, identity = settled.result, settled.record.id
        file.report.reused += settled.replies
        for report in (self.report, file.report):
            if isinstance(result, BadImage):
                report.count_skipped(identity, result.reason)
            else:
                report.count_outcome(result)
        if isinstance(result, BadImage):
            self.images.skipped(identity, result.reason)
        else:
            self.images.outcome(result, settled.content, settled.caption, replayed=settled.replayed)
            file.whole &= not any(failure.again for failure in result.lacking.values())
            if result.changes:
                file.changes[identity] = result.changes
        self.advance(1)

    async def _close_if_through(self, file: _File) -> None:
        if file.fed and not file.waiting:
            await self._publish(file)
            if file.whole:
                remember(self.collection.folder, file.path, self._run, self.split, file.report)

    async def _publish(self, file: _File) -> None:
        """Write the texts that are there into the collection."""
        async with file.writing:
            changes, file.changes = file.changes, {}
            if not changes:
                return
            try:
                self.report.changed += await asyncio.to_thread(
                    update_records, self.collection.folder, file.path, changes
                )
            except ParagrainError as error:  # damaged: the other files are not
                file.whole = False
                self.report.failed.append((file.path.name, str(error)))

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
