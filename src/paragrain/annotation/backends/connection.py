"""A connection to a model server: address, key, and what its answers and failures mean."""

import base64
import json
import math
import os
import re
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from paragrain.annotation.calls import Reply, RequestFailed
from paragrain.annotation.settings import is_address, without_secrets
from paragrain.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2
    from openai import AsyncOpenAI

_NO_KEY = "none-needed"  # the client insists on one, local servers ask for none
_KEEP_ALIVE = 4.0  # below the 5 s after which many servers hang up, else they do so under a request
_PASSING = {408, 409, 425, 429}  # and 5xx
_KEY_LIKE = re.compile(r"\bsk-[\w*.-]+|\S*\*{3,}\S*")  # servers show parts of a key, and stars
_NO_SUCH_PATH = re.compile(r"\W*((404 )?(page |file )?not found|invalid url|cannot post)", re.I)


class Passing(Exception):
    """A request failed in a way that may pass; `wait` is what the server asks for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


class Refused(Exception):
    """The server finds fault with the request: with an option of it, or with the image."""


_NO_SUCH_MODEL = {
    404: re.compile(r"\bmodel\b", re.IGNORECASE),
    400: re.compile(r"\bmodel\b.{0,100}\b(?:not found|does not exist)|pinned to", re.IGNORECASE),
}
_NOT_CONNECTED = {"ConnectError", "ClientConnectorError", "ClientConnectorDNSError"}


class Connection:
    """The client of one server, and what its failures mean.

    Attributes:
        client: without retries and time-outs of its own.
        shown: the endpoint without what is secret.
    """

    def __init__(self, endpoint: str | None, in_flight: int, variable: str):
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
        self.shown = "the hosted service"
        if endpoint:
            options["base_url"], self.shown, auth = self._address(endpoint)
        default = openai.DEFAULT_CONNECTION_LIMITS
        limits = type(default)(
            max_connections=in_flight,
            max_keepalive_connections=in_flight,
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

    def _address(self, endpoint: str) -> tuple[str, str, tuple[str, str] | None]:
        """The URL to use, the URL to show, and user and password.

        The client's library logs URLs, so user and password are taken out of them.
        """
        if not is_address(endpoint):
            raise UsageError(
                "the endpoint is no address of a server: it looks like http://localhost:8000/v1"
            )
        parts = urlsplit(endpoint.strip())
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        raw = parts.username or "", parts.password or "", parts.query
        self._secrets |= {*raw, user, password, basic} - {""}
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
        return (
            plain.geturl(),
            without_secrets(endpoint.strip()),
            (user, password) if user or password else None,
        )

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
            Passing: another try may succeed.
            Refused: the server finds fault with the request.
            RequestFailed: there will be no answer.
        """
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._status_failure(error.response, model)
        if isinstance(error, openai.APIConnectionError):
            chain: list[BaseException] = [error]
            while chain[-1].__cause__ is not None:
                chain.append(chain[-1].__cause__)
            said = self.clean(str(chain[-1])) or type(chain[-1]).__name__
            if any(type(one).__name__ in _NOT_CONNECTED for one in chain):
                return Passing(f"no connection to {self.shown} ({said})")
            return Passing(f"the connection dropped ({said})")
        if isinstance(error, UnicodeEncodeError):
            return RequestFailed("the prompt holds half a surrogate pair, which cannot be sent")
        if isinstance(error, ValueError | RecursionError):  # of the JSON reader
            return Passing("the answer is no JSON")
        return error

    def _status_failure(self, response: "httpx2.Response", model: str) -> Exception:
        status = response.status_code
        message, code = error_message(response.content)
        said = self.clean(message) or _phrase(status)
        everywhere = None
        if status == 401 or code == "invalid_api_key":
            everywhere = (
                f"{self.shown} refuses the key ({status}): set {self._variable} to a valid one"
            )
        elif status == 403:
            everywhere = f"403: {said}; check what the key in {self._variable} is allowed to do"
        elif status == 402 or code == "insufficient_quota":
            everywhere = f"the account has no credit left ({status}): top it up, then run again"
        elif status == 405 or (status == 404 and (not message or _NO_SUCH_PATH.match(said))):
            everywhere = (
                f"there is no such service at {self.shown} ({status}): check the endpoint, which "
                "ends in /v1 as a rule"
            )
        elif code == "model_not_found" or (
            status in (400, 404) and _NO_SUCH_MODEL[status].search(said)
        ):
            everywhere = f"{self.shown} has no model {model!r} ({status}): name one that it serves"
        if everywhere:
            return RequestFailed(everywhere, everywhere=True)
        if status in (400, 422):
            return Refused(f"{status}: {said}")
        if status in _PASSING or status >= 500:
            reason = "the server is busy (429)" if status == 429 else f"{status}: {said}"
            return Passing(reason, retry_after(response.headers))
        return RequestFailed(f"{status}: {said}")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


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


def error_message(answer: Any) -> tuple[str, str]:
    """The message and the code of an error, as various servers lay them out.

    >>> error_message(b'{"error": {"message": "too long", "code": "context_length"}}')
    ('too long', 'context_length')
    >>> error_message(b'{"detail": [{"msg": "field required"}]}')
    ('field required', '')
    >>> error_message(b"<html><title>Bad gateway</title></html>")
    ('', '')
    """
    if isinstance(answer, bytes | str):
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
            return "" if text.lstrip().startswith("<") else text.strip(), ""
    code = ""
    for _ in range(4):
        if isinstance(answer, dict):
            code = str(answer.get("code") or answer.get("type") or code)
            keys = [key for key in ("error", "message", "detail", "msg") if answer.get(key)]
            answer = answer[keys[0]] if keys else ""
        elif isinstance(answer, list):
            answer = answer[0] if answer else ""
    return (answer.strip(), code) if isinstance(answer, str) else ("", code)


def read_reply(answer: Any) -> Reply:
    """A chat completion as a `Reply`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: it is none.
    """
    if isinstance(answer, str):  # declared as text
        answer = json.loads(answer)
    choices = answer["choices"]
    if not choices:
        return Reply(None, "no choices")
    message, finish = choices[0]["message"], choices[0].get("finish_reason")
    usage = answer.get("usage") or {}
    refusal = message.get("refusal")
    return Reply(
        text=_text(message.get("content")),
        finish=finish if isinstance(finish, str) else None,
        refusal=_text(refusal) if isinstance(refusal, str) else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _text(content: Any) -> str | None:
    """The content of a message: text, None, or a list of parts, of which the texts are joined.

    Halves of surrogate pairs, which no file can hold, become U+FFFD.
    """
    if content is None:
        return None
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError("no text")
    return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
