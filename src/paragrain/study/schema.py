"""The content of a study file, checked when it is read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, model_validator

from paragrain.collection.fields import POSITIVE_FIELDS
from paragrain.evaluation import load_protocol
from paragrain.training.config import Length

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.@%+ -]*$")]
"""A name that may become a part of a path."""


class Defined(str):
    """Marks a name that has to be defined elsewhere in the file, and as what."""


CollectionName = Annotated[str, Defined("collection")]
BenchmarkName = Annotated[str, Defined("benchmark")]
CellName = Annotated[str, Defined("cell")]
CurveName = Annotated[str, Defined("curve")]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Scenes(_Data):
    """A procedural world; see `paragrain.sources.import_scenes`."""

    size: int = Field(ge=20)
    seed: int = 0


class Joined(_Data):
    """A copy of another collection of the study whose `description` is several texts in one."""

    collection: CollectionName
    fields: tuple[str, ...] = Field(min_length=1)


class Source(_Data):
    """Where a collection comes from: exactly one of three.

    Attributes:
        scenes: drawn when the study first runs.
        joined: written from another collection of the study.
        path: a folder that is there already.
        make: the command that makes the folder, for whoever lacks it.
        images: how many images it will have, for estimates before it is there.
    """

    scenes: Scenes | None = None
    joined: Joined | None = None
    path: Path | None = None
    make: str = ""
    images: int | None = None

    @model_validator(mode="after")
    def _one(self) -> "Source":
        if sum(part is not None for part in (self.scenes, self.joined, self.path)) != 1:
            raise ValueError("names exactly one of scenes, joined and path")
        return self


class BenchmarkSpec(_Data):
    """What is measured.

    Attributes:
        collection: name of a collection of the study.
        protocol: name of a protocol, which says all of the following but `kind`.
        texts, split, max_length: as in `paragrain.evaluation.evaluate`; what a
            protocol leaves open, or is to be changed of it. An encoder that reads fewer tokens is
            measured at those.
        kind: whether it counts as short or as long text in the Pareto plot, or as neither.
        title: how the report calls it.
        models: only these are measured on it; all if none are named.
    """

    collection: CollectionName
    protocol: str | None = None
    texts: Literal[POSITIVE_FIELDS] | None = None  # type: ignore[valid-type]
    split: str | None = None
    max_length: Length | None = None
    kind: Literal["short", "long", "other"] = "other"
    title: str = ""
    models: tuple[CellName, ...] = ()

    @model_validator(mode="after")
    def _says_all(self) -> "BenchmarkSpec":
        if self.protocol is None and (self.texts is None or self.max_length is None):
            raise ValueError("says texts and max_length, or names a protocol")
        return self

    def what(self) -> dict[str, Any]:
        """What is measured, as `paragrain.evaluation.evaluate` takes it."""
        return {"texts": self.field, "split": self.place, "protocol": self.protocol}

    @property
    def field(self) -> str:
        """The field of its texts."""
        return self.texts or load_protocol(self.protocol or "").texts

    @property
    def place(self) -> str:
        """Its split, "all" for the whole collection."""
        return self.split or (load_protocol(self.protocol).split if self.protocol else "all")

    @property
    def length(self) -> int:
        """Its maximum length, before the encoder's limit."""
        return self.max_length or load_protocol(self.protocol or "").max_length


class Curve(_Data):
    """Recall against the maximum length, on a benchmark, of the models named."""

    benchmark: BenchmarkName
    max_lengths: tuple[int, ...] = Field(min_length=1)
    cells: tuple[CellName, ...] = Field(min_length=1)


class Baseline(_Data):
    """A model that is measured as it is.

    Attributes:
        model: for `load_encoder`.
        max_length: its own on long benchmarks, as Long-CLIP's 248.
        needs: what has to be fetched by hand, for the plan.
    """

    model: str
    max_length: int | None = None
    needs: str = ""


class CellSpec(_Data):
    """One variant of training.

    Attributes:
        recipe: a name, or the recipe itself.
        settings: what differs from the settings of the study.
        collection: the collection to train on, if not the one of the study.
        tokens_like: name of a cell: train for as many steps as read the same number of tokens.
        title: how the report calls it.
    """

    recipe: str | dict[str, Any]
    settings: dict[str, Any] = {}
    collection: CollectionName | None = None
    tokens_like: str | None = None
    title: str = ""


class CellGroup(_Data):
    """Cells that answer one question together.

    Attributes:
        kind: an ablation or a control.
        title, question: for the report.
        cells: by name; they are trained for this question.
        with_cells: cells of elsewhere that belong into the same table.
        pairs: comparisons that answer the question: (first, second), each by name.
        benchmarks: those in its table; all if none are named.
        x: number of each cell, for a plot against it (captions, share of data, ...).
        axis: what that number is.
    """

    kind: Literal["ablation", "control"]
    title: str
    question: str
    cells: dict[Name, CellSpec] = {}
    with_cells: tuple[CellName, ...] = ()
    pairs: tuple[tuple[CellName, CellName], ...] = ()
    benchmarks: tuple[BenchmarkName, ...] = ()
    x: dict[CellName, float] = {}
    axis: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the cells of its table, in order."""
        return (*self.with_cells, *self.cells)


class AnalysesSpec(_Data):
    """Which analyses follow the cells.

    Attributes:
        benchmark: that they are of.
        map: the benchmark of the t-SNE plots, if another one.
        cells: the models that are compared.
        right, wrong: the two models of the examples.
        only: these analyses; all if none are named.
        added: names of analyses that other packages register as `paragrain.analyses`.
        sample: images in the t-SNE plots and the sums over texts.
    """

    benchmark: BenchmarkName
    cells: tuple[CellName, ...] = Field(min_length=1)
    right: CellName
    wrong: CellName
    map: BenchmarkName | None = None
    only: tuple[Literal["geometry", "cross_set", "positions", "saliency", "examples"], ...] = ()
    added: tuple[str, ...] = ()
    sample: int = Field(default=500, ge=20)


class Above(_Data):
    """Each of `seconds` against `first`, at R@1 in both directions on each of `benchmarks`."""

    first: CellName
    seconds: tuple[CellName, ...] = Field(min_length=1)
    benchmarks: tuple[BenchmarkName, ...] = Field(min_length=1)


class Rise(_Data):
    """R@1 of each model at the maximum length `high` against that at `low`, both of a curve.

    "No more" (a claim with `below`) is shown by an interval that stays under `margin` points, and
    refuted by one above zero: that no rise is seen does not show that there is none.
    """

    curve: CurveName
    models: tuple[CellName, ...] = Field(min_length=1)
    low: int
    high: int
    margin: float = 2.0


class Share(_Data):
    """How much of the gain from `base` to `whole` the model `part` has, at least `least`."""

    base: CellName
    part: CellName
    whole: CellName
    benchmarks: tuple[BenchmarkName, ...] = Field(min_length=1)
    least: float = 0.5


class Claim(_Data):
    """A claim of the paper, and what of this study it stands or falls with: one of three.

    Attributes:
        text: what the paper says.
        why: what may be behind what was found, written by whoever looked at it.
        above: the second model finds more than the first (fewer, if `below`).
        rise: a model finds more with a larger maximum length (no more, if `below`).
        share: of a gain, a part is reached.
        below: turns the claim round.
    """

    text: str
    why: str = ""
    above: Above | None = None
    rise: Rise | None = None
    share: Share | None = None
    below: bool = False

    @model_validator(mode="after")
    def _one(self) -> "Claim":
        if sum(part is not None for part in (self.above, self.rise, self.share)) != 1:
            raise ValueError("says exactly one of above, rise and share")
        return self


class Throughput(_Data):
    """Speeds and lengths for estimates where nothing has been measured yet.

    Attributes:
        tokens_per_second: in training the text side, forward and backward.
        images_per_second: through the image tower, decoding included.
        lengths: tokens of a text of each field.
        of: where these numbers come from.
    """

    tokens_per_second: float = Field(gt=0)
    images_per_second: float = Field(gt=0)
    lengths: dict[str, int] = {}
    of: str


class StudyFile(_Data):
    """The content of a study file."""

    name: Name
    title: str
    question: str = ""
    notes: tuple[str, ...] = ()
    model: str
    model_title: str = ""
    train: CollectionName
    settings: dict[str, Any] = {}
    seeds: tuple[int, ...] = Field(min_length=1)
    collections: dict[Name, Source] = Field(min_length=1)
    recipes: tuple[str, ...] = ()
    baselines: dict[Name, Baseline] = {}
    benchmarks: dict[Name, BenchmarkSpec] = Field(min_length=1)
    curves: dict[Name, Curve] = {}
    groups: dict[Name, CellGroup] = {}
    analyses: AnalysesSpec | None = None
    claims: tuple[Claim, ...] = ()
    throughput: Throughput | None = None

    @model_validator(mode="after")
    def _trains(self) -> "StudyFile":
        if not self.recipes and not any(group.cells for group in self.groups.values()):
            raise ValueError("trains nothing: name a recipe, or a cell of a group")
        return self


def names_in(value: Any, kind: Any = None, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Each name in a study file that has to be defined: (place, as what, name)."""
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(value, BaseModel):
        for name, hint in get_type_hints(type(value), include_extras=True).items():
            if name in type(value).model_fields:
                yield from names_in(getattr(value, name), hint, f"{place}.{name}".lstrip("."))
    elif origin is Annotated:
        yield from ((place, str(part), value) for part in parts[1:] if isinstance(part, Defined))
    elif origin is dict and isinstance(value, dict):
        for name, inner in value.items():
            yield from names_in(name, parts[0], place)
            yield from names_in(inner, parts[1], f"{place}.{name}")
    elif origin is tuple and isinstance(value, tuple):
        for inner in value:
            yield from names_in(inner, parts[0], place)
    elif (
        origin not in (dict, tuple) and value is not None
    ):  # one of several kinds, such as a name or nothing
        for part in parts:
            yield from names_in(value, part, place)
