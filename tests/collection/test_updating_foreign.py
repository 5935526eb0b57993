"""New texts in other tools' files: their columns, types and metadata stay."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paragrain.collection import SCHEMA, Collection, update_records


def foreign(folder: Path, table: pa.Table, **options: Any) -> Path:
    """A collection of one file that another tool wrote; returns the file."""
    (folder / "records").mkdir(parents=True)
    pq.write_table(table, folder / "records" / "data.parquet", **options)
    return folder / "records" / "data.parquet"


def test_columns_and_types_of_other_tools_stay(tmp_path: Path) -> None:
    long_texts = pa.large_list(pa.large_string())
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("extra", pa.map_(pa.string(), pa.int32())),
            pa.field("captions", pa.list_(pa.string())),
            pa.field("paragraph", pa.large_string(), nullable=False),
            pa.field("when", pa.timestamp("ns", "Europe/Berlin"), metadata={"of": "what"}),
            pa.field("description", pa.dictionary(pa.int8(), pa.string())),
            pa.field("negatives", long_texts),
            pa.field("paragraph_score", pa.float64()),
            pa.field("label", pa.dictionary(pa.int8(), pa.string())),
            pa.field("image", pa.struct([("bytes", pa.large_binary()), ("size", pa.int16())])),
        ],
        metadata={"pandas": '{"columns": []}', "else": "kept"},
    )
    rows = [
        {
            "id": n,
            "extra": [("k", n)],
            "captions": None if n % 3 else [None, f"c{n}"],
            "paragraph": f"p{n}",
            "when": n * 10**9,
            "description": ["x", None, "y"][n % 3],
            "negatives": [["n", None], None, []][n % 3],
            "paragraph_score": n / 2,
            "label": "cat",
            "image": {"bytes": bytes([n % 256]), "size": n},
        }
        for n in range(300)
    ]
    file = foreign(tmp_path, pa.Table.from_pylist(rows, schema), row_group_size=130)
    before = pq.read_table(file)
    changes = {str(n): {"description": f"d{n}", "negatives": [f"n{n}"]} for n in range(0, 300, 2)}
    changes["7"] = {"paragraph": None, "paragraph_score": 9, "generated": ["g"]}
    assert update_records(tmp_path, file, changes) == 151
    after = pq.read_table(file)
    own = ["id", "extra", "captions", "when", "label", "image"]
    assert after.select(own).equals(before.select(own), check_metadata=True)
    assert after.column_names == [*before.column_names, "generated"]
    expected = [{**row, **changes.get(str(row["id"]), {})} for row in rows]
    for name in ("paragraph", "description", "negatives", "paragraph_score"):
        assert after[name].to_pylist() == [row[name] for row in expected]
    kinds = {name: after.schema.field(name).type for name in after.column_names}
    assert kinds["paragraph"] == pa.large_string()
    assert kinds["description"] == pa.dictionary(pa.int32(), pa.string())  # int8 was too narrow
    assert kinds["negatives"] == long_texts
    assert kinds["paragraph_score"] == pa.float64()
    assert after["generated"].to_pylist() == [["g"] if n == 7 else None for n in range(300)]
    metadata = pq.read_metadata(file)
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        130,
        130,
        40,
    ]
    assert after.schema.metadata == schema.metadata
    assert b"paragrain.fingerprint" not in metadata.metadata


def test_columns_that_cannot_hold_the_new_values_get_our_type(tmp_path: Path) -> None:
    narrow = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "captions": ["one text", None, "three"],
            "generated": pa.array([[], None, []], pa.list_(pa.null())),
            "negatives": pa.array([["x"], ["y", "x"], None], narrow),
            "paragraph": pa.nulls(3),
            "paragraph_score": pa.nulls(3),
        }
    )
    file = foreign(tmp_path, table)
    before = Collection.open(tmp_path)
    fingerprint = before.fingerprint
    fields = ("captions", "generated", "negatives")
    new: dict[str, Any] = {field: [field] for field in fields}
    new |= {"paragraph": "p", "paragraph_score": 3}
    expected = list(before.records())
    expected[1] = replace(expected[1], **new)
    assert update_records(tmp_path, file, {"b": new}) == 1
    after = Collection.open(tmp_path)
    assert list(after.records()) == expected
    assert after.fingerprint != fingerprint
    schema = pq.ParquetFile(file).schema_arrow
    assert all(schema.field(name).type == SCHEMA.field(name).type for name in new)


def test_rows_that_cannot_be_used_stay_and_are_never_taken_for_others(tmp_path: Path) -> None:
    paths = ["../a.png", "a.png", "b.png", None]
    images = pa.array([{"bytes": None, "path": path} for path in paths])
    broken = pa.array(["x", "y", b"\xff", "z"], pa.binary()).view(pa.string())
    table = pa.table({"id": ["a", "a", "a", None], "image": images, "description": broken})
    file = foreign(tmp_path, table)
    assert Collection.open(tmp_path).files() == {file: ["a"]}
    change = {"paragraph": "p", "description": "new"}
    assert update_records(tmp_path, file, {"a": change}) == 1
    after = pq.read_table(file)
    assert after["paragraph"].to_pylist() == [None, "p", None, None]
    assert after["description"].cast(pa.binary()).to_pylist() == [b"x", b"new", b"\xff", b"z"]
    assert after["image"].equals(table["image"])


def test_files_of_duckdb_keep_what_stands_in_the_footer(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "records").mkdir()
    file = tmp_path / "records" / "x.parquet"
    duckdb.sql(
        "copy (select 'a' as id, 'text' as paragraph, map{'k': 1} as m, [date '2020-02-02'] as d) "
        f"to '{file}' (format parquet, kv_metadata {{note: 'mine'}})"
    )
    assert update_records(tmp_path, file, {"a": {"paragraph": None, "generated": ["g"]}}) == 1
    assert pq.read_metadata(file).metadata[b"note"] == b"mine"
    found = duckdb.sql(
        f"select id, paragraph, m, d[1]::varchar, generated from '{file}'"
    ).fetchall()
    assert found == [("a", None, {"k": 1}, "2020-02-02", ["g"])]


def test_empty_row_groups_and_late_metadata_stay(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    file = tmp_path / "records" / "x.parquet"
    table = pa.table({"id": ["a", "b"]})
    with pq.ParquetWriter(file, table.schema) as writer:
        for part in (table[:1], table[:0], table[1:]):
            writer.write_table(part)
        writer.add_key_value_metadata({"late": "1"})
    assert update_records(tmp_path, file, {"b": {"paragraph": "p"}}) == 1
    metadata = pq.read_metadata(file)
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [1, 0, 1]
    assert metadata.metadata[b"late"] == b"1"
    assert pq.read_table(file)["paragraph"].to_pylist() == [None, "p"]


def test_what_a_killed_run_left_beside_a_file_goes(tmp_path: Path) -> None:
    file = foreign(tmp_path, pa.table({"id": ["a"]}))
    others = [".data.parquet.tmp2", ".data2.parquet.7.tmp", "data.parquet.7.tmp"]
    (tmp_path / "manifests").mkdir()
    for name in (".data.parquet.7.tmp", "../manifests/.data.json.7.tmp", *others):
        (file.parent / name).write_bytes(b"half")
    assert update_records(tmp_path, file, {"a": {"paragraph": "p"}}) == 1
    assert sorted(path.name for path in file.parent.iterdir()) == sorted([file.name, *others])
    assert list((tmp_path / "manifests").iterdir()) == []


def test_datasets_opens_what_it_wrote_itself_once_it_is_updated(
    tmp_path: Path, picture: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "records").mkdir()
    images = [{"bytes": picture(n), "path": None} for n in range(4)]
    columns = {"id": list("abcd"), "image": images, "label": [0, 1, 0, 1], "captions": list("wxyz")}
    features = datasets.Features(
        id=datasets.Value("string"),
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["cat", "dog"]),
        captions=datasets.Value("string"),
    )
    whole = datasets.Dataset.from_dict(columns, features=features)
    for n in range(2):
        whole.shard(2, n, contiguous=True).to_parquet(tmp_path / "records" / f"{n}.parquet")
    new = {"captions": ["new"], "generated": ["g", "h"], "paragraph": "p", "paragraph_score": 4}
    for file, ids in Collection.open(tmp_path).files().items():
        assert update_records(tmp_path, file, {ids[0]: new}) == 1
    description = json.loads(pq.ParquetFile(file).schema_arrow.metadata[b"huggingface"])
    assert list(description["info"]["features"]) == [*features, *list(new)[1:]]
    rows = datasets.load_dataset(
        "parquet",
        data_files=str(tmp_path / "records" / "*.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert isinstance(rows.features["image"], datasets.Image)
    assert rows.features["label"] == features["label"]
    assert rows[2]["image"].getpixel((0, 0)) == (2, 20, 200)
    assert rows["captions"][:] == [["new"], ["x"], ["new"], ["z"]]
    assert rows["generated"][:] == [["g", "h"], None, ["g", "h"], None]
    assert rows["paragraph_score"][:] == [4, None, 4, None]
