"""Open an encoder by name: one that ships here, a local folder or file, or a Hub name."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import torch

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.finding import checkpoint_folder, choose_device, snapshot
from paragrain.encoders.kinds import (
    PAIR,
    TWO_TOWERS,
    encoder_class,
    open_folder,
    plugin_class,
    read_config,
    registered_encoders,
)
from paragrain.encoders.longclip import load_longclip, stretch
from paragrain.encoders.pair import PairEncoder
from paragrain.encoders.saving import set_aside
from paragrain.encoders.sentence import SentenceEncoder
from paragrain.encoders.trained_on import read_trained_on, together
from paragrain.encoders.vision import (
    EncoderVision,
    ImageTower,
    PrecomputedEmbeddings,
    VisionModel,
)
from paragrain.encoders.weights import SAFETENSORS
from paragrain.errors import ParagrainError, UsageError

_GIVEN = re.compile(r"vectors:(?P<name>[\w.-]+):(?P<dim>\d+)")
_STRETCHED = re.compile(r"(?P<name>.+)@(?P<positions>\d+)")
_REGISTERED = re.compile(r"(?P<encoder>[\w.-]+):(?P<name>.+)")

SHIPPED = ("blip0",)
"""Models inside the package."""

MODELS = Path(__file__).parents[1] / "models"
"""Where they are."""


def load_encoder(
    name_or_path: str | os.PathLike[str] | ImageTextEncoder,
    device: str | torch.device | None = None,
) -> ImageTextEncoder:
    """Open an image-text encoder in float32, ready to encode, its weights frozen.

    Weights are read from safetensors, or from `.bin` files with `weights_only`; half-precision
    ones become float32. Code from the Hub is never run.

    Args:
        name_or_path: `"blip0"` for the tiny model that ships with the package, a folder in the
            Hugging Face layout, or a Hub name such as `"Salesforce/blip-itm-base-coco"`; a BLIP,
            CLIP or SigLIP. With `HF_HUB_OFFLINE=1` a Hub name is looked up in the local cache
            only. Also an original Long-CLIP file such as `"longclip-B.pt"`, with a tokenizer
            beside it (see `longclip.load_longclip`). Any CLIP with `@248` behind its name, as in
            `"openai/clip-vit-base-patch16@248"`, is stretched to so many tokens (see `stretch`).
            `"VISION+TEXT"` is a pair (see `PairEncoder`), such as
            `"facebook/dinov2-base+sentence-transformers/all-MiniLM-L6-v2"`: VISION is a Hugging
            Face vision model, anything above (its image side), or `vectors:NAME:WIDTH` for
            vectors that `paragrain embed --vectors` stored; TEXT is a Hugging Face text encoder.
            `"ENCODER:NAME"` opens NAME by an encoder that was registered (`register_encoder`, or
            a package that brings it); what such an encoder saved needs no prefix.
            Also the folder of a training run, whose checkpoint is opened; an encoder is given back
            as it is.
        device: such as `"cpu"` or `"cuda:1"`; by default a CUDA card if there is one.

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
    encoder = _open(_of_run(os.fspath(name_or_path)))
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


def _open(name: str) -> ImageTextEncoder:
    path = Path(name).expanduser()
    if "+" in name and not path.exists():
        vision, text = pair_names(name)
        folder = _resolve(text, _fetch_all)
        side = _vision(vision)
        pair = PairEncoder(side, SentenceEncoder.from_folder(folder, text), name)
        known = [read_trained_on(folder)]
        if isinstance(side, EncoderVision) and side.encoder.trained_on is not None:
            known.append(side.encoder.trained_on.of_vision())
        pair.trained_on = together(known)
        return pair
    asked = _STRETCHED.fullmatch(name)
    if asked and not path.exists():
        return stretch(_open(asked["name"]), int(asked["positions"]))
    if path.suffix == ".pt" and path.is_file():
        return load_longclip(path, name)
    by = _REGISTERED.fullmatch(name)
    if by and not path.exists():
        plugin = registered_encoders().get(by["encoder"])
        if plugin is None:
            raise UsageError(
                f"there is no folder {name}, and no encoder {by['encoder']} is registered here: "
                "install the package that brings it, or name a folder or a Hub name"
            )
        return open_folder(plugin_class(plugin), _resolve(by["name"]), name)
    folder = _resolve(name)
    config = read_config(folder, name)
    kind = encoder_class(config, name)
    if config["model_type"] == PAIR:
        there = path.is_dir() or (folder / "text").is_dir()
        kind, folder = kind or PairEncoder, folder if there else _fetch_all(name)
    if kind is None:
        raise ParagrainError(
            f"{name} is a model of type {config['model_type']!r}, which is not supported: "
            f"use one of type {', '.join((*TWO_TOWERS, PAIR))}, saved as "
            "BlipForImageTextRetrieval, CLIPModel or SiglipModel, pair it with a text encoder as "
            "VISION+TEXT, or register an encoder for it"
        )
    return open_folder(kind, folder, name)


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


def _vision(name: str) -> ImageTower:
    """The image side that a name stands for."""
    given = _GIVEN.fullmatch(name)
    if given and int(given["dim"]):
        return PrecomputedEmbeddings(given["name"], int(given["dim"]))
    if name.startswith("vectors:"):
        raise UsageError(
            f"{name} does not name given vectors: write vectors:NAME:WIDTH, as "
            "`paragrain embed --vectors` says it"
        )
    path = Path(name).expanduser()
    if not path.is_dir() and (path.is_file() or _STRETCHED.fullmatch(name)):
        return EncoderVision(_open(name))
    if _REGISTERED.fullmatch(name) and not path.exists():
        return EncoderVision(_open(name))
    folder = _resolve(name)
    config = read_config(folder, name)
    if config["model_type"] == PAIR or encoder_class(config, name) is not None:
        return EncoderVision(_open(name))
    return VisionModel.from_folder(folder, name)


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
    texts = ["*.json", "*.txt", *(["*.model"] if inner else [])]
    folder = snapshot(name, [*texts, "*.safetensors"], inner=inner)
    if any((folder / filename).is_file() for filename in (*SAFETENSORS, "text/" + SAFETENSORS[0])):
        return folder
    return snapshot(name, [*texts, "*pytorch_model*.bin"], inner=inner)


def _fetch_all(name: str) -> Path:
    """A Hub repository with its inner folders, of which a text encoder or a pair has some."""
    return _fetch(name, inner=True)
