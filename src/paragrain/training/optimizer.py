"""AdamW: what trains, in groups that say which of it decays and how fast it learns."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from paragrain.training.config import TrainConfig


def trained(tensors: Mapping[str, torch.Tensor]) -> dict[str, nn.Parameter]:
    """Those tensors that train, by name; tied ones under their first name only."""
    first: dict[int, tuple[str, nn.Parameter]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
            first.setdefault(id(tensor), (name, tensor))
    return dict(first.values())


def make_optimizer(
    parameters: Mapping[str, nn.Parameter], config: TrainConfig, vision: Collection[str] = ()
) -> torch.optim.AdamW:
    """AdamW over named parameters.

    Args:
        parameters: what trains.
        config: rates, decay and betas.
        vision: names of those that learn at the image side's own rate.

    Raises:
        ValueError: a parameter is not float32. A step of 1e-5 is lost in the rounding of fp16.
    """
    wrong = [name for name, parameter in parameters.items() if parameter.dtype != torch.float32]
    if wrong:
        raise ValueError(f"master weights must be float32, and {wrong[0]} is not")
    groups = parameter_groups(parameters, config, vision)
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.betas, fused=config.fused or None
    )


def parameter_groups(
    parameters: Mapping[str, nn.Parameter], config: TrainConfig, vision: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Parameters that share a weight decay and a `scale`: what part of the step's rate they take.

    >>> matrix, norm = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.ones(2))
    >>> groups = parameter_groups({"proj": matrix, "norm": norm}, TrainConfig())
    >>> [(group["weight_decay"], group["scale"], len(group["params"])) for group in groups]
    [(0.05, 1.0, 1), (0.0, 1.0, 1)]
    """
    of_vision = (config.vision_learning_rate or config.learning_rate) / config.learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        decay = config.weight_decay if decays(name, parameter) else 0.0
        groups.setdefault((decay, of_vision if name in vision else 1.0), []).append(parameter)
    return [
        {"params": params, "weight_decay": decay, "scale": scale}
        for (decay, scale), params in groups.items()
    ]


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to the matrices that are no embeddings, nor learned tokens.

    Patch, position and class embeddings of image towers are named so; SigLIP's pooling token is
    called probe. A learned temperature is no matrix.
    """
    return parameter.ndim >= 2 and not any(part in name for part in ("embed", "probe"))
