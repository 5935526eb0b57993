"""Each reason by itself, order, self-pairs, flat and broken pictures, the cache, the command."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, PngImagePlugin

from paragrain.auditing import audit
from paragrain.auditing import image_fingerprints as module
from paragrain.auditing.record_pairs import PARTNERS
from paragrain.auditing.report import AuditReport
from paragrain.cli import audit as command
from paragrain.collection import Collection, ImageRef, Record
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError

Collect = Callable[[Path, list[Record]], Collection]
EVIL = "<script>alert(1)</script>"


def photo(seed: int) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((120, 90), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def found(report: AuditReport) -> set[tuple[str, str, str]]:
    return {(f.train, f.evaluation, f.reason) for f in report.findings}


@pytest.fixture
def record() -> Callable[..., Record]:
    def make(id: str, image: Image.Image | bytes | int, **fields: object) -> Record:
        image = photo(image) if isinstance(image, int) else image
        data = image if isinstance(image, bytes) else encoded(image)
        return Record(id, ImageRef(data), **fields)  # type: ignore[arg-type]

    return make


@pytest.fixture
def two(collect: Collect, record: Callable[..., Record], tmp_path: Path) -> list[Collection]:
    note = PngImagePlugin.PngInfo()
    note.add_text("note", "saved again")
    small = photo(3).resize((60, 45))
    turned = {name: turn(photo(5)) for name, turn in (("m", ImageOps.mirror), ("f", ImageOps.flip))}
    train = [
        record("7", 1, url="http://a.org:80/x/?utm_source=b"),
        record("same-file", 2),
        record("same-pixels", encoded(photo(4), pnginfo=note)),
        record("half-size", encoded(small, "JPEG", quality=40)),
        record("mirrored", turned["m"]),
        record("turned", turned["f"]),
        record("says", 11, captions=["A man, riding: a horse!"]),
        record("long", 12, paragraph="one two three four five six seven eight nine ten eleven"),
        record("flat", Image.new("RGB", (50, 50), (200, 10, 10))),
    ]
    test = [
        record("7", 21),
        record("address", 22, url="https://A.org/x"),
        record("file", 2),
        record("pixels", 4),
        record("photo", encoded(photo(3), "JPEG", quality=95)),
        record("plain", 5),
        record("said", 31, description="a man riding a horse"),
        record(
            "longer", 32, captions=["One two three four five six seven eight nine ten, eleven 12"]
        ),
        record("flat too", Image.new("RGB", (80, 80), (198, 12, 10))),
    ]
    return [collect(tmp_path / "train", train), collect(tmp_path / "test", test)]


EXPECTED = {
    ("7", "7", "id"),
    ("7", "address", "url"),
    ("same-file", "file", "bytes"),
    ("same-pixels", "pixels", "pixels"),
    ("half-size", "photo", "near"),
    ("says", "said", "text"),
    ("long", "longer", "near text"),
}


def test_each_reason_apart_and_nothing_else(two: list[Collection]) -> None:
    report = audit(*two, progress=False)
    assert found(report) == EXPECTED
    assert {
        reason: count["pairs"] for reason, count in report.counts().items() if count["pairs"]
    } == (dict.fromkeys(["id", "url", "bytes", "pixels", "near", "text", "near text"], 1))
    assert report.overlapping() == {"7", "address", "file", "pixels", "photo"}
    assert report.flat == (["flat"], ["flat too"])


def test_the_other_way_round_is_the_same(two: list[Collection]) -> None:
    forth, back = audit(*two, progress=False), audit(*two[::-1], progress=False)
    assert found(back) == {(b, a, reason) for a, b, reason in found(forth)}
    assert [f.reason for f in forth.findings] == [f.reason for f in back.findings]


def test_one_collection_with_itself_has_no_self_pairs(
    collect: Collect, record: Callable[..., Record], tmp_path: Path
) -> None:
    rows = [
        record("a", 1, captions=["the same words", "The same words."], split="train"),
        record("b", 2, captions=["the same words"], split="test"),
        record("c", encoded(photo(1), "JPEG", quality=50), split="test"),
        record("d", 2, split="train"),
    ]
    own = collect(tmp_path / "own", rows)
    expected = {("a", "b", "text"), ("a", "c", "near"), ("b", "d", "bytes")}
    assert found(audit(own, progress=False)) == expected
    assert found(audit(own, Collection.open(own.folder), progress=False)) == expected
    assert audit(own, progress=False).overlapping() == {"a", "b", "c", "d"}
    splits = audit(own, train_split="train", split="test", progress=False)
    assert found(splits) == {("a", "b", "text"), ("a", "c", "near"), ("d", "b", "bytes")}
    partly = found(audit(own, split="test", progress=False))
    assert {(frozenset(pair), reason) for *pair, reason in partly} == {
        (frozenset(pair), reason) for *pair, reason in expected
    }
    assert len(partly) == 3


def test_many_copies_are_counted_and_each_is_listed(
    collect: Collect, record: Callable[..., Record], tmp_path: Path
) -> None:
    copies = [record(f"c{n:03d}", 1) for n in range(60)]
    report = audit(collect(tmp_path / "copies", copies), progress=False)
    assert report.totals["bytes"] == 60 * 59 // 2
    assert len(report.findings) < 60 * PARTNERS
    assert len(report.overlapping()) == 60


def test_broken_images_are_named_and_counted(
    collect: Collect, record: Callable[..., Record], tmp_path: Path
) -> None:
    cut = encoded(photo(2), "JPEG")[:-200]
    rows = [record("good", 1), record("cut", cut, captions=["some words"])]
    own = collect(tmp_path / "own", rows)
    other = collect(tmp_path / "other", [record("x", 3, captions=["some words"])])
    report = audit(own, other, progress=False)
    assert [(where, id) for where, id, _ in report.failed] == [("own", "cut")]
    assert found(report) == {("cut", "x", "text")}  # its texts count all the same


def test_by_vectors_too(two: list[Collection], encoder: ImageTextEncoder) -> None:
    report = audit(*two, encoder=encoder, cosine=0.999999, progress=False)
    alone = {pair for pair in found(report) if pair[2] == "embedding"}
    assert found(report) - alone == EXPECTED  # what bytes, pixels or looks tell is not said twice
    loose = audit(*two, encoder=encoder, cosine=0.01, progress=False)
    vectors = [f for f in loose.findings if f.reason == "embedding"]
    assert vectors
    assert not {"flat", "flat too"} & {id for f in vectors for id in (f.train, f.evaluation)}
    assert [f.closeness for f in vectors] == sorted((f.closeness for f in vectors), reverse=True)
    with pytest.raises(UsageError, match="cosine"):
        audit(*two, encoder=encoder, cosine=2, progress=False)


def test_a_second_audit_looks_at_what_is_new_only(
    two: list[Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    first = module.image_fingerprints(two[0], progress=False)
    assert first.computed == 9
    parts = sorted((two[0].folder / "audit" / module.VERSION).glob("*.npy"))
    assert len(parts) == 3
    again = module.image_fingerprints(two[0], progress=False)
    assert again.computed == 0
    np.testing.assert_array_equal(again.table, first.table)
    everything = np.arange(9)
    np.testing.assert_array_equal(again.tiny(everything), first.tiny(everything))
    lost = len(np.load(parts[0]))
    parts[0].write_bytes(parts[0].read_bytes()[:50])  # a disk that failed
    assert module.image_fingerprints(two[0], progress=False).computed == lost


def test_what_a_stopped_run_has_finished_is_not_done_again(
    two: list[Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    with monkeypatch.context() as stopping:
        add, added = module._Store.add, []

        def stop(store: module._Store, content: str, found: np.void) -> None:
            if len(added) == 5:
                raise KeyboardInterrupt
            added.append(content)
            add(store, content, found)

        stopping.setattr(module._Store, "add", stop)
        with pytest.raises(KeyboardInterrupt):
            module.image_fingerprints(two[0], progress=False)
    assert module.image_fingerprints(two[0], progress=False).computed == 9 - 4


def test_a_folder_that_cannot_be_written_works_too(two: list[Collection]) -> None:
    (two[0].folder / "audit").write_text("in the way")
    assert found(audit(*two, progress=False)) == EXPECTED


def test_pages_and_tables(collect: Collect, record: Callable[..., Record], tmp_path: Path) -> None:
    one = collect(tmp_path / "one", [record(EVIL, 1, captions=[EVIL])])
    other = collect(tmp_path / "two", [record("b,\n\"'", 1, captions=[EVIL])])
    report = audit(one, other, progress=False)
    report.write(tmp_path / "out")
    html = (tmp_path / "out" / "audit.html").read_text("utf-8")
    assert "<script" not in html
    assert html.count("data:image/jpeg") == 4  # a pair by its bytes, and one by its text
    assert html.count('<div class="gallery large">') == 2  # two side by side, on a telephone too
    told = json.loads((tmp_path / "out" / "audit.json").read_text("utf-8"))
    assert told["counts"]["bytes"] == {"pairs": 1, "listed": 1, "records": 1}
    with (tmp_path / "out" / "findings.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1] == [EVIL, "b,\n\"'", "bytes", "1.0000"]
    assert len(rows) == 1 + len(told["findings"])


def test_the_command(two: list[Collection], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folders = two[0].folder, two[1].folder
    command.audit(*folders, None, None, None, tmp_path / "out", 0.95, 0.6, None, True)
    told = json.loads(capsys.readouterr().out)
    assert told["overlapping"] == 5
    assert (tmp_path / "out" / "audit.html").is_file()
    command.audit(*folders, None, None, None, None, 0.95, 0.6, None, False)
    out = capsys.readouterr().out
    assert "5 of 9 records of test share an image with train" in out
    assert "mirrored" in out
