"""The tiny BLIP: Hugging Face's real classes at small widths, with a word-piece vocabulary."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from transformers import BertTokenizerFast, BlipConfig, BlipForImageTextRetrieval, BlipProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

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
