"""A study as its cells: which models, trained by what, with which seed, in which order.

A cell is one model that is measured: a recipe with its settings and a seed, or a baseline that is
measured as it is. What a cell is follows from the study file alone, so that adding a recipe, a seed
or a benchmark to the file adds only what is new.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paragrain import plots
from paragrain.errors import UsageError
from paragrain.evaluation import load_protocol
from paragrain.files import digest, slug
from paragrain.plugins import registered
from paragrain.study.schema import Baseline, CellSpec, StudyFile, names_in
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.recipes import Recipe, first_problem, load_recipe, parse_recipe

ANALYSIS_PLUGINS = "paragrain.analyses"
"""Group of entry points; each is a function from an `AnalysisContext` to the blocks of its part."""

DIRECTION_TITLES = {"image_to_text": "image to text", "text_to_image": "text to image"}

_NO_NUMBER = {"seed", "log_every", "save_steps", "save_minutes"}
"""Settings that a key leaves out: the seed has its own folder, the others change no number."""


@dataclass(frozen=True)
class Cell:
    """One model that is measured.

    Attributes:
        name: of the recipe, variant or baseline; the same for all its seeds.
        title: how the report calls it.
        model: what it starts from, or is.
        recipe: what it is trained by; `None` for a baseline.
        seed: of the training; `None` for a baseline.
        settings: of the training.
        collection: what it is trained on.
        max_length: its own on long benchmarks.
        like: the cell whose number of tokens it is to read.
    """

    name: str
    title: str
    model: str
    recipe: Recipe | None = None
    seed: int | None = None
    settings: TrainConfig | None = None
    collection: str | None = None
    max_length: int | None = None
    like: "Cell | None" = None

    @property
    def key(self) -> str:
        """Eight hexadecimal digits of what decides its weights, the seed left out."""
        return short_hash(self._content())

    @property
    def folder(self) -> str:
        """Its folder, in the folder `cells` of the study."""
        name = f"{slug(self.name)}-{self.key}"
        return name if self.seed is None else f"{name}/seed{self.seed}"

    @property
    def label(self) -> str:
        """What progress and errors call it."""
        return self.name if self.seed is None else f"{self.name}, seed {self.seed}"

    def _content(self) -> dict[str, Any]:
        """What decides the weights; defaults are left out, so that a new option changes no key."""
        content: dict[str, Any] = {"model": self.model, "max_length": self.max_length}
        if self.recipe is not None and self.settings is not None:
            recipe = self.recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            settings = self.settings.model_dump(mode="json", exclude_defaults=True)
            content |= {
                "recipe": [recipe["positives"], recipe.get("negatives", [])],
                "settings": {k: v for k, v in settings.items() if k not in _NO_NUMBER},
                "collection": self.collection,
                "like": self.like and self.like._content(),
            }
        return content


@dataclass(frozen=True)
class Study:
    """A study file that was read and found to hold together."""

    file: StudyFile
    path: Path
    config: TrainConfig = field(repr=False)
    text: str = field(default="", repr=False)

    @cached_property
    def models(self) -> dict[str, list[Cell]]:
        """The cells of each name, over the seeds: baselines, recipes, then the groups' cells."""
        found = {name: [self._baseline(name)] for name in self.baselines}
        for name in self.file.recipes:
            recipe = load_recipe(name)
            found[recipe.name] = self._trained(recipe.name, CellSpec(recipe=name))
        for group in self.file.groups.values():
            for name, spec in group.cells.items():
                found[name] = self._trained(name, spec)
        return found

    @property
    def baselines(self) -> dict[str, Baseline]:
        """The baselines, the model that all training starts from first."""
        return {self.start: Baseline(model=self.file.model), **self.file.baselines}

    @property
    def start(self) -> str:
        """The name of the model that training starts from."""
        return self.file.model_title or Path(self.file.model).name

    def cells(self) -> Iterator[Cell]:
        """All cells in the order in which they run: a whole seed before the next."""
        models = self.models
        yield from (cells[0] for cells in models.values() if cells[0].recipe is None)
        for place in range(len(self.file.seeds)):
            yield from (cells[place] for cells in models.values() if cells[0].recipe is not None)

    def benchmarks(self, name: str) -> list[str]:
        """The benchmarks on which a model is measured."""
        return [n for n, b in self.file.benchmarks.items() if not b.models or name in b.models]

    def curves(self, name: str) -> list[str]:
        """The curves that have a line of a model."""
        return [curve for curve, spec in self.file.curves.items() if name in spec.cells]

    @cached_property
    def styles(self) -> dict[str, dict[str, Any]]:
        """Colour, marker and dash of each model by its title, the same in every figure."""
        family = {}
        known = [load_recipe(own).name for own in self.file.recipes]
        for name, cells in self.models.items():
            recipe = cells[0].recipe
            like = [own for own in known if name.startswith(f"{own}-")]
            own = name if recipe is None else (like or [recipe.name])[0]
            family[cells[0].title] = plots.BASE if name == self.start else own
        return plots.families(family)

    def title(self, name: str) -> str:
        """How the report calls a model."""
        return self.models[name][0].title

    def benchmark_title(self, name: str) -> str:
        """How the report calls a benchmark."""
        return self.file.benchmarks[name].title or name

    def _baseline(self, name: str) -> Cell:
        baseline = self.baselines[name]
        return Cell(name, name, baseline.model, max_length=baseline.max_length)

    def _trained(self, name: str, spec: CellSpec) -> list[Cell]:
        config = make_config(self.config, spec.settings)
        recipe = (
            load_recipe(spec.recipe)
            if isinstance(spec.recipe, str)
            else parse_recipe(yaml.safe_dump(spec.recipe), name, where=f"{self.path}, {name}")
        )
        default = name.upper() if name == recipe.name else name
        likes = self._likes(spec.tokens_like, spec.collection)
        return [
            Cell(
                name,
                spec.title or default,
                self.file.model,
                recipe,
                seed,
                make_config(config, {"seed": seed}),
                spec.collection or self.file.train,
                like=like,
            )
            for seed, like in zip(self.file.seeds, likes, strict=True)
        ]

    def _likes(self, name: str | None, collection: str | None) -> list[Cell | None]:
        """The cells of the recipe `name`, or none for each seed."""
        if name is None:
            return [None] * len(self.file.seeds)
        if name not in self.file.recipes:
            raise UsageError(
                f"{self.path}: tokens_like names {name!r}, which is not one of its recipes"
            )
        if collection not in (None, self.file.train):
            raise UsageError(
                f"{self.path}: a cell with tokens_like {name} trains on {collection}, where the "
                f"tokens of {name} are others: let it train on {self.file.train}"
            )
        return list(self._trained(name, CellSpec(recipe=name)))


_FILES = resources.files("paragrain.study") / "files"


def shipped() -> list[str]:
    """Names of the studies that ship with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in _FILES.iterdir())


def study_text(path: str | Path) -> str:
    """What a study file says, or one that ships, by its name.

    Raises:
        UsageError: there is no such file.
    """
    path = Path(path)
    if not path.exists() and str(path) in shipped():
        return (_FILES / f"{path}.yaml").read_text("utf-8")
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"there is no study file {path}: check the path, or name one that ships "
            f"({', '.join(shipped())})"
        ) from None


def load_study(path: str | Path | Study) -> Study:
    """Read a study file and see that all its names fit together; nothing is opened or run.

    Args:
        path: of a file; or the name of a study that ships with the package, see `shipped`. A study
            that was read already is given back.

    Raises:
        UsageError: there is no such file, or it says something that cannot be.
    """
    if isinstance(path, Study):
        return path
    try:
        text = study_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the study {path} cannot be read: {error}") from None
    return parse_study(text, Path(path))


def parse_study(text: str, path: Path) -> Study:
    """A study from the text of its file; see `load_study`.

    Raises:
        UsageError: it says something that cannot be.
    """
    try:
        file = StudyFile.model_validate(yaml.load(text, _NamesOnce))
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise UsageError(f"the study {path} cannot be read: {problem}") from None
    except ValidationError as error:
        raise UsageError(f"the study {path} is not valid: {first_problem(error)}") from None
    study = Study(file, path, make_config(None, file.settings), text)
    _check_names(study)
    return study


class _NamesOnce(yaml.SafeLoader):
    """YAML in which a name given twice is an error; by itself the later one counts, in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice[0]!r} is there twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def _check_names(study: Study) -> None:
    """Refuse names that nothing has."""
    file = study.file
    known = {
        "collection": set(file.collections),
        "benchmark": set(file.benchmarks),
        "cell": set(study.models),
        "curve": set(file.curves),
    }
    for place, kind, name in names_in(file):
        if name not in known[kind]:
            raise UsageError(
                f"the study {study.path} names a {kind} {name!r} at {place} that it does not "
                f"define: use one of {', '.join(sorted(known[kind]))}"
            )
    if file.analyses and file.analyses.added:
        known_plugins = registered(ANALYSIS_PLUGINS)
        for name in file.analyses.added:
            if name not in known_plugins:
                use = ", ".join(sorted(known_plugins))
                raise UsageError(
                    f"the study {study.path} adds an analysis {name!r} that nothing registers: "
                    + (f"use one of {use}" if use else "none is installed")
                )
    _check_curves(study)
    _check_twice(study)


def _check_curves(study: Study) -> None:
    """Refuse protocols and points of curves that do not exist."""
    for benchmark in study.file.benchmarks.values():
        if benchmark.protocol is not None:
            load_protocol(benchmark.protocol)
    for title, curve in study.file.curves.items():
        models = study.file.benchmarks[curve.benchmark].models
        for name in curve.cells if models else ():
            if name not in models:
                raise UsageError(
                    f"the study {study.path} draws the curve {title!r} of {name}, which is not "
                    f"measured on {curve.benchmark}: add it to the models of that benchmark"
                )
    for rise in (claim.rise for claim in study.file.claims if claim.rise):
        curve = study.file.curves[rise.curve]
        absent = [f"the model {name}" for name in rise.models if name not in curve.cells]
        absent += [f"{n} tokens" for n in (rise.low, rise.high) if n not in curve.max_lengths]
        if absent:
            raise UsageError(
                f"the study {study.path} claims a rise of the curve {rise.curve!r}, which does "
                f"not have {absent[0]}: add it to the curve"
            )


def _check_twice(study: Study) -> None:
    """Refuse names, seeds and folders that two cells would share."""
    file = study.file
    taken: list[str | int] = [study.start, *file.baselines]
    taken += [load_recipe(name).name for name in file.recipes]
    taken += [name for group in file.groups.values() for name in group.cells]
    for things in (taken, file.seeds):
        for thing in things:
            if things.count(thing) > 1:
                raise UsageError(
                    f"the study {study.path} defines {thing!r} twice: rename one of them"
                )
    found: dict[str, str] = {}
    for cell in study.cells():
        other = found.setdefault(cell.folder, cell.name)
        if other != cell.name:
            raise UsageError(
                f"the study {study.path} defines the same as {other!r} and as {cell.name!r}, whose "
                "names differ too little for two folders: rename one of them"
            )
    titles = [cells[0].title for cells in study.models.values()]
    for title in titles:
        if titles.count(title) > 1:
            raise UsageError(
                f"the study {study.path} calls two models {title!r}: give one another title"
            )


def short_hash(value: Any) -> str:
    """Eight hexadecimal digits of plain data."""
    text = json.dumps(value, sort_keys=True, default=str)
    return digest(text, size=4).hex()
