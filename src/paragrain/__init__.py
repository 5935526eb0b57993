"""paragrain: image search that understands paragraphs.

The public names are loaded when first used, so that importing the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paragrain.annotation import AnnotationSettings, BackendSettings, annotate
    from paragrain.auditing import AuditReport, audit  # type: ignore[no-redef]
    from paragrain.collection import Collection, ImageRef, ImportReport, Record
    from paragrain.embeddings import Embeddings, embed
    from paragrain.encoders import (
        ImageTextEncoder,
        encode_texts,
        load_encoder,
        register_encoder,
        use,
    )
    from paragrain.errors import ParagrainError, UsageError
    from paragrain.evaluation import Comparison, Result, compare, evaluate, load_result, sweep  # type: ignore[no-redef]
    from paragrain.retrieval import exact_ranks, retrieval_scores
    from paragrain.searching import Hit, Searcher, SearchResult, search
    from paragrain.sources import (
        import_cc3m,
        import_coco,
        import_docci,
        import_flickr,
        import_folder,
        import_jsonl,
        import_karpathy,
        import_parquet,
        import_scenes,
        import_sharegpt4v,
        import_urban1k,
        import_webdataset,
        update,
    )
    from paragrain.study.plan import load_study
    from paragrain.study.report import write_report
    from paragrain.study.runner import run_study
    from paragrain.training import Recipe, Run, TrainConfig, load_recipe, train

_ROOMS = {
    "annotation": ("AnnotationSettings", "BackendSettings", "annotate"),
    "auditing": ("AuditReport", "audit"),
    "collection": ("Collection", "ImageRef", "ImportReport", "Record"),
    "embeddings": ("Embeddings", "embed"),
    "encoders": ("ImageTextEncoder", "encode_texts", "load_encoder", "register_encoder", "use"),
    "errors": ("ParagrainError", "UsageError"),
    "evaluation": ("Comparison", "Result", "compare", "evaluate", "load_result", "sweep"),
    "retrieval": ("exact_ranks", "retrieval_scores"),
    "searching": ("Hit", "SearchResult", "Searcher", "search"),
    "sources": (
        "import_cc3m",
        "import_coco",
        "import_docci",
        "import_flickr",
        "import_folder",
        "import_jsonl",
        "import_karpathy",
        "import_parquet",
        "import_scenes",
        "import_sharegpt4v",
        "import_urban1k",
        "import_webdataset",
        "update",
    ),
    "study.plan": ("load_study",),
    "study.report": ("write_report",),
    "study.runner": ("run_study",),
    "training": ("Recipe", "Run", "TrainConfig", "load_recipe", "train"),
}

_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "AnnotationSettings",
    "AuditReport",
    "BackendSettings",
    "Collection",
    "Comparison",
    "Embeddings",
    "Hit",
    "ImageRef",
    "ImageTextEncoder",
    "ImportReport",
    "ParagrainError",
    "Recipe",
    "Record",
    "Result",
    "Run",
    "SearchResult",
    "Searcher",
    "TrainConfig",
    "UsageError",
    "annotate",
    "audit",
    "compare",
    "embed",
    "encode_texts",
    "evaluate",
    "exact_ranks",
    "import_cc3m",
    "import_coco",
    "import_docci",
    "import_flickr",
    "import_folder",
    "import_jsonl",
    "import_karpathy",
    "import_parquet",
    "import_scenes",
    "import_sharegpt4v",
    "import_urban1k",
    "import_webdataset",
    "load_encoder",
    "load_recipe",
    "load_result",
    "load_study",
    "register_encoder",
    "retrieval_scores",
    "run_study",
    "search",
    "sweep",
    "train",
    "update",
    "use",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the room it lives in."""
    if name == "__version__":
        return import_module("importlib.metadata").version("paragrain")
    if name not in _HOMES:
        raise AttributeError(f"module 'paragrain' has no attribute {name!r}")
    value = getattr(import_module(f"paragrain.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
