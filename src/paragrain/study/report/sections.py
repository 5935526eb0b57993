"""The sections of a study's report that rest on its scores: tables, curves, questions, claims."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paragrain.evaluation.stored import DIRECTIONS, KS
from paragrain.study.claims import DIRECTION, Verdict
from paragrain.study.figures import Band, ParetoPoint, draw_curves, draw_pareto
from paragrain.study.file import Group
from paragrain.study.plan import Cell, Study
from paragrain.study.report.blocks import Block, Command, Heading, Plot, Table, Words
from paragrain.study.tables import Column, Estimate, Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARROWS = {"image_to_text": "i2t", "text_to_image": "t2i"}
MARKED = (
    "Bold: better than all others of the column; italics: second to it alone; each only where the "
    "next one is worse beyond its error (p < 0.05, paired, not corrected for the number of "
    "comparisons)."
)


def title_of(study: Study, benchmark: str) -> str:
    """How the report calls a benchmark."""
    return study.file.benchmarks[benchmark].title or benchmark


def result_table(
    study: Study,
    scores: Scores,
    models: Sequence[str],
    benchmarks: Sequence[str],
    *,
    ks: Sequence[int] = (1,),
    marks: bool = True,
) -> Table:
    """Recall of models on benchmarks, in both directions."""
    columns = [Column(b, d, k) for b in benchmarks for d in DIRECTIONS for k in ks]
    columns = [c for c in columns if any(c in scores.recalls.get(m, {}) for m in models)]
    names = [name for name in models if name in scores.recalls]
    rows = []
    for name in names:
        own = scores.recalls[name]
        rows.append([study.title(name), *(own[c].text if c in own else "" for c in columns)])
    found: dict[tuple[int, int], str] = {}
    for place, column in enumerate(columns, 1):
        best = scores.marks(names, column) if marks else {}
        found |= {(names.index(name), place): mark for name, mark in best.items()}
    head = [
        f"{title_of(study, c.benchmark)}, {ARROWS[c.direction]}"
        + (f", R@{c.k}" if len(ks) > 1 else "")
        for c in columns
    ]
    seeds = sorted({len(e.recalls) for name in names for e in scores.recalls[name].values()})
    over = f"{' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])}"
    caption = (
        f"Recall@{ks[0] if len(ks) == 1 else 'K'} in percent, mean of {over} ± half of the 95 % "
        "interval, which holds the choice of queries and of seeds. i2t: image to text; t2i: "
        f"text to image. {MARKED if marks else ''}"
    )
    return Table(["model", *head], rows, caption.strip(), found)


def main_section(study: Study, scores: Scores) -> Iterator[Block]:
    """The recipes and baselines on every benchmark."""
    models = [*study.baselines, *(n for n in study.models if n in _recipes(study))]
    everywhere = [n for n, b in study.file.benchmarks.items() if not b.models]
    yield Heading("The ten recipes")
    yield result_table(study, scores, models, everywhere)
    yield Table(
        ["recipe", "positives", "negatives", "loss", "note"],
        [_recipe_row(cells[0]) for n, cells in study.models.items() if n in _recipes(study)],
        "What supervises an image in each recipe.",
        words=True,
    )
    yield Command(f"paragrain study run {study.path} " + _only(_recipes(study)))
    for direction in DIRECTIONS:
        points = _pareto(study, scores, models, direction)
        if points:
            yield Plot(
                f"pareto-{ARROWS[direction]}",
                draw_pareto(
                    points,
                    across="mean Recall@1 on short texts, %",
                    up="mean Recall@1 on long texts, %",
                    title=f"Short against long text, {DIRECTION[direction]}",
                ),
                f"Mean Recall@1 over the short and over the long benchmarks, "
                f"{DIRECTION[direction]}; bars are 95 % intervals. Models on the line are "
                "surpassed by none in both.",
            )
    yield Heading("Recall@1, 5 and 10", 3)
    for benchmark in everywhere:
        yield result_table(study, scores, models, [benchmark], ks=KS)


def _recipes(study: Study) -> list[str]:
    grouped = {name for group in study.file.groups.values() for name in group.cells}
    return [n for n in study.models if n not in study.baselines and n not in grouped]


def _recipe_row(cell: Cell) -> list[str]:
    assert cell.recipe is not None
    picks = [
        " + ".join(f"{pick.source} ({pick.pick})" for pick in side) or "none"
        for side in (cell.recipe.positives, cell.recipe.negatives)
    ]
    return [cell.title, *picks, cell.recipe.loss, cell.recipe.note]


def _only(names: Sequence[str]) -> str:
    return " ".join(f"--only '{n}'" if " " in n else f"--only {n}" for n in names)


def _pareto(
    study: Study, scores: Scores, models: Sequence[str], direction: str
) -> list[ParetoPoint]:
    points = []
    for name in models:
        sides = []
        for kind in ("short", "long"):
            wanted = [n for n, b in study.file.benchmarks.items() if b.kind == kind]
            found = [scores.recalls.get(name, {}).get(Column(b, direction)) for b in wanted]
            known = [estimate for estimate in found if estimate is not None]
            if known and len(known) == len(wanted):
                sides.append(Estimate.mean_of(known))
        if len(sides) == 2:
            short, long = sides
            points.append(
                ParetoPoint(
                    study.title(name),
                    short.mean,
                    (short.low, short.high),
                    long.mean,
                    (long.low, long.high),
                )
            )
    return points


def curves_section(study: Study, scores: Scores) -> Iterator[Block]:
    """Recall against the token budget."""
    if not scores.curves:
        return
    yield Heading("How much of a text is read?")
    for name, lines in scores.curves.items():
        curve = study.file.curves[name]
        benchmark = title_of(study, curve.benchmark)
        for direction in DIRECTIONS:
            yield Plot(
                f"curve-{name}-{ARROWS[direction]}",
                _bands(
                    {study.title(model): line[direction] for model, line in lines.items()},
                    across="tokens read of each text",
                    title=f"{benchmark}, {DIRECTION[direction]}",
                ),
                f"Recall@1 on {benchmark} when only the first tokens of each text are read, "
                f"{DIRECTION[direction]}; bands are 95 % intervals.",
            )
        yield Table(
            ["model", *(f"{b}, {ARROWS[d]}" for d in DIRECTIONS for b in curve.budgets)],
            [
                [
                    study.title(model),
                    *(
                        f"{line[d][b].mean:.1f}" if b in line[d] else ""
                        for d in DIRECTIONS
                        for b in curve.budgets
                    ),
                ]
                for model, line in lines.items()
            ],
            f"The same in numbers: Recall@1 in percent by token budget, {benchmark}.",
        )
    yield Command(f"paragrain study run {study.path}")


def _bands(lines: Mapping[str, Mapping[Any, Estimate]], *, across: str, title: str) -> "Figure":
    """Lines of estimates by their place on the axis; a place that a line lacks is a gap."""
    places = sorted({place for line in lines.values() for place in line})

    def side(line: Mapping[Any, Estimate], name: str) -> list[float]:
        return [getattr(line[p], name) if p in line else math.nan for p in places]

    bands = {
        name: Band(side(line, "mean"), side(line, "low"), side(line, "high"))
        for name, line in lines.items()
    }
    return draw_curves(places, bands, across=across, title=title)


def group_section(study: Study, scores: Scores, name: str, group: Group) -> Iterator[Block]:
    """An ablation or a control: its question, the answer as differences, the table."""
    members = list(group.members)
    members += [n for n in group.x if n not in members]
    benchmarks = list(group.benchmarks) or [
        n for n, b in study.file.benchmarks.items() if not b.models
    ]
    yield Heading(group.title, 3)
    yield Words(group.question)
    rows = [
        [f"{study.title(second)} less {study.title(first)}", *_changes(scores, first, second, cols)]
        for first, second in group.pairs
        if (cols := [Column(b, d) for b in benchmarks for d in DIRECTIONS])
    ]
    if rows:
        head = [f"{title_of(study, b)}, {ARROWS[d]}" for b in benchmarks for d in DIRECTIONS]
        yield Table(
            ["difference", *head],
            rows,
            "The answer: differences of Recall@1 in percentage points with 95 % intervals, paired "
            "on the queries; * where the interval leaves zero out.",
        )
    yield result_table(study, scores, members, benchmarks, marks=False)
    if group.x:
        yield from _against(study, scores, name, group, benchmarks)
    yield Command(f"paragrain study run {study.path} {_only(list(group.cells))}")


def _changes(scores: Scores, first: str, second: str, columns: Sequence[Column]) -> list[str]:
    found = [scores.difference(first, second, column) for column in columns]
    return ["" if d is None else d.text + ("*" if d.significant else "") for d in found]


def _against(
    study: Study, scores: Scores, name: str, group: Group, benchmarks: Sequence[str]
) -> Iterator[Block]:
    for direction in DIRECTIONS:
        lines = {}
        for benchmark in benchmarks:
            column = Column(benchmark, direction)
            lines[title_of(study, benchmark)] = {
                x: scores.recalls[model][column]
                for model, x in group.x.items()
                if column in scores.recalls.get(model, {})
            }
        yield Plot(
            f"{name}-{ARROWS[direction]}",
            _bands(lines, across=group.axis, title=DIRECTION[direction]),
            f"{group.title}: Recall@1, {DIRECTION[direction]}; bands are 95 % intervals.",
        )


def claims_section(verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """What holds here of what the paper says, and why that may be."""
    yield Heading("Which claims of the paper hold here?")
    yield Table(
        ["claim", "here", "comparisons"],
        [[verdict.claim.text, verdict.word, verdict.count] for verdict in verdicts],
        "A claim holds if every comparison shows it beyond its 95 % interval; it holds in part if "
        "some do and none shows the contrary; it is open if none leaves zero out; it does not hold "
        "if some show the contrary and none shows it; it is mixed if some do and some do not.",
        words=True,
    )
    explained = [verdict for verdict in verdicts if verdict.claim.why]
    if explained:
        yield Heading("Why that may be", 3)
    for verdict in explained:
        yield Words(f"{verdict.claim.text} {verdict.word.capitalize()}. {verdict.claim.why}")


def evidence_section(verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """The comparisons that each verdict rests on."""
    yield Heading("The evidence, claim by claim")
    for verdict in verdicts:
        yield Heading(f"{verdict.claim.text} {verdict.word.capitalize()}.", 3)
        share = verdict.claim.share is not None
        yield Table(
            ["comparison", "share (95 % interval)" if share else "difference, points", "shows it"],
            [
                [
                    e.what,
                    f"{e.difference.value:.2f} ({e.difference.low:.2f} to {e.difference.high:.2f})"
                    if share
                    else e.difference.text,
                    {True: "yes", False: "the contrary", None: "open"}[e.holds],
                ]
                for e in verdict.evidence
            ],
            "Differences of Recall@1 in percentage points, means over the seeds."
            if not share
            else "Parts of a gain in Recall@1, means over the seeds.",
        )
