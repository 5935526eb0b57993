"""Ways to make small collections, for all tests of this room."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import ImageRef, ImportReport, Item, Record, write_collection


def _picture(colour: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (colour % 256, 20, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def _item(id: str, stamp: str = "1", colour: int = 0, **fields: Any) -> Item:
    return Item(id, stamp, lambda: Record(id, ImageRef(_picture(colour), f"{id}.png"), **fields))


def _items(count: int, **fields: Any) -> list[Item]:
    def numbered(n: int) -> Item:
        split = ["train", "val"][n % 2]
        return _item(f"i{n:03d}", colour=n, captions=[f"caption {n}"], split=split, **fields)

    return [numbered(n) for n in range(count)]


def _write(folder: Path, entries: list[Item], **options: Any) -> ImportReport:
    return write_collection(folder, entries, name="test", source="test", progress=False, **options)


def _unchanged(entries: list[Item]) -> list[Item]:
    def no_make() -> Record:
        pytest.fail("an unchanged item was made again")

    return [Item(entry.id, entry.stamp, no_make) for entry in entries]


def _annotated(entries: list[Item], changes: dict[str, dict[str, Any]]) -> list[Item]:
    def made(entry: Item) -> Item:
        new = changes.get(entry.id, {})
        return Item(entry.id, entry.stamp, lambda: replace(entry.make(), **new))

    return [made(entry) for entry in entries]


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def picture() -> Callable[..., bytes]:
    """`picture(colour)`: a PNG of 8 x 8 equal pixels (colour, 20, 200)."""
    return _picture


@pytest.fixture
def item() -> Callable[..., Item]:
    """`item(id, stamp, colour, **fields)`: an item that makes a sound record."""
    return _item


@pytest.fixture
def items() -> Callable[..., list[Item]]:
    """`items(count)`: items i000, i001, ... in turn of the splits train and val."""
    return _items


@pytest.fixture
def write() -> Callable[..., ImportReport]:
    """`write(folder, items, **options)`: `write_collection` in silence."""
    return _write


@pytest.fixture(scope="session")
def files() -> Callable[[Path], dict[str, bytes]]:
    """`files(folder)`: every file in it."""
    return _files


@pytest.fixture
def unchanged() -> Callable[[list[Item]], list[Item]]:
    """`unchanged(items)`: the same items, which must not be made again."""
    return _unchanged


@pytest.fixture
def annotated() -> Callable[..., list[Item]]:
    """`annotated(items, changes)`: the same items with new values in them from the beginning."""
    return _annotated
