"""The procedural world: pictures whose whole truth is known, with every kind of text."""

from paragrain.sources.scenes.graph import Scene, Thing, near_twin, sample_scene
from paragrain.sources.scenes.render import render
from paragrain.sources.scenes.truth import is_true
from paragrain.sources.scenes.world import import_scenes, scene_of

__all__ = [
    "Scene",
    "Thing",
    "import_scenes",
    "is_true",
    "near_twin",
    "render",
    "sample_scene",
    "scene_of",
]
