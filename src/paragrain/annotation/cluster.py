"""The same work on many machines: Parquet files spread over the actors of a Ray cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError


def annotate_on_ray(
    collection: Collection,
    settings: AnnotationSettings,
    report: AnnotationReport,
    split: str | None,
    limit: int | None,
    workers: int | None,
    advance: Callable[..., None],
) -> None:
    """Annotate each Parquet file in whatever actor is free; see `annotate`.

    The folder of the collection has to be at the same path on all machines, and the key in the
    environment of each. A file belongs to one actor at a time, so that nobody else writes it; if
    an actor dies, another one takes the file up, and finds in the log what had been answered.

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
    parts = _parts(collection, split, limit)
    count = min(len(parts), workers or int(ray.cluster_resources().get("CPU", 1)))
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Annotator)
    folder = str(collection.folder.resolve())
    actors = [actor.remote(folder, settings.model_dump_json(), split) for _ in range(count)]
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

    def __init__(self, folder: str, settings: str, split: str | None) -> None:
        self.folder = Path(folder)
        self.settings = AnnotationSettings.model_validate_json(settings)
        self.split = split

    def annotate(self, name: str, limit: int | None) -> AnnotationReport:
        """Annotate one Parquet file."""
        from paragrain.annotation.runs import annotate_files

        collection = Collection.open(self.folder)
        path = self.folder / "records" / name
        report = AnnotationReport(self.folder)
        annotate_files(
            collection, self.settings, [path], report, self.split, limit, lambda *a, **k: None
        )
        return report
