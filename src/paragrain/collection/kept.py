"""Texts on their way from a record that goes to the one that shows the same picture.

Whoever wrote a text, or paid for it, wrote it about a picture: it outlives the name of the file and
the import that brought it in. Before a record leaves its shard, what is written about it goes to
`kept_texts.jsonl`; a record that is made with the same bytes, or the same pixels, takes it from
there. What finds no picture stays in that file until the picture comes back.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from paragrain.collection.record import LIST_FIELDS, TEXT_FIELDS, Record
from paragrain.files import replacing

KEPT = "kept_texts.jsonl"
"""Texts without a picture, in the collection's folder."""

REPLACED = "replaced_texts.jsonl"
"""Texts in whose place an import put others; nothing reads it but people."""

FACTS = ("group", "url", "graph")
"""What is known of a picture and is no text about it."""

CARRIED = (*TEXT_FIELDS, "paragraph_score", "annotation", *FACTS)
"""What follows a picture, beside its split."""

_WRITTEN_AS = {"generated": "captions", "negatives": "negatives", "paragraph": "paragraph"}
_EMPTY: dict[str, Any] = {f.name: ([] if f.name in LIST_FIELDS else None) for f in fields(Record)}
_KEY_BYTES = 16


def told(record: Record) -> dict[str, Any]:
    """What is known of a picture beside its name, by field; empty fields are absent.

    >>> told(Record("7", captions=["a dog"], split="test"))
    {'captions': ['a dog']}
    """
    return {name: value for name in CARRIED if (value := getattr(record, name)) not in (None, [])}


def merged(record: Record, old: Mapping[str, Any]) -> tuple[Record, list[str]]:
    """A new record with what was known of its picture, and the text fields that it replaces.

    What the record says itself counts. A score goes with its paragraph, and an annotation's note
    on a text with that text.

    >>> old = {"captions": ["a dog"], "paragraph": "A dog. It runs.", "paragraph_score": 9}
    >>> record, replaced = merged(Record("7", captions=["a hound"]), old)
    >>> record.captions, record.paragraph_score, replaced
    (['a hound'], 9, ['captions'])
    """
    own = told(record)
    replaced = [n for n in TEXT_FIELDS if n in own and n in old and own[n] != old[n]]
    taken = {name: value for name, value in old.items() if name in CARRIED and name not in own}
    taken.pop("annotation", None)
    if "paragraph" in replaced:
        taken.pop("paragraph_score", None)
    notes = _notes(old.get("annotation"), own.get("annotation"), replaced)
    if notes is not None:
        taken["annotation"] = notes
    return replace(record, **taken), replaced


def _notes(old: str | None, own: str | None, replaced: Iterable[str]) -> str | None:
    """The notes of two annotations together, but for the old ones on fields that have changed."""
    try:
        before, now = json.loads(old or "{}"), json.loads(own or "{}")
    except (ValueError, RecursionError):
        return own or old
    if not isinstance(before, dict) or not isinstance(now, dict):
        return own or old
    gone = {_WRITTEN_AS.get(name) for name in replaced}
    notes = {kind: note for kind, note in before.items() if kind not in gone} | now
    if not notes:
        return None
    return own if notes == now else old if notes == before else json.dumps(notes)


class Left(NamedTuple):
    """A line of the file, by its number, and the picture that it belongs to."""

    number: int
    id: str
    content: str | None
    pixels: str | None

    @property
    def picture(self) -> str:
        """What tells the picture from others; records without one are told by their ids."""
        return self.content or f"id {self.id}"


class KeptTexts:
    """The texts of records that left their shards, found by content, by pixels or by id.

    On disk it is a file of JSON lines; in memory 24 bytes for each key of each line. Several
    threads may `take` from it.

    Attributes:
        carried: text fields that went on to a new record, and with how many.
        replaced: text fields in whose place a new record has another value, and in how many.
    """

    def __init__(self, folder: Path):
        """Read the keys of what is kept in a collection's folder."""
        self.carried: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self._folder = folder
        self._lock = Lock()
        self._lines: list[tuple[int, int]] = []  # begin and length
        self._used: dict[int, list[str]] = {}  # line: the fields that were replaced
        keys, lines = bytearray(), []
        seen: set[str] = set()
        for number, line in enumerate(self._read_all()):
            if (text := _as_line({**line, "pixels": None})) in seen or not line["texts"]:
                self._used[number] = []  # a killed run wrote it, and the next one again
                continue
            seen.add(text)
            for key in _keys(line["id"], line["content"], line["pixels"]):
                keys += key
                lines.append(number)
        found = np.frombuffer(bytes(keys), f"S{_KEY_BYTES}")
        order = np.argsort(found, kind="stable")
        self._keys, self._numbers = found[order], np.asarray(lines, np.int64)[order]

    def __len__(self) -> int:
        """How many records are kept."""
        return len(self._lines)

    def _read_all(self) -> Iterator[dict[str, Any]]:
        """Every sound line once; notes where each begins."""
        self._lines = []
        try:
            file = (self._folder / KEPT).open("rb")
        except FileNotFoundError:
            return
        with file:
            begin = 0
            for line in file:
                self._lines.append((begin, len(line)))
                begin += len(line)
                yield _sound(line)

    def line(self, number: int) -> dict[str, Any]:
        """What one line says."""
        begin, length = self._lines[number]
        with (self._folder / KEPT).open("rb") as file:
            return _sound(os.pread(file.fileno(), length, begin))

    def find(self, id: str, content: str | None, pixels: str | None) -> int | None:
        """The number of the line that belongs to a picture; that of the same id comes first."""
        for key in _keys(id, content, pixels):
            first, end = (
                int(np.searchsorted(self._keys, np.bytes_(key), side)) for side in ("left", "right")
            )
            numbers = self._numbers[first:end].tolist()
            if numbers:
                same = (n for n in reversed(numbers) if self.line(n)["id"] == id)
                return next(same, numbers[-1])  # the last was written last
        return None

    def take(
        self, record: Record, pixels: str | None, *, says_split: bool, texts: bool = True
    ) -> tuple[Record, bool]:
        """A new record with what is kept of its picture; whether there was anything.

        Args:
            record: as its source has it, with its content.
            pixels: `pixels_hash` of the picture, if it was decoded.
            says_split: the split of the record stays; otherwise the picture keeps its own.
            texts: take these too, and not only what is known of the picture beside them.
        """
        number = self.find(record.id, record.content, pixels)
        if number is None:
            return record, False
        line = self.line(number)
        if not says_split:
            record = replace(record, split=line["split"])
        if not texts:
            facts = {name: line["texts"][name] for name in FACTS if name in line["texts"]}
            return merged(record, facts)[0], True
        own = told(record)
        record, replaced = merged(record, line["texts"])
        with self._lock:
            if number not in self._used:
                self.carried.update(n for n in TEXT_FIELDS if n in line["texts"] and n not in own)
                self.replaced.update(replaced)
                self._used[number] = replaced
        return record, True

    def left(self) -> Iterator[Left]:
        """The lines that no record took."""
        for number in range(len(self._lines)):
            if number not in self._used:
                line = self.line(number)
                yield Left(number, line["id"], line["content"], line["pixels"])

    def give(self, number: int, record: Record, changes: dict[str, Any]) -> None:
        """Add to `changes` of a record that is there what it lacks of line `number`."""
        changed = replace(record, **changes)
        whole, replaced = merged(changed, self.line(number)["texts"])
        new = {
            name: value for name, value in told(whole).items() if value != told(changed).get(name)
        }
        changes.update(new)
        self.carried.update(name for name in TEXT_FIELDS if name in new)
        self.replaced.update(replaced)
        self._used[number] = replaced

    def settle(self) -> int:
        """Write down what was replaced, and keep only what has found no picture: how many."""
        replaced = {number: names for number, names in self._used.items() if names}
        if replaced:
            with (self._folder / REPLACED).open("a", encoding="utf-8") as file:
                for number, names in sorted(replaced.items()):
                    line = self.line(number)
                    texts = {name: line["texts"][name] for name in names}
                    file.write(_as_line({"id": line["id"], **texts}))
        if len(self._used) == len(self):
            (self._folder / KEPT).unlink(missing_ok=True)
        elif self._used:
            path = self._folder / KEPT
            with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                left = (n for n in range(len(self)) if n not in self._used)
                file.writelines(_as_line(self.line(number)) for number in left)
        return len(self) - len(self._used)

    def forget(self) -> None:
        """Drop everything that is kept."""
        (self._folder / KEPT).unlink(missing_ok=True)
        self._lines, self._used = [], {}


def keep(folder: Path, gone: Iterable[tuple[Record, str | None]]) -> None:
    """Add what is written about some records, each with its `pixels_hash`, to what is kept."""
    path = folder / KEPT
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")  # a run was killed in mid-line; its records are still there
        for record, pixels in gone:
            texts = told(record)
            if texts or record.split != "train":
                line = {
                    "id": record.id,
                    "content": record.content,
                    "pixels": pixels,
                    "split": record.split,
                    "texts": texts,
                }
                file.write(_as_line(line).encode())
        file.flush()
        os.fsync(file.fileno())
        empty = not file.tell()
    if empty:
        path.unlink()


def _as_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _keys(id: str, content: str | None, pixels: str | None) -> list[bytes]:
    """What a picture is found by, the surest first; a record without one is found by its id."""
    named = [f"content {content}"] if content else [f"id {id}"]
    named += [f"pixels {pixels}"] if pixels else []
    return [blake2b(name.encode("utf-8"), digest_size=_KEY_BYTES).digest() for name in named]


def _sound(line: bytes) -> dict[str, Any]:
    """A line as it was written; one that somebody spoilt holds nothing."""
    try:
        value = json.loads(line)
        return {
            "id": str(value["id"]),
            "content": value["content"],
            "pixels": value["pixels"],
            "split": str(value["split"]),
            "texts": {n: v for n, v in value["texts"].items() if n in CARRIED and v != _EMPTY[n]},
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"id": "", "content": None, "pixels": None, "split": "train", "texts": {}}
