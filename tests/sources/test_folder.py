"""A folder of anybody's pictures comes in as it is, and stays in step when it changes."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paragrain.collection import Collection, ImportReport, Record
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import decode, media_type
from paragrain.sources.folder import import_folder


def encoded(colour: int = 0, kind: str = "JPEG", size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (colour, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


def put(folder: Path, *names: str) -> Path:
    """Put a picture, or for a `.txt` its own name as a text, under each name."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
        data = f"text of {name}".encode() if path.suffix == ".txt" else encoded(number, kind)
        path.write_bytes(data)
    return folder


def bring(folder: Path, out: Path, **options: Any) -> tuple[ImportReport, dict[str, Record]]:
    report = import_folder(folder, out, progress=False, **options)
    return report, {record.id: record for record in Collection.open(out).records(images=True)}


# --- Names ------------------------------------------------------------------------------------

NAMES = [
    "a.jpg",
    "a.png",
    "A.jpg",
    "a.JPG",
    "x/a.jpg",
    "x/y/a.jpg",
    "50% off #1.jpg",
    "a'b (c).jpg",
    "na\u00efve.jpg",
    "nai\u0308ve.jpg",
    "22.05.png",
    "🙂.jpg",
    "שלום.jpg",
    "two  spaces .jpg",
    "line\nbreak.jpg",
    "line\u2028sep.jpg",
    "back\\slash.jpg",
    "<script>alert(1)<\\script>.jpg",
    "None.jpg",
    "0007.jpg",
    "7.jpg",
    "-rf.jpg",
    "*.jpg",
]


def test_every_name_is_its_own_id(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", *NAMES)
    report, records = bring(folder, tmp_path / "out")
    assert (report.written, report.skipped) == (len(NAMES), [])
    assert list(records) == sorted(NAMES)
    for name, record in records.items():
        assert record.image.path == name
        assert record.image.bytes == (folder / name).read_bytes()
        assert (record.split, record.source) == ("train", "in")


def test_a_name_that_is_not_unicode_is_told(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "a.jpg")
    for name in (b"caf\xe9.jpg", b"caf\xe9.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(encoded())
    report, records = bring(folder, tmp_path / "out")
    assert list(records) == ["a.jpg"]
    assert report.skipped == [
        ("caf\\udce9.jpg", "its name is not valid Unicode: rename it"),
        ("texts: caf\\udce9.txt", "there is no image beside it"),
    ]


# --- What is taken ----------------------------------------------------------------------------


def test_hidden_files_and_other_files_are_left_out_quietly(tmp_path: Path) -> None:
    names = ["a.jpg", ".hidden.jpg", "._a.jpg", ".thumbs/b.jpg", "x/.git/c.jpg"]
    folder = put(tmp_path / "in", *names)
    for name in ("notes.md", "movie.mp4", "Thumbs.db", "jpg", "table.csv"):
        (folder / name).write_bytes(b"other")
    report, records = bring(folder, tmp_path / "out")
    assert (list(records), report.skipped) == (["a.jpg"], [])


def test_pictures_of_kinds_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "a.jpg")
    (folder / "phone.CR2").write_bytes(b"raw")
    report, _ = bring(folder, tmp_path / "out")
    assert report.skipped == [("phone.CR2", "RAW photographs (.cr2) are not read: export as JPEG")]


def test_damaged_pictures_are_named_with_their_reason(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "good.jpg", "last.jpg")
    rng = np.random.default_rng(0)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
    data = buffer.getvalue()
    for name, size in [("0", 0), ("3", 3), ("50", 50), ("half", len(data) // 2), ("less 2", -2)]:
        (folder / f"{name}.jpg").write_bytes(data[:size])
    huge = io.BytesIO()
    Image.new("1", (15_000, 15_000)).save(huge, "PNG")
    (folder / "huge.png").write_bytes(huge.getvalue())
    report, records = bring(folder, tmp_path / "out")
    assert list(records) == ["good.jpg", "last.jpg"]
    assert dict(report.skipped) == {
        "0.jpg": "an empty file",
        "3.jpg": "truncated or damaged in its header",
        "50.jpg": "truncated",
        "half.jpg": "truncated",
        "huge.png": "too many pixels (225,000,000; the limit is 100,000,000)",
        "less 2.jpg": "truncated",
    }
    report, _ = bring(folder, tmp_path / "small", max_pixels=64)
    assert (report.written, len(report.skipped)) == (2, 6)


def test_odd_pictures_are_one_upright_frame_of_the_kind_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    red, blue = Image.new("RGB", (26, 28), "red"), Image.new("RGB", (26, 28), "blue")
    red.save(folder / "two.gif", save_all=True, append_images=[blue])
    (folder / "one pixel.png").write_bytes(encoded(9, "PNG", (1, 1)))
    (folder / "really a jpeg.png").write_bytes(encoded(200))
    report, records = bring(folder, tmp_path / "out")
    assert report.skipped == []
    data = {name: record.image.bytes or b"" for name, record in records.items()}
    assert decode(data["two.gif"]).getpixel((3, 3)) == (255, 0, 0)
    assert decode(data["one pixel.png"]).size == (1, 1)
    assert media_type(data["really a jpeg.png"]) == "image/jpeg"


def test_links_loops_and_things_that_are_no_files(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "a.jpg", "x/b.jpg")
    elsewhere = put(tmp_path / "elsewhere", "c.jpg")
    (folder / "linked.jpg").symlink_to(elsewhere / "c.jpg")
    (folder / "broken.jpg").symlink_to(elsewhere / "absent.jpg")
    (folder / "self.jpg").symlink_to(folder / "self.jpg")
    (folder / "x" / "up").symlink_to(folder)
    os.mkfifo(folder / "pipe.jpg")
    (folder / "folder.jpg").mkdir()
    report, records = bring(folder, tmp_path / "out")
    assert list(records) == ["a.jpg", "linked.jpg", "x/b.jpg"]
    assert sorted(report.skipped) == [
        ("broken.jpg", "a broken link"),
        ("pipe.jpg", "not a file that can be read"),
        ("self.jpg", "a broken link"),
    ]


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path / "in", "a.jpg", "b.jpg", "c.jpg", "c.txt", "shut/d.jpg")
    read, scan = Path.read_bytes, os.scandir
    denied = PermissionError(13, "Permission denied", str(folder / "shut"))

    def read_bytes(path: Path) -> bytes:
        if path.name in ("b.jpg", "c.txt"):
            raise denied
        return read(path)

    def scandir(path: Any) -> Any:
        if Path(path).name == "shut":
            raise denied
        return scan(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)  # root may read all: so no chmod here
    monkeypatch.setattr(os, "scandir", scandir)
    report = import_folder(folder, tmp_path / "out", progress=False)
    assert report.written == 2
    assert report.skipped == [
        ("shut", "cannot be read: Permission denied"),
        ("texts: c.txt", "cannot be read: Permission denied"),
        ("b.jpg", "cannot be read: Permission denied"),
    ]


def test_the_collection_may_lie_in_the_folder_and_is_not_indexed(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "a.jpg")
    out = folder / "collection"
    bring(folder, out)
    put(out, "extra.jpg")
    report, records = bring(folder, out)
    assert (report.kept, list(records)) == (1, ["a.jpg"])
    with pytest.raises(UsageError, match="the folder of the pictures itself"):
        import_folder(folder, folder)


def test_no_folder_or_no_pictures_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        import_folder(tmp_path / "absent", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParagrainError, match="there are no images"):
        import_folder(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(UsageError, match="choose from"):
        import_folder(tmp_path / "empty", tmp_path / "out", txt_field="negatives")
    assert not (tmp_path / "out").exists()


# --- Texts ------------------------------------------------------------------------------------


def test_text_files_belong_to_the_picture_beside_them(tmp_path: Path) -> None:
    names = [
        "a.jpg",
        "a.txt",
        "x/a.jpg",
        "22.05.png",
        "22.05.txt",
        "b.jpg",
        "b.jpg.txt",
        "bare.jpg",
    ]
    report, records = bring(put(tmp_path / "in", *names), tmp_path / "out")
    assert report.skipped == []
    assert {name: record.captions for name, record in records.items()} == {
        "22.05.png": ["text of 22.05.txt"],
        "a.jpg": ["text of a.txt"],
        "b.jpg": ["text of b.jpg.txt"],
        "bare.jpg": [],
        "x/a.jpg": [],
    }


def test_orphans_and_doubtful_text_files_are_named(tmp_path: Path) -> None:
    names = [
        "a.jpg",
        "a.png",
        "a.txt",
        "b.jpg",
        "b.txt",
        "b.jpg.txt",
        "lost.txt",
        "x/b.txt",
        "A.TXT",
    ]
    folder = put(tmp_path / "in", *names[:-1], "c.jpg", "d.jpg")
    (folder / "A.TXT").write_bytes(b"text")
    (folder / "c.txt").write_bytes(b" \n\n")
    (folder / "d.txt").write_bytes(b"caf\xe9")
    report, records = bring(folder, tmp_path / "out")
    assert len(records) == 5
    assert report.skipped == [
        ("texts: A.TXT", "it fits 2 images: a.jpg, a.png"),
        ("texts: a.txt", "it fits 2 images: a.jpg, a.png"),
        ("texts: b.txt", "another .txt file belongs to b.jpg already"),
        ("texts: c.txt", "an empty text"),
        ("texts: d.txt", "a text that is not valid Unicode"),
        ("texts: lost.txt", "there is no image beside it"),
        ("texts: x/b.txt", "there is no image beside it"),
    ]
    assert records["b.jpg"].captions == ["text of b.jpg.txt"]


def test_text_files_match_in_another_unicode_form(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "nai\u0308ve.jpg", "na\u00efve.txt")
    report, records = bring(folder, tmp_path / "out")
    assert report.skipped == []
    assert records["nai\u0308ve.jpg"].captions == ["text of na\u00efve.txt"]


def test_each_line_is_a_caption_or_the_file_is_one_text(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", "a.jpg")
    text = '\ufeffNone\r\n\r\n "quoted"\tx \nU+2028\u2028 🙂\n'
    (folder / "a.txt").write_bytes(text.encode())
    _, records = bring(folder, tmp_path / "captions")
    assert records["a.jpg"].captions == ["None", ' "quoted"\tx ', "U+2028\u2028 🙂"]
    _, records = bring(folder, tmp_path / "whole", txt_field="paragraph")
    assert records["a.jpg"].paragraph == 'None\r\n\r\n "quoted"\tx \nU+2028\u2028 🙂'
    assert records["a.jpg"].captions == []


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_tables_add_to_text_files(tmp_path: Path, kind: str) -> None:
    folder = put(tmp_path / "in", "a.jpg", "a.txt", "x/b.jpg")
    table = tmp_path / f"texts.{kind}"
    mark = "," if kind == "csv" else "\t"
    rows = [
        ["file", "caption", "split"],
        ["in/a.jpg", "more", "val"],
        ["b", "own", ""],
        ["c", "?", ""],
    ]
    if kind == "jsonl":
        table.write_text(
            '{"file": "in/a.jpg", "caption": "more", "split": "val"}\n'
            '{"file": "b", "caption": "own"}\n{"file": "c", "caption": "?"}\n'
        )
    else:
        table.write_text("".join(mark.join(row) + "\n" for row in rows))
    report, records = bring(folder, tmp_path / "out", texts=table, split="test", name="mine")
    assert [where for where, _ in report.skipped] == ["texts: c"]
    assert report.splits == {"val": 1, "test": 1}
    assert records["a.jpg"].captions == ["text of a.txt", "more"]
    assert records["x/b.jpg"].captions == ["own"]
    assert {record.source for record in records.values()} == {"mine"}


# --- Updates ----------------------------------------------------------------------------------


def test_indexed_twice_one_deleted_then_updated(tmp_path: Path) -> None:
    folder, out = put(tmp_path / "in", "a.jpg", "b.jpg", "x/c.jpg"), tmp_path / "out"
    bring(folder, out)
    before = Collection.open(out).fingerprint
    report, records = bring(folder, out)
    assert (report.written, report.kept, report.removed, len(records)) == (0, 3, 0, 3)
    assert Collection.open(out).fingerprint == before
    (folder / "b.jpg").unlink()
    report, records = bring(folder, out)
    assert (report.written, report.kept, report.removed) == (0, 2, 1)
    assert list(records) == ["a.jpg", "x/c.jpg"]
    put(folder, "a.jpg", "d.jpg", "d.txt")
    (folder / "x" / "c.txt").write_text("now with a text")
    report, records = bring(folder, out)
    collection = Collection.open(out)
    assert sorted(collection.ids()) == ["a.jpg", "d.jpg", "x/c.jpg"]
    assert collection.problems == []
    assert records["x/c.jpg"].captions == ["now with a text"]
    assert collection.fingerprint != before
