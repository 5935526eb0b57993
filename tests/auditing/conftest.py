"""Ways to make collections that share something, for all tests of this room."""

import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from paragrain.collection import Collection, Item, Record, write_collection
from paragrain.images import decode

KERNELS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)


def _collect(folder: Path, records: list[Record]) -> Collection:
    items = [Item(r.id, str(n), lambda r=r: r, trusted=True) for n, r in enumerate(records)]
    write_collection(folder, items, name=folder.name, source="test", progress=False)
    return Collection.open(folder)


def _worsened(data: bytes, rng: random.Random) -> bytes:
    image = decode(data)
    scale = rng.choice([1, 0.8, 0.5])
    size = (round(image.width * scale), round(image.height * scale))
    buffer = io.BytesIO()
    image.resize(size, rng.choice(KERNELS)).save(buffer, "JPEG", quality=rng.randint(30, 90))
    return buffer.getvalue()


@pytest.fixture(scope="session")
def collect() -> Callable[[Path, list[Record]], Collection]:
    """`collect(folder, records)`: a collection of them."""
    return _collect


@pytest.fixture(scope="session")
def worsened() -> Callable[[bytes, random.Random], bytes]:
    """`worsened(data, rng)`: the same picture scaled to 100, 80 or 50 % and as JPEG q 30 to 90."""
    return _worsened
