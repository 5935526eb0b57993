"""What an evaluation set shares with what a model was trained on."""

from paragrain.audit.audit import audit
from paragrain.audit.report import IMAGE_REASONS, NOT_FOUND, REASONS, AuditReport, Finding
from paragrain.audit.urls import normalise_url

__all__ = [
    "IMAGE_REASONS",
    "NOT_FOUND",
    "REASONS",
    "AuditReport",
    "Finding",
    "audit",
    "normalise_url",
]
