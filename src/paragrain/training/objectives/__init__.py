"""Losses, one file each, and the weighted sum of them that a step minimises.

An objective is a module. What it learns itself (a temperature, a head) trains with the encoder;
what it remembers (a queue, momentum copies) is in its buffers. Both are saved and resumed.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.plugins import register, registered
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig

GROUP = "paragrain.objectives"
"""The group of entry points by which other packages add objectives."""

_BUILT_IN = {"contrastive": "Contrastive", "scene_graph": "SceneGraph"}
"""The objectives of this package: the name of the file, and the class in it."""

IMAGE_FEATURES = frozenset({"image_embeddings", "image_states", "pixels"})
"""Features that are made of images; all others are made of texts."""

POOLED = frozenset({"image_embeddings", "text_embeddings"})
"""What GradCache keeps in place of activations."""


class Features:
    """What the towers make of a batch: of all its B images and N texts, in every process.

    Only what the objectives of a step require is there. Gradients flow back into the towers from
    all but `pixels`, `input_ids` and `attention_mask`.

    Attributes:
        encoder: that made them, for objectives that run a part of it themselves.
        image_embeddings: float32 `[B, D]`, of unit length.
        text_embeddings: float32 `[N, D]`, of unit length.
        image_states: float32 `[B, P, W]`, last hidden states of the image tower.
        text_states: float32 `[N, L, W]`, last hidden states of the text tower.
        pixels: float32 `[B, 3, H, W]`, preprocessed images.
        input_ids: int64 `[N, L]`, padded to the longest text of the batch.
        attention_mask: int64 `[N, L]`, 1 at tokens and 0 at padding.
    """

    encoder: ImageTextEncoder
    image_embeddings: Tensor
    text_embeddings: Tensor
    image_states: Tensor
    text_states: Tensor
    pixels: Tensor
    input_ids: Tensor
    attention_mask: Tensor

    def __init__(self, encoder: ImageTextEncoder, **tensors: Tensor) -> None:
        self.encoder = encoder
        vars(self).update(tensors)

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(f"the features hold no {name}: the objective has to require it")


class Objective(nn.Module, ABC):
    """A loss over the features of a batch.

    Args:
        encoder: whose features it will get; its sizes decide those of heads.
        config: the settings of the run.

    Attributes:
        requires: the attributes of `Features` that it reads. The pooled embeddings can be computed
            twice to save memory (GradCache); a step that requires more is run in one pass.
        fields: fields of `batch.records` that it reads, besides the texts of the recipe.
    """

    requires: ClassVar[frozenset[str]] = POOLED
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, encoder: ImageTextEncoder, config: TrainConfig) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """Named losses, as tensors without dimensions: `total` is minimised, or the sum of all."""


class WeightedSum(nn.Module):
    """Several objectives as one loss.

    Args:
        objectives: by name.
        weights: of those that count, above 0.
    """

    def __init__(self, objectives: nn.ModuleDict, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.objectives = nn.ModuleDict({name: objectives[name] for name in self.weights})
        self.requires = required_features(self.weights)

    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """The `loss` that is minimised, and its named parts.

        A single objective's parts have their own names; those of several begin with the
        objective's, under which its total stands.
        """
        losses: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            parts = dict(self.objectives[name](batch, features))
            total = parts.pop("total") if "total" in parts else torch.stack([*parts.values()]).sum()
            losses["loss"] = losses["loss"] + weight * total if losses else weight * total
            if len(self.weights) > 1:
                parts = {name: total} | {f"{name}/{part}": loss for part, loss in parts.items()}
            losses |= parts
        return losses


Class = TypeVar("Class", bound=type[Objective])


def register_objective(name: str) -> Callable[[Class], Class]:
    """Register a subclass of `Objective`, so that recipes can name it as their `loss`.

    In this process only; a package that names the class in its entry points, in the group
    `paragrain.objectives`, needs no more.

    Raises:
        UsageError: the name is taken, or it is no such class.
    """

    def apply(kind: Class) -> Class:
        if name in _BUILT_IN:
            raise UsageError(f"{name} is a loss of paragrain's own: choose another name")
        if not (isinstance(kind, type) and issubclass(kind, Objective)):
            raise UsageError(f"{kind!r} cannot be a loss: register a subclass of Objective")
        register(GROUP, name, kind)
        return kind

    return apply


def objective_class(name: str) -> type[Objective]:
    """The class of an objective of this package, of this process or of another package.

    Raises:
        UsageError: there is none of that name.
        ParagrainError: importing it fails.
    """
    if name in _BUILT_IN:
        built_in: Any = getattr(import_module(f"{__name__}.{name}"), _BUILT_IN[name])
        return built_in
    plugins = registered(GROUP)
    if name not in plugins:
        known = ", ".join([*_BUILT_IN, *plugins])
        raise UsageError(f"there is no loss {name!r}: use one of {known}")
    kind = plugins[name].load()
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise UsageError(f"the plugin {name} ({plugins[name].origin}) is no loss: uninstall it")
    return kind


def required_features(names: Iterable[str]) -> frozenset[str]:
    """All attributes of `Features` that some objectives read."""
    return frozenset[str]().union(*(objective_class(name).requires for name in names))


def make_objectives(
    losses: Mapping[str, Mapping[str, Any]], encoder: ImageTextEncoder, config: TrainConfig
) -> nn.ModuleDict:
    """The objectives of a run, by name, their first weights deterministic in the seed.

    Args:
        losses: options by name, as in `Recipe.losses`.
        encoder: as in `Objective`.
        config: as in `Objective`.

    Raises:
        UsageError: a loss does not exist, or does not know an option.
    """
    made = nn.ModuleDict()
    for name, settings in losses.items():
        kind = objective_class(name)
        options = {key: value for key, value in settings.items() if key != "weight"}
        try:
            inspect.signature(kind).bind(encoder, config, **options)
        except TypeError as error:
            raise UsageError(f"the loss {name} does not take these options: {error}") from None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            made[name] = kind(encoder, config, **options).to(encoder.device)
    return made
