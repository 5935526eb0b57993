"""A connection to a model server: URL, key, and what its answers and failures mean."""

import base64
import math
import os
import re
import time
from email.utils import parsedate_to_datetime
from http.client import responses
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from paragrain.annotation.backends.responses import ServerError, error_message
from paragrain.annotation.calls import RequestFailed
from paragrain.annotation.settings import is_url, without_secrets
from paragrain.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai import AsyncOpenAI

_NO_KEY = "none-needed"  # the client insists on one, local servers ask for none
_KEEP_ALIVE = 4.0  # below the 5 s after which many servers hang up, else they do so under a request
_TRANSIENT = {408, 409, 425, 429}  # and 5xx
_KEY_LIKE = re.compile(r"\bsk-[\w*.-]+|\S*\*{3,}\S*")  # servers show parts of a key, and stars
_NO_SUCH_PATH = re.compile(
    r"\W*((404 )?(page |file )?not found|invalid url|cannot post|unexpected endpoint)", re.I
)
_NO_SUCH_MODEL = re.compile(
    r"\bmodels?\b.{0,100}\b(?:not (?:found|exist|a valid)|does(?: not|n't) exist|unknown|invalid)\b"
    r"|\b(?:unknown|invalid|no such|no) models?\b|no endpoints found|pinned to",
    re.IGNORECASE,
)
_SPEAKS_OF_MODEL = re.compile(r"\bmodels?\b", re.IGNORECASE)  # what a 404 is about, then
_BUSY = re.compile(
    r"busy|overload|capacity|loading|unavailable|start(?:ing|ed)|warm|again|retry|rate.?limit|queue"
    r"|tempor|time(?:d |-)?out|upstream|gateway|connect|too many",
    re.IGNORECASE,
)
_NO_WAITING = re.compile(
    r"(?:not|n't|un) ?-?(?:be )?(?:support|valid|implement|recogni[sz]|known|allow|exist)"
    r"|unknown|invalid|malformed|not found|no such",
    re.IGNORECASE,
)
_ONE_IMAGE = re.compile(r"flagged|moderat|content polic|safety", re.IGNORECASE)
_SECRET_NAME = re.compile(r"key|token|secret|sig|pass|code|auth", re.IGNORECASE)
_CHAT = "/chat/completions"


class Transient(Exception):
    """A request failed in a way that another try may mend.

    Attributes:
        wait: seconds that the server asks for.
        explained: the server says what is wrong, and not that it is busy, so that every other try
            may fail in the same way.
    """

    def __init__(self, reason: str, wait: float | None = None, *, explained: bool = False):
        """Keep the reason."""
        super().__init__(reason)
        self.wait = wait
        self.explained = explained


class Refused(Exception):
    """The server finds fault with the request: with an option of it, or with the image."""


_NOT_CONNECTED = {"ConnectError", "ClientConnectorError", "ClientConnectorDNSError"}


class Connection:
    """One server: where its services are, and what its failures mean.

    Attributes:
        client: without retries and time-outs of its own.
        shown: the endpoint without what is secret.
    """

    def __init__(self, endpoint: str | None, max_concurrency: int, variable: str):
        import openai  # here, since it takes a second

        self._variable = variable
        key = os.environ.get(variable, "").strip()
        endpoint = endpoint or os.environ.get("OPENAI_BASE_URL") or None
        if not key and not endpoint:
            raise UsageError(
                "there is neither a server nor a key: pass --endpoint, such as "
                f"http://localhost:8000/v1, or set {variable}"
            )
        if not re.fullmatch(r"[!-~]*", key):
            raise UsageError(f"{variable} holds characters that no key has: copy it again")
        self._secrets = {key} if key else set()
        auth = None
        options: dict[str, Any] = {}
        self.shown, self._base, self._query = "the hosted service", "", ""
        if endpoint:
            self._base, self._query, auth = self._split(endpoint)
            options["base_url"] = self._base
            self.shown = without_secrets(self._base)
        default = openai.DEFAULT_CONNECTION_LIMITS
        limits = type(default)(
            max_connections=max_concurrency,
            max_keepalive_connections=max_concurrency,
            keepalive_expiry=_KEEP_ALIVE,
        )
        # By aiohttp, which takes about two thirds of the other client's time for each request.
        http_client = openai.DefaultAioHttpClient(
            limits=limits, auth=auth, timeout=None, trust_env=not _is_loopback(self.shown)
        )
        self.client: AsyncOpenAI = openai.AsyncOpenAI(
            api_key=key or _NO_KEY, max_retries=0, timeout=None, http_client=http_client, **options
        )
        self.client.admin_api_key = None  # else `post` sends OPENAI_ADMIN_KEY, to anyone

    def _split(self, endpoint: str) -> tuple[str, str, tuple[str, str] | None]:
        """The URL below which the services lie, its query, and user and password.

        The client's library logs URLs, so user and password are taken out of them.
        """
        if not is_url(endpoint):
            raise UsageError(
                "the endpoint is no URL of a server: it looks like http://localhost:8000/v1"
            )
        parts = urlsplit(endpoint.strip())
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        named = [v for name, v in parse_qsl(parts.query) if _SECRET_NAME.search(name)]
        values = [value for value in named if len(value) > 3]
        raw = parts.username or "", parts.password or "", parts.query
        self._secrets |= {*raw, *values, user, password, basic} - {""}
        path = parts.path.rstrip("/").removesuffix(_CHAT).rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        plain = parts._replace(netloc=host, path=path, query="", fragment="")
        return plain.geturl(), parts.query, (user, password) if user or password else None

    async def ask(self, body: dict[str, Any]) -> bytes:
        """The answer to a chat request, as it comes; the client's own errors pass through."""
        # Not `chat.completions.create`: it costs a millisecond to check what is right here.
        return await self.client.post(self._url(_CHAT), cast_to=bytes, body=body)

    async def models(self) -> bytes:
        """The answer to the question which models there are."""
        return await self.client.get(self._url("/models"), cast_to=bytes)

    def _url(self, service: str) -> str:
        """Where a service is: below the endpoint's path, before its query."""
        query = f"?{self._query}" if self._query else ""
        return f"{self._base}{service}{query}"

    def clean(self, text: str) -> str:
        """The first line of a server's words, of bearable length and without secrets."""
        text = text.encode("utf-8", "replace").decode()  # halves of surrogate pairs
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "[secret]")
        line = text.strip().partition("\n")[0].strip()[:1000]  # a server may send any amount
        line = " ".join(_KEY_LIKE.sub("[secret]", line).split())
        return line if len(line) <= 200 else line[:200] + "..."

    def failure(self, error: Exception, model: str) -> Exception:
        """What an error of the client means; the error itself if it is none of the server's.

        Returns:
            Transient: another try may succeed.
            Refused: the server finds fault with the request.
            RequestFailed: there will be no answer.
        """
        import openai

        if isinstance(error, openai.APIStatusError):
            message, code = error_message(error.response.content)
            status, wait = error.response.status_code, retry_after(error.response.headers)
            return self._meaning(status, message, code, model, wait)
        if isinstance(error, ServerError):
            status = int(error.code) if re.fullmatch("[45]\\d\\d", error.code) else 200
            return self._meaning(status, str(error), error.code, model)
        if isinstance(error, openai.APIConnectionError):
            chain: list[BaseException] = [error]
            while chain[-1].__cause__ is not None:
                chain.append(chain[-1].__cause__)
            said = self.clean(str(chain[-1])) or type(chain[-1]).__name__
            if any(type(one).__name__ in _NOT_CONNECTED for one in chain):
                return Transient(f"no connection to {self.shown} ({said})")
            return Transient(f"the connection dropped ({said})")
        if isinstance(error, UnicodeEncodeError):
            return RequestFailed("the prompt holds half a surrogate pair, which cannot be sent")
        return error

    def _meaning(
        self, status: int, message: str, code: str, model: str, wait: float | None = None
    ) -> Exception:
        """What it means that a server says this; with status 200, instead of an answer."""
        said = self.clean(message) or responses.get(status, "no reason given")
        if fatal := self._fatal_reason(status, message, said, code, model):
            return RequestFailed(fatal, fatal=True)
        busy = status == 429 or _BUSY.search(said) is not None
        if status in (400, 422) or (
            (status == 200 or status >= 500) and not busy and _NO_WAITING.search(said)
        ):
            return Refused(f"{status}: {said}")
        if status == 200:
            return Transient(f"the answer is no chat completion ({said})", explained=not busy)
        if status == 429:
            return Transient("the server is busy (429)", wait)
        if status in _TRANSIENT or status >= 500:
            explained = not busy and (bool(message) or status in (500, 501))
            return Transient(f"{status}: {said}", wait, explained=explained)
        return RequestFailed(f"{status}: {said}")

    def _fatal_reason(self, status: int, message: str, said: str, code: str, model: str) -> str:
        """What to tell the user if every other call will fail for the same reason; else nothing."""
        says = f"; it says: {said}" if message else ""
        no_model = f"{self.shown} has no model {model!r} ({status}): name one that it serves{says}"
        if status == 402 or code == "insufficient_quota":
            return f"the account has no credit left ({status}): top it up, then run again{says}"
        if code == "model_not_found" or (
            status in (200, 400, 401, 403, 404, 422, 500) and _NO_SUCH_MODEL.search(said)
        ):
            return no_model
        if status == 401 or code == "invalid_api_key":
            key = f"{self.shown} refuses the key ({status})"
            return f"{key}: set {self._variable} to a valid one{says}"
        if status == 403 and not _ONE_IMAGE.search(said):
            return f"403: {said}; check what the key in {self._variable} is allowed to do"
        no_path = _NO_SUCH_PATH.match(said) or (status == 404 and not message)
        if status == 405 or (status in (200, 404) and no_path):
            return (
                f"there is no such service at {self.shown} ({status}): check the endpoint, which "
                f"ends in /v1 as a rule{says}"
            )
        return no_model if status == 404 and _SPEAKS_OF_MODEL.search(said) else ""


def _is_loopback(url: str) -> bool:
    """Whether it is this machine, which no proxy of the environment can reach.

    >>> [_is_loopback(f"http://{host}:8000/v1") for host in ("127.0.0.1", "[::1]", "10.0.0.1")]
    [True, True, False]
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def retry_after(headers: "Mapping[str, str]") -> float | None:
    """Seconds that the server asks to wait; None where it does not say, or nothing sensible.

    >>> retry_after({"retry-after": "1.5"}), retry_after({"retry-after-ms": "250"})
    (1.5, 0.25)
    >>> retry_after({"retry-after": "-3"}), retry_after({"retry-after": "soon"})
    (None, None)
    """
    text = headers.get("retry-after", "")
    for value, unit in ((headers.get("retry-after-ms", ""), 1000), (text, 1)):
        try:
            seconds = float(value) / unit
        except ValueError:
            continue
        return seconds if 0 < seconds < math.inf else None
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if seconds > 0 else None
