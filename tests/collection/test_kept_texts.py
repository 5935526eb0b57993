"""What somebody wrote or paid for stays with its picture, whatever an import says."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from paragrain.collection import Collection, ImageRef, ImportReport, Item, Record, update_records
from paragrain.collection.kept_texts import KEPT, REPLACED

Items = Callable[..., list[Item]]
Write = Callable[..., ImportReport]

PAID = {
    "generated": ["a red thing", "something red"],
    "negatives": ["a blue thing"],
    "paragraph": "There is a thing. It is red.",
    "paragraph_score": 9,
    "annotation": json.dumps({"captions": {"model": "m"}, "paragraph": {"model": "m"}}),
}


def png(colour: int, note: str | None = None) -> bytes:
    buffer = io.BytesIO()
    info = PngImagePlugin.PngInfo()
    if note:
        info.add_text("Comment", note)
    Image.new("RGB", (8, 8), (colour, 20, 200)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def photo(id: str, colour: int, note: str | None = None, **fields: Any) -> Item:
    """An item as importers of photographs make it: its stamp comes from all that goes into it."""
    stamp = json.dumps([colour, note, fields])
    record = {"captions": [], **fields}
    return Item(
        id,
        stamp,
        lambda: Record(id, ImageRef(png(colour, note), id), **record),
        says_split="split" in fields,
    )


def annotate(folder: Path, ids: list[str], **changes: Any) -> None:
    """Have some records hold what a model wrote."""
    for file, own in Collection.open(folder).files().items():
        wanted = {id: changes or PAID for id in own if id in ids}
        if wanted:
            update_records(folder, file, wanted)


def record(folder: Path, id: str) -> Record:
    return Collection.open(folder).get([id], images=False)[id]


def paid(one: Record) -> dict[str, Any]:
    return {name: getattr(one, name) for name in PAID}


def test_an_import_without_its_table_keeps_what_the_table_said(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    told = {"captions": ["mine"], "split": "test", "group": "g", "url": "https://example.org/a"}
    write(folder, [photo("a", 1, **told), photo("b", 2, captions=["other"])])
    annotate(folder, ["a"])
    report = write(folder, [photo("a", 1), photo("b", 2)])
    one = record(folder, "a")
    assert (one.captions, one.split, one.group, one.url) == tuple(told.values())
    assert paid(one) == PAID
    assert report.splits == {"test": 1, "train": 1}
    kept = {"captions": 2, "generated": 1, "paragraph": 1, "negatives": 1}
    assert report.carried == kept
    assert any("captions of 2 images" in note for note in report.notes)
    assert not (folder / KEPT).exists()


def test_a_source_that_says_other_texts_has_the_old_ones_named_and_written_down(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["mine"])])
    annotate(folder, ["a"])
    report = write(folder, [photo("a", 1, captions=["yours"], paragraph="Another. Text.")])
    one = record(folder, "a")
    assert (one.captions, one.paragraph, one.paragraph_score) == (["yours"], "Another. Text.", None)
    assert one.generated == PAID["generated"]
    assert json.loads(one.annotation or "") == {"captions": {"model": "m"}}
    assert report.replaced == {"captions": 1, "paragraph": 1}
    assert any(REPLACED in note for note in report.notes)
    (line,) = (folder / REPLACED).read_text("utf-8").splitlines()
    assert json.loads(line) == {
        "id": "a",
        "captions": ["mine"],
        "paragraph": PAID["paragraph"],
    }


@pytest.mark.parametrize("others", [True, False])
def test_texts_follow_a_picture_to_another_name(tmp_path: Path, write: Write, others: bool) -> None:
    """Even where every file has another name, so that no id is left."""
    folder = tmp_path / "c"
    more = [photo("b", 2)] if others else []
    write(folder, [photo("a", 1, captions=["mine"], split="val"), *more])
    annotate(folder, ["a"])
    report = write(folder, [photo("moved/z", 1), *more])
    one = record(folder, "moved/z")
    assert (one.captions, one.split) == (["mine"], "val")
    assert paid(one) == PAID
    assert (report.written, report.removed, report.renamed) == (1, 1, 1)


def test_two_pictures_that_change_places_take_their_texts_along(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["one"]), photo("b", 2, captions=["two"])])
    write(folder, [photo("a", 2), photo("b", 1)])
    assert record(folder, "a").captions == ["two"]
    assert record(folder, "b").captions == ["one"]


def test_another_picture_of_the_same_name_does_not_get_texts_of_the_old_one(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["mine"]), photo("b", 2)])
    report = write(folder, [photo("a", 3), photo("b", 2)])
    assert record(folder, "a").captions == []
    assert report.waiting == 1
    assert any(KEPT in note for note in report.notes)


def test_new_metadata_make_no_new_picture(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["mine"]), photo("b", 2)])
    write(folder, [photo("a", 1, note="rated five stars"), photo("b", 2)])
    assert record(folder, "a").captions == ["mine"]


def test_texts_of_a_picture_that_was_gone_return_with_it(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["mine"]), photo("b", 2)])
    annotate(folder, ["a"])
    assert write(folder, [photo("b", 2)]).waiting == 1
    assert write(folder, [photo("b", 2), photo("c", 3)]).waiting == 1  # and not forgotten
    report = write(folder, [photo("b", 2), photo("c", 3), photo("back", 1)])
    assert paid(record(folder, "back")) == PAID
    assert (report.waiting, (folder / KEPT).exists()) == (0, False)


def test_texts_go_to_a_copy_that_was_there_when_the_original_goes(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("old/a", 1, captions=["mine"])])
    write(folder, [photo("old/a", 1, captions=["mine"]), photo("new/a", 1)])
    report = write(folder, [photo("new/a", 1)])
    assert record(folder, "new/a").captions == ["mine"]
    assert report.waiting == 0


def test_copies_with_texts_of_their_own_lose_none(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["one"]), photo("b", 1, captions=["two"])])
    write(folder, [photo("z", 1)])
    there = [record(folder, "z").captions]
    there += [json.loads(line)["captions"] for line in (folder / REPLACED).read_text().splitlines()]
    assert sorted(there) == [["one"], ["two"]]


def test_a_record_without_a_picture_keeps_its_texts_by_its_id(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    entries = [Item("a", "1", lambda: Record("a", captions=["mine"])), photo("b", 2)]
    write(folder, entries)
    write(folder, [Item("a", "2", lambda: Record("a")), photo("b", 2)])
    assert record(folder, "a").captions == ["mine"]


def test_dropping_is_asked_for_by_name_and_named(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    told = {"captions": ["mine"], "split": "test", "group": "g", "url": "https://example.org/a"}
    write(folder, [photo("a", 1, **told), photo("b", 2), photo("c", 3, captions=["x"])])
    write(folder, [photo("a", 1), photo("b", 2)])
    annotate(folder, ["b"])
    report = write(folder, [photo("a", 1), photo("b", 2)], drop_texts=True)
    one = record(folder, "a")
    assert (one.captions, one.split, one.group, one.url) == ([], "test", "g", told["url"])
    assert paid(record(folder, "b"))["paragraph"] is None
    assert report.dropped == {"captions": 2, "generated": 1, "paragraph": 1, "negatives": 1}
    assert not (folder / KEPT).exists()
    assert any(note.startswith("dropped, as asked for: captions of 2") for note in report.notes)


def test_texts_that_drop_is_given_again_are_not_called_dropped(
    tmp_path: Path, write: Write
) -> None:
    write(tmp_path / "c", [photo("a", 1, captions=["mine"])])
    report = write(tmp_path / "c", [photo("a", 1, captions=["mine"])], drop_texts=True)
    assert (report.dropped, report.notes) == ({}, [])


def test_what_is_in_a_shard_that_a_killed_import_left_is_kept(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1), photo("b", 2)])
    annotate(folder, ["a"])
    for manifest in (folder / "manifests").iterdir():
        manifest.unlink()
    info = json.loads((folder / "collection.json").read_text())
    (folder / "collection.json").write_text(json.dumps({**info, "complete": False}))
    write(folder, [photo("a", 1), photo("b", 2)])
    assert paid(record(folder, "a")) == PAID


def test_half_a_line_costs_nothing_but_itself(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    write(folder, [photo("a", 1, captions=["mine"]), photo("b", 2, captions=["two"])])
    write(folder, [photo("b", 2, captions=["two"])])
    with (folder / KEPT).open("a") as file:
        file.write('{"id": "half')
    write(folder, [photo("a", 1), photo("b", 2)])
    assert record(folder, "a").captions == ["mine"]
    assert record(folder, "b").captions == ["two"]


def test_where_images_are_kept_is_remembered(tmp_path: Path, write: Write) -> None:
    source = tmp_path / "a.png"
    source.write_bytes(png(1))

    def entries(stamp: str) -> list[Item]:
        make = lambda: Record("a", ImageRef(source.read_bytes(), "a.png"))  # noqa: E731
        return [Item("a", stamp, make, file=source)]

    write(tmp_path / "c", entries("1"), store="paths", licence="CC0-1.0")
    assert write(tmp_path / "c", entries("1")).kept == 1
    write(tmp_path / "c", entries("2"))
    assert record(tmp_path / "c", "a").image == ImageRef(path="images/a.png")
    assert Collection.open(tmp_path / "c").info["licence"] == "CC0-1.0"


def test_keys_of_others_in_the_collections_file_stay(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "c", [photo("a", 1)])
    path = tmp_path / "c" / "collection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": "runs/c5/checkpoint"}))
    write(tmp_path / "c", [photo("a", 1), photo("b", 2)])
    assert Collection.open(tmp_path / "c").info["model"] == "runs/c5/checkpoint"


def test_verify_sees_another_picture_under_the_same_name_size_and_time(
    tmp_path: Path, write: Write
) -> None:
    source = tmp_path / "a.png"
    source.write_bytes(png(1))
    time = source.stat().st_mtime_ns

    def entry() -> Item:
        stat = source.stat()
        make = lambda: Record("a", ImageRef(source.read_bytes(), "a.png"))  # noqa: E731
        return Item("a", f"{stat.st_size} {stat.st_mtime_ns}", make, file=source)

    other = photo("b", 7)
    write(tmp_path / "c", [entry(), other])
    assert len(png(2)) == source.stat().st_size
    source.write_bytes(png(2))
    os.utime(source, ns=(time, time))
    assert write(tmp_path / "c", [entry(), other]).written == 0
    report = write(tmp_path / "c", [entry(), other], verify=True)
    assert (report.written, report.kept) == (1, 1)
    assert report.notes[0] == "other bytes under the old name, size and time: 1 image"
    stored = Collection.open(tmp_path / "c").get(["a"])["a"].image.bytes
    assert stored == png(2)


def test_a_kill_at_any_moment_loses_no_text(tmp_path: Path, write: Write) -> None:
    """A rename, a removal and a new table at once, killed at each step on the disk in turn."""
    names = "abcdef"
    first = [photo(name, n, captions=[f"mine {name}"]) for n, name in enumerate(names)]
    after = [photo("b", 1), photo("z", 0), photo("c", 2, captions=["new c"]), photo("d", 3)]

    def run(folder: Path, steps: int) -> bool:
        """Import `after` in a process that dies after some steps; whether it came to its end."""
        child = os.fork()
        if not child:
            left = steps

            def dying(function: Callable[..., Any]) -> Callable[..., Any]:
                def call(*args: Any, **options: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os._exit(9)
                    return function(*args, **options)

                return call

            Path.replace = dying(Path.replace)  # type: ignore[method-assign]
            Path.unlink = dying(Path.unlink)  # type: ignore[method-assign]
            os.fsync = dying(os.fsync)
            write(folder, after, shard_rows=2)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    ended, steps = False, 0
    while not ended:
        folder = tmp_path / str(steps)
        write(folder, first, shard_rows=2)
        annotate(folder, ["a", "d", "e"])
        ended = run(folder, steps)
        write(folder, after, shard_rows=2)
        assert {r.id: r.captions for r in Collection.open(folder).records()} == {
            "b": ["mine b"], "z": ["mine a"], "c": ["new c"], "d": ["mine d"],
        }, steps  # fmt: skip
        assert paid(record(folder, "z")) == paid(record(folder, "d")) == PAID
        waiting = [json.loads(line) for line in (folder / KEPT).read_text("utf-8").splitlines()]
        assert sorted(line["id"] for line in waiting) == ["e", "f"], steps
        assert waiting[0]["texts"]["paragraph"] == PAID["paragraph"]
        assert "mine c" in (folder / REPLACED).read_text("utf-8")
        steps += 1
    assert steps > 10
