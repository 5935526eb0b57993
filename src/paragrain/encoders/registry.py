"""The class that opens a checkpoint: one of the families by `model_type`, or a registered one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.checkpoint import GROUP, read_note
from paragrain.encoders.clip import ClipEncoder
from paragrain.encoders.family import FamilyEncoder
from paragrain.encoders.fgclip2 import FgClip2Encoder
from paragrain.encoders.siglip import SiglipEncoder
from paragrain.encoders.trained_on import read_trained_on
from paragrain.encoders.weights import one_sentence
from paragrain.errors import ParagrainError, UsageError
from paragrain.plugins import Plugin, register, registered

FAMILIES: dict[str, type[FamilyEncoder]] = {
    encoder.family.model_type: encoder
    for encoder in (BlipEncoder, ClipEncoder, SiglipEncoder, FgClip2Encoder)
}
"""The encoder class for each `model_type` of a checkpoint that holds both towers."""

PAIR = "paragrain-pair"
"""`model_type` in the config.json of a saved pair."""

Encoder = TypeVar("Encoder", bound=type[ImageTextEncoder])


def register_encoder(name: str) -> Callable[[Encoder], Encoder]:
    """Register a subclass of `ImageTextEncoder`, so that its checkpoints open as itself.

    In this process only; a package that names the class in its entry points, in the group
    `paragrain.encoders`, needs no more. `load_encoder("NAME:CHECKPOINT")` opens any checkpoint by
    it, and what it saves opens by itself. A checkpoint whose `model_type` is the name does too.

    Raises:
        UsageError: the name is taken, or it is no such class.

    >>> @register_encoder("tiny-blip")
    ... class TinyBlip(BlipEncoder):
    ...     pass
    >>> type(registered("paragrain.encoders")["tiny-blip"].load()) is type(TinyBlip)
    True
    """

    def apply(kind: Encoder) -> Encoder:
        if name in FAMILIES or name == PAIR:
            raise UsageError(f"{name} is a kind of paragrain's own: choose another name")
        if not (isinstance(kind, type) and issubclass(kind, ImageTextEncoder)):
            raise UsageError(f"{kind!r} cannot be an encoder: register a subclass of it")
        register(GROUP, name, kind)
        return kind

    return apply


def registered_encoders() -> dict[str, Plugin]:
    """The encoders that this process or installed packages have registered, by name."""
    return registered(GROUP)


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """The content of a checkpoint's `config.json`, which tells its `model_type`.

    Raises:
        ParagrainError: it is absent or damaged.
    """
    path = folder / "config.json"
    if not path.is_file():
        inner = folder / "checkpoint"
        hint = f"; did you mean {inner}?" if (inner / "config.json").is_file() else ""
        raise ParagrainError(
            f"{name} is not a Hugging Face checkpoint: it has no config.json{hint}"
        )
    try:
        config = dict(json.loads(path.read_bytes()))
        config["model_type"] = str(config["model_type"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ParagrainError(
            f"the config.json of {name} does not tell its model_type: fetch the checkpoint again"
        ) from error
    return config


def encoder_class(config: dict[str, Any], name: str) -> type[ImageTextEncoder] | None:
    """The class that opens a checkpoint with both towers; `None` if there is none.

    Raises:
        ParagrainError: it was saved by an encoder that is not registered here.
    """
    note = read_note(config, name)
    if note.encoder is None and config["model_type"] in FAMILIES:
        return FAMILIES[config["model_type"]]
    wanted = note.encoder or config["model_type"]
    plugin = registered_encoders().get(wanted)
    if plugin is None and note.encoder is None:
        return None
    if plugin is None:
        raise ParagrainError(
            f"{name} was saved by the encoder {wanted!r} ({note.origin or 'of unknown origin'}), "
            "which is not registered here: install the package that brings it, or register the "
            "class with paragrain.register_encoder first"
        )
    return plugin_class(plugin)


def plugin_class(plugin: Plugin) -> type[ImageTextEncoder]:
    """The class of a registered encoder.

    Raises:
        ParagrainError: it cannot be imported, or is no encoder.
    """
    kind = plugin.load()
    if not (isinstance(kind, type) and issubclass(kind, ImageTextEncoder)):
        raise ParagrainError(
            f"the plugin {plugin.name} ({plugin.origin}) is no subclass of ImageTextEncoder: "
            "mend or uninstall it"
        )
    return kind


def open_folder(kind: type[ImageTextEncoder], folder: Path, name: str) -> ImageTextEncoder:
    """The encoder of a folder, with what the folder says of it: its maximum length, its training.

    Raises:
        ParagrainError: see `from_folder`; an encoder of another package fails in whatever way.
    """
    with one_sentence(f"{kind.__name__} cannot open {name}", "name a checkpoint of its kind"):
        encoder = kind.from_folder(folder, name)
    max_length = read_note(read_config(folder, name), name).max_length
    if max_length is not None:
        encoder.max_length = min(max_length, encoder.max_tokens)
    encoder.trained_on = read_trained_on(folder)
    return encoder
