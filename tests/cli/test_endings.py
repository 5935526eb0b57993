"""How commands end: in one sentence, in JSON if asked, whatever streams and libraries do."""

import errno
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import safetensors
import torch
import yaml
from PIL import Image

from paragrain.cli.failures import explained

COMMAND = [sys.executable, "-m", "paragrain"]


def run(*args: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with `env` added to the environment."""
    env = {**os.environ, **options.pop("env", {})}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*COMMAND, *map(str, args)]
    return subprocess.run(command, **{**streams, **options}, env=env, check=False, timeout=100)


@pytest.mark.parametrize(
    ("code", "args"),
    [
        (2, ["search", "nowhere", "a star"]),
        (2, ["search"]),
        (2, ["search", "nowhere", "a star", "--k", "many"]),
        (2, ["train", "nowhere", "--recipes", "c5"]),
        (2, ["nothing"]),
        (2, ["import", "nothing"]),
        (2, ["embed", "nowhere", "--batch-size", "0"]),
        (2, ["evaluate", "."]),
        (2, ["study", "run", "nothing.yaml"]),
        (2, ["compare", "a.json", "b.json"]),
        (2, ["compare", ".", "."]),
        (2, ["import", "folder", ".", "out"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_failure_is_json_too_if_that_was_asked_for(
    paragrain: Callable, code: int, args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = paragrain(*args, "--json")
    assert done.code == code
    assert done.json["exit_code"] == code
    assert done.err == f"paragrain: {done.json['error']}\n"
    plain = paragrain(*args)
    assert (plain.out, plain.err) == ("", done.err)
    assert paragrain(*args, "--", "--json").out == ""


def library_failures() -> dict[str, Callable[[Path], object]]:
    def query(path: Path) -> object:
        return sqlite3.connect(path).execute("select * from t")

    def nested(path: Path) -> object:
        return json.loads("[" * 1_000_000)

    return {
        "a file of weights": lambda path: safetensors.safe_open(path, "pt").__enter__(),
        "a database": query,
        "a JSON file": lambda path: json.loads(path.read_text("latin-1")),
        "a YAML file": lambda path: yaml.safe_load("a: [\n"),
        "a Parquet file": lambda path: pq.read_table(path),
        "an image": lambda path: Image.open(path),
        "a compressed file": lambda path: zlib.decompress(path.read_bytes()),
        "UTF-8": lambda path: path.read_bytes().decode(),
        "nested too deeply": nested,
        "memory ran out": lambda path: torch.empty(10**15),
        "ran out": lambda path: bytearray(1 << 60),
        "choose a place": lambda path: (path / "inside").read_bytes(),
        "nobody foresaw": lambda path: {}[("a", "b")],
    }


@pytest.mark.parametrize("name", library_failures())
def test_an_exception_of_a_library_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff\xfe no such thing\n" * 3)
    try:
        library_failures()[name](path)
    except Exception as error:
        caught = error
    code, sentence = explained(caught)
    assert code == 1
    assert name in sentence
    assert "\n" not in sentence
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PARAGRAIN_DEBUG", "1")
    assert explained(caught) == (code, sentence)
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_says_to_make_room_whoever_tells_of_it(number: int) -> None:
    for error in (
        OSError(number, os.strerror(number)),
        safetensors.SafetensorError(f"I/O error: {os.strerror(number)} (os error {number})"),
    ):
        assert "make room" in explained(error)[1]


def test_a_traceback_is_shown_through_the_command_line_only_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "collection.json").write_text("[" * 200_000, "utf-8")
    done = run("search", tmp_path, "a star", "--json")
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert "nested too deeply" in json.loads(done.stdout)["error"]
    assert len(done.stderr.splitlines()) == 1
    debugged = run("search", tmp_path, "a star", "--json", env={"PARAGRAIN_DEBUG": "1"})
    assert b"RecursionError" in debugged.stderr
    assert debugged.stdout == done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["--version"], ["--help"], ["search", "--help"]])
def test_output_that_cannot_be_written(args: list[str], unbuffered: str) -> None:
    env = {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = run(*args, stdout=full, env=env)
        assert done.returncode == 1
        assert done.stderr.decode().count("\n") == 1
        assert done.stderr.startswith(b"paragrain: ")
        assert run("nothing", stderr=full, env=env).returncode == 2
    source, sink = os.pipe()
    os.close(source)  # the reader is gone, as behind `| head -1`
    done = run(*args, stdout=sink, env=env)
    os.close(sink)
    assert (done.returncode, done.stderr) == (1, b"")


def test_closed_streams_do_no_harm(tmp_path: Path) -> None:
    close = {"preexec_fn": lambda: [os.close(number) for number in range(3)]}
    code = run("import", "scenes", "--size", 1, tmp_path / "w", **close).returncode
    assert code == 0
    assert run("import", "scenes", "--size", 0, tmp_path / "v", **close).returncode == 2


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "TERM": "dumb", "COLUMNS": "40"},
        {"FORCE_COLOR": "1", "GITHUB_ACTIONS": "1", "TTY_COMPATIBLE": "1", "CLICOLOR_FORCE": "1"},
        {"NO_COLOR": "1", "COLUMNS": "1"},
    ],
    ids=lambda env: " ".join(env),
)
def test_whatever_the_encoding_a_line_is_a_line_without_control_codes(env: dict[str, str]) -> None:
    done = run("import", "folder", "naïve 照片\n\x1b[31m\x9b\u2028x", "out", env=env)
    assert done.returncode == 2
    assert b"there is no folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert b"\x1b" not in done.stderr
    shown = run("import", "--help", env=env)
    assert shown.returncode == 0
    assert b"\x1b" not in shown.stdout


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = run("import", "scenes", "--size", 60, tmp_path / "w", preexec_fn=small_files)
    assert done.returncode == 1, done.stderr
    assert b"make room" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert run("import", "scenes", "--size", 60, tmp_path / "w").returncode == 0


def test_python_dash_m_and_short_help() -> None:
    assert run("--version").stdout.startswith(b"paragrain 0.")
    assert run("embed", "-h").stdout == run("embed", "--help").stdout
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # else it is whoever started this
    assert b"complete" in run("--show-completion", "bash", env=named).stdout.lower()


def ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(("before", "code"), [(None, 130), (ignored, 0)], ids=["plain", "nohup"])
def test_control_c(tmp_path: Path, before: Callable | None, code: int) -> None:
    """It says how to go on; where it is ignored on entry, as behind `nohup ... &`, it stays so."""
    process = subprocess.Popen(
        [*COMMAND, "import", "scenes", "--size", "400", tmp_path / "w", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before,
    )  # fmt: skip
    while not (tmp_path / "w" / "collection.json").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    if before is None:
        assert json.loads(out) == {"error": err[len("paragrain: ") : -1], "exit_code": 130}
        assert "run the same command again to go on" in err
        assert len(err.splitlines()) == 1
    else:
        assert json.loads(out)["written"] > 400
