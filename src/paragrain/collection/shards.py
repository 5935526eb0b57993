"""The Parquet files of an import, and the manifests that say that they are finished."""

import json
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection.record import SCHEMA, Record, combined, to_table
from paragrain.files import read_json, replacing, write_text

MEBIBYTE = 2**20
GROUP_BYTES = 8 * MEBIBYTE
"""Image bytes after which a row group ends: what reading a single image costs at most."""

FINGERPRINT = b"paragrain.fingerprint"
"""Key in the footer under which the sum of the records' digests stands."""

_FEW_VALUES = ("split", "source", "group")  # columns that repeat themselves

MANIFESTS = "manifests"
"""The folder of the manifests: `records` holds Parquet files alone, as other tools want it."""


class Row(NamedTuple):
    """A record on its way into a shard, and what its manifest says of it."""

    record: Record
    stamp: str
    digest: int
    pixels: str | None


class Entry(NamedTuple):
    """What a manifest says of a record."""

    id: str
    stamp: str
    split: str
    content: str | None
    pixels: str | None


def shard_path(folder: Path, number: int) -> Path:
    """The Parquet file of a shard."""
    return folder / "records" / f"part-{number:05d}.parquet"


def manifest_path(path: Path) -> Path:
    """The manifest of the Parquet file at `path`."""
    return path.parent.parent / MANIFESTS / f"{path.stem}.json"


def entries(manifest: Mapping[str, Any]) -> Iterator[Entry]:
    """What a manifest says of its records, in their order."""
    return (Entry(*item) for item in manifest["items"])


def parquet_writer(path: Path, schema: pa.Schema, dictionary: Names[str] = ()) -> pq.ParquetWriter:
    """A writer of Parquet files with the settings of all collections.

    Args:
        path: the new file.
        schema: its columns.
        dictionary: columns to be dictionary encoded, beside those that are in every collection.
    """
    columns = sorted({*_FEW_VALUES, *dictionary} - {"image.bytes"})
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=columns)


def write_shard(
    folder: Path, number: int, rows: list[Row], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write one Parquet file and then its manifest, which says that the file is finished.

    Args:
        folder: of the collection.
        number: of the shard.
        rows: its content.
        before: the manifest of the shard that it takes the place of, if there is one.
    """
    path = shard_path(folder, number)
    fingerprint = f"{combined(row.digest for row in rows):032x}"
    items = [[r.id, stamp, r.split, r.content, pixels] for r, stamp, _, pixels in rows]
    manifest = {"fingerprint": fingerprint, "items": items}
    with replacing(path) as temporary:
        with parquet_writer(temporary, SCHEMA) as writer:
            for group in _row_groups([row.record for row in rows]):
                writer.write_table(to_table(group))
            writer.add_key_value_metadata({FINGERPRINT: fingerprint})
        if before is not None:
            announce(path, before, manifest)
    write_manifest(path, manifest)
    return manifest


def _row_groups(records: list[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.image.bytes or b"")
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


# --- Manifests --------------------------------------------------------------------------------


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Say that the Parquet file at `path` is finished, unless that is said already."""
    target, text = manifest_path(path), json.dumps(manifest, ensure_ascii=False)
    if not target.is_file() or target.read_bytes() != text.encode():
        write_text(target, text)


def announce(path: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Have the manifest fit the Parquet file at `path` as it is, and as it will be in a moment.

    Without that, a shard whose file was replaced would pass for unfinished until its manifest is
    replaced too, and a kill in between would have the next import make its records anew, without
    what was written about them since.
    """
    write_manifest(path, {**before, "next": after})


def read_manifest(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """The manifest of the Parquet file at `path`, or None if there is none that fits it.

    Args:
        path: of the Parquet file.
        fingerprint: from its footer.
    """
    try:
        value = read_json(manifest_path(path))
    except (OSError, ValueError):
        return None
    announced = value.pop("next", None) if isinstance(value, dict) else None
    return next((v for v in (value, announced) if _is_manifest(v, fingerprint)), None)


def footer_fingerprint(metadata: pq.FileMetaData) -> str | None:
    """The fingerprint that the writer left in a Parquet file; other tools leave none."""
    kept = (metadata.metadata or {}).get(FINGERPRINT)
    return None if kept is None else kept.decode("ascii", "replace")


def finished_shards(
    folder: Path, numbers: Iterable[int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and manifest of every shard whose manifest fits its Parquet file, one at a time.

    Args:
        folder: of the collection.
        numbers: only those of these shards, whose files alone are then read.
    """
    if numbers is None:
        places = sorted((folder / MANIFESTS).glob("part-*.json"))
    else:
        places = [manifest_path(shard_path(folder, number)) for number in numbers]
    for place in places:
        path = folder / "records" / f"{place.stem}.parquet"
        try:
            fingerprint = footer_fingerprint(pq.read_metadata(path))
        except (OSError, pa.ArrowException):
            continue
        manifest = None if fingerprint is None else read_manifest(path, fingerprint)
        if manifest is not None:
            yield int(path.stem.removeprefix("part-")), manifest


def _is_manifest(value: Any, fingerprint: str) -> bool:
    """Whether a manifest has its form, and belongs to the Parquet file with that fingerprint."""
    return (
        isinstance(value, dict)
        and value.get("fingerprint") == fingerprint
        and isinstance(value.get("items"), list)
        and all(
            isinstance(item, list) and len(item) == len(Entry._fields) for item in value["items"]
        )
    )
