"""An annotation killed at random moments ends as an undisturbed one, and pays for little twice."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from paragrain.collection import Collection, write_collection

from .photos import make_world, world_items

KILLS = 20
IN_FLIGHT = 6

ANNOTATE = """
import asyncio, json, os, signal, sys, time
from pathlib import Path
from paragrain.annotation import AnnotationSettings, BackendSettings, annotate
from paragrain.annotation.backends import make_backend, server
from paragrain.collection import Collection, write_collection

async def warm_up():  # late imports of the client, once for all children
    backend = make_backend(BackendSettings(model="none", endpoint="http://127.0.0.1:9/v1"))
    backend._connection
    await backend.close()

asyncio.run(warm_up())
for line in sys.stdin:
    folder, url, seconds = json.loads(line)
    child = os.fork()
    if not child:
        model = BackendSettings(model="stub", endpoint=url, max_concurrency=int(sys.argv[1]))
        settings = AnnotationSettings(generator=model, judge=model)
        annotate(Collection.open(folder), settings, progress=False)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Annotator:
    """A process that runs annotations, each in a child of its own that is killed when told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANNOTATE, str(IN_FLIGHT)], stdin=PIPE, stdout=PIPE, text=True
        )

    def run(self, folder: Path, stub: Any, seconds: float | None = None) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([str(folder), stub.url, seconds]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def annotator() -> Iterator[Annotator]:
    one = Annotator()
    yield one
    one.process.kill()
    one.process.communicate()


def test_twenty_kills_at_random_moments(tmp_path: Path, stub: Any, annotator: Annotator) -> None:
    folder = make_world(tmp_path, files=10, rows=4)
    undisturbed = shutil.copytree(folder, tmp_path / "undisturbed")
    stub.script(latency=0.03)
    started = time.monotonic()
    assert annotator.run(undisturbed, stub) == 0
    whole = time.monotonic() - started
    needed = stub.counters()["requests"]

    stub.script(latency=0.03)
    rng = random.Random(0)
    killed = 0
    for _ in range(KILLS):
        # Each gets a little further than a start takes, so that the kills cover the whole run.
        code = annotator.run(folder, stub, rng.uniform(0.02, 1.5 * whole / KILLS + 0.15))
        killed += code == -9
        Collection.open(folder)  # whole at any moment
    assert annotator.run(folder, stub) == 0
    assert killed >= KILLS // 2
    counts = stub.counters()
    assert counts["distinct"] == needed
    assert counts["requests"] <= needed + killed * IN_FLIGHT
    ours, theirs = Collection.open(folder), Collection.open(undisturbed)
    assert list(ours.records()) == list(theirs.records())
    assert ours.fingerprint == theirs.fingerprint
    assert ours.problems == []
    again = write_collection(folder, world_items(40), name="w", source="w", progress=False)
    assert (again.kept, again.written) == (40, 0)
    assert list(Collection.open(folder).records()) == list(theirs.records())
