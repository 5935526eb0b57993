"""The numbers of a report as CSV and JSON."""

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paragrain.files import write_json, write_text
from paragrain.study.claims import Verdict
from paragrain.study.plan import Study
from paragrain.study.tables import Estimate, Scores

HEAD = ("benchmark", "direction", "k", "model", "title", "mean", "low", "high", "seeds")


def rows(study: Study, scores: Scores) -> list[dict[str, Any]]:
    """Every recall as a flat row."""
    return [
        {
            "benchmark": column.benchmark,
            "direction": column.direction,
            "k": column.k,
            "model": name,
            "title": study.title(name),
            **_estimate(estimate),
        }
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


def write_data(
    study: Study,
    scores: Scores,
    verdicts: list[Verdict],
    analyses: dict[str, Any],
    folder: Path,
) -> None:
    """Write `results.json` with everything and `results.csv` with every recall."""
    recalls = rows(study, scores)
    text = io.StringIO()
    writer = csv.DictWriter(text, HEAD, lineterminator="\n")
    writer.writeheader()
    for row in recalls:
        writer.writerow({**row, "seeds": " ".join(map(str, row["seeds"]))})
    write_text(folder / "results.csv", text.getvalue())
    curves = [
        {"curve": curve, "model": name, "direction": direction, "tokens": budget}
        | _estimate(estimate)
        for curve, lines in scores.curves.items()
        for name, line in lines.items()
        for direction, points in line.items()
        for budget, estimate in points.items()
    ]
    claims = [
        {
            "claim": verdict.claim.text,
            "here": verdict.word,
            "evidence": [asdict(evidence) for evidence in verdict.evidence],
        }
        for verdict in verdicts
    ]
    content = {
        "study": study.file.model_dump(mode="json", exclude_defaults=True),
        "settings": study.config.settings(),
        "recalls": recalls,
        "curves": curves,
        "claims": claims,
        "analyses": analyses,
        "missing": list(scores.missing),
    }
    write_json(folder / "results.json", content)
