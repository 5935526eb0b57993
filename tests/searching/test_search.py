"""Exact search in words."""

import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import ImageTextEncoder, encode_texts, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.searching import Searcher, search
from paragrain.sources import import_folder, import_scenes


def test_hits_are_those_of_the_whole_product(world: Collection, encoder: ImageTextEncoder) -> None:
    query = "a red star above a blue circle"
    result = search(world, encoder, query, k=7, progress=False)
    images = embed(world, encoder, progress=False)
    scores = images.vectors @ encode_texts(encoder, [query], max_length=512).vectors[0]
    order = np.argsort(-scores, kind="stable")[:7]
    assert [hit.id for hit in result] == [images.ids[row] for row in order]
    assert [hit.score for hit in result] == pytest.approx(scores[order], abs=1e-6)
    assert [hit.path for hit in result] == [f"{hit.id}.png" for hit in result]


def test_the_top_5_is_a_prefix_of_the_top_15(world: Collection, encoder: ImageTextEncoder) -> None:
    few, many = (search(world, encoder, "a green heart", k=k, progress=False) for k in (5, 15))
    assert few.hits == many.hits[:5]
    assert len(search(world, encoder, "a green heart", k=10_000, progress=False)) == len(world)


def test_the_part_of_the_query_that_was_not_read_is_told(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    query = "a red star above a blue circle"
    assert search(world, encoder, query, progress=False).truncated == ""
    result = search(world, encoder, query, max_length=5, progress=False)
    assert result.truncated == "above a blue circle"
    assert (result.tokens, result.max_length) == (9, 5)


def test_a_searcher_answers_as_search_does_however_often_it_is_asked(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    queries = ["a red star above a blue circle", "a green heart", "two squares", "a red star"]
    expected = [search(world, encoder, query, k=4, progress=False) for query in queries]
    searcher = Searcher.open(world, encoder, progress=False)
    assert len(searcher) == len(world)
    assert [searcher.search(query, k=4) for query in queries] == expected
    together = searcher.search(queries, k=4)  # in one batch, which rounds otherwise
    for one, other in zip(together, expected, strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]
    with ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(lambda query: searcher.search(query, k=4), queries * 4)) == expected * 4
        )


def test_a_searcher_reads_the_folder_once(tmp_path: Path, encoder: ImageTextEncoder) -> None:
    import_scenes(tmp_path / "world", size=30, progress=False)
    searcher = Searcher.open(tmp_path / "world", encoder, split="val", progress=False)
    expected = searcher.search("a star", k=3)
    assert {hit.id for hit in expected} <= set(searcher.collection.ids("val"))
    shutil.rmtree(tmp_path / "world")
    assert [hit.id for hit in searcher.search("a star", k=3)] == [hit.id for hit in expected]


def test_one_split_only(world: Collection, encoder: ImageTextEncoder) -> None:
    hits = search(world, encoder, "a star", k=50, split="val", progress=False)
    assert {hit.id for hit in hits} == set(world.ids("val"))


def test_wrong_requests(world: Collection, encoder: ImageTextEncoder) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        search(world, encoder, "  ", progress=False)
    with pytest.raises(UsageError, match="at least 1"):
        search(world, encoder, "a star", k=0, progress=False)


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
        import_folder(pictures, tmp_path / "out", progress=False)
        hits = search(Collection.open(tmp_path / "out"), encoder, "a star", k=9, progress=False)
        assert sorted(hit.id for hit in hits) == sorted(names)
    (pictures / names[0]).unlink()
    import_folder(pictures, tmp_path / "out", progress=False)
    hits = search(Collection.open(tmp_path / "out"), encoder, "a star", k=9, progress=False)
    assert sorted(hit.id for hit in hits) == sorted(names[1:])


def test_images_that_cannot_be_searched_are_named(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for shade in range(2):
        Image.new("RGB", (40, 40), (60 * shade, 90, 30)).save(pictures / f"{shade}.png")
    import_folder(pictures, tmp_path / "out", progress=False)
    collection = Collection.open(tmp_path / "out")
    original = Collection.image_bytes
    broken = {"1.png"}
    monkeypatch.setattr(
        Collection,
        "image_bytes",
        lambda self, record: b"" if record.id in broken else original(self, record),
    )
    result = search(collection, encoder, "a star", progress=False)
    assert [hit.id for hit in result] == ["0.png"]
    assert [name for name, _ in result.failed] == ["1.png"]
    broken.add("0.png")
    shutil.rmtree(tmp_path / "out" / "embeddings")
    with pytest.raises(ParagrainError, match=r"none of the 2 images .* can be used"):
        search(collection, encoder, "a star", progress=False)


def test_a_tokenizer_that_cuts_by_itself_and_a_lone_surrogate_do_no_harm(
    world: Collection, random_blip: Path
) -> None:
    encoder = load_encoder(random_blip, "cpu")
    encoder.tokenizer("a red star", truncation=True, max_length=4)
    query = "a red star above a blue \ud800 circle"
    assert search(world, encoder, query, max_length=5, progress=False).truncated.startswith(
        "above a blue"
    )


def test_names_are_taken_for_what_they_name(world: Collection, random_blip: Path) -> None:
    by_name = search(str(world.folder), random_blip, "a red star", k=3, progress=False)
    assert by_name == search(
        world, load_encoder(random_blip, "cpu"), "a red star", k=3, progress=False
    )
    for wrong in (["a star", " "], [], ["a star", 7], 7):
        with pytest.raises(UsageError, match="quer"):
            search(world, random_blip, wrong, progress=False)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="there is no folder"):
        search("nowhere", random_blip, "a star", progress=False)


def test_several_queries_have_a_result_each(world: Collection, encoder: ImageTextEncoder) -> None:
    queries = ["a red star", "a green heart above a blue circle", "a red star"]
    found = search(world, encoder, queries, k=4, max_length=6, progress=False)
    for query, result in zip(queries, found, strict=True):
        alone = search(world, encoder, query, k=4, max_length=6, progress=False)
        assert [hit.id for hit in result] == [hit.id for hit in alone]
        assert (result.query, result.truncated) == (query, alone.truncated)
        assert result.tokens == alone.tokens
    assert found[1].truncated


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("found") / "pictures"
    (folder / "inner").mkdir(parents=True)
    for shade, name in enumerate(["a.png", "inner/b c.png", "turned.jpg"]):
        picture = Image.new("RGB", (40, 20), (60 * shade, 90, 30))
        exif = picture.getexif()
        exif[0x0112] = 6 if name == "turned.jpg" else 1
        picture.save(folder / name, exif=exif)
    return folder


@pytest.mark.parametrize("store", ["bytes", "paths"])
def test_a_hit_has_its_picture_and_its_file(
    pictures: Path, tmp_path: Path, encoder: ImageTextEncoder, store: Any
) -> None:
    import_folder(pictures, tmp_path / "out", store=store, progress=False)
    hits = {h.id: h for h in search(tmp_path / "out", encoder, "a star", k=9, progress=False)}
    assert set(hits) == {"a.png", "inner/b c.png", "turned.jpg"}
    assert hits["turned.jpg"].image.size == (20, 40)  # upright, by the one way to decode
    root = pictures if store == "bytes" else tmp_path / "out" / "images"
    for id, hit in hits.items():
        assert hit.file == (root / id).resolve()
    if store == "bytes":
        Image.new("RGB", (9, 9)).save(pictures / "a.png")
        assert hits["a.png"].file is None  # another picture is there now
        (pictures / "inner" / "b c.png").rename(pictures / "b.png")
        assert hits["inner/b c.png"].file is None
        assert hits["inner/b c.png"].image.size == (40, 20)
        (pictures / "b.png").rename(pictures / "inner" / "b c.png")


def test_a_strangers_collection_tells_of_no_files_elsewhere(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    shutil.copytree(world.folder, tmp_path / "world")
    first = search(tmp_path / "world", encoder, "a star", k=1, progress=False)[0]
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / first.path).write_bytes(b"of somebody else")
    info = json.loads((tmp_path / "world" / "collection.json").read_text("utf-8"))
    for folder in (str(tmp_path / "secret"), 7, "\0", None):
        info["import"] = {"arguments": {"folder": folder, "images": [folder]}}
        (tmp_path / "world" / "collection.json").write_text(json.dumps(info), "utf-8")
        assert search(tmp_path / "world", encoder, "a star", k=1, progress=False)[0].file is None


def test_a_result_is_short_to_look_at_and_can_be_kept(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    result = search(world, encoder, "a red star, " * 9, k=4, progress=False)
    first = f"{result[0].id} {result[0].score:.4f}"
    assert repr(result).startswith(
        f"<SearchResult 'a red star, a red star, a red star, a...': {first}"
    )
    assert repr(result).endswith(", and 1 more>")
    assert repr(result[0]) == (
        f"Hit(id={result[0].id!r}, path={result[0].path!r}, score={result[0].score!r})"
    )
    result.save(tmp_path / "hits.json")
    assert json.loads((tmp_path / "hits.json").read_text("utf-8")) == result.as_dict()
    result.save(str(tmp_path / "hits.csv"))
    table = pandas.read_csv(tmp_path / "hits.csv")
    frame = result.to_frame()
    assert list(frame.columns) == list(table.columns) == ["rank", "id", "path", "file", "score"]
    assert list(frame["id"]) == list(table["id"]) == [hit.id for hit in result]
    with pytest.raises(UsageError, match=r"\.json or \.csv"):
        result.save(tmp_path / "hits.xlsx")
