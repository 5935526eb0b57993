"""Shards over a Ray cluster: the same result as in one process, also when a worker dies."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from paragrain.annotation import AnnotationSettings, BackendSettings, annotate
from paragrain.collection import Collection
from paragrain.errors import ParagrainError

from .photos import make_world

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'paragrain[ray]'")

FILES, ROWS = 6, 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def kill_a_worker(seen: list[int]) -> None:
    """Kill one of the processes that annotate, as soon as there is one that works."""
    given_up = time.monotonic() + 120  # a busy machine starts Ray slowly
    while time.monotonic() < given_up:
        for process in psutil.process_iter(["cmdline"]):
            if "ray::_Annotator.annotate" in " ".join(process.info["cmdline"] or []):
                time.sleep(0.3)
                os.kill(process.pid, signal.SIGKILL)
                seen.append(process.pid)
                return
        time.sleep(0.05)


def test_two_workers_one_of_which_is_killed(cluster: None, tmp_path: Path, stub: Any) -> None:
    folder = make_world(tmp_path, files=FILES, rows=ROWS)
    local = Path(shutil.copytree(folder, tmp_path / "local"))
    model = BackendSettings(model="stub", endpoint=stub.url, max_concurrency=2)
    settings = AnnotationSettings(generator=model, judge=model)
    annotate(Collection.open(local), settings, progress=False)
    needed = stub.counters()["requests"]

    stub.script(latency=0.1)
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(killed,))
    killer.start()
    report = annotate(Collection.open(folder), settings, runner="ray", workers=2, progress=False)
    killer.join()
    assert killed
    assert (report.images, report.complete, report.problems) == (24, 24, [])
    assert list(Collection.open(folder).records()) == list(Collection.open(local).records())
    counts = stub.counters()
    assert counts["distinct"] == needed
    assert counts["requests"] <= needed + model.max_concurrency
    assert counts["most_in_flight"] <= 2 * model.max_concurrency

    stub.script()
    again = annotate(
        Collection.open(folder), settings, runner="ray", workers=1, limit=6, progress=False
    )
    assert (again.images, again.complete, stub.counters()["requests"]) == (6, 6, 0)


def test_an_error_of_a_worker_is_one_sentence(cluster: None, tmp_path: Path, stub: Any) -> None:
    folder = make_world(tmp_path, files=FILES, rows=ROWS)
    stub.rule({}, status=401)
    model = BackendSettings(model="stub", endpoint=stub.url)
    settings = AnnotationSettings(generator=model)
    with pytest.raises(ParagrainError, match="OPENAI_API_KEY"):
        annotate(Collection.open(folder), settings, runner="ray", workers=1, progress=False)
