"""What an evaluation set shares with what a model was trained on.

The room can be called: `paragrain.audit(...)` is `paragrain.audit.audit(...)`, whichever of the
two the name stands for, since importing a room puts it into the package under its name.
"""

import sys
from types import ModuleType
from typing import Any

from paragrain.audit.audit import audit
from paragrain.audit.report import IMAGE_REASONS, NOT_FOUND, REASONS, AuditReport, Finding
from paragrain.audit.saved import MARKING, audit_of, load_report, marks
from paragrain.audit.urls import normalise_url

__all__ = [
    "IMAGE_REASONS",
    "MARKING",
    "NOT_FOUND",
    "REASONS",
    "AuditReport",
    "Finding",
    "audit",
    "audit_of",
    "load_report",
    "marks",
    "normalise_url",
]


class _Room(ModuleType):
    """This room, which does what it is named after."""

    def __call__(self, *args: Any, **options: Any) -> AuditReport:
        """See `audit`."""
        return audit(*args, **options)


sys.modules[__name__].__class__ = _Room
