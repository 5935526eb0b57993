"""How far long work is, on a terminal and elsewhere."""

import io
import os
import pty
import re
import sys
import time

import pytest

from paragrain import progress
from paragrain.progress import progress_bar


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.1)
    monkeypatch.setattr(progress, "SETTLING", 0.02)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert said.out == ""
    assert "\x1b" not in said.err
    assert "\r" not in said.err
    return said.err.splitlines()


def test_where_there_is_no_terminal_a_plain_line_says_it_at_intervals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_bar("embedding", 1000, unit="images") as advance:
        advance(500)  # what was done before counts in no rate
        for _ in range(25):
            time.sleep(0.01)
            advance(2, "3 failed")
    first, *_, last = lines(capsys)
    done, share, speed = re.fullmatch(
        r"embedding: (\d+) of 1,000 images \((\d+) %\), ([\d.]+) images/s, \d+ s left, 3 failed",
        first,
    ).groups()  # type: ignore[union-attr]
    assert 500 < int(done) < 550
    assert int(share) == int(done) // 10
    assert float(speed) < 250
    assert re.fullmatch(r"embedding: 550 of 1,000 images \(55 %\) in 0 s, 3 failed", last)


def test_work_that_stands_still_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("looking", None, unit="items") as advance:
        advance(3)
        time.sleep(0.35)
    assert lines(capsys)[0] == "looking: 3 items"


def test_short_work_and_silent_work_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("short", 3) as advance:
        advance(3)
    with progress_bar("silent", 3, show=False) as advance:
        advance(1, note="x")
        time.sleep(0.3)
    assert lines(capsys) == []


def test_forced_colours_put_no_control_codes_into_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from paragrain.runtime import settle

    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    settle()
    with progress_bar("a\x1b[31m\nb", 3) as advance:
        advance(1, "c\rd")
        time.sleep(0.25)
    assert lines(capsys)[0].startswith(r"a\x1b[31m\nb: 1 of 3")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_gets_a_bar_and_a_dumb_one_lines(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    above, below = pty.openpty()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "100")
    with io.TextIOWrapper(os.fdopen(below, "wb", buffering=0), write_through=True) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar("looking through [red]tags[/oops]", 9) as advance:
            advance(1, "[/oops]")
            time.sleep(0.25)
        said = os.read(above, 65536).decode()
    os.close(above)
    assert "looking through [red]tags[/oops]" in said
    assert ("\x1b" in said) == (term == "xterm")


def test_work_without_news_is_told_of_now_and_then_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENT", 1000)
    with progress_bar("training", 4, unit="cells") as advance:
        time.sleep(0.6)
        advance(1)
        time.sleep(0.6)
        advance(0, "waiting")
        time.sleep(0.4)
    told = lines(capsys)
    assert told[0] == "training: 0 of 4 cells (0 %)"
    assert told[1].startswith("training: 1 of 4 cells (25 %), ")
    assert told[2] == "training: 1 of 4 cells (25 %), waiting"
    assert len(told) == 4  # and what it came to
    left = float(told[1].split(", ")[2].split()[0])
    assert left >= 1  # three more of at least 0.6 seconds each, not of one interval each
