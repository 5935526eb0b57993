"""How far the annotation of a collection is: what the collection holds, and what its logs know."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paragrain.annotation.log import CallLog, ImageLog
from paragrain.annotation.loop import FIELDS, provenance
from paragrain.annotation.runs import is_locked, read_description
from paragrain.collection import Collection, Record
from paragrain.errors import UsageError

RATE_SECONDS = 300.0
"""Of so long a time the rate is taken."""

LEAST_SECONDS, LEAST_IMAGES = 10.0, 10
"""There is no rate of a shorter time, or of fewer images."""

_NEEDED = ("generated", "negatives", "paragraph", "paragraph_score", "annotation", "content")


@dataclass
class Status:
    """How far the annotation of a collection is.

    Attributes:
        folder: the collection.
        images: records of the collection that the latest run is to look at.
        complete: of them, those that hold every text that the run is to write.
        fewer: of the complete, those with fewer captions or hard negatives than asked for, by kind.
        answered: those about which everything is answered, though the collection does not hold it:
            it is written when their file is through, or when the same command is run again, which
            asks nothing about them.
        failed: number of images that lack a text or a score, by reason.
        remaining: images that are to be asked about.
        running: whether a process works on it now.
        rate: images a second of a run that is under way, about which models were asked in the last
            five minutes; None if they are too few to tell.
        seconds_left: at that rate; None without one.
        scores: how many paragraphs that models wrote have each score, "none" for unscored ones.
        candidates: how many of them took so many candidates.
        calls: replies in the log, over all runs.
    """

    folder: Path
    images: int = 0
    complete: int = 0
    fewer: dict[str, int] = field(default_factory=dict)
    answered: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    remaining: int = 0
    running: bool = False
    rate: float | None = None
    seconds_left: float | None = None
    scores: dict[str, int] = field(default_factory=dict)
    candidates: dict[int, int] = field(default_factory=dict)
    calls: int = 0

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "folder": str(self.folder)}


def status(collection: Collection) -> Status:
    """How far the latest run on a collection is, be it under way, killed or done.

    What counts is what the collection holds now under whatever names: an import may have taken
    texts away since, or brought images.

    Raises:
        UsageError: the collection was never annotated.
    """
    folder = collection.folder / "annotation"
    described = read_description(folder)
    if described is None:
        raise UsageError(
            f"{collection.folder} was never annotated: start with `paragrain annotate`"
        )
    settings, split = described["settings"], described["split"]
    lines = [
        line
        for line in ImageLog(folder / "images", writing=False).lines()
        if isinstance(line, dict) and line.get("run") == described["run"]
    ]
    latest = _LatestLines(lines, set(collection.ids()))
    fewer, failed, scores = Counter[str](), Counter[str](), Counter[str]()
    candidates: Counter[int] = Counter()
    wanted = set(collection.ids(split)[: described["limit"]])
    state = Status(collection.folder, images=len(wanted), running=is_locked(folder))
    for record in collection.records(split, fields=_NEEDED):
        if record.id not in wanted:
            continue
        notes = provenance(record)
        if record.paragraph and "paragraph" in notes:
            score = record.paragraph_score
            scores["none" if score is None else str(score)] += 1
            written = notes["paragraph"].get("candidates")
            candidates[len(written) if isinstance(written, list) else 1] += 1
        line = latest.find(record)
        if failures := (line or {}).get("failures"):
            failed.update(f"{kind}: {reason}" for kind, reason in failures.items())
        elif _holds_all(record, settings, notes):
            state.complete += 1
            fewer.update(
                kind
                for kind in ("captions", "negatives")
                if kind in settings["texts"]
                and kind in notes
                and len(getattr(record, FIELDS[kind])) < settings[kind]
            )
        elif line is not None:
            state.answered += 1
        else:
            state.remaining += 1
    state.fewer, state.scores, state.candidates = dict(fewer), dict(scores), dict(candidates)
    state.failed = dict(failed.most_common())
    times = [line["time"] for line in lines if not line.get("replayed")]
    state.rate = rate(times, time.time()) if state.running else None
    state.seconds_left = state.remaining / state.rate if state.rate else None
    state.calls = len(CallLog(folder / "calls", writing=False))
    return state


def _holds_all(record: Record, settings: dict[str, Any], notes: dict[str, Any]) -> bool:
    """Whether a record holds each kind of text that is wanted, with a score if models wrote it."""
    if not all(getattr(record, FIELDS[kind]) for kind in settings["texts"]):
        return False
    judged = settings["judge"] is not None and "paragraph" in settings["texts"]
    return not (judged and "paragraph" in notes and record.paragraph_score is None)


class _LatestLines:
    """The latest line about each image in the logs of a run, by content and by id.

    Copies share their content, and each has a line of its own: another's counts only if that one
    is no longer in the collection, for then it may be this one under an earlier name.
    """

    def __init__(self, lines: Iterable[dict[str, Any]], ids: set[str]) -> None:
        self._by_content: dict[str, dict[str, dict[str, Any]]] = {}
        self._by_id: dict[str, dict[str, Any]] = {}
        self._ids = ids
        for line in lines:
            kin = self._by_content.setdefault(line.get("content") or "", {})
            for known in (kin, self._by_id):
                if line["time"] >= known.get(line["id"], line)["time"]:
                    known[line["id"]] = line

    def find(self, record: Record) -> dict[str, Any] | None:
        """What was last noted about the image that a record has now."""
        kin = self._by_content.get(record.content, {}) if record.content else {}
        own = [line for id, line in kin.items() if id == record.id or id not in self._ids]
        if kin:
            return max(own or kin.values(), key=lambda line: line["time"])
        line = self._by_id.get(record.id)
        other = line is not None and line.get("content") and record.content
        return None if other else line  # another image had this name


def rate(times: Iterable[float], now: float) -> float | None:
    """Images a second in the last minutes; None if that is too little to tell.

    >>> rate(range(40), 39.0) == 40 / 39, rate(range(40), 5.0)
    (True, None)
    """
    recent = [time for time in times if now - RATE_SECONDS < time <= now]
    span = now - min(recent, default=now)
    if len(recent) < LEAST_IMAGES or span < LEAST_SECONDS:
        return None
    return len(recent) / span
