"""Servers over HTTP: what is sent, what passes by itself, and odd answers, against the stub."""

import asyncio
import hashlib
import itertools
import json
import time
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paragrain.annotation.backends import server
from paragrain.annotation.backends.connection import retry_after
from paragrain.annotation.backends.responses import error_message, read_reply
from paragrain.annotation.backends.server import ServerBackend
from paragrain.annotation.calls import Reply, RequestFailed
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.prompts import PromptSet, schema

# --------------------------------------------------------------------- the stub server itself


def test_the_stub_is_as_strict_as_a_real_server(asking: Any, stub: Any) -> None:
    async def run(image: PreparedImage, **fields: Any) -> str:
        backend = ServerBackend(asking.settings(stub.url))
        with pytest.raises(RequestFailed) as caught:
            await backend.ask(replace(asking.PARAGRAPH, **fields), image)
        await backend.close()
        return str(caught.value)

    assert "its bytes are no png" in asyncio.run(
        run(replace(asking.picture(), media_type="image/png"))
    )
    assert "its bytes are no jpeg" in asyncio.run(run(replace(asking.picture(), data=b"GIF89a")))
    assert "no data URI" in asyncio.run(run(replace(asking.picture(), media_type="image/tiff")))
    assert "out of range" in asyncio.run(run(asking.picture(), max_tokens=0))
    assert "there is no text" in asyncio.run(run(asking.picture(), prompt=""))
    with pytest.raises(ValueError, match="no such fault"):
        stub.rule(None, explode=True)


def test_the_stub_writes_what_is_asked_for_and_always_the_same(asking: Any, stub: Any) -> None:
    prompt, as_json = PromptSet().generation("negatives", None, 7)
    asked = [asking.call("negatives", prompt=prompt, json_prompt=as_json)] * 2
    judged = [asking.call("judge", prompt=PromptSet().judging(f"Dog {n}.")[0]) for n in range(40)]
    (once, again, *scores), _ = asking.ask(stub, *asked, *judged, structured="off")
    assert once == again
    assert len(set(once.text.splitlines())) == 7
    values = [int(score.text) for score in scores]
    assert 0 <= min(values) <= 5 < max(values) <= 10
    counted = stub.counters()
    assert (counted["requests"], counted["distinct"], counted["finished"]) == (42, 41, 42)
    assert counted["by_kind"] == {"negatives": 2, "judge": 40}


# ------------------------------------------------------------------------------ what is sent


def test_a_call_is_sent_with_all_its_options_and_the_very_bytes(asking: Any, stub: Any) -> None:
    reply = asking.ask_one(stub, asking.PARAGRAPH, structured="off")
    assert reply.text.count(". ") == 3
    assert (reply.finish, reply.refusal) == ("stop", None)
    assert reply.prompt_tokens > 256
    assert reply.completion_tokens > 10
    (request,) = stub.log()
    assert request["image_sha"] == hashlib.sha256(asking.picture().data).hexdigest()
    assert request["prompt"] == asking.PARAGRAPH.prompt
    assert request["options"] == {
        "model": "m", "stream": False, "max_tokens": 200, "temperature": 0.7, "top_p": 0.9,
        "seed": 11,
    }  # fmt: skip


@pytest.mark.parametrize("structured", ["auto", "on"])
def test_answers_are_held_to_a_schema_where_there_is_one(
    asking: Any, stub: Any, structured: str
) -> None:
    kinds = ("captions", "negatives", "judge", "paragraph")
    replies, notes = asking.ask(stub, *map(asking.call, kinds), structured=structured)
    captions, negatives, judged, paragraph = (reply.text for reply in replies)
    captions, negatives = json.loads(captions)["captions"], json.loads(negatives)["negatives"]
    assert len({*captions, *negatives}) == 10
    assert 0 <= json.loads(judged)["score"] <= 10
    assert paragraph[0] == "A"
    assert notes == []
    log = stub.log()
    assert log[0]["prompt"] == asking.call().json_prompt
    assert log[2]["prompt"] == asking.call("judge").json_prompt
    assert [request["options"].get("response_format") for request in log[2:]] == [
        {
            "type": "json_schema",
            "json_schema": {"name": "judge", "strict": True, "schema": schema("judge", 0)},
        },
        None,
    ]


def test_lists_are_asked_for_where_schemas_are_off(asking: Any, stub: Any) -> None:
    text = asking.ask_one(stub, asking.call(), structured="off").text
    assert [line[:3] for line in text.splitlines()] == ["1. ", "2. ", "3. ", "4. ", "5. "]
    assert stub.log()[0]["prompt"] == asking.call().prompt


def test_as_many_requests_as_allowed_are_under_way_at_once(asking: Any, stub: Any) -> None:
    async def run() -> None:
        backend = ServerBackend(asking.settings(stub.url, max_concurrency=40))
        await backend.ask(asking.PARAGRAPH, asking.picture())  # the first is asked alone
        stub.script(latency=0.8)
        asks = [backend.ask(replace(asking.PARAGRAPH, seed=n), asking.picture()) for n in range(40)]
        await asyncio.gather(*asks)
        await backend.close()

    asyncio.run(run())
    assert stub.counters()["most_in_flight"] == 40


# ------------------------------------------------------------------------ what passes by itself


def gaps(stub: Any) -> list[float]:
    times = [request["at"] for request in stub.log()]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"Retry-After": "1"}, 1.0),
        ({"Retry-After": "0.3"}, 0.3),
        ({"Retry-After-Ms": "200", "Retry-After": "9"}, 0.2),
    ],
)
def test_the_server_is_given_the_time_it_asks_for(
    asking: Any, stub: Any, headers: Any, told: float
) -> None:
    times = 1 if told == 1 else 3
    stub.rule({"first": times}, status=429, headers=headers)
    assert asking.ask_one(stub).text
    assert len(gaps(stub)) == times
    assert all(told <= gap < told + 0.5 for gap in gaps(stub))


def test_a_date_to_retry_after_is_waited_for(asking: Any, stub: Any) -> None:
    then = int(time.time()) + 2
    stub.rule({"first": 1}, status=503, headers={"Retry-After": formatdate(then, usegmt=True)})
    assert asking.ask_one(stub).text
    assert stub.log()[1]["at"] >= then


@pytest.mark.parametrize("told", ["-5", "0", "soon", "nan", "inf", "1e999", "Thu, 99 Foo 1 1:1:1"])
def test_nonsense_in_retry_after_is_passed_over(asking: Any, stub: Any, told: str) -> None:
    stub.rule({"first": 2}, status=429, headers={"Retry-After": told})
    assert asking.ask_one(stub).text
    assert len(gaps(stub)) == 2
    assert min(gaps(stub)) >= server.LEAST_WAIT


def test_waits_grow_where_the_server_names_none(asking: Any, stub: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.1)
    stub.rule({"first": 4}, status=500)
    assert asking.ask_one(stub).text
    for n, gap in enumerate(gaps(stub)):
        assert 0.05 * 2**n <= gap < 0.1 * 2**n + 0.15


PASSING: list[tuple[dict[str, Any], str]] = [
    *[({"status": status}, f"{status}: status {status}") for status in (408, 409, 425, 500, 503)],
    ({"status": 502, "body": "<html>Bad gateway</html>"}, "502: Bad Gateway"),
    ({"status": 529, "body": ""}, "529: no reason given"),
    ({"status": 429}, "the server is busy (429)"),
    ({"close": True}, "the connection dropped ("),
    ({"half_body": True}, "the connection dropped ("),
    ({"not_json": True}, "the answer is no JSON"),
    ({"html": True}, "the answer is no chat completion (<!doctype html>"),
    ({"status": 200, "body": {"error": {"message": "boom"}}}, "no chat completion (boom)"),
    ({"status": 200, "body": "busy"}, "the answer is no chat completion (busy)"),
    ({"status": 200, "body": "[" * 100_000}, "the answer is no chat completion ([[["),
    ({"status": 200, "body": []}, "the answer is no chat completion ([])"),
    ({"status": 200, "body": {"choices": [{"text": "old"}]}}, "the answer is no chat completion"),
    ({"stall": 3}, "no answer within 0.2 s"),
    ({"drip": 0.05}, "no answer within 0.2 s"),
]


@pytest.mark.parametrize(("fault", "reason"), PASSING)
def test_what_may_pass_is_tried_again_and_given_up_in_time(
    asking: Any, stub: Any, fault: dict[str, Any], reason: str
) -> None:
    timeout = 0.2 if "stall" in fault or "drip" in fault else 5.0
    stub.rule({"first": 2}, **fault)
    assert asking.ask_one(stub, timeout=timeout).text
    assert stub.counters()["requests"] == 3
    stub.rule(None, **fault)
    begun = time.monotonic()
    failed = asking.failure(stub, timeout=timeout, retry_timeout=0.3)
    assert reason in str(failed)
    assert not failed.fatal
    assert stub.counters()["requests"] > 1
    assert time.monotonic() - begun < 0.3 + 2 * timeout


def test_a_server_that_stays_busy_is_given_up_with_the_time_it_had(asking: Any, stub: Any) -> None:
    stub.rule(None, status=429, headers={"Retry-After": "0.2"})
    assert "busy (429); tried again for 1 s" in str(asking.failure(stub, retry_timeout=1.0))
    assert stub.counters()["requests"] == 5


def test_a_wait_past_the_patience_is_not_begun(asking: Any, stub: Any) -> None:
    stub.rule(None, status=429, headers={"Retry-After": "3600"})
    begun = time.monotonic()
    assert "asks to wait 3600 s, and a request is tried again for 5 s" in str(asking.failure(stub))
    assert time.monotonic() - begun < 2
    assert stub.counters()["requests"] == 1


def test_no_patience_is_one_try(asking: Any, stub: Any) -> None:
    stub.rule(None, status=500, body={"error": {"message": "boom\nat line 3"}})
    assert str(asking.failure(stub, retry_timeout=0)) == "500: boom"
    assert stub.counters()["requests"] == 1


def test_requests_that_were_given_up_leave_room_for_others(asking: Any, stub: Any) -> None:
    stub.rule({"first": 24}, stall=5)

    async def run() -> list[Reply]:
        backend = ServerBackend(
            asking.settings(stub.url, max_concurrency=8, timeout=0.3, retry_timeout=8)
        )
        asks = [backend.ask(replace(asking.PARAGRAPH, seed=n), asking.picture()) for n in range(8)]
        replies = await asyncio.gather(*asks)
        await backend.close()
        return replies

    assert len({reply.text for reply in asyncio.run(run())}) == 8
    counted = stub.counters()
    assert (counted["dropped"], counted["finished"], counted["most_in_flight"]) == (24, 8, 8)


def test_a_call_that_is_cancelled_ends_at_once(asking: Any, stub: Any) -> None:
    stub.rule(None, stall=30)

    async def run() -> float:
        backend = ServerBackend(asking.settings(stub.url, timeout=60))
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.ask(asking.PARAGRAPH, asking.picture()), 0.2)
        await backend.close()
        return time.monotonic() - begun

    assert asyncio.run(run()) < 2


def test_a_server_that_is_not_there_is_named(asking: Any, unused_port: int) -> None:
    url = f"http://me:pass-word@127.0.0.1:{unused_port}/v1"
    said = str(asking.failure(None, url=url, retry_timeout=0.2))
    assert f"no connection to http://127.0.0.1:{unused_port}/v1 (" in said
    assert "pass-word" not in said


# ------------------------------------------------------------------------------- odd answers


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ({"null_content": True}, {"text": None, "finish": "stop"}),
        ({"no_choices": True}, {"text": None, "finish": "no choices"}),
        ({"finish_length": True}, {"finish": "length"}),
        ({"refusal_text": True}, {"text": "I'm sorry, but I can't help with that."}),
        ({"refusal_field": "No."}, {"text": None, "refusal": "No."}),
        ({"text": ""}, {"text": ""}),
        ({"text": "half \ud83d a pair \ud83d\ude00"}, {"text": "half \ufffd a pair \U0001f600"}),
        ({"no_usage": True}, {"prompt_tokens": None, "completion_tokens": None}),
    ],
)
def test_odd_answers_come_back_as_they_are(asking: Any, stub: Any, fault: Any, wanted: Any) -> None:
    stub.rule(None, **fault)
    reply = asking.ask_one(stub)
    assert {name: getattr(reply, name) for name in wanted} == wanted
    assert stub.counters()["requests"] == 1


def test_parts_are_joined_and_reasoning_is_kept(asking: Any, stub: Any) -> None:
    right = asking.ask_one(stub).text
    stub.rule(None, parts=True)
    assert asking.ask_one(stub).text == right
    stub.rule(None, reasoning=True)
    assert asking.ask_one(stub).text.endswith(f"</think>\n\n{right}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices message content type text finish_reason refusal usage error detail".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_reply_or_none(answer: Any) -> None:
    completion = {"choices": [{"message": {"content": answer}}], "usage": {"prompt_tokens": answer}}
    for value in (answer, {"choices": [{"message": answer}]}, completion):
        try:
            reply = read_reply(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        else:
            assert reply.text is None or isinstance(reply.text, str)
            assert reply.prompt_tokens is None or reply.prompt_tokens >= 0
        message, code = error_message(value)
        assert isinstance(message + code, str)


@given(st.text() | st.from_regex(r"\A\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ [A-Z]+\Z"), st.binary())
def test_any_header_and_any_body_can_be_read(header: str, body: bytes) -> None:
    seconds = retry_after({"retry-after": header})
    assert seconds is None or seconds > 0
    assert isinstance(error_message(body)[0], str)
