"""The stub server itself: HTTP/1.1 with keep-alive, scripted faults, and counts."""

import asyncio
import json
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from stub_answers import Asked, Checker, Refused, completion, streamed

FAULTS = {
    "status": "an HTTP status, with `headers` and `body` (JSON, or text) if given",
    "stall": "so many seconds of silence before the right answer",
    "drip": "the body byte by byte, so many seconds apart",
    "half_body": "half of the announced body, then the connection drops",
    "close": "the connection drops before an answer",
    "not_json": "a JSON answer that is cut in the middle, yet declared whole",
    "html": "a proxy's page, with status 200",
    "null_content": "content null, the answer in reasoning_content",
    "no_choices": "an empty list of choices",
    "finish_length": "cut in mid-word, finish reason length",
    "refusal_text": "declines in the text",
    "refusal_field": "declines in the field for it",
    "reasoning": "the right answer after <think> tags",
    "parts": "the right answer as a list of text parts",
    "text": "exactly this text",
    "no_usage": "the right answer without token counts",
    "finish": "cut in mid-word, with this finish reason",
    "ending": "the right answer, with this finish reason (null too)",
    "choice_error": "cut in mid-word, finish reason stop, and an error object in the choice",
    "thinks": "null content, reasoning and finish reason length, unless there is room for so many",
    "streams": "the right answer as server-sent events: `sse`, `crlf`, `done` behind JSON, `torn`",
    "refuse_option": "400 (or `status`) if this option is there; `named` false: without saying",
}


@dataclass
class Plan:
    """What will be sent, and how."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    how: str = "whole"
    delay: float = 0.0
    pause: float = 0.0


class Server:
    """What the server has been told to do, and what it has counted."""

    def __init__(self) -> None:
        self.check = Checker()
        self.query = ""
        self.script({})

    def script(self, orders: dict[str, Any]) -> None:
        """Take a new script and forget the counts."""
        orders = {"latency": 0.0, "key": None, "models": None, "rules": [], **orders}
        if len(orders) > 4:
            raise Refused(400, f"a script has no {list(orders)[4]!r}")
        for rule in orders["rules"]:
            if foreign := set(rule.get("match", {})) - {"kind", "image_sha", "contains", "first"}:
                raise Refused(400, f"a rule cannot match by {min(foreign)!r}")
            if next(iter(rule.get("do", {})), None) not in FAULTS:
                raise Refused(400, f"no such fault: {rule.get('do')}")
        self.orders, self.acted = orders, [0] * len(orders["rules"])
        self.counts: dict[str, int] = {"requests": 0, "finished": 0, "dropped": 0}
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.bodies: set[int] = set()
        self.log: deque[dict[str, Any]] = deque(maxlen=10_000)
        self.in_flight = self.most = 0
        self.busy = self.began = 0.0
        self.last = 0.0

    def step(self, change: int) -> None:
        """Count a request that begins or ends."""
        now = time.monotonic()
        self.began = self.began or now
        self.busy += self.in_flight * (now - (self.last or now))
        self.last = now
        self.in_flight = max(0, self.in_flight + change)  # a script resets it under way
        self.most = max(self.most, self.in_flight)

    def counters(self) -> dict[str, Any]:
        """See `Stub.counters`."""
        return {
            **self.counts,
            "in_flight": self.in_flight,
            "most_in_flight": self.most,
            "distinct": len(self.bodies),
            "by_kind": dict(self.kinds),
            "by_status": dict(self.statuses),
            "busy_seconds": self.busy,
            "seconds": self.last - self.began,
            "query": self.query,
        }

    def chat(self, headers: dict[str, str], body: bytes) -> Plan:
        """Decide on an answer."""
        self.counts["requests"] += 1
        self.bodies.add(hash(body))
        entry: dict[str, Any] = {"at": time.time()}
        self.log.append(entry)
        try:
            key = self.orders["key"]
            token = headers.get("authorization", "").removeprefix("Bearer ")
            if key is not None and token != key:
                message = f"Incorrect API key provided: {token}."
                raise Refused(401, message, code="invalid_api_key")
            asked = self.check(body)
            names = {k: v for k, v in asked.options.items() if k != "messages"}
            entry |= {"kind": asked.kind, "image_sha": asked.image, "prompt": asked.prompt}
            entry["options"] = names
            self.kinds[asked.kind] += 1
            models = self.orders["models"]
            if models is not None and names["model"] not in models:
                message = f"The model `{names['model']}` does not exist."
                raise Refused(404, message, "model", "model_not_found")
            plan = self.plan(asked)
        except Refused as error:
            plan = Plan(error.status, error.body())
        entry["status"] = plan.status
        self.statuses[str(plan.status)] += 1
        return plan

    def plan(self, asked: Asked) -> Plan:
        """Answer by the first rule that fits, else rightly."""
        latency = self.orders["latency"]
        for n, rule in enumerate(self.orders["rules"]):
            if not self.fits(rule.get("match", {}), asked, self.acted[n]):
                continue
            fault, value = next(iter(rule["do"].items()))
            if fault == "refuse_option":
                if value not in asked.options:
                    continue
                self.acted[n] += 1
                raise self.refusal(value, **{**rule["do"], "refuse_option": 0})
            self.acted[n] += 1
            return self.fault(asked, rule["do"], fault, value, latency)
        return Plan(200, completion(asked, "", None), delay=latency)

    @staticmethod
    def fits(match: dict[str, Any], asked: Asked, acted: int) -> bool:
        return (
            match.get("kind", asked.kind) == asked.kind
            and asked.image.startswith(match.get("image_sha", ""))
            and match.get("contains", "") in asked.prompt
            and acted < match.get("first", sys.maxsize)
        )

    @staticmethod
    def refusal(option: str, status: int = 400, named: bool = True, **_: Any) -> Refused:
        if not named:
            return Refused(status, "Bad request.")
        hint = " Use 'max_completion_tokens' instead." * (option == "max_tokens")
        message = f"Unsupported parameter: '{option}' is not supported with this model.{hint}"
        return Refused(status, message, option, "unsupported_parameter")

    @staticmethod
    def fault(asked: Asked, do: dict[str, Any], fault: str, value: Any, latency: float) -> Plan:
        if fault == "status":
            body = do.get("body", {"error": {"message": f"status {value}", "code": None}})
            headers = {name.lower(): str(text) for name, text in do.get("headers", {}).items()}
            if isinstance(body, str):
                return Plan(value, body.encode(), {"content-type": "text/plain", **headers})
            return Plan(value, json.dumps(body).encode(), headers)
        if fault == "html":
            page = b"<!doctype html><html><title>Bad gateway</title></html>"
            return Plan(200, page, {"content-type": "text/html"})
        answer = completion(asked, fault, value)
        if fault == "streams":
            kind = {"content-type": "application/json" if value == "done" else "text/event-stream"}
            return Plan(200, streamed(answer, value), kind)
        if fault == "not_json":
            answer = answer[: len(answer) // 2]
        how = fault if fault in ("drip", "half_body", "close") else "whole"
        pause = value if fault == "drip" else 0.0
        return Plan(200, answer, {}, how, value if fault == "stall" else latency, pause)


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it are answered one after another."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = bytearray()
        self.head: tuple[str, str, dict[str, str], int] | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self.task:
            self.task.cancel()
            self.server.counts["dropped"] += 1
            self.server.step(-1)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while self.task is None:
            if self.head is None and not self.read_head():
                return
            assert self.head
            method, path, headers, at = self.head
            end = at + int(headers.get("content-length", 0))
            if len(self.buffer) < end:
                return
            body, self.head = bytes(memoryview(self.buffer)[at:end]), None
            del self.buffer[:end]
            self.handle(method, path, headers, body)

    def read_head(self) -> bool:
        at = self.buffer.find(b"\r\n\r\n")
        if at < 0:
            return False
        first, *lines = self.buffer[:at].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines)
        self.head = method, path, {name.lower(): text.strip() for name, text in pairs}, at + 4
        return True

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        server = self.server
        path, _, query = path.partition("?")
        if method == "POST" and path in ("/v1/chat/completions", "/gw/chat/completions"):
            server.query = query
            server.step(1)
            plan = server.chat(headers, body)
            if plan.how == "whole" and not plan.delay:
                self.send(plan)
                self.finish()
            else:
                self.task = asyncio.get_running_loop().create_task(self.deliver(plan))
            return
        try:
            answer: Any
            if (method, path) == ("POST", "/script"):
                server.script(json.loads(body))
                answer = {}
            elif method == "GET" and path == "/v1/models":
                names = server.orders["models"] or ["stub"]
                models = [{"id": name, "object": "model", "owned_by": "stub"} for name in names]
                answer = {"object": "list", "data": models}
            elif method == "GET" and path in ("/counters", "/log"):
                answer = server.counters() if path == "/counters" else list(server.log)
            else:
                raise Refused(404, f"Invalid URL ({method} {path})")
        except Refused as error:
            self.send(Plan(error.status, error.body()))
        else:
            self.send(Plan(200, json.dumps(answer).encode()))

    def send(self, plan: Plan, part: bytes | None = None) -> None:
        """The head, and the body or only its first part."""
        headers = {"content-type": "application/json", **plan.headers}
        lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        head = f"HTTP/1.1 {plan.status} Told\r\n{lines}content-length: {len(plan.body)}\r\n\r\n"
        self.transport.write(head.encode("latin-1") + (plan.body if part is None else part))

    async def deliver(self, plan: Plan) -> None:
        await asyncio.sleep(plan.delay)
        if plan.how == "close":
            self.transport.abort()
        elif plan.how == "half_body":
            self.send(plan, plan.body[: len(plan.body) // 2])
            self.transport.close()
        elif plan.how == "drip":
            self.send(plan, b"")
            for n in range(len(plan.body)):
                self.transport.write(plan.body[n : n + 1])
                await asyncio.sleep(plan.pause)
        else:
            self.send(plan)
        self.task = None
        self.finish()
        self.data_received(b"")

    def finish(self) -> None:
        self.server.counts["finished"] += 1
        self.server.step(-1)


async def serve() -> None:
    server = Server()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server), "127.0.0.1", 0, backlog=1024
    )
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()
