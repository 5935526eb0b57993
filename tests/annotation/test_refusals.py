"""Servers over HTTP: requests that fail for good, options that are refused, keys and models."""

import asyncio
import base64
import hashlib
import json
import logging
from typing import Any

import pytest
from pydantic import ValidationError

from paragrain.annotation.backends.server import ServerBackend, only_model
from paragrain.annotation.calls import Reply, RequestFailed
from paragrain.errors import UsageError

# ------------------------------------------------------------------------- what does not pass


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (413, "Payload too large"),
        (404, {"error": {"message": "The image was not found"}}),
        (418, {"error": "teapot"}),
        (451, {"detail": [{"msg": "no"}]}),
    ],
)
def test_what_one_image_is_refused_for_concerns_it_alone(
    asking: Any, stub: Any, status: int, body: Any
) -> None:
    stub.rule(None, status=status, body=body)
    failed = asking.failure(stub)
    assert not failed.fatal
    assert str(failed).startswith(f"{status}: ")
    assert stub.counters()["requests"] == 1


@pytest.mark.parametrize(
    ("orders", "remedy"),
    [
        ({"key": "another"}, "set OPENAI_API_KEY"),
        ({"models": ["a", "b"]}, "has no model 'm' (404): name one that it serves"),
        (
            {"do": {"status": 403, "body": {"error": {"message": "not here"}}}},
            "403: not here; check",
        ),
        ({"do": {"status": 404, "body": {"detail": "Not Found"}}}, "ends in /v1"),
        ({"do": {"status": 404, "body": "<html>404</html>"}}, "ends in /v1"),
        ({"do": {"status": 405}}, "ends in /v1"),
        ({"do": {"status": 402}}, "no credit left"),
        ({"do": {"status": 404, "body": {"error": "model 'm' not found"}}}, "no model 'm'"),
        (
            {"do": {"status": 429, "body": {"error": {"code": "insufficient_quota"}}}},
            "no credit left (429)",
        ),
    ],
)
def test_what_every_call_fails_for_says_what_to_do(
    asking: Any, stub: Any, orders: Any, remedy: str
) -> None:
    stub.script(**({"rules": [orders]} if "do" in orders else orders))
    failed = asking.failure(stub)
    assert failed.fatal
    assert remedy in str(failed)
    assert stub.counters()["requests"] == 1


def test_a_path_without_the_protocol_is_seen(asking: Any, stub: Any) -> None:
    failed = asking.failure(stub, url=stub.url.removesuffix("/v1"))
    assert failed.fatal
    assert "ends in /v1" in str(failed)


# ---------------------------------------------------------------------------- refused options


def refuse(stub: Any, *options: str, named: bool = True, status: int = 400) -> None:
    do = {"named": named, "status": status}
    stub.script(rules=[{"do": {"refuse_option": option, **do}} for option in options])


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("option", "note"),
    [
        ("response_format", "lists are used"),
        ("seed", "no seed"),
        ("temperature", "no temperature"),
        ("max_tokens", "max_completion_tokens"),
    ],
)
def test_a_refused_option_is_left_out_from_then_on(
    asking: Any, stub: Any, option: str, note: str, named: bool, status: int
) -> None:
    refuse(stub, option, named=named, status=status)
    replies, notes = asking.ask(stub, asking.call(), asking.call("negatives"))
    assert len(notes) == 1, notes
    assert note in notes[0]
    assert all(reply.text for reply in replies)
    *_, last = stub.log()
    assert last["status"] == 200
    sent = {"response_format", "seed", "temperature", "max_tokens"} & set(last["options"])
    assert sent == {"response_format", "seed", "temperature", "max_tokens"} - {option}
    assert ("max_completion_tokens" in last["options"]) == (option == "max_tokens")
    if named:
        assert stub.counters()["requests"] == 3
    if option == "response_format":
        assert replies[0].text.startswith("1. ")
        assert last["prompt"] == asking.call("negatives").prompt


@pytest.mark.parametrize("named", [True, False])
def test_several_refused_options_are_all_found(asking: Any, stub: Any, named: bool) -> None:
    refuse(stub, "response_format", "seed", "max_tokens", named=named)
    replies, notes = asking.ask(stub, *[asking.call(seed=n) for n in range(5)])
    assert all(reply.text for reply in replies)
    assert len(notes) == 3
    before = stub.log()
    assert set(before[-1]["options"]) == {
        "model", "stream", "temperature", "top_p", "max_completion_tokens"
    }  # fmt: skip
    assert before[-2]["status"] == 200  # the last calls needed one request each


def test_an_image_that_is_refused_in_every_form_teaches_nothing(asking: Any, stub: Any) -> None:
    red = hashlib.sha256(asking.picture().data).hexdigest()
    body = {"error": {"message": "cannot read the image"}}
    rule = {"match": {"image_sha": red}, "do": {"status": 400, "body": body}}
    stub.script(rules=[rule])

    async def run() -> list[str]:
        backend = ServerBackend(asking.settings(stub.url))
        for cost in (5, 1):  # once all options are known to be taken, it must be the image
            before = stub.counters()["requests"]
            with pytest.raises(RequestFailed, match=r"^400: cannot read the image$") as caught:
                await backend.ask(asking.call(), asking.picture())
            assert not caught.value.fatal
            assert stub.counters()["requests"] - before == cost
            await backend.ask(asking.call(), asking.picture("blue"))
        await backend.close()
        return backend.notes

    assert asyncio.run(run()) == []
    assert "response_format" in stub.log()[-1]["options"]


@pytest.mark.parametrize("named", [True, False])
def test_a_schema_that_must_be_and_cannot_be_ends_the_run(
    asking: Any, stub: Any, named: bool
) -> None:
    refuse(stub, "response_format", named=named)
    failed = asking.failure(stub, asking.call(), structured="on")
    assert failed.fatal
    assert "structured=auto" in str(failed)


@pytest.mark.parametrize("named", [True, False])
def test_a_schema_that_must_be_outlives_other_refusals(asking: Any, stub: Any, named: bool) -> None:
    refuse(stub, "seed", "temperature", named=named)
    replies, notes = asking.ask(stub, asking.call(), asking.call(seed=1), structured="on")
    assert all(json.loads(reply.text)["captions"] for reply in replies)
    assert len(notes) == 2


def test_calls_that_find_out_at_once_agree(asking: Any, stub: Any) -> None:
    refuse(stub, "response_format", "seed")

    async def run() -> tuple[list[Reply], list[str]]:
        backend = ServerBackend(asking.settings(stub.url, max_concurrency=16))
        asks = [backend.ask(asking.call(number=n), asking.picture()) for n in range(16)]
        replies = await asyncio.gather(*asks)
        await backend.ask(asking.call(), asking.picture())
        await backend.close()
        return replies, backend.notes

    replies, notes = asyncio.run(run())
    assert all(reply.text for reply in replies)
    assert len(notes) == 2
    assert not {"response_format", "seed"} & set(stub.log()[-1]["options"])


# ------------------------------------------------------------------------- keys and addresses


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 413, 429, 500])
def test_no_message_and_no_log_shows_a_key(
    asking: Any, stub: Any, status: int, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", asking.KEY)
    caplog.set_level(logging.DEBUG)
    basic = base64.b64encode(b"me:pass/word").decode()
    said = f"key {asking.KEY} my-ow*****6789 {basic} me:pass/word sk-proj-ab12***9"
    stub.rule(None, status=status, body={"error": {"message": said}})
    url = stub.url.replace("//", "//me:pass%2Fword@")
    failed = asking.failure(stub, url=url, retry_timeout=0)
    shown = f"{failed!r} {failed} {failed.__cause__} {caplog.text}"
    for secret in (asking.KEY, "6789", "pass%2Fword", "pass/word", basic, "sk-proj"):
        assert secret not in shown
    assert failed.__suppress_context__


def test_the_key_is_sent_and_no_other(asking: Any, stub: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin")
    stub.script(key=asking.KEY)
    assert asking.ask_one(stub).text


def test_user_and_password_of_the_endpoint_are_sent(asking: Any, stub: Any) -> None:
    stub.script(key="Basic " + base64.b64encode(b"me:pass/word").decode())
    assert asking.ask_one(stub, url=stub.url.replace("//", "//me:pass%2Fword@")).text


def test_a_local_server_needs_no_key(asking: Any, stub: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert asking.ask_one(stub).text
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)

    async def run() -> Reply:
        return await ServerBackend(asking.settings(None)).ask(asking.PARAGRAPH, asking.picture())

    assert asyncio.run(run()).text


def test_neither_key_nor_endpoint_says_what_to_set(asking: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match=r"--endpoint.*OPENAI_API_KEY"):
        ServerBackend(asking.settings(None))
    monkeypatch.setenv("OPENAI_API_KEY", "two\nlines")
    with pytest.raises(UsageError, match="no key has") as caught:
        ServerBackend(asking.settings(None))
    assert "two" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["localhost:8000/v1", "ftp://h/v1", "http://", "http://h:x/v1", "http://u:pw@:1"]
)
def test_an_endpoint_that_is_none_is_refused(asking: Any, endpoint: str, monkeypatch: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        asking.settings(endpoint)
    assert "pw" not in str(caught.value)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint)
    with pytest.raises(UsageError, match="looks like http://localhost:8000/v1") as refused:
        ServerBackend(asking.settings(None))
    assert "pw" not in str(refused.value)


def test_no_proxy_comes_between_this_machine_and_itself(
    asking: Any, stub: Any, monkeypatch: Any
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert asking.ask_one(stub).text
    assert asking.ask_one(stub, url=stub.url.replace("127.0.0.1", "localhost")).text


# ---------------------------------------------------------------------------------- models


def test_the_only_model_need_not_be_named(stub: Any) -> None:
    stub.script(models=["Qwen/Qwen2-VL-7B-Instruct"])
    assert asyncio.run(only_model(stub.url, "OPENAI_API_KEY")) == "Qwen/Qwen2-VL-7B-Instruct"


def test_several_models_are_listed(stub: Any) -> None:
    stub.script(models=["a", "b"])
    with pytest.raises(UsageError, match="offers 2 models: pass --model, of a, b"):
        asyncio.run(only_model(stub.url, "OPENAI_API_KEY"))


def test_a_server_without_a_list_of_models_is_told(stub: Any, unused_port: int) -> None:
    with pytest.raises(UsageError, match=r"does not say which models it has \(there is no such"):
        asyncio.run(only_model(stub.url.removesuffix("/v1"), "OPENAI_API_KEY"))
    with pytest.raises(UsageError, match=r"does not say which models it has \(no connection"):
        asyncio.run(only_model(f"http://127.0.0.1:{unused_port}/v1", "OPENAI_API_KEY"))
