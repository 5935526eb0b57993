"""The database of a collection's annotation: every reply, every image, files that are through.

It is one SQLite file, `annotation/annotation.db`, to which one process writes and which others may
read meanwhile. A kill of that process at any moment takes nothing away that was committed.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.loop import Outcome
from paragrain.annotation.pictures import RULE_VERSION
from paragrain.annotation.settings import ImageRule
from paragrain.errors import ParagrainError

NAME = "annotation.db"

_TABLES = """
CREATE TABLE IF NOT EXISTS calls (
    key TEXT PRIMARY KEY, time REAL, id TEXT, kind TEXT, candidate INTEGER, number INTEGER,
    model TEXT, prompts TEXT, reply TEXT
);
CREATE TABLE IF NOT EXISTS images (
    time REAL, run TEXT, id TEXT, content TEXT, failures TEXT, caption TEXT, replayed INTEGER
);
CREATE INDEX IF NOT EXISTS image_contents ON images (content);
CREATE INDEX IF NOT EXISTS image_runs ON images (run);
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, depends TEXT, report TEXT);
"""


def call_key(call: Call, content: str, model: str, rule: ImageRule) -> str:
    """32 hexadecimal digits of all that a reply depends on: image, model, question, sampling.

    Where a model runs, how it is held to a form and how long one waits for it are not part of it.
    """
    sampling = [call.temperature, call.top_p, call.max_tokens, call.seed]
    image = [RULE_VERSION, *rule.model_dump().values()]
    parts = [content, model, call.kind, call.prompt, call.json_prompt, *sampling, image]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class ImageNote(NamedTuple):
    """What became of an image in a run; `replayed` if all replies were there before."""

    time: float
    id: str
    content: str
    failures: dict[str, str]
    replayed: bool


class Database:
    """What is known of a collection's annotation; a context manager, used from any thread."""

    def __init__(self, folder: Path, *, writing: bool = True) -> None:
        """Open the database in `folder`; without `writing` it need not exist, and stays as it is.

        Raises:
            ParagrainError: the file is damaged, or cannot be written.
        """
        self._path = folder / NAME
        self._lock = threading.Lock()
        with self._errors():
            if writing:
                folder.mkdir(parents=True, exist_ok=True)
                self._connect(str(self._path))
                # A commit is safe from a kill at once, from a loss of power after `sync`.
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            elif self._path.exists():
                self._connect(f"{self._path.resolve().as_uri()}?mode=ro")
            else:
                self._connect(":memory:")
            if writing or not self._path.exists():
                self._db.executescript(_TABLES)
        (last,) = self._rows("SELECT ifnull(max(rowid), 0) FROM images")[0]
        self._noted_before: int = last
        self._writing = writing

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close it, and leave one file behind."""
        with self._lock:
            if self._writing:
                with suppress(sqlite3.Error):  # of a reader: then the next run does it
                    self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()

    def sync(self) -> None:
        """Have the disk hold all that was written."""
        with suppress(OSError), self._path.with_name(f"{NAME}-wal").open("rb") as file:
            os.fsync(file.fileno())

    # --- calls ------------------------------------------------------------------------------------

    def add_reply(self, key: str, call: Call, model: str, version: str, reply: Reply) -> None:
        """Keep a reply word for word; once this returns, a kill cannot take it away."""
        about = (call.record.id, call.kind, call.candidate, call.number, model, version)
        self._insert("calls", key, time.time(), *about, json.dumps(asdict(reply)))

    def reply(self, key: str) -> Reply | None:
        """The reply that was kept under a key."""
        rows = self._rows("SELECT reply FROM calls WHERE key = ?", key)
        return Reply(**json.loads(rows[0][0])) if rows else None

    def count_replies(self) -> int:
        """How many replies there are, over all runs."""
        return int(self._rows("SELECT count(*) FROM calls")[0][0])

    # --- images -----------------------------------------------------------------------------------

    def add_image(
        self, run: str, outcome: Outcome, content: str, caption: str | None, *, replayed: bool
    ) -> None:
        """Note what became of an image in a run."""
        failures = {kind: str(failure) for kind, failure in outcome.failures.items()}
        guide = json.dumps(caption) if outcome.asked else None
        about = (run, outcome.id, content, json.dumps(failures), guide, replayed)
        self._insert("images", time.time(), *about)

    def add_skipped(self, run: str, id: str, reason: str) -> None:
        """Note an image that cannot be sent."""
        failures = json.dumps({"image": reason})
        self._insert("images", time.time(), run, id, "", failures, None, False)

    def guides(self, content: str) -> list[str | None]:
        """The caption, which may be none, that last guided the models about an image.

        Captions come, go and change when a collection is imported again. What was noted since the
        database was opened does not count: copies of an image have texts of their own.

        Returns:
            That caption alone; nothing if the image was never asked about.
        """
        rows = self._rows(
            "SELECT caption FROM images WHERE content = ? AND caption IS NOT NULL AND rowid <= ? "
            "ORDER BY rowid DESC LIMIT 1",
            content,
            self._noted_before,
        )
        return [json.loads(caption) for (caption,) in rows]

    def images(self, run: str) -> list[ImageNote]:
        """What became of each image of a run, in the order in which it was noted."""
        rows = self._rows(
            "SELECT time, id, content, failures, replayed FROM images WHERE run = ? ORDER BY rowid",
            run,
        )
        return [ImageNote(*row)._replace(failures=json.loads(row[3])) for row in rows]

    # --- files ------------------------------------------------------------------------------------

    def add_file(self, name: str, depends: str, report: dict[str, Any]) -> None:
        """Note what became of a file's records, and all that this depends on."""
        self._insert("files", name, depends, json.dumps(report))

    def file_report(self, name: str, depends: str) -> dict[str, Any] | None:
        """What became of a file's records, if nothing has changed since."""
        rows = self._rows("SELECT report FROM files WHERE (name, depends) = (?, ?)", name, depends)
        return json.loads(rows[0][0]) if rows else None

    # --- SQL --------------------------------------------------------------------------------------

    def _connect(self, place: str) -> None:
        self._db = sqlite3.connect(
            place, timeout=30, isolation_level=None, check_same_thread=False, uri=True
        )

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._db.execute(query, values).fetchall()

    def _insert(self, table: str, *values: object) -> None:
        places = ", ".join("?" * len(values))
        with self._lock, self._errors():
            self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what the user can do about an error of the database."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ParagrainError(
                f"{self._path} cannot be used ({error}): make room on the disk, or give access to "
                "the file, and run the same command again, which goes on from here"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ParagrainError(
                f"{self._path} is damaged ({error}): move it away, and all replies are asked for "
                "again"
            ) from error
