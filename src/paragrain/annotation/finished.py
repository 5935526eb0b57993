"""Which Parquet files a run is through with, so that going on takes no look at their records."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.sending import RULE_VERSION
from paragrain.collection.reading import footer_fingerprint
from paragrain.files import read_json, write_json


def remember(
    folder: Path, file: Path, run: str, split: str | None, report: AnnotationReport
) -> None:
    """Note that a run has nothing more to ask about a file as it is now.

    Args:
        folder: of the collection.
        file: one of its Parquet files, with the texts in it; if another tool wrote it and it has
            no fingerprint, nothing is noted.
        run: name of the settings.
        split: that was annotated; None for all.
        report: what became of the file's records.
    """
    fingerprint = _fingerprint(file)
    if fingerprint is not None:
        value = {"known": _known(run, split, fingerprint), "report": report.as_json()}
        write_json(_note(folder, file), value)


def recall(folder: Path, file: Path, run: str, split: str | None) -> AnnotationReport | None:
    """What became of a file's records, if this run is through with it and nothing has changed."""
    try:
        value = read_json(_note(folder, file))
        if value["known"] != _known(run, split, _fingerprint(file)):
            return None
        return _report(folder, value["report"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _known(run: str, split: str | None, fingerprint: str | None) -> dict[str, Any]:
    """All that a file's outcome depends on; a new release may read replies otherwise."""
    release = f"{version('paragrain')} {RULE_VERSION}"
    return {"run": run, "split": split, "fingerprint": fingerprint, "release": release}


def _note(folder: Path, file: Path) -> Path:
    return folder / "annotation" / "files" / f"{file.stem}.json"


def _fingerprint(file: Path) -> str | None:
    try:
        return footer_fingerprint(pq.read_metadata(file))
    except (OSError, pa.ArrowException):
        return None


def _report(folder: Path, value: dict[str, Any]) -> AnnotationReport:
    report = AnnotationReport(folder)
    for name in ("images", "complete", "untouched", "reused", "regenerated"):
        setattr(report, name, int(value[name]))
    report.skipped = [(str(id), str(reason)) for id, reason in value["skipped"]]
    report.failed = [(str(id), str(reason)) for id, reason in value["failed"]]
    report.fewer = [(str(id), str(reason)) for id, reason in value["fewer"]]
    report.scores = Counter({int(score): count for score, count in value["scores"].items()})
    return report
