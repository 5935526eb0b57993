"""What a study will do, need and cost, before it runs: nothing is fetched or computed.

What is on disk is counted; what is not is estimated from the study file's own assumptions, and
every number says which it is.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.loading import SHIPPED
from paragrain.errors import ParagrainError
from paragrain.evaluation.protocols import load_protocol
from paragrain.files import read_json
from paragrain.sources.scenes.world import split_sizes
from paragrain.study.cells import curve_path, missing, result_path
from paragrain.study.data import absent_split, collection_folder
from paragrain.study.plan import Cell, Study
from paragrain.study.schema import Source, Throughput
from paragrain.training.recipes import Recipe
from paragrain.training.schedule import Schedule

TOKENS = {"captions": 14, "generated": 16, "negatives": 16, "paragraph": 110, "description": 130}
"""Tokens of a text where nothing is there to be counted; a study's `throughput` may say better."""

MEASURED = Throughput(
    tokens_per_second=16_000,
    images_per_second=900,
    of="the tiny BLIP on two CPU cores",
)


@dataclass(frozen=True)
class Need:
    """A collection or a model of the study.

    Attributes:
        name: as the study calls it.
        what: folder or model.
        there: whether it can be used at once.
        says: its size, or how to get it, or what is wrong with it.
    """

    name: str
    what: str
    there: bool
    says: str


@dataclass(frozen=True)
class CellForecast:
    """One model of the study and the cost of one of its seeds.

    Attributes:
        name, title, recipe, loss: of the cell.
        images: it is trained on.
        steps: of its training.
        tokens: read in training, all passes of one seed.
        hours: of one seed's training, at the throughput.
        cells, done: seeds, and those that are finished.
    """

    name: str
    title: str
    recipe: str = "-"
    loss: str = "-"
    images: int = 0
    steps: int = 0
    tokens: int = 0
    hours: float = 0.0
    cells: int = 1
    done: int = 0


@dataclass(frozen=True)
class Forecast:
    """Everything that `study run --dry-run` says."""

    needs: list[Need]
    cells: list[CellForecast]
    settings: dict[str, Any]
    throughput: Throughput
    measuring_hours: float
    embedding_hours: float
    vectors_bytes: int

    @property
    def hours(self) -> float:
        """Of all that is still to be done."""
        training = sum(cell.hours * (cell.cells - cell.done) for cell in self.cells)
        return training + self.measuring_hours + self.embedding_hours

    @property
    def ready(self) -> bool:
        """Whether the study could begin at once."""
        return all(need.there for need in self.needs)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {**asdict(self), "throughput": self.throughput.model_dump()}
        hours = {
            name: round(getattr(self, name), 2)
            for name in ("hours", "measuring_hours", "embedding_hours")
        }
        return {"ready": self.ready, **plain, **hours}


def forecast(study: Study, out: Path) -> Forecast:
    """Say what a study will do, need and cost; writes nothing and opens only what is on disk."""
    sizes = {name: _images(study, name, out) for name in study.file.collections}
    throughput = study.file.throughput or MEASURED
    rows = [_cell(study, cells, sizes, throughput, out) for cells in study.models.values()]
    lacking = any(missing(study, cell, out) for cell in study.cells())
    texts = sum(_measured_tokens(study, cell, sizes, throughput, out) for cell in study.cells())
    # A forward pass alone is a third of a training step.
    measuring = texts / (3 * throughput.tokens_per_second) / 3600
    images = sum(sizes.values())
    return Forecast(
        needs=[*_collections(study, out), *_models(study)],
        cells=rows,
        settings=study.config.settings(),
        throughput=throughput,
        measuring_hours=measuring,
        embedding_hours=images / throughput.images_per_second / 3600 if lacking else 0.0,
        vectors_bytes=images * 256 * 4,
    )


def _collections(study: Study, out: Path) -> Iterator[Need]:
    for name, source in study.file.collections.items():
        folder = collection_folder(study, name, out)
        if source.path is None:
            made = "drawn" if source.scenes else "joined"
            says = f"{_images(study, name, out):,} images, {made} when the study runs"
            yield Need(name, str(folder), True, says)
            continue
        try:
            collection = Collection.open(folder)
            problem = _lacking(study, name, collection)
            counts = ", ".join(f"{split} {n:,}" for split, n in collection.splits.items())
            yield Need(name, str(folder), not problem, problem or counts)
        except ParagrainError as error:
            how = f"; make it with: {source.make}" if source.make else ""
            yield Need(name, str(folder), False, f"{error}{how}")


def _lacking(study: Study, name: str, collection: Collection) -> str:
    """What a collection that is there lacks of what the study asks for, in words; "" if nothing."""
    problem = absent_split(study, name, collection)
    if problem or name != study.file.train:
        return problem
    recipes = [cell.recipe for cell in study.cells() if cell.recipe]
    wanted = dict.fromkeys(field for recipe in recipes for field in recipe.fields)
    found: set[str] = set()
    for record in collection.records(study.config.split, fields=tuple(wanted)):
        found.update(field for field in wanted if record.texts(field))
        if len(found) == len(wanted):
            return ""
    absent = ", ".join(field for field in wanted if field not in found)
    return f"it has no texts in {absent}: write them with `paragrain annotate {collection.folder}`"


def _models(study: Study) -> Iterator[Need]:
    for name, baseline in study.baselines.items():
        path = baseline.model.split("@")[0]
        there = path in SHIPPED or Path(path).exists()
        says = (
            "here" if there else baseline.needs or "from the Hugging Face Hub, or its local cache"
        )
        yield Need(name, baseline.model, there or not baseline.needs, says)


def _images(study: Study, name: str, out: Path) -> int:
    """Images of a collection: counted, or as its description says."""
    source: Source = study.file.collections[name]
    try:
        return len(Collection.open(collection_folder(study, name, out)))
    except ParagrainError:
        if source.scenes:
            return sum(split_sizes(source.scenes.size).values())
        if source.joined:
            return _images(study, source.joined.collection, out)
        return source.images or 0


def _train_images(study: Study, cell: Cell, sizes: dict[str, int], out: Path) -> int:
    name = cell.collection or study.file.train
    split = cell.settings.split if cell.settings else "train"
    source = study.file.collections[name]
    try:
        return Collection.open(collection_folder(study, name, out)).splits.get(split, 0)
    except ParagrainError:
        return split_sizes(source.scenes.size)[split] if source.scenes else sizes[name]


def image_tokens(recipe: Recipe, cell: Cell, throughput: Throughput) -> float:
    """Tokens that one image costs in a recipe, by the assumed length of each kind of text.

    >>> from paragrain.training import load_recipe
    >>> from paragrain.training.config import TrainConfig
    >>> image_tokens(load_recipe("c5"), Cell("c5", "C5", "m", settings=TrainConfig()), MEASURED)
    124.0
    """
    assert cell.settings is not None
    total = 0.0
    lengths = TOKENS | throughput.lengths
    for selection in recipe.selections:
        count, source = selection.select, selection.source
        if not isinstance(count, int):
            count = 5 if count == "all" and source in ("generated", "negatives") else 1
        max_length = cell.settings.max_length.of(selection.max_length or source, 1 << 30)
        length = lengths[source]
        joined, apart = min(count * length, max_length), count * min(length, max_length)
        total += selection.share * (joined if selection.join else apart)
    return total


def _cell(
    study: Study, cells: list[Cell], sizes: dict[str, int], throughput: Throughput, out: Path
) -> CellForecast:
    cell = cells[0]
    done = sum(not missing(study, one, out) for one in cells)
    recipe, config = cell.recipe, cell.settings
    if recipe is None or config is None:
        return CellForecast(cell.name, cell.title, cells=len(cells), done=done)
    images = _train_images(study, cell, sizes, out)
    share = max(text.share for text in recipe.positives)
    taken = max(2, round(images * share))
    each = image_tokens(recipe, cell, throughput) / share
    steps = Schedule(taken, config).steps
    if cell.like is not None and cell.like.recipe is not None:
        steps = round(steps * image_tokens(cell.like.recipe, cell.like, throughput) / each)
    seen = min(steps * config.batch_size, steps * taken)
    tokens = round(seen * each)
    seconds = tokens / throughput.tokens_per_second
    if config.train_vision:
        seconds += 3 * seen / throughput.images_per_second
    hours = round(seconds / 3600, 4)
    about = (cell.name, cell.title, recipe.name, recipe.loss)
    return CellForecast(*about, images, steps, tokens, hours, len(cells), done)


def _measured_tokens(
    study: Study, cell: Cell, sizes: dict[str, int], throughput: Throughput, out: Path
) -> int:
    """Tokens that the measurements of a cell read which are not done yet."""
    lengths = TOKENS | throughput.lengths
    total = sum(
        _benchmark_tokens(study, name, sizes, lengths, study.file.benchmarks[name].length)
        for name in study.benchmarks(cell.name)
        if not result_path(study, cell, name, out).is_file()
    )
    return total + sum(
        _benchmark_tokens(study, curve.benchmark, sizes, lengths, max_length)
        for name in study.curves(cell.name)
        if not curve_path(study, cell, name, out).is_file()
        for curve in (study.file.curves[name],)
        for max_length in curve.max_lengths
    )


def _benchmark_tokens(
    study: Study, name: str, sizes: dict[str, int], lengths: dict[str, int], max_length: int
) -> int:
    """Tokens of all texts of a benchmark that are cut at a maximum length, roughly."""
    spec = study.file.benchmarks[name]
    protocol = load_protocol(spec.protocol) if spec.protocol else None
    source = study.file.collections[spec.collection]
    images = sizes[spec.collection]
    if protocol:
        images = min(images, protocol.expected[0].images)
    elif source.scenes and spec.split:
        images = split_sizes(source.scenes.size)[spec.split]
    count = 5 if spec.field == "captions" else 1
    return images * count * min(lengths[spec.field], max_length)


def measured_hours(study: Study, out: Path) -> float:
    """Hours of wall time that the cells of a study took, added up; those in `out` that the file no
    longer has do not count."""
    files = (out / "cells" / cell.folder / "seconds.json" for cell in study.cells())
    return sum(sum(read_json(file).values()) for file in files if file.is_file()) / 3600
