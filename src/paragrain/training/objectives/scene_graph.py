"""Dense prediction of the scene graph: where a tiny BLIP's image tower starts from.

BLIP's ViT starts from ImageNet. The procedural world has no classes, but it has truth: every patch
predicts the object of its cell (shape, colour, size, pattern, or none), and the image embedding
predicts all cells at once, so that it carries what a text may speak of.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import ParagrainError
from paragrain.sources.scenes.graph import CELLS, GRID, Scene
from paragrain.sources.scenes.lexicon import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.objectives import Features, Objective

_TABLES = {"shape": SHAPES, "colour": COLOURS, "size": SIZES, "pattern": PATTERNS}
_INDEX = {kind: {value: n for n, value in enumerate(table, 1)} for kind, table in _TABLES.items()}
_CLASSES = {kind: len(table) + 1 for kind, table in _TABLES.items()}  # class 0: an empty cell
_BACKGROUND = {name: n for n, name in enumerate(BACKGROUNDS)}


def graph_targets(scenes: list[Scene]) -> tuple[Tensor, Tensor]:
    """Class indices of `scenes`.

    Returns:
        cells: int64 [N, 9, 4], shape, colour, size and pattern of each cell (0 = empty).
        backgrounds: int64 [N].
    """
    cells = torch.zeros(len(scenes), CELLS, len(_TABLES), dtype=torch.long)
    for row, scene in enumerate(scenes):
        for thing in scene.things:
            values = [_INDEX[kind][getattr(thing, kind)] for kind in _TABLES]
            cells[row, thing.cell] = torch.tensor(values)
    return cells, torch.tensor([_BACKGROUND[scene.background] for scene in scenes])


class SceneGraph(Objective):
    """Linear read-outs of the scene graph from patch states and from the image embedding.

    The image tower's states have to be [CLS] and then square rows of patches, as a ViT's are.
    """

    requires = frozenset({"image_embeddings", "image_states"})
    fields = ("graph",)

    def __init__(self, encoder: ImageTextEncoder, config: TrainConfig) -> None:
        super().__init__(encoder, config)
        vision = encoder.model.config.vision_config
        patches = vision.image_size // vision.patch_size
        classes = sum(_CLASSES.values())
        self.patch = nn.Linear(vision.hidden_size, classes)
        self.vector = nn.Linear(encoder.dim, CELLS * classes)
        self.background = nn.Linear(encoder.dim, len(BACKGROUNDS))
        side = torch.arange(patches) // (patches // GRID)
        self.cell_of_patch = nn.Buffer((side[:, None] * GRID + side).flatten(), persistent=False)

    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """Mean cross-entropies of the read-outs; `total` is their sum."""
        embeddings, states = features.image_embeddings, features.image_states
        scenes = [Scene.from_json(record.graph) for record in batch.records if record.graph]
        if len(scenes) < len(batch.records):
            raise ParagrainError("an image has no scene graph: leave the loss scene_graph out")
        cells, backgrounds = (target.to(states.device) for target in graph_targets(scenes))
        scaled = embeddings * embeddings.shape[-1] ** 0.5  # unit vectors are too short to read out
        of_patches = self.patch(states[:, 1:])  # [B, P, classes]
        of_cells = self.vector(scaled).view(len(scaled), CELLS, -1)  # [B, 9, classes]
        background = F.cross_entropy(self.background(scaled), backgrounds)
        from_embedding = _cross_entropy(of_cells, cells)
        from_patches = _cross_entropy(of_patches, cells[:, self.cell_of_patch])
        return {
            "total": background + from_embedding + from_patches,
            "background": background,
            "cells": from_embedding,
            "patches": from_patches,
        }


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over the four attributes of the mean cross-entropy over all places."""
    parts = logits.split(list(_CLASSES.values()), dim=-1)
    losses = [
        F.cross_entropy(part.flatten(0, 1), targets[..., n].flatten())
        for n, part in enumerate(parts)
    ]
    return torch.stack(losses).sum()
