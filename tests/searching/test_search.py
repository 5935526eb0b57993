"""Exact search in words."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import ImageTextEncoder, encode_texts, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.searching import search
from paragrain.sources import import_folder


def test_hits_are_those_of_the_whole_product(world: Collection, encoder: ImageTextEncoder) -> None:
    query = "a red star above a blue circle"
    result = search(world, encoder, query, k=7, show=False)
    images = embed(world, encoder, show=False)
    scores = images.vectors @ encode_texts(encoder, [query], tokens=512).vectors[0]
    order = np.argsort(-scores, kind="stable")[:7]
    assert [hit.id for hit in result] == [images.ids[row] for row in order]
    assert [hit.score for hit in result] == pytest.approx(scores[order], abs=1e-6)
    assert [hit.path for hit in result] == [f"{hit.id}.png" for hit in result]


def test_the_top_5_is_a_prefix_of_the_top_15(world: Collection, encoder: ImageTextEncoder) -> None:
    few, many = (search(world, encoder, "a green heart", k=k, show=False) for k in (5, 15))
    assert few.hits == many.hits[:5]
    assert len(search(world, encoder, "a green heart", k=10_000, show=False)) == len(world)


def test_the_part_of_the_query_that_was_not_read_is_told(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    query = "a red star above a blue circle"
    assert search(world, encoder, query, show=False).cut == ""
    result = search(world, encoder, query, tokens=5, show=False)
    assert result.cut == "above a blue circle"
    assert (result.tokens, result.budget) == (9, 5)


def test_one_split_only(world: Collection, encoder: ImageTextEncoder) -> None:
    hits = search(world, encoder, "a star", k=50, split="val", show=False)
    assert {hit.id for hit in hits} == set(world.ids("val"))


def test_wrong_requests(world: Collection, encoder: ImageTextEncoder) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        search(world, encoder, "  ", show=False)
    with pytest.raises(UsageError, match="at least 1"):
        search(world, encoder, "a star", k=0, show=False)


def test_a_folder_indexed_twice_then_changed_keeps_a_stable_count(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    names = ["50% off #1.jpg", "a'b (c).jpg", "naïve.jpg", "<b>bold<b>.jpg"]
    for shade, name in enumerate(names):
        buffer = io.BytesIO()
        Image.new("RGB", (40, 40), (60 * shade, 90, 30)).save(buffer, "jpeg")
        (pictures / name).write_bytes(buffer.getvalue())
    for _ in range(2):
        import_folder(pictures, tmp_path / "out", show=False)
        hits = search(Collection.open(tmp_path / "out"), encoder, "a star", k=9, show=False)
        assert sorted(hit.id for hit in hits) == sorted(names)
    (pictures / names[0]).unlink()
    import_folder(pictures, tmp_path / "out", show=False)
    hits = search(Collection.open(tmp_path / "out"), encoder, "a star", k=9, show=False)
    assert sorted(hit.id for hit in hits) == sorted(names[1:])


def test_images_that_cannot_be_searched_are_named(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for shade in range(2):
        Image.new("RGB", (40, 40), (60 * shade, 90, 30)).save(pictures / f"{shade}.png")
    import_folder(pictures, tmp_path / "out", show=False)
    collection = Collection.open(tmp_path / "out")
    original = Collection.image_bytes
    broken = {"1.png"}
    monkeypatch.setattr(
        Collection,
        "image_bytes",
        lambda self, record: b"" if record.id in broken else original(self, record),
    )
    result = search(collection, encoder, "a star", show=False)
    assert [hit.id for hit in result] == ["0.png"]
    assert [name for name, _ in result.failed] == ["1.png"]
    broken.add("0.png")
    shutil.rmtree(tmp_path / "out" / "embeddings")
    with pytest.raises(ParagrainError, match=r"none of the 2 images .* can be used"):
        search(collection, encoder, "a star", show=False)


def test_a_tokenizer_that_cuts_by_itself_and_a_lone_surrogate_do_no_harm(
    world: Collection, random_blip: Path
) -> None:
    encoder = load_encoder(random_blip, "cpu")
    encoder.tokenizer("a red star", truncation=True, max_length=4)
    query = "a red star above a blue \ud800 circle"
    assert search(world, encoder, query, tokens=5, show=False).cut.startswith("above a blue")
