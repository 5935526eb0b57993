"""Parquet files with images inside come in, whoever wrote them; nothing in them is lost unsaid."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.collection import Collection, Record
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import import_parquet
from paragrain.sources.parquet import split_of


def png(shade: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def put(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def images(count: int, paths: list[Any] | None = None, first: int = 0) -> list[dict[str, Any]]:
    return [{"bytes": png(first + n), "path": paths[n] if paths else None} for n in range(count)]


def bring(files: Path, out: Path, **options: Any) -> tuple[Any, dict[str, Record]]:
    report = import_parquet(files, out, progress=False, **options)
    return report, {r.id: r for r in Collection.open(out).records(images=True)}


def test_hugging_face_layout_by_its_own_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({
        "image": datasets.Image(), "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
    })  # fmt: skip
    for split, first in [("train", 0), ("validation", 5)]:
        rows = [
            {
                "image": {"bytes": png(first + n), "path": None},
                "text": f"{split} {n}",
                "label": n % 2,
            }
            for n in range(3)
        ]
        made = datasets.Dataset.from_list(rows, features=features)
        file = tmp_path / "hub" / "data" / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        made.to_parquet(file)
    report, records = bring(tmp_path / "hub", tmp_path / "c")
    assert (report.skipped, report.splits) == ([], {"train": 3, "val": 3})
    assert report.notes == [
        "image from `image`, captions from `text`, id from the files' names and the rows"
    ]
    record = records["data/validation-00000-of-00001/000001"]
    assert (record.captions, record.split, record.image.bytes) == (
        ["validation 1"], "val", png(6),
    )  # fmt: skip
    again = import_parquet(tmp_path / "hub", tmp_path / "c", progress=False)
    assert (again.written, again.kept) == (0, 6)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("image", pa.array([png(n) for n in range(4)], pa.binary())),
        ("img", pa.array([png(n) for n in range(4)], pa.large_binary())),
        ("jpg", pa.array([png(n) for n in range(4)], pa.binary_view())),
        ("photograph", pa.array(images(4))),
        ("picture", pa.array([{"bytes": png(n)} for n in range(4)])),
    ],
    ids=lambda value: str(value)[:10],
)
def test_columns_of_images(tmp_path: Path, name: str, column: pa.Array) -> None:
    file = put(tmp_path / "p.parquet", {name: column, "caption": list("abcd")}, row_group_size=4)
    report, records = bring(file, tmp_path / "c")
    assert (report.skipped, report.splits) == ([], {"train": 4})
    assert [(r.captions, r.image.bytes) for r in records.values()] == [
        ([text], png(n)) for n, text in enumerate("abcd")
    ]


@pytest.mark.parametrize(
    ("column", "values", "captions"),
    [
        ("captions", [["a", "b"], None, []], [["a", "b"], [], []]),
        ("sentences", [[{"raw": "a", "sentid": 1}, {"raw": "b", "sentid": 2}], [], None],
         [["a", "b"], [], []]),
        ("caption", ["['a', \"b's\"]", "c", None], [["a", "b's"], ["c"], []]),
        ("text", pa.array([["a", None], None, ["c"]], pa.list_view(pa.string_view())),
         [["a"], [], ["c"]]),
        ("caption_1", pa.array(["a", "a", None]).dictionary_encode(), [["a"], ["a"], []]),
        ("captions", pa.array([["a", "b"], None, ["c", "d"]],
                              pa.list_(pa.dictionary(pa.int8(), pa.string()), 2)),
         [["a", "b"], [], ["c", "d"]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_columns_of_texts(tmp_path: Path, column: str, values: Any, captions: Any) -> None:
    file = put(tmp_path / "p.parquet", {"image": images(3), column: values})
    report, records = bring(file, tmp_path / "c")
    assert report.skipped == []
    assert [r.captions for r in records.values()] == captions


def test_text_without_its_type_is_read_and_what_is_no_text_is_told(tmp_path: Path) -> None:
    file = put(tmp_path / "p.parquet", {
        "image": images(2), "caption": pa.array([b"na\xc3\xafve", b"\xff"]), "text": [1, 2],
        "description": [{"en": "a dog", "de": "ein Hund"}] * 2,
    })  # fmt: skip
    report, records = bring(file, tmp_path / "c")
    assert [r.captions for r in records.values()] == [["naïve"], []]
    assert [reason for _, reason in report.skipped] == [
        "a text that is not valid Unicode in captions"
    ]
    (note,) = (note for note in report.notes if "not read as text" in note)
    assert "`text` (int64), `description` (struct" in note


def test_ids_come_from_a_column_or_the_paths_if_they_tell_rows_apart(tmp_path: Path) -> None:
    columns = {"image": images(2, ["x/a.jpg", "x/b.jpg"]), "image_id": [7, 8]}
    put(tmp_path / "a/p.parquet", columns)
    assert list(bring(tmp_path / "a", tmp_path / "1")[1]) == ["7", "8"]
    put(tmp_path / "a/p.parquet", {**columns, "image_id": [7, 7]})
    report, records = bring(tmp_path / "a", tmp_path / "2")
    assert list(records) == ["x/a.jpg", "x/b.jpg"]
    assert report.notes == ["image from `image`, id from the images' paths"]
    put(tmp_path / "a/p.parquet", {"image": images(2, ["a.jpg", "a.jpg"]), "text": ["a", "b"]})
    assert list(bring(tmp_path / "a", tmp_path / "3")[1]) == ["p/000000", "p/000001"]
    _, records = bring(tmp_path / "a", tmp_path / "4", id_column="text", text_columns=["text"])
    assert {id: r.captions for id, r in records.items()} == {"a": ["a"], "b": ["b"]}


def test_conversations_and_what_is_not_used(tmp_path: Path) -> None:
    turns = [
        [{"from": "human", "value": "<image>\nSay."}, {"from": "gpt", "value": "A long text."}]
    ]
    file = put(tmp_path / "p.parquet", {
        "image": images(1), "conversations": turns, "title": ["two words"], "label": [3],
    })  # fmt: skip
    report, records = bring(file, tmp_path / "c")
    assert next(iter(records.values())).description == "A long text."
    assert report.notes == [
        "image from `image`, description from `conversations`, id from the files' names and the "
        "rows",
        "columns that are not used: `title` (1 texts)",
    ]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    rows = [*images(1), {"bytes": None, "path": "b.png"}, None, {"bytes": b"no image", "path": "d"}]
    put(tmp_path / "p/train.parquet", {"image": rows, "caption": ["a", "[1, 2]", "c", "d"]})
    (tmp_path / "p/cut.parquet").write_bytes((tmp_path / "p/train.parquet").read_bytes()[:-9])
    report, records = bring(tmp_path / "p", tmp_path / "c")
    assert [r.captions for r in records.values()] == [["a"]]
    assert dict(report.skipped) == {
        "cut.parquet": "it is damaged or no Parquet file",
        "train/000001": "its image b.png is missing: give its folder as images",
        "train/000002": "it has no image",
        "train/000003": "not an image of a known format",
    }
    assert len(report.skipped) == 5  # and the list that cannot be read
    (tmp_path / "images/deep").mkdir(parents=True)
    (tmp_path / "images/deep/b.png").write_bytes(png(9))
    report, records = bring(tmp_path / "p", tmp_path / "d", images=tmp_path / "images")
    assert records["train/000001"].image.bytes == png(9)


def test_wrong_asks_say_why(tmp_path: Path) -> None:
    file = put(tmp_path / "p.parquet", {"a": [b"x"], "b": [b"y"], "text": ["t"]})
    for options, reason in [
        ({}, "images may be in a, b: name one with --image-column"),
        ({"image_column": "c"}, "no column `c`: it has a, b, text"),
        ({"image_column": "a", "field": "title"}, "no texts called 'title'"),
        ({"image_column": "a", "store": "paths"}, "no files that could be linked"),
    ]:
        with pytest.raises(UsageError, match=reason):
            import_parquet(file, tmp_path / "c", progress=False, **options)
    with pytest.raises(UsageError, match="there are no Parquet files"):
        import_parquet(tmp_path / "q*.parquet", tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="no column holds images"):
        import_parquet(put(tmp_path / "q.parquet", {"text": ["t"]}), tmp_path / "c", progress=False)
    with pytest.raises(ParagrainError, match="none of the 1 items"):
        import_parquet(file, tmp_path / "c", image_column="a", progress=False)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002-abc123", "train"), ("validation", "val"), ("test_01", "test"),
        ("default/train/0000", "train"), ("restval-00000-of-00001", "restval"),
        ("part-00000", None),
        ("training_photos", "train"), ("trainable", None),
    ],
)  # fmt: skip
def test_splits_of_files(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_the_command_with_texts_and_a_pattern(
    tmp_path: Path, paragrain: Callable[..., Any]
) -> None:
    for number in range(2):
        paths = [f"{number}{n}.png" for n in range(2)]
        put(tmp_path / f"data/p-{number}.parquet", {"img": images(2, paths, number * 5)})
    texts = tmp_path / "t.csv"
    texts.write_text("file_name,caption\n10.png,joined\n")
    done = paragrain(
        "import",
        "parquet",
        tmp_path / "data" / "*.parquet",
        tmp_path / "c",
        "--texts",
        texts,
        "--json",
    )
    assert (done.code, done.json["written"]) == (0, 4)
    assert Collection.open(tmp_path / "c").get(["10.png"])["10.png"].captions == ["joined"]
