"""Images kept as files: linked, safe from what becomes of the source, gone with their record."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection, ImageRef, ImportReport, Item, Record, write_collection
from paragrain.collection.reading import inside
from paragrain.sources import import_folder


def put(folder: Path, *names: str, colour: int = 9) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (colour, 0, 0)).save(folder / name)
    return folder


def bring_in(source: Path, out: Path, store: Any = "paths") -> ImportReport:
    return import_folder(source, out, store=store, progress=False)


def links(out: Path) -> set[str]:
    return {p.relative_to(out).as_posix() for p in (out / "images").rglob("*") if p.is_file()}


def test_the_same_records_as_with_bytes_and_no_second_copy(tmp_path: Path) -> None:
    source = put(tmp_path / "s", "a.png", "50% off #1.png", "d/naïve.png")
    (source / "a.txt").write_text("a caption")
    (source / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    reports = [bring_in(source, tmp_path / store, store) for store in ("bytes", "paths")]
    assert reports[0].skipped == reports[1].skipped
    stored, linked = (Collection.open(tmp_path / store) for store in ("bytes", "paths"))
    for one, other in zip(stored.records(images=True), linked.records(images=True), strict=True):
        assert other.image == ImageRef(path=f"images/{one.image.path}")
        assert (one.id, one.content, one.captions) == (other.id, other.content, other.captions)
        assert linked.image_bytes(other) == one.image.bytes
        assert (source / one.id).samefile(tmp_path / "paths" / str(other.image.path))
    assert links(tmp_path / "paths") == {f"images/{id}" for id in stored.ids()}
    for file in source.rglob("*.png"):
        file.unlink()
    for record in linked.records():
        assert linked.image_bytes(record)[:4] == b"\x89PNG"


def test_a_rerun_does_what_is_missing_and_takes_out_what_is_gone(tmp_path: Path) -> None:
    source, out = put(tmp_path / "s", "a.png", "b/b.png", "b/c.png"), tmp_path / "c"
    bring_in(source, out)
    again = bring_in(source, out)
    assert (again.written, again.kept) == (0, 3)
    (source / "a.png").unlink()
    (source / "b/b.png").unlink()
    put(source, "b/b.png", colour=200)  # another file in its place
    put(source, "new.png")
    report = bring_in(source, out)
    assert (report.written, report.kept, report.removed) == (2, 1, 1)
    assert links(out) == {"images/b/b.png", "images/b/c.png", "images/new.png"}
    collection = Collection.open(out)
    for record in collection.records():
        assert collection.image_bytes(record) == (source / record.id).read_bytes()


def test_images_that_are_gone_from_the_collection_are_put_there_again(tmp_path: Path) -> None:
    source, out = put(tmp_path / "s", "a.png", "b.png", "c.png"), tmp_path / "c"
    bring_in(source, out)
    (out / "images/a.png").unlink()
    report = bring_in(source, out)
    assert (report.written, report.kept) == (1, 2)
    assert links(out) == {"images/a.png", "images/b.png", "images/c.png"}
    state = (source / "b.png").stat()
    (out / "images/b.png").unlink()
    (out / "images/b.png").write_bytes(b"a copy that somebody has spoilt")
    os.utime(source / "b.png", ns=(state.st_atime_ns, state.st_mtime_ns))
    report = import_folder(source, out, store="paths", verify=True, progress=False)
    assert (report.written, report.kept) == (1, 2)
    assert (out / "images/b.png").read_bytes() == (source / "b.png").read_bytes()


def test_bytes_become_paths_and_paths_bytes(tmp_path: Path) -> None:
    source, out = put(tmp_path / "s", "a.png", "b.png"), tmp_path / "c"
    bring_in(source, out, "bytes")
    assert bring_in(source, out, "paths").written == 2
    assert links(out) == {"images/a.png", "images/b.png"}
    assert bring_in(source, out, "bytes").written == 2
    assert links(out) == set()
    records = list(Collection.open(out).records(images=True))
    assert [record.image.bytes for record in records] == [(source / "a.png").read_bytes()] * 2


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.ENOTSUP])
def test_where_no_link_can_be_made_it_is_copied_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    source = put(tmp_path / "s", "a.png", "b.png")
    monkeypatch.setattr(os, "link", refuse)
    report = bring_in(source, tmp_path / "c")
    assert "copied, since it could not be linked: 2 images" in report.notes
    copy = tmp_path / "c/images/a.png"
    assert copy.read_bytes() == (source / "a.png").read_bytes()
    assert not copy.samefile(source / "a.png")
    assert links(tmp_path / "c") == {"images/a.png", "images/b.png"}


def test_a_symbolic_link_in_the_source_stays_none(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere", "real.png") / "real.png"
    source = put(tmp_path / "s", "a.png")
    (source / "l.png").symlink_to(real)
    bring_in(source, tmp_path / "c")
    kept = tmp_path / "c/images/l.png"
    assert not kept.is_symlink()
    assert kept.samefile(real)
    collection = Collection.open(tmp_path / "c")
    assert collection.image_bytes(collection.get(["l.png"])["l.png"]) == real.read_bytes()


def linked_item(id: str, file: Path, path: str, stamp: str = "1") -> Item:
    return Item(id, stamp, lambda: Record(id, ImageRef(file.read_bytes(), path)), file=file)


def write(out: Path, *items: Item) -> ImportReport:
    return write_collection(out, items, name="t", source="t", store="paths", progress=False)


def test_an_image_of_several_records_goes_with_the_last(tmp_path: Path) -> None:
    file = put(tmp_path / "s", "x.png") / "x.png"
    items = [linked_item(id, file, "x.png") for id in "abcdefgh"]
    assert write(tmp_path / "c", *items).written == 8
    assert links(tmp_path / "c") == {"images/x.png"}
    write(tmp_path / "c", items[3], linked_item("y", file, "y.png"))
    assert links(tmp_path / "c") == {"images/x.png", "images/y.png"}
    write(tmp_path / "c", linked_item("y", file, "y.png"))
    assert links(tmp_path / "c") == {"images/y.png"}


@pytest.mark.parametrize("path", ["../x.png", "../../x.png", "out/x.png", "a\0b"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    file = put(tmp_path / "s", "x.png") / "x.png"
    good = linked_item("good", file, "good.png")
    write(tmp_path / "c", good)
    (tmp_path / "c/images/out").symlink_to(tmp_path / "s")
    before = file.stat().st_nlink
    report = write(tmp_path / "c", good, linked_item("bad", file, path))
    assert [id for id, _ in report.skipped] == ["bad"]
    assert (report.splits, file.stat().st_nlink) == ({"train": 1}, before)


def test_images_that_no_import_put_there_are_left_alone(tmp_path: Path) -> None:
    own = put(tmp_path / "c/images", "own.png") / "own.png"
    (tmp_path / "c/collection.json").write_text("{}")
    items = [Item(n, "1", lambda n=n: Record(n, ImageRef(path="images/own.png"))) for n in "ab"]
    options: Any = {"name": "t", "source": "t", "progress": False}
    write_collection(tmp_path / "c", items, **options)
    write_collection(tmp_path / "c", items[:1], **options)
    write_collection(tmp_path / "c", [items[0], Item("b", "1", lambda: Record("b"))], **options)
    assert own.is_file()


def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(40)]
    source = put(tmp_path / "s", *names)

    def stop() -> Record:
        raise KeyboardInterrupt

    items = [linked_item(name, source / name, name) for name in names]
    stopped = [*items[:25], Item(items[25].id, "1", stop), *items[26:]]
    options: Any = {
        "name": "t",
        "source": "t",
        "store": "paths",
        "shard_rows": 4,
        "progress": False,
    }
    with pytest.raises(KeyboardInterrupt):
        write_collection(tmp_path / "c", stopped, **options)
    (tmp_path / "c/images/.0123.tmp").write_bytes(b"of a killed run")
    report = write_collection(tmp_path / "c", items, **options)
    assert report.kept >= 4
    assert report.kept + report.written == 40
    assert links(tmp_path / "c") == {f"images/{name}" for name in names}
    write_collection(tmp_path / "d", items, **options)
    fingerprints = {Collection.open(tmp_path / name).fingerprint for name in "cd"}
    assert len(fingerprints) == 1


def test_hugging_face_datasets_shows_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    bring_in(put(tmp_path / "s", "a/b.png", colour=77), tmp_path / "c")
    monkeypatch.chdir(tmp_path / "c")  # from which its relative paths start
    rows = datasets.load_dataset(
        "parquet", data_files="records/*.parquet", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows[0]["image"].getpixel((0, 0)) == (77, 0, 0)
    assert inside(tmp_path / "c", "images/a/b.png").is_file()
