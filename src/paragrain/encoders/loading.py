"""Open an encoder by name: one that ships here, a local folder or file, or a Hub name."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paragrain.encoders.base import ImageTextEncoder, ImageTower
from paragrain.encoders.checkpoint import set_aside
from paragrain.encoders.hub import checkpoint_folder, choose_device, snapshot
from paragrain.encoders.longclip import is_weight_file, load_longclip, stretch
from paragrain.encoders.pair import PairEncoder
from paragrain.encoders.registry import (
    FAMILIES,
    PAIR,
    encoder_class,
    open_folder,
    plugin_class,
    read_config,
    registered_encoders,
)
from paragrain.encoders.remote import RemoteEncoder, code_of
from paragrain.encoders.sentence import SentenceEncoder
from paragrain.encoders.trained_on import read_trained_on, together
from paragrain.encoders.vision import ModelTower, PrecomputedEmbeddings
from paragrain.encoders.weights import SAFETENSORS
from paragrain.errors import ParagrainError, UsageError

_PRECOMPUTED = re.compile(r"vectors:(?P<name>[\w.-]+):(?P<dim>\d+)")
_STRETCHED = re.compile(r"(?P<name>.+)@(?P<positions>\d+)")
_REGISTERED = re.compile(r"(?P<encoder>[\w.-]+):(?P<name>.+)")

SHIPPED = ("blip0",)
"""Models inside the package."""

MODELS = Path(__file__).parents[1] / "models"
"""Where they are."""


def load_encoder(
    name_or_path: str | os.PathLike[str] | ImageTextEncoder,
    device: str | torch.device | None = None,
    *,
    trust_remote_code: bool = False,
) -> ImageTextEncoder:
    """Open an image-text encoder in float32, ready to encode, its weights frozen.

    Weights are read from safetensors, or from `.bin` files with `weights_only`; half-precision
    ones become float32. Code that came with a checkpoint is run only where that is asked for.

    Args:
        name_or_path: `"blip0"` for the tiny model that ships with the package, a folder in the
            Hugging Face layout, or a Hub name such as `"Salesforce/blip-itm-base-coco"`; a BLIP,
            CLIP, SigLIP or FG-CLIP 2. With `HF_HUB_OFFLINE=1` a Hub name is looked up in the local
            cache only. Also a file of Long-CLIP, HiMo-CLIP or DeBias-CLIP such as
            `"longclip-B.pt"`, with a tokenizer beside it (see `longclip.load_longclip`). Any CLIP
            with `@248` behind its name, as in `"openai/clip-vit-base-patch16@248"`, is stretched to
            so many tokens (see `stretch`).
            `"VISION+TEXT"` is a pair (see `PairEncoder`), such as
            `"facebook/dinov2-base+sentence-transformers/all-MiniLM-L6-v2"`: VISION is a Hugging
            Face vision model, anything above (its image tower), or `vectors:NAME:WIDTH` for
            vectors that `paragrain embed --vectors` stored; TEXT is a Hugging Face text encoder.
            `"ENCODER:NAME"` opens NAME by an encoder that was registered (`register_encoder`, or
            a package that brings it); what such an encoder saved needs no prefix.
            Also the folder of a training run, whose checkpoint is opened; an encoder is given back
            as it is.
        device: such as `"cpu"` or `"cuda:1"`; by default a CUDA card if there is one.
        trust_remote_code: run the code that a checkpoint of an unknown architecture names.

    Raises:
        ParagrainError: it cannot be found, is of an architecture that is not supported, or
            its weights are incomplete; the sentence lists what is missing or left over.
        UsageError: the device does not exist here, it cannot be stretched, or is no model at all.
    """
    if isinstance(name_or_path, ImageTextEncoder):
        return name_or_path
    if not isinstance(name_or_path, str | os.PathLike):
        raise UsageError(
            f"a model is an encoder, its name or its folder, not {type(name_or_path).__name__}: "
            "name one such as blip0"
        )
    where = choose_device(device)
    encoder = _open(_of_run(os.fspath(name_or_path)), trust_remote_code)
    encoder.requires_grad_(False)
    return encoder.to(where).eval()


def _of_run(name: str) -> str:
    """The checkpoint of a training run, if the name is that of its folder."""
    folder = Path(name).expanduser()
    if not (folder / "run.yaml").is_file() or (folder / "config.json").is_file():
        return name
    if not any(
        place.is_dir() for place in (folder / "checkpoint", set_aside(folder / "checkpoint"))
    ):
        raise ParagrainError(
            f"the run {name} has no checkpoint yet: train it on, or name another model"
        )
    return str(Path(name) / "checkpoint")


def _open(name: str, trust_remote_code: bool = False) -> ImageTextEncoder:
    path = Path(name).expanduser()
    if is_weight_file(path):
        return load_longclip(path, name)
    if not path.exists():
        if "+" in name:
            return _open_pair(name)
        stretched = _STRETCHED.fullmatch(name)
        if stretched:
            return stretch(_open(stretched["name"]), int(stretched["positions"]))
        registered = _REGISTERED.fullmatch(name)
        if registered:
            return _open_registered(name, registered["encoder"], registered["name"])
    folder = _resolve(name)
    config = read_config(folder, name)
    encoder = encoder_class(config, name)
    if config["model_type"] == PAIR:
        there = path.is_dir() or (folder / "text").is_dir()
        encoder, folder = encoder or PairEncoder, folder if there else _fetch_all(name)
    if encoder is None and code_of(config) and trust_remote_code:
        return RemoteEncoder.from_folder(folder, name)
    if encoder is None:
        raise _unsupported(name, config)
    return open_folder(encoder, folder, name)


def _open_pair(name: str) -> ImageTextEncoder:
    vision, text = pair_names(name)
    folder = _resolve(text, _fetch_all)
    tower = _open_tower(vision)
    pair = PairEncoder(tower, SentenceEncoder.from_folder(folder, text), name)
    of_vision = tower.trained_on.of_vision() if tower.trained_on else None
    pair.trained_on = together([read_trained_on(folder), of_vision])
    return pair


def _open_registered(name: str, encoder: str, checkpoint: str) -> ImageTextEncoder:
    plugin = registered_encoders().get(encoder)
    if plugin is None:
        raise UsageError(
            f"there is no folder {name}, and no encoder {encoder} is registered here: "
            "install the package that brings it, or name a folder or a Hub name"
        )
    return open_folder(plugin_class(plugin), _resolve(checkpoint), name)


def _unsupported(name: str, config: dict[str, Any]) -> ParagrainError:
    kind = config["model_type"]
    if code_of(config):
        return ParagrainError(
            f"{name} is a model of type {kind!r} that runs code of its own ({code_of(config)}): "
            "if you trust who wrote it, ask for that by --trust-remote-code "
            "(trust_remote_code=True), else use a model of another type"
        )
    return ParagrainError(
        f"{name} is a model of type {kind!r}, which is not supported: "
        f"use one of type {', '.join((*FAMILIES, PAIR))}, saved as "
        f"{', '.join(encoder.family.model.__name__ for encoder in FAMILIES.values())}, "
        "pair it with a text encoder as VISION+TEXT, or register an encoder for it"
    )


def pair_names(name: str) -> tuple[str, str]:
    """The two names of `VISION+TEXT`, either of which may be a folder with a `+` in its name.

    >>> pair_names("facebook/dinov2-base+sentence-transformers/all-MiniLM-L6-v2")
    ('facebook/dinov2-base', 'sentence-transformers/all-MiniLM-L6-v2')
    """
    places = [place for place, letter in enumerate(name) if letter == "+"]
    pairs = [(name[:place], name[place + 1 :]) for place in places]
    there = [pair for pair in pairs if all("+" not in part or _is_there(part) for part in pair)]
    if not there or not all(there[0]):
        raise UsageError(
            f"{name} is neither a folder nor a pair: name a pair as VISION+TEXT, of folders that "
            "are there or Hub names"
        )
    return there[0]


def _is_there(name: str) -> bool:
    return bool(name) and Path(name).expanduser().exists()


def lasting_name(name: str) -> str:
    """A name that finds the encoder from any directory."""
    if "+" in name and not _is_there(name):
        return "+".join(lasting_name(part) for part in pair_names(name))
    by = _REGISTERED.fullmatch(name)
    if by and not _is_there(name):
        return f"{by['encoder']}:{lasting_name(by['name'])}"
    path, at, positions = name.partition("@")  # a stretched CLIP is FOLDER@248
    is_local = path not in SHIPPED and Path(path).exists()
    return f"{Path(path).resolve()}{at}{positions}" if is_local else name


def _open_tower(name: str) -> ImageTower:
    """The image tower that a name stands for."""
    stored = _PRECOMPUTED.fullmatch(name)
    if stored and int(stored["dim"]):
        return PrecomputedEmbeddings(stored["name"], int(stored["dim"]))
    if name.startswith("vectors:"):
        raise UsageError(
            f"{name} does not name stored vectors: write vectors:NAME:WIDTH, as "
            "`paragrain embed --vectors` says it"
        )
    path = Path(name).expanduser()
    named = _STRETCHED.fullmatch(name) or _REGISTERED.fullmatch(name)
    if path.is_file() or (named and not path.exists()):
        return _open(name)
    folder = _resolve(name)
    config = read_config(folder, name)
    if config["model_type"] == PAIR or encoder_class(config, name) is not None:
        return _open(name)
    return ModelTower.from_folder(folder, name)


def _resolve(name: str, fetch: Callable[[str], Path] | None = None) -> Path:
    """The local folder of a checkpoint, fetched from the Hub if need be."""
    if name in SHIPPED:
        folder = MODELS / name
        if not folder.is_dir():
            raise ParagrainError(
                f"this installation lacks its model {name}: reinstall paragrain, "
                "or name another model"
            )
        return folder
    return checkpoint_folder(name, fetch or _fetch)


def _fetch(name: str, *, inner: bool = False) -> Path:
    texts = ["*.json", "*.txt", "*.py", *(["*.model"] if inner else [])]
    folder = snapshot(name, [*texts, "*.safetensors"], inner=inner)
    if any((folder / filename).is_file() for filename in (*SAFETENSORS, "text/" + SAFETENSORS[0])):
        return folder
    return snapshot(name, [*texts, "*pytorch_model*.bin"], inner=inner)


def _fetch_all(name: str) -> Path:
    """A Hub repository with its inner folders, of which a text encoder or a pair has some."""
    return _fetch(name, inner=True)
