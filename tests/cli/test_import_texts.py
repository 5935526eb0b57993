"""What `paragrain import` and `update` do to texts that are there already."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from paragrain.collection import Collection, update_records

NAMES = ["a.png", "b.png", "c.png"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        Image.new("RGB", (8, 8), (number, 50, 90)).save(folder / name)
    lines = ["file_name,captions,split"] + [f"{name},text of {name},test" for name in NAMES]
    (tmp_path / "texts.csv").write_text("\n".join(lines), "utf-8")
    return folder


@pytest.fixture
def photos(pictures: Path, tmp_path: Path, paragrain: Callable) -> Path:
    """A collection with a table's captions and splits, and with a model's texts."""
    folder = tmp_path / "photos"
    args = ("import", "folder", pictures, folder, "--texts", tmp_path / "texts.csv")
    assert paragrain(*args).code == 0
    for file, ids in Collection.open(folder).files().items():
        paid = {"paragraph": "It is big. It is red.", "paragraph_score": 8, "generated": ["one"]}
        update_records(folder, file, dict.fromkeys(ids, paid))
    return folder


def texts(folder: Path) -> dict[str, tuple[list[str], str, str | None, int | None]]:
    return {
        r.id: (r.captions, r.split, r.paragraph, r.paragraph_score)
        for r in Collection.open(folder).records()
    }


def expected(*names: str) -> dict[str, tuple[list[str], str, str | None, int | None]]:
    return {n: ([f"text of {n}"], "test", "It is big. It is red.", 8) for n in names}


def test_the_same_import_without_its_table(
    photos: Path, pictures: Path, paragrain: Callable
) -> None:
    done = paragrain("import", "folder", pictures, photos, "--json")
    assert done.code == 0
    assert done.json["texts"]["carried"] == {"captions": 3, "generated": 3, "paragraph": 3}
    assert texts(photos) == expected(*NAMES)


def test_an_import_with_another_table(
    photos: Path, pictures: Path, tmp_path: Path, paragrain: Callable
) -> None:
    (tmp_path / "more.jsonl").write_text('{"file_name": "b.png", "caption": "mine"}\n', "utf-8")
    args = ("import", "folder", pictures, photos, "--texts", tmp_path / "more.jsonl")
    done = paragrain(*args)
    assert done.code == 0
    assert "replaced by those of this import: captions of 1 image" in done.out
    assert "text of b.png" in (photos / "replaced_texts.jsonl").read_text("utf-8")
    assert texts(photos)["b.png"][0] == ["mine"]
    assert texts(photos)["a.png"] == expected("a.png")["a.png"]


def test_files_that_are_renamed_moved_and_deleted(
    photos: Path, pictures: Path, paragrain: Callable
) -> None:
    (pictures / "2020").mkdir()
    (pictures / "a.png").rename(pictures / "2020" / "new name.png")
    (pictures / "b.png").unlink()
    assert paragrain("update", photos).code == 3  # the table's rows for them are named
    found = texts(photos)
    assert found.keys() == {"2020/new name.png", "c.png"}
    assert found["2020/new name.png"] == expected("a.png")["a.png"]
    shutil.copy(pictures / "c.png", pictures / "b.png")  # not the picture that was deleted
    paragrain("update", photos)
    assert texts(photos)["b.png"][2] is None


def test_everything_in_another_folder(
    photos: Path, pictures: Path, tmp_path: Path, paragrain: Callable
) -> None:
    moved = tmp_path / "disk" / "archive"
    shutil.move(pictures, moved / "2024")
    done = paragrain("import", "folder", moved, photos)
    assert done.code == 0
    assert texts(photos) == {f"2024/{name}": value for name, value in expected(*NAMES).items()}


def test_update_repeats_an_import_with_its_options(
    photos: Path, pictures: Path, tmp_path: Path, paragrain: Callable
) -> None:
    paragrain("import", "folder", pictures, photos, "--store", "paths", "--licence", "CC0-1.0")
    Image.new("RGB", (8, 8), (200, 0, 0)).save(pictures / "d.png")
    with (tmp_path / "texts.csv").open("a", encoding="utf-8") as file:
        file.write("\nd.png,text of d.png,val\n")
    done = paragrain("update", photos, "--json")
    assert (done.code, done.json["written"]) == (0, 4)  # the table was not said in between
    assert texts(photos)["d.png"] == (["text of d.png"], "val", None, None)
    assert (photos / "images" / "d.png").samefile(pictures / "d.png")
    info = json.loads((photos / "collection.json").read_text("utf-8"))
    assert (info["store"], info["licence"]) == ("paths", "CC0-1.0")
    assert texts(photos) | expected(*NAMES) == texts(photos)


def test_dropping_texts(photos: Path, pictures: Path, paragrain: Callable) -> None:
    done = paragrain("import", "folder", pictures, photos, "--drop-texts")
    assert "dropped, as asked for: captions of 3 images" in done.out
    assert all(value == ([], "test", None, None) for value in texts(photos).values())


def test_shares_of_the_command_line(photos: Path, pictures: Path, paragrain: Callable) -> None:
    done = paragrain("import", "folder", pictures, photos, "--val", "0.6", "--test", "0.6")
    assert done.code == 2
    assert "leave no image to train on" in done.err
    assert paragrain("update", photos, "--verify").code == 0
