"""The log of all calls: append-only, killed at any moment, and never the same question twice.

Every finished reply is one line of `annotation/calls/*.jsonl` under the collection, word for word
as it came, under a key made of everything that the reply depends on. Each process writes to a file
of its own and reads those of all, so that nothing is ever written into a file that a kill has torn.
"""

import errno
import json
import os
import threading
import time
from array import array
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.sending import RULE_VERSION
from paragrain.annotation.settings import ImageRule
from paragrain.errors import ParagrainError

_PREFIX = b'{"key": "'
_KEY_DIGITS = 32
_MERGE_AT = 200_000
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # some file systems of networks


def call_key(call: Call, content: str, model: str, rule: ImageRule) -> str:
    """32 hexadecimal digits of all that a reply depends on: image, model, question, sampling.

    Where a model runs, how it is held to a form and how long one waits for it are not part of it.
    """
    parts = [
        content,
        model,
        call.kind,
        call.prompt,
        call.json_prompt,
        call.temperature,
        call.top_p,
        call.max_tokens,
        call.seed,
        [RULE_VERSION, *rule.model_dump().values()],
    ]
    text = json.dumps(parts)
    return blake2b(text.encode(), digest_size=_KEY_DIGITS // 2).hexdigest()


class CallLog:
    """Replies by key; use it as a context manager.

    Attributes:
        calls: number of replies that are in the log.
    """

    def __init__(self, folder: Path, *, writing: bool = True) -> None:
        """Read what the log in `folder` holds; with `writing`, begin a file of one's own."""
        self.folder = folder
        self._paths: list[Path] = []
        self._index = PlaceIndex()
        self._out: BinaryIO | None = None
        self._lock = threading.Lock()
        for path in sorted(folder.glob("*.jsonl")):
            self._read(path)
        if writing:
            self._begin()

    @property
    def calls(self) -> int:
        """Number of replies in the log."""
        return len(self._index)

    def find(self, key: str) -> Reply | None:
        """The reply that was logged under a key."""
        with self._lock:
            place = self._index.find(int(key[:16], 16))
        if place is None:
            return None
        number, offset = place
        try:
            with self._paths[number].open("rb") as file:
                file.seek(offset)
                line = file.readline()
            value = json.loads(line)
            if value["key"] != key:  # half a key in common: one in 10^10 or so
                return None
            return Reply(**value["reply"])
        except (OSError, ValueError, KeyError, TypeError):  # damaged on disk: asked again
            return None

    def append(self, key: str, call: Call, model: str, version: str, reply: Reply) -> None:
        """Write down a reply; once this returns, a kill of the process cannot take it away.

        Against a loss of power it is safe after the next `sync`.
        """
        assert self._out is not None
        value: dict[str, Any] = {
            "key": key,
            "id": call.record.id,
            "kind": call.kind,
            "attempt": call.attempt,
            "number": call.number,
            "model": model,
            "prompts": version,
            "time": round(time.time(), 3),
            "reply": {name: v for name, v in asdict(reply).items() if v is not None},
        }
        value["reply"] = {"text": None, "finish": None} | value["reply"]
        offset = append_line(self._out, value)
        with self._lock:
            self._index.add(int(key[:16], 16), len(self._paths) - 1, offset)

    def sync(self) -> None:
        """Have the disk hold all that was written."""
        if self._out is not None:
            try:
                os.fsync(self._out.fileno())
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise _not_written(self._out, error) from error

    def close(self) -> None:
        """Close the file; it goes if nothing was written to it."""
        if self._out is not None:
            self.sync()
            empty = self._out.tell() == 0
            self._out.close()
            if empty:
                Path(self._out.name).unlink(missing_ok=True)
            self._out = None

    def __enter__(self) -> "CallLog":
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _begin(self) -> None:
        """Open a new file, by time and process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        for number in range(10_000):
            path = self.folder / f"{stamp}-{os.getpid()}-{number}.jsonl"
            try:
                self._out = path.open("xb", buffering=0)
            except FileExistsError:
                continue
            self._paths.append(path)
            return
        raise ParagrainError(f"no new log file can be made in {self.folder}")

    def _read(self, path: Path) -> None:
        """Take in the keys of a file; a torn line at its end, or a damaged one, is left out."""
        try:
            file = path.open("rb")
        except FileNotFoundError:  # another process had nothing to write, and is gone
            return
        self._paths.append(path)
        offset = 0
        with file:
            for line in file:
                if line.startswith(_PREFIX) and line.endswith(b"}\n"):
                    first = len(_PREFIX)
                    try:
                        key = int(line[first : first + 16], 16)
                    except ValueError:
                        key = None
                    if key is not None:
                        self._index.add(key, len(self._paths) - 1, offset)
                offset += len(line)


def append_line(out: BinaryIO, value: dict[str, Any]) -> int:
    """Write a value as a line of JSON at the end of an unbuffered file; where it begins.

    Raises:
        ParagrainError: there is no room for it; nothing of it is left behind.
    """
    line = json.dumps(value).encode() + b"\n"
    offset = out.tell()
    try:
        written = out.write(line)
        if written != len(line):  # the disk is full: half a line would spoil the next one
            out.truncate(offset)
            out.seek(offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise _not_written(out, error) from error
    return offset


def _not_written(out: BinaryIO, error: OSError) -> ParagrainError:
    return ParagrainError(
        f"the log {out.name} cannot be written ({error.strerror}): make room and run the same "
        "command again"
    )


class PlaceIndex:
    """Where the line of each key lies: 16 bytes for each of millions, the latest in a dict."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._recent: dict[int, int] = {}
        self._keys = np.empty(0, np.uint64)
        self._places = np.empty(0, np.uint64)

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._keys) + len(self._recent)

    def add(self, key: int, file: int, offset: int) -> None:
        """Note the place of a key; the latest counts."""
        self._recent[key] = file << 44 | offset
        if len(self._recent) >= _MERGE_AT:
            self._merge()

    def find(self, key: int) -> tuple[int, int] | None:
        """File and offset of a key."""
        place = self._recent.get(key)
        if place is None:
            at = int(np.searchsorted(self._keys, np.uint64(key)))
            if at == len(self._keys) or int(self._keys[at]) != key:
                return None
            place = int(self._places[at])
        return place >> 44, place & ((1 << 44) - 1)

    def _merge(self) -> None:
        keys = np.concatenate([np.array(array("Q", self._recent), np.uint64), self._keys])
        places = np.concatenate(
            [np.array(array("Q", self._recent.values()), np.uint64), self._places]
        )
        self._keys, first = np.unique(
            keys, return_index=True
        )  # of equal keys, the first: the latest
        self._places = places[first]
        self._recent = {}
