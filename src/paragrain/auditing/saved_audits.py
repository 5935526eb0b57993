"""An audit that was written to a folder, read again; or a new one where there is none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paragrain.auditing.audit import audit
from paragrain.auditing.report import IMAGE_REASONS, REASONS, AuditReport, Finding
from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.files import read_json

REPORT = "audit.json"
TRAINING_SPLIT = "train"

MARKING = (*IMAGE_REASONS, "text")
"""What marks an image of EVAL as seen, unless told otherwise: the image, or one of its texts."""


def load_report(path: Path) -> AuditReport:
    """Read what `AuditReport.write` wrote: the folder, or the `audit.json` in it.

    Raises:
        UsageError: there is no such file.
        UsageError: it holds something else, or is damaged.
    """
    file = path / REPORT if path.is_dir() else path
    try:
        value = read_json(file)
        return _report(value)
    except FileNotFoundError:
        raise UsageError(f"there is no audit {file}: check the path") from None
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{file} is not an audit, or is damaged: write one with `paragrain audit --out`"
        ) from error


def audit_of(
    train: Path,
    evaluation: Collection,
    *,
    split: str | None = None,
    train_split: str | None = None,
    progress: bool = True,
) -> AuditReport:
    """What `evaluation` shares with what a model has learned from.

    Args:
        train: a collection, which is compared now; or an audit of `evaluation` (`audit.json`, or
            the folder that `paragrain audit --out` wrote), which is read and checked.
        evaluation: what is measured on.
        split: of `evaluation`; None for all of it.
        train_split: of the collection `train`; by default `train` if there is one, else, or with
            "all", the whole collection.
        progress: whether to show progress.

    Raises:
        UsageError: the audit is of other data, or there is none; and as `audit`.
        ParagrainError: the audit cannot be read.
    """
    if train.is_file() or (train / REPORT).is_file():
        if train_split is not None:
            raise UsageError(f"{train} is an audit, whose splits are settled: name none of TRAIN")
        report = load_report(train)
        _check(report, train, evaluation, split)
        return report
    source = Collection.open(train)
    if train_split is None and TRAINING_SPLIT in source.splits:
        train_split = TRAINING_SPLIT
    train_split = None if train_split == "all" else train_split
    same = source.folder.resolve() == evaluation.folder.resolve()
    if same and (None in (train_split, split) or train_split == split):
        raise UsageError(
            f"{evaluation.place(split)} cannot be audited against itself: name what the model was "
            "trained on, or two splits"
        )
    return audit(source, evaluation, train_split=train_split, split=split, progress=progress)


def marks(report: AuditReport, reasons: Sequence[str] = MARKING) -> dict[str, frozenset[str]]:
    """Ids of EVAL that each of `reasons` marks as shared with TRAIN.

    Raises:
        UsageError: there is no such reason.
    """
    for reason in reasons:
        if reason not in REASONS:
            raise UsageError(
                f"an audit finds nothing by {reason!r}: choose from {', '.join(REASONS)}"
            )
    return {reason: report.overlapping([reason]) for reason in reasons}


def _check(report: AuditReport, path: Path, evaluation: Collection, split: str | None) -> None:
    """Refuse an audit of other data than `evaluation`."""
    audited = report.evaluation
    if report.within:
        reason = "compares one collection with itself"
    elif audited["fingerprint"] != evaluation.fingerprint:
        reason = f"is of other data ({audited['name']}), or {evaluation.name} has changed since"
    elif audited["split"] not in ("all", split or "all"):
        reason = f"is of the split {audited['split']} alone, not of {split or 'all'}"
    else:
        return
    raise UsageError(f"the audit {path} {reason}: run `paragrain audit TRAIN EVAL` anew")


def _report(value: dict[str, Any]) -> AuditReport:
    train, evaluation = (dict(value[side]) for side in ("train", "evaluation"))
    for name in ("name", "split", "fingerprint"):
        evaluation[name]  # a KeyError tells that this is no audit
    one, other = value["flat_ids"]
    return AuditReport(
        findings=[Finding(**finding) for finding in value["findings"]],
        totals={reason: count["pairs"] for reason, count in value["counts"].items()},
        train=train,
        evaluation=evaluation,
        flat=(list(one), list(other)),
        refused=value["refused"],
        failed=[(where, id, reason) for where, id, reason in value["failed"]],
        settings=value["settings"],
        within=value["within"],
        not_found=value["not_found"],
    )
