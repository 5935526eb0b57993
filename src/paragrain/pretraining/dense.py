"""Dense prediction of the scene graph: where the tiny BLIP's vision tower starts from.

BLIP's ViT starts from ImageNet. The procedural world has no classes, but it has truth: every
patch predicts the object of its cell (shape, colour, size, pattern, or none), and the image's
contrastive vector predicts all cells at once, so that it carries what a text may speak of.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paragrain.sources.scenes.graph import CELLS, GRID, Scene
from paragrain.sources.scenes.lexicon import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES

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


class GraphHead(nn.Module):
    """Linear read-outs of the scene graph from patch states and from the image embedding.

    Args:
        width: width of the vision tower.
        vector_width: width of the contrastive image embedding.
        patches: patches along one side of the picture, a multiple of 3.
    """

    def __init__(self, width: int, vector_width: int, patches: int) -> None:
        super().__init__()
        classes = sum(_CLASSES.values())
        self.patch = nn.Linear(width, classes)
        self.vector = nn.Linear(vector_width, CELLS * classes)
        self.background = nn.Linear(vector_width, len(BACKGROUNDS))
        per_cell = patches // GRID
        side = torch.arange(patches) // per_cell
        self.cell_of_patch = nn.Buffer((side[:, None] * GRID + side).flatten(), persistent=False)

    def forward(
        self, states: Tensor, vectors: Tensor, cells: Tensor, backgrounds: Tensor
    ) -> Tensor:
        """Mean cross-entropy of both read-outs.

        Args:
            states: [B, 1 + patches^2, width], last hidden states of the vision tower.
            vectors: [B, vector_width], unit length.
            cells: int64 [B, 9, 4] and backgrounds: int64 [B], from `graph_targets`.
            backgrounds: see `cells`.
        """
        scaled = vectors * vectors.shape[-1] ** 0.5  # unit vectors are too short to read out
        of_patches = self.patch(states[:, 1:])  # [B, P, classes]
        of_cells = self.vector(scaled).view(len(vectors), CELLS, -1)  # [B, 9, classes]
        loss = F.cross_entropy(self.background(scaled), backgrounds)
        loss = loss + _cross_entropy(of_cells, cells)
        return loss + _cross_entropy(of_patches, cells[:, self.cell_of_patch])


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over the four attributes of the mean cross-entropy over all places."""
    parts = logits.split(list(_CLASSES.values()), dim=-1)
    losses = [
        F.cross_entropy(part.flatten(0, 1), targets[..., n].flatten())
        for n, part in enumerate(parts)
    ]
    return torch.stack(losses).sum()
