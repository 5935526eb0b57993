"""What an evaluation set shares with what a model was trained on."""

from paragrain.auditing.audit import audit
from paragrain.auditing.report import IMAGE_REASONS, NOT_FOUND, REASONS, AuditReport, Finding
from paragrain.auditing.saved_audits import MARKING, audit_of, load_report, marks
from paragrain.auditing.shared_strings import normalise_url

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
