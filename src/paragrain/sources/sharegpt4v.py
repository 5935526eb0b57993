"""ShareGPT4V: a JSON list of conversations about images, read as a stream."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, Item, Skipped, WriteOptions, write_collection
from paragrain.errors import UsageError
from paragrain.files import digest
from paragrain.sources.cells import Values, text_problem
from paragrain.sources.finding import Below, name_problem
from paragrain.sources.photo import merged, photo_item, said
from paragrain.sources.registry import importer
from paragrain.sources.texts import Texts

CHUNK_CHARACTERS = 2**20
"""How much of the JSON file is read at a time."""

MAX_ENTRY_CHARACTERS = 2**24
"""An entry that has not ended after so much is not waited for: the file is damaged there."""

IMAGE_TAG = "<image>"

_BETWEEN = re.compile(r"[ \t\r\n,]*")


@importer("sharegpt4v")
def import_sharegpt4v(
    entries: Path,
    images: Sequence[Path],
    out: Path,
    *,
    hold_out: int = 0,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    name: str = "sharegpt4v",
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring ShareGPT4V, or another list of LLaVA's form, into a collection.

    `entries` is a JSON list of `{"id", "image", "conversations": [{"from", "value"}, ...]}`, as in
    `share-captioner_coco_lcs_sam_1246k_1107.json`. The description of an image is the first turn
    that comes from "gpt", with every `<image>` taken out of it; what "human" asks is not kept.

    - An entry is a record. The ids in the real file repeat, so the id here is the path of the
      image, `coco/train2017/000000000009.jpg`; if an image has several entries, the later ones
      are `...jpg#2`, `...jpg#3`. The image's path is also the group of its records, so that their
      texts are never each other's wrong answers.
    - The image is looked for below each of `images` in turn, as `Below` does it; a folder is only
      looked through if a path does not lie in it as it stands, and some 300 bytes of each of its
      images then stay in memory.
    - With `hold_out`, the first so many entries of the file, whether they can be used or not, go
      into the split "test": Long-CLIP tests on its first 1,000. A note counts the later entries
      that show one of their images.
    - Named among the skipped: absent images, entries without an image, without a turn of "gpt" or
      with nothing in it, and a file that is cut off or damaged, whose entries before that come in.

    The list is streamed; about 150 bytes of each image stay in memory.

    Args:
        entries: the JSON file.
        images: folders that the paths of the images start from.
        out: the collection's folder.
        hold_out: number of entries for the split "test".
        texts: a table of further texts for all entries of an image, joined by its path; it stays
            in memory, and so do all paths. See `read_texts` and `TextTable.join`.
        split: of the others, where `texts` does not say another.
        name: of the data set.
        options: see `WriteOptions`.

    Raises:
        UsageError: `entries` is no JSON list, or a folder is not there.
        UsageError: none of the entries can be used.
    """
    if absent := [folder for folder in images if not folder.is_dir()]:
        raise UsageError(f"there is no folder {absent[0]}: check the path of the images")
    _check_list(entries)
    places = [Below(folder) for folder in images]
    tables = Texts(texts)
    joined = tables.join(_paths(entries, out)) if tables else {}
    held, others = said(split="test", source=name), said(split=split, source=name)
    problems = Skipped(out)
    notes: list[str] = []

    def items() -> Iterator[Item]:
        problems.clear()
        problems.extend(tables.problems)
        notes[:] = tables.notes
        seen = _Seen(hold_out)
        some = False
        for number, entry in enumerate(read_list(entries, problems)):
            values = held if number < hold_out else others
            if (item := _item(number, entry, places, values, joined, seen, problems)) is not None:
                some = True
                yield item
        if not some:
            why = problems.example()
            raise UsageError(f"no entry of {entries} can be used{why}: check the paths")
        notes.extend(seen.notes())

    return write_collection(
        out,
        items,
        name=name,
        source="sharegpt4v",
        problems=problems,
        notes=notes,
        **options,
    )


# --- A long JSON list -------------------------------------------------------------------------


def read_list(path: Path, problems: Skipped) -> Iterator[Any]:
    """Stream the values of a JSON list of objects, holding little more than one of them.

    Where the file is cut off or damaged, that is named and the stream ends.
    """
    decoder = json.JSONDecoder()
    count = at = 0
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        text = file.read(CHUNK_CHARACTERS).lstrip()[1:]  # the bracket, by `_check_list`
        while True:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if text.startswith("]", at):
                return
            try:
                value, end = decoder.raw_decode(text, at)
                whole = end < len(text) or isinstance(value, dict)  # a number may go on
            except (ValueError, RecursionError):
                whole = False
            if whole:
                yield value
                count, at = count + 1, end
                continue
            left = len(text) - at
            more = file.read(max(CHUNK_CHARACTERS, left)) if left < MAX_ENTRY_CHARACTERS else ""
            if not more:
                reason = "the file is cut off or damaged here: the entries before that come in"
                problems.append((f"entry {count + 1}", reason))
                return
            text, at = text[at:] + more, 0


def _check_list(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not start.startswith(b"["):
        raise UsageError(f"{path} is not in ShareGPT4V's layout: it needs to be a JSON list")


# --- Entries ----------------------------------------------------------------------------------


def _item(
    number: int,
    entry: Any,
    images: Sequence[Below],
    values: Values,
    joined: Mapping[str, Values],
    seen: "_Seen",
    problems: Skipped,
) -> Item | None:
    """The item of an entry; what is amiss with it becomes a problem."""
    entry = entry if isinstance(entry, dict) else {}
    path = entry.get("image")
    if problem := name_problem(path):
        problems.append((f"entry {number + 1}", problem))
        return None
    id = seen.id_of(number, path)
    text = description(entry.get("conversations"))
    if text is None:
        problems.append((id, "it has no turn that comes from gpt"))
        return None
    if problem := text_problem(text):
        problems.append((id, f"{problem} as its description"))
        return None
    for folder in images:
        found = folder.find(path)
        if len(found) == 1:
            own = {**values, "description": text, "group": path}
            file = folder.folder / found[0]
            return photo_item(id, file, found[0], merged(own, joined.get(path, {})))
        if found:
            fits = ", ".join(found[:3])
            problems.append((id, f"{path} fits {len(found)} files: {fits}"))
            return None
    problems.append((id, "its file is in none of the folders of images"))
    return None


def _paths(entries: Path, out: Path) -> dict[str, str]:
    """The paths of all entries' images."""
    every = read_list(entries, Skipped(out))
    paths = (entry.get("image") for entry in every if isinstance(entry, dict))
    return {path: path for path in paths if isinstance(path, str) and not name_problem(path)}


def description(turns: Any) -> Any:
    """The first turn of the model without image tags, or `None` if there is none.

    >>> description([{"from": "human", "value": "?"}, {"from": "gpt", "value": "<image> A cat."}])
    'A cat.'
    """
    for turn in turns if isinstance(turns, list) else []:
        if not isinstance(turn, dict):
            continue
        if turn.get("from", turn.get("role")) in ("gpt", "assistant"):
            text = turn.get("value", turn.get("content"))
            if isinstance(text, str) and IMAGE_TAG in text:
                return text.replace(IMAGE_TAG, "").strip()
            return text
    return None


class _Seen:
    """Which images came before, so that each entry gets an id of its own."""

    def __init__(self, hold_out: int):
        """Remember the images of the first `hold_out` entries apart."""
        self._hold_out = hold_out
        self._all: set[bytes] = set()
        self._held: set[bytes] = set()
        self._repeats: dict[bytes, int] = {}
        self._leaks = 0

    def id_of(self, number: int, path: str) -> str:
        """The id of entry `number`, counted from zero, which shows the image at `path`."""
        key = digest(path)
        if number < self._hold_out:
            self._held.add(key)
        elif key in self._held:
            self._leaks += 1
        if key not in self._all:
            self._all.add(key)
            return path
        self._repeats[key] = self._repeats.get(key, 1) + 1
        return f"{path}#{self._repeats[key]}"

    def notes(self) -> list[str]:
        """What the user should know of repeated images."""
        notes = []
        if repeats := sum(self._repeats.values()) - len(self._repeats):
            notes.append(f"{repeats:,} entries show an image that an entry before shows")
        if self._leaks:
            notes.append(f"{self._leaks:,} later entries show an image of the split test")
        return notes
