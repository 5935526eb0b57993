"""Pre-training of a tiny BLIP from nothing: dense prediction of scenes, then contrast."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional as F

from paragrain.collection import Collection
from paragrain.encoders.base import length_batches, pad
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.trained_on import TrainedOn, used_images
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import write_json, write_text
from paragrain.pretraining.config import PretrainConfig, make_pretrain_config
from paragrain.pretraining.data import (
    PretrainData,
    batch_of,
    draw_texts,
    load_data,
    normalised,
)
from paragrain.pretraining.dense import GraphHead, graph_targets
from paragrain.pretraining.tiny import build_tokenizer, new_blip, new_processor
from paragrain.progress import progress_bar
from paragrain.training.checkpoints import MetricsLog, load_progress, save_progress
from paragrain.training.losses import contrastive_loss
from paragrain.training.optimisation import decay_groups

TEXT_PASS_TOKENS = 2048
"""Tokens of one forward pass of the text tower: short texts in batches of similar length."""

SPLIT = "train"
"""What is trained on."""


@dataclass(frozen=True)
class Pretrained:
    """What pre-training made.

    Attributes:
        folder: with `checkpoint/`, `metrics.jsonl`, `run.yaml` and `results.json`.
        failed: (id, reason) of records that could not be used.
        seconds: time spent in steps, over all sittings.
    """

    folder: Path
    failed: list[tuple[str, str]]
    seconds: float


def pretrain(
    collection: Collection, out: Path, *, progress: bool = True, **settings: Any
) -> Pretrained:
    """Train a tiny BLIP's two towers from fresh weights, and save it as a Hugging Face folder.

    First the vision tower predicts each picture's scene graph (left out where the collection has
    no graphs); then both towers learn by contrast on alt-texts and short captions. A rerun with
    the same settings goes on where a killed run was.

    Args:
        collection: read on its split `train`.
        out: the run's folder; the model is in `out/checkpoint`.
        progress: whether to show progress.
        **settings: those of `PretrainConfig`.

    Raises:
        UsageError: a setting is wrong, or `out` holds a run with other settings.
        ParagrainError: the data cannot be used, or the loss is no longer finite.
    """
    config = make_pretrain_config(settings)
    _claim(out, collection, config)
    encoder = _begin(config, collection)
    data = load_data(collection, SPLIT, _side(encoder), progress=progress)
    run = _Pretraining(data, config, encoder)
    encoder.trained_on = _images_used(collection, run)
    log = MetricsLog(out / "metrics.jsonl")
    at = load_progress(out / "last" / "state.safetensors", run.parameters, run.optimizer)
    log.trim(at.step)
    saved = time.monotonic()
    with progress_bar("pre-training", run.steps, unit="steps", show=progress) as advance:
        advance(at.step)
        while at.step < run.steps:
            began = time.monotonic()
            line = run.step(at.step)
            at.step += 1
            at.seconds += time.monotonic() - began
            log.append(step=at.step, **line, seconds=round(at.seconds, 1))
            advance(1, note=f"{line['stage']} loss {line['loss']:.3f}")
            if time.monotonic() - saved > 60 * config.save_minutes or at.step == run.steps:
                path = out / "last" / "state.safetensors"
                save_progress(path, at, run.parameters, run.optimizer)
                saved = time.monotonic()
    run.save(out / "checkpoint")
    write_json(
        out / "results.json",
        {"steps": run.steps, "seconds": round(at.seconds), "images": len(data)},
    )
    return Pretrained(out, data.failed, at.seconds)


def _claim(out: Path, collection: Collection, config: PretrainConfig) -> None:
    """Write `run.yaml`, or see that the one in `out` asks for the same run."""
    wanted = {
        "collection": {"name": collection.name, "fingerprint": collection.fingerprint},
        "config": config.model_dump(mode="json"),
    }
    path = out / "run.yaml"
    if not path.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} is in use and holds no run: choose another --out")
        write_text(path, yaml.safe_dump(wanted, sort_keys=False))
        return
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        found = None
    if found != wanted:
        raise UsageError(f"{out} holds a run with other settings or data: choose another --out")


def _begin(config: PretrainConfig, collection: Collection) -> BlipEncoder:
    """A fresh BLIP with a vocabulary for the collection, or the one to go on from."""
    if config.start is not None:
        encoder = load_encoder(config.start, "cpu").requires_grad_(True).train()
        if not isinstance(encoder, BlipEncoder):
            raise UsageError(f"{config.start} is no BLIP: pre-training goes on from one")
        return encoder
    tokenizer = build_tokenizer(_vocabulary_texts(collection))
    model = new_blip(config.size, tokenizer, config.seed)
    processor = new_processor(config.size, tokenizer)
    return BlipEncoder(model, processor.image_processor, tokenizer, "pre-training")


def _images_used(collection: Collection, run: "_Pretraining") -> TrainedOn:
    """All that the model will have learned from when the run ends, its start's past included."""
    rows = np.unique(np.concatenate([run.batch(step) for step in range(run.steps)]))
    contents = {run.data.ids[row]: run.data.contents[row] for row in rows}
    known = used_images("trained", collection, SPLIT, contents, vision=True)
    before = run.encoder.trained_on
    return known if before is None else before | known


def _side(encoder: BlipEncoder) -> int:
    """Side of the square pictures that an encoder takes, in pixels."""
    return int(encoder.model.config.vision_config.image_size)


def _vocabulary_texts(collection: Collection) -> list[str]:
    """Texts of every kind: as with BERT's vocabulary, words of long text have entries of their own.

    Their embeddings are not trained, since no long text is shown.
    """
    fields = ("captions", "generated", "paragraph", "description")
    return [
        text
        for record in collection.records(fields=fields)
        for field in fields
        for text in record.texts(field)
    ]


class _Pretraining:
    """Model, optimiser and data of one run; `step(n)` does the n-th step, whatever came before."""

    def __init__(self, data: PretrainData, config: PretrainConfig, encoder: BlipEncoder) -> None:
        self.data, self.config, self.encoder = data, config, encoder
        self.model = encoder.model
        self.token_ids = [encoder.token_ids(own) for own in data.texts]
        vision = self.model.config.vision_config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.head = GraphHead(
                vision.hidden_size, encoder.dim, vision.image_size // vision.patch_size
            )
        self.log_temperature = nn.Parameter(torch.tensor(math.log(0.07)))
        self.dense_steps = config.dense_steps if data.scenes else 0
        self.steps = self.dense_steps + config.contrast_steps
        self.targets = graph_targets(data.scenes) if data.scenes else None
        self.parameters: dict[str, nn.Parameter] = {
            **{n: p for n, p in self.model.named_parameters() if n.startswith("vision")},
            **{n: t for n, t in self.encoder.text_tensors().items() if isinstance(t, nn.Parameter)},
            **{f"graph_head.{name}": p for name, p in self.head.named_parameters()},
            "log_temperature": self.log_temperature,
        }
        groups = decay_groups(self.parameters, config.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)

    def batch(self, step: int) -> np.ndarray:
        """Rows of the pictures of a step."""
        config = self.config
        return batch_of(step, len(self.data), config.batch_size, config.seed, config.block)

    def step(self, step: int) -> dict[str, Any]:
        """Train on the batch of `step`; returns what the log says about it."""
        dense = step < self.dense_steps
        batch = self.batch(step)
        states, vectors = self._see(batch)
        graph = self._graph_loss(states, vectors, batch) if self.targets else None
        if dense:
            assert graph is not None
            loss = graph
            line: dict[str, Any] = {"stage": "dense"}
        else:
            contrast = self._contrast(vectors, batch, step)
            loss = contrast
            line = {"stage": "contrast", "contrast": contrast.item()}
            if graph is not None and self.config.graph_weight:
                loss = contrast + self.config.graph_weight * graph
        rate = self._learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(list(self.parameters.values()), self.config.clip_norm)
        if not (torch.isfinite(loss) and torch.isfinite(norm)):
            raise ParagrainError(
                f"pre-training stopped at step {step + 1}, whose loss is {loss.item()} and "
                f"gradient norm {norm.item()}: lower learning_rate"
            )
        self.optimizer.step()
        return {**line, "loss": loss.item(), "lr": rate}

    def _see(self, batch: np.ndarray) -> tuple[Tensor, Tensor]:
        """Hidden states `[B, 1 + P, W]` and unit vectors `[B, D]` of the pictures of a batch."""
        settings = self.encoder.image_processor
        pixels = normalised(self.data.pixels[batch], settings.image_mean, settings.image_std)
        states = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return states, F.normalize(self.model.vision_proj(states[:, 0]), dim=-1)

    def _graph_loss(self, states: Tensor, vectors: Tensor, batch: np.ndarray) -> Tensor:
        assert self.targets is not None
        rows = torch.from_numpy(batch)
        cells, backgrounds = (target[rows] for target in self.targets)
        return self.head(states, vectors, cells, backgrounds)

    def _contrast(self, vectors: Tensor, batch: np.ndarray, step: int) -> Tensor:
        """The multi-positive loss of the batch's pictures with a few short texts of each."""
        choices = [range(len(self.token_ids[row])) for row in batch]
        drawn = draw_texts(choices, step, self.config.texts_per_image, self.config.seed)
        rows = [self.token_ids[batch[place]][text] for place, text in drawn]
        passes = length_batches([len(row) for row in rows], TEXT_PASS_TOKENS)
        parts = [
            self.encoder.text_features(*pad([rows[index] for index in part], self.encoder.pad_id))
            for part in passes
        ]
        order = torch.from_numpy(np.concatenate(passes))
        texts = torch.empty_like(torch.cat(parts)).index_copy(0, order, torch.cat(parts))
        text_image = torch.tensor([place for place, _ in drawn])
        # BLIP divides by a learned temperature; the loss takes a fixed one, so scale the vectors.
        divisor = self.log_temperature.exp().clamp(0.01, 0.5)
        return contrastive_loss(vectors / divisor, texts, text_image, temperature=1.0).total

    def _learning_rate(self, step: int) -> float:
        """Warm-up and cosine, anew for each stage; the first only falls to a quarter."""
        dense = step < self.dense_steps
        steps = self.dense_steps if dense else self.config.contrast_steps
        at = step if dense else step - self.dense_steps
        warm = min(1.0, (at + 1) / max(1, min(self.config.warmup_steps, steps // 10)))
        least = 0.25 if dense else 0.0
        cosine = (1 + math.cos(math.pi * at / steps)) / 2
        return self.config.learning_rate * warm * (least + (1 - least) * cosine)

    def save(self, folder: Path) -> None:
        """Write the model in half precision, which loading turns back into float32."""
        self.model.half()
        self.encoder.save(folder)
