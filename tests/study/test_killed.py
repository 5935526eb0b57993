"""A mini study that is killed, and one that is run by two processes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.study.plan import Study
from paragrain.study.runner import run_study
from paragrain.study.scores import Column, read_scores

MakeStudy = Callable[..., Study]
Here = dict[str, Any]

SCRIPT = """
import sys
from pathlib import Path
from paragrain.study.plan import load_study
from paragrain.study.runner import run_study

if __name__ == "__main__":
    study, out, workers = sys.argv[1:]
    run_study(load_study(study), Path(out), workers=int(workers), device="cpu", progress=False)
"""


def results(study: Study, out: Path) -> dict[str, Any]:
    """All numbers of a study."""
    scores = read_scores(study, out)
    assert not scores.missing
    found: dict[str, Any] = {
        f"{name} {column}": estimate.seeds
        for name, columns in scores.recalls.items()
        for column, estimate in columns.items()
    }
    for name, lines in scores.curves["cut"].items():
        for direction, points in lines.items():
            for max_length, estimate in points.items():
                found[f"{name} {direction} {max_length}"] = estimate.seeds
    return found


def children(pid: int) -> set[int]:
    """Processes below a process, from /proc."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parents[int(path.name)] = int(
                    (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except (OSError, IndexError):
                continue  # it ended in between
    found: set[int] = set()
    while more := {p for p, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def run_and_kill(script: Path, study: Study, out: Path, workers: int, after: float) -> None:
    """Start a study in a process of its own and kill it; nothing that it started may stay."""
    arguments = [sys.executable, str(script), str(study.path), str(out), str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    wait_for = out / "collections.json"
    while not wait_for.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(after)
    below = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60  # they see it as soon as numba has compiled its kernel
    while any(map(is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in below if is_alive(pid)]


def killed_study_ends_the_same(
    workers: int, kills: list[float], study: Study, out: Path, tmp_path: Path
) -> dict[str, Any]:
    """Kill a study so many seconds after it began to work, each time, and let it end."""
    script = tmp_path / "run.py"
    script.write_text(SCRIPT, "utf-8")
    for after in kills:
        run_and_kill(script, study, out, workers, after)
    report = run_study(study, out, workers=workers, device="cpu", progress=False)
    assert report.failed == []
    assert report.done + report.kept == 7
    return results(study, out)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_study_ends_with_the_same_numbers(
    make_study: MakeStudy, here: Here, finished: tuple[Study, Path], tmp_path: Path
) -> None:
    after = random.Random(os.getpid()).uniform(0, 2)
    found = killed_study_ends_the_same(1, [after], make_study(here), tmp_path / "out", tmp_path)
    assert found == results(*finished)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_that_is_killed_often_ends_with_the_same_numbers(
    make_study: MakeStudy, here: Here, finished: tuple[Study, Path], tmp_path: Path, workers: int
) -> None:
    rng = random.Random(os.getpid())
    kills = [rng.uniform(0, 6 * workers) for _ in range(4)]
    study = make_study(here)
    found = killed_study_ends_the_same(workers, kills, study, tmp_path / "out", tmp_path)
    assert found == results(*finished)


def test_two_workers_find_what_one_finds(
    make_study: MakeStudy, here: Here, finished: tuple[Study, Path], tmp_path: Path
) -> None:
    study, out = make_study(here), tmp_path / "out"
    report = run_study(study, out, only=["c4"], workers=2, device="cpu", progress=False)
    assert (report.done, report.failed) == (2, [])
    column = Column("long", "text_to_image")
    one, two = (read_scores(s, o).recalls["c4"][column] for s, o in (finished, (study, out)))
    assert one.seeds == two.seeds
