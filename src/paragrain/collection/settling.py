"""The end of an import: what it leaves of old texts finds its place, copies come to one split."""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragrain.collection.kept import KeptTexts, Left, told
from paragrain.collection.reading import Collection
from paragrain.collection.record import TEXT_FIELDS, Record
from paragrain.collection.shards import entries, finished_shards
from paragrain.collection.splitting import TRAIN, Shares, moved
from paragrain.collection.updating import update_records


@dataclass
class TextsFate:
    """What became of the texts of records that left their shards; see `ImportReport`."""

    carried: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    waiting: int = 0


def settle_texts(folder: Path, kept: KeptTexts, *, drop: bool) -> TextsFate:
    """Give what no new record took to the records that show the same picture; keep the rest.

    Those are copies that were there before, and records that a killed run made.

    Args:
        folder: of the collection.
        kept: what left the shards.
        drop: forget it all instead.
    """
    fate = TextsFate(kept.carried, kept.replaced)
    if drop:
        fate.dropped = _lost(folder, kept)
        kept.forget()
        return fate
    left = list(kept.left())
    if left:
        _give(folder, kept, left)
    fate.waiting = kept.settle()
    return fate


def _lost(folder: Path, kept: KeptTexts) -> Counter[str]:
    """Text fields of what is kept that no record has as they are, and how many times."""
    counts: Counter[str] = Counter()
    left = list(kept.left())
    there = _by_picture(folder, {line.content for line in left}) if left else {}
    for line in left:
        has = [told(record) for record in there.get(line.picture, [])]
        texts = kept.line(line.number)["texts"]
        counts.update(
            name
            for name in TEXT_FIELDS
            if name in texts and not any(own.get(name) == texts[name] for own in has)
        )
    return counts


def _by_picture(folder: Path, contents: Set[str | None]) -> dict[str, list[Record]]:
    """The records with some contents, and those without a picture by their id."""
    found: dict[str, list[Record]] = {}
    if not any(True for _ in finished_shards(folder)):
        return found
    for record in Collection.open(folder).records():
        if record.content is None or record.content in contents:
            found.setdefault(record.content or f"id {record.id}", []).append(record)
    return found


def _give(folder: Path, kept: KeptTexts, left: list[Left]) -> None:
    """Fill the empty fields of records with what is kept of their pictures."""
    by_pixels = {
        entry.pixels: entry.content
        for _, manifest in finished_shards(folder)
        for entry in entries(manifest)
        if entry.pixels
    }
    contents = {line.content for line in left} | {by_pixels.get(line.pixels or "") for line in left}
    there = _by_picture(folder, contents)
    changes: dict[str, dict[str, Any]] = {}
    for line in left:
        named = (line.picture, by_pixels.get(line.pixels or ""))
        records = next((there[name] for name in named if name in there), [])
        if records:
            record = next((r for r in records if r.id == line.id), records[0])
            kept.give(line.number, record, changes.setdefault(record.id, {}))
    _write(folder, changes)


def _write(folder: Path, changes: dict[str, dict[str, Any]]) -> None:
    """Change records wherever they lie."""
    changes = {id: values for id, values in changes.items() if values}
    if not changes:
        return
    for file, ids in Collection.open(folder).files().items():
        own = {id: changes[id] for id in ids if id in changes}
        if own:
            update_records(folder, file, own)


def settle_splits(
    folder: Path, shares: Shares, fresh: Set[str], unsaid: Iterable[str] | None
) -> None:
    """Bring images that are tied to each other, by group, bytes or pixels, into one split.

    Args:
        folder: of the collection.
        shares: of the splits.
        fresh: the ids of the new images whose split nobody says.
        unsaid: where the shares are new, the ids of all such images: of these, too, what is in
            "train" is divided.
    """
    if not any(True for _ in finished_shards(folder)):
        return
    divided = set(unsaid or ())

    def movable(id: str, split: str) -> bool:
        return id in fresh or (id in divided and split == TRAIN)

    splits = moved(Collection.open(folder), shares, movable)
    _write(folder, {id: {"split": split} for id, split in splits.items()})
