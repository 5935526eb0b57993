"""Counts of a long ranking on disk, so that a killed one goes on where it was."""

import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paragrain.files import digest, replacing

SAVE_SECONDS = 30.0


class Saved:
    """One file with the counts so far; it goes when the ranking is done."""

    def __init__(self, path: Path, inputs: Sequence[np.ndarray]) -> None:
        """Take the inputs that the counts belong to; others begin anew.

        Args:
            path: of the file, an .npz without pickles.
            inputs: all that the counts depend on.
        """
        self._path = path
        parts: list[Any] = [
            p for a in inputs for p in (f"{a.dtype} {a.shape}", np.ascontiguousarray(a).data)
        ]
        self._key = digest(*parts).hex()
        self._last = time.monotonic()

    def load(self, counts: Sequence[np.ndarray]) -> int:
        """Fill `counts` with what is there; return the number of images that are done."""
        try:
            with np.load(self._path, allow_pickle=False) as file:
                known = [file[f"counts{n}"] for n in range(len(counts))]
                same = str(file["key"]) == self._key
                done = int(file["done"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return 0
        if not same or any(a.shape != b.shape for a, b in zip(known, counts, strict=True)):
            return 0
        for own, value in zip(counts, known, strict=True):
            own[:] = value
        return done

    def save(self, counts: Sequence[np.ndarray], done: int) -> None:
        """Write the counts of the first `done` images, if the last time is some while ago."""
        if time.monotonic() - self._last < SAVE_SECONDS:
            return
        arrays: dict[str, Any] = {f"counts{n}": array for n, array in enumerate(counts)}
        with replacing(self._path) as temporary, temporary.open("wb") as file:
            np.savez(file, key=np.array(self._key), done=np.array(done), **arrays)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)
