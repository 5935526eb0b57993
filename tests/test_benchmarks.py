"""The benchmarks run, at toy size: a command that nobody runs is soon broken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["annotation.py", "--count", "10", "--rounds", "1", "--latency", "0.01"],
        ["annotation_truth.py", "--scenes", "10"],
        ["gpu.py"],
        ["gpu.py", "--small"],
        ["ranks.py", "--images", "256", "--texts", "512", "--rounds", "2"],
        ["text_encoding.py", "--texts", "50", "--repeats", "1"],
        ["training_step.py", "--batch", "8", "--repeats", "1"],
    ],
    ids=" ".join,
)
def test_it_runs_and_prints_a_table(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / command[0], *command[1:]],
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
