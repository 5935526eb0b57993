"""WebDataset and img2dataset: samples in tar files, folders or Parquet files, by a common key."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import (
    BadRecord,
    ImageRef,
    ImportReport,
    Item,
    Record,
    Skipped,
    WriteOptions,
    write_collection,
)
from paragrain.collection.fields import TEXT_FIELDS
from paragrain.errors import ParagrainError
from paragrain.images import content_hash
from paragrain.sources.cells import Values, take, text_problem
from paragrain.sources.names import is_valid
from paragrain.sources.parts import Part
from paragrain.sources.photo import merged, said
from paragrain.sources.registry import importer
from paragrain.sources.samples import Sample, check_store, find_samples, read_samples
from paragrain.sources.tables import decoded
from paragrain.sources.texts import Texts, field_of


@importer("webdataset")
def import_webdataset(
    samples: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    name: str = "webdataset",
    **options: Unpack[WriteOptions],
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
    - `22.05.png.txt` belongs to `22.05.png`, whatever else is called "22.05".
    - An image without any text stays, and a note counts those. Text without an image, a second
      image in a sample and pictures of kinds that cannot be read are named among the skipped, and
      so is a sample with several images and several texts, or with a text that cannot be kept.
    - Links in a tar to other members of it stand for these; others are named.
    - Of a tar that is cut off or damaged, what lies before the damage comes in.
    - In img2dataset's Parquet files the image is in the column `jpg`, `png` or `webp`, the key in
      `key`, and the texts are in columns called as those of the `.json`. Rows whose picture was
      not fetched are named with the reason.
    - Of a tar whose size and time have not changed since its samples came in, a later run reads
      the members' headers only. Tars are read where they lie, and those compressed by gzip, bzip2
      or xz from a temporary file, one or two at a time; zstd cannot be read.

    Args:
        samples: a tar or Parquet file; a folder with some, or of files, to any depth
            (img2dataset's output formats "webdataset", "parquet" and "files"); or a pattern such
            as `shards/{00000..00009}.tar`.
        out: the collection's folder.
        texts: a table of further texts, which with the names of all samples stays in memory; see
            `read_texts` and `TextTable.join`.
        split: of all samples for which `texts` does not say another.
        name: of the data set.
        options: see `WriteOptions`.

    Raises:
        UsageError: there is nothing at `samples`, or images in tars are to be linked.
        ParagrainError: none of the samples can be used.
    """
    tables = Texts(texts)
    found = find_samples(samples, out)
    check_store(found, options.get("store"))
    joined: dict[str, Values] = {}
    if tables:
        every = read_samples(found, Skipped(out))
        paths = {sample.id: sample.id + sample.image.suffix for sample in every if sample.image}
        joined = tables.join(paths, root=samples)
    values = said(split=split, source=name)
    notes: list[str] = []
    problems = Skipped(out)

    def items() -> Iterator[Item]:
        notes[:] = tables.notes
        problems.clear()
        problems.extend(found.problems + tables.problems)
        count = bare = 0
        for sample in read_samples(found, problems):
            if sample.image is None:
                problems.append((sample.id, sample.absent))
                continue
            count += 1
            more = joined.get(sample.id, {})
            bare += not sample.texts and sample.info is None and not more
            yield _item(sample, sample.image, values, more)
        if not count and not problems:
            raise ParagrainError(f"there are no images in {samples}: check the path")
        notes.extend(found.notes())
        if bare:
            notes.append(f"{bare:,} images have no captions")

    return write_collection(
        out,
        items,
        name=name,
        source="webdataset",
        problems=problems,
        notes=notes,
        **options,
    )


# --- Records ----------------------------------------------------------------------------------


def _item(sample: Sample, image: Part, values: Values, more: Values) -> Item:
    state = [sample.stamp, values, more] if more else [sample.stamp, values]
    stamp = content_hash(json.dumps(state, sort_keys=True).encode())
    make = partial(_record, sample, image, values, more)
    says_split = "split" in values | more
    return Item(sample.id, stamp, make, file=image.file, says_split=says_split)


def _record(sample: Sample, image: Part, values: Values, more: Values) -> Record:
    texts = _info_values(sample.read_info())
    captions = texts.get("captions", [])
    for part in sample.texts:
        captions = captions + _captions(part, captions)
    own = {**values, **texts, "captions": captions}
    # The name is that which it would have if its tar were unpacked.
    return Record(sample.id, ImageRef(image.read(), sample.id + image.suffix), **merged(own, more))


def _captions(part: Part, known: list[str]) -> list[str]:
    """The lines of a text, unless all of it is a caption already."""
    try:
        text = decoded(part.read())
    except UnicodeDecodeError as error:
        raise BadRecord(f"its {part.suffix} is not UTF-8") from error
    if not is_valid(text):
        raise BadRecord(f"its {part.suffix} is not UTF-8")
    if text.strip() in (caption.strip() for caption in known):
        return []
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _info_values(info: dict[str, Any]) -> Values:
    """Fields of a record from a sample's JSON.

    Raises:
        BadRecord: a text there cannot be kept.
    """
    values: Values = {}
    problems: list[str] = []
    for column, value in info.items():
        name = field_of(column)
        if name in TEXT_FIELDS and not _is_nothing(value):
            take(values, name, value, problems)
    if problems:
        raise BadRecord(f"its .json: {problems[0]}")
    url = info.get("url")
    return values | ({"url": url} if text_problem(url) is None else {})


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value == []
