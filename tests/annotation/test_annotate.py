"""Whole runs over real collections against a server on loopback."""

import _thread
import asyncio
import io
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.annotation import (
    AnnotationReport,
    AnnotationSettings,
    BackendSettings,
    check,
    plan,
    status,
)
from paragrain.collection import Collection, update_records
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import import_folder

from .photos import judged, kept_replies, make_photos, run, settings_for, sha_of

COUNT = 8


# --- a whole run


def test_every_image_gets_its_texts_with_models_and_versions(photos: Path, stub: Any) -> None:
    report = run(photos, settings_for(stub))
    assert (report.images, report.complete, report.problems) == (COUNT, COUNT, [])
    counts = stub.counters()
    assert counts["requests"] == report.calls
    assert counts["most_in_flight"] <= 8
    for record in Collection.open(photos).records():
        assert len(set(record.generated)) == len(set(record.negatives)) == 5
        assert record.captions[0].startswith("picture of noise")
        assert record.paragraph
        assert record.paragraph_score is not None
        notes = json.loads(record.annotation or "")
        assert (notes["captions"]["model"], notes["captions"]["prompts"]) == ("writer", "1")
        assert notes["paragraph"]["judge"] == "judge"
        best = max(a["score"] for a in notes["paragraph"]["candidates"])
        assert record.paragraph_score == best
        if best <= 5:
            assert len(notes["paragraph"]["candidates"]) == 3
    assert report.prompt_tokens > 0
    assert sum(report.scores.values()) == COUNT


def test_a_rerun_asks_nothing_and_writes_nothing(photos: Path, stub: Any) -> None:
    settings = settings_for(stub)
    first = run(photos, settings)
    times = {path: path.stat().st_mtime_ns for path in (photos / "records").iterdir()}
    stub.script()
    again = run(photos, settings)
    assert stub.counters()["requests"] == again.calls == 0
    assert (again.complete, again.reused, again.changed) == (COUNT, first.calls, 0)
    assert {path: path.stat().st_mtime_ns for path in (photos / "records").iterdir()} == times


def test_raw_replies_are_kept_word_for_word_and_no_key_is(
    photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    stub.script(key="sk-very-secret")
    settings = settings_for(stub)
    report = run(photos, settings, limit=COUNT // 2)
    stub.script()
    address = stub.url.replace("//", "//user:sk-very-secret@")
    secret = settings.generator.model_copy(update={"endpoint": address})
    report.add(run(photos, settings.model_copy(update={"generator": secret})))
    assert report.complete == COUNT + COUNT // 2
    raw = [reply["text"] for _, reply in kept_replies(photos)]
    assert len(raw) == report.calls
    for record in Collection.open(photos).records():
        assert any(all(text in reply for text in record.generated) for reply in raw)
    written = b"".join(p.read_bytes() for p in photos.rglob("*") if p.is_file())
    assert b"very-secret" not in written


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"min_score": 10}, {"paragraph", "judge"}),
        ({"judge": "other"}, {"judge"}),
        ({"prompts": "negatives"}, {"negatives"}),
        # The server writes the same paragraphs under any name: they have their scores.
        ({"generator": "other"}, {"captions", "negatives", "paragraph"}),
        ({"negatives_tokens": 150}, {"negatives"}),
        ({"max_retries": 4}, set()),
        ({"min_score": 3}, set()),
    ],
)
def test_a_change_redoes_only_what_it_affects(
    photos: Path, stub: Any, change: dict[str, Any], kinds: set[str]
) -> None:
    settings = settings_for(stub)
    orders = {"rules": [judged(7)]}
    stub.script(**orders)
    run(photos, settings)
    value = {k: v for k, v in change.items() if isinstance(v, int)}
    for name in ("judge", "generator"):
        if name in change:
            value[name] = getattr(settings, name).model_copy(update={"model": "other"})
    if "prompts" in change:
        prompts = settings.prompts
        value["prompts"] = prompts.model_copy(
            update={"negatives": prompts.negatives + " Be bold.", "version": "mine"}
        )
    stub.script(**orders)
    report = run(photos, settings.model_copy(update=value))
    assert set(stub.counters()["by_kind"]) == kinds
    assert report.complete == COUNT


def test_the_same_picture_twice_is_asked_about_once(tmp_path: Path, stub: Any) -> None:
    folder = make_photos(tmp_path, 2)
    images = tmp_path / "images"
    for name in ("copy.png", "other-copy.png"):
        shutil.copy(images / "00.png", images / name)
        (images / name).with_suffix(".txt").write_text("picture of noise number 0")
    import_folder(images, folder, progress=False)
    stub.script(latency=0.05, rules=[judged(9)])
    report = run(folder, settings_for(stub))
    assert (report.complete, stub.counters()["requests"], report.reused) == (4, 8, 8)


def test_texts_of_the_data_stay_unless_replace_is_said(photos: Path, stub: Any) -> None:
    collection = Collection.open(photos)
    (file,) = collection.files()
    update_records(photos, file, {collection.ids()[0]: {"paragraph": "Somebody's own text."}})
    run(photos, settings_for(stub))
    first = next(iter(Collection.open(photos).records()))
    assert (first.paragraph, first.paragraph_score) == ("Somebody's own text.", None)
    assert len(first.generated) == 5
    run(photos, settings_for(stub, replace=True))
    assert next(iter(Collection.open(photos).records())).paragraph_score is not None


# --- odd images


def test_odd_images_are_named_and_never_sent(tmp_path: Path, stub: Any) -> None:
    folder = make_photos(tmp_path, 2)
    images = tmp_path / "images"
    for width, height in [(1, 1), (2, 2), (26, 28), (1, 1000), (690, 15420)]:
        Image.new("RGB", (width, height), "red").save(images / f"{width}x{height}.png")
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("red", "blue")]
    frames[0].save(images / "two.gif", save_all=True, append_images=frames[1:])
    jpeg = Image.new("RGB", (50, 50), "green")
    jpeg.save(images / "jpeg-bytes.png", "JPEG")
    import_folder(images, folder, progress=False)
    planned = plan(Collection.open(folder), settings_for(stub), progress=False)
    assert stub.counters()["requests"] == 0
    report = run(folder, settings_for(stub))
    assert report.complete == 4
    assert sorted(report.skipped) == sorted(planned.unusable)
    assert [name.rpartition("/")[2].split(".")[0] for name, _ in sorted(report.skipped)] == [
        "1x1", "1x1000", "26x28", "2x2", "690x15420",
    ]  # fmt: skip
    assert all("to be described" in reason for _, reason in report.skipped)
    assert stub.counters()["by_status"].keys() == {"200"}  # it checks types against bytes


# --- beside the run


def test_a_plan_counts_what_the_run_then_asks(photos: Path, stub: Any) -> None:
    stub.script(rules=[judged(9)])
    settings = settings_for(stub)
    before = plan(
        Collection.open(photos), settings, rate=2.0, prices=(1.0, 10.0), limit=6, progress=False
    )
    assert not (photos / "annotation").exists()
    assert (before.images, before.to_ask, before.calls) == (6, 6, (24, 48))
    assert before.seconds == (12.0, 24.0)
    assert before.completion_tokens == (6 * (160 + 200 + 200 + 16), 6 * (160 + 200 + 3 * 216))
    assert before.cost
    report = run(photos, settings, limit=6)
    assert report.calls == before.calls[0]
    after = plan(Collection.open(photos), settings, limit=6, progress=False)
    assert (after.complete, after.to_ask, after.calls) == (6, 0, (0, 0))
    assert plan(Collection.open(photos), settings, progress=False).calls == (8, 16)


def test_status_tells_what_is_done_what_failed_and_why(photos: Path, stub: Any) -> None:
    with pytest.raises(UsageError, match="never annotated"):
        status(Collection.open(photos))
    sick = Collection.open(photos).ids()[3]
    rule = {"match": {"image_sha": sha_of(photos, sick)}, "do": {"status": 500}}
    stub.script(rules=[rule, judged(8)])
    run(photos, settings_for(stub))
    state = status(Collection.open(photos))
    assert (state.images, state.complete, state.remaining, state.running) == (8, 7, 0, False)
    assert list(state.failed.values()) == [1]  # the other kinds were not waited for
    assert all(reason.startswith("captions: unanswered (500") for reason in state.failed)
    assert state.scores == {"8": 7}
    assert state.candidates == {1: 7}
    assert state.calls == 28
    assert (state.rate, state.seconds_left) == (None, None)  # nothing is under way
    stub.script(rules=[judged(8)])
    run(photos, settings_for(stub))
    assert status(Collection.open(photos)).complete == 8
    run(photos, settings_for(stub), limit=2)  # another selection
    state = status(Collection.open(photos))
    assert (state.images, state.complete, state.remaining, state.failed) == (2, 2, 0, {})


def test_a_second_run_on_the_same_collection_is_refused(photos: Path, stub: Any) -> None:
    from paragrain.locks import hold

    (photos / "annotation").mkdir()
    with (
        hold(photos / "annotation" / ".lock"),
        pytest.raises(ParagrainError, match="another run"),
    ):
        run(photos, settings_for(stub))


def test_it_runs_where_an_event_loop_runs_already(photos: Path, stub: Any) -> None:
    async def notebook() -> AnnotationReport:
        return run(photos, settings_for(stub), limit=2)

    assert asyncio.run(notebook()).complete == 2


def test_splits_and_limits(photos: Path, stub: Any) -> None:
    with pytest.raises(UsageError, match="no split"):
        run(photos, settings_for(stub), split="test")
    assert run(photos, settings_for(stub), limit=3, split="train").images == 3
    assert sum(bool(r.paragraph) for r in Collection.open(photos).records()) == 3


def test_a_third_judge_is_compared_with_the_second(photos: Path, stub: Any) -> None:
    settings = settings_for(stub)
    with pytest.raises(ParagrainError, match="no scored paragraphs"):
        check(Collection.open(photos), settings.generator, progress=False)
    run(photos, settings)
    before = Collection.open(photos).fingerprint
    third = settings.generator.model_copy(update={"model": "third/judge"})
    found = check(Collection.open(photos), third, sample=5, seed=1, progress=False)
    assert found.agreement.compared == len(found.rows) == 5
    assert found.first_judges == ["judge"]
    assert json.loads(found.file.read_text())["judge"] == "third/judge"
    assert Collection.open(photos).fingerprint == before
    stub.script()
    again = check(Collection.open(photos), third, sample=5, seed=1, progress=False)
    assert (again.rows, stub.counters()["requests"]) == (found.rows, 0)


# --- real photographs


def test_fifty_photographs_sixty_four_at_once(shared: Path, tmp_path: Path, stub: Any) -> None:
    from paragrain.sources import import_coco

    folder = tmp_path / "photos"
    import_coco(
        shared / "photos" / "images", shared / "photos" / "captions.json", folder, progress=False
    )
    stub.script(latency=0.05)
    model = BackendSettings(model="stub", endpoint=stub.url, max_concurrency=64)
    report = run(folder, AnnotationSettings(generator=model, judge=model))
    assert (report.complete, report.problems) == (50, [])
    counts = stub.counters()
    assert 40 <= counts["most_in_flight"] <= 64
    assert counts["distinct"] == counts["requests"] == report.calls


def test_an_interrupt_where_an_event_loop_runs_already_stops_the_run(
    photos: Path, stub: Any
) -> None:
    stub.script(latency=0.5)

    async def notebook() -> None:
        threading.Timer(0.4, _thread.interrupt_main).start()
        run(photos, settings_for(stub))

    # Not `asyncio.run`, whose first interrupt only asks the outer task to stop.
    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    loop.close()
    assert stub.counters()["requests"] < 3 * 8


@pytest.mark.parametrize("fault", [{"status": 429}, {"text": "Hmm"}])
def test_a_judge_that_fails_takes_no_score_away(
    photos: Path, stub: Any, fault: dict[str, Any]
) -> None:
    settings = settings_for(stub)
    run(photos, settings)
    before = list(Collection.open(photos).records())
    stub.rule({"kind": "judge"}, **fault)
    other = settings.generator.model_copy(update={"model": "other judge"})
    report = run(photos, settings.model_copy(update={"judge": other}))
    assert len(report.failed) == 8
    assert run(photos, settings.model_copy(update={"judge": None})).changed == 0
    assert list(Collection.open(photos).records()) == before


def test_another_model_says_whose_texts_make_way(
    photos: Path, stub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(stub)
    run(photos, settings)
    assert caplog.text == ""
    other = settings.generator.model_copy(update={"model": "other"})
    run(photos, settings.model_copy(update={"generator": other}))
    assert "texts that writer wrote make way for those of other" in caplog.text


def test_a_model_that_wrote_nothing_makes_no_way(
    photos: Path, stub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(stub)
    stub.rule({}, status=503)
    with pytest.raises(ParagrainError):
        run(photos, settings)
    stub.script(rules=[judged(8)])
    other = settings.generator.model_copy(update={"model": "other"})
    assert run(photos, settings.model_copy(update={"generator": other})).complete == 8
    assert "make way" not in caplog.text


def test_a_run_that_cannot_begin_does_not_hide_the_one_before(photos: Path, stub: Any) -> None:
    run(photos, settings_for(stub))
    stub.rule({}, status=401)
    wrong = settings_for(stub).generator.model_copy(update={"model": "mistyped"})
    with pytest.raises(ParagrainError):
        run(photos, settings_for(stub, generator=wrong))
    assert status(Collection.open(photos)).complete == 8


def test_a_table_of_another_tool_with_images_inside_and_paths_of_its_own(
    tmp_path: Path, stub: Any
) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(buffer, "PNG")
    rows = [
        {"id": f"{n}", "image": {"bytes": buffer.getvalue(), "path": f"/elsewhere/{n}.png"}}
        for n in range(3)
    ]
    (tmp_path / "w" / "records").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "w" / "records" / "data.parquet")
    stub.script(rules=[judged(9)])
    report = run(tmp_path / "w", settings_for(stub))
    assert (report.complete, report.changed) == (3, 3)
    assert stub.counters()["requests"] == 4  # it is the same picture three times
    assert all(r.paragraph for r in Collection.open(tmp_path / "w").records())
    assert run(tmp_path / "w", settings_for(stub)).calls == 0
