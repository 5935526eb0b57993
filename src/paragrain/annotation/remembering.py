"""What has been paid for, found again: by the image's content, under whatever name it has now.

The log knows a reply by all that it depends on, the caption in the prompt among it. Captions come,
go and change when a collection is imported again; so it is kept with which caption each image's
texts were written, and that caption guides whatever else is asked about the image.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.log import CallLog, PlaceIndex, call_key
from paragrain.annotation.loop import Answer, Asking, Outcome, annotate_image, guide_of
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Record


def model_of(call: Call, settings: AnnotationSettings) -> str:
    """The name of the model that a call goes to."""
    if call.kind == "judge":
        assert settings.judge is not None
        return settings.judge.name
    return settings.generator.name


def walk(loop: Asking, answer: Callable[[Call], Answer | None]) -> tuple[Outcome | None, int]:
    """Run a loop as far as answers go: its outcome, or None at the first call without one; and how
    many calls were answered.
    """
    given: Answer | None = None
    found = 0
    try:
        while True:
            call = next(loop) if given is None else loop.send(given)
            given = answer(call)
            if given is None:
                return None, found
            found += 1
    except StopIteration as ended:
        return ended.value, found


class Guides:
    """The caption with which the texts of each image were written, from the logs of images."""

    def __init__(self, folder: Path) -> None:
        """Look into `folder` when the first image is asked for; 16 bytes are kept for each."""
        self._folder = folder
        self._paths: list[Path] | None = None
        self._index = PlaceIndex()
        self._lock = threading.Lock()

    def find(self, content: str) -> tuple[str | None] | None:
        """The caption for an image, which may be none; None if its texts were never asked for."""
        with self._lock:
            paths = self._paths = self._paths or self._read()
        place = self._index.find(_key(content))
        if place is None:
            return None
        try:
            with paths[place[0]].open("rb") as file:
                file.seek(place[1])
                value = json.loads(file.readline())
            return (value["caption"],) if value["content"] == content else None
        except (OSError, ValueError, KeyError, TypeError):  # damaged on disk
            return None

    def _read(self) -> list[Path]:
        paths = sorted(self._folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        for number, path in enumerate(paths):
            offset = 0
            with path.open("rb") as file:
                for line in file:
                    if b'"caption": ' in line and line.endswith(b"}\n"):
                        try:
                            content = json.loads(line)["content"]
                            self._index.add(_key(content), number, offset)
                        except (ValueError, KeyError, TypeError):
                            pass  # torn by a kill
                    offset += len(line)
        return paths


def _key(content: str) -> int:
    """64 bits of a content hash, which another tool may have written in a form of its own."""
    return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Replay:
    """What the log makes of an image.

    Attributes:
        outcome: what becomes of it; None if something is to be asked.
        found: replies that the log has.
        caption: what guides the prompts.
        fresh: whether replies that did not end well are to be asked for again.
    """

    outcome: Outcome | None
    found: int
    caption: str | None
    fresh: bool


def replay(
    record: Record, content: str, settings: AnnotationSettings, log: CallLog, guides: Guides
) -> Replay:
    """What the log makes of an image: with the caption that knows most, the record's own first.

    What failed since a reply did not end well is asked for again; where there is nothing to be
    gained by that, or nothing failed, such replies are steps to those that came after them.
    """
    best = _replay(record, content, settings, log, guide_of(record))
    if best.outcome is None and content and not settings.replace:
        former = guides.find(content)
        if former is not None and former[0] != best.caption:
            other = _replay(record, content, settings, log, former[0])
            if other.outcome is not None or other.found > best.found:
                return other
    return best


def _replay(
    record: Record,
    content: str,
    settings: AnnotationSettings,
    log: CallLog,
    caption: str | None,
) -> Replay:
    def run(fresh: bool) -> Replay:
        loop = annotate_image(record, content, settings, caption)
        outcome, found = walk(loop, lambda call: known(log, call, content, settings, fresh))
        return Replay(outcome, found, caption, fresh)

    first = run(False)
    return run(True) if first.outcome is not None and first.outcome.lacking else first


def known(
    log: CallLog, call: Call, content: str, settings: AnnotationSettings, fresh: bool
) -> Reply | None:
    """The reply that the log has; with `fresh`, only one that ended well."""
    reply = log.find(call_key(call, content, model_of(call, settings), settings.image))
    return None if fresh and reply is not None and reply.ending != "whole" else reply
