"""New texts take the place of old ones, and nothing else moves."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.collection import (
    SCHEMA,
    Collection,
    ImageRef,
    ImportReport,
    Item,
    Record,
    reading,
    shards,
    update_records,
)
from paragrain.collection.fields import combined, record_digest, to_table
from paragrain.errors import ParagrainError, UsageError

Files = Callable[[Path], dict[str, bytes]]
Items = Callable[..., list[Item]]
Write = Callable[..., ImportReport]
Annotated = Callable[..., list[Item]]
Unchanged = Callable[[list[Item]], list[Item]]

NEW: dict[str, dict[str, Any]] = {
    "i001": {"generated": ["a", "b"], "negatives": ["n"], "annotation": '{"model": "m"}'},
    "i004": {"paragraph": "Two sentences. Here.", "paragraph_score": 7, "annotation": "{}"},
}


def only_file(folder: Path) -> Path:
    (file,) = (folder / "records").glob("*.parquet")
    return file


# --- Our own files ----------------------------------------------------------------------------


def test_an_updated_file_is_what_an_import_of_the_new_texts_makes(
    tmp_path: Path, items: Items, write: Write, files: Files, annotated: Annotated
) -> None:
    folder, whole = tmp_path / "c", tmp_path / "whole"
    write(folder, items(7), shard_rows=3)
    write(whole, annotated(items(7), NEW), shard_rows=3)
    collection = Collection.open(folder)
    assert list(collection.files().values()) == [
        ["i000", "i001", "i002"], ["i003", "i004", "i005"], ["i006"],
    ]  # fmt: skip
    for file, ids in collection.files().items():
        own = {id: NEW[id] for id in ids if id in NEW}
        assert update_records(folder, file, own) == len(own)
    assert files(folder) == files(whole)
    assert Collection.open(folder).fingerprint == Collection.open(whole).fingerprint
    assert Collection.open(folder).fingerprint != collection.fingerprint


def test_nothing_is_written_where_nothing_changes(
    tmp_path: Path, items: Items, write: Write
) -> None:
    write(tmp_path, items(6))
    file = only_file(tmp_path)
    assert update_records(tmp_path, file, NEW) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert update_records(tmp_path, file, NEW) == 0
    assert update_records(tmp_path, file, {"i002": {"annotation": None}, "i003": {}}) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_open_collection_goes_on_reading(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "GROUP_BYTES", 2000)
    data = {f"{n}": bytes([n]) * 900 for n in range(8)}  # no image: nothing may look into it
    write(
        tmp_path,
        [Item(id, "1", lambda id=id: Record(id, ImageRef(data[id])), trusted=True) for id in data],
    )
    collection = Collection.open(tmp_path)
    stream = collection.records(images=True)
    first = next(stream)
    assert len(collection.ids()) == 8
    change = {id: {"paragraph": f"about {id}"} for id in data}
    assert update_records(tmp_path, only_file(tmp_path), change) == 8
    rest = list(stream)
    assert [r.image.bytes for r in (first, *rest)] == list(data.values())
    assert collection.get(["7", "2"])["2"].paragraph == "about 2"
    metadata = pq.read_metadata(only_file(tmp_path))
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 2]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = {
    "generated": st.lists(TEXTS, max_size=3),
    "negatives": st.lists(TEXTS, max_size=3),
    "captions": st.lists(TEXTS, max_size=3),
    "paragraph": st.none() | TEXTS,
    "description": st.none() | TEXTS,
    "annotation": st.none() | TEXTS,
    "paragraph_score": st.none() | st.integers(0, 10),
}
CHANGES = st.dictionaries(
    st.sampled_from([f"i{n:03d}" for n in range(6)]), st.fixed_dictionaries({}, optional=VALUES)
)


@pytest.fixture(scope="module")
def updated_often(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Record]]:
    folder = tmp_path_factory.mktemp("often")
    records = [Record(f"i{n:03d}", ImageRef(bytes([n]), None), captions=["c"]) for n in range(6)]
    with shards.parquet_writer(folder / "part-00000.parquet", SCHEMA) as writer:
        writer.write_table(to_table(records[:4]))
        writer.write_table(to_table(records[4:]))
        writer.add_key_value_metadata({"paragrain.fingerprint": "0"})
    (folder / "records").mkdir()
    (folder / "part-00000.parquet").rename(folder / "records" / "part-00000.parquet")
    return folder, {record.id: record for record in records}


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES)
def test_whatever_changes_the_records_and_the_fingerprint_follow(
    updated_often: tuple[Path, dict[str, Record]], changes: dict[str, dict[str, Any]]
) -> None:
    folder, records = updated_often
    expected = {id: replace(r, **changes.get(id, {})) for id, r in records.items()}
    differ = sum(expected[id] != records[id] for id in records)
    assert update_records(folder, only_file(folder), changes) == differ
    records.update(expected)
    assert list(Collection.open(folder).records(images=True)) == list(records.values())
    kept = pq.read_metadata(only_file(folder)).metadata[b"paragrain.fingerprint"]
    if kept != b"0":  # the one before the first change
        assert int(kept, 16) == combined(map(record_digest, records.values()))


def test_collections_from_before_there_were_annotations(
    tmp_path: Path, items: Items, write: Write, unchanged: Unchanged
) -> None:
    write(tmp_path, items(6))
    file = only_file(tmp_path)
    old_record = Record("i", ImageRef(b"x", "i.png"), captions=["c"], paragraph="p", content="0")
    assert f"{record_digest(old_record):x}" == "dba64044b6f463c050a79bd22ad1f8b7"  # as it was then
    kept = reading.footer_fingerprint(pq.read_metadata(file))
    table = pq.read_table(file).drop_columns("annotation")
    described = json.loads(table.schema.metadata[b"huggingface"])
    del described["info"]["features"]["annotation"]
    with pq.ParquetWriter(
        file, table.schema.with_metadata({"huggingface": json.dumps(described)})
    ) as old:
        old.write_table(table)
        old.add_key_value_metadata({"paragrain.fingerprint": kept})
    collection = Collection.open(tmp_path)
    assert [r.annotation for r in collection.records()] == [None] * 6
    assert write(tmp_path, unchanged(items(6))).kept == 6
    assert update_records(tmp_path, file, NEW) == 2
    assert pq.ParquetFile(file).schema_arrow.equals(SCHEMA, check_metadata=True)
    assert Collection.open(tmp_path).get(["i004"])["i004"].annotation == "{}"
    assert write(tmp_path, unchanged(items(6))).kept == 6


# --- What is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"i000": {"paragraph": "p"}, "x": {}}, r"has no record 'x'"),
        ({"i000": {"caption": "c"}}, r"'caption' of 'i000' cannot be updated: choose from"),
        ({"i000": {"split": ""}}, r"'' is no value for the field 'split'"),
        ({"i000": {"content": "0" * 32}}, r"'content' of 'i000' cannot be updated"),
        ({"i000": {"image": ImageRef()}}, r"'image' of 'i000' cannot be updated"),
        ({"i000": {"generated": "g"}}, r"'g' is no value for the field 'generated'"),
        ({"i000": {"generated": ["g", None]}}, r"is no value for the field 'generated'"),
        ({"i000": {"paragraph": ["p"]}}, r"is no value for the field 'paragraph'"),
        ({"i000": {"paragraph_score": True}}, r"True is no value"),
        ({"i000": {"paragraph_score": 11}}, r"11 is no value"),
        ({"i000": {"negatives": ["a", "b\ud800"]}}, r"'negatives' of 'i000' .*unpaired surrogate"),
    ],
)  # fmt: skip
def test_wrong_changes_are_refused_before_anything_is_written(
    tmp_path: Path, items: Items, write: Write, files: Files, changes: Any, reason: str
) -> None:
    write(tmp_path, items(2))
    before = files(tmp_path)
    good = {"i001": {"paragraph": "good"}}
    with pytest.raises(UsageError, match=reason):
        update_records(tmp_path, only_file(tmp_path), good | changes)
    assert files(tmp_path) == before


def test_files_that_cannot_be_updated_say_why(tmp_path: Path, items: Items, write: Write) -> None:
    write(tmp_path / "c", items(2))
    file = only_file(tmp_path / "c")
    change = {"i000": {"paragraph": "p"}}
    with pytest.raises(UsageError, match="is no file of the collection"):
        update_records(tmp_path, file, change)
    data = bytearray(file.read_bytes())
    column = pq.read_metadata(file).row_group(0).column(1)
    start = column.data_page_offset  # of the image bytes, which are read last of all
    data[start : start + column.total_compressed_size] = b"\xee" * column.total_compressed_size
    for broken in (bytes(data), bytes(data[:-9]), b""):
        file.write_bytes(broken)
        with pytest.raises(ParagrainError, match=r"part-00000\.parquet is damaged"):
            update_records(tmp_path / "c", file, change)
        assert file.read_bytes() == broken
        assert not list(file.parent.glob(".*"))
    with pytest.raises(ParagrainError, match="is damaged"):
        update_records(tmp_path / "c", file.with_name("absent.parquet"), change)
    pq.write_table(pa.table({"id": ["a"], "captions": [1]}), file)
    with pytest.raises(ParagrainError, match="cannot be updated, since its column `captions`"):
        update_records(tmp_path / "c", file, {"a": {"paragraph": "p"}})
