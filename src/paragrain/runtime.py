"""Settings of the process that runs the command line: its streams, and quicker numeric work."""

import ctypes
import gc
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from malloc.h of glibc
_NEVER = -1


def cores() -> int:
    """Cores that this process may use: `taskset` or a scheduler may give it fewer than all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


In = TypeVar("In")
Out = TypeVar("Out")


def map_ahead(
    function: Callable[[In], Out], items: Iterable[In], *, threads: int, ahead: int | None = None
) -> Iterator[Out]:
    """`map(function, items)` in threads that work ahead, with the results in order.

    Args:
        function: what lets go of the GIL, such as decoding.
        items: read as they are needed.
        threads: that work at once.
        ahead: results that may wait; by default one for each thread.
    """
    waiting: deque[Future[Out]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= threads + (threads if ahead is None else ahead):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


_FORCING = ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "GITHUB_ACTIONS")
"""What has libraries write control codes into files; terminals get them without."""


def settle() -> None:
    """Make the standard streams fit for whatever is said; call before anything is written.

    What their encoding cannot say is escaped instead of raised, a stream that was closed swallows
    what is written, and control codes go to terminals only.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: else the next file would take its number, and get its output
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for variable in _FORCING:
        os.environ.pop(variable, None)
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def tune() -> None:
    """Keep freed memory and let idle threads sleep; call before torch is imported.

    Large temporaries that go back to the system and come again cost more than the arithmetic on
    them (page faults), and spinning OpenMP threads take the cores from those that work. Both can
    be overruled by the environment: MALLOC_MMAP_MAX_, MALLOC_TRIM_THRESHOLD_, OMP_WAIT_POLICY.
    Garbage is looked for less often, since each time all objects of large libraries are looked at.
    """
    gc.set_threshold(100_000, 20, 20)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc: its own allocator knows best
    if "MALLOC_MMAP_MAX_" not in os.environ:
        mallopt(_M_MMAP_MAX, 0)
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
