"""COCO's layout comes in whole: every caption as it is, and what is amiss by name."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import decode
from paragrain.sources.coco import import_coco


def put_image(path: Path, colour: int = 0) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(buffer, "JPEG")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())


def put_json(path: Path, images: list[Any], annotations: list[Any]) -> Path:
    path.write_text(json.dumps({"images": images, "annotations": annotations}), "utf-8")
    return path


def caption(image: Any, text: Any, id: int = 1) -> dict[str, Any]:
    return {"id": id, "image_id": image, "caption": text}


def test_the_shared_photographs_import_with_their_paragraphs(shared: Path, tmp_path: Path) -> None:
    photos = shared / "photos"
    options: dict[str, Any] = {"texts": photos / "paragraphs.jsonl", "progress": False}
    report = import_coco(photos / "images", photos / "captions.json", tmp_path / "c", **options)
    assert (report.written, report.skipped, report.notes) == (50, [], [])
    collection = Collection.open(tmp_path / "c")
    assert (len(collection), collection.splits) == (50, {"train": 50})
    original = json.loads((photos / "captions.json").read_bytes())
    expected: dict[str, list[str]] = {}
    for annotation in original["annotations"]:
        expected.setdefault(str(annotation["image_id"]), []).append(annotation["caption"])
    records = list(collection.records(images=True))
    assert {record.id: record.captions for record in records} == expected
    assert any("\n" in text for record in records for text in record.captions)
    for record in records:
        assert record.image.path == f"{int(record.id):012d}.jpg"
        assert decode(record.image.bytes or b"").mode == "RGB"
        assert len(record.negatives) == 5
        assert record.paragraph
        assert (record.url or "").startswith("http")
    again = import_coco(photos / "images", photos / "captions.json", tmp_path / "c", **options)
    assert (again.written, again.kept, again.removed) == (0, 50, 0)


def test_what_is_amiss_is_named_and_the_rest_comes_in(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for name in ("a.jpg", "deep/b.jpg", "c.jpg"):
        put_image(images / name)
    put_image(tmp_path / "outside.jpg")
    (images / "cut.jpg").write_bytes((images / "a.jpg").read_bytes()[:-2])
    captions = put_json(
        tmp_path / "captions.json",
        [
            {"id": 1, "file_name": "a.jpg", "coco_url": "http://coco/1"},
            {"id": "007", "file_name": "deep/b.jpg", "coco_url": "x", "flickr_url": "http://f/7"},
            {"id": 3, "file_name": "c.jpg"},
            {"id": 4, "file_name": "absent.jpg"},
            {"id": 5, "file_name": "../outside.jpg"},
            {"id": 6, "file_name": str(tmp_path / "outside.jpg")},
            {"id": 1, "file_name": "c.jpg"},
            {"id": 8},
            {"id": 9, "file_name": "n" * 5000},
            {"id": 10, "file_name": "cut.jpg"},
            "no object",
        ],
        [
            caption(1, "None", 11),
            caption(1, ' "two"\n', 12),
            caption("007", "NA", 13),
            caption(1, "", 14),
            caption(1, None, 15),
            caption(99, "whose?", 16),
            "no object",
        ],
    )
    report = import_coco(images, captions, tmp_path / "c", split="test", progress=False)
    assert report.written == 3
    assert report.splits == {"test": 3}
    assert report.notes == [
        "3 of the 7 listed images are missing",
        "2 images have no captions",
    ]
    assert report.skipped == [
        ("5", "its file name leaves the folder of the images"),
        ("1", "this id came before; the later one is left out"),
        ("8", "it names no image file"),
        ("image 11 of the list", "it names no image file"),
        ("annotation 14", "an empty text as a caption of image 1"),
        ("annotation 15", "NoneType where text should be as a caption of image 1"),
        ("annotation 16", "its image 99 is not listed"),
        ("annotation 7 of the list", "its image (none) is not listed"),
        ("4", "its file is missing: absent.jpg"),
        ("6", "its file name leaves the folder of the images"),
        ("9", f"its file is missing: {'n' * 5000}"),
        ("10", "truncated"),
    ]
    records = {record.id: record for record in Collection.open(tmp_path / "c").records()}
    assert records["1"].captions == ["None", ' "two"\n']
    assert (records["007"].captions, records["007"].url) == (["NA"], "http://f/7")
    assert (records["3"].captions, records["3"].url) == ([], None)
    assert records["1"].url == "http://coco/1"


def test_texts_join_by_id_or_name_and_add_to_what_is_there(tmp_path: Path) -> None:
    images = tmp_path / "val2017"
    for number in (123, 456):
        put_image(images / f"{number:012d}.jpg")
    captions = put_json(
        tmp_path / "captions.json",
        [{"id": n, "file_name": f"{n:012d}.jpg"} for n in (123, 456)],
        [caption(123, "own")],
    )
    texts = tmp_path / "t.csv"
    texts.write_text(
        "image,caption,split\nval2017/000000000123.jpg,further,val\n000000000456,first,\n9,?,\n"
    )
    report = import_coco(images, captions, tmp_path / "c", texts=texts, progress=False)
    assert report.skipped == [("texts: 9", "line 4 fits no image")]
    records = Collection.open(tmp_path / "c").get(["123", "456"])
    assert (records["123"].captions, records["123"].split) == (["own", "further"], "val")
    assert (records["456"].captions, records["456"].split) == (["first"], "train")


def test_changed_captions_are_taken_over(tmp_path: Path) -> None:
    put_image(tmp_path / "images" / "a.jpg")
    listed = [{"id": 1, "file_name": "a.jpg"}]
    for text, written in [("one", 1), ("two", 1), ("two", 0)]:
        captions = put_json(tmp_path / "captions.json", listed, [caption(1, text)])
        report = import_coco(tmp_path / "images", captions, tmp_path / "c", progress=False)
        assert (report.written, report.removed) == (written, 0)
        assert next(Collection.open(tmp_path / "c").records()).captions == [text]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not in COCO's layout"),
        ('{"images": [], "annotations": {}}', "not in COCO's layout"),
        ('{"images": [], "annotations": [{"bbox": []}]}', "no captions"),
        (
            '{"images": [{"id": 1, "file_name": "x.jpg"}], "annotations": []}',
            "none of the 1 images",
        ),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "captions.json").write_text(content)
    (tmp_path / "images").mkdir()
    with pytest.raises(ParagrainError, match=reason):
        import_coco(tmp_path / "images", tmp_path / "captions.json", tmp_path / "c", progress=False)
    assert not (tmp_path / "c").exists()


def test_wrong_paths_say_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        import_coco(tmp_path / "absent", tmp_path / "x.json", tmp_path / "c")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        import_coco(tmp_path, tmp_path / "x.json", tmp_path / "c")
