"""Samples of WebDataset and img2dataset: members by a common key, in tars, folders or Parquet."""

import json
import os
import re
import tarfile
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
from paragrain.sources.names import shown
from paragrain.sources.packed import BROKEN, Packed, compression
from paragrain.sources.texts import TEXT_COLUMNS

TEXT_SUFFIXES = (".txt", ".text", ".caption")
"""Members with these extensions hold captions, one a line."""

TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|tzst)$")
"""The end of a tar's name; what it is compressed with its first bytes say."""

IMAGE_COLUMNS = ("jpg", "png", "webp")
"""Columns of img2dataset's Parquet files in which it puts the encoded images."""


@dataclass(frozen=True)
class Part:
    """Where one member of a sample lies: in a tar, a Parquet file, or as a file of its own.

    Attributes:
        file: the one that holds it.
        start: its first byte in the file, or in what a compressed tar holds; in Parquet its row.
        size: its bytes; of no meaning in Parquet.
        suffix: its extension, and ".jpg" for the column "jpg".
        packed: what reads it out of a compressed tar or a Parquet file.
    """

    file: Path
    start: int
    size: int
    suffix: str
    packed: Packed | None = None

    def read(self) -> bytes:
        """The bytes.

        Raises:
            BadRecord: the file ends or is damaged before their end.
            OSError: it cannot be read.
        """
        if self.packed and self.file.suffix == ".parquet":
            return self.packed.cell(self.file, self.suffix[1:], self.start)
        if self.packed:
            return self._whole(self.packed.piece(self.file, self.start, self.size))
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            return self._whole(file.read(self.size))

    def _whole(self, data: bytes) -> bytes:
        if len(data) != self.size:
            raise BadRecord(f"its {self.suffix} is cut off, where {self.file.name} ends")
        return data


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
    """

    tars: list[tuple[Path, str]] = field(default_factory=list)
    folders: list[tuple[Path, str]] = field(default_factory=list)
    tables: list[tuple[Path, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    packed: Packed = field(default_factory=Packed)


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
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(f for f in folders if f[0] != "." and (here / f).resolve() != own)
        prefix = here.relative_to(folder).as_posix()
        for file in sorted(file for file in files if file[0] != "."):
            path = here / file
            _sort_in(path, path.relative_to(folder).as_posix(), found)
        if any(PurePosixPath(file).suffix.lower() in IMAGE_SUFFIXES for file in files):
            found.folders.append((here, "" if prefix == "." else prefix))


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
    for tar, prefix in found.tars:
        stamp = _stamp(tar)
        yield from _grouped(_members(tar, prefix, found.packed, problems), prefix, stamp, problems)
    for folder, prefix in found.folders:
        yield from _grouped(_files(folder), prefix, None, problems)
    for table, prefix in found.tables:
        yield from _rows(table, prefix, found.packed, problems)


def _stamp(path: Path) -> str:
    state = path.stat()
    return content_hash(f"{state.st_size} {state.st_mtime_ns}".encode())


def _members(
    tar: Path, prefix: str, packed: Packed, problems: Skipped
) -> Iterator[tuple[str, Part]]:
    """Name and place of every file in a tar, by its headers alone."""
    reason, named = "", shown(prefix + tar.name[len(TAR.sub("", tar.name)) :])
    try:
        kind = compression(tar)
        if kind == "zst":
            problems.append((named, "compressed by zstd: unpack it to .tar first"))
            return
        reader = packed if kind else None
        with tarfile.open(tar, f"r:{kind}") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                archive.members = []  # or it keeps them all
                if member.isreg():
                    suffix = PurePosixPath(member.name).suffix.lower()
                    place = (tar, member.offset_data, member.size)
                    yield member.name, Part(*place, suffix, reader)
            end = archive.offset
            archive.fileobj.seek(end)
            block = archive.fileobj.read(tarfile.BLOCKSIZE)
        if block != b"\0" * tarfile.BLOCKSIZE:  # the end mark; `tarfile` stops at anything odd
            reason = f"damaged or cut off after {end:,} bytes"
    except (tarfile.TarError, *BROKEN) as error:
        reason = f"cannot be read to its end ({error})"
    if reason:
        problems.append((named, f"{reason}: the samples before that come in"))


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
    members: Iterator[tuple[str, Part]], prefix: str, stamp: str | None, problems: Skipped
) -> Iterator[Sample]:
    """The samples of one tar or folder, in the order of their first members."""
    samples: dict[str, Sample] = {}
    for name, part in members:
        path = name.removeprefix("./")
        if PurePosixPath(path).name.startswith("."):
            continue
        id = (f"{prefix}/" if prefix else "") + path[: len(path) - len(part.suffix)]
        if problem := _name_problem(id, path):
            problems.append((shown(id), problem))
        elif problem := _put(samples.setdefault(id, Sample(id)), part):
            problems.append((id, problem))
    for sample in samples.values():
        if sample.image is not None:
            sample.stamp = stamp or _own_stamp(sample)
            yield sample
        elif sample.texts or sample.info is not None:
            problems.append((sample.id, "its text has no image beside it"))


def _name_problem(id: str, path: str) -> str | None:
    if shown(id) != id:
        return "its name is not valid Unicode: rename it"
    if ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
        return "its name leads out of the tar's own folder"
    return None


def _put(sample: Sample, part: Part) -> str | None:
    """Give a part its place in the sample, or say why it has none; unknown kinds are ignored."""
    if part.suffix in IMAGE_SUFFIXES:
        if sample.image is not None:
            return f"a second image with this key, {part.suffix}, is left out"
        sample.image = part
    elif part.suffix in UNREADABLE:
        return UNREADABLE[part.suffix]
    elif part.suffix in TEXT_SUFFIXES:
        sample.texts.append(part)
    elif part.suffix == ".json":
        sample.info = part
    return None


def _own_stamp(sample: Sample) -> str:
    members = (sample.image, sample.info, *sample.texts)
    parts = [part for part in members if isinstance(part, Part)]
    state = [(part.file.name, part.size, part.file.stat().st_mtime_ns) for part in parts]
    return content_hash(json.dumps(state).encode())
