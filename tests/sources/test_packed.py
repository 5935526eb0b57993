"""Images in compressed tars and in Parquet: the same records as from plain tars."""

import io
import json
import random
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.collection import BadRecord, Collection, ImportReport
from paragrain.errors import UsageError
from paragrain.sources import import_cc3m, import_webdataset
from paragrain.sources.packed import Packed


def picture(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (colour % 256, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def url(n: int) -> str:
    return f"https://example.org/{n}.png"


def put_tar(path: Path, numbers: range, mode: str = "w") -> Path:
    """Samples as img2dataset writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for n in numbers:
            info = json.dumps({"caption": f"caption {n}", "url": url(n), "key": f"{n:09d}"})
            for suffix, data in (
                ("png", picture(n)), ("txt", f"caption {n}".encode()), ("json", info.encode()),
            ):  # fmt: skip
                member = tarfile.TarInfo(f"{n:09d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def put_table(path: Path, numbers: range, failed: tuple[int, ...] = ()) -> Path:
    """The same as img2dataset's Parquet: groups of 100 rows, failures among them, a column png."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = dict.fromkeys(("caption", "url", "key", "status", "error_message", "exif"), pa.string())
    schema = pa.schema({**text, "width": pa.int32(), "png": pa.binary()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(numbers.start, numbers.stop, 100):
            rows: list[dict[str, Any]] = []
            for n in range(first, min(first + 100, numbers.stop)):
                row: dict[str, Any] = {"caption": f"caption {n}", "url": url(n), "key": f"{n:09d}"}
                row |= {"status": "success", "png": picture(n), "width": 8, "exif": "{}"}
                if n in failed:
                    row |= {"status": "failed_to_download", "png": None, "width": None}
                    row |= {"error_message": "HTTP Error 404: Not Found"}
                rows.append(row)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return path


def bring_in(samples: Path, out: Path, **options: Any) -> tuple[ImportReport, dict[str, Any]]:
    report = import_webdataset(samples, out, progress=False, **options)
    return report, {record.id: record for record in Collection.open(out).records(images=True)}


@pytest.mark.parametrize(
    ("ending", "mode"),
    [(".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.bz2", "w:bz2"), (".txz", "w:xz"),
     (".tar", "w:gz")],
)  # fmt: skip
def test_compressed_tars_give_the_records_of_plain_ones(
    tmp_path: Path, ending: str, mode: str
) -> None:
    for number in range(3):
        numbers = range(10 * number, 10 * number + 5)
        put_tar(tmp_path / "plain" / f"{number:05d}.tar", numbers)
        put_tar(tmp_path / "packed" / f"{number:05d}{ending}", numbers, mode)
    _, plain = bring_in(tmp_path / "plain", tmp_path / "a")
    report, packed = bring_in(tmp_path / "packed", tmp_path / "b")
    assert (report.skipped, report.written) == ([], 15)
    assert packed == plain
    again, _ = bring_in(tmp_path / "packed" / f"{{00000..00002}}{ending}", tmp_path / "b")
    assert (again.written, again.kept) == (0, 15)


def test_of_a_cut_compressed_shard_what_lies_before_comes_in(tmp_path: Path) -> None:
    shards = tmp_path / "s"
    shards.mkdir()
    rough = random.Random(0)
    for number in range(3):
        with tarfile.open(shards / f"{number}.tgz", "w:gz") as tar:
            for n in range(4):
                image = Image.frombytes("RGB", (60, 60), rough.randbytes(60 * 60 * 3))
                buffer = io.BytesIO()
                image.save(buffer, "PNG")
                member = tarfile.TarInfo(f"{n}.png")
                member.size = len(buffer.getvalue())
                tar.addfile(member, io.BytesIO(buffer.getvalue()))
    whole = (shards / "1.tgz").read_bytes()
    (shards / "1.tgz").write_bytes(whole[: len(whole) * 6 // 10])
    report, records = bring_in(shards, tmp_path / "c")
    assert list(records) == [f"0/{n}" for n in range(4)] + ["1/0", "1/1"] + [
        f"2/{n}" for n in range(4)
    ]
    assert [name for name, _ in report.skipped] == ["1.tgz", "1/2"]
    assert "cannot be read to its end" in report.skipped[0][1]


def test_parquet_gives_the_records_of_tars(tmp_path: Path) -> None:
    for number in range(2):
        numbers = range(1000 * number, 1000 * number + 230)
        put_tar(tmp_path / "tars" / f"{number:05d}.tar", numbers)
        put_table(tmp_path / "tables" / f"{number:05d}.parquet", numbers)
    _, plain = bring_in(tmp_path / "tars", tmp_path / "a")
    report, records = bring_in(tmp_path / "tables", tmp_path / "b")
    assert (report.skipped, report.notes) == ([], [])
    assert records == plain
    again, _ = bring_in(tmp_path / "tables" / "{00000..00001}.parquet", tmp_path / "b")
    assert (again.written, again.kept) == (0, 460)
    one, _ = bring_in(tmp_path / "tables" / "00001.parquet", tmp_path / "one")
    assert one.written == 230


def test_pictures_that_were_not_fetched_and_damaged_files_are_named(tmp_path: Path) -> None:
    put_table(tmp_path / "s/00000.parquet", range(3), failed=(1,))
    put_table(tmp_path / "s/00001.parquet", range(3, 5))
    broken = put_table(tmp_path / "s/00002.parquet", range(5, 9))
    broken.write_bytes(broken.read_bytes()[:-100])
    put_tar(tmp_path / "s/00003.tar", range(9, 11))  # with its list beside it
    pq.write_table(pa.table({"url": [url(9)], "key": ["000000009"]}), tmp_path / "s/00003.parquet")
    report, records = bring_in(tmp_path / "s", tmp_path / "c")
    assert report.skipped == [
        ("00002.parquet", "it is damaged or no Parquet file"),
        ("00000/000000001", "its image was not fetched (failed_to_download: HTTP Error 404: Not "
                            "Found)"),
    ]  # fmt: skip
    assert [id[-2:] for id in records] == ["09", "10", "00", "02", "03", "04"]
    with pytest.raises(UsageError, match="no images at"):
        bring_in(tmp_path / "s/00003.parquet", tmp_path / "d")


@pytest.mark.parametrize("kind", ["parquet", "tgz", "tar"])
def test_cc3m_joins_pictures_of_every_form(tmp_path: Path, kind: str) -> None:
    order = list(range(150))
    random.Random(1).shuffle(order)
    table = tmp_path / "t.tsv"
    table.write_text("".join(f"text {n}\t{url(n)}\n" for n in [*order, 999]))
    for number in range(3):
        numbers = range(50 * number, 50 * number + 50)
        path = tmp_path / "i" / f"{number:05d}.{kind}"
        if kind == "parquet":
            put_table(path, numbers, failed=(7,))
        else:
            put_tar(path, range(50) if number == 0 else numbers, "w:gz" if kind == "tgz" else "w")
    out = tmp_path / "c"
    report = import_cc3m(table, out, images=tmp_path / "i", progress=False)
    absent = {"000000150", f"{order.index(7):09d}"} if kind == "parquet" else {"000000150"}
    assert {id for id, _ in report.skipped} == absent
    for record in Collection.open(out).records(images=True):
        number = order[int(record.id)]
        assert (record.captions, record.url) == ([f"text {number}"], url(number))
        assert record.image.bytes == picture(number)


def test_rows_are_right_in_any_order_and_from_any_thread(tmp_path: Path) -> None:
    path = put_table(tmp_path / "t.parquet", range(700), failed=(13,))
    packed = Packed()
    rows = [*range(700), *random.Random(0).choices(range(700), k=60), 0, 699, 0]
    rows = [row for row in rows if row != 13]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda row: packed.cell(path, "png", row), rows))
    assert read == [picture(row) for row in rows]
    with pytest.raises(BadRecord, match="its png is empty"):
        packed.cell(path, "png", 13)
    with pytest.raises(BadRecord, match="is damaged there"):
        packed.cell(path, "png", 700)
    assert packed.cell(path, "png", 3) == picture(3)


def test_further_texts_are_joined_by_key_file_name_and_id(tmp_path: Path) -> None:
    put_tar(tmp_path / "s/00000.tar", range(3))
    put_table(tmp_path / "s/00001.parquet", range(3, 5))
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"key": "000000000", "paragraph": "by key"},
        {"file_name": "000000001.png", "caption": "by name", "split": "test"},
        {"id": "00001/000000003", "paragraph": "by id"},
        {"key": "000000009", "paragraph": "of none"},
    ]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report, records = bring_in(tmp_path / "s", tmp_path / "c", texts=texts)
    assert report.skipped == [("texts: 000000009", "line 4 fits no image")]
    assert report.splits == {"train": 4, "test": 1}
    assert records["00000/000000000"].paragraph == "by key"
    assert records["00000/000000001"].captions == ["caption 1", "by name"]
    assert records["00001/000000003"].paragraph == "by id"
    texts.write_text(json.dumps({"key": "000000002", "paragraph": "new"}) + "\n")
    again, records = bring_in(tmp_path / "s", tmp_path / "c", texts=texts)
    assert (again.written, again.kept) == (4, 1)
    assert records["00000/000000002"].paragraph == "new"


def test_what_lies_inside_files_cannot_be_linked(tmp_path: Path) -> None:
    put_tar(tmp_path / "s/00000.tar", range(2))
    put_table(tmp_path / "t/00000.parquet", range(2))
    for samples in (tmp_path / "s", tmp_path / "t/00000.parquet"):
        with pytest.raises(UsageError, match=r"inside 00000\.\w+ are no files"):
            import_webdataset(samples, tmp_path / "c", store="paths", progress=False)
        (tmp_path / "c.tsv").write_text(f"a\t{url(0)}\n")
        with pytest.raises(UsageError, match="store them as bytes, or unpack it"):
            import_cc3m(
                tmp_path / "c.tsv", tmp_path / "c", images=samples, store="paths", progress=False
            )
    with tarfile.open(tmp_path / "s/00000.tar") as archive:
        archive.extractall(tmp_path / "files" / "00000", filter="data")
    import_webdataset(tmp_path / "files", tmp_path / "c", store="paths", progress=False)
    (first, _) = Collection.open(tmp_path / "c").records()
    assert first.image.path == "images/00000/000000000.png"
    assert (tmp_path / "c" / str(first.image.path)).samefile(tmp_path / "files/00000/000000000.png")
