"""A checkpoint on disk: a complete Hugging Face folder that appears whole or not at all.

What it says beside its model (which encoder opens it, how much of a text it reads) stands in
`config.json` under "paragrain", where plain `transformers` keeps it and ignores it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from paragrain.encoders.tokens import MIN_LENGTH
from paragrain.encoders.weights import (
    NOTE,
    effective_tensors,
    first_line,
    one_sentence,
    quiet_transformers,
)
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_json
from paragrain.plugins import plugin_of

if TYPE_CHECKING:
    from paragrain.encoders.base import ImageTextEncoder

GROUP = "paragrain.encoders"
"""Entry points by which other packages add encoders."""


def write_model(folder: Path, model: Any) -> None:
    """Write weights and configuration of a model of `transformers` to a folder that is there.

    Weights of layers with adapters are written as they compute, so that the folder needs none.
    """
    state = {n: tensor for n, tensor in model.state_dict().items() if ".parametrizations." not in n}
    state |= {n: t.detach() for n, t in effective_tensors(model).items() if n not in state}
    model.save_pretrained(folder, state_dict=untied(state))


def write_tokenizer(folder: Path, tokenizer: Any, max_length: int, **more: str | None) -> None:
    """Write a tokenizer that in plain libraries reads as it does here.

    Asked to truncate, it keeps the beginning of a text, and what names a special token in a text is
    text. `more` are further settings for its configuration; one that is `None` is left out.
    """
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    says = {
        "model_max_length": max_length,
        "split_special_tokens": True,
        "truncation_side": "right",
        "padding_side": "right",
        **more,
    }
    left_out = {name for name, value in more.items() if value is None}
    content = {**read_json(path), **says}
    write_json(path, {name: value for name, value in content.items() if name not in left_out})


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `folder` that takes its place when the block ends well.

    A kill leaves the old folder, or, in the instant between two renames, that folder under a
    hidden name, where it is found and from which the next save recovers it; never half a new one.
    The block writes a `config.json`, by which a checkpoint is told from other folders.

    Raises:
        UsageError: something other than a checkpoint is there, which is left alone.
        ParagrainError: it cannot be written.
    """
    folder = folder.resolve()
    if folder.exists() and not _replaceable(folder):
        raise UsageError(
            f"{folder} is there already and is no checkpoint: name a new folder to save to"
        )
    temporary = folder.with_name(f".{folder.name}.tmp")
    old = set_aside(folder)
    recover(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        with quiet_transformers():
            yield temporary
        _share_as_others(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    except (OSError, SafetensorError) as error:
        raise ParagrainError(
            f"the checkpoint {folder} cannot be written ({first_line(error)}): "
            "make room, or save it elsewhere"
        ) from error
    finally:
        recover(folder)
        shutil.rmtree(temporary, ignore_errors=True)


def _share_as_others(folder: Path) -> None:
    """Give files the permissions that new files get; safetensors lets the owner alone read."""
    usual = (folder / "config.json").stat().st_mode
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(usual)


def set_aside(folder: Path) -> Path:
    """Where the old folder is while the new one takes its place."""
    return folder.with_name(f".{folder.name}.old")


def recover(folder: Path) -> None:
    """Put the old folder back if a save was killed before the new one was in its place."""
    old = set_aside(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _replaceable(folder: Path) -> bool:
    """Whether it is an empty folder or a checkpoint, and no folder of the user's other files."""
    return folder.is_dir() and ((folder / "config.json").is_file() or not any(folder.iterdir()))


def untied(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give every name its own memory, since safetensors refuses tensors that share it."""
    seen: set[int] = set()
    result = {}
    for name, tensor in state.items():
        memory = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return result


@dataclass(frozen=True)
class Note:
    """What a checkpoint says.

    Attributes:
        max_length: read of a text unless another is asked for; `None` if not said.
        encoder: the name under which its class is registered; `None` for one of paragrain's own.
        origin: where that class came from, in words.
    """

    max_length: int | None = None
    encoder: str | None = None
    origin: str = ""


def is_own(thing: object) -> bool:
    """Whether an object is of a class of this package, and no subclass made elsewhere."""
    return type(thing).__module__.partition(".")[0] == __name__.partition(".")[0]


def write_note(folder: Path, encoder: "ImageTextEncoder") -> None:
    """Put the note of an encoder into the `config.json` of its folder."""
    note: dict[str, Any] = {"max_length": encoder.max_length}
    kind = type(encoder)
    if not is_own(encoder):
        place = f"{kind.__module__}:{kind.__qualname__}"
        plugin = plugin_of(GROUP, kind)
        note["encoder"] = plugin.name if plugin else place
        note["from"] = plugin.origin if plugin else place
    path = folder / "config.json"
    write_json(path, {**read_json(path), NOTE: note})


def read_note(config: dict[str, Any], name: str) -> Note:
    """The note in the content of a `config.json`; an empty one where there is none.

    Raises:
        ParagrainError: it is damaged.
    """
    note = config.get(NOTE, {})
    with one_sentence(f"what the config.json of {name} says under {NOTE!r} is damaged"):
        tokens, encoder = note.get("max_length"), note.get("encoder")
        if tokens is not None and (type(tokens) is not int or tokens < MIN_LENGTH):
            raise ValueError(f"{tokens!r} tokens")
        if encoder is not None and not isinstance(encoder, str):
            raise ValueError(f"the encoder {encoder!r}")
        origin = "".join(c for c in str(note.get("from", "")) if c.isprintable())
        return Note(tokens, encoder, origin[:200])
