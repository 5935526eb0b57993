"""AdamW with weight decay where it belongs, and the learning rate as a function of the step."""

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from paragrain.training.config import TrainConfig


def make_optimizer(
    parameters: dict[str, nn.Parameter], config: TrainConfig, vision: Collection[str] = ()
) -> torch.optim.AdamW:
    """AdamW over named parameters, without weight decay on norms, biases and embeddings.

    Args:
        parameters: what trains.
        config: rates, decay and betas.
        vision: names of those that learn at the image tower's own rate. Each group says as `scale`
            what part of the step's rate it takes.

    Raises:
        ValueError: a parameter is not float32. A step of 1e-5 is lost in the rounding of fp16.

    >>> matrix, norm = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.ones(2))
    >>> groups = make_optimizer({"proj": matrix, "norm": norm}, TrainConfig()).param_groups
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [(0.05, 1), (0.0, 1)]
    """
    wrong = [name for name, parameter in parameters.items() if parameter.dtype != torch.float32]
    if wrong:
        raise ValueError(f"master weights must be float32, and {wrong[0]} is not")
    own = config.vision_learning_rate or config.learning_rate
    sides = (False, 1.0), (True, own / config.learning_rate)
    groups = [
        {**group, "scale": scale}
        for of_vision, scale in sides
        if (side := {n: p for n, p in parameters.items() if (n in vision) == of_vision})
        for group in decay_groups(side, config.weight_decay)
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas)


def decay_groups(parameters: dict[str, nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """The optimiser's two groups of parameters: with weight decay, and without."""
    decayed = [p for name, p in parameters.items() if decays(name, p)]
    plain = [p for name, p in parameters.items() if not decays(name, p)]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to the matrices that are no embeddings, nor learned tokens.

    Patch, position and class embeddings of vision towers are named so; SigLIP's pooling token is
    called probe.
    """
    return parameter.ndim >= 2 and not any(part in name for part in ("embed", "probe"))


def warmup_steps(steps: int, config: TrainConfig) -> int:
    """Warm-up steps of a run: those asked for, but at most a tenth of the run.

    >>> warmup_steps(20_000, TrainConfig()), warmup_steps(80, TrainConfig())
    (500, 8)
    """
    return min(config.warmup_steps, steps // 10)


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """The learning rate of a step (from 0): a straight warm-up, then a cosine down to zero.

    >>> config = TrainConfig(learning_rate=1.0, warmup_steps=2)
    >>> [round(learning_rate(step, 20, config), 3) for step in (0, 1, 2, 11, 20)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = warmup_steps(steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / (steps - warmup)
    return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2
