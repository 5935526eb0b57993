"""The sections of a study's report that rest on its scores: tables, curves, questions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from paragrain.evaluation.query_ranks import DIRECTIONS, KS
from paragrain.pages import Block, Command, Figure, Heading, Text
from paragrain.stats import Estimate
from paragrain.study.figures import LINES, Band, ParetoPoint, draw_curves, draw_pareto
from paragrain.study.plan import DIRECTION_TITLES, Cell, Study
from paragrain.study.schema import CellGroup
from paragrain.study.scores import Column, StudyScores, mean_of
from paragrain.tables import Header, Table
from paragrain.training.recipes import Selection
from paragrain.words import counted

ARROWS = {"image_to_text": "i2t", "text_to_image": "t2i"}
MARKED = (
    "Bold: better than all others of the column; italics: second to it alone; each only where the "
    "next one is worse beyond its error (p < 0.05, paired, not corrected for the number of "
    "comparisons)."
)


def seeds_told(study: Study, scores: StudyScores, names: Iterable[str]) -> str:
    """Of how many seeds the numbers of models are, counted from the results that are there.

    Such as "5 seeds", "1 to 3 seeds (C1 3, C4 1)", and what holds for models that nobody trained.
    """
    found = scores.seeds(names)
    trained = {n: own for n, own in found.items() if study.models[n][0].recipe is not None}
    fixed = [study.title(name) for name in found if name not in trained]
    parts = []
    if trained:
        low, high = min(a for a, _ in trained.values()), max(b for _, b in trained.values())
        told = counted(high, "seed")
        if low != high:
            each = (
                f"{study.title(n)} {a if a == b else f'{a} to {b}'}"
                for n, (a, b) in trained.items()
            )
            told = f"{low} to {told} ({', '.join(each)})"
        parts.append(told)
    if fixed and trained:
        parts.append(f"{', '.join(fixed)}: as {'it is' if len(fixed) == 1 else 'they are'}")
    return "; ".join(parts)


def result_table(
    study: Study,
    scores: StudyScores,
    models: Sequence[str],
    benchmarks: Sequence[str],
    *,
    ks: Sequence[int] = (1,),
    marks: bool = True,
) -> Iterator[Table]:
    """Recall of models on benchmarks, in both directions; nothing if nothing is done."""
    columns = [Column(b, d, k) for b in benchmarks for d in DIRECTIONS for k in ks]
    columns = [c for c in columns if any(c in scores.recalls.get(m, {}) for m in models)]
    names = [name for name in models if any(c in scores.recalls.get(name, {}) for c in columns)]
    if not names:
        return
    found: dict[tuple[int, int], str] = {}
    for place, column in enumerate(columns, 1):
        best = scores.marks(names, column) if marks else {}
        found |= {(names.index(name), place): mark for name, mark in best.items()}
    header: list[Header] = ["model"]
    for c in columns:
        own_name = ARROWS[c.direction] + (f", R@{c.k}" if len(ks) > 1 else "")
        header.append((study.benchmark_title(c.benchmark), own_name))
    over = seeds_told(study, scores, names)
    over = f", mean of {over}" if over else ""
    caption = (
        f"Recall@{ks[0] if len(ks) == 1 else 'K'} in percent{over}, with 95 % intervals, which "
        "hold the choice of queries and of seeds. i2t: image to text; t2i: text to image. "
        f"{MARKED if marks else ''}"
    )
    rows = [
        [study.title(name), *(scores.recalls[name].get(c, "") for c in columns)] for name in names
    ]
    yield Table(caption.strip(), header, rows, marks=found)


def main_section(study: Study, scores: StudyScores) -> Iterator[Block]:
    """The recipes and baselines on every benchmark."""
    models = [*study.baselines, *recipes_of(study)]
    everywhere = [n for n, b in study.file.benchmarks.items() if not b.models]
    yield Heading("The recipes")
    yield from result_table(study, scores, models, everywhere)
    shown = [n for n in recipes_of(study) if n in scores.recalls]
    yield from _trained_table(study, shown, "What supervises an image in each recipe.")
    yield Command(f"paragrain study run {study.path} " + _only(recipes_of(study)))
    for direction in DIRECTIONS:
        points = _pareto(study, scores, models, direction)
        if points:
            yield Figure(
                draw_pareto(
                    points,
                    study.styles,
                    across="mean Recall@1 on short texts, %",
                    up="mean Recall@1 on long texts, %",
                    title=f"Short against long text, {DIRECTION_TITLES[direction]}",
                ),
                f"Mean Recall@1 over the short and over the long benchmarks, "
                f"{DIRECTION_TITLES[direction]}; bars are 95 % intervals. Models on the line are "
                "surpassed by none in both.",
                f"pareto-{ARROWS[direction]}",
            )
    yield Heading("Recall@1, 5 and 10", 3, folded=True)
    for benchmark in everywhere:
        yield from result_table(study, scores, models, [benchmark], ks=KS)


def recipes_of(study: Study) -> list[str]:
    """Names of the recipes themselves, those of no group."""
    grouped = {name for group in study.file.groups.values() for name in group.cells}
    return [n for n in study.models if n not in study.baselines and n not in grouped]


def _trained_table(study: Study, names: Sequence[str], caption: str) -> Iterator[Table]:
    """What models were trained by: texts, loss, and the settings that are not the study's."""
    rows = [_recipe_row(study, study.models[name][0]) for name in names]
    if not rows:
        return
    head = ["model", "positives", "negatives", "loss", "differs in", "note"]
    kept = [place for place in range(len(head)) if place < 4 or any(row[place] for row in rows)]
    rows = [[row[place] for place in kept] for row in rows]
    yield Table(caption, [head[place] for place in kept], rows, words=True)


def _recipe_row(study: Study, cell: Cell) -> list[str]:
    assert cell.recipe is not None
    assert cell.settings is not None
    selections = [
        " + ".join(map(_selection, side)) or "none"
        for side in (cell.recipe.positives, cell.recipe.negatives)
    ]
    usual, own = (config.settings() for config in (study.config, cell.settings))
    differs = [
        f"{name} {_value(value, usual[name])}"
        for name, value in own.items()
        if name != "seed" and value != usual[name]
    ]
    if cell.collection != study.file.train:
        differs.append(f"trained on {cell.collection}")
    if cell.like is not None:
        differs.append(f"as many tokens as {cell.like.title}")
    return [cell.title, *selections, cell.recipe.loss, "; ".join(differs), cell.recipe.note]


def _selection(selection: Selection) -> str:
    """A selection with all that it says, such as "paragraph (all, order: sentences)"."""
    said = selection.model_dump(by_alias=True, exclude_defaults=True)
    more = [f"{name}: {value}" for name, value in said.items() if name not in ("from", "select")]
    return f"{selection.source} ({', '.join([str(selection.select), *more])})"


def _value(value: Any, usual: Any) -> str:
    """A setting in words; of several in one, those that differ."""
    if isinstance(value, Mapping) and isinstance(usual, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items() if usual.get(k) != v)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _only(names: Sequence[str]) -> str:
    return " ".join(f"--only '{n}'" if " " in n else f"--only {n}" for n in names)


def _pareto(
    study: Study, scores: StudyScores, models: Sequence[str], direction: str
) -> list[ParetoPoint]:
    points = []
    for name in models:
        sides = []
        for kind in ("short", "long"):
            wanted = [n for n, b in study.file.benchmarks.items() if b.kind == kind]
            found = [scores.recalls.get(name, {}).get(Column(b, direction)) for b in wanted]
            known = [estimate for estimate in found if estimate is not None]
            if known and len(known) == len(wanted):
                sides.append(mean_of(known))
        if len(sides) == 2:
            points.append(ParetoPoint(study.title(name), *sides))
    return points


def curves_section(study: Study, scores: StudyScores) -> Iterator[Block]:
    """Recall against the maximum length, and what each model finds beyond the first."""
    if not scores.curves:
        return
    yield Heading("How much of a text is read?")
    for name, found in scores.curves.items():
        curve = study.file.curves[name]
        lines = {model: found[model] for model in curve.cells if model in found}
        benchmark = study.benchmark_title(curve.benchmark)
        base = base_of(study, lines)
        others = [model for model in lines if model != base]
        groups = [others[n : n + LINES - 1] for n in range(0, len(others), LINES - 1)] or [[]]
        yield Heading(benchmark, 3)
        for number, group in enumerate(groups, 1):
            for direction in DIRECTIONS:
                yield _curve(study, scores, name, [base, *group], direction, number)
        points = [(d, length) for d in DIRECTIONS for length in curve.max_lengths]
        yield Table(
            f"The same in numbers: Recall@1 in percent by maximum length, {benchmark}.",
            ["model", *((ARROWS[d], str(length)) for d, length in points)],
            [
                [study.title(model), *(_value_at(line.get(d, {}), length) for d, length in points)]
                for model, line in lines.items()
            ],
        )
    yield Command(f"paragrain study run {study.path}")


def base_of(study: Study, lines: Iterable[str]) -> str:
    """The line of a curve that the others are less: the untouched model, else the first."""
    names = list(lines)
    return study.start if study.start in names else names[0]


def _value_at(line: Mapping[int, Estimate], length: int) -> float | str:
    return line[length].value if length in line else ""


def _curve(
    study: Study, scores: StudyScores, name: str, models: Sequence[str], direction: str, number: int
) -> Figure:
    """A few lines of a curve, the level above and the difference to the first below."""
    base = models[0]
    differences = {
        study.title(m): _band(scores.change_along(name, base, m, direction)) for m in models[1:]
    }
    benchmark = study.benchmark_title(study.file.curves[name].benchmark)
    below = f" Below: the difference to {study.title(base)}, bands {scores.pairing}."
    return Figure(
        draw_curves(
            {study.title(m): _band(scores.curves[name][m].get(direction, {})) for m in models},
            study.styles,
            differences=differences,
            base=study.title(base),
            title=f"{benchmark}, {DIRECTION_TITLES[direction]}",
        ),
        f"Recall@1 on {benchmark} when only the first tokens of each text are read, "
        f"{DIRECTION_TITLES[direction]}; bands are 95 % intervals.{below if differences else ''}",
        f"curve-{name}-{ARROWS[direction]}" + (f"-{number}" if number > 1 else ""),
    )


def _band(line: Mapping[Any, Estimate]) -> Band:
    """Estimates by their place on the axis."""
    return Band.of(sorted(line), [line[place] for place in sorted(line)])


def columns_of(study: Study, group: CellGroup) -> list[Column]:
    """The columns of a group's tables."""
    benchmarks = group.benchmarks or [n for n, b in study.file.benchmarks.items() if not b.models]
    return [Column(b, d) for b in benchmarks for d in DIRECTIONS]


def group_section(
    study: Study, scores: StudyScores, name: str, group: CellGroup
) -> Iterator[Block]:
    """An ablation or a control: its question, the answer as differences, the table."""
    members = list(group.members)
    members += [n for n in group.x if n not in members]
    columns = columns_of(study, group)
    benchmarks = list(dict.fromkeys(column.benchmark for column in columns))
    yield Heading(group.title, 3, folded=True, note=group.question)
    if not any(n in scores.recalls for n in group.cells or members):
        yield Text("None of its cells is done.")
        return
    rows = [
        [f"{study.title(second)} less {study.title(first)}", *changes]
        for first, second in group.pairs
        if any(changes := _changes(scores, first, second, columns))
    ]
    if rows:
        yield Table(
            "The answer: differences of Recall@1 in percentage points with 95 % intervals, paired "
            "on the queries; * where the interval leaves zero out.",
            ["difference", *_named(study, columns)],
            rows,
        )
    yield from result_table(study, scores, members, benchmarks, marks=False)
    done = [n for n in group.cells if n in scores.recalls]
    yield from _trained_table(study, done, "What was trained for this question.")
    if group.x:
        yield from _against(study, scores, name, group, benchmarks)
    yield Command(f"paragrain study run {study.path} {_only(list(group.cells))}".strip())


def _named(study: Study, columns: Sequence[Column]) -> list[Header]:
    return [(study.benchmark_title(c.benchmark), ARROWS[c.direction]) for c in columns]


def _changes(scores: StudyScores, first: str, second: str, columns: Sequence[Column]) -> list[str]:
    found = [scores.difference(first, second, column) for column in columns]
    return ["" if d is None else f"{d:+.1f}" + ("*" if d.significant else "") for d in found]


def _against(
    study: Study, scores: StudyScores, name: str, group: CellGroup, benchmarks: Sequence[str]
) -> Iterator[Block]:
    """Recall against the number of each cell."""
    for direction in DIRECTIONS:
        lines = {}
        for benchmark in benchmarks:
            column = Column(benchmark, direction)
            lines[study.benchmark_title(benchmark)] = {
                x: scores.recalls[model][column]
                for model, x in group.x.items()
                if column in scores.recalls.get(model, {})
            }
        if len({place for line in lines.values() for place in line}) < 2:
            continue  # one point is no line
        bands = {title: _band(line) for title, line in lines.items() if line}
        yield Figure(
            draw_curves(bands, across=group.axis, title=DIRECTION_TITLES[direction]),
            f"{group.title}: Recall@1, {DIRECTION_TITLES[direction]}; bands are 95 % intervals.",
            f"{name}-{ARROWS[direction]}",
        )
