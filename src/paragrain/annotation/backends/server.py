"""Any server that speaks OpenAI's chat protocol, asked with its own client; retries are ours."""

import asyncio
import base64
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from paragrain.annotation.backends.connection import Connection, Refused, Transient
from paragrain.annotation.backends.responses import (
    IncompleteStream,
    ServerError,
    error_message,
    read_reply,
)
from paragrain.annotation.calls import Call, Reply, RequestFailed
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings
from paragrain.errors import UsageError

FIRST_WAIT = 0.5
"""Seconds before the first retry where the server names none; they double with each."""

LONGEST_WAIT = 60.0
"""Seconds between retries at most, unless the server asks for more."""

LEAST_WAIT = 0.05
"""Seconds between retries at least, whatever the server says."""

TRIAL = 2.0
"""Seconds for which a server that has answered nothing yet is asked again after it said in words
what is wrong: it may say so for ever."""

TURN_SECONDS = 2.0
"""So long the first requests wait for one another, so that a slow answer does not hold all back."""

SUSPECTS = 2
"""Calls that go on being asked while the server says of each that something is wrong."""

_MODELS_TIMEOUT = 30.0
_NO_CHAT = "the answer is no chat completion"
_ENOUGH_FORMS = 2  # calls that one refusal met in every form, after which it needs no more proof
_OPTIONS = {
    "schema": (
        re.compile(r"response_format|json_schema|structured|guided|grammar", re.I),
        "the server takes no JSON schema: lists are used",
    ),
    "seed": (
        re.compile(r"\bseed\b", re.I),
        "the server takes no seed: asked again, it may answer differently",
    ),
    "sampling": (
        re.compile(r"\btemperature\b|\btop_p\b", re.I),
        "the server takes no temperature and top_p: it samples in its own way",
    ),
    "max_tokens": (
        re.compile(r"\bmax_tokens\b", re.I),
        "the server takes max_completion_tokens instead of max_tokens",
    ),
}
"""What a server may refuse: what gives it away in the message, and what the user is told. The order
is that of giving up; max_completion_tokens comes last, since older servers do not know it."""


class FirstRequests:
    """Holds requests back, one at a time, while it looks as if the server will answer none of them.

    Attributes:
        answered: whether the server has answered a call; from then on nothing is held back.
        busy: whether a request failed without a word on what is wrong: a server that is busy
            refuses nothing, and nothing is held back either.
        suspects: calls with which the server found something wrong.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.answered = self.busy = False
        self.suspects: set[int] = set()
        self._under_way: object | None = None
        self._news = asyncio.Event()

    @asynccontextmanager
    async def turn(self, call: int) -> AsyncIterator[None]:
        """One request of a call, which is known by a number, when it may be sent."""
        while not self._may_go(call):
            await self._news.wait()
        self._under_way = request = object()

        def over() -> None:
            if self._under_way is request:
                self._under_way = None
                self.wake_waiters()

        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, over)
        try:
            yield
            self.answered = True
        except Transient as failure:
            if failure.explained:
                self.suspects.add(call)
            self.busy |= not failure.explained
            raise
        except (Refused, RequestFailed):
            self.suspects.add(call)
            raise
        finally:
            timer.cancel()
            over()
            self.wake_waiters()

    def wake_waiters(self) -> None:
        """Have all who wait look again."""
        self._news.set()
        self._news = asyncio.Event()

    def _may_go(self, call: int) -> bool:
        if self.answered or self.busy:
            return True
        known = call in self.suspects
        return self._under_way is None and (known or len(self.suspects) < SUSPECTS)


class ServerBackend:
    """A `Backend` over HTTP.

    A request with a transient failure (busy, down, garbled, too slow) is sent again after the
    server's own Retry-After, else after 0.5 s, doubled each time up to 60 s, less up to half by
    chance. The last try begins at most `retry_timeout` seconds after the call's first failure: the
    time of that first request does not count, that of later ones does. Until it has answered
    anything, a server that says in words what is wrong is tried again for two seconds only.

    Where the server refuses a request, its options are left out until it is taken: by name where
    the message has one, else one after the other. What proves to be the reason is left out of all
    further requests and stands in `notes`.

    The key is never part of a message, nor is a user name, password or query of the endpoint.
    """

    def __init__(self, settings: BackendSettings):
        """Make the client; nothing is sent yet.

        Raises:
            UsageError: no URL of a server, or neither an endpoint nor a key.
        """
        self.max_concurrency = settings.max_concurrency
        self.stall_reason = ""
        self.notes: list[str] = []
        self._settings = settings
        self._connection = Connection(settings.endpoint, settings.max_concurrency, settings.key_env)
        self._order = list(_OPTIONS)
        if settings.structured == "on":  # given up last, so that nothing else can be the reason
            self._order = [*self._order[1:], "schema"]
        self._first = FirstRequests()
        self._left_out: frozenset[str] = frozenset()
        self._hopeless: Counter[str] = Counter()
        self._proven: set[tuple[str, frozenset[str]]] = set()
        self._uris: WeakKeyDictionary[PreparedImage, str] = WeakKeyDictionary()

    async def ask(self, call: Call, picture: PreparedImage) -> Reply:
        """One chat completion; see `Backend.ask`."""
        most, began = self._settings.retry_timeout, None
        uri = self._uri(picture)
        try:
            for retries in count():
                try:
                    reply = await self._ask_with_options(call, uri)
                except Transient as failure:
                    now = time.monotonic()
                    began = began or now
                    if failure.explained and not self._first.answered:
                        most = min(most, TRIAL)
                    wait = _wait(failure, retries)
                    if now - began + wait > most:
                        reason = _gave_up(failure, most, tried_again=retries > 0)
                        raise RequestFailed(
                            reason, unanswered=True, explained=failure.explained
                        ) from None
                    self.stall_reason = (
                        f"{failure}; tried again for at most {most:g} s (retry_timeout)"
                    )
                    await asyncio.sleep(wait)
                else:
                    self.stall_reason = ""
                    return reply
        finally:
            self._first.suspects.discard(id(call))
            self._first.wake_waiters()
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.client.close()

    async def _ask_with_options(self, call: Call, uri: str) -> Reply:
        """Ask with all options that the server takes, and find out which it does not take."""
        known = self._left_out
        tried: list[str] = []  # left out of this request only, in order
        reason: Refused | None = None
        by_name = False
        while True:
            try:
                reply = await self._send(call, uri, known.union(tried))
            except Refused as refused:
                if self._left_out != known:  # another call has found something out meanwhile
                    known, tried, reason = self._left_out, [], None
                    continue
                if reason is None or by_name:
                    reason = refused
                there = [option for option in self._order if self._sends(option, call)]
                there = [option for option in there if option not in known.union(tried)]
                named = [option for option in there if _OPTIONS[option][0].search(str(refused))]
                by_name = bool(named)
                proven = (call.kind, known) in self._proven
                if not named and (proven or self._hopeless[str(reason)] >= _ENOUGH_FORMS):
                    raise RequestFailed(str(reason)) from None  # it is the image, or the model
                if not named and not there:
                    self._hopeless[str(reason)] += 1
                    raise RequestFailed(str(reason)) from None
                tried.append((named or there)[0])
                continue
            if not tried:
                self._proven.add((call.kind, known))
                return reply
            self._learn(tried[-1])
            if self._settings.structured == "on" and "schema" in tried:
                known, tried, reason = self._left_out, [], None  # this reply is not held to it
                continue
            return reply

    def _learn(self, option: str) -> None:
        """Leave an option out from now on.

        Of several that were left out only the last is certain; the next call tells of the others.
        """
        if option == "schema" and self._settings.structured == "on":
            raise RequestFailed(
                "the server takes no JSON schema: use structured=auto or off", fatal=True
            )
        if option not in self._left_out:
            self._left_out |= {option}
            self.notes.append(_OPTIONS[option][1])

    def _sends(self, option: str, call: Call) -> bool:
        return option != "schema" or (
            call.schema is not None and self._settings.structured != "off"
        )

    async def _send(self, call: Call, uri: str, left_out: frozenset[str]) -> Reply:
        """One request, one answer, as soon as it is this call's turn.

        Raises:
            Transient: another try may succeed.
            Refused: the server finds fault with the request.
            RequestFailed: there will be no answer.
        """
        async with self._first.turn(id(call)):
            try:
                async with asyncio.timeout(self._settings.timeout):
                    answer = await self._connection.ask(self._body(call, uri, left_out))
            except TimeoutError:
                raise Transient(f"no answer within {self._settings.timeout:g} s") from None
            except Exception as error:
                raise self._connection.failure(error, self._settings.model) from None
            try:
                return read_reply(answer, call.max_tokens)
            except ServerError as error:
                raise self._connection.failure(error, self._settings.model) from None
            except IncompleteStream as error:
                raise Transient(str(error)) from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise self._unreadable(answer) from None

    def _unreadable(self, answer: bytes) -> Transient:
        """What an answer means that is neither a chat completion nor an error."""
        said = self._connection.clean(error_message(answer)[0] or answer.decode(errors="replace"))
        if not said.startswith(("{", "[")):
            return Transient(f"{_NO_CHAT} ({said})", explained=True)
        try:
            json.loads(answer)
        except ValueError:
            return Transient("the answer is no JSON")
        except RecursionError:
            pass
        return Transient(f"{_NO_CHAT} ({said})")

    def _body(self, call: Call, uri: str, left_out: frozenset[str]) -> dict[str, Any]:
        held = self._sends("schema", call) and "schema" not in left_out
        text = (call.json_prompt if held else None) or call.prompt
        parts = [
            {"type": "image_url", "image_url": {"url": uri}},
            {"type": "text", "text": text},
        ]
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": parts}],
            "stream": False,
            limit: call.max_tokens,
        }
        if "sampling" not in left_out:
            body |= {"temperature": call.temperature, "top_p": call.top_p}
        if "seed" not in left_out:
            body["seed"] = call.seed
        if held:
            schema = {"name": call.kind, "strict": True, "schema": call.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _uri(self, picture: PreparedImage) -> str:
        """The picture as a data URI, made once for the calls that share it."""
        uri = self._uris.get(picture)
        if uri is None:
            data = base64.b64encode(picture.data).decode()
            uri = self._uris[picture] = f"data:{picture.media_type};base64,{data}"
        return uri


async def only_model(endpoint: str | None, key_env: str) -> str:
    """The name of the one model that a server offers, so that the user need not give it.

    Raises:
        UsageError: it offers none or several, or does not say.
    """
    connection = Connection(endpoint, 1, key_env)
    try:
        async with asyncio.timeout(_MODELS_TIMEOUT):
            answer = await connection.models()
        names = [str(entry["id"]) for entry in json.loads(answer)["data"]]
    except Exception as error:
        failure = connection.failure(error, "")
        said = connection.clean(str(failure)) or type(failure).__name__
        raise UsageError(
            f"{connection.shown} does not say which models it has ({said}): check the endpoint, or "
            "pass --model"
        ) from None
    finally:
        await connection.client.close()
    if not names:
        raise UsageError(f"{connection.shown} offers no model: load one there, or pass --model")
    if len(names) > 1:
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise UsageError(
            f"{connection.shown} offers {len(names)} models: pass --model, of {listed}"
        )
    return names[0]


def _wait(failure: Transient, retries: int) -> float:
    """Seconds until the next try: what the server asks for, else longer each time."""
    if failure.wait is not None:
        return max(LEAST_WAIT, failure.wait)
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(retries, 20))
    return max(LEAST_WAIT, longest * random.uniform(0.5, 1.0))


def _gave_up(failure: Transient, most: float, *, tried_again: bool) -> str:
    """Why a call ended, for the user."""
    if failure.wait is not None and failure.wait > most:
        return (
            f"{failure}; it asks to wait {failure.wait:.0f} s, and a request is tried again for "
            f"{most:g} s (retry_timeout)"
        )
    return f"{failure}; tried again for {most:g} s" if tried_again else str(failure)
