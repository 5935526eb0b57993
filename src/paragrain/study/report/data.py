"""The numbers of a report as CSV and JSON, and a report's findings back from that JSON.

`results.json` holds all that a report shows, so that its page and plots can be drawn anew without
the hours that the numbers took: `paragrain study report FILE --from results.json`.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paragrain.errors import UsageError
from paragrain.evaluation.stored import DIRECTIONS, KS
from paragrain.files import read_json, write_json, write_text
from paragrain.study.claims import Evidence, Verdict
from paragrain.study.plan import Study
from paragrain.study.report.findings import Findings, Made, pictures
from paragrain.study.report.looking import Looked
from paragrain.study.report.sections import base_of, columns_of, recipes_of
from paragrain.study.tables import Column, Difference, Estimate, Measured, Scores

HEAD = ("benchmark", "direction", "k", "model", "title", "mean", "low", "high", "seeds")


def rows(study: Study, scores: Scores) -> list[dict[str, Any]]:
    """Every recall as a flat row."""
    return [
        {**asdict(column), "model": name, "title": study.title(name), **_estimate(estimate)}
        for name, columns in scores.recalls.items()
        for column, estimate in columns.items()
    ]


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "mean": round(estimate.mean, 3),
        "low": round(estimate.low, 3),
        "high": round(estimate.high, 3),
        "seeds": [round(recall, 3) for recall in estimate.recalls],
    }


def keep_data(study: Study, found: Findings, stored: Path, folder: Path) -> None:
    """Put the stored `results.json` itself, and its recalls as CSV, beside the page."""
    _write_csv(rows(study, found.scores), folder)
    if stored.resolve() != (folder / "results.json").resolve():
        write_text(folder / "results.json", stored.read_text("utf-8"))


def _write_csv(recalls: list[dict[str, Any]], folder: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, HEAD, lineterminator="\n")
    writer.writeheader()
    for row in recalls:
        writer.writerow({**row, "seeds": " ".join(map(str, row["seeds"]))})
    write_text(folder / "results.csv", text.getvalue())


def write_data(study: Study, found: Findings, folder: Path) -> None:
    """Write `results.json` with everything and `results.csv` with every recall."""
    scores = found.scores
    recalls = rows(study, scores)
    _write_csv(recalls, folder)
    content = {
        "study": study.file.model_dump(mode="json", exclude_defaults=True),
        "settings": study.config.settings(),
        "made": found.made.as_dict(),
        "method": scores.method,
        "paired": scores.paired,
        "measured": {name: asdict(one) for name, one in scores.measured.items()},
        "recalls": recalls,
        "marks": list(_marks(study, scores)),
        "differences": list(_differences(study, scores)),
        "curves": list(_curves(scores)),
        "along": list(_along(study, scores)),
        "claims": [
            {
                "claim": verdict.claim.text,
                "here": verdict.word,
                "whole": verdict.whole,
                "evidence": [asdict(evidence) for evidence in verdict.evidence],
            }
            for verdict in found.verdicts
        ],
        "analyses": found.looked.as_dict(),
        "missing": list(scores.missing),
    }
    write_json(folder / "results.json", content)


def _marks(study: Study, scores: Scores) -> Iterator[dict[str, Any]]:
    """Best and second among baselines and recipes, the only table that has them."""
    models = [*study.baselines, *recipes_of(study)]
    for benchmark in study.file.benchmarks:
        for column in (Column(benchmark, d, k) for d in DIRECTIONS for k in KS):
            for name, mark in scores.marks(models, column).items():
                yield {**asdict(column), "model": name, "mark": mark}


def _differences(study: Study, scores: Scores) -> Iterator[dict[str, Any]]:
    """Those that the questions of the groups ask for."""
    for group in study.file.groups.values():
        for first, second in group.pairs:
            for column in columns_of(study, group):
                difference = scores.difference(first, second, column)
                if difference is not None:
                    yield {
                        "first": first, "second": second, **asdict(column), **_rounded(difference)
                    }  # fmt: skip


def _curves(scores: Scores) -> Iterator[dict[str, Any]]:
    for curve, lines in scores.curves.items():
        for name, line in lines.items():
            for direction, points in line.items():
                for max_length, estimate in points.items():
                    place = {"curve": curve, "model": name, "direction": direction}
                    yield {**place, "max_length": max_length, **_estimate(estimate)}


def _along(study: Study, scores: Scores) -> Iterator[dict[str, Any]]:
    """Each line of a curve less its first."""
    for curve, lines in scores.curves.items():
        base = base_of(study, lines)
        for name in lines:
            for direction in DIRECTIONS if name != base else ():
                for max_length, one in scores.along(curve, base, name, direction).items():
                    place = {"curve": curve, "first": base, "second": name, "direction": direction}
                    yield {**place, "max_length": max_length, **_rounded(one)}


def _rounded(difference: Difference) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(difference).items()}


# --- Back -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredScores(Scores):
    """Estimates that were stored without their draws, and the differences beside them.

    Attributes:
        differences: by first, second and column.
        lines: differences along curves, by curve, first, second and direction.
        best: marks by column and model.
    """

    differences: Mapping[tuple[str, str, Column], Difference] = field(default_factory=dict)
    lines: Mapping[tuple[str, str, str, str], Mapping[int, Difference]] = field(
        default_factory=dict
    )
    best: Mapping[Column, Mapping[str, str]] = field(default_factory=dict)

    @property
    def paired(self) -> bool:  # type: ignore[override]
        """Whether differences along curves were stored, and so are paired on the queries."""
        return bool(self.lines)

    def difference(self, first: str, second: str, column: Column) -> Difference | None:
        """The stored difference of these two, if there is one."""
        return self.differences.get((first, second, column))

    def along(
        self, curve: str, first: str, second: str, direction: str
    ) -> Mapping[int, Difference]:
        """The stored differences; else, from the two intervals, those of unpaired samples."""
        if self.lines:
            return self.lines.get((curve, first, second, direction), {})
        one, other = (
            self.curves.get(curve, {}).get(name, {}).get(direction, {}) for name in (first, second)
        )
        return {b: unpaired(one[b], other[b]) for b in one if b in other}

    def marks(self, models: Sequence[str], column: Column) -> Mapping[str, str]:
        """The stored marks."""
        return self.best.get(column, {})


def unpaired(first: Estimate, second: Estimate) -> Difference:
    """The second less the first, from their intervals alone, as if of different queries.

    Zou and Donner (Statistics in Medicine 27, 2008): each bound lies as far from the difference as
    the two sides that face it are long together, at a right angle. Pairs that go up and down
    together, as queries do, would have a narrower one. There is no p.

    >>> one, other = Estimate(40, 37, 43, (40,)), Estimate(50, 46, 53, (50,))
    >>> unpaired(one, other)
    Difference(value=10, low=5.0, high=14.242640687119284, p=nan)
    """
    value = second.mean - first.mean
    below = ((second.mean - second.low) ** 2 + (first.high - first.mean) ** 2) ** 0.5
    above = ((second.high - second.mean) ** 2 + (first.mean - first.low) ** 2) ** 0.5
    return Difference(value, value - below, value + above, float("nan"))


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
        verdicts = _verdicts(study, content)
        looked, made = Looked.from_dict(content["analyses"]), Made(**content["made"])
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
    return Findings(scores, verdicts, looked, made, pictures(study, out))


def _scores(content: Mapping[str, Any]) -> StoredScores:
    recalls: dict[str, dict[Column, Estimate]] = {}
    for row in content["recalls"]:
        recalls.setdefault(row["model"], {})[_column(row)] = _stored(row)
    curves: dict[str, dict[str, dict[str, dict[int, Estimate]]]] = {}
    for row in content["curves"]:
        lines = curves.setdefault(row["curve"], {}).setdefault(row["model"], {})
        lines.setdefault(row["direction"], {})[row["max_length"]] = _stored(row)
    best: dict[Column, dict[str, str]] = {}
    for row in content["marks"]:
        best.setdefault(_column(row), {})[row["model"]] = row["mark"]
    along: dict[tuple[str, str, str, str], dict[int, Difference]] = {}
    for row in content["along"] if content["paired"] else ():
        place = (row["curve"], row["first"], row["second"], row["direction"])
        along.setdefault(place, {})[row["max_length"]] = _difference(row)
    return StoredScores(
        recalls,
        curves,
        content["missing"],
        {name: Measured(**one) for name, one in content["measured"].items()},
        content["method"],
        {(r["first"], r["second"], _column(r)): _difference(r) for r in content["differences"]},
        along,
        best,
    )


def _column(row: Mapping[str, Any]) -> Column:
    return Column(row["benchmark"], row["direction"], row["k"])


def _stored(row: Mapping[str, Any]) -> Estimate:
    return Estimate(row["mean"], row["low"], row["high"], tuple(row["seeds"]))


def _difference(row: Mapping[str, Any]) -> Difference:
    p = float("nan") if row["p"] is None else row["p"]
    return Difference(row["value"], row["low"], row["high"], p)


def _verdicts(study: Study, content: Mapping[str, Any]) -> list[Verdict]:
    claims = {claim.text: claim for claim in study.file.claims}
    return [
        Verdict(
            claims[row["claim"]],
            [
                Evidence(e["what"], Difference(**e["difference"]), e["holds"])
                for e in row["evidence"]
            ],
            row["whole"],
        )
        for row in content["claims"]
        if row["claim"] in claims
    ]
