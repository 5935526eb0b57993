"""Running the loop over many images at once: a bounded number of calls at a time, in any order."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from paragrain.annotation.client import Client
from paragrain.annotation.database import Database
from paragrain.annotation.loop import Outcome, annotate_image
from paragrain.annotation.pictures import Contents, prepare
from paragrain.annotation.replay import Replay, replay
from paragrain.annotation.report import (
    AnnotationReport,
    UnreadReplies,
    add_finished,
    finished_report,
    read_failed,
)
from paragrain.annotation.settings import AnnotationSettings, run_name
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
class _Image:
    """One image on its way; without a result it needs calls."""

    record: Record
    file: _File
    result: Outcome | BadImage | None = None
    content: str = ""
    data: bytes = b""
    replay: Replay | None = None
    replies: int = 0


class Runner:
    """Annotates files of a collection in one event loop; an asynchronous context manager.

    Attributes:
        report: counts what happens.
    """

    def __init__(
        self,
        collection: Collection,
        settings: AnnotationSettings,
        database: Database,
        *,
        split: str | None = None,
        advance: Callable[[int], None] = lambda images: None,
        on_stall: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Prepare; models are opened when the context is entered.

        Args:
            collection: what to annotate.
            settings: how.
            database: of the collection's annotation.
            split: annotate this split only.
            advance: called with the number of images that have come through.
            on_stall: called twice a second with the reason why calls are waiting; empty if none is.
        """
        self.collection, self.settings, self.split = collection, settings, split
        self.advance, self.on_stall = advance, on_stall
        self._run = run_name(settings)
        self._ids = collection.files()
        self._contents = Contents(collection)
        # With the files beside the collection as they are.
        self._inputs = f"{self._run} {self._contents.linked} {split}"
        self._database = database
        self._client = Client(settings, database, AnnotationReport(collection.folder))
        self._failed_before = read_failed(collection.folder / "annotation")
        self._unanswered_in_a_row = 0
        self._limit: int | None = None
        self._pool = ThreadPoolExecutor(max(2, cores()))
        self._open = AsyncExitStack()
        self.begin(self._client.report)

    def begin(self, report: AnnotationReport) -> None:
        """Count into this report from now on."""
        self.report = self._client.report = report
        self._unread = UnreadReplies(report)

    async def __aenter__(self) -> Self:
        """Open the models."""
        async with AsyncExitStack() as opened:
            opened.callback(self._pool.shutdown)
            await opened.enter_async_context(self._client)
            self._open = opened.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the models."""
        await self._open.aclose()

    async def run(self, files: Iterable[Path], limit: int | None = None) -> None:
        """Annotate all records of some Parquet files, at most `limit`, and write their texts.

        A file is written as soon as all its records are through; when the run is stopped, by an
        error or by hand, what is there is written too.

        Raises:
            ParagrainError: nothing more can be had from a model; what was had is written.
        """
        self._limit = limit
        queue: asyncio.Queue[_Image | None] = asyncio.Queue(maxsize=2 * _CHUNK)
        open_files: list[_File] = []
        # A few more images than calls, so that a free place finds one that is decoded.
        count = self._client.max_concurrency + 2 * cores()
        try:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick())
                works = [group.create_task(self._work(queue)) for _ in range(count)]
                works.append(group.create_task(self._feed(files, queue, open_files, count)))
                await asyncio.wait(works)
                ticking.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for file in open_files:
                with suppress(OSError):  # the first error is the one to be told
                    await self._publish(file)
            self._client.collect_notes()

    async def _tick(self) -> None:
        """Have the disk hold each reply within a second, and say what is being waited for."""
        while True:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(self._database.sync)
            self.on_stall(self._client.stall_reason)

    # --- images in -----------------------------------------------------------------------------

    async def _feed(
        self,
        files: Iterable[Path],
        queue: "asyncio.Queue[_Image | None]",
        open_files: list[_File],
        workers: int,
    ) -> None:
        """Put all images that need calls into the queue; settle those that need none."""
        for path in files:
            if self._limit == 0:
                break
            known = finished_report(self._database, path, self._inputs)
            if known is not None and (self._limit is None or self._limit >= known.images):
                self._limit = None if self._limit is None else self._limit - known.images
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

    async def _feed_file(self, file: _File, queue: "asyncio.Queue[_Image | None]") -> None:
        ids = self._ids[file.path]
        for first in range(0, len(ids), _ROWS):
            records = await self._in_thread(self._look, ids[first : first + _ROWS], file)
            for start in range(0, len(records), _CHUNK):
                chunk = records[start : start + _CHUNK]
                for image in await self._in_thread(self._read, chunk, file):
                    if image.result is None:
                        file.waiting += 1
                        await queue.put(image)
                    else:
                        self._settle(image)
            if len(file.changes) >= _MOST_CHANGES:
                await self._publish(file)

    def _look(self, ids: list[str], file: _File) -> list[Record]:
        """Some records that are to be annotated, without their images."""
        found = self.collection.get(ids, images=False).values()
        records = [record for record in found if self.split in (None, record.split)]
        if self._limit is not None:
            file.whole &= len(records) <= self._limit
            records = records[: self._limit]
            self._limit -= len(records)
        return records

    def _read(self, records: list[Record], file: _File) -> list[_Image]:
        """Some records with what came of them already, or else with their images."""
        images = [_Image(record, file) for record in records]
        for image in images:
            try:
                content = self._contents.of(image.record)
            except BadImage as error:
                image.result = error
            else:
                if content is not None:
                    self._replay(image, content)
        loaded = self.collection.get([i.record.id for i in images if i.result is None])
        for image in images:
            if image.record.id in loaded:
                try:
                    image.data, content = self._contents.read(loaded[image.record.id])
                except BadImage as error:
                    image.result = error
                else:
                    if image.replay is None:
                        self._replay(image, content)
        return images

    def _replay(self, image: _Image, content: str) -> None:
        """Take what is known of an image."""
        known = replay(image.record, content, self.settings, self._database)
        image.content, image.replay = content, known
        if known.outcome is not None:
            image.result, image.replies = known.outcome, known.found
            self.report.reused += known.found

    # --- images through ------------------------------------------------------------------------

    async def _work(self, queue: "asyncio.Queue[_Image | None]") -> None:
        """Annotate one image after another."""
        while (image := await queue.get()) is not None:
            assert image.replay is not None
            try:
                picture = await self._in_thread(prepare, image.data, self.settings.image)
            except BadImage as error:
                image.result = error
            else:
                image.data = b""  # the picture is all that is needed from here on
                caption, fresh = image.replay.caption, image.replay.fresh
                loop = annotate_image(image.record, image.content, self.settings, caption)
                outcome, image.replies = await self._client.drive(
                    loop, image.content, picture, fresh=fresh
                )
                self._stop_if_unanswered(outcome)
                self._unread.add(outcome)
                image.result = outcome
            image.file.waiting -= 1
            self._settle(image)
            await self._close_if_through(image.file)

    def _stop_if_unanswered(self, outcome: Outcome) -> None:
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

    def _settle(self, image: _Image) -> None:
        """Count what came of one image, and keep its texts until its file is written."""
        file, result, identity = image.file, image.result, image.record.id
        file.report.reused += image.replies
        if isinstance(result, BadImage):
            for report in (self.report, file.report):
                report.images += 1
                report.skipped.append((identity, result.reason))
            self._database.add_skipped(self._run, identity, result.reason)
        else:
            assert result is not None
            assert image.replay is not None
            for report in (self.report, file.report):
                report.count_outcome(result)
            replayed = image.replay.outcome is not None
            self._database.add_image(
                self._run, result, image.content, image.replay.caption, replayed=replayed
            )
            file.whole &= not any(failure.again for failure in result.lacking.values())
            if result.changes:
                file.changes[identity] = result.changes
        self.advance(1)

    async def _close_if_through(self, file: _File) -> None:
        if file.fed and not file.waiting:
            await self._publish(file)
            if file.whole:
                add_finished(self._database, file.path, self._inputs, file.report)

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
