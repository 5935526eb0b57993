"""What a collection holds already, compared with what an import wants, and brought down to that."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.linking import IMAGES, LINKED, let_go, linked
from paragrain.collection.reading import read_shard
from paragrain.collection.record import digest
from paragrain.collection.shards import finished_shards, shard_path, write_shard
from paragrain.collection.wanted import Wanted
from paragrain.errors import UsageError
from paragrain.files import read_json


@dataclass
class There:
    """The finished shards of a collection, compared with what is wanted.

    Attributes:
        splits: records of each split in each shard.
        stale: of the shards that lose records, which rows stay, as bools.
        gone: records with ids that are not wanted.
        shares: whether any id is wanted.
    """

    splits: dict[int, Counter[str]] = field(default_factory=dict)
    stale: dict[int, np.ndarray] = field(default_factory=dict)
    gone: int = 0
    shares: bool = False


def compare(folder: Path, wanted: Wanted) -> There:
    """Find what of a collection stays, and mark it as no longer missing."""
    there = There()
    for number, manifest in finished_shards(folder):
        there.splits[number] = split_counts(manifest)
        places = wanted.places(id for id, _, _ in manifest["items"])
        stays = wanted.same_stamps(places, (stamp for _, stamp, _ in manifest["items"]))
        stays &= wanted.missing[places] if len(wanted) else False  # an earlier shard may have it
        wanted.missing[places[stays]] = False
        there.gone += int(np.sum(places < 0))
        there.shares |= bool(np.any(places >= 0))
        if not stays.all():
            there.stale[number] = stays
    return there


def split_counts(manifest: Mapping[str, Any]) -> Counter[str]:
    """Records of each split in a shard."""
    return Counter(split for _, _, split in manifest["items"])


def refuse_other_files(folder: Path) -> None:
    """Refuse what is no folder, or one that holds anything but a collection."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder to write the collection to")
    if folder.is_dir() and not (folder / "collection.json").is_file():
        if all(path.name.startswith(".") for path in folder.iterdir()):
            return
        raise UsageError(
            f"{folder} holds other files and is no collection: choose a new or an empty folder"
        )


def refuse_another_data_set(folder: Path, there: There) -> None:
    """Refuse a collection that this import would destroy, or would be mixed up with."""
    finished = {shard_path(folder, number) for number in there.splits}
    others = [p for p in (folder / "records").glob("*.parquet") if p not in finished]
    foreign = [path for path in others if _has_rows(path)]
    if foreign and not _was_interrupted(folder):
        raise UsageError(
            f"{folder} holds records that no import of this program made ({foreign[0].name}): "
            "choose another folder, or delete that one first"
        )
    if any(there.splits.values()) and not there.shares:
        raise UsageError(
            f"{folder} holds a collection that shares no id with this import, which would empty "
            "it: choose another folder, or delete that one first"
        )


def _has_rows(path: Path) -> bool:
    """Whether a Parquet file is whole, and so may be somebody's data rather than a remain."""
    try:
        return bool(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return False


def _was_interrupted(folder: Path) -> bool:
    """Whether the last import into `folder` was killed, and may have left unfinished shards."""
    try:
        info = read_json(folder / "collection.json")
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and info.get("complete") is False


def clear_away_remains(folder: Path, shards: Iterable[int]) -> None:
    """Delete what a killed run left: temporary files, and shards without a fitting manifest."""
    records = folder / "records"
    records.mkdir(exist_ok=True)
    finished = {shard_path(folder, number) for number in shards}
    unfinished = [p for p in records.glob("part-*") if p.with_suffix(".parquet") not in finished]
    ours = (
        "records/.part-*.tmp",
        ".collection.json.*.tmp",
        ".skipped.jsonl.*.tmp",
        f"{IMAGES}/.*.tmp",
    )
    temporary = [path for pattern in ours for path in folder.glob(pattern)]
    for path in unfinished + temporary:
        path.unlink()


def drop_stale(folder: Path, there: There) -> None:
    """Take out of the shards what is gone or has changed."""
    if not there.stale:
        return
    dropped: set[str] = set()
    for number, manifest in finished_shards(folder):
        if (stays := there.stale.get(number)) is None:
            continue
        path = shard_path(folder, number)
        if any(stamp.endswith(LINKED) for _, stamp, _ in manifest["items"]):
            dropped |= linked(path)
        if stays.any():
            entries = zip(manifest["items"], stays.tolist(), strict=True)
            stamps = {id: stamp for (id, stamp, _), stay in entries if stay}
            rows = [(r, stamps[r.id], digest(r)) for r in read_shard(path) if r.id in stamps]
            there.splits[number] = split_counts(write_shard(folder, number, rows, before=manifest))
        else:
            path.with_suffix(".json").unlink()
            path.unlink()
            del there.splits[number]
    let_go(folder, dropped, (shard_path(folder, number) for number in there.splits))
