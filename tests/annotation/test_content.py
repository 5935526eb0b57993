"""Texts belong to the image's content: lost, renamed, returned, they are found again unasked."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.annotation import plan, status
from paragrain.collection import Collection, update_records
from paragrain.sources import import_folder

from .photos import judged, make_photos, run, settings_for


def forget(photos: Path, *, captions: bool = False) -> None:
    """Take away what an annotation wrote, as an import does that knows nothing of it."""
    empty: dict[str, Any] = {
        "generated": [], "negatives": [], "paragraph": None, "paragraph_score": None,
        "annotation": None,
    }  # fmt: skip
    if captions:
        empty["captions"] = []
    collection = Collection.open(photos)
    for file, ids in collection.files().items():
        update_records(photos, file, dict.fromkeys(ids, empty))


def texts(photos: Path) -> list[tuple[list[str], list[str], str | None, int | None]]:
    records = Collection.open(photos).records()
    return sorted((r.generated, r.negatives, r.paragraph, r.paragraph_score) for r in records)


def test_lost_texts_are_seen_and_come_back_unasked(photos: Path, stub: Any) -> None:
    settings = settings_for(stub)
    run(photos, settings)
    before = texts(photos)
    for captions in (False, True):
        forget(photos, captions=captions)
        state = status(Collection.open(photos))
        assert (state.complete, state.answered, state.remaining) == (0, 8, 0)
        assert (state.scores, state.candidates) == ({}, {})
        planned = plan(Collection.open(photos), settings, progress=False)
        assert (planned.to_ask, planned.calls) == (0, (0, 0))
        stub.script()
        report = run(photos, settings)
        assert (report.complete, report.calls, stub.counters()["requests"]) == (8, 0, 0)
        assert texts(photos) == before
        assert status(Collection.open(photos)).complete == 8


def test_captions_that_come_later_cost_nothing(photos: Path, stub: Any) -> None:
    stub.script(rules=[judged(7)])
    settings = settings_for(stub)
    forget(photos, captions=True)  # it begins without captions
    run(photos, settings)
    before = texts(photos)
    (file,) = Collection.open(photos).files()
    new = {name: {"captions": [f"caption of {name}"]} for name in Collection.open(photos).ids()}
    update_records(photos, file, new)
    stub.script(rules=[judged(7)])
    assert plan(Collection.open(photos), settings, progress=False).calls == (0, 0)
    assert run(photos, settings).calls == 0
    assert texts(photos) == before
    again = run(photos, settings.model_copy(update={"min_score": 8}))  # only what that changes
    assert {entry["kind"] for entry in stub.log()} == {"paragraph", "judge"}
    assert again.complete == 8
    anew = run(photos, settings.model_copy(update={"replace": True}))
    assert anew.calls == 8 * 4


def test_another_name_is_the_same_image(photos: Path, tmp_path: Path, stub: Any) -> None:
    settings = settings_for(stub)
    run(photos, settings)
    images = tmp_path / "elsewhere"
    images.mkdir()
    collection = Collection.open(photos)
    for number, record in enumerate(collection.records()):
        (images / f"renamed-{number}.png").write_bytes(collection.image_bytes(record))
    again = tmp_path / "again"
    import_folder(images, again, progress=False)
    shutil.move(photos / "annotation", again / "annotation")
    photos = again
    state = status(Collection.open(photos))
    assert (state.images, state.complete, state.answered) == (8, 0, 8)
    stub.script()
    planned = plan(Collection.open(photos), settings, progress=False)
    assert (planned.to_ask, planned.calls) == (0, (0, 0))
    assert run(photos, settings).calls == 0
    assert all(record.paragraph for record in Collection.open(photos).records())
    (images / "new.png").write_bytes((images / "renamed-0.png").read_bytes() + b"more")
    import_folder(images, photos, progress=False)
    assert status(Collection.open(photos)).remaining == 1


def test_another_image_under_an_old_name_is_to_come(
    photos: Path, tmp_path: Path, stub: Any, original: Path
) -> None:
    run(photos, settings_for(stub))
    images = tmp_path / "images"
    shutil.copytree(original.parent / "images", images)
    shutil.copy(images / "00.png", images / "01.png")
    Image.new("RGB", (64, 64), "teal").save(images / "02.png")
    (images / "03.png").write_bytes((images / "03.png").read_bytes() + b"the same pixels")
    import_folder(images, photos, progress=False)
    state = status(Collection.open(photos))
    assert (state.complete, state.answered, state.remaining) == (6, 1, 1)


def test_rates_are_of_a_run_that_is_under_way() -> None:
    from paragrain.annotation.status import rate

    times = [float(t) for t in range(40)]
    assert rate(times, 39.0) == 40 / 39
    assert rate(times, 239.0) == 40 / 239  # it has stood still since
    assert rate(times, 5.0) is None  # too few, in too short a time
    assert rate(times, 1000.0) is None


def linked_photos(folder: Path, paragrain: Any) -> tuple[Path, list[Path]]:
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number}.bmp")
    done = paragrain("import", "folder", pictures, folder / "linked", "--store", "paths")
    assert done.code == 0, done.err
    return folder / "linked", sorted(pictures.glob("*.bmp"))


@pytest.mark.parametrize("before", [True, False])
def test_an_edited_file_gets_no_texts_under_what_it_was(
    tmp_path: Path, stub: Any, paragrain: Any, before: bool
) -> None:
    photos, files = linked_photos(tmp_path, paragrain)
    stub.script(rules=[judged(9)])
    if before:
        assert run(photos, settings_for(stub)).complete == 4
        assert run(photos, settings_for(stub)).calls == 0
    Image.fromarray(np.random.default_rng(9).integers(0, 255, (40, 40, 3), np.uint8)).save(files[1])
    stub.script(rules=[judged(9)])
    planned = plan(Collection.open(photos), settings_for(stub), progress=False)
    assert [id for id, _ in planned.unusable] == ["1.bmp"]
    report = run(photos, settings_for(stub))
    [(identity, reason)] = report.skipped
    assert identity == "1.bmp"
    assert "paragrain update" in reason
    assert (report.complete, report.calls) == (3, 0 if before else 12)

    assert paragrain("update", photos).code == 0
    report = run(photos, settings_for(stub))
    assert (report.complete, report.calls, report.problems) == (4, 4, [])


def test_a_column_of_another_meaning_is_no_content_hash(tmp_path: Path, stub: Any) -> None:
    photos = make_photos(tmp_path, 3)
    for file in (photos / "records").glob("*.parquet"):
        table = pq.read_table(file).drop_columns(["captions"])
        place = table.schema.get_field_index("content")
        pq.write_table(table.set_column(place, "content", pa.array(["a cat"] * len(table))), file)
    stub.script(rules=[judged(9)])
    report = run(photos, settings_for(stub))
    assert (report.complete, report.calls) == (3, 12)


def test_each_of_two_copies_has_its_own_state(tmp_path: Path, stub: Any) -> None:
    photos, images = make_photos(tmp_path, 2), tmp_path / "images"
    shutil.copy(images / "00.png", images / "copy.png")
    (images / "copy.txt").write_text("the same noise in other words")
    import_folder(images, photos, progress=False)
    stub.script(rules=[{"match": {"contains": "in other words"}, "do": {"text": "Hmm"}}, judged(8)])
    for _ in range(2):  # written, then found in the log
        report = run(photos, settings_for(stub))
        state = status(Collection.open(photos))
        assert (report.complete, [id for id, _ in report.failed]) == (2, ["copy.png"])
        assert (state.complete, sum(state.failed.values())) == (2, len(state.failed))
    (images / "00.png").rename(images / "later.png")
    (images / "00.txt").rename(images / "later.txt")
    import_folder(images, photos, progress=False)
    assert status(Collection.open(photos)).complete == 2
