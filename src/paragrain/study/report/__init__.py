"""The report of a study: one page, Markdown, CSV, JSON and plots, from what its cells found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragrain.pages import Block, Command, Heading, Text, save
from paragrain.study.analyses.registry import analyses_section
from paragrain.study.claims import claims_section, evidence_section
from paragrain.study.plan import Study
from paragrain.study.report.data import (
    Findings,
    Provenance,
    findings_of,
    keep_data,
    stored_findings,
    write_data,
)
from paragrain.study.report.sections import (
    curves_section,
    group_section,
    main_section,
    seeds_told,
)
from paragrain.study.scores import StudyScores
from paragrain.tables import Table
from paragrain.words import counted

__all__ = ["WrittenReport", "write_report"]

MISSING = 5
"""So many of the cells that are not done are named on the page; all are in the data."""


@dataclass(frozen=True)
class WrittenReport:
    """What was written.

    Attributes:
        page: the HTML page; `report.md`, `results.csv`, `results.json` and `plots/` lie beside it.
        claims: (claim, whether it holds here).
        missing: labels of cells that have not all their results.
    """

    page: Path
    claims: list[tuple[str, str]]
    missing: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        claims = [{"claim": claim, "here": word} for claim, word in self.claims]
        return {"report": str(self.page), "claims": claims, "missing": list(self.missing)}

    def lines(self) -> list[str]:
        """The verdicts in words."""
        return [f"{word:>14}: {claim}" for claim, word in self.claims]


def write_report(
    study: Study,
    out: Path,
    to: Path,
    *,
    stored: Path | None = None,
    device: str | None = None,
    progress: bool = True,
) -> WrittenReport:
    """Write the report of the cells that are there, or of the numbers of an earlier report.

    Args:
        study: from `load_study`.
        out: folder of its cells.
        to: folder of the report; files of an older one are replaced.
        stored: the `results.json` of an earlier report, to be told anew without any cell.
        device: where the analyses run.
        show: show progress.

    Raises:
        UsageError: no cell is done, or the stored numbers are of another study.
    """
    if stored is not None:
        found = stored_findings(study, stored, out)
        keep_data(study, found, stored, to)
    else:
        found = findings_of(study, out, device=device, progress=progress)
        write_data(study, found, to)
    page = save(study.file.title, list(_blocks(study, found, stored)), to)
    told = [(verdict.claim.text, verdict.word) for verdict in found.verdicts]
    return WrittenReport(page, told, found.scores.missing)


def _blocks(study: Study, found: Findings, stored: Path | None) -> Iterator[Block]:
    scores = found.scores
    yield from _head(study, found)
    yield from claims_section(found.verdicts)
    yield from main_section(study, scores)
    yield from curves_section(study, scores)
    for kind, title in (("ablation", "Ablations"), ("control", "Controls")):
        groups = {n: g for n, g in study.file.groups.items() if g.kind == kind}
        if groups:
            yield Heading(title)
        for name, group in groups.items():
            yield from group_section(study, scores, name, group)
    yield from analyses_section(study, found.analyses, found.added, found.collection)
    yield from evidence_section(found.verdicts)
    yield from _how(study, found, stored)


def _head(study: Study, found: Findings) -> Iterator[Block]:
    """What was asked, and of how much the answer is made: counted, not planned."""
    scores = found.scores
    if study.file.question:
        yield Text(study.file.question)
    trained = [name for name, cells in study.models.items() if cells[0].recipe is not None]
    done = [name for name in trained if name in scores.recalls]
    measured = {column.benchmark for own in scores.recalls.values() for column in own}
    ways = f"{counted(len(done), 'way')} of training"
    if len(done) < len(trained):
        ways = f"{len(done)} of the {len(trained)} ways of training that the file names"
    seeds = seeds_told(study, scores, done)
    each = f", {seeds} each" if seeds.endswith(("seed", "seeds")) else f", of {seeds}"
    yield Text(
        f"{ways}{each if seeds else ''}, from {study.start}, measured on "
        f"{counted(len(measured), 'benchmark')} by exact ranks over all images and texts. "
        "Everything below comes from the commands beside it.",
        dim=True,
    )
    failed = dict(found.provenance.failed)
    unrun = [label for label in scores.missing if label not in failed]
    if unrun:
        some = "; ".join(unrun[:MISSING])
        more = f"; and {len(unrun) - MISSING:,} more" if unrun[MISSING:] else ""
        yield Text(f"Not in here, or not with all results, since not done: {some}{more}.", dim=True)
    for label, why in list(failed.items())[:MISSING]:
        yield Text(f"Failed: {label} ({why}).", dim=True)
    yield from _trained_on(study, scores)


def _trained_on(study: Study, scores: StudyScores) -> Iterator[Block]:
    """Which benchmarks hold images that models learned from: those numbers are no test."""
    for benchmark, measured in scores.measured.items():
        models: dict[str, list[str]] = {}
        for name, lines in measured.trained_on.items():
            for line in lines:
                models.setdefault(line, []).append(study.title(name))
        for line, titles in models.items():
            yield Text(f"NOTE: {study.benchmark_title(benchmark)}: {line} ({', '.join(titles)}).")


def _how(study: Study, found: Findings, stored: Path | None) -> Iterator[Block]:
    """How to make all of it again."""
    config, made = study.config, found.provenance
    max_lengths = ", ".join(f"{k} {v}" for k, v in config.max_length.model_dump().items())
    steps = "" if config.max_steps is None else f" at most {config.max_steps:,} steps,"
    epochs = f" {config.epochs} epochs," if config.max_steps is None else ""
    yield Heading("How it was made")
    again = f"paragrain study run {study.path}\nparagrain study report {study.path}"
    yield Command(again)
    if stored is not None:
        yield Text(
            f"Page and plots were drawn from the stored numbers in {stored.name}, which "
            f"paragrain {made.version} had computed."
        )
    yield Text(
        f"Start: {study.file.model}. AdamW, learning rate {config.learning_rate:g}, "
        f"{config.batch_size} images a step,{steps}{epochs} {config.warmup_steps} warm-up steps "
        "(at most a tenth of a run), "
        f"temperature {config.temperature:g}, weight decay {config.weight_decay:g}. Lengths "
        f"in training: {max_lengths}. What a model has otherwise stands in its table. The seed is "
        "of the order of the data, the random picks and dropout; all seeds train on the same "
        f"images. {_cost(made)} "
        f"paragrain {made.version}."
    )
    yield from _benchmarks(study, found)
    for note in study.file.notes:
        yield Text(note)
    yield Text(
        f"{found.scores.method} Ranks are strict: copies of an image under other ids are wrong "
        "answers. All numbers as data: results.csv, results.json."
    )


def _cost(made: Provenance) -> str:
    """What it took, of how many cells."""
    done = f"{made.done:,} of {made.cells:,} cells are done"
    if not made.timed:
        return f"{done}; how long they took is not known."
    of = "" if made.timed == made.cells else f" of the {made.timed:,} whose time is known"
    return f"{done}; the wall times{of} add up to {made.hours:.1f} hours."


def _benchmarks(study: Study, found: Findings) -> Iterator[Block]:
    """What each benchmark turned out to be, and where a model was read with another length."""
    rows = []
    for name, one in found.scores.measured.items():
        spec = study.file.benchmarks[name]
        where = f"{spec.collection}, {spec.place}"
        other = "".join(
            f"; {study.title(model)} {length}"
            for model, length in one.max_length.items()
            if length != spec.length
        )
        counts = [f"{one.images:,}", f"{one.texts:,}", f"{spec.length}{other}"]
        rows.append([study.benchmark_title(name), where, spec.field, *counts])
    if rows:
        yield Table(
            "What was measured: images and texts that were ranked, and the maximum length.",
            ["benchmark", "collection, split", "texts", "images", "number of texts", "tokens"],
            rows,
            words=True,
        )
