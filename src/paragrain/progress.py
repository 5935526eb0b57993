"""One way to show how far long work is: a bar on terminals, a line now and then elsewhere."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from paragrain.words import duration, printable

INTERVAL = 15.0
"""Seconds between two lines where standard error is no terminal."""

SILENT = 4
"""Intervals without news after which a line tells that the work still goes on."""

SETTLING = 1.0
"""Seconds until a rate says anything: a run that goes on begins with what was done before."""

Advance = Callable[..., None]


@contextmanager
def progress_bar(
    title: str, total: int | None, *, unit: str = "items", show: bool = True
) -> Iterator[Advance]:
    """Show how far the block is while it runs; yields `advance(n=1, note="")`.

    On a terminal that is a bar on standard error; elsewhere a plain line every `INTERVAL` seconds,
    so that short work says nothing.

    Args:
        title: what is being done, such as `"embedding"`.
        total: number of units, or `None` if it is not known.
        unit: name of what is counted, for the rate.
        show: False to stay silent.
    """
    console = Console(stderr=True)
    if not show:
        yield lambda n=1, note=None: None
    elif console.is_terminal and not console.is_dumb_terminal:
        with _bar(console, printable(title), total, unit) as advance:
            yield advance
    else:
        with _lines(printable(title), total, unit) as advance:
            yield advance


def rate(speed: float, unit: str) -> str:
    """So many units in a time in which it is some of them.

    >>> rate(85.26, "images"), rate(0.25, "images"), rate(0.002, "cells")
    ('85.3 images/s', '15.0 images/min', '7.2 cells/h')
    """
    for factor, per in ((1, "s"), (60, "min")):
        if speed * factor >= 1:
            return f"{speed * factor:,.1f} {unit}/{per}"
    return f"{speed * 3600:,.1f} {unit}/h"


class _Rate(ProgressColumn):
    """Finished units in a time."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        known = speed and (task.elapsed or 0) >= SETTLING
        return Text(rate(speed, task.fields["unit"]) if speed and known else "")


@contextmanager
def _bar(console: Console, title: str, total: int | None, unit: str) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, unit=unit, note="")

        def advance(n: int = 1, note: str | None = None) -> None:
            if note is None:
                bar.update(task, advance=n)
            else:
                bar.update(task, advance=n, note=printable(note))

        yield advance


@contextmanager
def _lines(title: str, total: int | None, unit: str) -> Iterator[Advance]:
    """A line about the work at intervals, from a thread of its own."""
    over, began = threading.Event(), time.monotonic()
    done, note, told = 0, "", False

    def advance(n: int = 1, remark: str | None = None) -> None:
        nonlocal done, note
        done += n
        note = note if remark is None else printable(remark)

    def tell(count: int, more: str) -> None:
        nonlocal told
        told = True
        of = f" of {total:,} {unit} ({100 * count // total} %)" if total else f" {unit}"
        with suppress(OSError, ValueError):  # work does not end because nobody can read of it
            print(f"{title}: {count:,}{of}{more}", file=sys.stderr, flush=True)

    def run() -> None:
        over.wait(min(SETTLING, INTERVAL / 2))
        seen, then = done, time.monotonic()
        last, last_told = "", -math.inf
        while not over.wait(INTERVAL):
            count, now = done, time.monotonic()
            speed = (count - seen) / (now - then)
            more = f", {rate(speed, unit)}" if speed > 0 else ""
            if speed > 0 and total is not None and count < total:
                more += f", {duration((total - count) / speed)} left"
            if count == seen and note == last and now - last_told < SILENT * INTERVAL:
                continue
            tell(count, more + (note and f", {note}"))
            last, last_told = note, now
            if count > seen:  # units may take longer than a line: their speed is not that of a line
                seen, then = count, now

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        over.set()
        thread.join()
    if told:  # it took so long that anything was said of it
        tell(done, f" in {duration(time.monotonic() - began)}" + (note and f", {note}"))
