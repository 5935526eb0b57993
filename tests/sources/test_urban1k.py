"""Urban1k comes in one to one; what has no partner is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.sources import import_urban1k

ODD = "a\u2028b\x85c 🦉 שלום\u200f\n second line"


@pytest.fixture
def urban(tmp_path: Path) -> Path:
    folder = tmp_path / "Urban1k"
    (folder / "image").mkdir(parents=True)
    (folder / "caption").mkdir()
    texts = {"1": "A wide street.\n", "002": ODD, "22.05": " kept \r\n"}
    for shade, (id, text) in enumerate(texts.items()):
        Image.new("RGB", (8, 8), (shade, 0, 0)).save(folder / "image" / f"{id}.jpg")
        (folder / "caption" / f"{id}.txt").write_bytes(text.encode())
    return folder


def test_each_image_gets_its_text(urban: Path, tmp_path: Path) -> None:
    report = import_urban1k(urban, tmp_path / "c", progress=False)
    assert (report.splits, report.skipped, report.notes) == ({"test": 3}, [], [])
    records = {record.id: record for record in Collection.open(tmp_path / "c").records()}
    assert {id: record.description for id, record in records.items()} == {
        "1": "A wide street.",
        "002": ODD,
        "22.05": " kept ",
    }
    assert records["22.05"].image.path == "22.05.jpg"
    assert all(record.captions == [] for record in records.values())


def test_what_has_no_partner_is_named(urban: Path, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(urban / "image" / "7.jpg")
    Image.new("RGB", (8, 8)).save(urban / "image" / "1.png")
    (urban / "image" / "8.cr2").write_bytes(b"")
    (urban / "image" / ".DS_Store").write_bytes(b"")
    (urban / "caption" / "9.txt").write_text("no image")
    (urban / "caption" / "002.txt").write_text("\n\n")
    (urban / "image" / "22.05.jpg").write_bytes(b"\xff\xd8\xff")
    report = import_urban1k(urban, tmp_path / "c", progress=False)
    assert report.splits == {"test": 3}
    assert report.skipped[:-1] == [
        ("image/8.cr2", "not a file of the kind that belongs here"),
        ("002", "an empty text"),
        ("1", "this id came before; the later one is left out"),
        ("7", "there is no caption/7.txt; the image stays without a text"),
        ("caption/9.txt", "there is no image of this name"),
    ]
    assert report.skipped[-1][0] == "22.05"
    assert report.notes == ["2 images have no description"]
    records = {
        record.id: record.description for record in Collection.open(tmp_path / "c").records()
    }
    assert records == {"1": "A wide street.", "002": None, "7": None}


def test_another_layout_says_why(urban: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in Urban1k's layout"):
        import_urban1k(urban / "image", tmp_path / "c", progress=False)
    for file in (urban / "image").iterdir():
        file.unlink()
    with pytest.raises(UsageError, match="lists no images"):
        import_urban1k(urban, tmp_path / "c", progress=False)


def test_the_command(paragrain: Callable, urban: Path, tmp_path: Path) -> None:
    done = paragrain("import", "urban1k", urban, tmp_path / "c")
    assert (done.code, "3 records (test 3)" in done.out) == (0, True)
    (urban / "caption" / "9.txt").write_text("no image")
    done = paragrain("import", "urban1k", urban, tmp_path / "c", "--json")
    assert (done.code, done.json["kept"]) == (3, 3)
    assert done.json["skipped"] == [["caption/9.txt", "there is no image of this name"]]
    assert "Example" in paragrain("import", "urban1k", "--help").out


def test_names_that_are_the_same_in_another_form_are_partners(tmp_path: Path) -> None:
    folder = tmp_path / "U"
    (folder / "image" / "@eaDir").mkdir(parents=True)
    (folder / "caption").mkdir()
    pairs = {"na\u00efve": "nai\u0308ve", "A": "a", "0007": "7", "8": "8", "08": "09"}
    for shade, (image, text) in enumerate(pairs.items()):
        Image.new("RGB", (8, 8), (shade, 0, 0)).save(folder / "image" / f"{image}.JPG", "JPEG")
        (folder / "caption" / f"{text}.txt").write_text(f"of {image}")
    (folder / "caption" / "._8.txt").write_bytes(b"fork")
    report = import_urban1k(folder, tmp_path / "c", progress=False)
    texts = {r.id: r.description for r in Collection.open(tmp_path / "c").records()}
    assert texts == {**{image: f"of {image}" for image in pairs}, "08": None}
    assert [where for where, _ in report.skipped] == ["08", "caption/09.txt"]
    assert report.notes[0].endswith("left out (._* 1, @eaDir 1)")
