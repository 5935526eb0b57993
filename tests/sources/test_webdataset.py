"""WebDataset and img2dataset: samples keep together, and damage costs what it hits alone."""

import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection, ImportReport
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import parts
from paragrain.sources.webdataset import import_webdataset


def picture(colour: int = 0, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


def put_tar(path: Path, members: dict[str, bytes | str | dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            content = json.dumps(content) if isinstance(content, dict) else content
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def bring_in(samples: Path, out: Path) -> tuple[ImportReport, dict[str, Any]]:
    report = import_webdataset(samples, out, progress=False)
    return report, {record.id: record for record in Collection.open(out).records(images=True)}


def img2dataset_tar(path: Path, first: int) -> Path:
    """Two samples as img2dataset writes them."""
    members: dict[str, Any] = {}
    for n in (first, first + 1):
        key = f"{n:09d}"
        url = f"https://example.org/{n}.jpg"
        info = {"caption": f"caption {n}", "url": url, "key": key, "status": "success"}
        info |= {"error_message": None, "width": 8, "height": 8, "exif": "{}", "sha256": "ab"}
        members |= {f"{key}.jpg": picture(n, "JPEG"), f"{key}.txt": info["caption"]}
        members[f"{key}.json"] = info
    return put_tar(path, members)


def test_img2dataset_output_by_pattern_folder_and_single_tar(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    for number in range(3):
        img2dataset_tar(shards / f"{number:05d}.tar", 10_000 * number)
    (shards / "00000_stats.json").write_text("{}")
    report, records = bring_in(shards / "{00000..00003}.tar", tmp_path / "c")
    assert report.skipped == [(str(shards / "00003.tar"), "there is no such file")]
    assert list(records)[1:3] == ["00000/000000001", "00001/000010000"]
    record = records["00001/000010001"]
    assert (record.captions, record.url) == (["caption 10001"], "https://example.org/10001.jpg")
    assert record.image.path == "00001/000010001.jpg"
    assert record.image.bytes == picture(10_001, "JPEG")
    again, _ = bring_in(shards, tmp_path / "c")
    assert (again.written, again.kept, again.skipped, again.notes) == (0, 6, [], [])
    _, one = bring_in(shards / "00002.tar", tmp_path / "one")
    assert one == {id: record for id, record in records.items() if id.startswith("00002/")}


def test_names_with_dots_are_cut_at_the_last_one(tmp_path: Path) -> None:
    """WebDataset's own rule makes one sample of all four of the first members."""
    tar = put_tar(
        tmp_path / "t.tar",
        {
            "22.05.png": picture(1),
            "22.06.png": picture(2),
            "22.05.txt": "five",
            "22.06.txt": "six",
            "./a.b/x.PNG": picture(3),
            "./a.b/x.caption": "one\ntwo\n",
            "no_dot": b"",
        },
    )
    report, records = bring_in(tar, tmp_path / "c")
    assert report.skipped == []
    captions = {id: record.captions for id, record in records.items()}
    assert captions == {"t/22.05": ["five"], "t/22.06": ["six"], "t/a.b/x": ["one", "two"]}


def test_orphans_and_oddities_are_named_and_counted(tmp_path: Path) -> None:
    tar = put_tar(
        tmp_path / "t.tar",
        {
            "bare.png": picture(),
            "alone.txt": "no picture",
            "alone2.json": {"caption": "none either"},
            "two.png": picture(),
            "two.jpg": picture(),
            "two.txt": "two",
            "cut.png": picture()[:40],
            "new.jxl": b"?",
            "list.png": picture(),
            "list.json": "[1]",
            "latin.png": picture(),
            "latin.txt": "é".encode("latin-1"),
            "../../out.png": picture(),
            "/etc/root.png": picture(),
            "._mac.png": b"resource fork",
            "labels.cls": b"3",
            "n.png": picture(),
            "n.json": {"text": "a\nb", "caption": None, "description": "long", "url": 7},
            "n.txt": "a\nb\n",
        },
    )
    report, records = bring_in(tar, tmp_path / "c")
    assert dict(report.skipped) == {
        "t/alone": "its text has no image beside it",
        "t/alone2": "its text has no image beside it",
        "t/two": "a second image with this key, .jpg, is left out",
        "t/cut": "truncated or damaged in its header",
        "t/new": ".jxl images are not read: convert to JPEG or PNG",
        "t/list": "its .json is not a JSON object",
        "t/latin": "its .txt is not UTF-8",
        "t/../../out": "its name leads out of the tar's own folder",
        "t//etc/root": "its name leads out of the tar's own folder",
    }
    assert list(records) == ["t/bare", "t/two", "t/n"]
    assert report.notes == [
        "1 files that devices and programs leave are left out (._* 1)",
        "2 images have no captions",  # one of them is the cut one
    ]
    assert records["t/n"].captions == ["a\nb"]  # in both files, once
    assert (records["t/n"].description, records["t/n"].url) == ("long", None)


@pytest.mark.parametrize(
    ("size", "left", "reason"),
    [
        (20 * 512, 5, "damaged or cut off after 10,240 bytes"),  # the end mark is missing
        (16 * 512 + 100, 4, "damaged or cut off after 8,192 bytes"),  # in a header
        (17 * 512, 4, "cannot be read to its end"),  # after a header
        (13 * 512 + 20, 3, "cannot be read to its end"),  # in a picture
    ],
)
def test_of_a_cut_tar_what_lies_before_comes_in(
    tmp_path: Path, size: int, left: int, reason: str
) -> None:
    members: dict[str, Any] = {}
    for n in range(5):  # each takes four blocks of 512 bytes
        members |= {f"{n}.png": picture(n), f"{n}.txt": str(n)}
    tar = put_tar(tmp_path / "t.tar", members)
    tar.write_bytes(tar.read_bytes()[:size])
    report, records = bring_in(tar, tmp_path / "c")
    assert [record.captions for record in records.values()] == [[str(n)] for n in range(left)]
    assert report.skipped[0][0] == "t.tar"
    assert reason in report.skipped[0][1]


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    members = {f"{n}.png": picture(n) for n in range(6)}
    tar = put_tar(tmp_path / "d" / "t.tar", members)
    data = bytearray(tar.read_bytes())
    data[3 * 1024 : 3 * 1024 + 512] = b"x" * 512
    tar.write_bytes(data)
    put_tar(tmp_path / "d" / "u.tar", {"a.png": picture(9)})
    report, records = bring_in(tmp_path / "d", tmp_path / "c")
    assert list(records) == ["t/0", "t/1", "t/2", "u/a"]
    (named,) = report.skipped
    assert named[0] == "t.tar"
    assert named[1].startswith("damaged or cut off after 3,072 bytes")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_follows_the_end_mark_is_named(tmp_path: Path, pack: Any) -> None:
    tars = [put_tar(tmp_path / f"{n}.tar", {f"{n}.png": picture(n)}) for n in range(2)]
    joined = tmp_path / "t.tar"
    joined.write_bytes(b"".join(pack(tar.read_bytes()) for tar in tars))
    report, records = bring_in(joined, tmp_path / "c")
    assert list(records) == ["t/0"]
    (named,) = report.skipped
    assert named[0] == "t.tar"
    assert "goes on after its end mark" in named[1]


def test_finished_tars_are_not_read_again_and_changed_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = tmp_path / "s"
    for number in range(2):
        img2dataset_tar(shards / f"{number:05d}.tar", 10_000 * number)
    bring_in(shards, tmp_path / "c")
    read: list[str] = []
    whole = parts.Part.read

    def noted(part: parts.Part) -> bytes:
        read.append(part.file.name)
        return whole(part)

    monkeypatch.setattr(parts.Part, "read", noted)
    img2dataset_tar(shards / "00002.tar", 20_000)
    report, _ = bring_in(shards, tmp_path / "c")
    assert (report.written, report.kept, set(read)) == (2, 4, {"00002.tar"})
    os.utime(shards / "00000.tar", ns=(5, 5))
    (shards / "00001.tar").unlink()
    read.clear()
    report, _ = bring_in(shards, tmp_path / "c")
    assert (report.written, report.kept, report.removed) == (2, 2, 2)
    assert set(read) == {"00000.tar"}


def test_a_folder_of_files_as_img2dataset_writes_it_gives_the_same_records(tmp_path: Path) -> None:
    shards, files = tmp_path / "s", tmp_path / "f"
    for number in range(2):
        tar = img2dataset_tar(shards / f"{number:05d}.tar", 10_000 * number)
        with tarfile.open(tar) as archive:
            archive.extractall(files / tar.stem, filter="data")
    _, in_tars = bring_in(shards, tmp_path / "c")
    report, in_files = bring_in(files, tmp_path / "d")
    assert in_files == in_tars
    (files / "00001" / "000010000.txt").write_text("another caption")
    again, records = bring_in(files, tmp_path / "d")
    assert (report.written, again.written, again.kept) == (4, 1, 3)
    assert records["00001/000010000"].captions == ["caption 10000", "another caption"]


def test_what_cannot_be_imported_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tar files and no images"):
        import_webdataset(tmp_path, tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="no tar files and no images"):
        import_webdataset(tmp_path / "{0..3}.tar", tmp_path / "c", progress=False)
    (tmp_path / "x.tar").write_bytes(b"not a tar")
    with pytest.raises(ParagrainError, match=r"x\.tar: cannot be read"):
        import_webdataset(tmp_path / "x.tar", tmp_path / "c", progress=False)
    empty = put_tar(tmp_path / "empty.tar", {"labels.cls": b"3"})
    with pytest.raises(ParagrainError, match="there are no images in"):
        import_webdataset(empty, tmp_path / "c", progress=False)
    (tmp_path / "y.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd...")
    report, _ = bring_in(put_tar(tmp_path / "z.tar", {"a.png": picture()}).parent, tmp_path / "c")
    assert ("y.tar.zst", "compressed by zstd: unpack it to .tar first") in report.skipped


# --- Links, stems that two pictures share, and other oddities of tars ---------------------------


def put_members(path: Path, *members: tuple[str, bytes | str], kind: str = "w") -> Path:
    """Members in order: bytes are files, "=x" hard links to x, "->x" symbolic ones, "|" a pipe."""
    with tarfile.open(path, kind, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                info.pax_headers = {"comment": "é" * 300}
            elif content == "|":
                info.type = tarfile.FIFOTYPE
            else:
                info.type = tarfile.LNKTYPE if content.startswith("=") else tarfile.SYMTYPE
                info.linkname = content.removeprefix("=").removeprefix("->")
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


@pytest.mark.parametrize("kind", ["w", "w:gz"])
def test_links_in_a_tar_stand_for_its_members(tmp_path: Path, kind: str) -> None:
    tar = put_members(
        tmp_path / "t.tar",
        ("./a/1.png", picture(1)),
        ("./a/1.txt", b"one"),
        ("a/2.png", "=./a/1.png"),
        ("b/3.png", "->../a/1.png"),
        ("b/3.txt", "->../a/1.txt"),
        ("b/4.png", "->5.png"),  # to a later one, by another link
        ("b/5.png", "->6.png"),
        ("b/6.png", picture(6)),
        ("7.png", "->gone.png"),
        ("8.png", "->/etc/passwd"),
        ("9.png", "->../../out.png"),
        ("circle.png", "->circle.png"),
        ("pipe.png", "|"),
        ("latest.log", "->gone.log"),
        kind=kind,
    )
    report, records = bring_in(tar, tmp_path / "c")
    assert {id: (r.captions, r.image.bytes) for id, r in records.items()} == {
        "t/a/1": (["one"], picture(1)),
        "t/a/2": ([], picture(1)),
        "t/b/3": (["one"], picture(1)),
        "t/b/4": ([], picture(6)),
        "t/b/5": ([], picture(6)),
        "t/b/6": ([], picture(6)),
    }
    assert dict(report.skipped) == {
        "t/7.png": "a link to gone.png, which is no file of the tar",
        "t/8.png": "a link to /etc/passwd, which is no file of the tar",
        "t/9.png": "a link to ../../out.png, which is no file of the tar",
        "t/circle.png": "a link to circle.png, which is no file of the tar",
        "t/pipe.png": "not a file that can be read",
    }


def test_two_pictures_of_one_stem_keep_their_own_texts_or_are_named(tmp_path: Path) -> None:
    png, jpg = picture(1), picture(2, "JPEG")
    tar = put_members(
        tmp_path / "t.tar",
        ("own.png", png), ("own.png.txt", b"of png"), ("own.jpg", jpg), ("own.jpg.txt", b"of jpg"),
        ("twice.png", png), ("twice.txt", b"of png"), ("twice.jpg", jpg), ("twice.txt", b"of jpg"),
        ("mixed.png", png), ("mixed.txt", b"?"), ("mixed.jpg", jpg), ("mixed.json", b"{}"),
        ("one.jpg", jpg), ("one.jpg.txt", b"full name"),
        ("gone.png.txt", b"orphan"),
    )  # fmt: skip
    report, records = bring_in(tar, tmp_path / "c")
    assert {id: (r.captions, r.image.bytes) for id, r in records.items()} == {
        "t/own.png": (["of png"], png),
        "t/own.jpg": (["of jpg"], jpg),
        "t/one": (["full name"], jpg),
    }
    named = dict(report.skipped)
    assert list(named) == ["t/twice", "t/mixed", "t/gone.png"]
    assert named["t/twice"].startswith("which text belongs to which of its 2 images is not clear")


def test_texts_in_json_that_cannot_be_kept_are_named(tmp_path: Path) -> None:
    tar = put_tar(
        tmp_path / "t.tar",
        {
            "a.png": picture(1), "a.json": {"caption": 7},
            "b.png": picture(2), "b.json": {"captions": ["x", 8]},
            "c.png": picture(3), "c.json": {"description": ["x", "y"]},
            "d.png": picture(4), "d.json": {"caption": None, "text": "", "captions": ["x"]},
            "e.png": picture(5), "e.json": {"caption": "['x', \"y's\"]"},
            "f.png": picture(6), "f.txt": "é".encode("utf-16"),
        },
    )  # fmt: skip
    report, records = bring_in(tar, tmp_path / "c")
    assert dict(report.skipped) == {
        "t/a": "its .json: int where text should be in captions",
        "t/b": "its .json: int where text should be in captions",
        "t/c": "its .json: 2 texts in description, which holds one",
    }
    captions = {id: r.captions for id, r in records.items()}
    assert captions == {"t/d": ["x"], "t/e": ["x", "y's"], "t/f": ["é"]}


def test_what_a_mac_has_packed_is_counted(tmp_path: Path) -> None:
    tar = put_tar(tmp_path / "t.tar", {
        "a.png": picture(), "a.txt": "x", "._a.png": b"fork", "__MACOSX/._a.png": b"fork",
    })  # fmt: skip
    report, records = bring_in(tar, tmp_path / "c")
    assert (list(records), report.skipped) == (["t/a"], [])
    assert report.notes == [
        "2 files that devices and programs leave are left out (._* 1, __MACOSX 1)"
    ]


def test_texts_whose_names_differ_in_form_or_case_find_their_image(tmp_path: Path) -> None:
    tar = put_tar(
        tmp_path / "t.tar",
        {"na\u00efve.png": picture(1), "nai\u0308ve.txt": "x", "b.png": picture(2), "B.TXT": "y"},
    )
    report, records = bring_in(tar, tmp_path / "c")
    assert report.skipped == []
    assert [record.captions for record in records.values()] == [["x"], ["y"]]
