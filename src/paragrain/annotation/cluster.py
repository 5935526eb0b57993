"""The same work on many machines: Parquet files spread over the actors of a Ray cluster."""

import asyncio
from collections.abc import Callable
from typing import Any

from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.runner import Runner
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError

MOST_DEATHS = 20
"""Deaths of one actor after which the run stops: the cause is not the machine."""


def annotate_on_ray(
    collection: Collection,
    settings: AnnotationSettings,
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    workers: int | None,
    advance: Callable[[int], None],
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
    wanted = set(collection.ids(split)[:limit])
    counts = {path.name: sum(i in wanted for i in own) for path, own in collection.files().items()}
    waiting = [(name, limit and count) for name, count in reversed(counts.items()) if count]
    actor = ray.remote(
        num_cpus=1, num_gpus=gpus, max_restarts=MOST_DEATHS, max_task_retries=MOST_DEATHS
    )(_Annotator)
    what = str(collection.folder.resolve()), settings.model_dump_json(), split
    number = min(len(waiting), workers or max(1, places))
    actors = [actor.remote(*what) for _ in range(number)]
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
            advance(part.images)
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


class _Annotator:
    """What runs in each actor."""

    def __init__(self, folder: str, settings: str, split: str | None) -> None:
        self.collection = Collection.open(folder)
        self.settings = AnnotationSettings.model_validate_json(settings)
        self.split = split
        self.loop = asyncio.Runner()
        self.runner: Runner | None = None

    def annotate(self, name: str, limit: int | None) -> AnnotationReport:
        """Annotate one Parquet file, with models that stay open."""
        if self.runner is None:  # here, where an error is the task's and not the actor's
            runner = Runner(self.collection, self.settings, split=self.split)
            self.runner = self.loop.run(runner.__aenter__())
        report = AnnotationReport(self.collection.folder)
        self.runner.begin(report)
        path = self.collection.folder / "records" / name
        self.loop.run(self.runner.run([path], limit))
        return report
