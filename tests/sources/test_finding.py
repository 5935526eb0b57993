"""One rule finds files, or the records that a row means, in every importer."""

import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.sources.finding import Below, Finder

ON_DISK = "sub/a b.JPG"
NFD = unicodedata.normalize("NFD", "sub/naïve café.jpg")

NAMES: dict[str, tuple[str, str]] = {
    "as it is": (ON_DISK, "sub/a b.JPG"),
    "backslashes": (ON_DISK, "sub\\a b.JPG"),
    "dot and backslash": (ON_DISK, ".\\sub\\a b.JPG"),
    "double slash": (ON_DISK, "sub//./a b.JPG"),
    "with the folder": (ON_DISK, "images/sub/a b.JPG"),
    "absolute": (ON_DISK, "{root}/sub/a b.JPG"),
    "absolute by a link": (ON_DISK, "{link}/sub/a b.JPG"),
    "home": (ON_DISK, "~/images/sub/a b.JPG"),
    "another machine": (ON_DISK, "/mnt/other/machine/sub/a b.JPG"),
    "another machine, name alone": (ON_DISK, "/mnt/elsewhere/a b.JPG"),
    "Windows": (ON_DISK, "C:\\Users\\me\\sub\\a b.JPG"),
    "network": (ON_DISK, "\\\\nas\\photos\\sub\\a b.JPG"),
    "file address": (ON_DISK, "file://{root}/sub/a%20b.JPG"),
    "file address of a host": (ON_DISK, "file://localhost/x/sub/a%20b.JPG"),
    "escapes": (ON_DISK, "sub/a%20b.JPG"),
    "extension in lower case": (ON_DISK, "sub/a b.jpg"),
    "any case": (ON_DISK, "SUB/A B.jpg"),
    "composed in the list": (NFD, "sub/naïve café.jpg"),
    "composed in another case": (NFD, "sub/Naïve Café.JPG"),
    "decomposed in the list": ("sub/naïve.jpg", unicodedata.normalize("NFD", "sub/naïve.jpg")),
    "a real percent sign": ("50%20off.jpg", "50%20off.jpg"),
    "spaces around": (ON_DISK, " sub/a b.JPG "),
}


def put(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def write(kind: str, work: Path, name: str) -> list[object]:
    """The arguments of an import of a list that names one image."""
    images = work / "images"
    turns = [{"from": "gpt", "value": "the text"}]
    if kind == "folder":
        return [
            images,
            "--texts",
            put(work / "t.jsonl", {"file_name": name, "description": "the text"}),
        ]
    if kind == "coco":
        said = [{"id": 1, "image_id": 5.0, "caption": "the text"}]
        content = {"images": [{"id": 5, "file_name": name}], "annotations": said}
        return ["--images", images, "--captions", put(work / "c.json", content)]
    if kind == "karpathy":
        entry = {
            "filename": name,
            "cocoid": 5,
            "split": "train",
            "sentences": [{"raw": "the text"}],
        }
        return ["--images", images, "--dataset", put(work / "k.json", {"images": [entry]})]
    if kind == "flickr":
        return ["--images", images, "--captions", put(work / "f.token", f"{name}#0\tthe text\n")]
    if kind == "docci":
        row = {"example_id": "5", "split": "train", "image_file": name, "description": "the text"}
        return ["--images", images, "--jsonl", put(work / "d.jsonl", row)]
    if kind == "jsonl":
        return [
            put(work / "j.jsonl", {"file_name": name, "caption": "the text"}),
            "--images",
            images,
        ]
    return [put(work / "s.json", [{"image": name, "conversations": turns}]), "--images", images]


KINDS = ("folder", "coco", "karpathy", "flickr", "docci", "jsonl", "sharegpt4v")


@pytest.mark.parametrize("kind", KINDS)
def test_every_importer_finds_files_by_the_same_rule(
    kind: str, tmp_path: Path, paragrain: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    images = tmp_path / "images"
    for number, name in enumerate(sorted({disk for disk, _ in NAMES.values()})):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(images / name, "JPEG")
    (tmp_path / "link").symlink_to(images)
    for number, (what, (disk, name)) in enumerate(NAMES.items()):
        name = name.replace("{root}", str(images)).replace("{link}", str(tmp_path / "link"))
        out = tmp_path / f"out{number}"
        done = paragrain("import", kind, *write(kind, tmp_path, name), out, "--json")
        assert done.code == 0, (what, done.err)
        found = [r for r in Collection.open(out).records() if r.captions or r.description]
        assert [r.image.path for r in found] == [disk], what
        assert (found[0].captions or [found[0].description]) == ["the text"]


@pytest.mark.parametrize("name", ["../images/a.jpg", "sub\\..\\..\\a.jpg", "/etc/passwd", "b.jpg"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_lie_there_is_named(
    kind: str, name: str, tmp_path: Path, paragrain: Callable[..., Any]
) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images/c.jpg")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    done = paragrain("import", kind, *write(kind, tmp_path, name), tmp_path / "out")
    assert done.code == 3 if kind == "folder" else done.code in (1, 2)
    assert "Traceback" not in done.err


def test_a_name_in_another_folder_is_not_the_same_file(tmp_path: Path) -> None:
    for name in ("val/1.jpg", "test/1.jpg", "one/2.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    below = Below(tmp_path)
    assert below.find("train/1.jpg") == []
    assert below.find("/mnt/x/1.jpg") == ["test/1.jpg", "val/1.jpg"]
    assert below.find("/mnt/val/1.jpg") == ["val/1.jpg"]
    assert below.find("2") == ["one/2.jpg"]


def test_two_names_never_share_a_file_that_neither_says_plainly(
    tmp_path: Path, paragrain: Callable[..., Any]
) -> None:
    (tmp_path / "images").mkdir()
    for n in (1, 2):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(tmp_path / f"images/{n}.jpg")
    names = ["train/1.jpg", "val/1.jpg", "val/2.jpg", "2.jpg"]
    listed = [{"id": n, "file_name": name} for n, name in enumerate(names)]
    file = put(tmp_path / "c.json", {"images": listed, "annotations": []})
    done = paragrain(
        "import",
        "coco",
        "--images",
        tmp_path / "images",
        "--captions",
        file,
        tmp_path / "c",
        "--json",
    )
    assert done.code == 3
    assert [id for id, _ in done.json["skipped"]] == ["0", "1", "2"]


@pytest.mark.parametrize("written", ["3", "3.0", "000000000003", " 3 ", "03"])
def test_ids_that_people_mean_to_be_equal_join(written: str) -> None:
    assert Finder({"3": "c.jpg", "4": "d.jpg"}).find(written) == ["3"]
    assert Finder({"000000000003": "x/000000000003.jpg"}).find(written) == ["000000000003"]
    assert Finder({"x": "val2014/COCO_val2014_000000000003.jpg"}).find(written) == ["x"]


def test_ids_that_could_be_several_do_not() -> None:
    assert Finder({"03": "a", "003": "b"}).find("3") == ["03", "003"]
    assert Finder({"03": "a", "003": "b", "3": "c"}).find("3") == ["3"]
    assert Finder({"3a": "a", "3.5": "b", "-3": "c"}).find("3") == []


def test_annotations_join_images_whose_ids_are_written_otherwise(
    tmp_path: Path, paragrain: Callable[..., Any]
) -> None:
    (tmp_path / "images").mkdir()
    listed, said = [], []
    for n, (one, other) in enumerate(
        [(1, 1.0), ("2", 2), ("000000000003", 3), (4, " 4 "), (5, "5")]
    ):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(tmp_path / f"images/{n}.jpg")
        listed.append({"id": one, "file_name": f"{n}.jpg"})
        said.append({"id": n, "image_id": other, "caption": f"caption {n}"})
    listed += [{"id": "07", "file_name": "0.jpg"}, {"id": "007", "file_name": "0.jpg"}]
    said += [{"id": 90, "image_id": 7, "caption": "which?"}, {"id": 91, "image_id": "x"}]
    file = put(tmp_path / "c.json", {"images": listed, "annotations": said})
    done = paragrain(
        "import",
        "coco",
        "--images",
        tmp_path / "images",
        "--captions",
        file,
        tmp_path / "c",
        "--json",
    )
    assert done.json["skipped"] == [
        ["annotation 90", "its image 7 fits 2 ids"],
        ["annotation 91", "its image x is not listed"],
    ]
    captions = {r.id: r.captions for r in Collection.open(tmp_path / "c").records()}
    assert captions == {
        "1": ["caption 0"], "2": ["caption 1"], "000000000003": ["caption 2"],
        "4": ["caption 3"], "5": ["caption 4"], "07": [], "007": [],
    }  # fmt: skip


def test_many_files_of_one_name_are_told_apart_quickly() -> None:
    paths = {f"scene{n}/rgb/image.png": f"scene{n}/rgb/image.png" for n in range(20_000)}
    finder = Finder(paths)
    for n in range(0, 20_000, 10):
        assert finder.find(f"C:\\data\\scene{n}\\rgb\\image.png") == [f"scene{n}/rgb/image.png"]


def test_a_folder_that_needs_no_looking_through_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jpg").touch()
    monkeypatch.setattr(os, "scandir", lambda _: pytest.fail("it was looked through"))
    assert Below(tmp_path).find("a.jpg") == ["a.jpg"]
    assert Below(tmp_path).find(".\\a.jpg") == ["a.jpg"]
