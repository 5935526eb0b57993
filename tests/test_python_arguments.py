"""What is given to the public functions in Python: taken for what it means, or refused in words."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import paragrain as pg
from paragrain.encoders import encode_images

CAPTIONS = {"texts": "captions", "progress": False}


@pytest.mark.parametrize("max_length", [12.5, "12", True, float("nan"), b"12", [12]])
def test_max_length_is_a_whole_number(
    max_length: object, world: pg.Collection, encoder: pg.ImageTextEncoder
) -> None:
    for call in (
        lambda: pg.encode_texts(encoder, "a red star", max_length=max_length),
        lambda: pg.search(world, encoder, "a red star", max_length=max_length, progress=False),
        lambda: pg.evaluate(world, encoder, max_length=max_length, **CAPTIONS),
        lambda: setattr(encoder, "max_length", max_length),
    ):
        refused(call, "max_length is a whole number such as 128")


def test_whole_numbers_of_numpy_are_whole(
    world: pg.Collection, encoder: pg.ImageTextEncoder
) -> None:
    assert pg.encode_texts(encoder, "a red star", max_length=np.int64(12)).tokens.max_length == 12
    assert len(pg.search(world, encoder, "a star", k=np.int32(3), progress=False)) == 3


@pytest.mark.parametrize("number", [2.5, "5", True, None, 0, -1])
def test_counts_are_whole_numbers(
    number: object, world: pg.Collection, encoder: pg.ImageTextEncoder
) -> None:
    refused(
        lambda: pg.search(world, encoder, "a star", k=number, progress=False),
        "k is the number of images to find",
    )
    pictures = [Image.new("RGB", (8, 8))] * 2
    for call in (
        lambda: encode_images(encoder, pictures, batch_size=number),
        lambda: pg.embed(world, encoder, batch_size=number, progress=False),
    ):
        refused(call, "a batch size is a whole number from 1")


def test_budgets_are_one_or_any_iterable(
    world: pg.Collection, encoder: pg.ImageTextEncoder
) -> None:
    asked = (8, iter([8, 12]), np.array([8, 12]))
    found = [pg.sweep(world, encoder, max_lengths, **CAPTIONS) for max_lengths in asked]
    assert [len(results) for results in found] == [1, 2, 2]
    assert found[0][0].scores == found[1][0].scores == found[2][0].scores


@pytest.mark.parametrize("ids", [None, 5, b"abc", [5], [["a"]], [None]])
def test_what_is_no_id(ids: object, world: pg.Collection) -> None:
    refused(lambda: world.get(ids), "is asked for by its id|has no record")


def test_one_id_is_one_record(world: pg.Collection, encoder: pg.ImageTextEncoder) -> None:
    id = world.ids()[0]
    assert list(world.get((id, id))) == [id]
    assert pg.embed(world, encoder, ids=id, progress=False).ids == [id]


def test_a_split_that_is_a_list(world: pg.Collection, encoder: pg.ImageTextEncoder) -> None:
    refused(lambda: pg.evaluate(world, encoder, split=["test"], **CAPTIONS), "has no split")


@pytest.mark.parametrize("given", [None, 5, b"c5", {"name": "c5"}, ["c5"]])
def test_what_is_neither_a_recipe_nor_a_result(given: object) -> None:
    refused(lambda: pg.load_recipe(given), "a recipe is a Recipe, its name or its file, not")
    refused(lambda: pg.load_result(given), "a result is read from its file, not from")


def test_representations_are_short(world: pg.Collection, encoder: pg.ImageTextEncoder) -> None:
    [record] = world.get(world.ids()[0]).values()
    assert record.image.bytes is not None
    assert repr(record.image).startswith(f"ImageRef(bytes=<{len(record.image.bytes):,} bytes>")
    assert "\n" not in repr(encoder)
    assert len(repr(encoder)) < 100 + len(encoder.name)
    assert Path(encoder.name).name in repr(encoder)


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(pg.UsageError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
