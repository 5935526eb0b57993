"""WebDataset and img2dataset: samples in tar files, or in folders of files, by a common key."""

import json
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from paragrain.collection import BadRecord, ImageRef, ImportReport, Item, Record, write_collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash
from paragrain.sources.folder import IMAGE_SUFFIXES, UNREADABLE_SUFFIXES
from paragrain.sources.photo import check_split
from paragrain.sources.texts import TEXT_COLUMNS, Values, shown, text_problem

TEXT_SUFFIXES = (".txt", ".text", ".caption")
"""Members with these extensions hold captions, one a line."""

Problems = list[tuple[str, str]]


def import_webdataset(
    samples: Path,
    out: Path,
    *,
    split: str = "train",
    name: str = "webdataset",
    licence: str | None = None,
    max_pixels: int | None = None,
    show: bool = True,
) -> ImportReport:
    """Bring samples of WebDataset's layout, as img2dataset writes it, into a collection.

    - The members of a sample share a key: their path up to the **last** dot. So `22.05.png` and
      `22.05.txt` are one sample, "22.05"; WebDataset itself cuts at the first dot of the name, and
      would call them "22" with the kinds "05.png" and "05.txt". Of names with one dot both say
      the same.
    - The id is the path that the picture would have if each tar were unpacked into a folder of
      its own name, without extension: `00000/000000017`. Keys may so repeat from tar to tar.
    - Captions come from `.txt`, `.text` or `.caption`, one a line, and from a `.json` with
      `caption`, `url` and the other columns of `texts.TEXT_COLUMNS`. A text that is in both, as
      img2dataset writes it, counts once, with the line breaks that it has in the `.json`.
    - An image without any text stays, and a note counts those. Text without an image, a second
      image in a sample and pictures of kinds that cannot be read are named among the skipped.
    - Of a tar that is cut off or damaged, what lies before the damage comes in.
    - Nothing is unpacked to disk. Of a tar whose size and time have not changed since its samples
      came in, a later run reads the members' headers only.

    Args:
        samples: a tar; a folder with tars, or of files, to any depth (img2dataset's output
            formats "webdataset" and "files"); or a pattern of tars such as
            `shards/{00000..00009}.tar`.
        out: the collection's folder.
        split: of all samples.
        name: of the data set.
        licence: of the data, as far as known.
        max_pixels: see `images.decode`.
        show: whether to show a progress bar.

    Raises:
        UsageError: there is nothing at `samples`.
        ParagrainError: none of the samples can be used.
    """
    check_split(split)
    found = find_samples(samples, out)
    values: Values = {"split": split, "source": name}
    notes: list[str] = []
    problems: Problems = []

    def items() -> Iterator[Item]:
        notes.clear()
        problems[:] = found.problems
        count = bare = 0
        for sample in read_samples(found, problems):
            count += 1
            bare += not sample.texts and sample.info is None
            yield _item(sample, values)
        if not count and not problems:
            raise ParagrainError(f"there are no images in {samples}: check the path")
        if bare:
            notes.append(f"{bare:,} images have no captions")

    return write_collection(
        out,
        items,
        name=name,
        source="webdataset",
        licence=licence,
        problems=problems,
        notes=notes,
        max_pixels=max_pixels,
        show=show,
    )


# --- Samples ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Where the bytes of one member of a sample lie: in a tar, or as a file of their own."""

    file: Path
    start: int
    size: int
    suffix: str

    def read(self) -> bytes:
        """The bytes.

        Raises:
            BadRecord: the file ends before them.
            OSError: it cannot be read.
        """
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            data = file.read(self.size)
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
        texts: the text members, in order.
        info: the `.json`, if there is one.
    """

    id: str
    stamp: str = ""
    image: Part | None = None
    texts: list[Part] = field(default_factory=list)
    info: Part | None = None

    def read_info(self) -> dict[str, Any]:
        """What the `.json` says, or nothing if there is none.

        Raises:
            BadRecord: it is not a JSON object.
            OSError: it cannot be read.
        """
        if self.info is None:
            return {}
        try:
            value = json.loads(self.info.read())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BadRecord("its .json is not a JSON object")
        return value


@dataclass
class Found:
    """Tars and folders of files that hold samples.

    Attributes:
        tars: path and prefix of the ids, in the order of the prefixes.
        folders: the same of folders with files in them.
        problems: what was looked for and is not there.
    """

    tars: list[tuple[Path, str]] = field(default_factory=list)
    folders: list[tuple[Path, str]] = field(default_factory=list)
    problems: Problems = field(default_factory=list)


def find_samples(samples: Path, out: Path | None = None) -> Found:
    """Find tars, and folders with pictures, at a path or by a pattern; see `import_webdataset`.

    Args:
        samples: path or pattern.
        out: a folder to leave out, with all in it.

    Raises:
        UsageError: there is nothing.
    """
    found = Found()
    if samples.is_dir():
        _walk(samples, found, None if out is None else out.resolve())
    elif samples.is_file():
        found.tars.append((samples, samples.stem))
    else:
        _match(samples, found)
    if not found.tars and not found.folders:
        raise UsageError(
            f"there are no tar files and no images at {samples}: check the path, or the pattern, "
            "such as 'shards/{00000..00009}.tar'"
        )
    return found


def _walk(folder: Path, found: Found, own: Path | None) -> None:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(f for f in folders if f[0] != "." and (here / f).resolve() != own)
        prefix = here.relative_to(folder).as_posix()
        tars = sorted(f for f in files if f.endswith(".tar") and f[0] != ".")
        found.tars += [
            (here / tar, (here / tar).relative_to(folder).as_posix()[:-4]) for tar in tars
        ]
        if any(PurePosixPath(file).suffix.lower() in IMAGE_SUFFIXES for file in files):
            found.folders.append((here, "" if prefix == "." else prefix))
        found.problems += [
            (
                shown((here / file).relative_to(folder).as_posix()),
                "a compressed tar: unpack it to .tar first",
            )
            for file in sorted(files)
            if re.search(r"\.(tgz|tar\.\w+)$", file)
        ]


def _match(pattern: Path, found: Found) -> None:
    """Find the tars of a pattern with {first..last} and {a,b} in it; absent ones are named."""
    text = str(pattern)
    if "{" not in text:
        return
    base = Path(text[: text.index("{")] + "x").parent
    paths = [Path(path) for path in expand_braces(text)]
    absent = [path for path in paths if not path.is_file()]
    found.tars += [
        (path, path.relative_to(base).with_suffix("").as_posix())
        for path in paths
        if path.is_file()
    ]
    found.problems += [(str(path), "there is no such file") for path in absent]


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


def read_samples(found: Found, problems: Problems) -> Iterator[Sample]:
    """Stream the samples that have an image, a tar or folder at a time, in order.

    Args:
        found: from `find_samples`.
        problems: takes what is amiss.
    """
    for tar, prefix in found.tars:
        state = tar.stat()
        stamp = content_hash(f"{state.st_size} {state.st_mtime_ns}".encode())
        yield from _grouped(_members(tar, prefix, problems), prefix, stamp, problems)
    for folder, prefix in found.folders:
        yield from _grouped(_files(folder), prefix, None, problems)


def _members(tar: Path, prefix: str, problems: Problems) -> Iterator[tuple[str, Part]]:
    """Name and place of every file in a tar, by its headers alone."""
    reason = ""
    try:
        with tarfile.open(tar, "r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # or it keeps them all
                if member.isreg():
                    suffix = PurePosixPath(member.name).suffix.lower()
                    yield member.name, Part(tar, member.offset_data, member.size, suffix)
            place = archive.offset
        with tar.open("rb") as file:
            file.seek(place)
            block = file.read(tarfile.BLOCKSIZE)
        if block != b"\0" * tarfile.BLOCKSIZE:  # the end mark; `tarfile` stops at anything odd
            reason = f"damaged or cut off after {place:,} bytes"
    except (tarfile.TarError, OSError, ValueError) as error:
        reason = f"cannot be read to its end ({error})"
    if reason:
        problems.append((shown(f"{prefix}.tar"), f"{reason}: the samples before that come in"))


def _files(folder: Path) -> Iterator[tuple[str, Part]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file() and not entry.name.startswith("."):
            suffix = PurePosixPath(entry.name).suffix.lower()
            yield entry.name, Part(Path(entry.path), 0, entry.stat().st_size, suffix)


def _grouped(
    members: Iterator[tuple[str, Part]], prefix: str, stamp: str | None, problems: Problems
) -> Iterator[Sample]:
    """The samples of one tar or folder, in the order of their first members."""
    samples: dict[str, Sample] = {}
    for name, part in members:
        path = name.removeprefix("./")
        if PurePosixPath(path).name.startswith("."):
            continue
        id = (f"{prefix}/" if prefix else "") + path[: len(path) - len(part.suffix)]
        if shown(id) != id:
            problems.append((shown(id), "its name is not valid Unicode: rename it"))
        elif ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
            problems.append((id, "its name leads out of the tar's own folder"))
        elif problem := _put(samples.setdefault(id, Sample(id)), part):
            problems.append((id, problem))
    for sample in samples.values():
        if sample.image is not None:
            sample.stamp = stamp or _own_stamp(sample)
            yield sample
        elif sample.texts or sample.info is not None:
            problems.append((sample.id, "its text has no image beside it"))


def _put(sample: Sample, part: Part) -> str | None:
    """Give a part its place in the sample, or say why it has none; unknown kinds are ignored."""
    if part.suffix in IMAGE_SUFFIXES:
        if sample.image is not None:
            return f"a second image with this key, {part.suffix}, is left out"
        sample.image = part
    elif part.suffix in UNREADABLE_SUFFIXES:
        return f"{part.suffix} images cannot be read: convert it to JPEG"
    elif part.suffix in TEXT_SUFFIXES:
        sample.texts.append(part)
    elif part.suffix == ".json":
        sample.info = part
    return None


def _own_stamp(sample: Sample) -> str:
    parts = [part for part in (sample.image, sample.info, *sample.texts) if part is not None]
    state = [(part.file.name, part.size, part.file.stat().st_mtime_ns) for part in parts]
    return content_hash(json.dumps(state).encode())


# --- Records ----------------------------------------------------------------------------------


def _item(sample: Sample, values: Values) -> Item:
    stamp = content_hash(json.dumps([sample.stamp, values], sort_keys=True).encode())
    return Item(sample.id, stamp, partial(_record, sample, values))


def _record(sample: Sample, values: Values) -> Record:
    texts = _info_values(sample.read_info())
    captions = texts.get("captions", [])
    for part in sample.texts:
        captions = captions + _captions(part, captions)
    return Record(sample.id, image_of(sample), **{**values, **texts, "captions": captions})


def image_of(sample: Sample) -> ImageRef:
    """The picture of a sample, read, under the name that it would have if it were unpacked.

    Raises:
        BadRecord: it is cut off.
        OSError: it cannot be read.
    """
    assert sample.image is not None
    return ImageRef(sample.image.read(), sample.id + sample.image.suffix)


def _captions(part: Part, known: list[str]) -> list[str]:
    """The lines of a text, unless all of it is a caption already."""
    try:
        text = part.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRecord(f"its {part.suffix} is not UTF-8") from error
    if text.strip() in (caption.strip() for caption in known):
        return []
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _info_values(info: dict[str, Any]) -> Values:
    """Fields of a record from a sample's JSON; what is no text there is not meant for us."""
    values: Values = {}
    for column, name in (TEXT_COLUMNS | {"url": "url"}).items():
        value = info.get(column)
        texts = value if isinstance(value, list) else [value]
        sound = [text for text in texts if text_problem(text) is None]
        if name in ("captions", "generated", "negatives"):
            values[name] = values.get(name, []) + sound
        elif sound:
            values[name] = sound[0]
    return values
