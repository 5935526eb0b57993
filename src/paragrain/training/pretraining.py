"""Pre-training of a tiny BLIP from nothing: a fresh model, and settings of the one trainer.

The model is Hugging Face's real classes at small widths, with a word-piece vocabulary. Its image
tower first predicts the scene graph of each picture, then both towers learn by contrast on
alt-texts and short captions, with the graph as a side task.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import BertTokenizerFast, BlipConfig, BlipForImageTextRetrieval, BlipProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from paragrain.collection import Collection
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.loading import load_encoder
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import fields_with_texts
from paragrain.training.config import make_config
from paragrain.training.recipes import Recipe
from paragrain.training.runs import Run
from paragrain.training.trainer import train

SHORT_FIELDS = ("captions", "generated")
"""Pre-training sees these alone, so that long text stays new to the model."""

# Hugging Face's vision configuration draws initial weights with 1e-10, and a ViT never starts.
INITIALIZER_RANGE = 0.02


@dataclass(frozen=True)
class TinySize:
    """Sizes of a small BLIP; the defaults are BLIP0's (2.8 M parameters)."""

    width: int = 160
    heads: int = 5
    vision_layers: int = 4
    text_layers: int = 3
    vector_width: int = 256
    image_size: int = 96
    patch_size: int = 16
    positions: int = 512

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"the width {self.width} is not a multiple of {self.heads} heads")
        if self.image_size % (3 * self.patch_size):
            raise ValueError("image_size must be a multiple of 3 patches, one or more a cell")


def build_tokenizer(texts: Iterable[str], *, least: int = 3) -> BertTokenizerFast:
    """A lower-casing BERT tokenizer with whole words of `texts` and letters for all others.

    The layout is BLIP's: word pieces, then `[DEC]` and `[ENC]` as the last two entries.

    Args:
        texts: what the vocabulary is made from.
        least: how often a word has to occur to get an entry of its own.
    """
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    symbols = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    words = sorted(w for w, n in counts.items() if n >= least and len(w) > 1)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *symbols, *words]
    vocabulary += [f"##{s}" for s in [*string.ascii_lowercase, *string.digits]]
    vocabulary += ["[DEC]", "[ENC]"]
    return BertTokenizerFast(
        vocab={token: index for index, token in enumerate(vocabulary)},
        do_lower_case=True,
        bos_token="[DEC]",
        additional_special_tokens=["[ENC]"],
    )


def new_blip(size: TinySize, tokenizer: BertTokenizerFast, seed: int) -> BlipForImageTextRetrieval:
    """A BLIP with fresh weights for `tokenizer`'s vocabulary; deterministic in `seed`."""
    common = {
        "hidden_size": size.width,
        "intermediate_size": size.width * 4,
        "num_attention_heads": size.heads,
        "initializer_range": INITIALIZER_RANGE,
    }
    separator = tokenizer.sep_token_id
    config = BlipConfig(
        text_config={
            **common,
            "num_hidden_layers": size.text_layers,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": size.positions,
            "bos_token_id": tokenizer.convert_tokens_to_ids("[DEC]"),
            "sep_token_id": separator,
            "eos_token_id": separator,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            **common,
            "num_hidden_layers": size.vision_layers,
            "image_size": size.image_size,
            "patch_size": size.patch_size,
        },
        image_text_hidden_size=size.vector_width,
        initializer_range=INITIALIZER_RANGE,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BlipForImageTextRetrieval(config)


def new_processor(size: TinySize, tokenizer: BertTokenizerFast) -> BlipProcessor:
    """The processor that goes with `new_blip`."""
    side = {"height": size.image_size, "width": size.image_size}
    return BlipProcessor(BlipImageProcessorPil(size=side), tokenizer)


def pretrain(
    collection: Collection,
    out: str | Path,
    *,
    dense_steps: int = 1200,
    contrast_steps: int = 2400,
    graph_weight: float = 0.1,
    texts_per_image: int = 2,
    start: str | None = None,
    size: TinySize = TinySize(),
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Train a tiny BLIP's two towers from fresh weights; the model is in `out/checkpoint`.

    The defaults made the first of BLIP0's two runs. The contrast follows BLIP: AdamW with weight
    decay 0.05 and a learned temperature that starts at 0.07 and stays in [0.01, 0.5], so that the
    scale is at most 100; it has no momentum copies. The rest is this project's.

    Args:
        collection: read on its split `train`.
        out: the run's folder; one that holds the same run unfinished is continued.
        dense_steps: steps of predicting the scene graph alone; none where a picture has no graph.
        contrast_steps: steps of image-text contrast.
        graph_weight: what predicting the graph counts for beside the contrast.
        texts_per_image: texts drawn anew for each image and step.
        start: go on from this checkpoint, with its size and vocabulary.
        size: of a fresh model.
        progress: whether to show progress and notes on standard error.
        **settings: further ones of `TrainConfig`.

    Raises:
        UsageError: a setting is wrong, or `out` holds a run with other settings.
        ParagrainError: the data cannot be used, or the loss is no longer finite.
    """
    usual = {
        "batch_size": 128,
        "drop_last": True,
        "train_vision": True,
        "learning_rate": 1e-3,
        "warmup_steps": 100,
        "clip_norm": 1.0,
        "fused": True,
        "micro_batch_tokens": 2048,
        "grad_cache_threshold": None,
        "validation_split": None,
        "save_minutes": 5.0,
        "checkpoint_dtype": "float16",
    }
    config = make_config(None, {**usual, **settings})
    losses: dict[str, dict[str, Any]] = {"contrastive": {"temperature": "learned"}}
    stages: list[dict[str, Any]] = [{"steps": contrast_steps, "decay_after_warmup": False}]
    if all(record.graph for record in collection.records(config.split, fields=("graph",))):
        losses = {"scene_graph": {"weight": graph_weight}, **losses}
        if dense_steps:
            alone = {"weights": {"scene_graph": 1.0}, "final_rate": 0.25}
            stages.insert(0, {"steps": dense_steps, "decay_after_warmup": False, **alone})
    config = make_config(config, {"stages": stages})
    fields = fields_with_texts(collection, config.split, SHORT_FIELDS)
    recipe = Recipe.model_validate(
        {
            "name": "short texts",
            "title": f"{texts_per_image} alt-texts or short captions, drawn anew each step",
            "positives": [{"from": field} for field in fields or SHORT_FIELDS],
            "sample": texts_per_image,
            "loss": losses,
        }
    )
    if start is not None:
        encoder = load_encoder(start, "cpu")
        if not isinstance(encoder, BlipEncoder):
            raise UsageError(f"{start} is no BLIP: pre-training goes on from one")
    else:
        encoder = fresh_encoder(collection, size, config.seed)
    return train(collection, encoder, recipe=recipe, out=out, config=config, progress=progress)


def fresh_encoder(collection: Collection, size: TinySize, seed: int) -> BlipEncoder:
    """A BLIP with fresh weights and a vocabulary for a collection.

    The vocabulary is made from texts of every kind: as with BERT's, words of long text have entries
    of their own, although their embeddings are not trained while no long text is shown.
    """
    fields = (*SHORT_FIELDS, "paragraph", "description")
    tokenizer = build_tokenizer(
        text
        for record in collection.records(fields=fields)
        for field in fields
        for text in record.texts(field)
    )
    processor = new_processor(size, tokenizer)
    model = new_blip(size, tokenizer, seed)
    return BlipEncoder(model, processor.image_processor, tokenizer, "fresh weights")
