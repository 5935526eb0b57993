"""The whole idea in a few minutes: a world, three recipes, four benchmarks, one report."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragrain import plots
from paragrain.pages import old as pages
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.evaluation import Benchmark, Result, sweep_benchmark
from paragrain.evaluation.stored import DIRECTIONS
from paragrain.files import write_json, write_text
from paragrain.progress import progress_bar
from paragrain.sources import import_scenes
from paragrain.sources.scenes.world import FAMILY
from paragrain.stats import RESAMPLES, Units, interval, resample
from paragrain.study.analyses.qualitative import Qualitative, qualitative, qualitative_html
from paragrain.study.figures import Band, draw_curves
from paragrain.training import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 4000
RECIPES = ("c1", "c4", "c5")
TRAINING: dict[str, Any] = {
    "max_steps": 64,
    "batch_size": 128,
    "epochs": 100,
    "learning_rate": 5e-4,
    "warmup_steps": 10,
    "log_every": 10,
    "grad_cache_threshold": 65536,  # a tiny model's activations all fit: no pass has to run twice
    "validation_texts": ["paragraph"],
}
"""The tiny model takes a larger rate, fewer and smaller steps than the paper's 1e-5, 256 images."""

BENCHMARKS = {
    "short": ("test", "captions", 77),
    "short, twins": ("twins", "captions", 77),
    "long": ("twins", "paragraph", 128),
    "long, other style": ("twins", "description", 128),
}
"""Split, texts and maximum length of each column of the table."""

LONG, SHORT = ("long", "long, other style"), ("short", "short, twins")

MAX_LENGTHS = (10, 20, 40, 60, 80, 100, 128)
BASE, BEST = "BLIP0", "C4"
"""The models of the answer and of the examples: untouched, and trained on paragraphs alone."""

EXAMPLES = 6
LOOKS = plots.families({BASE: plots.BASE, **{recipe.upper(): recipe for recipe in RECIPES}})


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes:
        seed: of the world and the training.
        scores: results by model and benchmark.
        curves: results by model at `MAX_LENGTHS`.
        examples: what `BASE` and `BEST` answer to long queries.
        report: the HTML page.
        seconds: of each part.
    """

    seed: int
    scores: dict[str, dict[str, Result]]
    curves: dict[str, list[Result]]
    examples: Qualitative
    report: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[list[Any]]:
        """One row a model: R@1 in percent, image to text and text to image, by benchmark."""
        return [
            [model]
            + [
                value
                for name in BENCHMARKS
                for value in (results[name].image_to_text[1], results[name].text_to_image[1])
            ]
            for model, results in self.scores.items()
        ]

    def table(self) -> list[str]:
        """The table as lines of text."""
        names = "".join(f"{name:>20}" for name in BENCHMARKS)
        lines = [
            f"Recall@1, %, image to text / text to image (seed {self.seed})",
            f"{'':8}{names}",
        ]
        for model, *values in self.rows():
            cells = (f"{a:.1f} / {b:.1f}" for a, b in zip(values[::2], values[1::2], strict=True))
            lines.append(f"{model:8}" + "".join(f"{cell:>20}" for cell in cells))
        return lines

    @cached_property
    def changes(self) -> list["Change"]:
        """Each recipe less `BASE` on each benchmark, both directions, paired on the queries."""
        return [
            Change(
                model, name, direction, *_difference(self.scores[BASE][name], own[name], direction)
            )
            for model, own in self.scores.items()
            if model != BASE
            for name in BENCHMARKS
            for direction in DIRECTIONS
        ]

    def answer(self) -> list[str]:
        """What the demo's question is answered, in sentences that follow from the intervals."""
        told = []
        for names, of in ((LONG, "long texts"), (SHORT, "short texts")):
            for model in self.scores:
                own = [c for c in self.changes if c.model == model and c.benchmark in names]
                if own:
                    told.append(_sentence(model, of, own))
        return told

    def as_dict(self) -> dict[str, Any]:
        """Everything but the page."""
        return {
            "seed": self.seed,
            "scores": {
                model: {name: result.as_dict() for name, result in results.items()}
                for model, results in self.scores.items()
            },
            "max_lengths": list(MAX_LENGTHS),
            "curves": {
                model: {d.replace("_", " "): vars(_level(line, d)) for d in DIRECTIONS}
                for model, line in self.curves.items()
            },
            "answer": self.answer(),
            "differences": [asdict(change) for change in self.changes],
            "examples": self.examples.as_dict(),
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "report": str(self.report),
        }


@dataclass(frozen=True)
class Change:
    """Recall@1 of a recipe less that of `BASE`, in points, with its interval over the queries."""

    model: str
    benchmark: str
    direction: str
    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Such as "+8.8 (5.6 to 12.0)"; a star where the interval leaves zero out."""
        star = "*" if self.low > 0 or self.high < 0 else ""
        return f"{self.value:+.1f} ({self.low:.1f} to {self.high:.1f}){star}"


def _sentence(model: str, of: str, changes: Sequence[Change]) -> str:
    """How one recipe fares on texts of one kind, by what the intervals show."""
    more = [c for c in changes if c.low > 0]
    fewer = [c for c in changes if c.high < 0]
    parts = []
    for found, word in ((more, "more"), (fewer, "fewer")):
        if found:
            told = "; ".join(
                f"{c.benchmark}, {c.direction.replace('_', ' ')} {c.text.rstrip('*')}"
                for c in found
            )
            parts.append(f"finds {word} in {len(found)} of {len(changes)} measurements ({told})")
    rest = len(changes) - len(more) - len(fewer)
    if rest:
        no = "shows no difference beyond the error in "
        parts.append(f"{no}{'any' if rest == len(changes) else f'the other {rest}'}")
    return f"{model} on {of}: {', and '.join(parts)}."


def run_demo(out: Path, *, seed: int = 0, size: int = SIZE, progress: bool = True) -> DemoResult:
    """Run the demo in the folder `out`; what is there already from a killed run is kept.

    Args:
        out: gets `world/`, `runs/`, `results.json`, `report.html` and `truncation.svg`.
        seed: of the world, the data order and the random picks.
        size: number of training scenes.
        progress: whether to show progress.
    """
    seconds: dict[str, float] = {}
    clock = _Clock(seconds)
    import_scenes(out / "world", size=size, seed=seed, progress=progress)
    world = Collection.open(out / "world")
    clock.lap("world")
    blip0 = load_encoder("blip0", "cpu")
    benchmarks = {
        name: Benchmark.load(world, blip0, texts, split=split, progress=progress)
        for name, (split, texts, _) in BENCHMARKS.items()
    }
    clock.lap("embedding")
    models = {"BLIP0": blip0}
    for recipe in RECIPES:
        folder = out / "runs" / recipe
        run = train(
            world, blip0, recipe=recipe, out=folder, progress=progress, seed=seed, **TRAINING
        )
        models[recipe.upper()] = run.encoder
        clock.lap(f"training {recipe.upper()}")
    scores = _scores(models, benchmarks, world, progress)
    curves = _curves(models, benchmarks["long"], world, progress)
    examples = qualitative(
        benchmarks["long"],
        {name: [scores[name]["long"].queries] for name in (BASE, BEST)},
        {name: models[name] for name in (BASE, BEST)},
        max_length=BENCHMARKS["long"][2],
        examples=EXAMPLES,
    )
    clock.lap("evaluation")
    result = DemoResult(seed, scores, curves, examples, out / "report.html", seconds)
    write_text(result.report, _report(result, world))
    plots.save_svg(_truncation(curves, "text_to_image"), out / "truncation.svg")
    clock.lap("report")
    write_json(out / "results.json", result.as_dict())
    return result


class _Clock:
    """Seconds of one part after another."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self.last = now - self.last, now


def _scores(
    models: dict[str, ImageTextEncoder],
    benchmarks: dict[str, Benchmark],
    world: Collection,
    progress: bool,
) -> dict[str, dict[str, Result]]:
    scores: dict[str, dict[str, Result]] = {model: {} for model in models}
    total = len(models) * len(benchmarks)
    with progress_bar("evaluating", total, unit="benchmarks", show=progress) as advance:
        for model, encoder in models.items():
            for name, benchmark in benchmarks.items():
                max_length = [BENCHMARKS[name][2]]
                scores[model][name] = sweep_benchmark(benchmark, world, encoder, max_length)[0]
                advance()
    return scores


def _curves(
    models: dict[str, ImageTextEncoder], benchmark: Benchmark, world: Collection, progress: bool
) -> dict[str, list[Result]]:
    curves = {}
    with progress_bar("cutting texts", len(models), unit="models", show=progress) as advance:
        for model, encoder in models.items():
            curves[model] = sweep_benchmark(benchmark, world, encoder, MAX_LENGTHS)
            advance()
    return curves


def _difference(first: Result, second: Result, direction: str) -> tuple[float, float, float]:
    """Recall@1 of the second less the first in points, with the interval of the paired draws."""
    hits = [one.queries.hits(direction, 1) for one in (first, second)]
    units = Units.of(hits)
    draws = 100 * resample(units, resamples=RESAMPLES, seed=0).reshape(-1, 2)
    low, high = interval((draws[:, 1] - draws[:, 0])[:, None])[:, 0].tolist()
    means = 100 * units.means.reshape(2)
    return float(means[1] - means[0]), low, high


def _level(results: Sequence[Result], direction: str) -> Band:
    """R@1 (%) of each result with its interval."""
    intervals = [result.intervals["strict"][direction]["R@1"] for result in results]
    return Band(
        [getattr(result, direction)[1] for result in results],
        [low for low, _ in intervals],
        [high for _, high in intervals],
    )


def _truncation(curves: dict[str, list[Result]], direction: str) -> "Figure":
    """Recall against the number of tokens that are read, and the difference to `BASE`."""
    differences = {}
    for model, line in curves.items():
        if model != BASE:
            pairs = zip(curves[BASE], line, strict=True)
            differences[model] = Band(
                *zip(*(_difference(*pair, direction) for pair in pairs), strict=True)
            )
    return draw_curves(
        MAX_LENGTHS,
        {model: _level(line, direction) for model, line in curves.items()},
        LOOKS,
        differences=differences,
        base=BASE,
        title=f"Paragraphs cut short, {direction.replace('_', ' ')}",
    )


# --- The page ---------------------------------------------------------------------------------


def _report(result: DemoResult, world: Collection) -> str:
    """The report as HTML."""
    columns = [(name, d) for name in BENCHMARKS for d in ("i2t", "t2i")]
    counts = result.scores[BASE]["long"].scores
    steps, batch = TRAINING["max_steps"], TRAINING["batch_size"]
    minutes = sum(result.seconds.values()) / 60
    changes = {(c.model, c.benchmark, c.direction): c.text for c in result.changes}
    return pages.page(
        "Does a paragraph teach a text encoder to read?",
        pages.paragraph(
            "BLIP0, a tiny BLIP that has only ever seen short captions, was fine-tuned on the "
            f"text side alone: C1 on alt-texts, C4 on paragraphs, C5 on both, {steps} steps of "
            f"{batch} scenes each. Its image embeddings never changed. Each model ranked every "
            "picture against every text, exactly."
        ),
        pages.heading("What was found"),
        *(pages.paragraph(sentence) for sentence in result.answer()),
        pages.table(
            ["model", *columns],
            result.rows(),
            f"Recall@1 in percent, world and training of seed {result.seed}. i2t: image to text; "
            f"t2i: text to image. Twins: {counts.images:,} scenes in families of {FAMILY}, whose "
            "members differ from the first in one fact each, told late in the text. The other "
            "style has words, order and sentences that no recipe was trained on.",
            mark_best=True,
        ),
        pages.table(
            [f"less {BASE}", *columns],
            [
                [model, *(changes[model, name, d] for name in BENCHMARKS for d in DIRECTIONS)]
                for model in result.scores
                if model != BASE
            ],
            "Differences of Recall@1 in points with 95 % intervals, paired on the queries; * where "
            "the interval leaves zero out. They tell of other queries, not of other seeds.",
        ),
        pages.heading("How much of a text is read?"),
        *(
            pages.figure(
                _truncation(result.curves, direction),
                f"Recall@1, {direction.replace('_', ' ')}, when only the first tokens of each "
                "paragraph are read (split twins, 128 tokens hold nearly all of every paragraph). "
                f"Below: the difference to {BASE}, paired on the queries. Bands are 95 % "
                "intervals.",
            )
            for direction in DIRECTIONS
        ),
        pages.heading(f"What {BASE} and {BEST} answer"),
        pages.paragraph("The queries are paragraphs of the split twins."),
        qualitative_html(result.examples, world),
        pages.heading("What this does and does not show"),
        pages.paragraph(
            "The world is procedural: ten shapes, ten colours, templates for sentences. It shows "
            "how a text encoder that has read only captions behaves on paragraphs, with the truth "
            "known and the image tower frozen. It does not show how large these effects are on "
            "photographs, and with one seed it says nothing of their spread."
        ),
        pages.paragraph(
            f"Made by: paragrain demo --seed {result.seed}, in {minutes:.1f} minutes ("
            + ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
            + ").",
            dim=True,
        ),
    )
