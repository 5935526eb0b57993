"""The sections of a report that look into the models: geometry, saliency, positions, examples."""

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
from paragrain.study.analyses.cross_set import cross_set, draw_cross_set
from paragrain.study.analyses.geometry import draw_maps, geometry, tsne_map
from paragrain.study.analyses.pairs import Pairs, draw_pairs
from paragrain.study.analyses.positions import can_attend, draw_positions, positions
from paragrain.study.analyses.qualitative import qualitative, qualitative_html
from paragrain.study.analyses.saliency import saliency, saliency_html
from paragrain.study.cells import cell_folder, missing, result_path
from paragrain.study.claims import DIRECTION
from paragrain.study.file import Analyses
from paragrain.study.plan import Study
from paragrain.study.report.blocks import Block, Heading, Html, Plot, Table, Words

PARTS = 5
"""Steps that the progress bar counts."""


@dataclass
class Looker:
    """What the analyses of one study share: collections, models, benchmarks, each loaded once."""

    study: Study
    out: Path
    collections: Mapping[str, Collection]
    device: str | None
    data: dict[str, Any] = field(default_factory=dict)
    _encoders: dict[str, ImageTextEncoder] = field(default_factory=dict)
    _benchmarks: dict[tuple[str, str], Benchmark] = field(default_factory=dict)

    @property
    def spec(self) -> Analyses:
        """What the study file says of analyses."""
        assert self.study.file.analyses is not None
        return self.study.file.analyses

    def models(self) -> list[str]:
        """Those of the models to look at whose first cell is done."""
        return [
            name
            for name in self.spec.cells
            if not missing(self.study, self.study.models[name][0], self.out)
        ]

    def encoder(self, name: str) -> ImageTextEncoder:
        """The model of the first seed."""
        if name not in self._encoders:
            cell = self.study.models[name][0]
            run = cell_folder(cell, self.out) / "run" / "checkpoint"
            where = cell.model if cell.recipe is None else str(run)
            self._encoders[name] = load_encoder(where, self.device)
        return self._encoders[name]

    def benchmark(self, name: str, model: str) -> Benchmark:
        """A benchmark with the image vectors of a model."""
        encoder = self.encoder(model)
        key = name, encoder.vision_fingerprint
        if key not in self._benchmarks:
            spec = self.study.file.benchmarks[name]
            self._benchmarks[key] = load_benchmark(
                self.collections[spec.collection], encoder, **spec.what()
            )
        return self._benchmarks[key]

    def tokens(self, benchmark: str, model: str) -> int:
        """The budget of a benchmark for a model."""
        return min(self.study.file.benchmarks[benchmark].budget, self.encoder(model).max_tokens)

    def pairs(self, benchmark: str, model: str, most: int | None = None) -> Pairs:
        """A sample of matched pairs, of at most `most` images."""
        return draw_pairs(
            self.benchmark(benchmark, model),
            self.encoder(model),
            tokens=self.tokens(benchmark, model),
            size=min(self.spec.sample, most or self.spec.sample),
        )


def looking_section(looker: Looker, *, show: bool) -> Iterator[Block]:
    """All analyses of the study, in the order of the report."""
    names = looker.models()
    if not names:
        return
    yield Heading("A look into the models")
    yield Words(
        f"Of each model the one of the first seed: {', '.join(map(looker.study.title, names))}."
    )
    with progress_bar("looking into models", PARTS, unit="analyses", show=show) as advance:
        for part in (_geometry, _cross_set, _positions, _saliency, _examples):
            yield from part(looker, names)
            advance()


def _geometry(looker: Looker, names: list[str]) -> Iterator[Block]:
    title, benchmark = looker.study.title, looker.spec.map or looker.spec.benchmark
    pairs = {name: looker.pairs(benchmark, name) for name in names}
    found = {name: geometry(own) for name, own in pairs.items()}
    looker.data["geometry"] = {name: one.as_dict() for name, one in found.items()}
    where = looker.study.file.benchmarks[benchmark].title or benchmark
    yield Heading("Where images and texts lie", 3)
    yield Plot(
        "tsne",
        draw_maps({title(name): tsne_map(own) for name, own in pairs.items()}),
        f"t-SNE of images and texts together, {len(next(iter(pairs.values())).ids):,} pairs of "
        f"{where}. Distances between clumps mean nothing.",
    )
    yield Table(
        ["model", "modality gap", "alignment", "uniformity of images", "uniformity of texts"],
        [
            [
                title(name),
                one.gap.text(3),
                one.alignment.text(3),
                one.images.text(2),
                one.texts.text(2),
            ]
            for name, one in found.items()
        ],
        "Gap: distance of the centroids of images and texts (Liang et al. 2022). Alignment: mean "
        "squared distance of matched pairs, lower is closer. Uniformity: log of the mean Gaussian "
        "potential, lower is more even (Wang and Isola 2020). With 95 % intervals over images.",
    )


def _cross_set(looker: Looker, names: list[str]) -> Iterator[Block]:
    benchmarks = looker.study.benchmarks(names[0])
    if len(benchmarks) < 2:
        return
    yield Heading("Across the benchmarks", 3)
    for name in names[:1] + names[-1:]:
        # Shares are of equal sets: all are as large as the smallest benchmark.
        least = min(len(np.unique(looker.benchmark(b, name).text_image)) for b in benchmarks)
        sets = {
            looker.study.file.benchmarks[b].title or b: looker.pairs(b, name, least)
            for b in benchmarks
        }
        found = cross_set(sets)
        looker.data.setdefault("cross_set", {})[name] = found.as_dict()
        yield Plot(
            f"across-{name}",
            draw_cross_set(found),
            f"{looker.study.title(name)}: of the images of each benchmark, the share whose nearest "
            "text of another image is from each benchmark. The paper shows a matrix across data "
            "sets and does not define it; this definition is ours.",
        )


def _positions(looker: Looker, names: list[str]) -> Iterator[Block]:
    benchmark = looker.spec.benchmark
    yield Heading("Which places of a text count?", 3)
    for measure in ("gradient", "attention"):
        able = [n for n in names if measure == "gradient" or not can_attend(looker.encoder(n))]
        if not able:
            continue
        found = {
            name: positions(
                looker.benchmark(benchmark, name),
                looker.encoder(name),
                tokens=looker.tokens(benchmark, name),
                measure=measure,
            )
            for name in able
        }
        looker.data[f"positions_{measure}"] = {name: one.as_dict() for name, one in found.items()}
        what = "gradient of the pair's cosine" if measure == "gradient" else "attention"
        yield Plot(
            f"positions-{measure}",
            draw_positions({looker.study.title(name): one for name, one in found.items()}),
            f"Share of the {what} over the places of the tokens, with 95 % bands.",
        )
        yield Table(
            ["model", "share behind token 60", "if spread evenly", "mean place, 0 to 1"],
            [
                [
                    looker.study.title(name),
                    one.behind.text(3),
                    f"{one.behind_even.value:.3f}",
                    one.mean_place.text(3),
                ]
                for name, one in found.items()
            ],
            f"The same {what} in numbers, with 95 % intervals over images.",
        )


def _saliency(looker: Looker, names: list[str]) -> Iterator[Block]:
    spec = looker.study.file.benchmarks[looker.spec.benchmark]
    collection = looker.collections[spec.collection]
    first = looker.benchmark(looker.spec.benchmark, names[0])
    row = int(np.random.default_rng(0).choice(np.unique(first.text_image)))
    text = first.texts[int(np.flatnonzero(first.text_image == row)[0])]
    record = collection.get([first.ids[row]])[first.ids[row]]
    image = decode(collection.image_bytes(record))
    found = {
        looker.study.title(name): saliency(
            looker.encoder(name),
            image,
            text,
            tokens=looker.tokens(looker.spec.benchmark, name),
            id=record.id,
        )
        for name in names
    }
    looker.data["saliency"] = {name: one.as_dict() for name, one in found.items()}
    yield Heading("What a pair's cosine hangs on", 3)
    yield Words("One pair, drawn with seed 0: the gradient of its cosine by patch and by word.")
    yield Html(saliency_html(found), "The picture of this part is on the page `index.html`.")


def _examples(looker: Looker, names: list[str]) -> Iterator[Block]:
    right, wrong = looker.spec.right, looker.spec.wrong
    ranks = {looker.study.title(n): _ranks(looker, n) for n in (right, wrong)}
    if not all(ranks.values()):
        return
    encoders = {looker.study.title(n): looker.encoder(n) for n in (right, wrong)}
    benchmark = looker.benchmark(looker.spec.benchmark, right)
    spec = looker.study.file.benchmarks[looker.spec.benchmark]
    yield Heading("Where one is right and the other wrong", 3)
    for direction in DIRECTIONS[::-1]:
        found = qualitative(
            benchmark,
            ranks,
            encoders,
            tokens=looker.tokens(looker.spec.benchmark, right),
            direction=direction,
            examples=3,
        )
        looker.data[f"examples_{direction}"] = found.as_dict()
        counts = found.counts
        words = (
            f"{DIRECTION[direction].capitalize()}: only {found.first} is right {counts.first} "
            f"times, only {found.second} {counts.second} times, of {counts.queries:,}. {found.rule}"
        )
        yield Heading(DIRECTION[direction].capitalize(), 4)
        yield Html(
            qualitative_html(found, looker.collections[spec.collection]),
            f"{words} The pictures are on the page `index.html`.",
        )


def _ranks(looker: Looker, name: str) -> list[QueryRanks]:
    study, out = looker.study, looker.out
    paths = [result_path(study, c, looker.spec.benchmark, out) for c in study.models[name]]
    return [load_result(path).queries for path in paths if path.is_file()]
