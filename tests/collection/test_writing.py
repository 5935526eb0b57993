"""What is written comes back to the byte, and a second run does only what is missing."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.collection import (
    BadRecord,
    Collection,
    ImageRef,
    ImportReport,
    Item,
    Record,
)
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash

STRANGE_TEXTS = [
    "None", "NA", "null", "nan", "", " ", "true", "0", '"quoted"', "it's", "a\tb", "a\nb", "a\r\nb",
    "line\u2028separator", "next\u0085line", "🙂👩‍👩‍👧", "שלום עולם",
    "\u202eright to left", "e\u0301 é", "<script>alert(1)</script>",
    "a,b;c", "\0", "\ufeffmark", "\\N", "{}", "[1]", "x" * 10_000,
]  # fmt: skip


def no_make() -> Record:
    pytest.fail("an unchanged item was made again")


# --- Round trip -------------------------------------------------------------------------------


def test_a_record_comes_back_as_it_went(
    tmp_path: Path, picture: Callable[..., bytes], write: Callable[..., ImportReport]
) -> None:
    full = Record(
        "0007",
        ImageRef(picture(), "a/b.png"),
        split="val",
        captions=["one", "two"],
        description="long",
        generated=["g1", "g2"],
        negatives=["n"],
        paragraph="p",
        paragraph_score=9,
        group="g",
        source="s",
        url="https://example.org/1",
        graph='{"objects": []}',
        annotation='{"generator": "m"}',
    )
    report = write(tmp_path / "c", [Item("0007", "1", lambda: full)])
    assert (report.written, report.kept, report.removed, report.skipped) == (1, 0, 0, [])
    assert report.splits == {"val": 1}
    collection = Collection.open(tmp_path / "c")
    assert list(collection.records(images=True)) == [full]
    assert full.content == content_hash(picture())
    assert collection.get(["0007"]) == {"0007": full}
    assert collection.name == "test"
    assert len(collection) == 1
    assert collection.problems == []
    assert collection.info["splits"] == {"val": 1}
    assert collection.info["complete"] is True


def test_strange_texts_survive_to_the_byte(
    tmp_path: Path, item: Callable[..., Item], write: Callable[..., ImportReport]
) -> None:
    entries = [
        item(f"{n} {text}"[:99], captions=[text, text], paragraph=text, url=text, group=text)
        for n, text in enumerate(STRANGE_TEXTS)
    ]
    assert write(tmp_path / "c", entries).skipped == []
    records = list(Collection.open(tmp_path / "c").records())
    assert [r.id for r in records] == [entry.id for entry in entries]
    for record, text in zip(records, STRANGE_TEXTS, strict=True):
        assert record.captions == [text, text]
        assert (record.paragraph, record.url, record.group) == (text, text, text)


def test_text_that_is_not_unicode_is_named_and_the_rest_goes_on(
    tmp_path: Path, item: Callable[..., Item], write: Callable[..., ImportReport]
) -> None:
    report = write(tmp_path / "c", [item("a", captions=["\ud800"]), item("b"), item("\udcff.jpg")])
    assert [id for id, _ in report.skipped] == ["a", "\udcff.jpg"]
    assert all("unpaired surrogate" in reason for _, reason in report.skipped)
    assert Collection.open(tmp_path / "c").ids() == ["b"]
    lines = (tmp_path / "c" / "skipped.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", "\udcff.jpg"]


# --- Sync -------------------------------------------------------------------------------------


def test_a_second_run_makes_nothing_and_changes_no_byte(
    tmp_path: Path,
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
    files: Callable[[Path], dict[str, bytes]],
) -> None:
    folder = tmp_path / "c"
    write(folder, items(7), shard_rows=3)
    before = files(folder)
    again = [Item(entry.id, entry.stamp, no_make) for entry in items(7)]
    report = write(folder, again, shard_rows=3)
    assert (report.written, report.kept, report.removed) == (0, 7, 0)
    assert report.splits == {"train": 4, "val": 3}
    assert files(folder) == before


def test_only_what_is_new_changed_or_gone_is_touched(
    tmp_path: Path,
    item: Callable[..., Item],
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
    files: Callable[[Path], dict[str, bytes]],
) -> None:
    folder = tmp_path / "c"
    write(folder, items(9), shard_rows=3)
    before = files(folder)
    entries = [Item(entry.id, entry.stamp, no_make) for entry in items(9)]
    entries[4] = item("i004", "2", captions=["changed"])
    del entries[7]
    entries.append(item("new"))
    report = write(folder, entries, shard_rows=3)
    assert (report.written, report.kept, report.removed) == (2, 7, 1)
    collection = Collection.open(folder)
    assert sorted(collection.ids()) == sorted(entry.id for entry in entries)
    assert collection.get(["i004"])["i004"].captions == ["changed"]
    assert collection.problems == []
    assert files(folder)["records/part-00000.parquet"] == before["records/part-00000.parquet"]
    fresh = tmp_path / "fresh"
    undone = [*items(9)[:4], entries[4], *items(9)[5:7], items(9)[8], item("new")]
    write(fresh, undone)
    assert Collection.open(fresh).fingerprint == collection.fingerprint


def test_a_shard_that_loses_all_its_records_goes(
    tmp_path: Path,
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
    files: Callable[[Path], dict[str, bytes]],
) -> None:
    folder = tmp_path / "c"
    write(folder, items(6), shard_rows=3)
    assert write(folder, items(6)[3:], shard_rows=3).removed == 3
    left = [name for name in files(folder) if name.startswith(("records", "manifests"))]
    assert left == ["manifests/part-00001.json", "records/part-00001.parquet"]
    assert Collection.open(folder).ids() == ["i003", "i004", "i005"]


def test_bad_items_are_skipped_named_and_tried_again(
    tmp_path: Path,
    picture: Callable[..., bytes],
    item: Callable[..., Item],
    write: Callable[..., ImportReport],
) -> None:
    def fail(error: Exception) -> Callable[[], Record]:
        def make() -> Record:
            raise error

        return make

    folder = tmp_path / "c"
    entries = [
        item("good"),
        Item("cut", "1", lambda: Record("cut", ImageRef(picture()[:40]))),
        Item("odd", "1", fail(BadRecord("no such thing"))),
        Item("gone", "1", fail(FileNotFoundError(2, "No such file or directory"))),
        item("good", "2", captions=["second"]),
        item(""),
        Item("trusted", "1", lambda: Record("trusted", ImageRef(b"not checked")), trusted=True),
    ]
    report = write(folder, entries, problems=[("texts: x", "fits no image")], notes=["a note"])
    assert report.skipped == [
        ("texts: x", "fits no image"),
        ("good", "this id came before; the later one is left out"),
        ("", "it has no id"),
        ("cut", "truncated or damaged in its header"),
        ("odd", "no such thing"),
        ("gone", "cannot be read: No such file or directory"),
    ]
    assert report.written == 2
    info = Collection.open(folder).info
    assert (info["skipped"], info["notes"]) == (6, ["a note"])
    lines = (folder / "skipped.jsonl").read_text("utf-8").splitlines()
    assert [(line["id"], line["reason"]) for line in map(json.loads, lines)] == report.skipped
    mended = [item("good"), item("cut"), item("odd"), item("gone"), entries[-1]]
    report = write(folder, mended)
    assert (report.written, report.kept, report.skipped) == (3, 2, [])
    assert not (folder / "skipped.jsonl").exists()


def test_the_pixel_limit_can_be_set(
    tmp_path: Path, item: Callable[..., Item], write: Callable[..., ImportReport]
) -> None:
    assert write(tmp_path / "c", [item("a")], max_pixels=64).skipped == []
    with pytest.raises(ParagrainError, match=r"a: too many pixels \(64; the limit is 63\)"):
        write(tmp_path / "d", [item("a")], max_pixels=63)


def test_a_shard_ends_at_its_rows_or_bytes(
    tmp_path: Path, write: Callable[..., ImportReport]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)

    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    data = buffer.getvalue()
    entries = [Item(str(n), "1", lambda n=n: Record(str(n), ImageRef(data))) for n in range(6)]
    write(tmp_path / "c", entries, shard_bytes=2 * len(data))
    shards = sorted((tmp_path / "c" / "records").glob("*.parquet"))
    assert [pq.read_metadata(shard).num_rows for shard in shards] == [2, 2, 2]


def test_an_import_never_empties_something_else(
    tmp_path: Path,
    item: Callable[..., Item],
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(UsageError, match="is no collection"):
        write(full, items(2))
    with pytest.raises(UsageError, match="is a file"):
        write(full / "holiday.jpg", items(2))
    write(tmp_path / "c", items(2))
    with pytest.raises(UsageError, match="shares no id and no picture"):
        write(tmp_path / "c", [item("other", colour=99)])
    assert len(Collection.open(tmp_path / "c")) == 2
    assert (full / "holiday.jpg").read_bytes() == b"precious"


@pytest.mark.parametrize("manifest", [None, "{}", "[]", '{"fingerprint": 1, "items": 2}'])
def test_records_without_a_sound_manifest_are_not_taken_for_remains(
    tmp_path: Path, items: Callable[..., list[Item]], write: Callable[..., ImportReport], manifest
) -> None:
    """A copy without manifests, or of another tool: its records are somebody's data."""
    write(tmp_path / "c", items(3))
    (path,) = (tmp_path / "c" / "manifests").glob("*.json")
    path.unlink() if manifest is None else path.write_text(manifest)
    with pytest.raises(UsageError, match="no import of this program made"):
        write(tmp_path / "c", items(2))
    assert len(Collection.open(tmp_path / "c")) == 3


def test_an_import_of_nothing_but_bad_items_fails_and_names_them(
    tmp_path: Path, write: Callable[..., ImportReport]
) -> None:
    broken = Item("a", "1", lambda: Record("a", ImageRef(b"no picture")))
    with pytest.raises(ParagrainError, match=r"none of the 1 items .*a: not an image"):
        write(tmp_path / "c", [broken])
    assert '"id": "a"' in (tmp_path / "c" / "skipped.jsonl").read_text()
