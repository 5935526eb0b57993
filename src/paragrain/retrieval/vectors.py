"""Vectors as ranking takes them: finite, of unit length, float32, rows contiguous."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch

from paragrain.errors import ParagrainError, UsageError

Vectors: TypeAlias = np.ndarray | torch.Tensor

UNIT_TOLERANCE = 5e-3
"""How far from 1 the length of a vector may be: rounding to bfloat16 moves it by up to 0.004."""


def unit_vectors(vectors: Any, name: str) -> Vectors:
    """Return `vectors` checked and as float32 [N, D].

    Arrays stay arrays and CUDA tensors stay on their device; any other tensor becomes an array.
    What already has the right form is not copied.

    Args:
        vectors: [N, D] floating numbers of any width, an array or a tensor; each row of length 1.
        name: what a row is, in the singular, for messages (`"image"`).

    Raises:
        UsageError: not two-dimensional, not floating, or rows that do not have unit length.
        ParagrainError: no rows, or rows that hold NaN or infinity.

    >>> unit_vectors([[0.6, 0.8]], "image").dtype
    dtype('float32')
    """
    checked = _float32(vectors, name)
    if len(checked) == 0:
        raise ParagrainError(f"There are no {name} embeddings, so nothing can be ranked.")
    lengths = _lengths(checked)
    broken = ~np.isfinite(lengths)
    if broken.any():
        raise ParagrainError(
            f"{broken.sum()} of {len(lengths)} {name} embeddings hold NaN or infinity, the "
            f"first in row {broken.argmax()}; find out why the encoder gave them, for no rank can "
            "be told."
        )
    uneven = np.abs(lengths - 1) > UNIT_TOLERANCE
    if uneven.any():
        row = uneven.argmax()
        raise UsageError(
            f"{uneven.sum()} of {len(lengths)} {name} embeddings do not have length 1, the first "
            f"is row {row} with length {lengths[row]:.4g}; divide each vector by its length."
        )
    return checked


def same_place(images: Any, texts: Any) -> tuple[Vectors, Vectors]:
    """Check both sides; if either lies on a CUDA device, bring the other there.

    Raises:
        UsageError: the two sides differ in width; and as `unit_vectors`.
    """
    images, texts = unit_vectors(images, "image"), unit_vectors(texts, "text")
    if images.shape[1] != texts.shape[1]:
        raise UsageError(
            f"Image embeddings are {images.shape[1]} wide and text embeddings {texts.shape[1]}; "
            "encode both with the same model."
        )
    if isinstance(images, torch.Tensor):
        return images, torch.as_tensor(texts, device=images.device)
    if isinstance(texts, torch.Tensor):
        return torch.as_tensor(images, device=texts.device), texts
    return images, texts


def take(vectors: Vectors, order: np.ndarray) -> Vectors:
    """Return the rows of `vectors` in `order`; the very same object if that changes nothing."""
    if np.array_equal(order, np.arange(len(vectors))):
        return vectors
    if isinstance(vectors, torch.Tensor):
        return vectors[torch.from_numpy(order).to(vectors.device)]
    return vectors[order]


def on_host(values: Vectors) -> np.ndarray:
    """Return `values` as an array."""
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


@contextmanager
def full_precision() -> Iterator[None]:
    """Keep products in float32, on CUDA devices too, whatever the caller allows elsewhere."""
    matmul: Any = torch.backends.cuda.matmul
    # torch 2.9 brought `fp32_precision`; where it exists, reading the older switch can raise.
    newer = hasattr(matmul, "fp32_precision")
    name, exact = ("fp32_precision", "ieee") if newer else ("allow_tf32", False)
    before = getattr(matmul, name)
    setattr(matmul, name, exact)
    try:
        with torch.autocast("cuda", enabled=False):
            yield
    finally:
        setattr(matmul, name, before)


def _float32(vectors: Any, name: str) -> Vectors:
    if isinstance(vectors, torch.Tensor):
        tensor = vectors.detach()
        floating, shape = tensor.is_floating_point(), tuple(tensor.shape)
    else:
        vectors = np.asarray(vectors)
        floating, shape = np.issubdtype(vectors.dtype, np.floating), vectors.shape
    if len(shape) != 2 or shape[1] == 0:
        raise UsageError(f"{name.capitalize()} embeddings must have the shape [N, D], not {shape}.")
    if not floating:
        raise UsageError(
            f"{name.capitalize()} embeddings must be floating numbers, not {vectors.dtype}."
        )
    if not isinstance(vectors, torch.Tensor):
        return np.ascontiguousarray(vectors, dtype=np.float32)
    tensor = tensor.float().contiguous()
    return tensor if tensor.is_cuda else np.ascontiguousarray(tensor.cpu().numpy())


def _lengths(vectors: Vectors) -> np.ndarray:
    """Length of each row; not finite where a row holds NaN or infinity."""
    if isinstance(vectors, torch.Tensor):
        return on_host(torch.linalg.vector_norm(vectors, dim=1))
    with np.errstate(all="ignore"):
        return np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
