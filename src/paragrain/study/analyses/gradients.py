"""Gradients of a cosine at the vectors of a text's tokens, for any encoder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import ParagrainError


def input_embeddings(encoder: ImageTextEncoder) -> nn.Embedding:
    """The table in which the text side of an encoder looks its token ids up.

    Raises:
        ParagrainError: no model inside says which table that is.
    """
    parts = [getattr(encoder, "text", None), encoder.model]
    for module in (module for part in parts if part is not None for module in part.modules()):
        if not isinstance(module, PreTrainedModel):
            continue
        try:
            found = module.get_input_embeddings()
        except NotImplementedError:
            continue
        if isinstance(found, nn.Embedding):
            return found
    raise ParagrainError(
        f"{encoder.name} does not say where its text encoder looks tokens up, so nothing can be "
        "told of single tokens: use a Hugging Face text encoder"
    )


@contextmanager
def watched(encoder: ImageTextEncoder) -> Iterator[list[torch.Tensor]]:
    """Gradients on and dropout off while the block runs; yields the token vectors it looks up.

    Each call of `text_features` adds one tensor [B, L, H] to the list, of which gradients can be
    asked; L counts what the encoder fills texts up with. Weights get no gradients of this.
    """
    leaves: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1].clone()  # some models add to it in place

    handle = input_embeddings(encoder).register_forward_hook(keep)
    training = encoder.training
    encoder.eval()
    try:
        with torch.enable_grad():
            yield leaves
    finally:
        handle.remove()
        encoder.train(training)
