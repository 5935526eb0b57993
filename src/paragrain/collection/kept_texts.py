"""Texts on their way from a record that goes to the one that shows the same picture.

Whoever wrote a text, or paid for it, wrote it about a picture: it outlives the name of the file and
the import that brought it in. Before a record leaves its shard, what is written about it goes to
`kept_texts.jsonl`; a record that is made with the same bytes, or the same pixels, takes it from
there. What finds no picture stays in that file until the picture comes back.
"""

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from paragrain.collection.fields import FIELDS, Record, is_empty
from paragrain.collection.identities import TextIndex
from paragrain.collection.reading import Collection
from paragrain.collection.shards import finished_shards
from paragrain.collection.updating import update_collection
from paragrain.files import replacing

KEPT = "kept_texts.jsonl"
"""Texts without a picture, in the collection's folder."""

REPLACED = "replaced_texts.jsonl"
"""Texts in whose place an import put others; nothing reads it but people."""

TEXTS = tuple(name for name, field in FIELDS.items() if field.role == "text")
"""The fields of texts about a picture, nested ones too."""

CARRIED = tuple(name for name, field in FIELDS.items() if field.role != "record")
"""What follows a picture, beside its split."""


def carried(record: Record) -> dict[str, Any]:
    """What is known of a picture beside its name, by field; empty fields are absent.

    >>> carried(Record("7", captions=["a dog"], split="test"))
    {'captions': ['a dog']}
    """
    return {name: v for name in CARRIED if not is_empty(v := getattr(record, name))}


def merged(record: Record, old: Mapping[str, Any]) -> tuple[Record, list[str]]:
    """A new record with what was known of its picture, and the text fields that it replaces.

    What the record says itself counts. A score goes with its paragraph, and an annotation's note
    on a text with that text.

    >>> old = {"captions": ["a dog"], "paragraph": "A dog. It runs.", "paragraph_score": 9}
    >>> record, replaced = merged(Record("7", captions=["a hound"]), old)
    >>> record.captions, record.paragraph_score, replaced
    (['a hound'], 9, ['captions'])
    """
    own = carried(record)
    replaced = [n for n in TEXTS if n in own and n in old and own[n] != old[n]]
    taken = {name: value for name, value in old.items() if name in CARRIED and name not in own}
    if "paragraph" in replaced:
        taken.pop("paragraph_score", None)
    taken.pop("annotation", None)
    notes = _notes(old.get("annotation"), own.get("annotation"), replaced)
    if notes is not None:
        taken["annotation"] = notes
    return replace(record, **taken), replaced


def _notes(old: str | None, own: str | None, replaced: Iterable[str]) -> str | None:
    """The notes of two annotations together, but for the old ones on fields that have changed."""
    try:
        before, now = json.loads(old or "{}"), json.loads(own or "{}")
        gone = {FIELDS[name].annotated_as for name in replaced}
        notes = {kind: note for kind, note in before.items() if kind not in gone} | now
    except (ValueError, RecursionError, TypeError, AttributeError):
        return own or old
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
        dropped: text fields that were dropped, and of how many.
        waiting: pictures whose texts are still kept.
    """

    def __init__(self, folder: Path):
        """Read the keys of what is kept in a collection's folder."""
        self.carried: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.waiting = 0
        self._folder = folder
        self._lock = Lock()
        self._places: list[tuple[int, int]] = []  # of each line: where it begins, its length
        self._used: dict[int, list[str]] = {}  # line: the fields that were replaced
        self._line_of_key = array("q")
        self._keys = TextIndex(self._read_keys())

    def _read_keys(self) -> Iterator[str]:
        try:
            file = (self._folder / KEPT).open("rb")
        except FileNotFoundError:
            return
        seen: set[str] = set()
        with file:
            begin = 0
            for number, text in enumerate(file):
                self._places.append((begin, len(text)))
                begin += len(text)
                line = _sound(text)
                said = _as_line({**line, "pixels": None})
                if said in seen or not line["texts"]:
                    self._used[number] = []  # a killed run wrote it, and the next one again
                    continue
                seen.add(said)
                for key in _keys(line["id"], line["content"], line["pixels"]):
                    self._line_of_key.append(number)
                    yield key

    def line(self, number: int) -> dict[str, Any]:
        """What one line says."""
        begin, length = self._places[number]
        with (self._folder / KEPT).open("rb") as file:
            return _sound(os.pread(file.fileno(), length, begin))

    def _find(self, id: str, content: str | None, pixels: str | None) -> int | None:
        """The number of the line that belongs to a picture; that of the same id comes first."""
        for key in _keys(id, content, pixels):
            numbers = [self._line_of_key[place] for place in self._keys.all_places(key)]
            if numbers:
                same = (n for n in reversed(numbers) if self.line(n)["id"] == id)
                return next(same, numbers[-1])  # the last was written last
        return None

    def take(
        self, record: Record, pixels: str | None, *, says_split: bool, texts: bool = True
    ) -> tuple[Record, bool]:
        """A new record with what is kept of its picture; whether there was anything.

        Without `says_split` the picture keeps its own; without `texts` only facts are taken.
        """
        number = self._find(record.id, record.content, pixels)
        if number is None:
            return record, False
        line = self.line(number)
        if not says_split:
            record = replace(record, split=line["split"])
        if not texts:
            facts = {n: value for n, value in line["texts"].items() if FIELDS[n].role == "fact"}
            return merged(record, facts)[0], True
        with self._lock:
            return self._merge(number, record, line["texts"]), True

    def _merge(self, number: int, record: Record, old: Mapping[str, Any]) -> Record:
        """The record with the texts of a line, which is counted the first time."""
        own = carried(record)
        record, replaced = merged(record, old)
        if number not in self._used:
            self.carried.update(name for name in TEXTS if name in old and name not in own)
            self.replaced.update(replaced)
            self._used[number] = replaced
        return record

    def settle(self, *, drop: bool) -> None:
        """Give what no new record took to the records that show the same picture; keep the rest.

        Those are copies that were there before, and records that a killed run made. With `drop` it
        is all forgotten instead.
        """
        left = [
            Left(number, line["id"], line["content"], line["pixels"])
            for number in range(len(self._places))
            if number not in self._used
            for line in [self.line(number)]
        ]
        if drop:
            self._count_dropped(left)
            (self._folder / KEPT).unlink(missing_ok=True)
            return
        if left:
            self._give(left)
        self._write()
        self.waiting = len(self._places) - len(self._used)

    def _count_dropped(self, left: list[Left]) -> None:
        """Count the text fields of what is left that no record has as they are."""
        there = _by_picture(self._folder, {line.content for line in left}) if left else {}
        for line in left:
            has = [carried(record) for record in there.get(line.picture, [])]
            texts = self.line(line.number)["texts"]
            self.dropped.update(
                name
                for name in TEXTS
                if name in texts and not any(own.get(name) == texts[name] for own in has)
            )

    def _give(self, left: list[Left]) -> None:
        """Fill the empty fields of records with what is left of their pictures."""
        by_pixels = {
            entry.pixels: entry.content
            for shard in finished_shards(self._folder)
            for entry in shard.entries
            if entry.pixels
        }
        same = {line.number: by_pixels.get(line.pixels or "") for line in left}
        there = _by_picture(self._folder, {line.content for line in left} | {*same.values()})
        changed: dict[str, tuple[Record, Record]] = {}  # before and after
        for line in left:
            records = there.get(line.picture) or there.get(same[line.number] or "")
            if records:
                record = next((r for r in records if r.id == line.id), records[0])
                before, now = changed.get(record.id, (record, record))
                changed[record.id] = (
                    before,
                    self._merge(line.number, now, self.line(line.number)["texts"]),
                )
        changes = {}
        for id, (before, now) in changed.items():
            old, new = carried(before), carried(now)
            changes[id] = {name: value for name, value in new.items() if value != old.get(name)}
        update_collection(self._folder, changes)

    def _write(self) -> None:
        """Write down what was replaced, and keep only what has found no picture."""
        replaced = sorted((number, names) for number, names in self._used.items() if names)
        if replaced:
            with (self._folder / REPLACED).open("a", encoding="utf-8") as file:
                for number, names in replaced:
                    line = self.line(number)
                    texts = {name: line["texts"][name] for name in names}
                    file.write(_as_line({"id": line["id"], **texts}))
        path = self._folder / KEPT
        if len(self._used) == len(self._places):
            path.unlink(missing_ok=True)
        elif self._used:
            with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                left = (n for n in range(len(self._places)) if n not in self._used)
                file.writelines(_as_line(self.line(number)) for number in left)


def keep(folder: Path, gone: Iterable[tuple[Record, str | None]]) -> None:
    """Add what is written about some records, each with its `pixels_hash`, to what is kept."""
    path = folder / KEPT
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")  # a run was killed in mid-line; its records are still there
        for record, pixels in gone:
            texts = carried(record)
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


def _by_picture(folder: Path, contents: Set[str | None]) -> dict[str, list[Record]]:
    """The records with some contents, and those without a picture by their id."""
    found: dict[str, list[Record]] = {}
    if not any(True for _ in finished_shards(folder)):
        return found
    for record in Collection.open(folder).records():
        if record.content is None or record.content in contents:
            found.setdefault(record.content or f"id {record.id}", []).append(record)
    return found


def _as_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _keys(id: str, content: str | None, pixels: str | None) -> list[str]:
    """What a picture is found by, the surest first; a record without one is found by its id."""
    named = [f"content {content}"] if content else [f"id {id}"]
    return named + ([f"pixels {pixels}"] if pixels else [])


def _sound(line: bytes) -> dict[str, Any]:
    """A line as it was written; one that somebody spoilt holds nothing."""
    try:
        value = json.loads(line)
        return {
            "id": str(value["id"]),
            "content": value["content"],
            "pixels": value["pixels"],
            "split": str(value["split"]),
            "texts": {n: v for n, v in value["texts"].items() if n in CARRIED and not is_empty(v)},
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"id": "", "content": None, "pixels": None, "split": "train", "texts": {}}
