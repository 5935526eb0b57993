"""Whole runs against a server that fails in every known way."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from paragrain.annotation import runner as runner_module
from paragrain.annotation import runs as runs_module
from paragrain.collection import Collection
from paragrain.errors import ParagrainError

from .photos import judged, make_world, run, settings_for, sha_of

COUNT = 8


def test_an_image_that_fails_for_ever_is_named_and_the_others_are_done(
    photos: Path, stub: Any
) -> None:
    sick = Collection.open(photos).ids()[3]
    rule = {"match": {"image_sha": sha_of(photos, sick)}, "do": {"status": 500}}
    stub.script(rules=[rule])
    report = run(photos, settings_for(stub))
    assert [name for name, _ in report.failed] == [sick]
    assert "500" in report.failed[0][1]
    assert report.complete == COUNT - 1
    lines = (photos / "annotation" / "failed.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [sick]
    stub.script()
    again = run(photos, settings_for(stub))
    assert again.complete == COUNT
    assert {entry["image_sha"][:8] for entry in stub.log()} == {sha_of(photos, sick)[:8]}
    assert not (photos / "annotation" / "failed.jsonl").exists()


def test_a_busy_server_is_waited_for_and_nothing_is_dropped(photos: Path, stub: Any) -> None:
    busy = {"status": 429, "headers": {"Retry-After": "0.05"}}
    stub.script(rules=[{"match": {"first": 12}, "do": busy}])
    report = run(photos, settings_for(stub))
    assert report.complete == COUNT
    assert stub.counters()["by_status"]["429"] == 12


def test_a_server_that_stays_busy_leaves_a_list_from_which_a_rerun_goes_on(
    photos: Path, stub: Any
) -> None:
    stub.script(rules=[{"match": {"kind": "paragraph"}, "do": {"status": 429}}])
    report = run(photos, settings_for(stub))
    assert len(report.failed) == COUNT
    assert all("429" in reason for _, reason in report.failed)
    assert all(len(r.generated) == 5 for r in Collection.open(photos).records())
    stub.script(rules=[judged(9)])
    assert run(photos, settings_for(stub)).complete == COUNT
    assert stub.counters()["by_kind"] == {"paragraph": COUNT, "judge": COUNT}


@pytest.mark.parametrize(
    "fault",
    [{"close": True}, {"half_body": True}, {"not_json": True}, {"html": True}, {"drip": 0.3},
     {"stall": 3}],
)  # fmt: skip
def test_broken_answers_are_asked_for_again(photos: Path, stub: Any, fault: dict[str, Any]) -> None:
    stub.script(rules=[{"match": {"kind": "captions", "first": 3}, "do": fault}])
    settings = settings_for(stub)
    quick = settings.generator.model_copy(update={"timeout": 0.5, "retry_timeout": 5.0})
    report = run(photos, settings.model_copy(update={"generator": quick}))
    assert report.problems == []


@pytest.mark.parametrize(
    "fault", [{"null_content": True}, {"no_choices": True}, {"finish_length": True},
              {"refusal_text": True}, {"refusal_field": True}, {"text": "Rating: high"}],
)  # fmt: skip
def test_replies_that_hold_nothing_are_asked_for_again(
    photos: Path, stub: Any, fault: dict[str, Any]
) -> None:
    rules = [
        {"match": {"kind": kind, "first": 2}, "do": fault}
        for kind in ("captions", "negatives", "paragraph", "judge")
    ]
    stub.script(rules=rules)
    settings = settings_for(stub, max_retries=3)
    report = run(photos, settings)
    assert report.problems == []
    assert all(r.paragraph_score is not None for r in Collection.open(photos).records())


def test_a_judge_that_never_gives_a_number_leaves_null_with_the_reason(
    photos: Path, stub: Any
) -> None:
    stub.script(rules=[{"match": {"kind": "judge"}, "do": {"text": "I cannot evaluate this."}}])
    report = run(photos, settings_for(stub, num_candidates=2))
    assert len(report.failed) == COUNT
    assert all(reason.startswith("judge: refusal") for _, reason in report.failed)
    for record in Collection.open(photos).records():
        assert record.paragraph
        assert record.paragraph_score is None


def test_reasoning_never_gets_into_a_text(photos: Path, stub: Any) -> None:
    stub.rule({}, reasoning=True)
    report = run(photos, settings_for(stub))
    assert report.problems == []
    for record in Collection.open(photos).records():
        assert "think" not in " ".join(
            [*record.generated, *record.negatives, record.paragraph or ""]
        )


def test_a_wrong_key_stops_the_run_at_once_and_keeps_what_was_had(photos: Path, stub: Any) -> None:
    stub.script(rules=[{"match": {"kind": "judge"}, "do": {"status": 401}}])
    with pytest.raises(ParagrainError, match="OPENAI_API_KEY"):
        run(photos, settings_for(stub))
    had = stub.counters()["requests"]
    assert had < 4 * COUNT
    stub.script(rules=[judged(9)])
    report = run(photos, settings_for(stub))
    assert report.complete == COUNT
    assert stub.counters()["requests"] + had <= 4 * COUNT + 8  # the 401s themselves come again


def test_a_server_that_is_gone_stops_the_run(
    photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "GIVE_UP_AFTER", 3)
    settings = settings_for(stub)
    gone = settings.generator.model_copy(update={"endpoint": "http://127.0.0.1:9/v1"})
    with pytest.raises(
        ParagrainError, match=r"3 images in a row got no answer.*run the same command"
    ):
        run(photos, settings.model_copy(update={"generator": gone}))


def test_images_that_failed_before_do_not_stop_a_run(
    photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = Collection.open(photos).ids()[2:6]
    rules = [
        {"match": {"image_sha": sha_of(photos, name)}, "do": {"status": status}}
        for name, status in zip(sick, (500, 500, 400, 400), strict=True)
    ]
    stub.script(rules=rules)
    first = run(photos, settings_for(stub))
    assert sorted(name for name, _ in first.failed) == sorted(sick)
    monkeypatch.setattr(runner_module, "GIVE_UP_AFTER", 2)
    again = run(photos, settings_for(stub))  # only sick ones are left, and come in a row
    assert sorted(name for name, _ in again.failed) == sorted(sick)


def test_a_run_that_is_stopped_leaves_the_list_of_what_failed(photos: Path, stub: Any) -> None:
    sick = Collection.open(photos).ids()[0]
    stub.script(
        rules=[
            {"match": {"image_sha": sha_of(photos, sick)}, "do": {"status": 400}},
            {"match": {"kind": "judge"}, "do": {"status": 401}},
        ]
    )
    settings = settings_for(stub)
    slow = settings.judge.model_copy(update={"max_concurrency": 1}) if settings.judge else None
    with pytest.raises(ParagrainError, match="OPENAI_API_KEY"):
        run(photos, settings.model_copy(update={"judge": slow}))
    lines = (photos / "annotation" / "failed.jsonl").read_text().splitlines()
    assert sick in {json.loads(line)["id"] for line in lines}


def test_a_damaged_file_is_named_and_the_others_are_done(tmp_path: Path, stub: Any) -> None:
    folder = make_world(tmp_path, files=3, rows=4)
    second = folder / "records" / "part-00001.parquet"
    group = pq.read_metadata(second).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    start = columns["image.bytes"].data_page_offset
    data = bytearray(second.read_bytes())
    data[start : start + 100] = bytes(100)
    second.write_bytes(data)
    for calls in (32, 0):
        stub.script(rules=[judged(9)])
        report = run(folder, settings_for(stub))
        assert [name for name, _ in report.failed] == [second.name]
        assert report.complete == 8
        assert stub.counters()["requests"] == calls


def test_a_dead_server_is_told_while_it_is_waited_for(
    photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runs_module, "STALL_SECONDS", 0.0)
    settings = settings_for(stub)
    gone = settings.generator.model_copy(
        update={"endpoint": "http://127.0.0.1:9/v1", "retry_timeout": 2.0}
    )
    with pytest.raises(ParagrainError, match=r"none of the 1 images .*unanswered \(no connection"):
        run(photos, settings.model_copy(update={"generator": gone}), limit=1)
    assert "waiting for the server: no connection to http://127.0.0.1:9/v1" in caplog.text
    assert "tried again for at most" in caplog.text
    assert "(retry_timeout)" in caplog.text
