"""The folder of a checkpoint, on disk or from the Hub, and the device of a name."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import torch
from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from paragrain.encoders.checkpoint import set_aside
from paragrain.encoders.weights import first_line
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
