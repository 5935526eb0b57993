"""A lock keeps others out where the file system has locks and where it has none."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paragrain import locks
from paragrain.locks import Held, hold

HOLDER = """
import errno, fcntl, os, sys, time
from pathlib import Path
from paragrain.locks import hold

def none(*_):
    raise OSError(int(sys.argv[2]), "no locks here")

if int(sys.argv[2]):
    fcntl.flock = fcntl.lockf = none
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

KINDS = [0, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK]
"""What `flock` says: nothing, where it works, or why there are no locks."""


@pytest.fixture(params=KINDS, ids=lambda kind: errno.errorcode.get(kind, "flock"))
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    kind = int(request.param)

    def none(*_: object) -> None:
        raise OSError(kind, "no locks here")

    if kind:
        monkeypatch.setattr(locks.fcntl, "flock", none)
    monkeypatch.setattr(locks, "BEAT", 0.1)
    monkeypatch.setattr(locks, "SILENCE", 0.4)
    return kind


@contextmanager
def held_by_another(path: Path, kind: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(path), str(kind)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_another_process_is_kept_out_until_the_holder_is_killed(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "folder" / ".lock"
    with held_by_another(path, kind) as process:
        with pytest.raises(Held), hold(path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with hold(path):
            pass


def test_the_same_process_is_kept_out_too_and_may_come_again(tmp_path: Path, kind: int) -> None:
    path = tmp_path / ".lock"
    for _ in range(2):
        with hold(path), pytest.raises(Held), hold(path):
            pass
    assert not (tmp_path / ".lock.owner").exists()


def test_it_waits_as_long_as_it_is_told(tmp_path: Path, kind: int) -> None:
    began = time.monotonic()
    with hold(tmp_path / ".lock"), pytest.raises(Held), hold(tmp_path / ".lock", wait=0.3):
        pass
    assert time.monotonic() - began >= 0.3


LEFT_BEHIND = {
    "empty": "",
    "no JSON": "{'pid'",
    "of another form": "[1, 2]",
    "a dead process's": {"pid": 2**22 - 7},
    "of a number used again": {"pid": os.getpid(), "started": "long ago"},
    "of another machine": {"machine": "other pid:[1]"},
    "of no number": {"pid": "?"},
}


@pytest.mark.parametrize("left", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_a_file_that_is_left_behind_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: object
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "SILENCE", 0.3)
    own = {"machine": locks._machine(), "pid": 1, "started": "", "lock": "x"}
    text = left if isinstance(left, str) else json.dumps({**own, **left})  # type: ignore[dict-item]
    (tmp_path / ".lock.owner").write_text(text, "utf-8")
    with hold(tmp_path / ".lock"), pytest.raises(Held), hold(tmp_path / ".lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_living_holder_on_another_machine_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "BEAT", 0.1)
    monkeypatch.setattr(locks, "SILENCE", 2.0)
    with hold(tmp_path / ".lock"):
        monkeypatch.setattr(locks, "_machine", lambda: "another")
        with pytest.raises(Held), hold(tmp_path / ".lock"):
            pass
