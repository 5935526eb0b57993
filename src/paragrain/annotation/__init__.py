"""Text for any collection: captions, hard negatives and judged paragraphs by two models."""

from paragrain.annotation.backends import make_backend, only_model
from paragrain.annotation.check import Check, check
from paragrain.annotation.measures.agreement import Agreement, agreement
from paragrain.annotation.measures.page import Overview, overview
from paragrain.annotation.plan import Plan, plan
from paragrain.annotation.prompts import PromptSet, load_prompts
from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.runs import annotate
from paragrain.annotation.settings import (
    AnnotationSettings,
    BackendSettings,
    SceneErrors,
    checked,
)
from paragrain.annotation.settings_file import RunKeys, run_settings
from paragrain.annotation.simulator import truth_tables
from paragrain.annotation.status import Status, status

__all__ = [
    "Agreement",
    "AnnotationReport",
    "AnnotationSettings",
    "BackendSettings",
    "Check",
    "Overview",
    "Plan",
    "PromptSet",
    "RunKeys",
    "SceneErrors",
    "Status",
    "agreement",
    "annotate",
    "check",
    "checked",
    "load_prompts",
    "make_backend",
    "only_model",
    "overview",
    "plan",
    "run_settings",
    "status",
    "truth_tables",
]
