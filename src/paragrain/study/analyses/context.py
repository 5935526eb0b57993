"""What the analyses of one study share: its models, benchmarks and ranks, each loaded once."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.evaluation import Benchmark, QueryRanks, load_benchmark, load_result
from paragrain.pages import Block
from paragrain.study.analyses.sample import EmbeddedPairs, draw_pairs
from paragrain.study.cells import cell_folder, missing, result_path
from paragrain.study.plan import Study
from paragrain.study.schema import AnalysesSpec


@dataclass
class AnalysisContext:
    """A study whose cells are done, as an analysis sees it."""

    study: Study
    out: Path
    collections: Mapping[str, Collection]
    device: str | None = None
    _encoders: dict[str, ImageTextEncoder] = field(default_factory=dict)
    _benchmarks: dict[tuple[str, str], Benchmark] = field(default_factory=dict)

    @property
    def spec(self) -> AnalysesSpec:
        """What the study file says of analyses."""
        assert self.study.file.analyses is not None
        return self.study.file.analyses

    def models(self) -> list[str]:
        """Those of the models to analyse whose first cell is done."""
        return [name for name in self.spec.cells if self.done(name)]

    def done(self, name: str) -> bool:
        """Whether the first cell of a model is done."""
        return not missing(self.study, self.study.models[name][0], self.out)

    def encoder(self, name: str) -> ImageTextEncoder:
        """The model of the first seed."""
        if name not in self._encoders:
            cell = self.study.models[name][0]
            run = cell_folder(cell, self.out) / "run" / "checkpoint"
            where = cell.model if cell.recipe is None else str(run)
            self._encoders[name] = load_encoder(where, self.device)
        return self._encoders[name]

    def benchmark(self, model: str, name: str | None = None) -> Benchmark:
        """A benchmark, or the one that is analysed, with the image embeddings of a model."""
        name = name or self.spec.benchmark
        encoder = self.encoder(model)
        key = name, encoder.vision_fingerprint
        if key not in self._benchmarks:
            spec = self.study.file.benchmarks[name]
            collection = self.collections[spec.collection]
            self._benchmarks[key] = load_benchmark(collection, encoder, **spec.what())
        return self._benchmarks[key]

    def max_length(self, model: str, benchmark: str | None = None) -> int:
        """The maximum length of a benchmark for a model."""
        spec = self.study.file.benchmarks[benchmark or self.spec.benchmark]
        return min(spec.length, self.encoder(model).max_tokens)

    def pairs(self, model: str, benchmark: str, most: int | None = None) -> EmbeddedPairs:
        """A sample of matched pairs, of at most `most` images."""
        return draw_pairs(
            self.benchmark(model, benchmark),
            self.encoder(model),
            max_length=self.max_length(model, benchmark),
            size=min(self.spec.sample, most or self.spec.sample),
        )

    def ranks(self, name: str) -> list[QueryRanks]:
        """Ranks of every seed that is there, on the benchmark that is analysed."""
        cells = self.study.models[name]
        paths = [result_path(self.study, c, self.spec.benchmark, self.out) for c in cells]
        return [load_result(path).queries for path in paths if path.is_file()]


@dataclass(frozen=True)
class Analysis:
    """One analysis: what it computes, and how a report tells it.

    Attributes:
        kind: type of what it finds of each key, a dataclass; see `serialization`.
        compute: the results by model (or by direction, where it compares two models).
        blocks: its part of the report, from the study and these results; the collection is that of
            the pictures, if it is at hand.
    """

    kind: Any
    compute: Callable[[AnalysisContext], dict[str, Any]]
    blocks: Callable[[Study, dict[str, Any], Collection | None], Iterator[Block]]
