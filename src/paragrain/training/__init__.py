"""Fine-tuning the text side: recipes, losses, batches, the trainer and its runs."""

from paragrain.training.config import TrainConfig
from paragrain.training.recipes import Recipe, load_recipe, recipe_names
from paragrain.training.runs import Run
from paragrain.training.seeds import parse_seeds, summary, train_seeds
from paragrain.training.trainer import repeat, train

__all__ = [
    "Recipe",
    "Run",
    "TrainConfig",
    "load_recipe",
    "parse_seeds",
    "recipe_names",
    "repeat",
    "summary",
    "train",
    "train_seeds",
]
