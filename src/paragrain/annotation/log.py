"""Append-only logs of calls and images: killed at any moment, and never the same question twice.

A log is a folder of files with one JSON object a line, which begins with the key of what it is
about. Each process writes to a file of its own and reads those of all, so that nothing is ever
written into a file that a kill has torn, and no file system has to lock anything.
"""

import errno
import json
import os
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.loop import Outcome
from paragrain.annotation.pictures import RULE_VERSION
from paragrain.annotation.settings import ImageRule
from paragrain.errors import ParagrainError

_PREFIX = b'{"key": "'
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
    return _digest(json.dumps(parts))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class JsonLog:
    """The lines of a folder by key, the latest of each; use it as a context manager."""

    def __init__(self, folder: Path, *, writing: bool = True) -> None:
        """Read which keys the files in `folder` hold; with `writing`, begin one of one's own."""
        self.folder = folder
        self._paths: list[Path] = []
        self._index = _PlaceIndex()
        self._lock = threading.Lock()
        self._out: BinaryIO | None = None
        for path in sorted(folder.glob("*.jsonl")):
            try:
                file = path.open("rb")
            except FileNotFoundError:  # another process had nothing to write, and is gone
                continue
            self._paths.append(path)
            offset, start = 0, len(_PREFIX)
            with file:
                for line in file:  # the torn one at the end, or a damaged one, is left out
                    if line.startswith(_PREFIX) and line.endswith(b"}\n"):
                        self._add(line[start : start + 16], offset)
                    offset += len(line)
        if writing:
            self._begin()

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._index)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines that can be read."""
        for path in self._paths:
            with path.open("rb") as file:
                for line in file:
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue  # torn by a kill

    def line(self, key: str) -> dict[str, Any] | None:
        """The latest line of a key, if it is whole."""
        with self._lock:
            place = self._index.find(int(key[:16], 16))
        if place is None:
            return None
        try:
            with self._paths[place >> 44].open("rb") as file:
                file.seek(place & ((1 << 44) - 1))
                value: dict[str, Any] = json.loads(file.readline())
            # Half a key is in common once in 10^10 or so.
            return value if value["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError):  # damaged on disk
            return None

    def write(self, key: str, value: dict[str, Any], *, find: bool = True) -> None:
        """Write a line; once this returns, a kill of the process cannot take it away.

        Against a loss of power it is safe after the next `sync`.

        Args:
            key: 32 hexadecimal digits, or nothing for a line that nobody looks for.
            value: of the line.
            find: whether `line` is to find it in this process already.

        Raises:
            ParagrainError: there is no room for it; nothing of it is left behind.
        """
        assert self._out is not None
        line = json.dumps({"key": key, "time": round(time.time(), 3), **value}).encode() + b"\n"
        offset = self._out.tell()
        try:
            if self._out.write(line) != len(line):
                # The disk is full: half a line would spoil the next one.
                self._out.truncate(offset)
                self._out.seek(offset)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._not_written(error) from error
        if find:
            with self._lock:
                self._add(key[:16].encode(), offset)

    def sync(self) -> None:
        """Have the disk hold all that was written."""
        if self._out is not None:
            try:
                os.fsync(self._out.fileno())
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise self._not_written(error) from error

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file; it goes if nothing was written to it."""
        if self._out is not None:
            self.sync()
            empty = self._out.tell() == 0
            self._out.close()
            if empty:
                self._paths.pop().unlink(missing_ok=True)
            self._out = None

    def _add(self, key: bytes, offset: int) -> None:
        try:
            self._index.add(int(key, 16), (len(self._paths) - 1) << 44 | offset)
        except ValueError:
            return  # a line that nobody looks for, or a damaged one

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

    def _not_written(self, error: OSError) -> ParagrainError:
        return ParagrainError(
            f"the log {self._paths[-1]} cannot be written ({error.strerror}): make room and run "
            "the same command again"
        )


class CallLog(JsonLog):
    """Every finished reply, word for word as it came."""

    def find(self, key: str) -> Reply | None:
        """The reply that was logged under a key; one that is damaged is asked for again."""
        try:
            return Reply(**value["reply"]) if (value := self.line(key)) else None
        except (KeyError, TypeError):
            return None

    def append(self, key: str, call: Call, model: str, version: str, reply: Reply) -> None:
        """Write down a reply; see `write`."""
        said = {name: value for name, value in asdict(reply).items() if value is not None}
        value = {
            "id": call.record.id,
            "kind": call.kind,
            "candidate": call.candidate,
            "number": call.number,
            "model": model,
            "prompts": version,
            "reply": {"text": None, "finish": None} | said,
        }
        self.write(key, value)


class ImageLog(JsonLog):
    """One line for each image that is through: what failed, and the caption that guided it.

    It is for `annotate status`, and for finding the replies about an image again: captions come, go
    and change when a collection is imported again.
    """

    def caption(self, content: str) -> tuple[str | None] | None:
        """The caption for an image, which may be none; None if its texts were never asked for.

        What this process notes itself does not count: copies of an image have texts of their own.
        """
        value = self.line(_digest(content))
        return (value["caption"],) if value and "caption" in value else None

    def append(
        self,
        run: str,
        outcome: Outcome,
        content: str,
        caption: str | None,
        *,
        replayed: bool = False,
    ) -> None:
        """Note what became of an image in a run; `replayed` if the log knew it all."""
        failures = {kind: str(failure) for kind, failure in outcome.failures.items()}
        value = {"run": run, "id": outcome.id, "content": content, "failures": failures}
        guided = {"caption": caption} if outcome.asked else {}
        key = _digest(content) if guided else ""
        self.write(key, {**value, **guided, "replayed": replayed}, find=False)

    def append_skipped(self, run: str, identity: str, reason: str) -> None:
        """Note an image that cannot be sent."""
        self.write("", {"run": run, "id": identity, "failures": {"image": reason}}, find=False)


class _PlaceIndex:
    """Where the line of each key lies: 16 bytes for each of millions, the latest in a dict."""

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._keys = np.empty(0, np.uint64)
        self._places = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._keys) + len(self._recent)

    def add(self, key: int, place: int) -> None:
        self._recent[key] = place
        if len(self._recent) >= _MERGE_AT:
            recent = (self._recent, self._recent.values())
            new_keys, new_places = (np.array(array("Q", part), np.uint64) for part in recent)
            # Of equal keys the first is taken, which is the latest.
            self._keys, first = np.unique(np.concatenate([new_keys, self._keys]), return_index=True)
            self._places = np.concatenate([new_places, self._places])[first]
            self._recent = {}

    def find(self, key: int) -> int | None:
        if key in self._recent:
            return self._recent[key]
        at = int(np.searchsorted(self._keys, np.uint64(key)))
        if at == len(self._keys) or int(self._keys[at]) != key:
            return None
        return int(self._places[at])
