"""Data sets of other kinds turned into collections: one module for each kind."""

from paragrain.sources.coco import import_coco
from paragrain.sources.folder import import_folder
from paragrain.sources.scenes import import_scenes

__all__ = ["import_coco", "import_folder", "import_scenes"]
