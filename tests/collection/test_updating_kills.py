"""An update, or an import after it, that is killed at any moment loses nothing."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pyarrow.parquet as pq
import pytest

from paragrain.collection import Collection, ImportReport, Item, update_records

Files = Callable[[Path], dict[str, bytes]]
Items = Callable[..., list[Item]]
Write = Callable[..., ImportReport]
Annotated = Callable[..., list[Item]]
Unchanged = Callable[[list[Item]], list[Item]]

NEW: dict[str, dict[str, Any]] = {
    "i001": {"generated": ["a", "b"], "negatives": ["n"], "annotation": '{"model": "m"}'},
    "i004": {"paragraph": "Two sentences. Here.", "paragraph_score": 7, "annotation": "{}"},
}


def only_file(folder: Path) -> Path:
    (file,) = (folder / "records").glob("*.parquet")
    return file


# --- Imports afterwards -----------------------------------------------------------------------


def test_an_import_that_drops_records_keeps_what_was_written_about_the_others(
    tmp_path: Path, items: Items, write: Write, unchanged: Unchanged
) -> None:
    write(tmp_path, items(6))
    update_records(tmp_path, only_file(tmp_path), NEW)
    left = [entry for entry in items(6) if entry.id not in ("i000", "i003")]
    report = write(tmp_path, unchanged(left))
    assert (report.kept, report.removed, report.written) == (4, 2, 0)
    records = Collection.open(tmp_path).get(list(NEW))
    for id, values in NEW.items():
        assert {field: getattr(records[id], field) for field in values} == values


class Killed(BaseException):
    """What a step raises in place of being done."""


def dying_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Have a step of writing raise: the first for 0, and so on."""
    count = iter(range(1000))

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(count) >= step:
                raise Killed
            return function(*args, **options)

        return call

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))


STEPS = [
    (pq.ParquetWriter, "write_table"),
    (pq.ParquetWriter, "add_key_value_metadata"),
    (Path, "write_bytes"),
    (Path, "replace"),
]


def test_an_import_killed_while_it_drops_records_keeps_the_others(
    tmp_path: Path,
    items: Items,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    unchanged: Unchanged,
) -> None:
    write(tmp_path / "c", items(6))
    update_records(tmp_path / "c", only_file(tmp_path / "c"), NEW)
    left = items(6)[1:]
    for step in range(100):
        folder = shutil.copytree(tmp_path / "c", tmp_path / str(step))
        try:
            with monkeypatch.context() as patch:
                dying_at(patch, step)
                write(folder, unchanged(left))
        except Killed:
            report = write(folder, unchanged(left))
            assert (report.kept, report.written) == (5, 0)
            assert Collection.open(folder).get(["i001"])["i001"].annotation == '{"model": "m"}'
        else:
            break
    assert step == 11


# --- Kills ------------------------------------------------------------------------------------


def check_after_kill(
    folder: Path, whole: dict[str, bytes], entries: list[Item], write: Write, files: Files
) -> None:
    """Records are as before or as after, an import keeps them, and an update gets to the end."""
    file = only_file(folder)
    states = []
    for _ in range(2):
        collection = Collection.open(folder)
        assert collection.problems == []
        there = {r.id: r.annotation for r in collection.records()}
        assert len(there) == len(entries)
        states.append({there[id] == values["annotation"] for id, values in NEW.items()})
        assert len(states[-1]) == 1  # all or none
        report = write(folder, entries)
        assert (report.kept, report.written, report.removed) == (len(entries), 0, 0)
    assert states[0] == states[1]
    assert update_records(folder, file, NEW) == (0 if states[0] == {True} else 2)
    assert files(folder) == whole


def test_an_update_that_fails_at_any_step_can_be_run_again(
    tmp_path: Path,
    items: Items,
    write: Write,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    annotated: Annotated,
    unchanged: Unchanged,
) -> None:
    start, whole = tmp_path / "start", tmp_path / "whole"
    write(start, items(6))
    write(whole, annotated(items(6), NEW))
    for step in range(100):
        folder = shutil.copytree(start, tmp_path / str(step))
        try:
            with monkeypatch.context() as patch:
                dying_at(patch, step)
                update_records(folder, only_file(folder), NEW)
        except Killed:
            check_after_kill(folder, files(whole), unchanged(items(6)), write, files)
        else:
            break
    assert step == 7  # rows, footer, manifest and its place, file, manifest and its place


KILLED = """
import json, os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from paragrain.collection import Record, update_records
from paragrain.collection.fields import to_table

def dying(function):
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call

for owner, name in [(pq.ParquetWriter, "write_table"), (pq.ParquetWriter, "add_key_value_metadata"),
                    (Path, "write_bytes"), (Path, "replace"), (Path, "unlink")]:
    setattr(owner, name, dying(getattr(owner, name)))

to_table([Record("a", captions=["b"])])  # so that pyarrow's late imports are done once for all
for line in sys.stdin:
    folder, left, changes = json.loads(line)
    child = os.fork()
    if not child:
        update_records(Path(folder), Path(folder) / "records" / "part-00000.parquet", changes)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Updater:
    """A process that runs updates, each in a child of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", KILLED], stdin=PIPE, stdout=PIPE, text=True
        )

    def start(self, folder: Path, steps: int) -> int:
        """Begin an update that dies after so many steps; return the child's process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(folder), steps, NEW]) + "\n")
        self.process.stdin.flush()
        return self.number()

    def number(self) -> int:
        """The next number that it prints: after a child's id its exit code."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture
def updater() -> Iterator[Updater]:
    updater = Updater()
    yield updater
    assert updater.process.stdin is not None
    updater.process.stdin.close()
    updater.process.wait(10)


def test_an_update_killed_at_any_step_or_moment_loses_nothing(
    tmp_path: Path,
    items: Items,
    write: Write,
    files: Files,
    updater: Updater,
    annotated: Annotated,
    unchanged: Unchanged,
) -> None:
    start, whole = tmp_path / "start", tmp_path / "whole"
    write(start, items(6))
    write(whole, annotated(items(6), NEW))
    expected = files(whole)
    for step in range(100):
        folder = shutil.copytree(start, tmp_path / f"step {step}")
        began = time.monotonic()
        updater.start(folder, step)
        if updater.number() == 0:
            break
        check_after_kill(folder, expected, unchanged(items(6)), write, files)
    took = time.monotonic() - began
    assert step == 10  # the seven, and what clears away after each of the three files
    assert files(folder) == expected
    killed = 0
    for moment in range(10):
        folder = shutil.copytree(start, tmp_path / f"moment {moment}")
        child = updater.start(folder, 1000)
        time.sleep(took * moment / 10)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(child, signal.SIGKILL)
        killed += updater.number() == -signal.SIGKILL
        check_after_kill(folder, expected, unchanged(items(6)), write, files)
    assert killed
