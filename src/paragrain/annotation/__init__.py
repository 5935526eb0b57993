"""Text for any collection: captions, hard negatives and judged paragraphs by two models."""

from paragrain.annotation.backends import make_backend, only_model
from paragrain.annotation.checking import Check, check
from paragrain.annotation.measures.agreement import Agreement, agreement
from paragrain.annotation.measures.lengths import Table
from paragrain.annotation.measures.overview import Overview, overview
from paragrain.annotation.measures.truth import truth_tables
from paragrain.annotation.planning import Plan, plan
from paragrain.annotation.prompts import PromptSet, load_prompts
from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.runs import annotate, status
from paragrain.annotation.settings import (
    AnnotationSettings,
    BackendSettings,
    SceneErrors,
    make_backend_settings,
    make_settings,
)
from paragrain.annotation.state import Status

__all__ = [
    "Agreement",
    "AnnotationReport",
    "AnnotationSettings",
    "BackendSettings",
    "Check",
    "Overview",
    "Plan",
    "PromptSet",
    "SceneErrors",
    "Status",
    "Table",
    "agreement",
    "annotate",
    "check",
    "load_prompts",
    "make_backend",
    "make_backend_settings",
    "make_settings",
    "only_model",
    "overview",
    "plan",
    "status",
    "truth_tables",
]
