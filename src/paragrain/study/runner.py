"""Run a study: make its collections, embed them once, and do every cell that is not done."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json, write_text
from paragrain.locks import Held, hold
from paragrain.progress import progress_bar
from paragrain.runtime import cores
from paragrain.study.cells import missing, note_failure
from paragrain.study.data import prepare_collections
from paragrain.study.plan import Cell, Study, load_study
from paragrain.study.workers import run_cells

SMALL = 20_000_000
"""A model of fewer parameters keeps one core busy, not several: one cell for each core."""


@dataclass
class StudyReport:
    """What a call of `run_study` did.

    Attributes:
        out: folder of the study.
        done: cells that were finished by this call.
        kept: cells that were finished before.
        failed: (cell, why).
        skipped: (id, why) of images that cannot be used.
        seconds: of this call.
    """

    out: Path
    done: int = 0
    kept: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "out": str(self.out), "seconds": round(self.seconds, 1)}

    def raise_if_failed(self) -> None:
        """Refuse to go on without all cells.

        Raises:
            ParagrainError: one failed.
        """
        for label, why in self.failed:
            raise ParagrainError(f"{label} failed: {why}")


def default_out(study: Study) -> Path:
    """Where a study goes if nothing else is said."""
    return Path("runs") / study.file.name


def run_study(
    study: str | Path | Study,
    out: str | Path | None = None,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    workers: int | None = None,
    device: str | None = None,
    progress: bool = True,
) -> StudyReport:
    """Do what is not done of a study; a killed one goes on where it was.

    Args:
        study: from `load_study`, or the path of its file.
        out: folder for collections, cells and report; `runs/NAME` if not given.
        only: names of models; all if none.
        seeds: of the training; all if none. Baselines have none and are always in.
        workers: cells at a time, each in a process with its share of the cores. By default as many
            as there are cores for a small model on the CPU, else one.
        device: as for `load_encoder`.
        show: show progress on standard error.

    Raises:
        UsageError: a collection is absent, or another call works in `out` at this moment.
    """
    study = load_study(study)
    out = Path(out or default_out(study))
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        with hold(out / ".lock"):
            report = _run(study, out, only, seeds, workers, device, progress)
    except Held:
        raise UsageError(
            f"another process runs the study in {out}: wait for it, or give another --out"
        ) from None
    report.seconds = time.monotonic() - began
    return report


def _run(
    study: Study,
    out: Path,
    only: Sequence[str],
    seeds: Sequence[int],
    workers: int | None,
    device: str | None,
    progress: bool,
) -> StudyReport:
    _check_asked(study, only, seeds)
    wanted = [cell for cell in study.cells() if _asked(cell, only, seeds)]
    pending = [cell for cell in wanted if missing(study, cell, out)]
    report = StudyReport(out, kept=len(wanted) - len(pending))
    write_text(out / "study.yaml", study.text)
    if not pending:
        return report
    collections = prepare_collections(study, out, progress=progress)
    start = load_encoder(study.file.model, device)
    report.skipped = _embed(study, collections, start, progress)
    workers = workers or _default_workers(start)
    threads = max(1, cores() // workers)
    del start
    title = f"study {study.file.name}"
    with progress_bar(title, len(pending), unit="cells", show=progress) as advance:
        for cell, seconds, problem in run_cells(study, pending, out, workers, threads, device):
            note_failure(cell, out, problem)
            if problem:
                report.failed.append((cell.label, problem))
            else:
                report.done += 1
                _note_seconds(out, cell, seconds)
            if progress:
                what = problem or ", ".join(f"{k} {v:.0f} s" for k, v in seconds.items())
                print(f"{cell.label}: {what}", file=sys.stderr, flush=True)
            advance(1, f"{len(report.failed)} failed" if report.failed else "")
    return report


def _check_asked(study: Study, only: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse names and seeds that the study does not have."""
    unknown = [f"cell {name!r}" for name in only if name not in study.models]
    unknown += [f"seed {seed}" for seed in seeds if seed not in study.file.seeds]
    if unknown:
        raise UsageError(
            f"{study.path} has no {unknown[0]}: see `paragrain study status {study.path}`"
        )


def _asked(cell: Cell, only: Sequence[str], seeds: Sequence[int]) -> bool:
    return (not only or cell.name in only) and (
        not seeds or cell.seed is None or cell.seed in seeds
    )


def _embed(
    study: Study,
    collections: Mapping[str, Collection],
    encoder: ImageTextEncoder,
    progress: bool,
) -> list[tuple[str, str]]:
    """The vectors of all images that more than one cell needs, once, with all cores."""
    failed: dict[str, str] = {}
    for collection in collections.values():
        failed |= dict(embed(collection, encoder, progress=progress).failed)
    return list(failed.items())


def _default_workers(encoder: ImageTextEncoder) -> int:
    small = sum(parameter.numel() for parameter in encoder.parameters()) < SMALL
    return cores() if small and encoder.device.type == "cpu" else 1


def _note_seconds(out: Path, cell: Cell, seconds: Mapping[str, float]) -> None:
    """Keep what a cell cost in all, for estimates."""
    path = out / "cells" / cell.folder / "seconds.json"
    before = read_json(path) if path.is_file() else {}
    total = {name: round(before.get(name, 0) + value, 2) for name, value in seconds.items()}
    write_json(path, before | total)


def progress_of(study: Study, out: Path) -> list[dict[str, Any]]:
    """For each model its cells, those that are done, and their seconds."""
    rows = []
    for name, cells in study.models.items():
        done = [cell for cell in cells if not missing(study, cell, out)]
        files = [out / "cells" / cell.folder / "seconds.json" for cell in done]
        seconds = [sum(read_json(file).values()) for file in files if file.is_file()]
        rows.append(
            {
                "name": name,
                "title": cells[0].title,
                "cells": len(cells),
                "done": len(done),
                "seconds": round(sum(seconds) / len(seconds), 1) if seconds else None,
            }
        )
    return rows
