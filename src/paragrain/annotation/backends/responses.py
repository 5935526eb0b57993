"""What a model server's answer says: a chat completion, whole or in a stream's pieces, or an error.

Servers vary: some stream though `stream` is false, some put `data: [DONE]` behind a whole answer,
some say with status 200 that something is wrong. All of that is read here, and only here.
"""

import json
from collections.abc import Iterator
from typing import Any

from paragrain.annotation.calls import Reply, ending


class ServerError(Exception):
    """An answer that says what went wrong instead of answering, whatever its status.

    Attributes:
        code: the error's own code, if it has one.
    """

    def __init__(self, message: str, code: str = ""):
        """Keep both."""
        super().__init__(message)
        self.code = code


class IncompleteStream(Exception):
    """A stream that ended before the reply did."""


def read_reply(body: bytes | str, max_tokens: int = 0) -> Reply:
    """A chat completion as a `Reply`, be it one JSON object or a stream of pieces.

    Args:
        body: the answer as it came.
        max_tokens: the limit that was asked for; where the server does not say why a reply of so
            many tokens ended, that was why.

    Raises:
        ServerError: it holds an error, beside its text too.
        IncompleteStream: it is a stream without an end.
        ValueError, KeyError, TypeError, AttributeError, RecursionError: it is no chat completion.

    >>> read_reply('{"choices": [{"message": {"content": "A dog."}, "finish_reason": "stop"}]}')
    Reply(text='A dog.', finish='stop', refusal=None, prompt_tokens=None, completion_tokens=None)
    >>> read_reply(': waiting\\n\\ndata: {"choices": [{"delta": {"content": "A dog."}}]}\\n\\n'
    ...     'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\\n\\ndata: [DONE]\\n').text
    'A dog.'
    """
    text = body.decode("utf-8-sig", "replace") if isinstance(body, bytes) else body
    answer = _answer(text)
    if isinstance(answer, dict) and answer.get("error"):
        raise ServerError(*error_message(answer))
    choices = answer["choices"]
    if not choices:
        return Reply(None, "no choices")
    first = choices[0]
    if first.get("error"):
        raise ServerError(*error_message(first))
    message = first["message"]
    usage = answer.get("usage") or {}
    refusal = message.get("refusal")
    content, finish = _text(message.get("content")), _finish(first)
    written = _count(usage.get("completion_tokens"))
    thought = message.get("reasoning_content") or message.get("reasoning")
    if finish is None and (0 < max_tokens <= (written or 0) or (thought and not content)):
        finish = "length"
    return Reply(
        text=content,
        finish=finish,
        refusal=_text(refusal) if isinstance(refusal, str) else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=written,
    )


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
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        try:
            answer = _answer(text)
        except (ValueError, TypeError, AttributeError, RecursionError, IncompleteStream):
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


def _answer(text: str) -> Any:
    """The one JSON value of an answer, or what the pieces of a stream add up to."""
    start = text.lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(start)
    except ValueError:
        if not start.startswith((":", "data:", "event:", "id:", "retry:")):
            raise
        return _put_together(list(_events(start)), "[DONE]" in start)
    rest = start[end:].strip()
    if not rest:
        return value
    more = _lines(rest) if rest.startswith("{") else _events(rest)
    return _put_together([value, *more], "[DONE]" in rest)


def _events(text: str) -> Iterator[Any]:
    """The JSON values of server-sent events; comments, names and `[DONE]` are passed over."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
            continue
        if line or not data:
            continue
        yield from _values(data)
        data = []


def _values(data: list[str]) -> Iterator[Any]:
    """The values of one event: lines of one value, or, where blank lines are missing, one each."""
    lines = [line for line in data if line.strip() not in ("", "[DONE]")]
    if not lines:
        return
    try:
        yield json.loads("\n".join(lines))
    except ValueError:
        yield from map(json.loads, lines)


def _lines(text: str) -> Iterator[Any]:
    """JSON values one a line."""
    for line in text.splitlines():
        if line.strip() and line.strip() not in ("data: [DONE]", "[DONE]"):
            yield json.loads(line)


def _put_together(pieces: list[Any], ended: bool) -> dict[str, Any]:
    """A stream's pieces as one chat completion.

    Args:
        pieces: JSON objects in order, each with what came next.
        ended: whether the stream says that it is over.

    Raises:
        IncompleteStream: it is not over, and no piece has a finish reason.
        ValueError: there is nothing in it.
    """
    message: dict[str, Any] = {}
    choice: dict[str, Any] = {"message": message}
    answer: dict[str, Any] = {"choices": [choice]}
    found = False
    for piece in pieces:
        if piece.get("error"):
            return {"error": piece["error"]}
        answer["usage"] = piece.get("usage") or answer.get("usage")
        for part in piece.get("choices") or []:
            if part.get("index") not in (0, None):
                continue
            found = True
            for name in ("finish_reason", "native_finish_reason", "finish_details", "error"):
                choice[name] = part.get(name) or choice.get(name)
            if part.get("message"):
                message.update(part["message"])  # the whole so far, not what came next
                continue
            for name, value in (part.get("delta") or {}).items():
                new = _text(value) if name in ("content", "refusal") else value
                if isinstance(new, str) and name != "role":
                    message[name] = (message.get(name) or "") + new
    if not found:
        raise ValueError("no choices in the stream")
    if not (ended or choice.get("finish_reason") or choice.get("error")):
        raise IncompleteStream("the stream broke off")
    return answer


def _finish(choice: dict[str, Any]) -> str | None:
    """Why a choice ended; what the model's own server says counts where it is the worse news."""
    reasons = [choice.get(n) for n in ("finish_reason", "native_finish_reason", "finish_details")]
    texts: list[str | None] = []
    for reason in reasons:
        if isinstance(reason, dict):
            reason = reason.get("type") or reason.get("reason")
        texts.append(None if reason in (None, "") else str(reason))
    finish, native, details = texts
    if finish is None:
        return native or details
    worse = ending(finish) == "whole" and ending(native) in ("truncated", "filtered")
    return native if worse else finish


def _text(content: Any) -> str | None:
    """The content of a message: text, None, or a list of parts, of which the texts are joined.

    Halves of surrogate pairs, which no file can hold, become U+FFFD.
    """
    if content is None:
        return None
    if isinstance(content, list):
        kinds = ("text", "output_text")
        content = "".join(part["text"] for part in content if part.get("type") in kinds)
    if not isinstance(content, str):
        raise TypeError("no text")
    return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
