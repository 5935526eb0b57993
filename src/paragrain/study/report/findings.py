"""What a report tells, wherever it comes from: the cells of a study, or the numbers of an earlier
report."""

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.study.cells import cell_folder, failure
from paragrain.study.claims import Verdict, verdicts
from paragrain.study.data import collection_folder, prepare_collections
from paragrain.study.estimate import measured_hours
from paragrain.study.plan import Study
from paragrain.study.report.looking import Looked, Looker, look
from paragrain.study.tables import Scores, read_scores


@dataclass(frozen=True)
class Made:
    """How the numbers came about.

    Attributes:
        hours: of wall time, added up over the cells.
        timed: cells whose time is known.
        cells, done: of the study, and those that have all their results.
        failed: (label, why) of cells that failed when they last ran.
        version: of paragrain that computed the numbers.
    """

    hours: float
    timed: int
    cells: int
    done: int
    failed: list[tuple[str, str]] = field(default_factory=list)
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "hours": round(self.hours, 2)}


@dataclass(frozen=True)
class Findings:
    """Everything that a report tells.

    Attributes:
        scores: recalls, curves and differences.
        verdicts: on the claims.
        looked: what the analyses found.
        made: how.
        collection: of the pictures of examples, if it is at hand.
    """

    scores: Scores
    verdicts: list[Verdict]
    looked: Looked
    made: Made
    collection: Collection | None


def findings_of(study: Study, out: Path, *, device: str | None, progress: bool) -> Findings:
    """Read, estimate and analyse what the cells in `out` found.

    Raises:
        UsageError: no cell is done.
    """
    if not (out / "cells").is_dir():
        raise UsageError(f"there is nothing to report in {out}: run the study first")
    scores = read_scores(study, out)
    if not scores.recalls:
        raise UsageError(f"no cell of {study.path} is done in {out}: run the study first")
    looked = Looked()
    if study.file.analyses is not None:
        collections = prepare_collections(study, out, progress=progress)
        looked = look(Looker(study, out, collections, device), progress=progress)
    return Findings(
        scores, verdicts(study, scores), looked, _made(study, scores, out), pictures(study, out)
    )


def _made(study: Study, scores: Scores, out: Path) -> Made:
    cells = list(study.cells())
    timed = sum((cell_folder(cell, out) / "seconds.json").is_file() for cell in cells)
    lacking = set(scores.missing)
    failed = [
        (cell.label, why) for cell in cells if cell.label in lacking and (why := failure(cell, out))
    ]
    return Made(
        measured_hours(study, out),
        timed,
        len(cells),
        len(cells) - len(lacking),
        failed,
        version("paragrain"),
    )


def pictures(study: Study, out: Path) -> Collection | None:
    """The collection of the benchmark that examples are from, if it is there."""
    if study.file.analyses is None:
        return None
    name = study.file.benchmarks[study.file.analyses.benchmark].collection
    try:
        return Collection.open(collection_folder(study, name, out))
    except ParagrainError:
        return None
