"""The part of a report that looks into the models: what is computed, and its blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.evaluation import Benchmark, QueryRanks, load_benchmark, load_result
from paragrain.evaluation.stored import DIRECTIONS
from paragrain.images import decode
from paragrain.progress import progress_bar
from paragrain.study.analyses.cross_set import CrossSet, cross_set, draw_cross_set
from paragrain.study.analyses.geometry import Geometry, Map, draw_maps, geometry, tsne_map
from paragrain.study.analyses.pairs import Pairs, draw_pairs
from paragrain.study.analyses.positions import Positions, can_attend, draw_positions, positions
from paragrain.study.analyses.qualitative import Qualitative, qualitative, qualitative_html
from paragrain.study.analyses.saliency import Saliency, saliency, saliency_html
from paragrain.study.cells import cell_folder, missing, result_path
from paragrain.study.claims import DIRECTION
from paragrain.study.file import Analyses
from paragrain.study.plan import Study
from paragrain.study.plug import load_analyses
from paragrain.study.report.blocks import Block, Heading, Html, Plot, Table, Words
from paragrain.study.report.sections import title_of

MEASURES = {"gradient": "gradient of the pair's cosine", "attention": "attention"}


@dataclass
class Looker:
    """What the analyses of one study share: collections, models, benchmarks, each loaded once."""

    study: Study
    out: Path
    collections: Mapping[str, Collection]
    device: str | None = None
    _encoders: dict[str, ImageTextEncoder] = field(default_factory=dict)
    _benchmarks: dict[tuple[str, str], Benchmark] = field(default_factory=dict)

    @property
    def spec(self) -> Analyses:
        """What the study file says of analyses."""
        assert self.study.file.analyses is not None
        return self.study.file.analyses

    def models(self) -> list[str]:
        """Those of the models to look at whose first cell is done."""
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

    def benchmark(self, name: str, model: str) -> Benchmark:
        """A benchmark with the image embeddings of a model."""
        encoder = self.encoder(model)
        key = name, encoder.vision_fingerprint
        if key not in self._benchmarks:
            spec = self.study.file.benchmarks[name]
            self._benchmarks[key] = load_benchmark(
                self.collections[spec.collection], encoder, **spec.what()
            )
        return self._benchmarks[key]

    def max_length(self, benchmark: str, model: str) -> int:
        """The maximum length of a benchmark for a model."""
        return min(self.study.file.benchmarks[benchmark].length, self.encoder(model).max_tokens)

    def pairs(self, benchmark: str, model: str, most: int | None = None) -> Pairs:
        """A sample of matched pairs, of at most `most` images."""
        return draw_pairs(
            self.benchmark(benchmark, model),
            self.encoder(model),
            max_length=self.max_length(benchmark, model),
            size=min(self.spec.sample, most or self.spec.sample),
        )

    def ranks(self, name: str) -> list[QueryRanks]:
        """Ranks of every seed that is there, on the benchmark that is looked at."""
        cells = self.study.models[name]
        paths = [result_path(self.study, c, self.spec.benchmark, self.out) for c in cells]
        return [load_result(path).queries for path in paths if path.is_file()]


@dataclass
class Looked:
    """What the analyses found, by model unless said otherwise; empty where nothing was looked at.

    Attributes:
        geometry, maps, cross_set, saliency: of each model.
        positions: by measure, then by model.
        examples: by direction.
        added: blocks of analyses that other packages added, which are not kept.
    """

    geometry: dict[str, Geometry] = field(default_factory=dict)
    maps: dict[str, Map] = field(default_factory=dict)
    cross_set: dict[str, CrossSet] = field(default_factory=dict)
    saliency: dict[str, Saliency] = field(default_factory=dict)
    positions: dict[str, dict[str, Positions]] = field(default_factory=dict)
    examples: dict[str, Qualitative] = field(default_factory=dict)
    added: list[Block] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        flat = {part: _plain(getattr(self, part)) for part in (*_FLAT, "examples")}
        return {**flat, "positions": {m: _plain(own) for m, own in self.positions.items()}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Looked":
        """What `as_dict` gave."""
        flat: dict[str, Any] = {
            part: {name: kind.from_dict(own) for name, own in plain.get(part, {}).items()}
            for part, kind in {**_FLAT, "examples": Qualitative}.items()
        }
        places = {
            measure: {name: Positions.from_dict(one) for name, one in own.items()}
            for measure, own in plain.get("positions", {}).items()
        }
        return cls(**flat, positions=places)


_FLAT: dict[str, Any] = {
    "geometry": Geometry,
    "maps": Map,
    "cross_set": CrossSet,
    "saliency": Saliency,
}


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.as_dict() for name, one in found.items()}


# --- Computing --------------------------------------------------------------------------------


def look(looker: Looker, *, progress: bool) -> Looked:
    """All analyses of the study, of the models that are done."""
    found = Looked()
    names = looker.models()
    if not names:
        return found
    added = load_analyses(looker.spec.added)
    with progress_bar(
        "looking into models", 5 + len(added), unit="analyses", show=progress
    ) as advance:
        for part in (_geometry, _cross_set, _positions, _saliency, _examples):
            part(looker, names, found)
            advance()
        for name, analysis in added.items():
            found.added += [Heading(name, 3), *analysis(looker)]
            advance()
    return found


def _geometry(looker: Looker, names: list[str], found: Looked) -> None:
    benchmark = looker.spec.map or looker.spec.benchmark
    for name in names:
        pairs = looker.pairs(benchmark, name)
        found.geometry[name] = geometry(pairs)
        found.maps[name] = tsne_map(pairs)


def _cross_set(looker: Looker, names: list[str], found: Looked) -> None:
    benchmarks = looker.study.benchmarks(names[0])
    if len(benchmarks) < 2:
        return
    for name in dict.fromkeys((names[0], names[-1])):
        # Shares are of equal sets: all are as large as the smallest benchmark.
        least = min(len(np.unique(looker.benchmark(b, name).text_image)) for b in benchmarks)
        found.cross_set[name] = cross_set(
            {title_of(looker.study, b): looker.pairs(b, name, least) for b in benchmarks}
        )


def _positions(looker: Looker, names: list[str], found: Looked) -> None:
    benchmark = looker.spec.benchmark
    for measure in MEASURES:
        able = [n for n in names if measure == "gradient" or not can_attend(looker.encoder(n))]
        for name in able:
            found.positions.setdefault(measure, {})[name] = positions(
                looker.benchmark(benchmark, name),
                looker.encoder(name),
                max_length=looker.max_length(benchmark, name),
                measure=measure,
            )


def _saliency(looker: Looker, names: list[str], found: Looked) -> None:
    spec = looker.study.file.benchmarks[looker.spec.benchmark]
    collection = looker.collections[spec.collection]
    first = looker.benchmark(looker.spec.benchmark, names[0])
    row = int(np.random.default_rng(0).choice(np.unique(first.text_image)))
    text = first.texts[int(np.flatnonzero(first.text_image == row)[0])]
    record = collection.get([first.ids[row]])[first.ids[row]]
    image = decode(collection.image_bytes(record))
    for name in names:
        tokens = looker.max_length(looker.spec.benchmark, name)
        found.saliency[name] = saliency(
            looker.encoder(name), image, text, max_length=tokens, id=record.id
        )


def _examples(looker: Looker, names: list[str], found: Looked) -> None:
    both = looker.spec.right, looker.spec.wrong
    if not all(looker.done(name) for name in both):
        return
    title = looker.study.title
    for direction in DIRECTIONS[::-1]:
        found.examples[direction] = qualitative(
            looker.benchmark(looker.spec.benchmark, both[0]),
            {title(name): looker.ranks(name) for name in both},
            {title(name): looker.encoder(name) for name in both},
            max_length=looker.max_length(looker.spec.benchmark, both[0]),
            direction=direction,
        )


# --- Telling ----------------------------------------------------------------------------------


def looking_section(study: Study, found: Looked, collection: Collection | None) -> Iterator[Block]:
    """What the analyses found, in the order of the report.

    Args:
        study: whose models were looked at.
        found: from `look`, or stored.
        collection: of the examples' pictures, if it is at hand.
    """
    names = dict.fromkeys([*found.geometry, *found.saliency])
    if not names and not found.examples:
        return
    yield Heading("A look into the models")
    first = f" (seed {study.file.seeds[0]})"
    yield Words(f"Of each model the one of the first seed{first}: {_titles(study, names)}.")
    yield from _tell_geometry(study, found)
    yield from _tell_cross_set(study, found)
    yield from _tell_positions(study, found)
    if found.saliency:
        yield Heading("What a pair's cosine hangs on", 3, folded=True)
        yield Words("One pair, drawn with seed 0: the gradient of its cosine by patch and by word.")
        by_title = {study.title(name): one for name, one in found.saliency.items()}
        yield Html(saliency_html(by_title), "The picture of this part is on the page `index.html`.")
    for direction, one in found.examples.items():
        folded = direction == "image_to_text"
        yield Heading(f"What two of them answer, {DIRECTION[direction]}", 3, folded=folded)
        yield Html(
            qualitative_html(one, collection),
            f"{one.rule} The pictures are on the page `index.html`.",
        )
    yield from found.added


def _titles(study: Study, names: Mapping[str, Any]) -> str:
    return ", ".join(map(study.title, names))


def _tell_geometry(study: Study, found: Looked) -> Iterator[Block]:
    if not found.geometry:
        return
    assert study.file.analyses is not None
    where = title_of(study, study.file.analyses.map or study.file.analyses.benchmark)
    yield Heading("Where images and texts lie", 3)
    if found.maps:
        pairs = len(next(iter(found.maps.values())).images)
        yield Plot(
            "tsne",
            draw_maps({study.title(name): own for name, own in found.maps.items()}),
            f"t-SNE of images and texts together, {pairs:,} pairs of {where}. Distances between "
            "clumps mean nothing.",
        )
    yield Table(
        ["model", "modality gap", "alignment", "uniformity of images", "uniformity of texts"],
        [
            [
                study.title(name),
                one.gap.text(3),
                one.alignment.text(3),
                one.images.text(2),
                one.texts.text(2),
            ]
            for name, one in found.geometry.items()
        ],
        "Gap: distance of the centroids of images and texts (Liang et al. 2022). Alignment: mean "
        "squared distance of matched pairs, lower is closer. Uniformity: log of the mean Gaussian "
        "potential, lower is more even (Wang and Isola 2020). With 95 % intervals over images.",
    )


def _tell_cross_set(study: Study, found: Looked) -> Iterator[Block]:
    if found.cross_set:
        yield Heading("Across the benchmarks", 3, folded=True)
    for name, own in found.cross_set.items():
        yield Plot(
            f"across-{name}",
            draw_cross_set(own),
            f"{study.title(name)}: of the images of each benchmark, the share whose nearest text "
            "of another image is from each benchmark. The paper shows a matrix across data sets "
            "and does not define it; this definition is ours.",
        )


def _tell_positions(study: Study, found: Looked) -> Iterator[Block]:
    if found.positions:
        yield Heading("Which places of a text count?", 3, folded=True)
    for measure, own in found.positions.items():
        what = MEASURES[measure]
        yield Plot(
            f"positions-{measure}",
            draw_positions({study.title(name): one for name, one in own.items()}, study.looks),
            f"Share of the {what} over the places of the tokens, with 95 % bands.",
        )
        yield Table(
            ["model", "share behind token 60", "if spread evenly", "mean place, 0 to 1"],
            [
                [
                    study.title(name),
                    one.behind.text(3),
                    f"{one.behind_even.value:.3f}",
                    one.mean_place.text(3),
                ]
                for name, one in own.items()
            ],
            f"The same {what} in numbers, with 95 % intervals over images.",
        )
