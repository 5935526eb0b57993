"""Open an encoder by name: one that ships here, a local folder or file, or a Hub name."""

import json
import re
from pathlib import Path

import torch

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.clip import ClipEncoder
from paragrain.encoders.finding import checkpoint_folder, choose_device, snapshot
from paragrain.encoders.longclip import load_longclip, stretch
from paragrain.encoders.siglip import SiglipEncoder
from paragrain.encoders.weights import SAFETENSORS
from paragrain.errors import ParagrainError

ENCODERS: dict[str, type[ImageTextEncoder]] = {
    "blip": BlipEncoder,
    "clip": ClipEncoder,
    "siglip": SiglipEncoder,
}
"""The encoder class for each `model_type` of a checkpoint's config.json."""

_STRETCHED = re.compile(r"(?P<name>.+)@(?P<positions>\d+)")

SHIPPED = ("blip0",)
"""Models inside the package."""

MODELS = Path(__file__).parents[1] / "models"
"""Where they are."""


def load_encoder(
    name_or_path: str | Path, device: str | torch.device | None = None
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
        device: such as `"cpu"` or `"cuda:1"`; by default a CUDA card if there is one.

    Raises:
        ParagrainError: it cannot be found, is of an architecture that is not supported, or
            its weights are incomplete; the sentence lists what is missing or left over.
        UsageError: the device does not exist here, or it cannot be stretched.
    """
    where = choose_device(device)
    encoder = _open(str(name_or_path))
    encoder.requires_grad_(False)
    return encoder.to(where).eval()


def _open(name: str) -> ImageTextEncoder:
    path = Path(name).expanduser()
    asked = _STRETCHED.fullmatch(name)
    if asked and not path.exists():
        return stretch(_open(asked["name"]), int(asked["positions"]))
    if path.suffix == ".pt" and path.is_file():
        return load_longclip(path, name)
    folder = _resolve(name)
    return ENCODERS[_model_type(folder, name)].from_folder(folder, name)


def _resolve(name: str) -> Path:
    """The local folder of a checkpoint, fetched from the Hub if need be."""
    if name in SHIPPED:
        folder = MODELS / name
        if not folder.is_dir():
            raise ParagrainError(
                f"this installation lacks its model {name}: reinstall paragrain, "
                "or name another model"
            )
        return folder
    return checkpoint_folder(name, _fetch)


def _fetch(name: str) -> Path:
    texts = ["*.json", "*.txt"]
    folder = snapshot(name, [*texts, "*.safetensors"])
    if any((folder / filename).is_file() for filename in SAFETENSORS):
        return folder
    return snapshot(name, [*texts, "pytorch_model*.bin"])


def _model_type(folder: Path, name: str) -> str:
    """The `model_type` of config.json, if an encoder is there for it."""
    path = folder / "config.json"
    if not path.is_file():
        inner = folder / "checkpoint"
        hint = f"; did you mean {inner}?" if (inner / "config.json").is_file() else ""
        raise ParagrainError(
            f"{name} is not a Hugging Face checkpoint: it has no config.json{hint}"
        )
    try:
        config = json.loads(path.read_bytes())
        kind = config["model_type"]
    except (ValueError, KeyError, TypeError) as error:
        raise ParagrainError(
            f"the config.json of {name} does not tell its model_type: fetch the checkpoint again"
        ) from error
    if kind not in ENCODERS:
        raise ParagrainError(
            f"{name} is a model of type {kind!r}, which is not supported: "
            f"use one of type {', '.join(ENCODERS)}, saved as BlipForImageTextRetrieval, "
            "CLIPModel or SiglipModel"
        )
    return kind
