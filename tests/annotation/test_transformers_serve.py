"""A real server of OpenAI's protocol: `transformers serve` with a tiny LLaVA that writes noise."""

import asyncio
import io
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paragrain.annotation import AnnotationSettings
from paragrain.annotation.backends.server import ServerBackend, only_model
from paragrain.annotation.calls import KINDS, Call, Reply, RequestFailed
from paragrain.annotation.pictures import Picture
from paragrain.annotation.prompts import PromptSet, schema
from paragrain.annotation.settings import BackendSettings
from paragrain.collection import Collection, Record

from .photos import run
from .tiny_vlms import make_tiny_llava

START = 180.0
"""Seconds that a busy machine may take; a free one needs about seven, most of them for imports."""


@dataclass
class Served:
    """Where the server is, and what it calls its model: the folder, as it was named to it."""

    endpoint: str
    model: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = make_tiny_llava(tmp_path_factory.mktemp("served") / "tiny-llava")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder.with_name("log.txt")
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    options = f"--host 127.0.0.1 --port {port} --device cpu --dtype float32".split()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, log)
        yield Served(f"http://127.0.0.1:{port}/v1", str(folder))
        assert process.poll() is None, f"the server died:\n{log.read_text()[-4000:]}"
    finally:
        process.kill()
        process.wait()


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"`transformers serve` did not start:\n{log.read_text()[-4000:]}")


def picture(seed: int = 0) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return Picture(data.getvalue(), 60, 40)


def call(kind: Any, **others: Any) -> Call:
    """A call as the loop makes it, with a small token limit."""
    prompts = PromptSet()
    options: dict[str, Any] = {"max_tokens": 8, "schema": schema(kind, 5)}
    if kind == "judge":
        options |= {"candidate": "A red circle.", "prompt": prompts.judging("A red circle.")[0]}
    else:
        options |= {"temperature": 0.7, "top_p": 0.9}
        options["count"] = 0 if kind == "paragraph" else 5
        asked = prompts.generation(kind, "a red circle", options["count"])
        options |= dict(zip(("prompt", "json_prompt"), asked, strict=True))
    return Call(kind, Record("1"), **{**options, **others})


def answers(served: Served, calls: list[Call], **others: Any) -> tuple[list[Any], list[str]]:
    """Ask all at once, four at a time; replies and errors in order, and the backend's notes."""
    settings = BackendSettings(
        **{"model": served.model, "endpoint": served.endpoint, "max_concurrency": 4, **others}
    )

    async def run() -> tuple[list[Any], list[str]]:
        backend = ServerBackend(settings)
        gate = asyncio.Semaphore(backend.max_concurrency)

        async def ask(one: Call) -> Reply:
            async with gate:
                return await backend.ask(one, picture())

        try:
            replies = await asyncio.gather(*map(ask, calls), return_exceptions=True)
        finally:
            await backend.close()
        return replies, backend.notes

    return asyncio.run(run())


def test_model_is_found_by_name(served: Served) -> None:
    assert asyncio.run(only_model(served.endpoint, "OPENAI_API_KEY")) == served.model


@pytest.mark.parametrize("structured", ["auto", "off"])
def test_every_kind_of_call_ends_in_a_reply(served: Served, structured: str) -> None:
    calls = [call(kind, seed=seed) for kind in KINDS for seed in (1, 2)]
    replies, notes = answers(served, calls, structured=structured)
    assert all(isinstance(reply, Reply) for reply in replies), replies
    assert {reply.finish for reply in replies} <= {"length", "stop"}
    assert {reply.completion_tokens for reply in replies if reply.finish == "length"} == {8}
    assert all(reply.prompt_tokens > 200 for reply in replies)  # a byte a token
    assert notes == []  # it takes all options, the schema too, to which it pays no attention


def test_seed_and_temperature_act(served: Served) -> None:
    seeds = (1, 2, 3, 1)
    drawn = [call("paragraph", temperature=1.0, top_p=1.0, seed=seed) for seed in seeds]
    first, *others, again = (answers(served, [one])[0][0].text for one in drawn)
    assert again == first
    assert len({first, *others}) > 1
    greedy = [call("judge", seed=seed) for seed in (1, 2)]
    replies, _ = answers(served, greedy)
    assert replies[0] == replies[1]


def test_a_model_of_another_name_is_a_failure_at_once(served: Served) -> None:
    (failed,), _ = answers(Served(served.endpoint, "other"), [call("judge")])
    assert isinstance(failed, RequestFailed)
    assert "other" in str(failed)


def test_a_whole_run_ends_in_typed_failures_and_none_crashes(served: Served, photos: Path) -> None:
    model = BackendSettings(model=served.model, endpoint=served.endpoint, max_concurrency=4)
    limits = {f"{kind}_tokens": 8 for kind in ("captions", "negatives", "paragraph", "judge")}
    settings = AnnotationSettings(generator=model, judge=model, max_retries=1, **limits)
    report = run(photos, settings, limit=3)
    assert (report.images, report.complete, len(report.failed)) == (3, 0, 3)
    kinds = ("captions: ", "negatives: ", "paragraph: ")
    for _, reason in report.failed:
        assert all(kind in reason for kind in kinds)
        assert "request" not in reason  # the server answered; what it wrote is noise
    assert report.calls == 3 * 3 * 2
    assert not any(record.generated for record in Collection.open(photos).records())
    again = run(photos, settings, limit=3)  # what was cut is asked for again, and nothing else
    assert 0 < again.calls <= report.calls
