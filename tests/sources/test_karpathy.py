"""Karpathy's splits come in as they are, restval as train, whatever is amiss by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import import_karpathy

ODD = "a\u2028b\x85c 🦉 שלום\u200f \n"


def put_image(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(path)


def entry(filename: Any, split: Any, *raw: Any, **more: Any) -> dict[str, Any]:
    sentences = [{"tokens": [], "raw": text, "imgid": 0, "sentid": n} for n, text in enumerate(raw)]
    sentids = list(range(len(raw)))
    return {
        "sentids": sentids,
        "imgid": 0,
        "sentences": sentences,
        "split": split,
        "filename": filename,
        **more,
    }


def put_json(path: Path, images: Any, dataset: str = "coco") -> Path:
    path.write_text(json.dumps({"images": images, "dataset": dataset}), "utf-8")
    return path


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """One image in each split of `dataset_coco.json`, which lies beside the folders of images."""
    images = []
    for number, (split, part) in enumerate(
        [("train", "train"), ("restval", "val"), ("val", "val"), ("test", "val")], 1
    ):
        file = f"COCO_{part}2014_{number:012d}.jpg"
        put_image(tmp_path / f"{part}2014" / file, number)
        texts = [f"{split} {n}" for n in range(5)]
        images.append(entry(file, split, *texts, filepath=f"{part}2014", cocoid=number))
    return put_json(tmp_path / "dataset_coco.json", images)


def test_restval_counts_as_train_and_the_splits_are_counted(coco: Path, tmp_path: Path) -> None:
    report = import_karpathy(coco, tmp_path, tmp_path / "c", progress=False)
    assert report.splits == {"train": 2, "val": 1, "test": 1}
    assert report.skipped == []
    assert report.notes == ["1 images of the split restval count as train"]
    collection = Collection.open(tmp_path / "c")
    records = {record.id: record for record in collection.records()}
    assert list(records) == ["1", "2", "3", "4"]
    assert records["2"].split == "train"
    assert records["2"].captions == [f"restval {n}" for n in range(5)]
    assert records["2"].image.path == "val2014/COCO_val2014_000000000002.jpg"
    assert {record.source for record in records.values()} == {"coco"}
    again = import_karpathy(coco, tmp_path, tmp_path / "c", progress=False)
    assert (again.written, again.kept, again.removed) == (0, 4, 0)


def test_the_folder_may_be_the_one_that_holds_the_files(coco: Path, tmp_path: Path) -> None:
    report = import_karpathy(coco, tmp_path / "val2014", tmp_path / "c", progress=False)
    assert report.splits == {"train": 1, "val": 1, "test": 1}
    file = "train2014/COCO_train2014_000000000001.jpg"
    assert report.skipped == [("1", f"its file is missing: {file}")]
    assert "1 of the 4 listed images are missing" in report.notes


def test_flickr_has_no_cocoid_and_no_filepath(tmp_path: Path) -> None:
    for name in ("0012.jpg", "22.05.png", "deep/7.jpg"):
        put_image(tmp_path / "images" / name)
    images = [
        entry("0012.jpg", "test", "NA", ODD, ' "two", he said'),
        entry("22.05.png", "train"),
        entry("7.jpg", "val", "found by its name alone"),
    ]
    file = put_json(tmp_path / "dataset_flickr30k.json", images, "flickr30k")
    report = import_karpathy(file, tmp_path / "images", tmp_path / "c", progress=False)
    assert (report.skipped, report.notes) == ([], ["1 images have no captions"])
    records = {record.id: record for record in Collection.open(tmp_path / "c").records()}
    assert records["0012"].captions == ["NA", ODD, ' "two", he said']
    assert (records["22.05"].captions, records["22.05"].split) == ([], "train")
    assert records["7"].image.path == "deep/7.jpg"
    assert records["7"].source == "flickr30k"


def test_what_is_amiss_is_named_and_the_rest_comes_in(tmp_path: Path) -> None:
    put_image(tmp_path / "images" / "a.jpg")
    put_image(tmp_path / "outside.jpg")
    (tmp_path / "images" / "empty.jpg").write_bytes(b"")
    images = [
        entry("a.jpg", "train", "fine", "", None, cocoid="007"),
        entry("a.jpg", "train", "again", cocoid="007"),
        entry("../outside.jpg", "train", cocoid=2),
        entry("outside.jpg", "restval", filepath="..", cocoid=3),
        entry(str(tmp_path / "outside.jpg"), "train", cocoid=4),
        entry("a.jpg", None, cocoid=5),
        entry(None, "train"),
        entry("empty.jpg", "train", "x", cocoid=6),
        entry("absent\ud800.jpg", "train", cocoid=7),
        "no object",
    ]
    file = put_json(tmp_path / "d.json", images)
    report = import_karpathy(file, tmp_path / "images", tmp_path / "c", progress=False)
    assert report.splits == {"train": 1}
    assert report.notes == ["1 of the 3 listed images are missing"]
    leaves = "its file name leaves the folder of the images"
    assert report.skipped == [
        ("007", "an empty text"),
        ("007", "NoneType where text should be"),
        ("007", "this id came before; the later one is left out"),
        ("2", leaves),
        ("3", leaves),
        ("5", "it has no valid split"),
        ("image 7 of the list", "it names no image file"),
        ("7", "its file name is not valid"),
        ("image 10 of the list", "it has no valid split"),
        ("4", leaves),
        ("6", "an empty file"),
    ]
    assert next(Collection.open(tmp_path / "c").records()).captions == ["fine"]


def test_further_texts_join(coco: Path, tmp_path: Path) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text(
        '{"cocoid": 4, "paragraph": "Long. Longer."}\n{"id": 9, "caption": "whose?"}\n'
    )
    report = import_karpathy(coco, tmp_path, tmp_path / "c", texts=texts, progress=False)
    assert report.skipped == [("texts: 9", "line 2 fits no image")]
    assert Collection.open(tmp_path / "c").get(["4"])["4"].paragraph == "Long. Longer."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "not in Karpathy's layout"),
        ('{"images": [{"id": 1}], "annotations": []}', "not in Karpathy's layout"),
        (json.dumps({"images": [entry(None, "train")]}), "no images that can be used"),
        (json.dumps({"images": [entry("x.jpg", "train")]}), "none of the 1 images"),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "d.json").write_text(content)
    with pytest.raises(ParagrainError, match=reason):
        import_karpathy(tmp_path / "d.json", tmp_path, tmp_path / "c", progress=False)
    assert not (tmp_path / "c").exists()


def test_wrong_paths_say_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        import_karpathy(tmp_path / "d.json", tmp_path / "absent", tmp_path / "c")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        import_karpathy(tmp_path / "d.json", tmp_path, tmp_path / "c")


def test_the_command(paragrain: Callable, coco: Path, tmp_path: Path) -> None:
    args = ["import", "karpathy", "--dataset", coco, "--images", tmp_path, tmp_path / "c"]
    done = paragrain(*args, "--licence", "CC BY 4.0")
    assert done.code == 0
    assert "4 records (train 2, val 1, test 1)" in done.out
    assert "note: 1 images of the split restval count as train" in done.out
    assert paragrain(*args, "--json").json["splits"] == {"train": 2, "val": 1, "test": 1}
    help = paragrain("import", "karpathy", "--help").out
    assert "Example" in help
    assert "--json" in help
