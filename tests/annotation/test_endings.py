"""Whole runs against servers whose replies end, stream, think and refuse in their own ways."""

import json
from pathlib import Path
from typing import Any

import pytest

from paragrain.annotation import AnnotationReport, plan, status
from paragrain.collection import Collection
from paragrain.errors import ParagrainError

from .photos import judged, run, settings_for

KINDS = ("captions", "negatives", "paragraph", "judge")


def everything(fault: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"match": {"kind": kind}, "do": fault} for kind in KINDS]


def check_whole(report: AnnotationReport, photos: Path) -> None:
    assert report.problems == []
    for record in Collection.open(photos).records():
        texts = [*record.generated, *record.negatives, *(record.paragraph or "").split(". ")]
        assert len(record.generated) == len(record.negatives) == 5
        assert all(len(text.split()) > 4 for text in texts)
        assert record.paragraph
        assert record.paragraph.endswith(".")


# --- how replies end


@pytest.mark.parametrize(
    "fault",
    [
        *({"finish": reason} for reason in ("MAX_TOKENS", "content_filter", "odd", None)),
        {"choice_error": True},
    ],
)
def test_what_did_not_end_well_is_not_stored_and_not_reused(
    photos: Path, stub: Any, fault: dict[str, Any]
) -> None:
    kinds = [rule for rule in everything(fault) if rule["match"]["kind"] != "judge"]
    stub.script(rules=[*kinds, judged(9)])
    settings = settings_for(stub, max_retries=1)
    if "choice_error" in fault:
        with pytest.raises(ParagrainError, match=r"provider went away"):
            run(photos, settings, limit=3)
    else:
        assert run(photos, settings, limit=3).complete == 0
    assert all(record.paragraph is None for record in Collection.open(photos).records())
    stub.script(rules=[judged(9)])
    planned = plan(Collection.open(photos), settings, limit=3, progress=False)
    assert (planned.to_ask, planned.failed) == (3, 0)
    report = run(photos, settings)
    check_whole(report, photos)
    stub.script()
    assert run(photos, settings).calls == 0  # now cut replies are steps to those that followed


@pytest.mark.parametrize("reason", ["END_TURN", "tool_calls", None])
def test_what_ended_well_is_stored(photos: Path, stub: Any, reason: str | None) -> None:
    stub.script(rules=[judged(9), *everything({"ending": reason})])
    report = run(photos, settings_for(stub))
    check_whole(report, photos)
    assert report.calls == 32


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "length"])
def test_a_reply_without_room_is_asked_for_with_more(photos: Path, stub: Any, reason: str) -> None:
    rules = [{"match": {"kind": kind, "first": 1}, "do": {"finish": reason}} for kind in KINDS[:3]]
    stub.script(rules=[*rules, judged(9)])
    report = run(photos, settings_for(stub), limit=1)
    assert report.problems == []
    rooms = {kind: [e["options"]["max_tokens"] for e in stub.log() if e["kind"] == kind]
             for kind in KINDS}  # fmt: skip
    assert rooms == {
        "captions": [160, 320], "negatives": [200, 400], "paragraph": [200, 400], "judge": [16]
    }  # fmt: skip


def test_a_model_that_thinks_gets_the_room_it_needs(photos: Path, stub: Any) -> None:
    stub.script(rules=everything({"thinks": 900}))
    report = run(photos, settings_for(stub))
    check_whole(report, photos)
    assert all(r.paragraph_score is not None for r in Collection.open(photos).records())
    first = [e["options"]["max_tokens"] for e in stub.log() if e["kind"] == "captions"]
    assert sorted(set(first)) == [160, 640, 2560]
    assert {e["options"]["max_tokens"] for e in stub.log() if e["kind"] == "negatives"} == {2560}


def test_a_model_that_only_thinks_is_given_up(photos: Path, stub: Any) -> None:
    stub.script(rules=everything({"thinks": 10**6}))
    report = run(photos, settings_for(stub, texts=("captions",)), limit=1)
    assert [reason for _, reason in report.failed] == ["captions: truncated (no content)"]
    rooms = [e["options"]["max_tokens"] for e in stub.log()]
    assert rooms == [160, 640, 2560, 8192]


@pytest.mark.parametrize("how", ["sse", "crlf", "done"])
def test_a_stream_that_nobody_asked_for_is_read(photos: Path, stub: Any, how: str) -> None:
    stub.script(rules=everything({"streams": how}))
    report = run(photos, settings_for(stub))
    check_whole(report, photos)
    assert report.prompt_tokens > 0


def test_a_stream_that_breaks_off_is_asked_for_again(photos: Path, stub: Any) -> None:
    rule = {"match": {"kind": "captions", "first": 1}, "do": {"streams": "torn"}}
    stub.script(rules=[rule, judged(9)])
    patient = settings_for(stub).generator.model_copy(update={"retry_timeout": 5.0})
    report = run(photos, settings_for(stub, generator=patient), limit=1)
    assert report.problems == []


@pytest.mark.parametrize(
    ("tail", "query"),
    [
        ("/gw?api-version=2024-10-21", "api-version=2024-10-21"),
        ("/gw/?a=b%20c&d", "a=b%20c&d"),
        ("/v1/chat/completions", ""),
        ("/v1/chat/completions/?x=1#top", "x=1"),
        ("/v1///", ""),
    ],
)
def test_addresses_of_every_form(photos: Path, stub: Any, tail: str, query: str) -> None:
    for start in (
        stub.url.removesuffix("/v1"),
        stub.url.removesuffix("/v1").replace("http", "HTTP"),
    ):
        model = settings_for(stub).generator.model_copy(update={"endpoint": f" {start}{tail}"})
        report = run(photos, settings_for(stub, generator=model, judge=None), limit=1)
        assert report.problems == []
        assert stub.counters()["query"] == query


# --- refusals that no waiting mends

REFUSALS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "acme/toy is not a valid model ID", "code": 400}}),
    (404, {"error": {"message": "models/toy is not found for API version v1beta", "code": 404}}),
    (401, {"error": {"message": "no access to model toy for this key"}}),
    (422, {"detail": [{"msg": "image_url parts are not taken"}]}),
    (200, {"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
    (200, {"error": {"message": "the colour is wrong"}}),
    (500, {"error": {"message": "image input is not supported - hint: provide the mmproj"}}),
    (500, {"error": {"message": "cogito ergo sum"}}),
    (418, {"error": "short and stout"}),
    (500, ""),
]


@pytest.mark.parametrize(("code", "body"), REFUSALS)
def test_a_refusal_that_all_images_get_stops_the_run(
    photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch, code: int, body: Any
) -> None:
    monkeypatch.setattr("paragrain.annotation.backends.server.FIRST_WAIT", 0.05)
    monkeypatch.setattr("paragrain.annotation.backends.server.TRIAL", 0.2)
    stub.rule(None, status=code, body=body)
    model = settings_for(stub).generator.model_copy(
        update={"retry_timeout": 900.0, "max_concurrency": 32}
    )
    settings = settings_for(stub, generator=model)
    words = body if isinstance(body, str) else str(next(iter(body.values())))
    said = next((word for word in ("not supported", "stout", "cogito", "not taken", "not found",
                 "valid model", "pictures", "Unexpected", "colour", "access") if word in words),
                "Internal Server Error")  # fmt: skip
    with pytest.raises(ParagrainError, match=said) as stopped:
        run(photos, settings)
    assert "\n" not in str(stopped.value)
    assert stub.counters()["requests"] <= 16
    stub.script(rules=[judged(9)])
    check_whole(run(photos, settings), photos)


def test_one_image_that_is_refused_stops_nothing(photos: Path, stub: Any) -> None:
    stub.rule({"first": 4}, status=400, body={"error": "cannot decode"})
    report = run(photos, settings_for(stub))
    assert len(report.problems) <= 2
    assert report.complete >= 6


# --- what can be had is kept


def test_four_good_captions_are_kept_and_counted(photos: Path, stub: Any) -> None:
    four = "\n".join(f"{n}. A dog number {n} runs over the lawn." for n in range(1, 5))
    stub.script(rules=[{"match": {"kind": "captions"}, "do": {"text": four}}, judged(9)])
    report = run(photos, settings_for(stub))
    assert (report.complete, len(report.fewer), report.failed) == (0, 8, [])
    assert report.fewer[0][1].startswith("captions: repeated (4 of 5")
    record = next(iter(Collection.open(photos).records()))
    assert len(record.generated) == 4
    assert record.paragraph
    state = status(Collection.open(photos))
    assert (state.complete, state.fewer, state.failed) == (8, {"captions": 8}, {})
    planned = plan(Collection.open(photos), settings_for(stub), progress=False)
    assert (planned.fewer, planned.calls) == (8, (0, 0))
    stub.script()
    assert run(photos, settings_for(stub)).calls == 0
    report = run(photos, settings_for(stub, max_retries=3))  # the server is well: one more each
    assert (report.complete, report.calls) == (8, 8)
    assert status(Collection.open(photos)).fewer == {}


def test_the_kind_of_reply_that_cannot_be_read_is_told_with_an_example(
    photos: Path, stub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lettered = "a) A dog runs.\nb) A cat sits."
    stub.script(rules=[{"match": {"kind": "captions"}, "do": {"text": lettered}}, judged(9)])
    report = run(photos, settings_for(stub))
    assert len(report.notes) == 1
    assert "no captions of the first 3 images" in report.notes[0]
    assert "'a) A dog runs. b) A cat sits.'" in report.notes[0]
    assert report.notes[0] in caplog.text


def test_a_negative_that_the_paragraph_says_is_replaced(photos: Path, stub: Any) -> None:
    wrong = [f"A cat number {n} sits on the wall." for n in range(1, 6)]
    listed = "\n".join(f"{n}. {text}" for n, text in enumerate(wrong, 1))
    tale = f"A dog runs over the lawn. {wrong[2]} Trees stand behind them."
    rules = [
        {"match": {"kind": "negatives", "contains": "from 1 to 5"}, "do": {"text": listed}},
        {"match": {"kind": "paragraph"}, "do": {"text": tale}},
        judged(9),
    ]
    stub.script(rules=rules)
    plain = settings_for(stub).generator.model_copy(update={"structured": "off"})
    settings = settings_for(stub, generator=plain)
    report = run(photos, settings, limit=2)
    assert report.problems == []
    for record in list(Collection.open(photos).records())[:2]:
        assert wrong[2] not in record.negatives
        assert len(record.negatives) == 5
    only = settings_for(stub, generator=plain, texts=("paragraph",), replace=True)
    stub.script(rules=[{"match": {"kind": "paragraph"}, "do": {"text": tale.replace(*wrong[2:4])}}])
    report = run(photos, only, limit=2)  # now the paragraph says what a negative says that stays
    assert [reason.split(" (")[0] for _, reason in report.failed] in (
        [],
        ["paragraph: repeated"] * 2,
    )
    for record in list(Collection.open(photos).records())[:2]:
        assert not any(text in (record.paragraph or "") for text in record.negatives)


def test_the_log_keeps_how_a_reply_ended(photos: Path, stub: Any) -> None:
    stub.script(rules=[judged(9), *everything({"ending": None})])
    run(photos, settings_for(stub), limit=1)
    lines = [
        json.loads(line)
        for file in (photos / "annotation" / "calls").iterdir()
        for line in file.read_text().splitlines()
    ]
    assert {line["kind"]: line["reply"]["finish"] for line in lines} == {
        "captions": None, "negatives": None, "paragraph": None, "judge": "stop"
    }  # fmt: skip
