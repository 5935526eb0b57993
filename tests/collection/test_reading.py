"""Collections stream, open in other tools, and take other tools' files, however hostile."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from paragrain.collection import SCHEMA, Collection, ImageRef, ImportReport, Item, Record
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import BadImage, content_hash, decode


def foreign(folder: Path, **columns: Any) -> Path:
    (folder / "records").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "records" / "data.parquet")
    return folder


def test_splits_ids_and_fields(
    tmp_path: Path, items: Callable[..., list[Item]], write: Callable[..., ImportReport]
) -> None:
    write(tmp_path / "c", items(6), shard_rows=2)
    collection = Collection.open(tmp_path / "c")
    assert collection.splits == {"train": 3, "val": 3}
    assert collection.ids("val") == ["i001", "i003", "i005"]
    assert [r.id for r in collection.records("val")] == collection.ids("val")
    record = next(collection.records(fields=["split"]))
    assert (record.captions, record.image) == ([], ImageRef(None, "i000.png"))
    with pytest.raises(UsageError, match="no split 'test': it has train, val"):
        collection.ids("test")
    with pytest.raises(UsageError, match="no split 'test'"):
        collection.records("test")
    with pytest.raises(UsageError, match="no field 'caption'"):
        collection.records(fields=["caption"])


def test_get_reads_a_few_records_in_the_order_asked(
    tmp_path: Path,
    picture: Callable[..., bytes],
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
) -> None:
    write(tmp_path / "c", items(9), shard_rows=4)
    collection = Collection.open(tmp_path / "c")
    found = collection.get(["i008", "i001", "i008", "i002"])
    assert list(found) == ["i008", "i001", "i002"]
    assert found["i008"].image.bytes == picture(8)
    with pytest.raises(ParagrainError, match=r"no record 'x'.*1 more"):
        collection.get(["x", "i001", "y"])


def test_image_bytes_from_the_record_the_shard_or_a_file(
    tmp_path: Path,
    picture: Callable[..., bytes],
    item: Callable[..., Item],
    write: Callable[..., ImportReport],
) -> None:
    folder = tmp_path / "c"
    write(folder, [item("stored"), Item("none", "1", lambda: Record("none"))])
    collection = Collection.open(folder)
    stored, none = collection.records()
    assert stored.image.bytes is None
    assert collection.image_bytes(stored) == picture()
    assert collection.image_bytes(next(collection.records(images=True))) == picture()
    with pytest.raises(BadImage, match="no image"):
        collection.image_bytes(none)


# --- Streaming --------------------------------------------------------------------------------


def test_texts_stream_without_reading_an_image(
    tmp_path: Path, items: Callable[..., list[Item]], write: Callable[..., ImportReport]
) -> None:
    folder = tmp_path / "c"
    write(folder, items(8), shard_rows=4)
    expected = list(Collection.open(folder).records())
    for shard in (folder / "records").glob("*.parquet"):
        data = bytearray(shard.read_bytes())
        column = pq.read_metadata(shard).row_group(0).column(1)
        assert column.path_in_schema == "image.bytes"
        start = column.dictionary_page_offset or column.data_page_offset
        data[start : start + column.total_compressed_size] = b"\xee" * column.total_compressed_size
        shard.write_bytes(data)
    collection = Collection.open(folder)
    assert list(collection.records()) == expected
    assert (len(collection), collection.splits) == (8, {"train": 4, "val": 4})
    with pytest.raises(ParagrainError, match="is damaged"):
        list(collection.records(images=True))


def test_twenty_thousand_texts_open_and_stream_quickly(tmp_path: Path) -> None:
    rows = 20_000
    shard = pa.table(
        {
            "id": [f"{n}" for n in range(rows)],
            "image": pa.array([{"bytes": None, "path": f"{n}.jpg"} for n in range(rows)]),
            "captions": [[f"caption {n} {k}" for k in range(5)] for n in range(rows)],
            "paragraph": [f"A paragraph about {n}. " * 10 for n in range(rows)],
        }
    )
    (tmp_path / "records").mkdir()
    pq.write_table(shard, tmp_path / "records" / "all.parquet", row_group_size=1000)
    start = time.process_time()
    collection = Collection.open(tmp_path)
    assert len(collection) == rows
    assert sum(len(record.captions) for record in collection.records()) == 5 * rows
    assert time.process_time() - start < 10  # usually well under one second


def test_image_bytes_are_not_dictionary_encoded_and_all_is_zstd(
    tmp_path: Path, items: Callable[..., list[Item]], write: Callable[..., ImportReport]
) -> None:
    write(tmp_path / "c", items(3))
    group = pq.read_metadata(tmp_path / "c" / "records" / "part-00000.parquet").row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    assert not next(c for c in columns if c.path_in_schema == "image.bytes").has_dictionary_page


def test_large_images_make_small_row_groups(
    tmp_path: Path, write: Callable[..., ImportReport]
) -> None:
    data = np.random.default_rng(0).bytes(3 * 2**20)
    entries = [
        Item(str(n), "1", lambda n=n: Record(str(n), ImageRef(data)), trusted=True)
        for n in range(7)
    ]
    write(tmp_path / "c", entries)
    metadata = pq.read_metadata(tmp_path / "c" / "records" / "part-00000.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 1]
    assert Collection.open(tmp_path / "c").get(["4"])["4"].image.bytes == data


# --- Fingerprint ------------------------------------------------------------------------------


def test_the_fingerprint_follows_the_data_alone(
    tmp_path: Path,
    item: Callable[..., Item],
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
) -> None:
    def fingerprint(name: str, entries: list[Item], **options: Any) -> str:
        write(tmp_path / name, entries, **options)
        return Collection.open(tmp_path / name).fingerprint

    first = fingerprint("a", items(5))
    assert len(first) == 32
    assert fingerprint("b", items(5)[::-1], shard_rows=2) == first
    assert fingerprint("c", items(4)) != first
    assert fingerprint("d", [*items(4), item("i004", colour=4, captions=["caption 5"])]) != first
    same_text = [*items(4), item("i004", colour=5, captions=["caption 4"])]
    assert fingerprint("e", same_text) != first


def test_the_fingerprint_of_other_tools_files_follows_their_text(tmp_path: Path) -> None:
    prints = set()
    for text in ("a", "b"):
        folder = tmp_path / text
        (folder / "records").mkdir(parents=True)
        pq.write_table(pa.table({"id": ["1"], "captions": [[text]]}), folder / "records/x.parquet")
        prints.add(Collection.open(folder).fingerprint)
    assert len(prints) == 2


# --- Other tools ------------------------------------------------------------------------------


def test_datasets_opens_it_with_pictures(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
) -> None:
    datasets = pytest.importorskip("datasets")
    write(tmp_path / "c", items(5, paragraph="p", paragraph_score=7), shard_rows=2)
    rows = datasets.load_dataset(
        "parquet",
        data_files=str(tmp_path / "c" / "records" / "*.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert isinstance(rows.features["image"], datasets.Image)
    assert rows.column_names == SCHEMA.names
    assert rows[3]["image"].getpixel((0, 0)) == (3, 20, 200)
    assert rows[3]["captions"] == ["caption 3"]
    assert rows["id"][:] == [f"i{n:03d}" for n in range(5)]
    assert rows[0]["paragraph_score"] == 7


def test_duckdb_opens_it(
    tmp_path: Path,
    picture: Callable[..., bytes],
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
) -> None:
    duckdb = pytest.importorskip("duckdb")
    write(tmp_path / "c", items(5), shard_rows=2)
    found = duckdb.sql(
        f"select id, captions[1], octet_length(image.bytes) from "
        f"'{tmp_path}/c/records/*.parquet' where split = 'val' order by id"
    ).fetchall()
    assert found == [(f"i{n:03d}", f"caption {n}", len(picture(n))) for n in (1, 3)]


def test_columns_of_other_tools_are_read_where_the_meaning_is_clear(tmp_path: Path) -> None:
    folder = foreign(
        tmp_path,
        id=pa.array([12, 7], pa.int64()),
        captions=pa.array(["one text", None]),
        negatives=pa.array([["x", None], None], pa.large_list(pa.large_string())),
        paragraph=pa.array(["p", None]).dictionary_encode(),
        paragraph_score=pa.array([7.0, float("nan")]),
        unknown=[1, 2],
    )
    collection = Collection.open(folder)
    assert collection.name == tmp_path.name
    assert (collection.ids(), collection.splits) == (["12", "7"], {"train": 2})
    first, second = collection.records(images=True)
    assert first == Record(
        "12", captions=["one text"], negatives=["x"], paragraph="p", paragraph_score=7
    )
    assert second == Record("7")


def test_bad_rows_are_left_out_and_named(tmp_path: Path) -> None:
    paths = ["ok.png", "a.png", "b.png", "/etc/passwd", "../up.png", "x/../../y.png", "..\\w.png"]
    folder = foreign(
        tmp_path,
        id=["ok", None, "ok", "absolute", "up", "hidden up", "windows"],
        image=pa.array([{"bytes": None, "path": path} for path in paths]),
    )
    collection = Collection.open(folder)
    assert collection.ids() == ["ok"]
    assert [r.id for r in collection.records()] == ["ok"]
    leaves = "its path leaves the collection's folder"
    assert collection.problems == [
        ("row 1 of data.parquet", "it has no id"),
        ("ok", "this id came before; the later one is left out"),
        ("absolute", leaves),
        ("up", leaves),
        ("hidden up", leaves),
        ("windows", leaves),
    ]


def test_a_file_with_wrong_columns_is_named_and_the_others_count(tmp_path: Path) -> None:
    foreign(tmp_path, id=["a"])
    for number, columns in enumerate(
        [{"name": ["x"]}, {"id": ["b"], "captions": [3]}, {"id": ["c"], "image": [b"bytes"]}]
    ):
        pq.write_table(pa.table(columns), tmp_path / "records" / f"wrong{number}.parquet")
    (tmp_path / "records" / "wrong3.parquet").write_bytes(b"no parquet")
    collection = Collection.open(tmp_path)
    assert collection.ids() == ["a"]
    reasons = [reason for _, reason in collection.problems]
    assert [name for name, _ in collection.problems] == [f"wrong{n}.parquet" for n in range(4)]
    assert reasons[:3] == [
        "it has no column `id`",
        "its column `captions` has the type int64",
        "its column `image` has the type binary",
    ]
    assert reasons[3].startswith("not a readable Parquet file")


def test_text_of_other_tools_that_is_not_utf_8_shows_as_escapes(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"a\xff")]
    )
    collection = Collection.open(foreign(tmp_path, id=["1"], paragraph=broken))
    assert next(collection.records()).paragraph == "a\\xff"


def test_pictures_as_files_stay_inside_the_folder(
    tmp_path: Path, picture: Callable[..., bytes]
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture())
    folder = tmp_path / "c"
    names = ["own.png", "link.png", "loop.png", "absent.png", "folder"]
    foreign(folder, id=names, image=pa.array([{"bytes": None, "path": name} for name in names]))
    (folder / "own.png").write_bytes(picture(5))
    (folder / "link.png").symlink_to(secret)
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "folder").mkdir()
    collection = Collection.open(folder)
    records = {record.id: record for record in collection.records()}
    assert decode(collection.image_bytes(records["own.png"])).getpixel((0, 0)) == (5, 20, 200)
    reasons = {}
    for name in names[1:]:
        with pytest.raises(BadImage) as caught:
            collection.image_bytes(records[name])
        reasons[name] = caught.value.reason
    assert reasons["link.png"] == "its path leaves the collection's folder"
    assert reasons["absent.png"] == "cannot be read: No such file or directory"
    forged = Record("x", ImageRef(None, "../secret.png"))
    with pytest.raises(BadImage, match="leaves"):
        collection.image_bytes(forged)


def test_pictures_that_lie_in_the_folder_need_not_be_stored(
    tmp_path: Path,
    picture: Callable[..., bytes],
    item: Callable[..., Item],
    write: Callable[..., ImportReport],
) -> None:
    folder = tmp_path / "c"
    write(folder, [item("a")])
    (folder / "b.png").write_bytes(picture(9))
    report = write(
        folder,
        [
            item("a"),
            Item("b", "1", lambda: Record("b", ImageRef(None, "b.png"))),
            Item("c", "1", lambda: Record("c", ImageRef(None, "../c.png"))),
        ],
    )
    assert report.skipped == [("c", "its path leaves the collection's folder")]
    collection = Collection.open(folder)
    record = collection.get(["b"])["b"]
    assert record.content == content_hash(picture(9))
    assert collection.image_bytes(record) == picture(9)


# --- Opening ----------------------------------------------------------------------------------


def test_what_cannot_be_opened_says_why(
    tmp_path: Path, item: Callable[..., Item], write: Callable[..., ImportReport]
) -> None:
    with pytest.raises(ParagrainError, match="there is no folder"):
        Collection.open(tmp_path / "absent")
    with pytest.raises(ParagrainError, match="is not a collection"):
        Collection.open(tmp_path)
    foreign(tmp_path / "empty", id=pa.array([], pa.string()))
    with pytest.raises(ParagrainError, match="has no records"):
        Collection.open(tmp_path / "empty")
    foreign(tmp_path / "useless", name=["x"])
    with pytest.raises(ParagrainError, match=r"no records; data\.parquet: it has no column `id`"):
        Collection.open(str(tmp_path / "useless"))
    with pytest.raises(ParagrainError, match="none of the 1 items"):
        write(tmp_path / "none", [item("a")], max_pixels=1)
    with pytest.raises(ParagrainError, match="has no records"):
        Collection.open(tmp_path / "none")
    foreign(tmp_path / "info", id=["a"])
    (tmp_path / "info" / "collection.json").write_text("{")
    with pytest.raises(ParagrainError, match="cannot be read"):
        Collection.open(tmp_path / "info")


def test_importing_it_loads_no_torch() -> None:
    code = (
        "import sys, paragrain.collection, paragrain.images; "
        "from paragrain.sources import coco, folder, texts; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0


def test_other_tools_open_the_folder_of_records_as_it_is(
    tmp_path: Path, items: Callable[..., list[Item]], write: Callable[..., ImportReport]
) -> None:
    write(tmp_path / "c", items(5), shard_rows=2)
    ids = ["i000", "i001", "i002", "i003", "i004"]
    assert ds.dataset(tmp_path / "c" / "records").to_table(columns=["id"])["id"].to_pylist() == ids
    pandas = pytest.importorskip("pandas")
    assert pandas.read_parquet(tmp_path / "c" / "records")["id"].tolist() == ids
