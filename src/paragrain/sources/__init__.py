"""Data sets of other kinds turned into collections: one module for each kind."""

from paragrain.sources.cc3m import import_cc3m
from paragrain.sources.coco import import_coco
from paragrain.sources.descriptions import import_docci, import_jsonl
from paragrain.sources.flickr import import_flickr
from paragrain.sources.folder import import_folder
from paragrain.sources.karpathy import import_karpathy
from paragrain.sources.parquet import import_parquet
from paragrain.sources.registry import IMPORTERS, importer, update
from paragrain.sources.scenes import import_scenes
from paragrain.sources.sharegpt4v import import_sharegpt4v
from paragrain.sources.urban1k import import_urban1k
from paragrain.sources.webdataset import import_webdataset

__all__ = [
    "IMPORTERS",
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
    "importer",
    "update",
]
