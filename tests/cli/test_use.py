"""Which model a verb uses: the one that was asked for, the one that is remembered, or BLIP0."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import paragrain as pg
from paragrain.encoders import encoder_for
from paragrain.encoders.choosing import GOOD_ONES


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("use") / "pictures"
    folder.mkdir()
    for shade in range(3):
        Image.new("RGB", (40, 40), (shade * 80, 10, 10)).save(folder / f"{shade}.png")
        (folder / f"{shade}.txt").write_text("A red square. It is plain.", "utf-8")
    return folder


@pytest.fixture
def photos(pictures: Path, tmp_path: Path) -> Path:
    pg.import_folder(pictures, tmp_path / "my photos", progress=False)
    return tmp_path / "my photos"


def test_on_photographs_every_verb_that_encodes_asks_for_a_model(
    paragrain: Callable, photos: Path
) -> None:
    for words in (
        ["search", photos, "a dog in snow"],
        ["embed", photos],
        ["evaluate", photos, "--texts", "captions"],
        ["train", photos],
    ):
        done = paragrain(*words, "--json")
        assert done.code == 2, words
        assert "paragrain use MODEL" in done.json["error"]
        assert f"'{photos}'" in done.json["error"]  # quoted, so that it can be typed
        assert GOOD_ONES in done.json["error"]
        assert "\n" not in done.json["error"]
    assert not (photos / "embeddings").exists()


def test_an_empty_query_is_told_before_a_model_is_looked_for(
    paragrain: Callable, photos: Path
) -> None:
    done = paragrain("search", photos, " ", "--json")
    assert (done.code, "the query is empty" in done.json["error"]) == (2, True)


def test_scenes_alone_are_for_blip0(world: Path, photos: Path, tmp_path: Path) -> None:
    assert encoder_for(pg.Collection.open(world)).name == "blip0"
    shutil.copytree(world, tmp_path / "mixed")
    [part] = (photos / "records").glob("*.parquet")
    shutil.copy(part, tmp_path / "mixed" / "records" / "part-00009.parquet")
    with pytest.raises(pg.UsageError, match="other pictures than drawn scenes"):
        encoder_for(pg.Collection.open(tmp_path / "mixed"))


def test_a_model_is_remembered_for_all_verbs_and_through_imports(
    paragrain: Callable, photos: Path, pictures: Path, random_blip: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(random_blip.parent)
    assert paragrain("use", photos).out == f"{photos}: no model is remembered\n"
    done = paragrain("use", random_blip.name, photos, "--json")
    assert (done.code, done.json["model"]) == (0, str(random_blip))
    assert (done.json["max_length"], done.json["max_tokens"]) == (128, 512)
    monkeypatch.chdir(photos)  # a relative path would lead nowhere from here
    found = paragrain("search", photos, "a star", "--json")
    assert (found.code, found.json["model"]) == (0, str(random_blip))
    assert paragrain("embed", photos, "--json").json["computed"] == 0
    Image.new("RGB", (40, 40), "white").save(pictures / "new.png")
    assert paragrain("import", "folder", pictures, photos, "--json").json["written"] == 1
    assert pg.Collection.open(photos).model == str(random_blip)
    assert paragrain("embed", photos, "--json").json["computed"] == 1
    named = paragrain("search", photos, "a star", "--model", "blip0", "--json")
    assert named.json["model"] == "blip0"  # what is asked for goes first
    assert paragrain("use", photos).out == f"{photos}: {random_blip}\n"
    assert paragrain("use", "--clear", photos).code == 0
    assert paragrain("search", photos, "a star").code == 2
    before = (photos / "collection.json").read_bytes()
    for words in (
        [],
        ["--clear", "a", photos],
        ["nowhere"],
        ["./none", photos],
        ["", photos],
        ["blip0", "nowhere"],
    ):
        assert paragrain("use", *words).code == 2, words
    assert (photos / "collection.json").read_bytes() == before


def test_in_python(photos: Path, random_blip: Path) -> None:
    encoder = pg.use(photos, random_blip)
    assert encoder is not None
    opened = pg.Collection.open(photos)
    assert pg.use(opened, encoder) is encoder
    assert opened.model == str(random_blip)
    assert pg.search(opened, opened.model, "a star", k=2, progress=False)[0].image.size == (40, 40)
    assert pg.use(opened, None) is None
    assert opened.model is None


def test_a_model_that_is_gone_is_told_in_one_sentence(
    paragrain: Callable, photos: Path, random_blip: Path, tmp_path: Path
) -> None:
    shutil.copytree(random_blip, tmp_path / "checkpoint")
    pg.use(photos, tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    done = paragrain("search", photos, "a star")
    assert done.code == 2
    assert f"there is no folder {tmp_path / 'checkpoint'}" in done.err
    assert "remembers" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("model", [7, "", ["blip0"], {}], ids=repr)
def test_a_model_that_is_no_name(paragrain: Callable, photos: Path, model: object) -> None:
    info = json.loads((photos / "collection.json").read_text("utf-8"))
    (photos / "collection.json").write_text(json.dumps({**info, "model": model}), "utf-8")
    done = paragrain("search", photos, "a star")
    assert (done.code, "is no name" in done.err) == (2, True)
    assert paragrain("use", "blip0", photos).code == 0
    assert pg.Collection.open(photos).model == "blip0"


def test_records_of_another_tool_remember_a_model_too(
    photos: Path, random_blip: Path, paragrain: Callable
) -> None:
    (photos / "collection.json").unlink()
    pg.use(photos, random_blip)
    assert json.loads((photos / "collection.json").read_text("utf-8")) == {
        "model": str(random_blip)
    }
    assert paragrain("search", photos, "a star").code == 0


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Have standard input hold some bytes."""
    files = []

    def hold(data: bytes) -> None:
        (tmp_path / "stdin").write_bytes(data)
        files.append((tmp_path / "stdin").open(encoding="utf-8"))
        monkeypatch.setattr("sys.stdin", files[-1])

    yield hold
    for file in files:
        file.close()


def test_where_a_query_comes_from(
    paragrain: Callable, world: Path, random_blip: Path, typed: Callable, tmp_path: Path
) -> None:
    ask = ("search", world, "--model", random_blip, "-k", 2, "--json")
    text = "A red star.\nIt stands above a blue circle."
    plain = paragrain(*ask, text).json
    assert plain["query"] == text
    for words in ([], ["-"]):
        typed(b"\xef\xbb\xbf" + text.encode() + b"\n")
        assert paragrain(*ask, *words).json == plain
    file = tmp_path / "queries.txt"
    file.write_bytes("\ufeffa red star\r\n\n  über \u2028 alles \n".encode())
    several = paragrain(*ask, "--file", file).json["queries"]
    assert [result["query"] for result in several] == ["a red star", "über \u2028 alles"]
    typed(file.read_bytes())
    assert paragrain(*ask, "--file", "-").json["queries"] == several
    told = paragrain(*ask[:-1], "--file", file).out.splitlines()
    assert [line for line in told if line.startswith("query")] == [
        "query: a red star",
        "query: über \\u2028 alles",
    ]
    assert len(told) == 2 * 3 + 1
    (tmp_path / "empty").write_bytes(b"\n \n")
    for words in (["a star", "--file", file], ["--file", tmp_path / "none"], ["--file", tmp_path],
                  ["--file", tmp_path / "empty"], ["-k", 0, "x"]):  # fmt: skip
        assert paragrain(*ask, *words).code == 2, words
    for data in (b"", b" \n", b"\xff\xfe\x00"):
        typed(data)
        assert paragrain(*ask).code == 2, data


def test_a_hit_is_one_line_with_the_absolute_path_of_its_file(
    paragrain: Callable, tmp_path: Path, random_blip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    names = ["a\nb.png", "\x1b[31mred.png", "a b.png", "naïve.png"]
    for shade, name in enumerate(names):
        Image.new("RGB", (40, 40), (60 * shade, 90, 30)).save(tmp_path / "in" / name)
    monkeypatch.chdir(tmp_path)
    assert paragrain("import", "folder", "in", "out").code == 0
    done = paragrain("search", "out", "a star", "--model", random_blip)
    assert done.code == 0
    told = {line.partition("  ")[2] for line in done.out.splitlines()}
    shown = ["a\\nb.png", "\\x1b[31mred.png", "a b.png", "naïve.png"]
    assert told == {f"{tmp_path / 'in'}/{name}" for name in shown}
    shutil.rmtree(tmp_path / "in")
    done = paragrain("search", "out", "a star", "--model", random_blip)
    assert {line.partition("  ")[2] for line in done.out.splitlines()} == set(shown)
