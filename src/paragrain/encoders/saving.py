"""Checkpoints as complete Hugging Face folders that appear whole or not at all."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from paragrain.encoders.weights import quiet_transformers


def save_folder(folder: Path, model: Any, parts: Sequence[Any]) -> None:
    """Save `model` and its `parts` (anything with `save_pretrained`) to `folder`.

    Everything is written to a temporary folder beside it, which then takes its place. A kill
    leaves the old folder, or, in the instant between two renames, that folder under a hidden
    name; never half a new one.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  `resolve` would follow a link
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with quiet_transformers():
            model.save_pretrained(temporary, state_dict=untied(model.state_dict()))
            for part in parts:
                part.save_pretrained(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def untied(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give every name its own memory, since safetensors refuses tensors that share it."""
    seen: set[int] = set()
    result = {}
    for name, tensor in state.items():
        memory = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return result
