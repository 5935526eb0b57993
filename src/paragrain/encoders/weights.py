"""Parts of a checkpoint into objects: weights with nothing missing or left over, tokenizers, ..."""

import hashlib
import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, PretrainedConfig
from transformers.utils import logging

from paragrain.errors import ParagrainError

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")

NOTE = "paragrain"
"""Under this name the `config.json` of a checkpoint says which encoder it was, and its length."""

_SAYS_NOTHING = {
    *"_name_or_path architectures transformers_version dtype torch_dtype id2label label2id".split(),
    *"problem_type use_cache auto_map image_processor_type feature_extractor_type".split(),
    *("processor_class", NOTE),
}

# Buffers that old checkpoints hold and `transformers` makes itself.
_IGNORED = re.compile(r"(^|\.)position_ids$")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars or advice from `transformers` while the block runs."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def one_sentence(what: str, advice: str = "fetch the checkpoint again") -> Iterator[None]:
    """Whatever fails while the block runs becomes a sentence: what is wrong, why, what to do.

    `transformers` keeps quiet meanwhile.

    >>> with one_sentence("it is damaged"):
    ...     raise ValueError("no")
    Traceback (most recent call last):
    paragrain.errors.ParagrainError: it is damaged (ValueError: no): fetch the checkpoint again
    """
    try:
        with quiet_transformers():
            yield
    except ParagrainError:
        raise
    except Exception as error:
        raise ParagrainError(f"{what} ({first_line(error)}): {advice}") from error


def load_part(
    kind: Any,
    folder: Path,
    name: str,
    what: str,
    files: Sequence[str],
    trust_remote_code: bool = False,
) -> Any:
    """Load the tokenizer or image processor of class `kind` from `folder`, without the network.

    Args:
        kind: the class.
        folder: where its files are.
        name: what the user calls the checkpoint.
        what: what the user calls the part.
        files: one of these must be there, or `transformers` would make one up from defaults.
        trust_remote_code: run code of the checkpoint's own.

    Raises:
        ParagrainError: it is absent or unreadable.
    """
    if not any((folder / filename).is_file() for filename in files):
        raise ParagrainError(
            f"{name} lacks its {what}: put the checkpoint's {' or '.join(files)} beside its weights"
        )
    with one_sentence(f"the {what} of {name} cannot be read"):
        # Said aloud, since without it `transformers` asks at a terminal.
        return kind.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )


def make_model(
    kind: Any,
    config: Any | Path,
    state: Mapping[str, torch.Tensor],
    name: str,
    **options: Any,
) -> Any:
    """A model of class `kind` in float32 on the CPU, with exactly these weights.

    Args:
        kind: the class.
        config: its configuration, or the folder that holds it.
        state: the weights, in any precision, by their names in the model.
        name: what the user calls the checkpoint.
        options: further arguments of the class.

    Raises:
        ParagrainError: names and shapes do not match.
    """
    # Copies, also of what is float32: tensors mapped from a file lie at odd addresses, where
    # sums round otherwise than they do for the same weights elsewhere.
    state = {
        key: tensor.to(torch.float32, copy=True)
        for key, tensor in state.items()
        if not _IGNORED.search(key)
    }
    with one_sentence(f"{name} cannot be loaded as {kind.__name__}", "check its config.json"):
        if isinstance(config, Path):
            config = kind.config_class.from_pretrained(config, local_files_only=True)
        _check_layers(config, len(state))
        model, info = kind.from_pretrained(
            None,
            config=config,
            state_dict=state,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are reported below, with the others
            output_loading_info=True,
            **options,
        )
    problems = {
        "missing": info["missing_keys"],
        "unexpected": info["unexpected_keys"],
        "of another shape": [key[0] for key in info["mismatched_keys"]],
    }
    if any(problems.values()):
        counts = "; ".join(
            f"{len(names)} {problem}: {_some(sorted(names))}"
            for problem, names in problems.items()
            if names
        )
        raise ParagrainError(
            f"{name} does not hold the weights of a {kind.__name__} ({counts}): "
            "use a checkpoint of that class"
        )
    return model


def _check_layers(config: Any, tensors: int) -> None:
    """Refuse a configuration of more layers than there are weights, before any is made.

    Each would be made before it is found missing, and a damaged number may be of any size.

    Raises:
        ValueError: it has.
    """
    parts = (part for part in vars(config).values() if isinstance(part, PretrainedConfig))
    for part in (config, *parts):
        layers = getattr(part, "num_hidden_layers", None)
        if isinstance(layers, int) and layers > tensors:
            raise ValueError(f"{layers:,} layers are asked for, and {tensors:,} weights are there")


def load_bare(folder: Path, name: str) -> Any:
    """The model of a folder in float32 on the CPU, as `AutoModel` gives it.

    Heads for other tasks are left out. Where the checkpoint has no weights for the model's pooler
    (those of language models and of image classifiers do not), the model gets none; the library
    would make them up.

    Raises:
        ParagrainError: the library has no such model of its own, or the weights do not match.
    """
    with one_sentence(
        f"{name} cannot be opened as a Hugging Face model",
        "use a checkpoint whose model_type transformers knows without code of its own",
    ):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        kind = MODEL_MAPPING[type(config)]
        with torch.device("meta"):
            names = kind(config).state_dict().keys()
    state = without_prefix(read_weights(folder, name))
    prefix = kind.base_model_prefix + "."
    within = any(key.startswith(prefix) for key in state)
    if within and not any(key.startswith(prefix) for key in names):
        state = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    made_up = _has_pooler(names) and not _has_pooler(state)
    return make_model(
        kind, config, state, name, **({"add_pooling_layer": False} if made_up else {})
    )


def _has_pooler(names: Any) -> bool:
    return any(name.startswith("pooler.") for name in names)


def plain_settings(part: Any) -> dict[str, Any]:
    """What a configuration or processor says about how it computes: not names and versions."""
    return {key: value for key, value in part.to_dict().items() if key not in _SAYS_NOTHING}


def read_weights(place: Path, name: str) -> dict[str, torch.Tensor]:
    """The weights of one file, or all of a Hugging Face folder, by name and as they are stored.

    Raises:
        ParagrainError: there are none, or they cannot be read safely.
    """
    files = [place / file for file in (*SAFETENSORS, *PICKLES)] if place.is_dir() else [place]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        raise ParagrainError(
            f"{name} holds no weights: its folder needs {SAFETENSORS[0]} or {PICKLES[0]}"
        )
    with one_sentence(f"the weights of {name} in {path.name} cannot be read"):
        if path.suffix != ".json":
            return _read_file(path)
        state: dict[str, torch.Tensor] = {}
        for shard in sorted(set(json.loads(path.read_bytes())["weight_map"].values())):
            # Shard names come from the checkpoint: only plain names, never a path elsewhere.
            state |= _read_file(path.parent / Path(shard).name)
        return state


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        return load_file(path)
    state = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(state.get("state_dict"), dict):  # beside what a training run went on from
        state = state["state_dict"]
    if not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise ValueError("not a plain dictionary of weights")
    return state


def without_prefix(state: dict[str, torch.Tensor], prefix: str = "module.") -> dict:
    """Drop the prefix that wrappers for several processes leave, where every name has it.

    >>> without_prefix({"module.a": 1, "module.b": 2})
    {'a': 1, 'b': 2}
    >>> without_prefix({"module.a": 1, "b": 2})
    {'module.a': 1, 'b': 2}
    """
    while state and all(key.startswith(prefix) for key in state):
        state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return state


def fingerprint(tensors: Mapping[str, torch.Tensor], settings: Mapping[str, Any]) -> str:
    """128-bit hex of named weights, as float32, and of plain settings."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu", torch.float32).contiguous()
        digest.update(f"\n{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def effective_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name; of a layer with an adapter, the weight that it computes with."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in module.named_parameters():
        place, adapted, rest = f".{name}".rpartition(".parametrizations.")
        if not adapted:
            found[name] = parameter
        elif rest.endswith(".original"):
            place, attribute = place.removeprefix("."), rest.removesuffix(".original")
            weight = getattr(module.get_submodule(place), attribute)
            found[f"{place}.{attribute}".removeprefix(".")] = weight
    return found


def first_line(error: Exception) -> str:
    """The gist of another library's error, short enough for a sentence."""
    if isinstance(error, SafetensorError):
        return f"not a whole safetensors file: {error}"
    if isinstance(error, pickle.UnpicklingError):  # whose own words advise to open it unsafely
        return "a pickle that is damaged or holds more than weights, and so is not opened"
    lines = str(error).strip().splitlines() or [""]
    text = " ".join(f"{type(error).__name__}: {lines[0]}".split())
    return text if len(text) <= 200 else text[:199] + "…"


def _some(names: list[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
