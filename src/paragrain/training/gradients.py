"""One step's gradients: bounded memory, any number of processes, the same numbers.

The losses need the embeddings of all texts of the batch at once, but the activations behind them
need not be held at once (GradCache, arXiv 2101.06983): embeddings first, the gradient of the loss
with respect to them next, and then each micro-batch again with gradients, one at a time. Where all
activations fit into memory the second pass is spared, and always for objectives that require more
than pooled embeddings. Several processes share the towers' work: each sees the features of all, and
carries back the gradient of its own. Images go the same way as texts, unless their tower is frozen
and its embeddings are all that is required.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paragrain.encoders.base import ImageTextEncoder, length_batches, pad, unit
from paragrain.encoders.family import FamilyEncoder
from paragrain.errors import ParagrainError
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.distributed import Processes
from paragrain.training.objectives import IMAGE_FEATURES, POOLED, Features, WeightedSum
from paragrain.training.optimizer import trained
from paragrain.training.sampling import Text

_CONSTANTS = frozenset({"pixels", "input_ids", "attention_mask"})
"""Features that take no gradient."""


class StepReport(NamedTuple):
    """What a step saw: its losses by name, and the size of the batch over all processes."""

    losses: dict[str, float]
    pairs: int
    texts: int
    tokens: int
    texts_truncated: int
    tokens_lost: int

    @property
    def loss(self) -> float:
        """The loss that the step minimises."""
        return self.losses["loss"]


class TokenizedTexts(NamedTuple):
    """Token ids of texts, each truncated to the maximum length of its field, and what that cost."""

    ids: list[np.ndarray]
    texts_truncated: int
    tokens_lost: int


def tokenize(
    encoder: ImageTextEncoder, texts: Sequence[Text], config: TrainConfig
) -> TokenizedTexts:
    """Token ids of texts under the maximum lengths of their fields, in the order of the texts."""
    max_lengths = np.array(
        [config.max_length.of(text.field, encoder.max_tokens) for text in texts], dtype=int
    )
    ids: list[np.ndarray] = [np.empty(0, np.int32)] * len(texts)
    texts_truncated = tokens_lost = 0
    for max_length in np.unique(max_lengths):
        rows = np.flatnonzero(max_lengths == max_length)
        tokens = encoder.tokenize([texts[int(row)].text for row in rows], int(max_length))
        for place, row in enumerate(rows):
            ids[row] = tokens.row(place)
        texts_truncated += tokens.texts_truncated
        tokens_lost += tokens.tokens_lost
    return TokenizedTexts(ids, texts_truncated, tokens_lost)


def accumulate_gradients(
    model: ImageTextEncoder,
    loss: WeightedSum,
    batch: Batch,
    config: TrainConfig,
    *,
    pixels: Sequence[Tensor] | None = None,
    processes: Processes | None = None,
    step: int = 0,
) -> StepReport:
    """Add the gradient of the batch's loss to what trains, of the model and of the objectives.

    Args:
        model: in training mode; what trains asks for gradients.
        loss: what the step minimises.
        batch: the whole batch, the same in every process.
        config: maximum lengths, precision and memory.
        pixels: float32 `[3, H, W]` of each image in this process's part of the batch; needed
            unless the embeddings of the batch are all that the loss requires of images.
        processes: those that share the work; alone if not given.
        step: the number that dropout depends on, with the seed and the process.

    Raises:
        ParagrainError: a process has no image for a loss that needs more than embeddings.
    """
    processes = processes or Processes()
    if processes.world_size > len(batch.records) and not loss.requires <= POOLED:
        raise ParagrainError(
            f"a batch of {len(batch.records)} images is too small for {processes.world_size} "
            "processes: train in fewer, or set drop_last"
        )
    job = _Job(model, config, loss.requires, processes, f"{config.seed}/{step}")
    texts: _TextTower | None = None
    images: _ImageTower | None = None
    spare = config.grad_cache_threshold if loss.requires <= POOLED else None
    if loss.requires - IMAGE_FEATURES:
        texts = _TextTower(job, batch.texts, spare)
        spare = None if spare is None else spare - texts.held
    if loss.requires & IMAGE_FEATURES and pixels is not None:
        images = _ImageTower(job, pixels, len(batch.records), spare)
    towers = [tower for tower in (texts, images) if tower is not None]

    features = {name: leaf for tower in towers for name, leaf in tower.features().items()}
    if pixels is None and batch.image_embeddings is not None:
        features["image_embeddings"] = torch.from_numpy(batch.image_embeddings).to(model.device)
    parameters = list(trained(dict(loss.named_parameters())).values())
    parameters += [parameter for tower in towers for parameter in tower.parameters()]
    with seeded(f"{job.key}/loss", model.device):
        losses = loss(batch, Features(model, **features))
    leaves = [feature for feature in features.values() if feature.requires_grad]
    # Every process computes the whole loss, and the gradients of all are added up below: what
    # comes from the objectives directly is counted in the first one only.
    losses["loss"].backward(inputs=[*leaves, *(parameters if processes.is_main else [])])
    for tower in towers:
        tower.backward(features)
    processes.sum_gradients(parameters)

    values = torch.stack(list(losses.values())).tolist()
    named = dict(zip(losses, values, strict=True))
    if texts is None:
        return StepReport(named, 0, 0, 0, 0, 0)
    pairs = int((~batch.negative).sum())
    return StepReport(named, pairs, len(batch.texts), *processes.sum_(texts.sizes).tolist())


def mixed(config: TrainConfig, device: torch.device) -> bool:
    """Whether the forward pass runs in bf16; the weights, loss and optimiser are fp32 always."""
    return config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")


def patches(model: ImageTextEncoder, pixels: Sequence[Tensor]) -> int:
    """Tokens that the image tower makes of one image: its patches and one more; 1 without any."""
    if not pixels:
        return 1
    side = int(model.vision_settings().get("patch_size", 16))
    _, height, width = pixels[0].shape
    return (height // side) * (width // side) + 1


class _Job(NamedTuple):
    """What both towers have to know of a step."""

    model: ImageTextEncoder
    config: TrainConfig
    required: frozenset[str]
    processes: Processes
    key: str


class _Tower(ABC):
    """One tower's micro-batches of this process's part of a batch: run once, or twice (GradCache).

    Args:
        job: the step.
        total: rows of the batch, over all processes.
        costs: tokens of each row `[n]` of this process's part, padding included.
        micro_batches: the rows of each forward pass.
        spare: with more tokens than these, activations are computed twice; never if None.

    Attributes:
        held: tokens whose activations are held from the first pass to the second.
    """

    embeddings: str
    """The name of its pooled features."""
    key: str
    """What sets its dropout apart from the other tower's."""

    def __init__(
        self,
        job: _Job,
        total: int,
        costs: np.ndarray,
        micro_batches: list[np.ndarray],
        spare: int | None,
    ) -> None:
        self._job, self._total, self._micro_batches = job, total, micro_batches
        self._key = f"{job.key}/{job.processes.rank}{self.key}"
        padded = sum(len(rows) * int(costs[rows].max()) for rows in micro_batches)
        self._hold = spare is None or padded <= spare
        self.held = padded if self._hold else 0

    @abstractmethod
    def parameters(self) -> list[torch.nn.Parameter]:
        """What trains of it."""

    @abstractmethod
    def forward(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The required features of some rows, `[n, ...]` by name."""

    def features(self) -> dict[str, Tensor]:
        """The features of the whole batch by name; what has a gradient is a leaf that takes it."""
        device, processes = self._job.model.device, self._job.processes
        self._states: list[tuple[Tensor, Tensor | None]] = []
        outputs: list[dict[str, Tensor]] = []
        with seeded(self._key, device), torch.set_grad_enabled(self._hold):
            for rows in self._micro_batches:
                self._states.append(_random_state(device))
                outputs.append(self._run(rows))
            if not outputs:  # no row fell to this process
                outputs = [{self.embeddings: torch.zeros(0, self._job.model.dim, device=device)}]
            order = np.argsort(np.concatenate([*self._micro_batches, np.arange(0)]))
            places = torch.from_numpy(order).to(device)
            self._outputs = {
                name: torch.cat([output[name] for output in outputs])[places] for name in outputs[0]
            }
        trains = bool(self.parameters())
        whole = {}
        for name, output in self._outputs.items():
            gathered = processes.gather_parts(output.detach(), self._total)
            if trains and name not in _CONSTANTS:
                gathered = gathered.float().requires_grad_()
            whole[name] = gathered
        return whole

    def backward(self, features: Mapping[str, Tensor]) -> None:
        """Add what follows from the gradients of the features to the parameters."""
        part = self._job.processes.part(self._total)
        gradients = {
            name: gradient[part]
            for name in self._outputs
            if (gradient := features[name].grad) is not None
        }
        if not gradients or not self._micro_batches:
            return
        device = self._job.model.device
        if self._hold:
            _backward(self._outputs, gradients)
            return
        with seeded(self._key, device):
            for rows, state in zip(self._micro_batches, self._states, strict=True):
                _set_random_state(state, device)  # the same dropout as in the first pass
                places = torch.from_numpy(rows).to(device)
                _backward(self._run(rows), {name: g[places] for name, g in gradients.items()})

    def _run(self, rows: np.ndarray) -> dict[str, Tensor]:
        device = self._job.model.device
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed(self._job.config, device)):
            return self.forward(rows)


class _TextTower(_Tower):
    """The text tower over this process's part of the texts.

    Attributes:
        sizes: int64 `[3]`: tokens, texts that were truncated, and tokens that they lost.
    """

    embeddings, key = "text_embeddings", ""

    def __init__(self, job: _Job, texts: Sequence[Text], spare: int | None) -> None:
        tokens = tokenize(job.model, texts[job.processes.part(len(texts))], job.config)
        lengths = np.array([len(row) for row in tokens.ids], dtype=int)
        self.sizes = torch.tensor(
            [lengths.sum(), tokens.texts_truncated, tokens.tokens_lost], device=job.model.device
        )
        self._ids, self._longest = tokens.ids, job.processes.max_(int(lengths.max(initial=0)))
        costs = np.maximum(lengths, job.model.padded_to)
        micro_batches = length_batches(costs, job.config.micro_batch_tokens)
        super().__init__(job, len(texts), costs, micro_batches, spare)

    def parameters(self) -> list[torch.nn.Parameter]:
        """The text side."""
        return list(trained(self._job.model.text_tensors()).values())

    def forward(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Embeddings, states and padded ids of texts, as far as they are required."""
        model, required = self._job.model, self._job.required
        padded = pad([self._ids[row] for row in rows], model.pad_id)  # [n, L] each
        ids, mask = (part.to(model.device) for part in padded)
        rest = (0, self._longest - ids.shape[1])
        made: dict[str, Tensor] = {
            "input_ids": F.pad(ids, rest, value=model.pad_id),
            "attention_mask": F.pad(mask, rest),
        }
        if "text_states" in required:
            states, vectors = cast(FamilyEncoder, model).text_states(
                ids, mask, model.mode_of(model.max_length)
            )
            made["text_embeddings"] = unit(vectors)
            made["text_states"] = F.pad(states, (0, 0, *rest))
        else:
            made["text_embeddings"] = model.text_features(ids, mask)
        return {name: made[name] for name in made if name in required}


class _ImageTower(_Tower):
    """The image tower over this process's part of the images."""

    embeddings, key = "image_embeddings", "/images"

    def __init__(self, job: _Job, pixels: Sequence[Tensor], total: int, spare: int | None) -> None:
        self._pixels = pixels
        costs = np.full(len(pixels), patches(job.model, pixels))
        # Images are of one size: to divide what is held anyway saves neither memory nor time.
        rows = [np.arange(len(pixels))] if len(pixels) else []
        self._memory_format = torch.channels_last  # which patch embeddings read fastest
        if spare is not None:
            rows = length_batches(costs, job.config.micro_batch_tokens)
            self._memory_format = torch.contiguous_format
        super().__init__(job, total, costs, rows, spare)

    def parameters(self) -> list[torch.nn.Parameter]:
        """The image side, where it trains."""
        return list(trained(self._job.model.vision_tensors()).values())

    def forward(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Embeddings, states and pixels of images, as far as they are required."""
        model, required = self._job.model, self._job.required
        pixels = model.image_batch([self._pixels[row] for row in rows])
        if isinstance(pixels, Tensor):
            pixels = pixels.contiguous(memory_format=self._memory_format)
        made = {"pixels": pixels}
        if "image_states" in required:
            made["image_states"], vectors = cast(FamilyEncoder, model).image_states(pixels)
            made["image_embeddings"] = unit(vectors)
        elif "image_embeddings" in required:
            made["image_embeddings"] = model.image_features(pixels)
        return {name: made[name] for name in made if name in required}


def _backward(outputs: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
    """Carry gradients of features, by name, back into the tower."""
    torch.autograd.backward(
        [outputs[name] for name in gradients],
        [gradient.to(outputs[name].dtype) for name, gradient in gradients.items()],
    )


@contextmanager
def seeded(key: str, device: torch.device) -> Iterator[None]:
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
