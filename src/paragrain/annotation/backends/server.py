"""Any server that speaks OpenAI's chat protocol, asked with its own client; retries are ours."""

import asyncio
import base64
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from paragrain.annotation.backends.answers import (
    BrokenOff,
    ErrorSaid,
    error_message,
    read_reply,
)
from paragrain.annotation.backends.connection import Connection, Passing, Refused
from paragrain.annotation.backends.opening import Opening
from paragrain.annotation.calls import Call, Picture, Reply, RequestFailed
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


class ServerBackend:
    """A `Backend` over HTTP.

    A request that fails in passing (busy, down, garbled, too slow) is sent again after the
    server's own Retry-After, else after 0.5 s, doubled each time up to 60 s, less up to half by
    chance. The last try begins at most `patience` seconds after the call's first failure: the time
    of that first request does not count, that of later ones does. Until it has answered anything,
    a server that says in words what is wrong is tried again for two seconds only.

    Where the server refuses a request, its options are left out until it is taken: by name where
    the message has one, else one after the other. What proves to be the reason is left out of all
    further requests and stands in `notes`.

    The key is read from OPENAI_API_KEY. It is never part of a message, nor is a user name,
    password or query of the endpoint.
    """

    def __init__(self, settings: BackendSettings):
        """Make the client; nothing is sent yet.

        Raises:
            UsageError: no address of a server, or neither an endpoint nor a key.
        """
        self.model = settings.model
        self.in_flight = settings.in_flight
        self.trouble = ""
        self.notes: list[str] = []
        self._connection = Connection(settings.endpoint, settings.in_flight, settings.key_env)
        self._timeout = settings.timeout
        self._patience = settings.patience
        self._structured = settings.structured
        self._order = list(_OPTIONS)
        if settings.structured == "on":  # given up last, so that nothing else can be the reason
            self._order = [*self._order[1:], "schema"]
        self._opening = Opening()
        self._left_out: frozenset[str] = frozenset()
        self._hopeless: Counter[str] = Counter()
        self._proven: set[tuple[str, frozenset[str]]] = set()
        self._uris: WeakKeyDictionary[Picture, str] = WeakKeyDictionary()

    async def ask(self, call: Call, picture: Picture) -> Reply:
        """One chat completion; see `Backend.ask`."""
        patience = _Patience(self._patience, lambda: self._opening.answered)
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Passing),
            wait=_wait,
            stop=patience,
            before_sleep=partial(self._note_trouble, patience),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            reply: Reply = await retrying(self._ask_with_options, call, self._uri(picture))
            self.trouble = ""
            return reply
        except Passing as failure:
            reason = patience.reason(failure)
            raise RequestFailed(reason, unanswered=True, spoken=failure.spoken) from None
        finally:
            self._opening.end(id(call))

    def _note_trouble(self, patience: "_Patience", state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        self.trouble = f"{failure}; {patience.bound}" if failure else ""

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
            if self._structured == "on" and "schema" in tried:
                known, tried, reason = self._left_out, [], None  # this reply is not held to it
                continue
            return reply

    def _learn(self, option: str) -> None:
        """Leave an option out from now on.

        Of several that were left out only the last is certain; the next call tells of the others.
        """
        if option == "schema" and self._structured == "on":
            raise RequestFailed(
                "the server takes no JSON schema: use --structured auto or off", everywhere=True
            )
        if option not in self._left_out:
            self._left_out |= {option}
            self.notes.append(_OPTIONS[option][1])

    def _sends(self, option: str, call: Call) -> bool:
        return option != "schema" or (call.schema is not None and self._structured != "off")

    async def _send(self, call: Call, uri: str, left_out: frozenset[str]) -> Reply:
        """One request, one answer, as soon as it is this call's turn.

        Raises:
            Passing: another try may succeed.
            Refused: the server finds fault with the request.
            RequestFailed: there will be no answer.
        """
        async with self._opening.turn(id(call)):
            try:
                reply = await self._exchange(self._body(call, uri, left_out), call.max_tokens)
            except (Passing, Refused, RequestFailed) as failure:
                if isinstance(failure, Passing) and not failure.spoken:
                    self._opening.silence()
                else:
                    self._opening.complaint(id(call))
                raise
            self._opening.answer()
            return reply

    async def _exchange(self, body: dict[str, Any], max_tokens: int) -> Reply:
        """Send a request and read its answer; raises as `_send`."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._connection.ask(body)
        except TimeoutError:
            raise Passing(f"no answer within {self._timeout:g} s") from None
        except Exception as error:
            raise self._connection.failure(error, self.model) from None
        try:
            return read_reply(answer, max_tokens)
        except ErrorSaid as error:
            raise self._connection.failure(error, self.model) from None
        except BrokenOff as error:
            raise Passing(str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._unreadable(answer) from None

    def _unreadable(self, answer: bytes) -> Passing:
        """What an answer means that is neither a chat completion nor an error."""
        said = self._connection.clean(error_message(answer)[0] or answer.decode(errors="replace"))
        if said.startswith(("{", "[")):
            return Passing("the answer is no JSON" if _torn(answer) else f"{_NO_CHAT} ({said})")
        return Passing(f"{_NO_CHAT} ({said})", spoken=True)

    def _body(self, call: Call, uri: str, left_out: frozenset[str]) -> dict[str, Any]:
        held = self._sends("schema", call) and "schema" not in left_out
        text = (call.json_prompt if held else None) or call.prompt
        parts = [
            {"type": "image_url", "image_url": {"url": uri}},
            {"type": "text", "text": text},
        ]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": parts}],
            "stream": False,
        }
        body["max_completion_tokens" if "max_tokens" in left_out else "max_tokens"] = (
            call.max_tokens
        )
        if "sampling" not in left_out:
            body |= {"temperature": call.temperature, "top_p": call.top_p}
        if "seed" not in left_out:
            body["seed"] = call.seed
        if held:
            schema = {"name": call.kind, "strict": True, "schema": call.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _uri(self, picture: Picture) -> str:
        """The picture as a data URI, made once for the calls that share it."""
        uri = self._uris.get(picture)
        if uri is None:
            data = base64.b64encode(picture.data).decode()
            uri = self._uris[picture] = f"data:{picture.media_type};base64,{data}"
        return uri


def _torn(answer: bytes) -> bool:
    """Whether JSON does not end."""
    try:
        json.loads(answer)
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


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


class _Patience:
    """Tenacity's `stop`: the next try would begin too long after the first failure."""

    def __init__(self, seconds: float, answered: Callable[[], bool]):
        self._seconds, self._answered = seconds, answered
        self._first: float | None = None
        self._spent = 0.0

    def __call__(self, state: RetryCallState) -> bool:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        self._spent = now - self._first
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, Passing) and failure.spoken and not self._answered():
            self._seconds = min(self._seconds, TRIAL)
        return self._spent + state.upcoming_sleep > self._seconds

    @property
    def bound(self) -> str:
        """How long a call that fails is tried again, for the user."""
        return f"tried again for at most {self._seconds:g} s (--patience)"

    def reason(self, failure: Passing) -> str:
        """Why it ended, for the user."""
        if failure.wait is not None and failure.wait > self._seconds:
            return (
                f"{failure}; it asks to wait {failure.wait:.0f} s, and the patience ends after "
                f"{self._seconds:g} s"
            )
        return f"{failure}; tried again for {self._seconds:g} s" if self._spent else str(failure)


def _wait(state: RetryCallState) -> float:
    """Tenacity's `wait`: what the server asks for, else longer each time."""
    failure = state.outcome.exception() if state.outcome else None
    if isinstance(failure, Passing) and failure.wait is not None:
        return max(LEAST_WAIT, failure.wait)
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(state.attempt_number - 1, 20))
    return max(LEAST_WAIT, longest * random.uniform(0.5, 1.0))
