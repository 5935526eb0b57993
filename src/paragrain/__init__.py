"""paragrain: image search that understands paragraphs.

The public names are loaded when first used, so that importing the package is quick.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paragrain.annotation import AnnotationSettings, BackendSettings, annotate
    from paragrain.collection import Collection, ImageRef, Record
    from paragrain.embeddings import embed
    from paragrain.encoders import ImageTextEncoder, encode_texts, load_encoder
    from paragrain.errors import ParagrainError, UsageError
    from paragrain.evaluation import evaluate, sweep
    from paragrain.retrieval import exact_ranks, retrieval_scores
    from paragrain.searching import search
    from paragrain.sources import import_coco, import_folder, import_scenes
    from paragrain.training import load_recipe, train

__version__ = version("paragrain")

_HOMES = {
    "AnnotationSettings": "annotation",
    "BackendSettings": "annotation",
    "annotate": "annotation",
    "Collection": "collection",
    "ImageRef": "collection",
    "Record": "collection",
    "embed": "embeddings",
    "ImageTextEncoder": "encoders",
    "encode_texts": "encoders",
    "load_encoder": "encoders",
    "ParagrainError": "errors",
    "UsageError": "errors",
    "evaluate": "evaluation",
    "sweep": "evaluation",
    "exact_ranks": "retrieval",
    "retrieval_scores": "retrieval",
    "search": "searching",
    "import_coco": "sources",
    "import_folder": "sources",
    "import_scenes": "sources",
    "load_recipe": "training",
    "train": "training",
}

__all__ = [
    "AnnotationSettings",
    "BackendSettings",
    "Collection",
    "ImageRef",
    "ImageTextEncoder",
    "ParagrainError",
    "Record",
    "UsageError",
    "annotate",
    "embed",
    "encode_texts",
    "evaluate",
    "exact_ranks",
    "import_coco",
    "import_folder",
    "import_scenes",
    "load_encoder",
    "load_recipe",
    "retrieval_scores",
    "search",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the room it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paragrain' has no attribute {name!r}")
    value = getattr(import_module(f"paragrain.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*globals(), *__all__])
