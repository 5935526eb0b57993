"""DOCCI, IIW, DetailCaps and other JSON lines come in with their texts to the last character."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from paragrain.collection import Collection, Record
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import import_docci, import_jsonl

ODD = "a\u2028b\x85c 🦉 שלום\u200f \n"


def put_image(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(path)


def put(path: Path, *rows: Any) -> Path:
    """JSON lines as `json` writes them, with all characters as they are; strings as lines."""
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in rows]
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass"))
    return path


def records_of(folder: Path) -> dict[str, Record]:
    return {record.id: record for record in Collection.open(folder).records()}


def docci_row(id: str, split: Any, text: Any) -> dict[str, Any]:
    return {"example_id": id, "split": split, "image_file": f"{id}.jpg", "description": text}


@pytest.fixture
def docci(tmp_path: Path) -> Path:
    splits = ["train", "test", "qual_dev", "qual_test"]
    for number, split in enumerate(splits):
        put_image(tmp_path / "images" / f"{split}_0000{number}.jpg", number)
    rows = [docci_row(f"{s}_0000{n}", s, f"{s} {ODD}") for n, s in enumerate(splits)]
    return put(tmp_path / "docci_descriptions.jsonlines", *rows)


def test_docci_keeps_its_splits_and_texts(docci: Path, tmp_path: Path) -> None:
    report = import_docci(docci, tmp_path / "images", tmp_path / "c", progress=False)
    assert report.splits == {"train": 1, "test": 1, "qual_dev": 1, "qual_test": 1}
    assert (report.skipped, report.notes) == ([], [])
    records = records_of(tmp_path / "c")
    assert records["qual_dev_00002"].description == f"qual_dev {ODD}"
    assert records["qual_dev_00002"].image.path == "qual_dev_00002.jpg"
    assert {record.source for record in records.values()} == {"docci"}
    again = import_docci(docci, tmp_path / "images", tmp_path / "c", progress=False)
    assert (again.written, again.kept) == (0, 4)


def test_what_is_amiss_in_docci_is_named(tmp_path: Path) -> None:
    put_image(tmp_path / "images" / "00012.jpg")
    put_image(tmp_path / "outside.jpg")
    file = put(
        tmp_path / "d.jsonlines",
        docci_row("00012", "test", None),
        {**docci_row("0012", "test", "number"), "image_file": "00012.jpg"},
        {**docci_row("12", "test", "   "), "example_id": 12, "image_file": "00012.jpg"},
        docci_row("00012", "train", "again"),
        docci_row("a", None, "text"),
        docci_row("b", "test", "absent"),
        {**docci_row("c", "test", "text"), "image_file": "../outside.jpg"},
        {**docci_row("d", "test", "text"), "image_file": str(tmp_path / "outside.jpg")},
        {**docci_row("e", "test", "\ud800"), "image_file": "00012.jpg"},
        {"split": "test", "image_file": "00012.jpg", "description": "text"},
        "[1]",
        "{",
    )
    report = import_docci(file, tmp_path / "images", tmp_path / "c", progress=False)
    problems = dict(report.skipped)
    assert report.skipped[0][0] == "line 11"
    assert problems.pop("line 12").startswith("not JSON")
    assert problems == {
        "12": "an empty text in description",
        "00012": "line 4 has another split than a line before",
        "a": "it has no valid split",
        "b": "its file is missing: b.jpg",
        "c": "its file name leaves the folder of the images",
        "d": "its file name leaves the folder of the images",
        "e": "a text that is not valid Unicode in description",
        "line 10": "it has no id",
        "line 11": "JSON, but not an object with names and values",
    }
    assert report.notes == ["2 of the 6 listed images are missing", "2 images have no description"]
    texts = {id: record.description for id, record in records_of(tmp_path / "c").items()}
    assert texts == {"00012": "again", "0012": "number", "12": None, "e": None}


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_any_text_comes_back_as_it_was(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = []
        for number, text in enumerate(texts):
            put_image(folder / "images" / f"{number}.png", number)
            rows.append({"image": f"{number}.png", "description": text})
        import_jsonl(
            put(folder / "t.jsonl", *rows), folder / "images", folder / "c", progress=False
        )
        found = {id: record.description for id, record in records_of(folder / "c").items()}
    assert found == {f"{n}.png": text if text.strip() else None for n, text in enumerate(texts)}


def test_iiw_names_images_without_extension(tmp_path: Path) -> None:
    for shade, name in enumerate(("aar_test_00001.jpg", "22.05.png", "sub/x.jpg", "sub2/x.jpg")):
        put_image(tmp_path / "images_aar" / name, shade)
    file = put(
        tmp_path / "data.jsonl",
        {"image/key": "aar_test_00001", "IIW": ODD, "IIW-P5B": "machine", "objects": []},
        {"image/key": "22.05", "IIW": "In this image, …", "IIW-P5B": "machine"},
        {"image/key": "x", "IIW": "which?", "IIW-P5B": "machine"},
        {"image/key": "sub2/x", "IIW": "this one", "IIW-P5B": "machine"},
    )
    folder = tmp_path / "images_aar"
    report = import_jsonl(file, folder, tmp_path / "c", split="test", progress=False)
    assert report.splits == {"test": 3}
    assert report.skipped == [("x", "x fits 2 files: sub/x.jpg, sub2/x.jpg")]
    assert "image from `image/key`, description from `IIW`, id from `image/key`" in report.notes
    records = records_of(tmp_path / "c")
    assert {id: (r.description, r.image.path) for id, r in records.items()} == {
        "aar_test_00001": (ODD, "aar_test_00001.jpg"),
        "22.05": ("In this image, …", "22.05.png"),
        "sub2/x": ("this one", "sub2/x.jpg"),
    }


def test_detailcaps_has_three_texts_of_which_one_or_all_are_taken(tmp_path: Path) -> None:
    put_image(tmp_path / "images" / "000000000042.jpg")
    put_image(tmp_path / "images" / "z.jpg")
    by = ("GPT4O", "GPT4V", "Gemini15Pro")
    texts = {f"GT_Caption_{name}": f"by {name}" for name in by}
    file = put(
        tmp_path / "DetailCaps-4870.jsonl",
        {"source": "coco", "image": "COCO/000000000042.jpg", "CogVLM": "no", **texts},
        {"source": "laion", "image": "https://a.example/b/z.jpg", "CogVLM": "no", **texts},
    )
    report = import_jsonl(file, tmp_path / "images", tmp_path / "one", progress=False)
    assert report.notes == [
        "keys that are not used: `GT_Caption_GPT4V` (2 texts), `GT_Caption_Gemini15Pro` (2 texts)",
        "image from `image`, description from `GT_Caption_GPT4O`, id from `image`",
    ]
    assert records_of(tmp_path / "one")["https://a.example/b/z.jpg"].description == "by GPT4O"
    import_jsonl(
        file, tmp_path / "images", tmp_path / "all", text_keys=list(texts), field="captions",
        progress=False,
    )  # fmt: skip
    record = records_of(tmp_path / "all")["COCO/000000000042.jpg"]
    assert (record.captions, record.description) == ([f"by {name}" for name in by], None)


def test_keys_can_be_named_and_lines_of_one_image_are_gathered(tmp_path: Path) -> None:
    put_image(tmp_path / "a.png")
    put_image(tmp_path / "b.png", 9)
    file = put(
        tmp_path / "mine.ndjson",
        {"n": 7.0, "pic": "a.png", "alt": ["one", "two", 3], "split": "val", "url": "http://a"},
        {"n": 7, "pic": "a.png", "alt": "three"},
        {"n": 7, "pic": "b.png", "alt": "another image"},
        {"n": "07", "pic": "b.png", "alt": []},
    )
    report = import_jsonl(
        file, tmp_path, tmp_path / "c", image_key="pic", text_keys=["alt"], id_key="n",
        field="captions", progress=False,
    )  # fmt: skip
    assert report.skipped == [
        ("7", "int where text should be in captions"),
        ("7", "this id came before; the later one is left out"),
    ]
    records = records_of(tmp_path / "c")
    assert records["7"].captions == ["one", "two", "three"]
    assert (records["7"].split, records["7"].url) == ("val", "http://a")
    assert (records["07"].captions, records["07"].split) == ([], "train")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"image_key": "pic"}, "key for the image: looked for pic"),
        ({"text_keys": ["words"]}, "key for the text: looked for words"),
        ({"id_key": "number"}, "key for the id: looked for number"),
        ({"field": "title"}, "no texts called 'title'"),
        ({"text_keys": ["text", "other"]}, "description holds one text"),
        ({"split": " "}, "a split needs a name"),
    ],
)
def test_wrong_options_say_why(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    put_image(tmp_path / "a.png")
    file = put(tmp_path / "t.jsonl", {"image": "a.png", "text": "x", "other": "y"})
    with pytest.raises(UsageError, match=reason):
        import_jsonl(file, tmp_path, tmp_path / "c", progress=False, **options)


def test_wrong_files_say_why(tmp_path: Path) -> None:
    for name, content, reason in [
        ("t.csv", "image,text\n", "is not a file of JSON lines"),
        ("t.jsonl", '{"picture": "a.png"}\n', "key for the image"),
        ("t.jsonl", '{"image": {"bytes": ""}}\n', "key for the image"),
        ("t.jsonl", '{"image": "a.png", "text": "x"}\n', "none of the 1 images"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(ParagrainError, match=reason):
            import_jsonl(tmp_path / name, tmp_path, tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match=r"lists no images that can be used \(line 1: it has no"):
        import_docci(tmp_path / "t.jsonl", tmp_path, tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="cannot be read"):
        import_docci(tmp_path / "absent.jsonl", tmp_path, tmp_path / "c", progress=False)


def test_the_commands(paragrain: Callable, docci: Path, tmp_path: Path) -> None:
    args = ["--jsonl", docci, "--images", tmp_path / "images"]
    done = paragrain("import", "docci", *args, tmp_path / "c", "--licence", "CC BY 4.0")
    assert done.code == 0
    assert "4 records (train 1, test 1, qual_dev 1, qual_test 1)" in done.out
    assert json.loads((tmp_path / "c" / "collection.json").read_bytes())["licence"] == "CC BY 4.0"
    file = put(tmp_path / "t.jsonl", {"image": "test_00001", "a": "x", "b": "y"})
    args = [file, "--images", tmp_path / "images", tmp_path / "d", "--field", "captions"]
    done = paragrain("import", "jsonl", *args, "--text-key", "a", "--text-key", "b", "--json")
    assert (done.code, done.json["splits"]) == (0, {"train": 1})
    assert records_of(tmp_path / "d")["test_00001"].captions == ["x", "y"]
    for verb in ("docci", "jsonl"):
        assert "Example" in paragrain("import", verb, "--help").out


def test_keys_that_are_called_after_fields_are_those_fields(tmp_path: Path) -> None:
    """Once 8,000 such lines came in without any text: a description was looked for in lists."""
    put_image(tmp_path / "images" / "a.png")
    row = {
        "file_name": "a.png",
        "split": "val",
        "captions": ["one", "two"],
        "generated": ["g"] * 5,
        "negatives": [],
        "paragraph": "A long text.",
        "paragraph_score": 9,
        "title": "a title in words",
        "width": 8,
    }
    file = put(tmp_path / "t.jsonl", row, {"file_name": "a.png", "caption": "three"})
    report = import_jsonl(file, tmp_path / "images", tmp_path / "c", progress=False)
    assert (report.skipped, report.splits) == ([], {"val": 1})
    record = records_of(tmp_path / "c")["a.png"]
    assert record.captions == ["one", "two", "three"]
    assert (record.generated, record.paragraph, record.paragraph_score) == (
        ["g"] * 5, "A long text.", 9,
    )  # fmt: skip
    assert report.notes == [
        "keys that are not used: `title` (1 texts)",
        "image from `file_name`, captions from `captions`, generated from `generated`, negatives "
        "from `negatives`, paragraph from `paragraph`, captions from `caption`, id from "
        "`file_name`",
    ]


def test_a_text_that_would_be_the_second_of_a_field_is_named(tmp_path: Path) -> None:
    put_image(tmp_path / "images" / "a.png")
    rows = [
        {"image": "a.png", "description": d} for d in ("one", "one", "two", ["x", "y"], "[1, 2]")
    ]
    report = import_jsonl(
        put(tmp_path / "t.jsonl", *rows), tmp_path / "images", tmp_path / "c", progress=False
    )
    assert records_of(tmp_path / "c")["a.png"].description == "one"
    assert [reason for _, reason in report.skipped] == [
        "line 3 has another description than a line before",
        "2 texts in description, which holds one",
        "what looks like a list cannot be read as one ('[1, 2]') in description",
    ]
