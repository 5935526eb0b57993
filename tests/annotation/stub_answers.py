"""What the stub server says: requests checked strictly, and answers derived from them."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

SORRY = "I'm sorry, but I can't help with that."
MAGIC = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n", "gif": b"GIF8", "webp": b"RIFF"}
OPTIONS = {
    "model": str, "messages": list, "max_tokens": int, "max_completion_tokens": int,
    "temperature": (int, float), "top_p": (int, float), "seed": int, "stream": bool,
    "response_format": dict, "n": int,
}  # fmt: skip
RANGES = {
    "max_tokens": (1, 1 << 20), "max_completion_tokens": (1, 1 << 20), "temperature": (0, 2),
    "top_p": (1e-9, 1), "seed": (-(1 << 63), (1 << 63) - 1), "n": (1, 1),
}  # fmt: skip
KINDS = {
    "How faithful": "judge",
    "captions that are wrong": "negatives",
    "captions for this image": "captions",
    "one paragraph": "paragraph",
}
TRUE_THINGS = "dog cat horse bicycle boat table kettle tree bench lamp train bird kite child clock "
TRUE_THINGS += "ladder basket fountain tractor violin"
WRONG_THINGS = "elephant canoe piano tiger helicopter snowman pizza cactus robot violet mirror "
WRONG_THINGS += "penguin lantern windmill drum anchor camel tent compass throne"
COLOURS = "red blue green white black pink purple grey yellow brown".split()
PLACES = ["by the water", "in the sun", "near a wall", "on the grass", "under a bridge"]
ACTIONS = ["stands", "rests", "is seen", "waits", "can be seen"]
SCORES = [0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 10]


class Refused(Exception):
    """A request that is answered in OpenAI's error layout."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str = ""):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code or None

    def body(self) -> bytes:
        kind = "invalid_request_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


@dataclass
class Asked:
    """A chat request that has been checked."""

    options: dict[str, Any]
    prompt: str
    image: str
    kind: str


def number(*parts: object) -> int:
    text = "\x1f".join(map(str, parts)).encode(errors="replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")


def sentence(things: list[str], key: int, n: int) -> str:
    pick = number(key, n)
    colour, place = COLOURS[pick % 10], PLACES[pick // 10 % 5]
    return f"A {colour} {things[(key + n) % 20]} {ACTIONS[pick // 50 % 5]} {place}."


def list_items(asked: Asked, count: int) -> list[str]:
    """Texts that differ from each other and from those that the prompt names."""
    key = number(asked.image, asked.prompt, asked.options.get("seed"))
    things = (WRONG_THINGS if asked.kind == "negatives" else TRUE_THINGS).split()
    candidates = (sentence(things, key, n) for n in range(1000))
    fresh = [text for text in dict.fromkeys(candidates) if text not in asked.prompt]
    return fresh[:count]


def right_answer(asked: Asked) -> str:
    """The answer that a faultless model would give, in the form that is asked for."""
    key = number(asked.image, asked.prompt, asked.options.get("seed"))
    shape = asked.options.get("response_format", {}).get("json_schema", {}).get("schema")
    if asked.kind in ("captions", "negatives"):
        counts = re.findall(r"from 1 to (\d+)|a list of (\d+) strings", asked.prompt)
        items = list_items(asked, int("".join(counts[-1])) if counts else 5)
        if shape:
            return json.dumps({next(iter(shape["properties"])): items})
        return "\n".join(f"{n}. {text}" for n, text in enumerate(items, 1))
    if asked.kind == "judge":
        score = SCORES[number(asked.image, asked.prompt) % len(SCORES)]
        return json.dumps({"score": score}) if shape else str(score)
    if asked.kind == "paragraph":
        return " ".join(sentence(TRUE_THINGS.split(), key, n) for n in range(4))
    return f"Answer {key}."


def completion(asked: Asked, fault: str, value: Any) -> bytes:
    """A chat completion, with the faults that lie in its content."""
    text = value if fault == "text" else right_answer(asked)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    finish = "stop"
    if fault == "null_content":
        message |= {"content": None, "reasoning_content": text}
    elif fault == "finish_length":
        # The last word loses a letter, whatever the text ends in.
        message["content"], finish = text[: len(text) * 2 // 3].rstrip(" .\n")[:-1], "length"
    elif fault in ("finish", "choice_error"):
        message["content"] = text[: len(text) * 2 // 3].rstrip(" .\n")[:-1]
        finish = value if fault == "finish" else "stop"
    elif fault == "ending":
        finish = value
    elif fault == "thinks":
        room = asked.options.get("max_tokens", 0)
        if room < value:
            message |= {"content": None, "reasoning_content": "Let me look. " * 9}
            finish = "length"
    elif fault == "refusal_text":
        message["content"] = value if isinstance(value, str) else SORRY
    elif fault == "refusal_field":
        message |= {"content": None, "refusal": value if isinstance(value, str) else SORRY}
    elif fault == "reasoning":
        message["content"] = f"<think>\nThere are 3 things here:\n1. one\n</think>\n\n{text}"
    elif fault == "parts":
        half = len(text) // 2
        parts = ({"type": "text", "text": part} for part in (text[:half], text[half:]))
        message["content"] = list(parts)
    read, written = 256 + len(asked.prompt) // 4, len(text) // 4 + 1
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{number(text):x}",
        "object": "chat.completion",
        "created": 1,
        "model": asked.options["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written
        },
    }  # fmt: skip
    if fault == "choice_error":
        answer["choices"][0]["error"] = {"code": 502, "message": "provider went away"}
    if fault == "no_choices":
        answer["choices"] = []
    if fault == "no_usage":
        del answer["usage"]
    return json.dumps(answer).encode()


def streamed(completion: bytes, how: str) -> bytes:
    """A completion as a server streams it that was not asked to."""
    if how == "done":
        return completion + b"\n\ndata: [DONE]\n\n"
    answer = json.loads(completion)
    text = answer["choices"][0]["message"]["content"]
    pieces: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
    pieces += [{"delta": {"content": text[at : at + 7]}} for at in range(0, len(text), 7)]
    pieces += [{"delta": {}, "finish_reason": "stop"}]
    if how == "torn":
        pieces = pieces[: len(pieces) // 2]
    lines = [": waiting\n\n"]
    for piece in pieces:
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, **piece}]}
        lines += [f"event: message\ndata: {json.dumps(chunk)}\n\n", ": keep-alive\n\n"]
    if how != "torn":
        lines += [f"data: {json.dumps({'choices': [], 'usage': answer['usage']})}\n\n"]
        lines += ["data: [DONE]\n\n"]
    body = "".join(lines)
    return (body.replace("\n", "\r\n") if how == "crlf" else body).encode()


class Checker:
    """Checks requests as strictly as a real server; remembers the images it has seen."""

    def __init__(self) -> None:
        self._images: dict[str, str] = {}

    def __call__(self, body: bytes) -> Asked:
        try:
            request = json.loads(body)
        except ValueError:
            raise Refused(400, "We could not parse the JSON body of your request.") from None
        if not isinstance(request, dict):
            raise Refused(400, "The body of your request is no JSON object.")
        for name, value in request.items():
            kind = OPTIONS.get(name)
            if kind is None:
                raise Refused(400, f"Unrecognized request argument supplied: {name}", name)
            low, high = RANGES.get(name, (0, 0))
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise Refused(400, f"Invalid type for '{name}'.", name, "invalid_type")
            if name in RANGES and not low <= value <= high:
                raise Refused(400, f"Invalid '{name}': {value} is out of range.", name)
        if not request.get("model"):
            raise Refused(400, "you must provide a model parameter", "model")
        if "max_tokens" in request and "max_completion_tokens" in request:
            raise Refused(400, "Set only one of max_tokens and max_completion_tokens.")
        if request.get("stream"):
            raise Refused(400, "this server does not stream", "stream")
        self._check_format(request.get("response_format"))
        prompt, image = self._content(request.get("messages"))
        kind = next((kind for words, kind in KINDS.items() if words in prompt), "other")
        return Asked(request, prompt, image, kind)

    def _check_format(self, wanted: dict[str, Any] | None) -> None:
        if wanted is None:
            return
        shape = wanted.get("json_schema")
        sound = (
            wanted.get("type") == "json_schema"
            and isinstance(shape, dict)
            and re.fullmatch(r"[\w-]{1,64}", str(shape.get("name", "")))
            and isinstance(shape.get("schema"), dict)
            and shape["schema"].get("properties")
        )
        if not sound:
            raise Refused(400, "Invalid 'response_format'.", "response_format")

    def _content(self, messages: Any) -> tuple[str, str]:
        if not messages:
            raise Refused(400, "Missing required parameter: 'messages'.", "messages")
        prompt, image = "", ""
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in ("user", "system"):
                raise Refused(400, "Invalid value in 'messages': no role.", "messages")
            content = message.get("content")
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            for part in content if isinstance(content, list) else [None]:
                match part:
                    case {"type": "text", "text": str(text)}:
                        prompt += text
                    case {"type": "image_url", "image_url": {"url": str(url)}}:
                        image = self._image(url)
                    case _:
                        raise Refused(400, "Invalid part in 'messages'.", "messages")
        if not prompt:
            raise Refused(400, "Invalid 'messages': there is no text.", "messages")
        return prompt, image

    def _image(self, url: str) -> str:
        if known := self._images.get(url):
            return known
        head, _, data = url.partition(",")
        declared = re.fullmatch(r"data:image/(jpeg|png|gif|webp);base64", head)
        if not declared:
            raise Refused(400, "Invalid image URL: no data URI of an image.", "messages")
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise Refused(400, "Invalid image: the base64 is damaged.", "messages") from None
        if not content.startswith(MAGIC[declared[1]]):
            raise Refused(400, f"Invalid image: its bytes are no {declared[1]}.", "messages")
        if len(self._images) >= 256:
            self._images.clear()
        self._images[url] = sha = hashlib.sha256(content).hexdigest()
        return sha
