"""Samples of WebDataset and img2dataset: members by a common key, in tars, folders or Parquet."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paragrain.collection import BadRecord, Skipped, Store
from paragrain.errors import UsageError
from paragrain.images import IMAGE_SUFFIXES, UNREADABLE, content_hash
from paragrain.sources.names import folded, shown
from paragrain.sources.packed import Packed
from paragrain.sources.parts import TAR, TEXT_SUFFIXES, Part, members_of
from paragrain.sources.texts import TEXT_COLUMNS
from paragrain.sources.walking import Walk, dropping, walk

IMAGE_COLUMNS = ("jpg", "png", "webp")
"""Columns of img2dataset's Parquet files in which it puts the encoded images."""


@dataclass
class Sample:
    """The members that share a key.

    Attributes:
        id: see `import_webdataset`.
        stamp: changes with the size or time of the tar or of the files.
        image: the picture.
        absent: why there is none, where img2dataset's Parquet says so.
        texts: the text members, in order.
        info: the `.json`, if there is one, or what the columns of Parquet say.
    """

    id: str
    stamp: str = ""
    image: Part | None = None
    absent: str = ""
    texts: list[Part] = field(default_factory=list)
    info: Part | dict[str, Any] | None = None

    def read_info(self) -> dict[str, Any]:
        """What the `.json` says, or nothing if there is none.

        Raises:
            BadRecord: it is not a JSON object.
            OSError: it cannot be read.
        """
        if not isinstance(self.info, Part):
            return self.info or {}
        try:
            value = json.loads(self.info.read())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BadRecord("its .json is not a JSON object")
        return value


@dataclass
class Found:
    """Tars, folders of files and Parquet files that hold samples.

    Attributes:
        tars: path and prefix of the ids, in the order of the prefixes.
        folders: the same of folders with files in them.
        tables: the same of Parquet files.
        problems: what was looked for and is not there.
        packed: reads what is not there as it is.
        hidden: files in folders that devices and programs have left, by what did.
        left_out: the same in tars, since the last reading began.
    """

    tars: list[tuple[Path, str]] = field(default_factory=list)
    folders: list[tuple[Path, str]] = field(default_factory=list)
    tables: list[tuple[Path, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    packed: Packed = field(default_factory=Packed)
    hidden: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def notes(self) -> list[str]:
        """What was left out, in a sentence."""
        return Walk(left_out=self.hidden + self.left_out).notes()


def find_samples(samples: Path, out: Path | None = None) -> Found:
    """Find what holds samples, at a path or by a pattern; see `import_webdataset`.

    Args:
        samples: path or pattern.
        out: a folder to leave out, with all in it.

    Raises:
        UsageError: there is nothing.
    """
    found = Found()
    if samples.is_dir():
        _walk(samples, found, None if out is None else out.resolve())
    elif samples.is_file() and samples.suffix != ".parquet":
        found.tars.append((samples, TAR.sub("", samples.name)))
    elif samples.is_file():
        _sort_in(samples, samples.name, found)
    else:
        _match(samples, found)
    if not found.tars and not found.folders and not found.tables:
        damaged = "".join(f" ({name}: {reason})" for name, reason in found.problems[:1])
        raise UsageError(
            f"there are no tar files and no images at {samples}{damaged}: check the path, or the "
            "pattern, such as 'shards/{00000..00009}.tar'"
        )
    return found


def _walk(folder: Path, found: Found, own: Path | None) -> None:
    walked = walk(folder, own=own)
    found.problems += walked.problems
    found.hidden += walked.left_out
    holding = dict.fromkeys(
        path.rpartition("/")[0]
        for path in walked.files
        if PurePosixPath(path).suffix.lower() in IMAGE_SUFFIXES
    )
    found.folders += [(folder / path, path) for path in holding]
    for path in walked.files:
        _sort_in(folder / path, path, found)


def _sort_in(path: Path, name: str, found: Found) -> None:
    """Put a file where it belongs; Parquet files without images are img2dataset's lists."""
    if TAR.search(name):
        found.tars.append((path, TAR.sub("", name)))
    elif path.suffix == ".parquet":
        try:
            holds_images = image_column(path) is not None
        except (OSError, pa.ArrowException):
            found.problems.append((shown(name), "it is damaged or no Parquet file"))
        else:
            found.tables += [(path, name.removesuffix(".parquet"))] if holds_images else []


def image_column(table: Path) -> str | None:
    """The column of a Parquet file that holds encoded images, if there is one.

    Raises:
        OSError, pa.ArrowException: it cannot be read.
    """
    schema = pq.read_schema(table)
    kinds = (pa.binary(), pa.large_binary())
    has = (name for name in IMAGE_COLUMNS if name in schema.names)
    return next((name for name in has if schema.field(name).type in kinds), None)


def _match(pattern: Path, found: Found) -> None:
    """Find the files of a pattern with {first..last} and {a,b} in it; absent ones are named."""
    text = str(pattern)
    if "{" not in text:
        return
    base = Path(text[: text.index("{")] + "x").parent
    for path in map(Path, expand_braces(text)):
        if path.is_file():
            _sort_in(path, path.relative_to(base).as_posix(), found)
        else:
            found.problems.append((str(path), "there is no such file"))


def check_store(found: Found, store: Store | None) -> None:
    """Refuse to link images that are no files of their own.

    Raises:
        UsageError: there are such images, and they are to be linked.
    """
    packed = [path for path, _ in found.tars + found.tables]
    if store == "paths" and packed:
        raise UsageError(
            f"images inside {packed[0].name} are no files that could be linked: store them as "
            "bytes, or unpack it into a folder first"
        )


def expand_braces(pattern: str) -> list[str]:
    """The names that a shell's braces stand for.

    >>> expand_braces("{a,b}/{08..10}.tar")
    ['a/08.tar', 'a/09.tar', 'a/10.tar', 'b/08.tar', 'b/09.tar', 'b/10.tar']
    """
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [[part] if not n % 2 else _choices(part) for n, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def _choices(inside: str) -> list[str]:
    if not (numbers := re.fullmatch(r"(\d+)\.\.(\d+)", inside)):
        return inside.split(",")
    first, last = numbers.groups()
    return [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]


def read_samples(found: Found, problems: Skipped) -> Iterator[Sample]:
    """Stream the samples that have an image, or say why they have none, a file at a time.

    Args:
        found: from `find_samples`.
        problems: takes what is amiss.
    """
    found.left_out.clear()
    for tar, prefix in found.tars:
        members = members_of(tar, prefix, found.packed, problems)
        yield from _grouped(members, prefix, _stamp(tar), found, problems)
    for folder, prefix in found.folders:
        yield from _grouped(_files(folder), prefix, None, found, problems)
    for table, prefix in found.tables:
        yield from _rows(table, prefix, found.packed, problems)


def _stamp(path: Path) -> str:
    state = path.stat()
    return content_hash(f"{state.st_size} {state.st_mtime_ns}".encode())


def _rows(path: Path, prefix: str, packed: Packed, problems: Skipped) -> Iterator[Sample]:
    """The samples of a Parquet file, by all of its columns but the images'."""
    try:
        stamp, image = _stamp(path), image_column(path)
        with pq.ParquetFile(path) as parquet:
            known = {"key", "url", "status", "error_message", *TEXT_COLUMNS}
            names = [name for name in parquet.schema_arrow.names if name in known]
            infos = (
                info for batch in parquet.iter_batches(columns=names) for info in batch.to_pylist()
            )
            for row in range(parquet.metadata.num_rows):
                info = next(infos) if names else {}
                key = str(info.get("key") or f"{row:09d}")
                if problem := _name_problem(id := f"{prefix}/{key}", key):
                    problems.append((shown(id), problem))
                    continue
                yield _row(Sample(id, stamp, info=info), Part(path, row, 0, f".{image}", packed))
    except (OSError, pa.ArrowException) as error:
        reason = f"damaged ({str(error).splitlines()[0]}): the samples before that come in"
        problems.append((shown(f"{prefix}.parquet"), reason))


def _row(sample: Sample, image: Part) -> Sample:
    info = sample.read_info()
    if info.get("status") in (None, "success"):
        sample.image = image
    else:
        why = f": {error}" if (error := info.get("error_message")) else ""
        sample.absent = f"its image was not fetched ({info['status']}{why})"
    return sample


def _files(folder: Path) -> Iterator[tuple[str, Part]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file() and not entry.name.startswith("."):
            suffix = PurePosixPath(entry.name).suffix.lower()
            yield entry.name, Part(Path(entry.path), 0, entry.stat().st_size, suffix)


def _grouped(
    members: Iterator[tuple[str, Part]],
    prefix: str,
    stamp: str | None,
    found: Found,
    problems: Skipped,
) -> Iterator[Sample]:
    """The samples of one tar or folder, in the order of their first members."""
    groups: dict[str, list[Part]] = {}
    for name, part in members:
        path = name.removeprefix("./")
        if (left_by := dropping(path)) is not None:
            found.left_out[left_by] += part.suffix in IMAGE_SUFFIXES
            continue
        key = path[: len(path) - len(part.suffix)]
        id = (f"{prefix}/" if prefix else "") + key
        if problem := _name_problem(id, path):
            problems.append((shown(id), problem))
        elif part.suffix in UNREADABLE:
            problems.append((id, UNREADABLE[part.suffix]))
        elif part.suffix in IMAGE_SUFFIXES | {*TEXT_SUFFIXES, ".json"}:
            groups.setdefault(id, []).append(part)
    for id, parts in _by_image(groups):
        sample = Sample(id)
        if problem := _fill(sample, parts):
            problems.append((id, problem))
        if sample.image is not None:
            sample.stamp = stamp or _own_stamp(sample)
            yield sample


def _by_image(groups: dict[str, list[Part]]) -> Iterator[tuple[str, list[Part]]]:
    """The groups, after texts that name an image with its extension have found it.

    `a.jpg.txt` belongs to `a.jpg`. If `a.png` is there too, `a.jpg` leaves the group "a" with it.
    """
    _join_forms(groups)
    several = {id for id, parts in groups.items() if len(_images(parts)) > 1}
    for id in list(groups):
        suffix = PurePosixPath(id).suffix
        key = id[: len(id) - len(suffix)]
        texts = groups[id]
        if suffix.lower() not in IMAGE_SUFFIXES or key not in groups or _images(texts):
            continue
        near = groups[key]
        if not (own := [part for part in _images(near) if part.suffix == suffix.lower()]):
            continue
        if key not in several:
            near += texts
            del groups[id]
        else:
            near.remove(own[0])
            texts.insert(0, own[0])
    yield from groups.items()


def _join_forms(groups: dict[str, list[Part]]) -> None:
    """Give texts whose names differ in Unicode's form or in case alone to the one image."""
    by_form: dict[str, list[str]] = defaultdict(list)
    for id, parts in groups.items():
        if _images(parts):
            by_form[folded(id)].append(id)
    for id in [id for id, parts in groups.items() if not _images(parts)]:
        if len(near := by_form.get(folded(id), [])) == 1:
            groups[near[0]] += groups.pop(id)


def _images(parts: list[Part]) -> list[Part]:
    return [part for part in parts if part.suffix in IMAGE_SUFFIXES]


def _fill(sample: Sample, parts: list[Part]) -> str | None:
    """Give the parts their places in the sample, or say why some have none."""
    images = _images(parts)
    texts = [part for part in parts if part.suffix in TEXT_SUFFIXES]
    infos = [part for part in parts if part.suffix == ".json"]
    if not images:
        return "its text has no image beside it" if parts else None
    if len(images) > 1 and len(texts) + len(infos) > 1:
        kinds = ", ".join(part.suffix for part in parts)
        return f"which text belongs to which of its {len(images)} images is not clear ({kinds})"
    sample.image, sample.texts, sample.info = images[0], texts, next(iter(infos[-1:]), None)
    if len(images) > 1:
        return f"a second image with this key, {images[1].suffix}, is left out"
    if len(infos) > 1:
        return "a second .json with this key: the later one counts"
    return None


def _name_problem(id: str, path: str) -> str | None:
    if shown(id) != id:
        return "its name is not valid Unicode: rename it"
    if ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
        return "its name leads out of the tar's own folder"
    return None


def _own_stamp(sample: Sample) -> str:
    members = (sample.image, sample.info, *sample.texts)
    parts = [part for part in members if isinstance(part, Part)]
    state = [(part.file.name, part.size, part.file.stat().st_mtime_ns) for part in parts]
    return content_hash(json.dumps(state).encode())
