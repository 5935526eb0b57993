"""What a run of annotation did, counted as it goes, and kept for `annotate status`."""

import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paragrain.annotation.calls import Reply
from paragrain.annotation.loop import Outcome
from paragrain.files import write_text


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
        return self.skipped + self.failed

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
    """One line for each image that is through, for `annotate status`; killed at any moment."""

    def __init__(self, folder: Path, run: str) -> None:
        """Begin a file for a run; `run` stands in each line."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run = run
        self._out = (folder / f"{run}-{os.getpid()}.jsonl").open("ab", buffering=0)

    def outcome(self, outcome: Outcome, *, replayed: bool = False) -> None:
        """Note what became of an image; `replayed` if the log knew it all."""
        kinds = {kind: str(failure) for kind, failure in outcome.failures.items()}
        self._write(
            {
                "id": outcome.id,
                "score": outcome.score,
                "attempts": outcome.attempts,
                "failures": kinds,
                "replayed": replayed,
            }
        )

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
        self._out.write(json.dumps(line).encode() + b"\n")


@dataclass
class Status:
    """How far the annotation of a collection is, from what its latest run left.

    Attributes:
        folder: the collection.
        images: records of the collection that the run is to look at.
        complete: images that are through with every text.
        failed: number of images that lack a text or a score, by reason.
        remaining: images that the run has not come to.
        running: whether a process works on it now.
        rate: images a second in the five minutes before the latest that models were asked about.
        seconds_left: at that rate; None without one.
        scores: how many kept paragraphs have each score, "none" for unscored ones.
        attempts: how many paragraphs took so many attempts.
        calls: replies in the log, over all runs.
    """

    folder: Path
    images: int = 0
    complete: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    remaining: int = 0
    running: bool = False
    rate: float | None = None
    seconds_left: float | None = None
    scores: dict[str, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    calls: int = 0

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "folder": str(self.folder)}


RATE_SECONDS = 300.0


def read_images(
    folder: Path, run: str, wanted: set[str]
) -> tuple[dict[str, dict[str, Any]], float | None]:
    """The latest line of each wanted image in the logs of a run, and its rate in images a second.

    The rate is that of the five minutes before the latest image that was not in the log already.
    """
    latest: dict[str, dict[str, Any]] = {}
    times = []
    for path in sorted(folder.glob(f"{run}-*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                try:
                    value = json.loads(line)
                    if value["id"] not in wanted:
                        continue
                    known = latest.setdefault(value["id"], value)
                    if value["time"] >= known["time"]:
                        latest[value["id"]] = value
                    if not value.get("replayed"):
                        times.append(float(value["time"]))
                except (ValueError, KeyError, TypeError):
                    continue  # torn by a kill
    recent = [t for t in times if t > max(times) - RATE_SECONDS] if times else []
    span = max(recent) - min(recent) if len(recent) > 1 else 0.0
    return latest, (len(recent) - 1) / span if span > 0 else None
