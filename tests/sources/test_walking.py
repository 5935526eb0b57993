"""What is below a folder: links once, droppings counted, loops in nobody's way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.sources import import_coco, import_folder
from paragrain.sources.walking import dropping, walk

DROPPINGS = [
    "@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "x/@eaDir/b.jpg", ".thumbnails/1.jpg", "._a.jpg",
    "#recycle/old.jpg", ".Trash-1000/files/c.jpg", "__MACOSX/x/._a.jpg", ".AppleDouble/a.jpg",
    "lost+found/d.png", "$RECYCLE.BIN/e.jpg", ".picasaoriginals/f.jpg", ".@__thumb/a.jpg",
    "My Previews.lrdata/0/g.jpg", "Thumbs.db", ".hidden.jpg", "System Volume Information/h.jpg",
]  # fmt: skip


def put(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 1, 0)).save(path, "JPEG")
    return folder


def test_droppings_are_left_out_and_counted_and_all_takes_them(
    tmp_path: Path, paragrain: Callable[..., Any]
) -> None:
    pictures = put(tmp_path / "p", "a.jpg", "x/b.jpg", *DROPPINGS)
    (pictures / "a.jpg.json").write_text('{"description": "by Takeout"}')
    done = paragrain("import", "folder", pictures, tmp_path / "c", "--json")
    assert (done.code, done.json["written"]) == (0, 2)
    note = next(note for note in done.json["notes"] if "--all" in note)
    assert note.startswith(f"{len(DROPPINGS)} files that devices and programs leave are left out")
    assert "@eaDir 2" in note
    assert "1 files that may hold texts are not read (.json 1)" in done.json["notes"]
    assert "0 of 2 with texts in these sources" in done.json["notes"]
    every = paragrain("import", "folder", pictures, tmp_path / "d", "--all", "--json")
    assert every.json["written"] == 1 + len(DROPPINGS)  # all but Thumbs.db, which is no picture


def test_a_list_finds_no_droppings_unless_it_names_them(tmp_path: Path) -> None:
    images = put(tmp_path / "i", "x/a.jpg", "x/@eaDir/a.jpg", "@eaDir/b.jpg")
    listed = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "@eaDir/b.jpg"}]
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"images": listed, "annotations": []}))
    report = import_coco(images, file, tmp_path / "c", progress=False)
    assert report.skipped == []
    paths = {r.id: r.image.path for r in Collection.open(tmp_path / "c").records()}
    assert paths == {"1": "x/a.jpg", "2": "@eaDir/b.jpg"}
    assert any("left out (@eaDir" in note for note in report.notes)


@pytest.mark.parametrize(
    "name", ["a.jpg", "thumb/a.jpg", "eaDir/a.jpg", "a/trash.jpg", "a@b/c.jpg"]
)
def test_anybodys_names_are_no_droppings(name: str) -> None:
    assert dropping(name) is None


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    other = put(tmp_path / "other", "o.jpg", "deep/p.jpg")
    pictures = put(tmp_path / "p", "a.jpg", "z/b.jpg")
    (pictures / "0 linked").symlink_to(other)
    (pictures / "again").symlink_to(other)
    (pictures / "deeper").symlink_to(other / "deep")
    (pictures / "inner").symlink_to(pictures / "z")
    (other / "back").symlink_to(pictures)
    (other / "circle").symlink_to(other)
    (other / "self").symlink_to(other / "self")
    found = walk(pictures)
    assert found.files == [
        "0 linked/deep/p.jpg",
        "0 linked/o.jpg",
        "0 linked/self",
        "a.jpg",
        "z/b.jpg",
    ]
    assert found.problems == []
    report = import_folder(pictures, tmp_path / "c", progress=False)
    assert (report.written, report.skipped) == (4, [])


def test_a_link_to_what_holds_the_folder_is_named(tmp_path: Path) -> None:
    pictures = put(tmp_path / "up" / "p", "a.jpg")
    put(tmp_path / "up", "private.jpg")
    (pictures / "above").symlink_to(tmp_path / "up")
    report = import_folder(pictures, tmp_path / "c", progress=False)
    assert report.written == 1
    assert report.skipped == [
        ("above", "a link to a folder that holds this one, which is not followed")
    ]


def test_the_collection_in_the_folder_is_not_taken_also_by_a_link(tmp_path: Path) -> None:
    pictures = put(tmp_path / "p", "a.jpg")
    for _ in range(2):
        report = import_folder(pictures, pictures / "out", store="paths", progress=False)
        assert report.splits == {"train": 1}
        (pictures / "linked").unlink(missing_ok=True)
        (pictures / "linked").symlink_to(pictures / "out")
