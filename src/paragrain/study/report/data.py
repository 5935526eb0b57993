"""What a report tells, and its numbers as CSV and JSON.

`results.json` holds all that a report shows, so that its page and plots can be drawn anew without
the hours that the numbers took: `paragrain study report FILE --from results.json`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation.query_ranks import DIRECTIONS, KS
from paragrain.files import read_json, write_json, write_text
from paragrain.pages import Block
from paragrain.stats import Estimate
from paragrain.study.analyses.context import AnalysisContext
from paragrain.study.analyses.registry import Found, analyse, found_from_plain
from paragrain.study.cells import cell_folder, failure
from paragrain.study.claims import Evidence, Verdict, verdicts
from paragrain.study.data import collection_folder, prepare_collections
from paragrain.study.forecast import measured_hours
from paragrain.study.plan import Study
from paragrain.study.report.sections import base_of, columns_of, recipes_of
from paragrain.study.scores import Column, MeasuredBenchmark, StudyScores, read_scores
from paragrain.study.serialization import from_plain, to_plain
from paragrain.tables import Table

COLUMNS = ("benchmark", "direction", "k", "model", "title", "value", "low", "high", "seeds")
"""Of `results.csv`."""


@dataclass(frozen=True)
class Provenance:
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


@dataclass(frozen=True)
class Findings:
    """Everything that a report tells.

    Attributes:
        scores: recalls, curves and differences.
        verdicts: on the claims.
        analyses: what they found.
        added: blocks of analyses that other packages added, which are not stored.
        provenance: of the numbers.
        collection: of the pictures of examples, if it is at hand.
    """

    scores: StudyScores
    verdicts: list[Verdict]
    analyses: Found
    added: list[Block]
    provenance: Provenance
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
    found: Found = {}
    added: list[Block] = []
    if study.file.analyses is not None:
        collections = prepare_collections(study, out, progress=progress)
        context = AnalysisContext(study, out, collections, device)
        found, added = analyse(context, progress=progress)
    provenance, collection = _provenance(study, scores, out), _pictures(study, out)
    return Findings(scores, verdicts(study, scores), found, added, provenance, collection)


def _provenance(study: Study, scores: StudyScores, out: Path) -> Provenance:
    cells = list(study.cells())
    timed = sum((cell_folder(cell, out) / "seconds.json").is_file() for cell in cells)
    lacking = set(scores.missing)
    failed = [
        (cell.label, why) for cell in cells if cell.label in lacking and (why := failure(cell, out))
    ]
    hours, done = measured_hours(study, out), len(cells) - len(lacking)
    return Provenance(hours, timed, len(cells), done, failed, version("paragrain"))


def _pictures(study: Study, out: Path) -> Collection | None:
    """The collection of the benchmark that examples are from, if it is there."""
    if study.file.analyses is None:
        return None
    name = study.file.benchmarks[study.file.analyses.benchmark].collection
    try:
        return Collection.open(collection_folder(study, name, out))
    except ParagrainError:
        return None


# --- Written ----------------------------------------------------------------------------------


def write_data(study: Study, found: Findings, folder: Path) -> None:
    """Write `results.json` with everything and `results.csv` with every recall."""
    scores = found.scores
    content = {
        "study": study.file.model_dump(mode="json", exclude_defaults=True),
        "settings": study.config.settings(),
        "provenance": to_plain(found.provenance, 2),
        "method": scores.method,
        "pairing": scores.pairing,
        "measured": {name: asdict(one) for name, one in scores.measured.items()},
        "recalls": list(_recalls(study, scores)),
        "marks": list(_marks(study, scores)),
        "differences": list(_differences(study, scores)),
        "curves": list(_curves(scores)),
        "along": list(_along(study, scores)),
        "claims": [
            {
                "claim": verdict.claim.text,
                "here": verdict.word,
                "whole": verdict.whole,
                "evidence": to_plain(verdict.evidence, 12),
            }
            for verdict in found.verdicts
        ],
        "analyses": to_plain(found.analyses),
        "missing": list(scores.missing),
    }
    _write_csv(study, scores, folder)
    write_json(folder / "results.json", content)


def keep_data(study: Study, found: Findings, stored: Path, folder: Path) -> None:
    """Put the stored `results.json` itself, and its recalls as CSV, beside the page."""
    _write_csv(study, found.scores, folder)
    if stored.resolve() != (folder / "results.json").resolve():
        write_text(folder / "results.json", stored.read_text("utf-8"))


def _write_csv(study: Study, scores: StudyScores, folder: Path) -> None:
    rows = [
        [" ".join(map(str, row[name])) if name == "seeds" else row[name] for name in COLUMNS]
        for row in _recalls(study, scores)
    ]
    Table("", COLUMNS, rows).write_csv(folder / "results.csv")


Row = dict[str, Any]


def _recalls(study: Study, scores: StudyScores) -> Iterator[Row]:
    for name, columns in scores.recalls.items():
        for column, one in columns.items():
            yield {**asdict(column), "model": name, "title": study.title(name), **one.as_dict(3)}


def _marks(study: Study, scores: StudyScores) -> Iterator[Row]:
    """Best and second among baselines and recipes, the only table that has them."""
    models = [*study.baselines, *recipes_of(study)]
    for benchmark in study.file.benchmarks:
        for column in (Column(benchmark, d, k) for d in DIRECTIONS for k in KS):
            for name, mark in scores.marks(models, column).items():
                yield {**asdict(column), "model": name, "mark": mark}


def _differences(study: Study, scores: StudyScores) -> Iterator[Row]:
    """Those that the questions of the groups ask for."""
    for group in study.file.groups.values():
        for first, second in group.pairs:
            for column in columns_of(study, group):
                one = scores.difference(first, second, column)
                if one is not None:
                    yield {"first": first, "second": second, **asdict(column), **one.as_dict(4)}


def _curves(scores: StudyScores) -> Iterator[Row]:
    for curve, lines in scores.curves.items():
        for name, line in lines.items():
            for direction, points in line.items():
                for length, one in points.items():
                    place = {"curve": curve, "model": name, "direction": direction}
                    yield {**place, "max_length": length, **one.as_dict(3)}


def _along(study: Study, scores: StudyScores) -> Iterator[Row]:
    """Each line of a curve less its first."""
    for curve, lines in scores.curves.items():
        base = base_of(study, lines)
        for name in lines:
            for direction in DIRECTIONS if name != base else ():
                for length, one in scores.change_along(curve, base, name, direction).items():
                    place = {"curve": curve, "first": base, "second": name, "direction": direction}
                    yield {**place, "max_length": length, **one.as_dict(4)}


# --- Back -------------------------------------------------------------------------------------


def stored_findings(study: Study, path: Path, out: Path) -> Findings:
    """The findings of an earlier report, from its `results.json`.

    Args:
        study: that the report was of; its words are taken, the numbers are those of the file.
        path: the `results.json`.
        out: folder of the study, whose collections may have the pictures of the examples.

    Raises:
        UsageError: the file cannot be read, or is of another study.
    """
    try:
        content = read_json(path)
        scores, here = _scores(content), content["study"]["name"]
        found = found_from_plain(content["analyses"])
        judged = list(_verdicts(study, content["claims"]))
        provenance = from_plain(Provenance, content["provenance"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{path} is no results.json of a study's report ({problem}): name one"
        ) from None
    unknown = sorted({*scores.recalls} - {*study.models})
    if here != study.file.name or unknown:
        what = f"has no model {unknown[0]!r}" if unknown else f"is called {study.file.name!r}"
        raise UsageError(
            f"{path} is of the study {here!r}, while {study.path} {what}: give the file that "
            "belongs to it"
        )
    return Findings(scores, judged, found, [], provenance, _pictures(study, out))


def _scores(content: Mapping[str, Any]) -> StudyScores:
    recalls: dict[str, dict[Column, Estimate]] = {}
    for row in content["recalls"]:
        recalls.setdefault(row["model"], {})[_column(row)] = _estimate(row)
    curves: dict[str, dict[str, dict[str, dict[int, Estimate]]]] = {}
    for row in content["curves"]:
        lines = curves.setdefault(row["curve"], {}).setdefault(row["model"], {})
        lines.setdefault(row["direction"], {})[row["max_length"]] = _estimate(row)
    marked: dict[Column, dict[str, str]] = {}
    for columns in recalls.values():
        marked |= {column: {} for column in columns}
    for row in content["marks"]:
        marked[_column(row)][row["model"]] = row["mark"]
    along: dict[tuple[str, str, str, str], dict[int, Estimate]] = {}
    for row in content["along"]:
        place = (row["curve"], row["first"], row["second"], row["direction"])
        along.setdefault(place, {})[row["max_length"]] = _estimate(row)
    return StudyScores(
        recalls,
        curves,
        content["missing"],
        from_plain(dict[str, MeasuredBenchmark], content["measured"]),
        content["method"],
        content["pairing"],
        {(r["first"], r["second"], _column(r)): _estimate(r) for r in content["differences"]},
        along,
        marked,
    )


def _column(row: Row) -> Column:
    return Column(row["benchmark"], row["direction"], row["k"])


def _estimate(row: Row) -> Estimate:
    known = {name: row[name] for name in ("value", "low", "high")}
    return Estimate.from_dict(known | {name: row[name] for name in ("p", "seeds") if name in row})


def _verdicts(study: Study, stored: Sequence[Row]) -> Iterator[Verdict]:
    claims = {claim.text: claim for claim in study.file.claims}
    for row in stored:
        if row["claim"] in claims:
            evidence = from_plain(list[Evidence], row["evidence"])
            yield Verdict(claims[row["claim"]], evidence, row["whole"])
