"""One step's gradients: bounded memory, any number of processes, the same numbers.

The loss needs the vectors of all texts of the batch at once, but the activations behind them need
not be held at once (GradCache, arXiv 2101.06983): vectors first, the gradient of the loss with
respect to them next, and then each forward pass again with gradients, one at a time. Where all
passes fit into memory the second run is spared. Several processes share the texts: each sees the
vectors of all, and carries back the gradient of its own. Where the vision tower trains too, the
images go the same way.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
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
    texts_truncated: int
    tokens_lost: int


@dataclass(frozen=True)
class Cut:
    """Token ids of texts, each cut to the maximum length of its field, and what that cost."""

    ids: list[np.ndarray]
    texts_truncated: int
    tokens_lost: int


def tokenize(encoder: ImageTextEncoder, texts: list[Text], config: TrainConfig) -> Cut:
    """Token ids of texts under the maximum lengths of their fields, in the order of the texts."""
    max_lengths = np.array(
        [config.max_length.of(t.field, encoder.max_tokens) for t in texts], dtype=int
    )
    ids: list[np.ndarray] = [np.empty(0, np.int32)] * len(texts)
    texts_truncated = tokens_lost = 0
    for max_length in np.unique(max_lengths):
        rows = np.flatnonzero(max_lengths == max_length)
        tokens = encoder.tokenize([texts[row].text for row in rows], int(max_length))
        for place, row in enumerate(rows):
            ids[row] = tokens.row(place)
        texts_truncated += tokens.texts_truncated
        tokens_lost += tokens.tokens_lost
    return Cut(ids, texts_truncated, tokens_lost)


def accumulate_gradients(
    model: ImageTextEncoder,
    batch: Batch,
    config: TrainConfig,
    *,
    pixels: Sequence[Tensor] | None = None,
    processes: Processes | None = None,
    dropout_seed: int = 0,
) -> StepReport:
    """Add the gradient of the batch's loss to the parameters of `model` that train.

    Args:
        model: in training mode; what trains asks for gradients.
        batch: the whole batch, the same in every process.
        config: temperature, maximum lengths, precision and memory.
        pixels: float32 `[3, H, W]` of each image in this process's part of the batch. If given,
            image embeddings are made of them, in place of those of the batch, and the vision tower
            gets its gradient too.
        processes: those that share the work; alone if not given.
        dropout_seed: the number that dropout depends on, with the process.
    """
    processes = processes or Processes()
    device = model.device
    mine = processes.part(len(batch.texts))
    cut = tokenize(model, batch.texts[mine], config)
    lengths = np.array([len(row) for row in cut.ids], dtype=int)
    key = f"{config.seed}/{dropout_seed}/{processes.index}"
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=mixed(config, device))

    def of_texts(rows: np.ndarray) -> Tensor:
        ids, mask = pad([cut.ids[row] for row in rows], model.pad_id)  # [n, longest]
        with autocast:
            return model.text_features(ids.to(device), mask.to(device))

    def of_images(rows: np.ndarray) -> Tensor:
        assert pixels is not None
        with autocast:
            return model.image_features(model.image_batch([pixels[row] for row in rows]))

    costs = np.maximum(lengths, model.padded_to)
    texts = _Tower(
        model, of_texts, costs, config.micro_batch_tokens, config.grad_cache_threshold, key
    )
    text_vectors = processes.gather_parts(texts.vectors(), len(batch.texts))  # [N, D]
    if pixels is None:
        losses, (gradient,) = _loss_gradients(batch, text_vectors, None, config.temperature)
    else:
        costs = np.full(len(pixels), patches(model, pixels))
        left = config.grad_cache_threshold - texts.held
        images = _Tower(model, of_images, costs, config.micro_batch_tokens, left, f"{key}/images")
        vectors = processes.gather_parts(images.vectors(), len(batch.images))  # [B, D]
        losses, (gradient, image_gradient) = _loss_gradients(
            batch, text_vectors, vectors, config.temperature
        )
        images.backward(image_gradient[processes.part(len(batch.images))])
    texts.backward(gradient[mine])
    processes.sum_gradients(model.trained_parameters().values())

    sizes = torch.tensor([lengths.sum(), cut.texts_truncated, cut.tokens_lost], device=device)
    tokens, texts_truncated, tokens_lost = processes.sum_(sizes).tolist()
    pairs = int((~batch.negative).sum())
    return StepReport(*losses, pairs, len(batch.texts), tokens, texts_truncated, tokens_lost)


def patches(model: ImageTextEncoder, pixels: Sequence[Tensor]) -> int:
    """Tokens that the vision tower makes of one image: its patches and one more; 1 without any."""
    if not pixels:
        return 1
    side = int(model.vision_settings().get("patch_size", 16))
    _, height, width = pixels[0].shape
    return (height // side) * (width // side) + 1


class _Tower:
    """One tower's passes over this process's texts or images: run once, or twice to save memory.

    Args:
        model: whose tower it is.
        forward: the vectors `[n, D]` of one pass over some rows.
        costs: tokens of each row `[n]`, padding included.
        micro_batch_tokens: most tokens of a pass.
        grad_cache_threshold: with more tokens than these, activations are made a second time.
        key: what dropout depends on.
    """

    def __init__(
        self,
        model: ImageTextEncoder,
        forward: Callable[[np.ndarray], Tensor],
        costs: np.ndarray,
        micro_batch_tokens: int,
        grad_cache_threshold: int,
        key: str,
    ) -> None:
        self._model, self._forward, self._key = model, forward, key
        self._passes = length_batches(costs, micro_batch_tokens)
        padded = sum(len(rows) * int(costs[rows].max()) for rows in self._passes)
        self._hold = padded <= grad_cache_threshold
        self.held = padded if self._hold else 0

    def vectors(self) -> Tensor:
        """The vectors of all rows in their order `[n, D]`, by themselves without gradients."""
        device = self._model.device
        self._states, parts = [], []
        with _seeded(self._key, device), torch.set_grad_enabled(self._hold):
            for rows in self._passes:
                self._states.append(_random_state(device))
                parts.append(self._forward(rows))
            self._vectors = _in_order(parts, self._passes, self._model)
        return self._vectors.detach()

    def backward(self, gradient: Tensor) -> None:
        """Add what follows from the gradient `[n, D]` of the vectors to the parameters."""
        device = self._model.device
        if self._hold and self._passes:
            self._vectors.backward(gradient)
        elif not self._hold:
            with _seeded(self._key, device):
                for rows, state in zip(self._passes, self._states, strict=True):
                    _set_random_state(state, device)  # the same dropout as in the first run
                    self._forward(rows).backward(gradient[torch.from_numpy(rows).to(device)])


def mixed(config: TrainConfig, device: torch.device) -> bool:
    """Whether the forward pass runs in bf16; the weights, loss and optimiser are fp32 always."""
    return config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")


def _loss_gradients(
    batch: Batch, texts: Tensor, images: Tensor | None, temperature: float
) -> tuple[tuple[float, float, float], tuple[Tensor, ...]]:
    """The losses of a batch, and its gradients with respect to vectors.

    Args:
        batch: with the image embeddings, if `images` is not given.
        texts: `[N, D]`; they get a gradient `[N, D]`.
        images: `[B, D]`; if given they get a gradient `[B, D]` too.
        temperature: see `contrastive_loss`.
    """
    frozen, groups, text_image, negative = (
        torch.from_numpy(array).to(texts.device)
        for array in (batch.images, batch.groups, batch.text_image, batch.negative)
    )
    texts = texts.float().requires_grad_()
    wanted = [texts] if images is None else [texts, images.float().requires_grad_()]
    loss = contrastive_loss(
        frozen if images is None else wanted[1],
        texts[~negative],
        text_image[~negative],
        negatives=texts[negative],
        negative_image=text_image[negative],
        groups=groups,
        temperature=temperature,
    )
    gradients = torch.autograd.grad(loss.total, wanted)
    total, image_to_text, text_to_image = torch.stack(loss).tolist()
    return (total, image_to_text, text_to_image), gradients


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
