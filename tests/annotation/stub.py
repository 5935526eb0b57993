"""A stand-in for a model server: the chat protocol, deterministic answers, faults on demand.

`python stub.py` prints its port as the first line and serves on loopback until it is killed; `Stub`
starts that and talks to it. What it does is told by POST /script, one JSON object:

    latency   seconds before a good answer
    key       the bearer token that is demanded; null for none
    models    the names that are served; null for any name
    rules     a list of {"match": {...}, "do": {...}}; the first that fits acts

A rule matches by any of kind ("captions", "negatives", "paragraph", "judge", "other"), image_sha
(SHA-256, or how it begins), contains (part of the prompt) and first (acts so many times only).
It does one of `FAULTS` in stub_server.py, with the arguments that are named there.
"""

import asyncio
import http.client
import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any


class Stub:
    """The server as a process of its own.

    Attributes:
        url: what `--endpoint` is given.
    """

    def start(self) -> "Stub":
        command = [sys.executable, str(Path(__file__)), "--until-orphaned"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self._port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self._port}/v1"
        return self

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def script(self, **orders: Any) -> None:
        """Tell it what to do from now on, and set its counts to zero; see the module."""
        self._ask("POST", "/script", orders)

    def rule(self, _match: dict[str, Any] | None = None, **do: Any) -> None:
        """A script of one rule: `stub.rule({"first": 3}, status=429)`."""
        self.script(rules=[{"match": _match or {}, "do": do}])

    def counters(self) -> dict[str, Any]:
        """What it has counted since the last script, chat requests only.

        requests (received whole), finished (answered), dropped (left by the client), in_flight,
        most_in_flight, distinct (bodies), by_kind, by_status, busy_seconds (the integral of
        requests in flight over time), seconds (from the first beginning to the last end).
        """
        return self._ask("GET", "/counters")

    def log(self) -> list[dict[str, Any]]:
        """Its requests in order: at, status and, if they were sound, kind, image_sha, prompt and
        options."""
        return self._ask("GET", "/log")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            value = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(value["error"]["message"])
        return value


async def main() -> None:
    from stub_server import serve

    serving = asyncio.create_task(serve())
    if "--until-orphaned" in sys.argv:
        # A test that is killed takes its end of the pipe with it.
        while not serving.done() and not select.select([sys.stdin], [], [], 0)[0]:
            await asyncio.wait([serving], timeout=0.5)
    else:
        await serving


if __name__ == "__main__":
    asyncio.run(main())
