"""Conceptual Captions: rows with stable ids, joined by URL to what img2dataset fetched."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources.cc3m import import_cc3m


def picture(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def url(n: int) -> str:
    return f"http://lh6.ggpht.com/-IvRtNLNcG8o/{n}/x.jpg?imgmax=800"


def fetched(path: Path, numbers: list[int]) -> None:
    """What img2dataset leaves of some rows, keys aside: those are its own matter."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for n in numbers:
            info = {"url": url(n), "caption": "not the table's", "status": "success"}
            parts = {
                "png": picture(n),
                "txt": b"not the table's",
                "json": json.dumps(info).encode(),
            }
            for suffix, data in parts.items():
                member = tarfile.TarInfo(f"{900 + n:09d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def put_table(path: Path, count: int = 5, first: str = "") -> Path:
    rows = [f"a very typical bus station {n}\t{url(n)}\n" for n in range(count)]
    path.write_text(first + "".join(rows), "utf-8")
    return path


def test_without_images_every_row_is_a_record(tmp_path: Path) -> None:
    table = put_table(tmp_path / "Train_GCC-training.tsv")
    report = import_cc3m(table, tmp_path / "c", progress=False)
    assert (report.written, report.skipped, report.notes) == (5, [], [])
    records = list(Collection.open(tmp_path / "c").records(images=True))
    assert [r.id for r in records] == [f"{n:09d}" for n in range(5)]
    assert records[3].captions == ["a very typical bus station 3"]
    assert (records[3].url, records[3].image.bytes, records[3].source) == (url(3), None, "cc3m")
    again = import_cc3m(table, tmp_path / "c", progress=False)
    assert (again.written, again.kept) == (0, 5)


def test_odd_lines_are_named_and_the_numbers_of_the_others_stay(tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    lines = [
        f'he said "hi\t{url(0)}',
        "no tab",
        f"\t{url(2)}",
        "no url\tlocalhost",
        "",
        f"U+2028\u2028 and U+0085\u0085 שלום 🙂\t{url(4)}\tlabels\t0.9\r",
        f"None\t{url(4)}",
    ]
    table.write_bytes("\n".join(lines).encode() + b"\nlatin \xe9\thttp://x/y")
    report = import_cc3m(table, tmp_path / "c", progress=False)
    assert report.skipped == [
        ("line 2", "it has no tab between caption and URL"),
        ("line 3", "an empty text as its caption"),
        ("line 4", "'localhost' is not a URL"),
        ("line 8", "a text that is not valid Unicode as its caption"),
    ]
    records = {r.id: r.captions for r in Collection.open(tmp_path / "c").records()}
    assert records == {
        "000000000": ['he said "hi'],
        "000000004": ["U+2028\u2028 and U+0085\u0085 שלום 🙂"],
        "000000005": ["None"],
    }


@pytest.mark.parametrize("header", ["caption\turl\n", "\ufeffCaption\tURL\r\n"])
def test_a_first_line_may_name_the_columns(tmp_path: Path, header: str) -> None:
    table = put_table(tmp_path / "t.tsv", first=header)
    assert import_cc3m(table, tmp_path / "c", progress=False).skipped == []
    assert Collection.open(tmp_path / "c").ids()[0] == "000000000"
    swapped = tmp_path / "u.tsv"
    swapped.write_text(f"url\tcaption\n{url(0)}\ta bus\n")
    import_cc3m(swapped, tmp_path / "d", progress=False)
    (record,) = Collection.open(tmp_path / "d").records()
    assert (record.captions, record.url) == (["a bus"], url(0))


def test_images_are_joined_by_url_and_absentees_named(tmp_path: Path) -> None:
    table = put_table(tmp_path / "t.tsv")
    fetched(tmp_path / "images" / "00000.tar", [3, 0])
    fetched(tmp_path / "images" / "00001.tar", [77, 4])
    options = {"images": tmp_path / "images", "progress": False}
    report = import_cc3m(table, tmp_path / "c", **options)
    absent = "there is no image of its URL"
    assert report.skipped == [("000000001", absent), ("000000002", absent)]
    assert report.notes == ["1 pictures belong to no row of t.tsv"]
    records = {r.id: r for r in Collection.open(tmp_path / "c").records(images=True)}
    assert list(records) == ["000000000", "000000003", "000000004"]
    for n in (0, 3, 4):
        record = records[f"{n:09d}"]
        assert (record.image.bytes, record.image.path) == (picture(n), f"{n:09d}.png")
        assert record.captions == [f"a very typical bus station {n}"]
    fetched(tmp_path / "images" / "00002.tar", [1])
    again = import_cc3m(table, tmp_path / "c", **options)
    assert (again.written, again.kept, again.skipped) == (1, 3, [("000000002", absent)])


def test_samples_that_cannot_be_joined_are_named(tmp_path: Path) -> None:
    table = put_table(tmp_path / "t.tsv", 1)
    folder = tmp_path / "images" / "00000"
    folder.mkdir(parents=True)
    for name, info in (("a", "{}"), ("b", "[]"), ("c", json.dumps({"url": url(0)}))):
        (folder / f"{name}.png").write_bytes(picture(1))
        (folder / f"{name}.json").write_text(info)
    report = import_cc3m(table, tmp_path / "c", images=tmp_path / "images", progress=False)
    assert report.skipped == [
        ("00000/a", "it has no url to join it by"),
        ("00000/b", "its .json is not a JSON object"),
    ]
    assert report.written == 1


def test_what_cannot_be_imported_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        import_cc3m(tmp_path / "t.tsv", tmp_path / "c", progress=False)
    table = tmp_path / "t.tsv"
    table.write_text("caption,url\n")
    with pytest.raises(ParagrainError, match="line 1: it has no tab"):
        import_cc3m(table, tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="no tar files"):
        import_cc3m(table, tmp_path / "c", images=tmp_path / "absent", progress=False)


@pytest.mark.parametrize(
    "header", ["", "url\tcaption\n", "\ufeffURL\tTEXT\n", "key\turl\tcaption\n"]
)
def test_the_order_of_cc12m(tmp_path: Path, header: str) -> None:
    key = "7\t" if header.startswith("key") else ""
    rows = [(f"https://a.org/{n}.jpg?x=1", f"caption {n} of http://b.org") for n in range(3)]
    table = tmp_path / "cc12m.tsv"
    table.write_text(header + "".join(f"{key}{url}\t{text}\n" for url, text in rows), "utf-8")
    report = import_cc3m(table, tmp_path / "c", progress=False)
    assert report.skipped == []
    records = list(Collection.open(tmp_path / "c").records())
    assert [(r.url, r.captions[0]) for r in records] == rows
    told = ["cc12m.tsv has the URL first and the caption second, as CC12M"]
    assert report.notes == ([] if header else told)


def test_further_cells_with_text_are_counted(tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    table.write_text("a dog\thttps://a.org/1\tmore text\na cat\thttps://a.org/2\t0.5\n")
    report = import_cc3m(table, tmp_path / "c", progress=False)
    assert report.notes == ["1 rows have further cells with text, which are not used"]
