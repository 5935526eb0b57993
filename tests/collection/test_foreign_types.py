"""Types that Polars, DuckDB, pandas and others write are read as what they mean, and updated."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paragrain.collection import Collection, update_records
from paragrain.errors import ParagrainError

WORDS = pa.dictionary(pa.int8(), pa.string())
LISTS: dict[str, pa.DataType] = {
    "list": pa.list_(pa.string()),
    "large list": pa.large_list(pa.large_string()),
    "list view": pa.list_view(pa.string()),
    "large list view": pa.large_list_view(pa.string_view()),
    "list of views": pa.list_(pa.string_view()),
    "fixed size": pa.list_(pa.string(), 2),
    "list of dictionary": pa.list_(WORDS),
    "view of dictionary": pa.list_view(WORDS),
    "fixed size of dictionary": pa.list_(WORDS, 2),
}
TEXTS: dict[str, pa.DataType] = {
    "view": pa.string_view(),
    "large": pa.large_string(),
    "dictionary": WORDS,
    "dictionary of large": pa.dictionary(pa.int32(), pa.large_string()),
}
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]


def foreign(folder: Path, columns: dict[str, Any]) -> Path:
    (folder / "records").mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "records" / "data.parquet")
    return folder / "records" / "data.parquet"


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS)
def test_lists(tmp_path: Path, kind: pa.DataType) -> None:
    lists = [["a", "b"], None, ["c", None]]
    file = foreign(tmp_path, {"id": ["1", "2", "3"], "captions": pa.array(lists, kind)})
    collection = Collection.open(tmp_path)
    assert [r.captions for r in collection.records()] == [["a", "b"], [], ["c"]]
    assert collection.problems == []
    update_records(tmp_path, file, {"2": {"captions": ["new", "ones", "three"]}})
    assert [r.captions for r in Collection.open(tmp_path).records()] == [
        ["a", "b"], ["new", "ones", "three"], ["c"],
    ]  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS.values(), ids=TEXTS)
def test_texts(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {
        "id": pa.array(["1", "2", "3"], kind),
        "paragraph": pa.array(["p", None, "p"], kind),
        "captions": pa.array(["one", None, "two"], kind),
        "split": pa.array(["test", "test", "val"], kind),
    }
    file = foreign(tmp_path, columns)
    records = list(Collection.open(tmp_path).records())
    assert [(r.id, r.paragraph, r.captions, r.split) for r in records] == [
        ("1", "p", ["one"], "test"), ("2", None, [], "test"), ("3", "p", ["two"], "val"),
    ]  # fmt: skip
    update_records(tmp_path, file, {"2": {"paragraph": "new", "generated": ["g"]}})
    records = list(Collection.open(tmp_path).records())
    assert [(r.paragraph, r.generated) for r in records] == [("p", []), ("new", ["g"]), ("p", [])]


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_images(tmp_path: Path, kind: pa.DataType) -> None:
    image = pa.StructArray.from_arrays(
        [pa.array([b"abc", None, b"xyz"], kind), pa.array(["a", "b", None], pa.string_view())],
        ["bytes", "path"],
        mask=pa.array([False, False, True]),
    )
    file = foreign(tmp_path, {"id": ["1", "2", "3"], "image": image})
    for _ in range(2):
        images = [r.image for r in Collection.open(tmp_path).records(images=True)]
        assert [(i.bytes, i.path) for i in images] == [(b"abc", "a"), (None, "b"), (None, None)]
        update_records(tmp_path, file, {"2": {"paragraph": "new"}})


def test_what_duckdb_and_pandas_write(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "records").mkdir()
    file = tmp_path / "records" / "data.parquet"
    duckdb.sql(
        "copy (select '7' as id, ['a', 'b'] as captions, 'p'::enum('p', 'q') as paragraph, "
        "{'bytes': 'abc'::blob, 'path': 'x.jpg'} as image, 8::utinyint as paragraph_score) "
        f"to '{file}'"
    )
    (record,) = Collection.open(tmp_path).records(images=True)
    assert (record.captions, record.paragraph, record.paragraph_score) == (["a", "b"], "p", 8)
    assert (record.image.bytes, record.image.path) == (b"abc", "x.jpg")


def test_types_that_mean_something_else_are_named(tmp_path: Path) -> None:
    foreign(tmp_path, {"id": ["1"], "captions": pa.array([[7]])})
    with pytest.raises(ParagrainError, match="its column `captions` has the type list<"):
        Collection.open(tmp_path)
