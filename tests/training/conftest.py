"""A small collection with every text field, and an encoder with dropout."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.encoders import ImageTextEncoder
from paragrain.training import TrainConfig
from paragrain.training.objectives import WeightedSum, make_objectives

COLOURS = ["red", "blue", "green", "white", "black", "orange", "purple"]
SHAPES = ["circle", "square", "star"]


def picture(colour: str, shape: str, place: int) -> bytes:
    image = Image.new("RGB", (32, 32), "grey")
    pen = ImageDraw.Draw(image)
    box = (4 + place, 4, 20 + place, 20)
    (pen.ellipse if shape == "circle" else pen.rectangle)(box, fill=colour)
    if shape == "star":
        pen.line((0, 0, 31, 31), fill=colour, width=3)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def make_record(number: int, split: str = "train") -> Record:
    colour, shape = COLOURS[number % 7], SHAPES[number % 3]
    return Record(
        id=f"{split}/{number:03d}",
        image=ImageRef(picture(colour, shape, number % 11), None),
        split=split,
        captions=[f"a {colour} {shape}", f"the {shape} is {colour}"],
        generated=[f"{word} {colour} {shape}" for word in ("a", "an", "the", "one", "with a")],
        negatives=[f"a {COLOURS[(number + step) % 7]} {shape}" for step in range(1, 6)],
        paragraph=f"there is a {colour} {shape} to the left . below and above it is red . "
        f"it is the {number} of all , and the {shape} is right on the square",
    )


def write(folder: Path, records: list[Record]) -> Collection:
    items = [Item(id=r.id, stamp="1", make=lambda r=r: r) for r in records]  # type: ignore[misc]
    write_collection(folder, items, name="shapes", source="test", progress=False)
    return Collection.open(folder)


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """Makes a record with all text fields: `record(number, split="train")`."""
    return make_record


@pytest.fixture(scope="session")
def write_records() -> Callable[[Path, list[Record]], Collection]:
    """Writes records as a collection: `write_records(folder, records)`."""
    return write


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """21 images to train on and 7 to validate on."""
    records = [make_record(n) for n in range(21)] + [make_record(n, "val") for n in range(7)]
    return write(tmp_path_factory.mktemp("collections") / "shapes", records)


@pytest.fixture(scope="session")
def contrast() -> Callable[..., WeightedSum]:
    """The contrastive loss alone: `contrast(model, config)`."""

    def make(model: ImageTextEncoder, **settings: object) -> WeightedSum:
        config = TrainConfig(**settings)
        return WeightedSum(make_objectives({"contrastive": {}}, model, config), {"contrastive": 1})

    return make


@pytest.fixture
def dropout_model(encoder):
    """A trainable copy of the encoder in training mode with a dropout of 0.2 everywhere."""
    import torch

    model = encoder.trainable_copy().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    return model
