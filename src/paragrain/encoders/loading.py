"""Open an encoder by name: one that ships here, a local folder or file, or a Hub name."""

import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image

from paragrain.encoders.base import (
    ImageTextEncoder,
    ImageTower,
    encode_pixels,
    encode_tokens,
)
from paragrain.encoders.checkpoint import SAFETENSORS, first_line, is_own, set_aside
from paragrain.encoders.longclip import is_weight_file, load_longclip, stretch
from paragrain.encoders.pair import ModelTower, PairEncoder, PrecomputedEmbeddings
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
from paragrain.errors import ParagrainError, UsageError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device of a name; without one, a CUDA card if there is one.

    Raises:
        UsageError: it cannot be used here.
    """
    if device is None:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        # One of several processes takes the card that its launcher meant for it.
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"the device {device} cannot be used here ({first_line(error)}): "
            "leave it out, or ask for cpu"
        ) from error
    return where


def checkpoint_folder(name: str, fetch: Callable[[str], Path]) -> Path:
    """The local folder of a checkpoint.

    Args:
        name: a folder, or a name on the Hugging Face Hub.
        fetch: brings the files of a Hub name that are needed, or finds them in the local cache.

    Raises:
        UsageError: there is no such folder, and no name on the Hub looks like this.
        ParagrainError: the Hub does not give it.
    """
    if not name.strip():
        raise UsageError("the name of the model is empty: name a checkpoint's folder or a Hub name")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if (set_aside(folder) / "config.json").is_file() and not folder.exists():
        return set_aside(folder)  # its successor was killed on its way
    if folder.exists():
        raise UsageError(f"{name} is a file: name the folder that holds the checkpoint")
    if not _HUB_NAME.fullmatch(name):
        raise UsageError(f"there is no folder {name}: name a checkpoint's folder or a Hub name")
    try:
        return fetch(name)
    except LocalEntryNotFoundError as error:
        why = "HF_HUB_OFFLINE is set" if is_offline_mode() else "the Hub cannot be reached"
        raise ParagrainError(
            f"there is no folder {name}, and no such model in the cache of the Hugging Face Hub "
            f"on this machine, while {why}: check the name, connect to fetch it, or name a "
            "local folder"
        ) from error
    except Exception as error:
        raise ParagrainError(
            f"there is no folder {name}, and the Hugging Face Hub does not give it "
            f"({first_line(error)}): check the name and the connection, or name a local folder"
        ) from error


def snapshot(name: str, patterns: list[str], *, inner: bool = False) -> Path:
    """The top files of a Hub repository that match; with `inner` those of its folders too."""
    ignored = [] if inner else ["*/*"]
    return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=ignored))


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
        encoder, folder = encoder or PairEncoder, folder if there else _fetch(name, inner=True)
    if encoder is None and code_of(config) and trust_remote_code:
        return RemoteEncoder.from_folder(folder, name)
    if encoder is None:
        raise _unsupported(name, config)
    return open_folder(encoder, folder, name)


def _open_pair(name: str) -> ImageTextEncoder:
    vision, text = pair_names(name)
    folder = _resolve(text, inner=True)
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


def _resolve(name: str, *, inner: bool = False) -> Path:
    """The local folder of a checkpoint, fetched if need be; `inner` as for `snapshot`."""
    if name in SHIPPED:
        folder = MODELS / name
        if not folder.is_dir():
            raise ParagrainError(
                f"this installation lacks its model {name}: reinstall paragrain, "
                "or name another model"
            )
        return folder
    return checkpoint_folder(name, partial(_fetch, inner=inner))


def _fetch(name: str, *, inner: bool = False) -> Path:
    texts = ["*.json", "*.txt", "*.py", *(["*.model"] if inner else [])]
    folder = snapshot(name, [*texts, "*.safetensors"], inner=inner)
    if any((folder / filename).is_file() for filename in (*SAFETENSORS, "text/" + SAFETENSORS[0])):
        return folder
    return snapshot(name, [*texts, "*pytorch_model*.bin"], inner=inner)


LONG = 512
"""The longest text that is tried, in tokens: enough to be truncated at any usual maximum length."""

_SENTENCE = "Two dogs stand on a wet beach, and one of them has a stick in its mouth. "
_TEXTS = ("a red bus", _SENTENCE, _SENTENCE * 40)


def check_returns(encoder: ImageTextEncoder) -> None:
    """Refuse an encoder whose checkpoint would open as another one, before anything is trained.

    The classes of this package are known to return, unless one has a method of its own put in
    place of the class's. Any other is saved and opened once.

    Raises:
        UsageError: it would not return as itself.
    """
    parts = encoder.parts()
    foreign = [type(part).__name__ for part in parts if not is_own(part) or _is_patched(part)]
    if not foreign:
        return
    try:
        with tempfile.TemporaryDirectory() as place:
            encoder.save(Path(place) / "checkpoint")
            again = load_encoder(Path(place) / "checkpoint", encoder.device)
            why = _difference(encoder, again)
    except ParagrainError as error:
        why = str(error)
    except Exception as error:  # of the other package's code
        why = first_line(error)
    if why:
        raise UsageError(
            f"a checkpoint of {encoder.name} would not open as {foreign[0]} again ({why}): "
            "register the class with paragrain.register_encoder, and let it save and load all "
            "that decides its vectors"
        )


def _difference(encoder: ImageTextEncoder, again: ImageTextEncoder) -> str:
    """In what an encoder that was saved and opened differs, in words; "" if in nothing."""
    if type(encoder).__qualname__ != type(again).__qualname__:
        return f"it opens as {type(again).__name__}"
    max_length = min(encoder.max_tokens, again.max_tokens, LONG)
    before, after = (
        encode_tokens(one, one.tokenize(_TEXTS, max_length)) for one in (encoder, again)
    )
    if not np.allclose(before, after, atol=1e-4):
        return "its texts get other vectors"
    if encoder.reads_images:
        before, after = (encode_pixels(one, [one.pixels(_picture())]) for one in (encoder, again))
        if not np.allclose(before, after, atol=1e-4):
            return "its images get other vectors"
    if encoder.text_fingerprint != again.text_fingerprint:
        return "its text tower has other weights or settings"
    if encoder.vision_fingerprint != again.vision_fingerprint:
        return "its image tower has other weights or settings"
    return ""


def _is_patched(part: object) -> bool:
    """Whether an object holds something in the place of a method of its class."""
    return any(callable(getattr(type(part), name, None)) for name in vars(part))


def _picture() -> Image.Image:
    """A picture that is no mirror image of itself, and has no two regions alike."""
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
