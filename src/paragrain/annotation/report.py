"""What a run of annotation did, counted as it goes, and kept for the files that it is through with.

Which Parquet files those are is noted, so that going on need not read their records.
"""

import json
import logging
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.annotation.calls import Reply
from paragrain.annotation.database import Database
from paragrain.annotation.loop import Outcome
from paragrain.annotation.pictures import RULE_VERSION
from paragrain.collection.shards import footer_fingerprint
from paragrain.files import write_text

FIRST_IMAGES = 3
"""Images in a row of which a kind of text lacks something, before the user is told."""

Problems = list[tuple[str, str]]
_LOGGER = logging.getLogger("paragrain")


@dataclass
class AnnotationReport:
    """What a run did.

    Attributes:
        folder: the collection.
        images: records that the run looked at.
        complete: of them, those that now have every text that was asked for.
        untouched: of these, those whose texts all came with the data.
        skipped: (id, reason) of images that cannot be sent to a model.
        failed: (id, reason) of images that lack a text or a score.
        fewer: (id, reason) of images that have all kinds of texts, but fewer captions or hard
            negatives than asked for.
        calls: replies that models gave in this run.
        reused: replies that were there already.
        prompt_tokens, completion_tokens: read and written in this run, as far as models count them.
        changed: records whose texts changed in the collection.
        regenerated: images for which more than one paragraph was written.
        scores: how many kept paragraphs have each score.
        seconds: how long it took.
        notes: what else the user should know.
    """

    folder: Path
    images: int = 0
    complete: int = 0
    untouched: int = 0
    skipped: Problems = field(default_factory=list)
    failed: Problems = field(default_factory=list)
    fewer: Problems = field(default_factory=list)
    calls: int = 0
    reused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    changed: int = 0
    regenerated: int = 0
    scores: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def problems(self) -> Problems:
        """Everything that is not complete, with the reason."""
        return self.skipped + self.failed + self.fewer

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "folder": str(self.folder), "scores": dict(self.scores)}

    def count_reply(self, reply: Reply) -> None:
        """Count a reply of this run."""
        self.calls += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0

    def count_outcome(self, outcome: Outcome) -> None:
        """Count an image that is through."""
        self.images += 1
        self.untouched += not outcome.asked
        self.regenerated += outcome.candidates > 1
        if outcome.score is not None:
            self.scores[outcome.score] += 1
        if outcome.lacking:
            lacking = self.failed if outcome.failures else self.fewer
            lacking.append((outcome.id, outcome.reason))
        else:
            self.complete += 1

    def add(self, other: "AnnotationReport") -> None:
        """Take in what another process did with other images."""
        for name, value in vars(other).items():
            if name not in ("folder", "seconds", "notes"):
                setattr(self, name, getattr(self, name) + value)
        self.notes += [note for note in other.notes if note not in self.notes]


def write_failed(folder: Path, problems: Problems) -> None:
    """Leave the list of what a run could not get in `failed.jsonl`; none if it got everything."""
    path = folder / "failed.jsonl"
    if problems:
        lines = (json.dumps({"id": id, "reason": reason}) + "\n" for id, reason in problems)
        write_text(path, "".join(lines))
    else:
        path.unlink(missing_ok=True)


def read_failed(folder: Path) -> set[str]:
    """The ids that the last run could not get."""
    try:
        lines = (folder / "failed.jsonl").read_bytes().splitlines()
        return {str(json.loads(line)["id"]) for line in lines}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def add_finished(database: Database, file: Path, inputs: str, report: AnnotationReport) -> None:
    """Note what became of a file's records, if it has a fingerprint: other tools' have none.

    Args:
        database: of the collection.
        file: one of its Parquet files, of whose records nothing more is to be asked.
        inputs: what else the outcome depends on, such as the settings.
        report: of this file alone.
    """
    if depends := _depends(file, inputs):
        database.add_file(file.name, depends, report.as_json())


def finished_report(database: Database, file: Path, inputs: str) -> AnnotationReport | None:
    """What `add_finished` noted of a file, if nothing has changed since."""
    depends = _depends(file, inputs)
    stored = database.file_report(file.name, depends) if depends else None
    if stored is None:
        return None
    pairs = {name: list(map(tuple, stored[name])) for name in ("skipped", "failed", "fewer")}
    scores = Counter({int(score): count for score, count in stored["scores"].items()})
    return AnnotationReport(
        **{**stored, "folder": Path(stored["folder"]), "scores": scores, **pairs}
    )


def _depends(file: Path, inputs: str) -> str:
    """All that a file's outcome depends on; a new release may read replies otherwise."""
    try:
        fingerprint = footer_fingerprint(pq.read_metadata(file))
    except (OSError, pa.ArrowException):
        return ""
    return f"{inputs} {fingerprint} {version('paragrain')} {RULE_VERSION}" if fingerprint else ""


class UnreadReplies:
    """Watches the first images of a run; a model that always writes in one way does so at once."""

    def __init__(self, report: AnnotationReport) -> None:
        """What is found goes into the notes of `report`, and to the user at once."""
        self._report = report
        self._lacking: Counter[str] = Counter()
        self._read: set[str] = set()

    def add(self, outcome: Outcome) -> None:
        """Take note of an image about which a model was asked."""
        self._read |= set(outcome.asked) - outcome.lacking.keys()
        if "paragraph" in outcome.asked and "judge" not in outcome.lacking:
            self._read.add("judge")
        for kind, failure in outcome.lacking.items():
            if failure.transient or kind in self._read:
                continue
            self._lacking[kind] += 1
            if self._lacking[kind] == FIRST_IMAGES:
                what = "score" if kind == "judge" else kind
                said = f"; a reply reads {failure.said!r}" if failure.said else ""
                note = f"no {what} of the first {FIRST_IMAGES} images could be read in full: "
                self._report.notes.append(f"{note}{failure}{said}")
                _LOGGER.warning("paragrain: %s", self._report.notes[-1])
