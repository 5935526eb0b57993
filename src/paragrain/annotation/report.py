"""What a run of annotation did, counted as it goes; and its log of images, killed at any moment."""

import json
import logging
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paragrain.annotation.calls import Reply
from paragrain.annotation.log import append_line
from paragrain.annotation.loop import Outcome
from paragrain.files import write_text

FIRST_IMAGES = 3
"""Images in a row of which a kind of text lacks something, before the user is told."""

_LOGGER = logging.getLogger("paragrain")


@dataclass
class AnnotationReport:
    """What a run did.

    Attributes:
        folder: the collection.
        images: records that the run looked at.
        complete: of them, those that now have every text that was asked for.
        fewer: (id, reason) of images that have all kinds of texts, but fewer captions or hard
            negatives than asked for.
        untouched: of these, those whose texts all came with the data.
        skipped: (id, reason) of images that cannot be sent to a model.
        failed: (id, reason) of images that lack a text or a score.
        calls: replies that models gave in this run.
        reused: replies that were in the log already.
        prompt_tokens: tokens read by models in this run, as far as they count them.
        completion_tokens: tokens written by them.
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
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    fewer: list[tuple[str, str]] = field(default_factory=list)
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
    def problems(self) -> list[tuple[str, str]]:
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
        self.regenerated += outcome.attempts > 1
        if outcome.score is not None:
            self.scores[outcome.score] += 1
        if outcome.failures:
            self.failed.append((outcome.id, outcome.reason))
        elif outcome.fewer:
            self.fewer.append((outcome.id, outcome.reason))
        else:
            self.complete += 1

    def count_skipped(self, identity: str, reason: str) -> None:
        """Count an image that cannot be sent."""
        self.images += 1
        self.skipped.append((identity, reason))

    def add(self, other: "AnnotationReport") -> None:
        """Take in what another process did with other images."""
        for name, value in vars(other).items():
            if name not in ("folder", "seconds", "notes"):
                setattr(self, name, getattr(self, name) + value)
        self.notes += [note for note in other.notes if note not in self.notes]


def write_failed(folder: Path, problems: list[tuple[str, str]]) -> None:
    """Leave the list of what a run could not get in `failed.jsonl`; none if it got everything."""
    path = folder / "failed.jsonl"
    lines = [json.dumps({"id": id, "reason": reason}) + "\n" for id, reason in problems]
    if lines:
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


class ImageLog:
    """One line for each image that is through: what failed, and the caption that guided it.

    It is for `annotate status`, and for finding the replies about an image again.
    """

    def __init__(self, folder: Path, run: str) -> None:
        """Begin a file for a run; `run` stands in each line."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run = run
        self._out = (folder / f"{run}-{os.getpid()}.jsonl").open("ab", buffering=0)

    def outcome(
        self, outcome: Outcome, content: str, caption: str | None, *, replayed: bool = False
    ) -> None:
        """Note what became of an image; `replayed` if the log knew it all."""
        value: dict[str, Any] = {"id": outcome.id, "content": content}
        if outcome.asked:
            value["caption"] = caption
        value["failures"] = {kind: str(failure) for kind, failure in outcome.failures.items()}
        self._write({**value, "replayed": replayed})

    def skipped(self, identity: str, reason: str) -> None:
        """Note an image that cannot be sent."""
        self._write({"id": identity, "failures": {"image": reason}})

    def __enter__(self) -> "ImageLog":
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._out.close()

    def _write(self, value: dict[str, Any]) -> None:
        line = {"run": self._run, "time": round(time.time(), 3), **value}
        append_line(self._out, line)


class Unread:
    """Watches the first images of a run; a model that always writes in one way does so at once."""

    def __init__(self, report: AnnotationReport) -> None:
        """What is found goes into the notes of `report`, and to the user at once."""
        self._report = report
        self._lacking: Counter[str] = Counter()
        self._read: set[str] = set()

    def outcome(self, outcome: Outcome) -> None:
        """Take note of an image about which a model was asked."""
        self._read |= set(outcome.asked) - outcome.lacking.keys()
        if "paragraph" in outcome.asked and "judge" not in outcome.lacking:
            self._read.add("judge")
        for kind, failure in outcome.lacking.items():
            if failure.passing or kind in self._read:
                continue
            self._lacking[kind] += 1
            if self._lacking[kind] == FIRST_IMAGES:
                what = "score" if kind == "judge" else kind
                note = f"no {what} of the first {FIRST_IMAGES} images could be read in full: "
                note += (
                    f"{failure}; a reply reads {failure.said!r}" if failure.said else str(failure)
                )
                self._report.notes.append(note)
                _LOGGER.warning("paragrain: %s", note)
