"""Annotate a collection, in this process or over a cluster; what is noted of the run for later."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from paragrain.annotation.database import Database
from paragrain.annotation.loop import provenance
from paragrain.annotation.report import AnnotationReport, write_failed
from paragrain.annotation.runner import Runner
from paragrain.annotation.settings import AnnotationSettings, run_name
from paragrain.collection import Collection, writing_alone
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json
from paragrain.locks import Held, hold
from paragrain.progress import progress_bar

STALL_SECONDS = 5.0
"""Seconds that calls wait before the user is warned."""

_LOGGER = logging.getLogger("paragrain")


def annotate(
    collection: Collection,
    settings: AnnotationSettings,
    *,
    split: str | None = None,
    limit: int | None = None,
    runner: Literal["local", "ray"] = "local",
    workers: int | None = None,
    progress: bool = True,
) -> AnnotationReport:
    """Write captions, hard negatives and judged paragraphs for the images of a collection.

    Every reply is in the database `annotation/annotation.db` before it counts; a run
    that was killed goes on where it was, and no finished call is made twice. Changing a prompt, a
    model or a threshold asks anew only what that affects. Texts go into the collection's own
    Parquet files, each as soon as all its records are through.

    Args:
        collection: what to annotate; open it again afterwards to see the texts.
        settings: who writes, who judges, and what is good enough.
        split: annotate this split only.
        limit: annotate the first so many records only.
        runner: "ray" spreads the Parquet files over a Ray cluster (extra `paragrain[ray]`).
        workers: processes of the Ray cluster to use; by default one for each of its CPUs.
        progress: whether to show progress.

    Raises:
        UsageError: settings that cannot be met, or another run works on this collection.
        ParagrainError: the models cannot be asked any more; what was had is kept.
    """
    folder = collection.folder / "annotation"
    report = AnnotationReport(collection.folder)
    total = len(collection.ids(split)[:limit])
    _check_for_graphs(collection, settings, split)
    started = time.monotonic()
    with locked(folder), writing_alone(collection.folder):
        describe = _describe(collection, settings, split, limit)
        try:
            with progress_bar("annotating", total, unit="images", show=progress) as bar:

                def advance(images: int = 0, stall_reason: str = "") -> None:
                    describe(images)
                    tokens = report.prompt_tokens + report.completion_tokens
                    note = f"{report.calls:,} replies, {tokens:,} tokens, "
                    note += f"{len(report.problems):,} failed"
                    bar(images, f"{note}; waiting: {stall_reason}" if stall_reason else note)

                if runner == "ray":
                    from paragrain.annotation.cluster import annotate_on_ray

                    annotate_on_ray(collection, settings, report, split, limit, workers, advance)
                else:
                    run_coroutine(_annotate(collection, settings, report, split, limit, advance))
        except OSError as error:
            place, why = error.filename or collection.folder, error.strerror or error
            raise ParagrainError(
                f"{place} cannot be written ({why}): "
                "make room and run the same command again, which goes on from here"
            ) from error
        finally:
            report.seconds = time.monotonic() - started
            with suppress(OSError):  # of a full disk, too; the first error is the one to be told
                write_failed(folder, report.problems)
    got = report.complete or report.fewer or report.calls or report.reused
    if report.failed and not got:
        raise ParagrainError(
            f"none of the {len(report.failed):,} images got an answer ({report.failed[0][1]}): see "
            "to the server and run the same command again"
        )
    return report


async def _annotate(
    collection: Collection,
    settings: AnnotationSettings,
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    advance: Callable[..., None],
) -> None:
    """Annotate all files in this process."""
    on_stall = partial(_report_stall, partial(advance, 0), {})
    with Database(collection.folder / "annotation") as database:
        runner = Runner(
            collection, settings, database, split=split, advance=advance, on_stall=on_stall
        )
        runner.begin(report)
        async with runner:
            await runner.run(collection.files(), limit)


def _report_stall(show: Callable[[str], None], state: dict[str, float], stall_reason: str) -> None:
    """Tell the user what calls wait for, once it has lasted for some seconds."""
    now = time.monotonic()
    if not stall_reason:
        state.pop("since", None)
    lasting = bool(stall_reason) and now - state.setdefault("since", now) >= STALL_SECONDS
    show(stall_reason if lasting else "")
    if lasting and "warned" not in state:  # a bar that nobody sees is no message
        state["warned"] = now
        _LOGGER.warning("paragrain: waiting for the server: %s", stall_reason)


def _check_for_graphs(
    collection: Collection, settings: AnnotationSettings, split: str | None
) -> None:
    """Refuse to answer from scene graphs where there are none."""
    if "scenes" in (settings.generator.backend, settings.judge and settings.judge.backend):
        first = next(collection.records(split, fields=["graph"]))
        if first.graph is None:
            raise UsageError(
                f"{collection.place(split)} holds no drawn scenes, about which alone the backend "
                "scenes can answer"
            )


def _describe(
    collection: Collection, settings: AnnotationSettings, split: str | None, limit: int | None
) -> Callable[[int], None]:
    """What writes `run.json` for `status`, given the number of images that are through.

    It waits for the first one, so that a run that cannot even begin does not hide the one before.
    """
    folder, model = collection.folder / "annotation", settings.generator.name
    value = {
        "run": run_name(settings),
        "split": split,
        "limit": limit,
        "model": model,
        "settings": settings.public(),
    }
    waiting = [value]

    def write(images: int) -> None:
        if images and waiting:
            write_json(folder / "run.json", waiting.pop())

    before = read_description(folder)
    if before is None:
        write(1)
    elif before["model"] != model:
        # A run before may have had no answer: whose texts are there, if any?
        notes = (provenance(r) for r in collection.records(split, fields=("annotation",)))
        writers = (note.get("model") for own in notes for note in own.values())
        if other := next((name for name in writers if name not in (None, model)), None):
            _LOGGER.warning(
                "paragrain: texts that %s wrote make way for those of %s as these come",
                other,
                model,
            )
    return write


def read_description(folder: Path) -> dict[str, Any] | None:
    """What `run.json` says of the latest run; None if there was none."""
    try:
        value = read_json(folder / "run.json")
    except (OSError, ValueError):
        return None
    needed = {"run", "model", "split", "limit", "settings"}
    return value if isinstance(value, dict) and needed <= value.keys() else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this run alone; the lock goes when the process dies."""
    try:
        with hold(folder / ".lock", wait=1.0):  # `status` takes it for a moment
            yield
    except Held:
        raise ParagrainError(
            f"another run annotates {folder.parent}: wait for it, or stop it first"
        ) from None


def is_locked(folder: Path) -> bool:
    """Whether a process works on the folder now."""
    try:
        with hold(folder / ".lock"):
            return False
    except Held:
        return True


def run_coroutine(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, also where an event loop runs already, as in a notebook.

    An interrupt cancels it, and is raised when it has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    def run() -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)
            started.set_result((loop, task))
            loop.run_until_complete(task)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run)
        try:
            while not ended.done():
                wait([ended], 0.2)  # an interrupt does not wake a thread that waits for ever
        except BaseException:
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
            wait([ended])
            raise
        ended.result()
