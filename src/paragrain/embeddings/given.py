"""Image embeddings that were made elsewhere, stored where computed ones are kept.

They belong to a space that is told from others by its name and width alone, and so may be given to
any number of collections; `load_encoder("vectors:NAME:WIDTH+TEXT")` finds them there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paragrain.collection import Collection
from paragrain.embeddings.cache import Cache
from paragrain.embeddings.embedding import known_contents, records_with_images
from paragrain.encoders.vision import PrecomputedEmbeddings
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json
from paragrain.images import BadImage, content_hash
from paragrain.progress import progress_bar
from paragrain.sources.finding import Finder
from paragrain.sources.tables import CELL_SUFFIXES, JSON_SUFFIXES, table_rows

BLOCK = 8192
"""Rows that are in memory at a time."""

SAME = 1e-3
"""Two unit vectors are taken for one if no number differs by more: half precision allows that."""

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class GivenReport:
    """What became of vectors that were given to a collection.

    Attributes:
        space: `vectors:NAME:WIDTH`, the image side of a pair: `SPACE+TEXT` is its name.
        folder: where they are stored.
        dim: D, their width.
        rows: in the file.
        stored: records of the collection that got their vector by it.
        refused: ids whose rows are no directions, or contradict each other.
        absent: ids of the file that the collection does not have.
        without: records of the collection that have no vector in this space.
        failed: (id, reason) of all of these.
    """

    space: str
    folder: Path
    dim: int
    rows: int
    stored: int
    refused: int
    absent: int
    without: int
    failed: list[tuple[str, str]] = field(repr=False)


def store_vectors(
    collection: Collection,
    vectors: Path,
    ids: Path,
    *,
    name: str | None = None,
    split: str | None = None,
    progress: bool = True,
) -> GivenReport:
    """Store vectors from a file as image embeddings of a collection, brought to unit length.

    They take the place of those that were given before for the same images under the same name;
    others stay. The file is read block by block, never as a whole. Nothing is unpickled.

    As all image embeddings, they belong to an image's bytes: records of equal images share one.

    Args:
        collection: whose records the ids name.
        vectors: a `.npy` file of floating-point numbers `[R, D]`.
        ids: R ids in the same order: `.txt` (one a line), `.json` (a list), `.npy` (strings), or a
            `.csv`, `.tsv` or `.jsonl` with a column `id`. One that is not in the collection as
            it stands is found by the rules of names; see `sources.finding.Finder`.
        name: of the space; the name of the file if not given.
        split: the records of this split only.
        progress: whether to show progress.

    Raises:
        UsageError: a file is of another kind, or there are not as many ids as rows.
        ParagrainError: the folder cannot be written.
    """
    matrix = _open_matrix(vectors)
    listed = read_ids(ids)
    if len(listed) != len(matrix):
        raise UsageError(
            f"{vectors} holds {len(matrix):,} vectors but {ids} {len(listed):,} ids: "
            "give one id for each row, in the same order"
        )
    name = vectors.stem if name is None else name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name vectors: give a name of letters, digits, dots and dashes (--as)"
        )
    dim = matrix.shape[1]
    space, side = f"vectors:{name}:{dim}", PrecomputedEmbeddings(name, dim)
    cache = Cache.open(collection.folder / "embeddings" / side.vision_fingerprint, dim)
    if cache.folder is None:
        raise ParagrainError(
            f"vectors cannot be stored in {collection.folder}, which cannot be written: "
            "copy the collection to a folder that can"
        )
    contents = known_contents(collection, split)
    listed = _meant(listed, contents)
    absent = [(id, f"not in {collection.place(split)}") for id in listed if id not in contents]
    rows, refused = _one_row_each(listed, contents, matrix)
    refused += _not_directions(rows, matrix, progress)
    refused += _hash_unknown(collection, split, rows, contents)
    chosen, contradictions = _by_content(rows, contents, matrix)
    refused += contradictions

    held = [content for content in cache.vectors if content not in chosen]
    without = [
        (id, f"no row of {ids} names it")
        for id, content in contents.items()
        if content not in chosen and content not in cache.vectors
    ]
    told = {id for id, _ in refused}
    without = [pair for pair in without if pair[0] not in told]
    old = np.stack([cache.vectors[c] for c in held]) if held else np.zeros((0, dim), np.float32)
    if held:
        cache.add(held, old)  # a kill loses only what can be given again

    def blocks() -> Iterator[np.ndarray]:
        yield old
        yield from (unit for _, unit in _unit_blocks(list(chosen.values()), matrix))

    cache.put([*held, *chosen], blocks(), side.vision_fingerprint, space)
    return GivenReport(
        space=space,
        folder=cache.folder,
        dim=dim,
        rows=len(matrix),
        stored=sum(contents[id] in chosen for id in rows),
        refused=len(refused),
        absent=len(absent),
        without=len(without),
        failed=[*refused, *absent, *without],
    )


def read_ids(path: Path) -> list[str]:
    """The ids that a file lists, as strings.

    Raises:
        UsageError: it cannot be read, or is of another kind.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".txt":
            lines = path.read_text("utf-8-sig").split("\n")  # which alone ends a line
            return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
        if suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            if array.ndim != 1 or array.dtype.kind != "U":
                raise ValueError(f"an array of {array.dtype} and shape {array.shape}, not strings")
            return [str(id) for id in array]
        if suffix == ".json":
            return [_id(value, f"entry {number}") for number, value in enumerate(_list(path), 1)]
    except (OSError, EOFError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"the ids in {path} cannot be read: {reason}") from error
    if suffix not in CELL_SUFFIXES + JSON_SUFFIXES:
        raise UsageError(
            f"{path} is no list of ids: use .txt, .json, .npy, or .csv, .tsv, .jsonl with a "
            "column id"
        )
    return _column(path)


def _column(path: Path) -> list[str]:
    """The column `id` of a table; every row must tell one, since its place says whose it is."""

    def refuse(place: str, reason: str) -> None:
        raise UsageError(f"the ids in {path} cannot be read: {place}: {reason}")

    def check(path: Path, columns: list[str]) -> None:
        if "id" not in columns:
            raise UsageError(f"{path} has no column id: it has {', '.join(columns) or 'none'}")

    rows = table_rows(path, refuse, check_columns=check)
    try:
        return [_id(row.get("id"), f"line {line}") for line, row in rows]
    except ValueError as error:
        raise UsageError(f"the ids in {path} cannot be read: {error}") from None


def _list(path: Path) -> list[object]:
    value = read_json(path)
    if not isinstance(value, list):
        raise ValueError("JSON, but not a list")
    return value


def _id(value: object, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{place} is {type(value).__name__}, not an id")


def _open_matrix(path: Path) -> np.ndarray:
    """The array of a `.npy` file, mapped and not read."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"the vectors in {path} cannot be read: {reason}") from error
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not matrix.shape[1]:
        shape = getattr(matrix, "shape", "of several arrays")
        raise UsageError(f"{path} holds no table of vectors ({shape}): save an array [R, D]")
    if matrix.dtype.kind != "f":
        raise UsageError(f"{path} holds {matrix.dtype}, not vectors: save floating-point numbers")
    return matrix


def _unit(rows: np.ndarray) -> np.ndarray:
    """Float32 `[n, D]` of unit length; NaN where a row has no direction."""
    exact = rows.astype(np.float64)
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        lengths[~np.isfinite(lengths) | (lengths == 0)] = np.nan
        return (exact / lengths).astype(np.float32)


def _unit_blocks(rows: list[int], matrix: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Where each block of `rows` begins, and its unit vectors."""
    for start in range(0, len(rows), BLOCK):
        yield start, _unit(matrix[rows[start : start + BLOCK]])


def _differ(one: int, other: int, matrix: np.ndarray) -> bool:
    """Whether two rows are two directions; a row that is none differs from all."""
    first, second = _unit(matrix[[one, other]])
    return not bool(np.abs(first - second).max() <= SAME)


def _meant(listed: list[str], known: Iterable[str]) -> list[str]:
    """The ids that are listed, as the collection writes those that are not in it as they stand.

    >>> _meant(["3", "a.jpg", "007", "x"], ["000000000003", "b/a.jpg", "7", "007"])
    ['000000000003', 'b/a.jpg', '007', 'x']
    """
    ids = {id: id for id in known}
    if all(id in ids for id in listed):
        return listed
    finder, taken = Finder(ids), set(listed)
    found = {id: finder.find(id) for id in listed if id not in ids}
    sure = {id: ids[0] for id, ids in found.items() if len(ids) == 1 and ids[0] not in taken}
    return [sure.get(id, id) for id in listed]


def _one_row_each(
    listed: list[str], contents: dict[str, str | None], matrix: np.ndarray
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The row of each id of the collection, and the ids that have several that differ."""
    rows: dict[str, int] = {}
    torn: dict[str, str] = {}
    for row, id in enumerate(listed):
        if id not in contents:
            continue
        first = rows.setdefault(id, row)
        if first != row and id not in torn and _differ(first, row, matrix):
            torn[id] = f"rows {first + 1:,} and {row + 1:,} both name it and differ"
    return {id: row for id, row in rows.items() if id not in torn}, list(torn.items())


def _not_directions(
    rows: dict[str, int], matrix: np.ndarray, progress: bool
) -> list[tuple[str, str]]:
    """Take out of `rows` those that are zero or not finite, and name them."""
    ids, bad = list(rows), []
    with progress_bar("storing vectors", len(ids), unit="vectors", show=progress) as advance:
        for start, unit in _unit_blocks(list(rows.values()), matrix):
            for place in np.flatnonzero(np.isnan(unit).any(axis=1)):
                id = ids[start + int(place)]
                bad.append((id, "its vector is zero or not finite"))
                del rows[id]
            advance(len(unit))
    return bad


def _hash_unknown(
    collection: Collection,
    split: str | None,
    rows: dict[str, int],
    contents: dict[str, str | None],
) -> list[tuple[str, str]]:
    """Hash the images of records that do not tell their content; names those that cannot be."""
    bad = []
    unknown = [id for id in rows if contents[id] is None]
    for record in records_with_images(collection, split, unknown):
        try:
            contents[record.id] = content_hash(collection.image_bytes(record))
        except BadImage as error:
            bad.append((record.id, error.reason))
            del rows[record.id]
    return bad


def _by_content(
    rows: dict[str, int], contents: dict[str, str | None], matrix: np.ndarray
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The row of each image, and the records whose image is another's but whose row differs."""
    chosen: dict[str, int] = {}
    owner: dict[str, str] = {}
    bad = []
    for id in contents:
        if id not in rows:
            continue
        content = str(contents[id])
        first = chosen.setdefault(content, rows[id])
        owner.setdefault(content, id)
        if first != rows[id] and _differ(first, rows[id], matrix):
            bad.append((id, f"its image is that of {owner[content]}, whose vector differs and is "
                            "used for both"))  # fmt: skip
    return chosen, bad
