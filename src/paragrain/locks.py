"""A lock that goes with the process that holds it, on file systems with locks and without."""

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from paragrain.errors import ParagrainError

try:
    import fcntl
except ImportError:  # not Unix
    fcntl = None  # type: ignore[assignment]

BEAT = 2.0
"""Seconds after which the holder of a file without a system lock shows again that it lives."""

SILENCE = 4 * BEAT
"""Seconds without such a sign after which a holder on another machine counts as dead."""

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}

_Release = Callable[[], None]


class Held(Exception):
    """Another process, or another part of this one, holds the lock."""


@contextmanager
def hold(path: Path, wait: float = 0.0, busy: str | None = None) -> Iterator[None]:
    """Hold the lock on a file while the block runs; the file stays behind and locks nothing.

    The lock is the system's own (`flock`). Where the file system has none, as some of networks,
    clusters and phones, the file `PATH.owner` names the process that holds it; it locks nothing
    once that process is gone.

    Args:
        path: of the file, made if absent, as its folder is.
        wait: seconds to wait for another holder.
        busy: what to say then, as a `ParagrainError`.

    Raises:
        Held: it is still held then.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / ".lock"
    >>> with hold(place):
    ...     with hold(place):
    ...         pass
    Traceback (most recent call last):
    ...
    paragrain.locks.Held: ...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + wait
    while (release := _take(path)) is None:
        if time.monotonic() >= until:
            raise ParagrainError(busy) if busy else Held(str(path))
        time.sleep(0.05)
    try:
        yield
    finally:
        release()


def _take(path: Path) -> _Release | None:
    """What lets go of the lock, or None if somebody holds it."""
    if fcntl is None:
        return _Owner(path).take()
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in _NO_LOCKS:
            return _Owner(path).take()
        if error.errno not in _BUSY:
            raise
        return None
    return lambda: os.close(handle)


class _Owner:
    """A file that names who holds a lock: machine, process, and by its time a sign of life."""

    def __init__(self, path: Path):
        self._file = path.with_name(path.name + ".owner")
        me = {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}
        self._text = json.dumps(me | {"lock": uuid4().hex})
        self._over = threading.Event()

    def take(self) -> _Release | None:
        """Write the file, over that of a dead process if need be; None if a living one holds it."""
        while True:
            try:
                with self._file.open("x", encoding="utf-8") as file:
                    file.write(self._text)
            except FileExistsError:
                said = self._read()
                if said is not None and self._lives(said):
                    return None
                self._clear(said)
                continue
            threading.Thread(target=self._beat, daemon=True).start()
            return self._let_go

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):
                os.utime(self._file)

    def _let_go(self) -> None:
        self._over.set()
        if self._read() == self._text:
            self._file.unlink(missing_ok=True)

    def _read(self) -> str | None:
        try:
            return self._file.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _lives(self, said: str) -> bool:
        """Whether the process that wrote the file is still there."""
        try:
            owner = json.loads(said)
            if owner["machine"] == _machine() and hasattr(os, "geteuid"):
                return _runs(int(owner["pid"])) and owner["started"] == _started(owner["pid"])
        except (ValueError, KeyError, TypeError):
            pass  # it is being written, or its writer was stopped in the middle
        seen, until = self._sign(), time.monotonic() + SILENCE
        while time.monotonic() < until:
            time.sleep(BEAT / 4)
            if self._sign() != seen:
                return True  # or it is gone: the next attempt shows
        return False

    def _sign(self) -> tuple[int, str] | None:
        """The time and content of the file, opened anew, since network file systems keep copies."""
        with suppress(FileNotFoundError), self._file.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns, file.read().hex()
        return None

    def _clear(self, dead: str | None) -> None:
        """Take away a dead process's file, and nobody else's who came in between."""
        aside = self._file.with_name(f"{self._file.name}.{uuid4().hex}")
        with suppress(FileNotFoundError):
            self._file.rename(aside)
            if aside.read_text("utf-8", errors="replace") == dead:
                aside.unlink()
            else:
                aside.rename(self._file)


def _machine() -> str:
    """This machine, and on Linux the container in it: where process numbers mean the same."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started(pid: int) -> str:
    """When a process began, where the system tells: process numbers are used again."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
        return f"{boot} {stat.rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""
