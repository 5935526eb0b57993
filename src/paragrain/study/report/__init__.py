"""The report of a study: one page, Markdown, CSV, JSON and plots, from what its cells found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paragrain.errors import UsageError
from paragrain.study.claims import verdicts
from paragrain.study.data import prepare_collections
from paragrain.study.estimate import measured_hours
from paragrain.study.plan import Study
from paragrain.study.report.blocks import Block, Command, Heading, Words, save
from paragrain.study.report.data import write_data
from paragrain.study.report.looking import Looker, looking_section
from paragrain.study.report.sections import (
    claims_section,
    curves_section,
    evidence_section,
    group_section,
    main_section,
)
from paragrain.study.tables import Scores, read_scores

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
    device: str | None = None,
    show: bool = True,
) -> WrittenReport:
    """Write the report of the cells that are there.

    Args:
        study: from `load_study`.
        out: folder of its cells.
        to: folder of the report; files of an older one are replaced.
        device: where the analyses run.
        show: show progress.

    Raises:
        UsageError: no cell is done.
    """
    if not (out / "cells").is_dir():
        raise UsageError(f"there is nothing to report in {out}: run the study first")
    scores = read_scores(study, out)
    if not scores.recalls:
        raise UsageError(f"no cell of {study.path} is done in {out}: run the study first")
    found = verdicts(study, scores)
    blocks = list(_head(study, scores, out))
    blocks += claims_section(found)
    blocks += main_section(study, scores)
    blocks += curves_section(study, scores)
    for kind, title in (("ablation", "Ablations"), ("control", "Controls")):
        groups = {n: g for n, g in study.file.groups.items() if g.kind == kind}
        if groups:
            blocks.append(Heading(title))
        for name, group in groups.items():
            blocks += group_section(study, scores, name, group)
    analyses: dict[str, Any] = {}
    if study.file.analyses is not None:
        looker = Looker(study, out, prepare_collections(study, out, show=show), device)
        blocks += looking_section(looker, show=show)
        analyses = looker.data
    blocks += evidence_section(found)
    blocks += _how(study, scores, out)
    write_data(study, scores, found, analyses, to)
    page = save(study.file.title, blocks, to)
    return WrittenReport(page, [(v.claim.text, v.word) for v in found], scores.missing)


def _head(study: Study, scores: Scores, out: Path) -> Iterator[Block]:
    """What was asked, and of how much the answer is made."""
    yield Words(study.file.question)
    trained = [name for name, cells in study.models.items() if cells[0].recipe is not None]
    yield Words(
        f"{len(trained)} ways of training, {len(study.file.seeds)} seeds each, from "
        f"{study.start}, measured on {len(study.file.benchmarks)} benchmarks by exact ranks over "
        "all images and texts. Everything below comes from the commands beside it.",
        dim=True,
    )
    if scores.missing:
        some = ", ".join(scores.missing[:MISSING])
        more = f", and {len(scores.missing) - MISSING:,} more" if scores.missing[MISSING:] else ""
        yield Words(f"Not in here, since not done: {some}{more}.", dim=True)


def _how(study: Study, scores: Scores, out: Path) -> Iterator[Block]:
    """How to make all of it again."""
    config = study.config
    budgets = ", ".join(f"{k} {v}" for k, v in config.tokens.model_dump().items())
    steps = "" if config.max_steps is None else f" at most {config.max_steps:,} steps,"
    epochs = f" {config.epochs} epochs," if config.max_steps is None else ""
    yield Heading("How it was made")
    yield Command(f"paragrain study run {study.path}\nparagrain study report {study.path}")
    yield Words(
        f"Start: {study.file.model}. AdamW, learning rate {config.learning_rate:g}, "
        f"{config.batch_size} images a step,{steps}{epochs} {config.warmup_steps} warm-up steps, "
        f"temperature {config.temperature:g}, weight decay {config.weight_decay:g}. Token budgets "
        f"in training: {budgets}. Seeds {', '.join(map(str, study.file.seeds))}, of the order of "
        "the data, the random picks and dropout; all train on the same images. The wall times of "
        f"all cells add up to {measured_hours(study, out):.1f} hours. "
        f"paragrain {version('paragrain')}."
    )
    for note in study.file.notes:
        yield Words(note)
    yield Words(
        "Intervals: bootstrap over groups of images with their texts (2,000 draws), widened by "
        "the spread between seeds (Student's t); differences are paired on the queries. Ranks are "
        "strict: copies of an image under other ids are wrong answers. All numbers as data: "
        "results.csv, results.json."
    )
