"""Texts and images to unit vectors, for whoever has an encoder or the name of one."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from paragrain.encoders.base import ImageTextEncoder, encode_pixels, encode_tokens
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.tokens import Tokens, check_batch_size
from paragrain.errors import UsageError
from paragrain.images import decode

Picture = Image.Image | str | Path


@dataclass(frozen=True, eq=False)
class TextVectors:
    """Vectors float32 `[N, D]` of N texts, and the tokens they were made from."""

    vectors: np.ndarray
    tokens: Tokens

    def __repr__(self) -> str:
        """How many and how wide, and what was read."""
        return f"<TextVectors {list(self.vectors.shape)} of {self.tokens!r}>"


def encode_texts(
    encoder: ImageTextEncoder | str | os.PathLike[str],
    texts: str | Iterable[str],
    *,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    progress: bool = False,
    **options: Any,
) -> TextVectors:
    """Unit vectors of `texts` in their own order, each read up to `max_length` tokens.

    Args:
        encoder: an encoder, or what `load_encoder` takes.
        texts: any number; a single string is one text, and gives `[1, D]`.
        max_length: special tokens included; by default the encoder's own, `.max_length`.
        batch_tokens: see `encode_tokens`.
        progress: whether to show a progress bar.
        options: those of `TextOptions`, such as `normalise` and `prompt`.

    Raises:
        UsageError: see `ImageTextEncoder.tokenize`.
        ParagrainError: a vector is not finite.
    """
    encoder = load_encoder(encoder)
    max_length = encoder.max_length if max_length is None else max_length
    tokenized = encoder.tokenize(texts, max_length, **options)
    vectors = encode_tokens(encoder, tokenized, batch_tokens=batch_tokens, progress=progress)
    return TextVectors(vectors, tokenized)


def encode_images(
    encoder: ImageTextEncoder | str | os.PathLike[str],
    images: Picture | Iterable[Picture],
    batch_size: int = 64,
) -> np.ndarray:
    """Unit vectors float32 `[N, D]` of images, in their order.

    For a whole collection use `paragrain.embeddings.embed`, which caches.

    Args:
        encoder: an encoder, or what `load_encoder` takes.
        images: upright RGB pictures, or files that are decoded; a single one gives `[1, D]`.
        batch_size: images encoded together.

    Raises:
        UsageError: something is neither a picture nor a file's name, or the batch size is none.
        BadImage: a file holds no sound image.
        ParagrainError: a vector is not finite.
    """
    encoder = load_encoder(encoder)
    check_batch_size(batch_size)
    if isinstance(images, Image.Image | str | Path):
        images = [images]
    if not isinstance(images, Iterable):
        raise UsageError(f"{type(images).__name__} is no list of images: give pictures or files")
    parts = [np.zeros((0, encoder.dim), dtype=np.float32)]
    batch: list[torch.Tensor] = []
    for image in images:
        batch.append(encoder.pixels(_picture(image)))
        if len(batch) == batch_size:
            parts.append(encode_pixels(encoder, batch))
            batch = []
    if batch:
        parts.append(encode_pixels(encoder, batch))
    return np.concatenate(parts)


def _picture(image: Any) -> Image.Image:
    """An upright RGB picture: as given, or decoded from a file."""
    if isinstance(image, str | Path):
        return decode(Path(image))
    if isinstance(image, Image.Image):
        return image if image.mode == "RGB" else image.convert("RGB")
    raise UsageError(
        f"{type(image).__name__} is no image: give pictures of Pillow or the names of files"
    )
