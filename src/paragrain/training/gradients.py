"""One step's gradients: bounded memory, any number of processes, the same numbers.

The loss needs the vectors of all texts of the batch at once, but the activations behind them need
not be held at once (GradCache, arXiv 2101.06983): vectors first, the gradient of the loss with
respect to them next, and then each forward pass again with gradients, one at a time. Where all
passes fit into memory the second run is spared. Several processes share the texts: each sees the
vectors of all, and carries back the gradient of its own.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paragrain.encoders.base import ImageTextEncoder, length_batches, pad
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.distributed import Processes
from paragrain.training.losses import contrastive_loss
from paragrain.training.supervision import Text


class StepReport(NamedTuple):
    """What a step saw: its losses, and the size of the batch over all processes."""

    loss: float
    image_to_text: float
    text_to_image: float
    pairs: int
    texts: int
    tokens: int
    texts_cut: int
    tokens_lost: int


@dataclass(frozen=True)
class Cut:
    """Token ids of texts, each cut to the budget of its field, and what that cost."""

    ids: list[np.ndarray]
    texts_cut: int
    tokens_lost: int


def tokenize(encoder: ImageTextEncoder, texts: list[Text], config: TrainConfig) -> Cut:
    """Token ids of texts under the budgets of their fields, in the order of the texts."""
    budgets = np.array([config.tokens.of(t.field, encoder.max_tokens) for t in texts], dtype=int)
    ids: list[np.ndarray] = [np.empty(0, np.int32)] * len(texts)
    texts_cut = tokens_lost = 0
    for budget in np.unique(budgets):
        rows = np.flatnonzero(budgets == budget)
        tokens = encoder.tokenize([texts[row].text for row in rows], int(budget))
        for place, row in enumerate(rows):
            ids[row] = tokens.row(place)
        texts_cut += tokens.texts_cut
        tokens_lost += tokens.tokens_lost
    return Cut(ids, texts_cut, tokens_lost)


def accumulate_gradients(
    model: ImageTextEncoder,
    batch: Batch,
    config: TrainConfig,
    *,
    processes: Processes | None = None,
    randomness: int = 0,
) -> StepReport:
    """Add the gradient of the batch's loss to the text parameters of `model`.

    Args:
        model: in training mode; its text parameters ask for gradients.
        batch: the whole batch, the same in every process.
        config: temperature, token budgets, precision and memory.
        processes: those that share the work; alone if not given.
        randomness: the number that dropout depends on, with the process.
    """
    processes = processes or Processes()
    device = model.device
    mine = processes.part(len(batch.texts))
    cut = tokenize(model, batch.texts[mine], config)
    lengths = np.array([len(row) for row in cut.ids], dtype=int)
    costs = np.maximum(lengths, model.padded_to)
    passes = length_batches(costs, config.pass_tokens)
    padded = sum(len(rows) * int(costs[rows].max()) for rows in passes)
    hold = padded <= config.held_tokens

    def forward(rows: np.ndarray) -> Tensor:
        """Vectors `[n, D]` of one pass."""
        ids, mask = pad([cut.ids[row] for row in rows], model.pad_id)  # [n, longest]
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed(config, device)):
            return model.text_features(ids.to(device), mask.to(device))

    with _seeded(f"{config.seed}/{randomness}/{processes.index}", device):
        states, parts = [], []
        with torch.set_grad_enabled(hold):
            for rows in passes:
                states.append(_random_state(device))
                parts.append(forward(rows))
        vectors = _in_order(parts, passes, model)  # [n, D]
        everyone = processes.gather_parts(vectors.detach(), len(batch.texts))  # [N, D]
        losses, gradient = _loss_gradient(batch, everyone, config.temperature)
        gradient = gradient[mine]  # [n, D]
        if hold and passes:
            vectors.backward(gradient)
        elif not hold:
            for rows, state in zip(passes, states, strict=True):
                _set_random_state(state, device)  # the same dropout as in the first run
                forward(rows).backward(gradient[torch.from_numpy(rows).to(device)])
    processes.sum_gradients(model.text_parameters().values())

    sizes = torch.tensor([lengths.sum(), cut.texts_cut, cut.tokens_lost], device=device)
    tokens, texts_cut, tokens_lost = processes.sum_(sizes).tolist()
    pairs = int((~batch.negative).sum())
    return StepReport(*losses, pairs, len(batch.texts), tokens, texts_cut, tokens_lost)


def mixed(config: TrainConfig, device: torch.device) -> bool:
    """Whether the forward pass runs in bf16; the weights, loss and optimiser are fp32 always."""
    return config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")


def _loss_gradient(
    batch: Batch, vectors: Tensor, temperature: float
) -> tuple[tuple[float, float, float], Tensor]:
    """The losses of a batch, and the gradient `[N, D]` with respect to its text vectors."""
    images, groups, text_image, negative = (
        torch.from_numpy(array).to(vectors.device)
        for array in (batch.images, batch.groups, batch.text_image, batch.negative)
    )
    vectors = vectors.float().requires_grad_()
    loss = contrastive_loss(
        images,
        vectors[~negative],
        text_image[~negative],
        negatives=vectors[negative],
        negative_image=text_image[negative],
        groups=groups,
        temperature=temperature,
    )
    (gradient,) = torch.autograd.grad(loss.total, vectors)
    total, image_to_text, text_to_image = torch.stack(loss).tolist()
    return (total, image_to_text, text_to_image), gradient


def _in_order(parts: list[Tensor], passes: list[np.ndarray], model: ImageTextEncoder) -> Tensor:
    """The vectors of all passes in the order of the texts, `[n, D]`."""
    if not parts:
        return torch.zeros(0, model.dim, device=model.device)
    places = torch.from_numpy(np.argsort(np.concatenate(passes))).to(model.device)
    return torch.cat(parts)[places]


@contextmanager
def _seeded(key: str, device: torch.device) -> Iterator[None]:
    """Random numbers that depend on `key` alone; the state outside stays untouched.

    So dropout repeats after a resume although no random state is ever saved.
    """
    number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest(), "big")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(number)
        yield


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), cuda


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
