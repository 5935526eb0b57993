"""The same work on many machines: Parquet files spread over the actors of a Ray cluster."""

import asyncio
from collections.abc import Callable
from typing import Any

from paragrain.annotation.asking import Asker
from paragrain.annotation.log import CallLog
from paragrain.annotation.report import AnnotationReport, ImageLog
from paragrain.annotation.runner import Runner
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError

MOST_DEATHS = 20
"""Deaths of one actor after which the run stops: the cause is not the machine."""


def annotate_on_ray(
    collection: Collection,
    settings: AnnotationSettings,
    run: str,
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    workers: int | None,
    advance: Callable[..., None],
) -> None:
    """Annotate each Parquet file in whatever actor is free; see `annotate`.

    The folder of the collection has to be at the same path on all machines, and the key in the
    environment of each. A file belongs to one actor at a time, so that nobody else writes it; if
    an actor dies, it is started again and takes the file up, and finds in the log what had been
    answered. An actor keeps its models open from file to file; one with a model in its process has
    a GPU of its own, if the cluster has any.

    Raises:
        UsageError: Ray is not installed.
        ParagrainError: the models cannot be asked any more.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("the runner `ray` needs Ray: pip install 'paragrain[ray]'") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False)  # joins the cluster of RAY_ADDRESS, or starts one here
    has = ray.cluster_resources()
    local = "transformers" in (settings.generator.backend, getattr(settings.judge, "backend", ""))
    gpus = 1 if local and has.get("GPU") else 0
    places = int(has.get("GPU" if gpus else "CPU", 1))
    parts = _parts(collection, split, limit)
    count = min(len(parts), workers or max(1, places))
    actor = ray.remote(
        num_cpus=1, num_gpus=gpus, max_restarts=MOST_DEATHS, max_task_retries=MOST_DEATHS
    )(_Annotator)
    folder = str(collection.folder.resolve())
    actors = [actor.remote(folder, settings.model_dump_json(), run, split) for _ in range(count)]
    waiting = list(reversed(parts))
    busy: dict[Any, Any] = {}
    try:
        while waiting or busy:
            while waiting and actors:
                free = actors.pop()
                busy[free.annotate.remote(*waiting.pop())] = free
            (done,), _ = ray.wait(list(busy), num_returns=1)
            actors.append(busy.pop(done))
            part = ray.get(done)
            report.add(part)
            tokens = report.prompt_tokens + report.completion_tokens
            advance(part.images, f"{tokens:,} tokens, {len(report.problems):,} failed")
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ParagrainError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise ParagrainError(
            f"a worker of the Ray cluster died {MOST_DEATHS} times: see to its log, and run the "
            "same command again to go on"
        ) from error
    finally:
        for one in [*actors, *busy.values()]:
            ray.kill(one)


def _parts(
    collection: Collection, split: str | None, limit: int | None
) -> list[tuple[str, int | None]]:
    """The name of each Parquet file with records to annotate, and how many of them."""
    wanted = set(collection.ids(split)[:limit])
    parts = []
    for path, ids in collection.files().items():
        count = sum(id in wanted for id in ids)
        if count:
            parts.append((path.name, None if limit is None else count))
    return parts


class _Annotator:
    """What runs in each actor."""

    def __init__(self, folder: str, settings: str, run: str, split: str | None) -> None:
        self.collection = Collection.open(folder)
        self.settings = AnnotationSettings.model_validate_json(settings)
        self.run, self.split = run, split
        place = self.collection.folder / "annotation"
        self.log, self.images = CallLog(place / "calls"), ImageLog(place / "images", run)
        self.loop = asyncio.Runner()
        self.asker: Asker | None = None

    def annotate(self, name: str, limit: int | None) -> AnnotationReport:
        """Annotate one Parquet file."""
        report = AnnotationReport(self.collection.folder)
        if self.asker is None:  # here, where an error is the task's and not the actor's
            asker = Asker(self.settings, self.log, report)
            self.asker = self.loop.run(asker.__aenter__())
        self.asker.report = report
        runner = Runner(
            self.collection,
            self.settings,
            self.log,
            report,
            self.images,
            self.run,
            split=self.split,
            limit=limit,
            advance=lambda images: None,
            trouble=lambda trouble: None,
        )
        path = self.collection.folder / "records" / name
        self.loop.run(runner.run([path], self.asker))
        return report
