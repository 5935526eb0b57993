"""Tells, after the first few images, which kind of reply cannot be read."""

import logging
from collections import Counter

from paragrain.annotation.loop import Outcome
from paragrain.annotation.report import AnnotationReport

FIRST_IMAGES = 3
"""Images in a row of which a kind of text lacks something, before the user is told."""

_LOGGER = logging.getLogger("paragrain")


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
