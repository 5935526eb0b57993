"""Annotate a collection; ask how far that is; find out beforehand what it will take."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock, Timeout

from paragrain.annotation.log import CallLog
from paragrain.annotation.report import AnnotationReport, ImageLog, Status, read_images
from paragrain.annotation.runner import Runner
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json, write_text
from paragrain.progress import progress_bar

OPERATION = {"endpoint", "in_flight", "timeout", "patience", "structured", "batch_size", "device"}
"""Settings of a backend that decide how it is asked, and not what it says."""


def annotate(
    collection: Collection,
    settings: AnnotationSettings,
    *,
    split: str | None = None,
    limit: int | None = None,
    runner: Literal["local", "ray"] = "local",
    workers: int | None = None,
    show: bool = True,
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
        show: whether to show progress.

    Raises:
        UsageError: settings that cannot be met, or another run works on this collection.
        ParagrainError: the models cannot be asked any more; what was had is kept.
    """
    folder = collection.folder / "annotation"
    report = AnnotationReport(collection.folder)
    total = len(collection.ids(split))
    total = total if limit is None else min(limit, total)
    run = run_name(settings)
    started = time.monotonic()
    with locked(folder):
        described = {"run": run, "images": total, "split": split, "settings": _public(settings)}
        write_json(folder / "run.json", described)
        with progress_bar("annotating", total, unit="images", show=show) as advance:
            if runner == "ray":
                from paragrain.annotation.cluster import annotate_on_ray

                annotate_on_ray(collection, settings, report, split, limit, workers, advance)
            else:
                annotate_files(
                    collection, settings, collection.files(), report, split, limit, advance
                )
        report.seconds = time.monotonic() - started
        _write_failed(folder / "failed.jsonl", report.problems)
    return report


def annotate_files(
    collection: Collection,
    settings: AnnotationSettings,
    files: Iterable[Path],
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    advance: Callable[..., None],
) -> None:
    """Annotate some Parquet files of a collection in this process; see `annotate`."""
    folder = collection.folder / "annotation"

    def tell(images: int) -> None:
        tokens = report.prompt_tokens + report.completion_tokens
        advance(images, f"{tokens:,} tokens, {len(report.problems):,} failed")

    run = run_name(settings)
    images = ImageLog(folder / "images", run)
    try:
        with CallLog(folder / "calls") as log:
            work = Runner(
                collection,
                settings,
                log,
                report,
                images,
                run,
                split=split,
                limit=limit,
                advance=tell,
            )
            run_coroutine(work.run(files))
    finally:
        images.close()


def status(collection: Collection) -> Status:
    """How far the latest run on a collection is, be it under way, killed or done.

    Raises:
        UsageError: the collection was never annotated.
    """
    folder = collection.folder / "annotation"
    try:
        described = read_json(folder / "run.json")
    except FileNotFoundError:
        raise UsageError(
            f"{collection.folder} was never annotated: start with `paragrain annotate`"
        ) from None
    latest, rate = read_images(folder / "images", described["run"])
    state = Status(collection.folder, images=described["images"], rate=rate)
    reasons: Counter[str] = Counter()
    scores: Counter[str] = Counter()
    attempts: Counter[int] = Counter()
    for line in latest.values():
        failures = line.get("failures") or {}
        reasons.update(f"{kind}: {reason}" for kind, reason in failures.items())
        state.complete += not failures
        if line.get("attempts"):
            attempts[line["attempts"]] += 1
            scores["none" if line.get("score") is None else str(line["score"])] += 1
    state.failed = dict(reasons.most_common())
    state.scores, state.attempts = dict(scores), dict(attempts)
    state.remaining = max(0, state.images - len(latest))
    state.running = _is_locked(folder)
    state.seconds_left = state.remaining / rate if rate else None
    with CallLog(folder / "calls", writing=False) as log:
        state.calls = log.calls
    return state


def run_name(settings: AnnotationSettings) -> str:
    """16 hexadecimal digits of all settings that decide what is written."""
    value = settings.model_dump(mode="json", exclude={"generator": OPERATION, "judge": OPERATION})
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _public(settings: AnnotationSettings) -> dict[str, Any]:
    """The settings without what may be secret in an address."""
    value = settings.model_dump(mode="json")
    for name in ("generator", "judge"):
        if value[name] and value[name]["endpoint"]:
            value[name]["endpoint"] = without_secrets(value[name]["endpoint"])
    return value


def without_secrets(address: str) -> str:
    """An address without user, password and query, where keys stand.

    >>> without_secrets("https://me:secret@example.com:8000/v1?key=abc")
    'https://example.com:8000/v1'
    """
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _write_failed(path: Path, problems: list[tuple[str, str]]) -> None:
    lines = [json.dumps({"id": id, "reason": reason}) + "\n" for id, reason in problems]
    if lines:
        write_text(path, "".join(lines))
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this run alone; the system lets go of it if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ParagrainError(
            f"another run annotates {folder.parent}: wait for it, or stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _is_locked(folder: Path) -> bool:
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        with lock:
            return False
    except Timeout:
        return True


def run_coroutine(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
