"""Annotate a collection; ask how far that is; find out beforehand what it will take."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from paragrain.annotation.asking import Asker
from paragrain.annotation.log import CallLog
from paragrain.annotation.loop import provenance
from paragrain.annotation.report import AnnotationReport, ImageLog, write_failed
from paragrain.annotation.runner import Runner
from paragrain.annotation.settings import AnnotationSettings, run_name, without_secrets
from paragrain.annotation.state import Status, gather
from paragrain.collection import Collection, writing_alone
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json
from paragrain.locks import Held, hold
from paragrain.progress import progress_bar

TROUBLE_SECONDS = 5.0
"""For so long calls have to wait until the user is told."""

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

    Every reply is on disk, in `annotation/calls` under the collection, before it counts; a run
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
        description = _Description(collection, settings, split, limit)
        try:
            with progress_bar("annotating", total, unit="images", show=progress) as bar:

                def advance(images: int = 0, note: str = "") -> None:
                    description.write(images)
                    bar(images, note)

                if runner == "ray":
                    from paragrain.annotation.cluster import annotate_on_ray

                    run = run_name(settings)
                    annotate_on_ray(
                        collection, settings, run, report, split, limit, workers, advance
                    )
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


class _Description:
    """What `run.json` says of a run, for `status`; it waits for the first image that is through,
    so that a run that cannot even begin does not hide the one before.
    """

    def __init__(
        self,
        collection: Collection,
        settings: AnnotationSettings,
        split: str | None,
        limit: int | None,
    ) -> None:
        folder = collection.folder / "annotation"
        self._place = folder / "run.json"
        self._value = {
            "run": run_name(settings),
            "split": split,
            "limit": limit,
            "model": settings.generator.name,
            "settings": _public(settings),
        }
        self._written = False
        before = _read_description(folder)
        if before is None:
            self.write(1)
        elif before["model"] != settings.generator.name:
            self._warn(collection, split, settings.generator.name)

    @staticmethod
    def _warn(collection: Collection, split: str | None, model: str) -> None:
        """Say whose texts make way, if any are there: a run before may have had no answer."""
        for record in collection.records(split, fields=("annotation",)):
            writers = (note.get("model") for note in provenance(record).values())
            if other := next((name for name in writers if name not in (None, model)), None):
                _LOGGER.warning(
                    "paragrain: texts that %s wrote make way for those of %s as these come",
                    other,
                    model,
                )
                return

    def write(self, images: int) -> None:
        """Write it once there are images that are through."""
        if images and not self._written:
            self._written = True
            write_json(self._place, self._value)


def _read_description(folder: Path) -> dict[str, Any] | None:
    try:
        value = read_json(folder / "run.json")
    except (OSError, ValueError):
        return None
    needed = {"run", "model", "split", "limit", "settings"}
    return value if isinstance(value, dict) and needed <= value.keys() else None


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


async def _annotate(
    collection: Collection,
    settings: AnnotationSettings,
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    advance: Callable[..., None],
) -> None:
    """Annotate all files in this process."""
    folder = collection.folder / "annotation"
    run = run_name(settings)

    def tell(images: int, trouble: str = "") -> None:
        tokens = report.prompt_tokens + report.completion_tokens
        note = f"{report.calls:,} replies, {tokens:,} tokens, {len(report.problems):,} failed"
        advance(images, f"{note}; waiting: {trouble}" if trouble else note)

    with CallLog(folder / "calls") as log, ImageLog(folder / "images", run) as images:
        async with Asker(settings, log, report) as asker:
            runner = Runner(
                collection,
                settings,
                log,
                report,
                images,
                run,
                split=split,
                limit=limit,
                advance=tell,
                trouble=Troubles(partial(tell, 0)),
            )
            await runner.run(collection.files(), asker)


class Troubles:
    """Tells the user what calls wait for, once it has lasted for some seconds."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        """Hand what is waited for to `show`, and the first of it to the log of warnings, too."""
        self._show = progress
        self._since: float | None = None
        self._warned = False

    def __call__(self, trouble: str) -> None:
        """Take note of what calls wait for now; empty if for nothing but their answers."""
        now = time.monotonic()
        self._since = (self._since or now) if trouble else None
        lasting = self._since is not None and now - self._since >= TROUBLE_SECONDS
        self._show(trouble if lasting else "")
        if lasting and not self._warned:  # a bar that nobody sees is no message
            self._warned = True
            _LOGGER.warning("paragrain: waiting for the server: %s", trouble)


def status(collection: Collection) -> Status:
    """How far the latest run on a collection is, be it under way, killed or done.

    What counts is what the collection holds now.

    Raises:
        UsageError: the collection was never annotated.
    """
    folder = collection.folder / "annotation"
    described = _read_description(folder)
    if described is None:
        raise UsageError(
            f"{collection.folder} was never annotated: start with `paragrain annotate`"
        )
    return gather(collection, described, _is_locked(folder))


def _public(settings: AnnotationSettings) -> dict[str, Any]:
    """The settings without what may be secret in an address."""
    value = settings.model_dump(mode="json")
    for name in ("generator", "judge"):
        if value[name] and value[name]["endpoint"]:
            value[name]["endpoint"] = without_secrets(value[name]["endpoint"])
    return value


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


def _is_locked(folder: Path) -> bool:
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
