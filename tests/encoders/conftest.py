"""A tiny random BLIP, opened once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paragrain.encoders import BlipEncoder, load_encoder


@pytest.fixture(scope="session")
def blip(random_blip: Path) -> BlipEncoder:
    encoder = load_encoder(random_blip, device="cpu")
    assert isinstance(encoder, BlipEncoder)
    return encoder


@pytest.fixture
def checkpoint(random_blip: Path, tmp_path: Path) -> Path:
    """A copy of the random BLIP's folder, to be damaged at will."""
    return Path(shutil.copytree(random_blip, tmp_path / "checkpoint"))


@pytest.fixture
def rewrite() -> Callable[[Path, Callable[[dict], dict]], None]:
    """Replace the weights of a folder by `change(weights)`."""
    from safetensors.torch import load_file, save_file

    def apply(folder: Path, change: Callable[[dict], dict]) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return apply
