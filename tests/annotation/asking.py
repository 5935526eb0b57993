"""Ways to ask the stub server, for the tests of the backend for servers."""

import asyncio
import io
from dataclasses import replace
from typing import Any

from PIL import Image

from paragrain.annotation.backends.server import ServerBackend
from paragrain.annotation.calls import Call, RequestFailed
from paragrain.annotation.pictures import Picture
from paragrain.annotation.prompts import PromptSet, schema
from paragrain.annotation.settings import BackendSettings
from paragrain.collection import Record

KEY = "my-own-key-0123456789"


def picture(colour: str = "red") -> Picture:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(buffer, "JPEG")
    return Picture(buffer.getvalue(), 32, 32)


def call(kind: str = "captions", **fields: Any) -> Call:
    prompts = PromptSet()
    if kind == "judge":
        prompt, as_json = prompts.judging("A dog rests.")
    else:
        prompt, as_json = prompts.generation(kind, "a dog", 0 if kind == "paragraph" else 5)
    shape = None if kind == "paragraph" else schema(kind, 5)
    count = 5 if kind in ("captions", "negatives") else 0
    made = Call(kind, Record("7"), prompt, as_json, shape, count, temperature=0.7, top_p=0.9)  # type: ignore[arg-type]
    return replace(made, **{"seed": 11, **fields})


PARAGRAPH = call("paragraph")


def settings(endpoint: str | None, **options: Any) -> BackendSettings:
    return BackendSettings(
        **{"model": "m", "endpoint": endpoint, "retry_timeout": 5.0, "timeout": 5.0, **options}
    )


def ask(stub: Any, *calls: Call, url: str = "", **options: Any) -> tuple[list[Any], list[str]]:
    """Ask one after the other; the replies or failures, and the backend's notes."""

    async def run() -> tuple[list[Any], list[str]]:
        backend = ServerBackend(settings(url or stub.url, **options))
        outcomes: list[Any] = []
        for one in calls or (PARAGRAPH,):
            try:
                outcomes.append(await backend.ask(one, picture()))
            except RequestFailed as failure:
                outcomes.append(failure)
        await backend.close()
        return outcomes, backend.notes

    return asyncio.run(run())


def ask_one(stub: Any, *calls: Call, **options: Any) -> Any:
    return ask(stub, *calls, **options)[0][0]


def failure(stub: Any, *calls: Call, **options: Any) -> RequestFailed:
    outcome = ask_one(stub, *calls, **options)
    assert isinstance(outcome, RequestFailed), outcome
    assert "\n" not in str(outcome)
    return outcome
