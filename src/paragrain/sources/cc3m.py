"""CC3M (Conceptual Captions): a table of captions and URLs, and pictures fetched by img2dataset."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np

from paragrain.collection import (
    BadRecord,
    ImageRef,
    ImportReport,
    Item,
    Record,
    Skipped,
    Store,
    WriteOptions,
    write_collection,
)
from paragrain.collection.identities import Identities
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash
from paragrain.sources.cells import NotTexts, Values, text_problem, texts_of
from paragrain.sources.names import shown
from paragrain.sources.packed import Packed
from paragrain.sources.parts import Part
from paragrain.sources.photo import merged, said
from paragrain.sources.registry import importer
from paragrain.sources.samples import Found, check_store, find_samples, read_samples
from paragrain.sources.texts import Texts, is_prose

URL_COLUMNS = ("url", "image_url", "img_url")
CAPTION_COLUMNS = ("caption", "text", "title", "alt_text")
"""Names of columns in a first line. Google's own files have none; img2dataset asks for one."""

LOOKED_AT = 100
"""So many first rows tell the order of the columns where no line names them."""

_Row = tuple[str, str, str]  # id, caption, url


@importer("cc3m")
def import_cc3m(
    captions: Path,
    out: Path,
    *,
    images: Path | None = None,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    name: str = "cc3m",
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring Conceptual Captions, or any table of captions and URLs, into a collection.

    `captions` has a line `caption TAB url` for each image, as in `Train_GCC-training.tsv`, or
    `url TAB caption`, as in CC12M's: a first line with the columns' names tells, or else the rows
    do, and a note says so. Further cells are ignored, and quotes are text. The id is the number of
    the row from zero in nine digits, "000000017", which is also the key that img2dataset gives the
    row unless it is told otherwise. So the same file gives the same ids, and rows of one URL stay
    apart.

    Without `images` the records have a caption and a URL and no image. With them, each row gets
    the picture that img2dataset fetched from its URL (its `.json`, or a column, says which), and
    rows whose picture is not there are named among the skipped: most often their link was dead.

    Everything is streamed: in memory stay some 50 bytes for each row and 100 for each picture.

    Args:
        captions: the table.
        out: the collection's folder.
        images: img2dataset's output: as `samples` of `import_webdataset`.
        texts: tables of further texts, joined by the id; they stay in memory, and so do all ids.
        split: of all records for which `texts` does not say another.
        name: of the data set.
        options: see `WriteOptions`.

    Raises:
        UsageError: `captions` cannot be read, there are no samples at `images`, or images in tars
            are to be linked.
        ParagrainError: there is no usable row, or none has a picture.
    """
    if not captions.is_file():
        raise UsageError(f"there is no file {captions}: check the path of the table")
    order = _order(captions)
    further: list[int] = []
    tables = Texts(texts)
    pictures = None if images is None else _Pictures(images, out, options.get("store"))
    every = {id: f"{id}.jpg" for id, *_ in _rows(captions, order, Skipped(out))} if tables else {}
    joined = tables.join(every)
    values = said(split=split, source=name)
    problems = Skipped(out)
    notes: list[str] = []

    def items() -> Iterator[Item]:
        problems.clear()
        problems.extend(pictures.problems if pictures else ())
        problems.extend(tables.problems)
        notes[:] = [order.note, *tables.notes] if order.note else tables.notes
        count = 0
        rows = _rows(captions, order, problems, further)
        for row, image, state in pictures.join(rows, problems) if pictures else _bare(rows):
            count += 1
            yield _item(row, merged(values, joined.get(row[0], {})), image, state)
        if not count:
            some = problems.example()
            raise ParagrainError(f"there is nothing to import from {captions}{some}: check it")
        if any(further):
            notes.append(f"{further[0]:,} rows have further cells with text, which are not used")
        if pictures is not None and (unused := int(np.sum(~pictures.used))):
            notes.append(f"{unused:,} pictures belong to no row of {captions.name}")

    return write_collection(
        out,
        items,
        name=name,
        source="cc3m",
        problems=problems,
        notes=notes,
        **options,
    )


# --- The table --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Order:
    """Which cell of a line is what.

    Attributes:
        caption: place of the caption, from zero.
        url: place of the URL.
        named: the first line says so, and is no row.
        note: what is worth knowing about it.
    """

    caption: int = 0
    url: int = 1
    named: bool = False
    note: str = ""


def _order(path: Path) -> _Order:
    """By the names in the first line, else by where most of the first rows have a URL."""
    lines = (cells for _, cells in islice(_cells(path), LOOKED_AT))
    first = [cell.strip().lower() for cell in next(lines, [])]
    places = [
        next((place for place, cell in enumerate(first) if cell in names), None)
        for names in (CAPTION_COLUMNS, URL_COLUMNS)
    ]
    if None not in places:
        return _Order(places[0] or 0, places[1] or 0, named=True)
    rows = [first, *lines]
    urls = [sum(len(c) > place and _is_url(c[place]) for c in rows) for place in (0, 1)]
    if urls[0] <= urls[1]:
        return _Order()
    return _Order(1, 0, note=f"{path.name} has the URL first and the caption second, as CC12M")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that is not blank."""
    with path.open("rb") as file:
        start = file.read(2)
    kind = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    errors = "surrogatepass" if kind == "utf-16" else "surrogateescape"
    with path.open(encoding=kind, errors=errors, newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells != [""]:
                yield number, cells


def _rows(
    path: Path, order: _Order, problems: Skipped, further: list[int] | None = None
) -> Iterator[_Row]:
    """Id, caption and URL of each sound row; `further` takes how many have more text."""
    number = more = 0
    for line, cells in _cells(path):
        if order.named and line == 1:
            continue
        id = f"{number:09d}"
        number += 1
        problem = _row_problem(cells, order.caption, order.url)
        if problem is None:
            others = (cell for n, cell in enumerate(cells) if n not in (order.caption, order.url))
            more += not order.named and any(is_prose(cell) for cell in others)
            yield id, cells[order.caption], cells[order.url]
        else:
            problems.append((f"line {line}", problem))
    if further is not None:
        further[:] = [more]


def _is_url(cell: str) -> bool:
    return "://" in cell[:12] and not cell[:1].isspace() and len(cell.split()) == 1


def _row_problem(cells: list[str], caption: int, url: int) -> str | None:
    if len(cells) <= max(caption, url):
        return "it has no tab between caption and URL"
    if problem := text_problem(cells[caption]):
        return f"{problem} as its caption"
    try:
        texts_of(cells[caption])
    except NotTexts as reason:
        return str(reason)
    if "://" not in cells[url] or text_problem(cells[url]):
        return f"{shown(cells[url])[:80]!r} is not a URL"
    return None


def _bare(rows: Iterator[_Row]) -> Iterator[tuple[_Row, Part | None, str]]:
    return ((row, None, "") for row in rows)


def _item(row: _Row, values: Values, image: Part | None, state: str) -> Item:
    id, caption, url = row
    stamp = content_hash(json.dumps([caption, url, state, values], sort_keys=True).encode())
    make, file = partial(_record, row, values, image), None if image is None else image.file
    return Item(id, stamp, make, file=file, says_split="split" in values)


def _record(row: _Row, values: Values, image: Part | None) -> Record:
    id, caption, url = row
    picture = ImageRef() if image is None else ImageRef(image.read(), id + image.suffix)
    return Record(id, picture, **merged({"captions": texts_of(caption), "url": url}, values))


# --- The pictures -----------------------------------------------------------------------------


class _Pictures:
    """Where the picture of each URL lies: about 100 bytes for each.

    Attributes:
        problems: what of img2dataset's output could not be used.
        used: bool, one for each picture: some row has asked for it.
    """

    def __init__(self, images: Path, out: Path, store: Store | None):
        """Read the `.json` of every sample once."""
        found = find_samples(images, out)
        check_store(found, store)
        self.problems = Skipped(out)
        self._files: list[tuple[Path, str, Packed | None]] = []  # extension, what reads it
        self._places = bytearray()  # file, start, size
        self._urls = Identities(self._read(found))
        self._table = np.frombuffer(self._places, np.int64).reshape(-1, 3)
        self.used = np.zeros(len(self._urls), bool)

    def _read(self, found: Found) -> Iterator[tuple[str, str]]:
        """URL and stamp of every picture; its place goes to the table."""
        self.problems.extend(found.problems)
        for sample in read_samples(found, self.problems):
            if sample.image is None:
                continue  # the row that lacks it is named
            try:
                url = sample.read_info().get("url")
            except (BadRecord, OSError) as error:
                self.problems.append((sample.id, str(error)))
                continue
            if not isinstance(url, str):
                self.problems.append((sample.id, "it has no url to join it by"))
                continue
            file = (sample.image.file, sample.image.suffix, sample.image.packed)
            if not self._files or self._files[-1] != file:
                self._files.append(file)
            place = (len(self._files) - 1, sample.image.start, sample.image.size)
            self._places += np.array(place, np.int64).tobytes()
            yield url, sample.stamp

    def join(
        self, rows: Iterator[_Row], problems: Skipped
    ) -> Iterator[tuple[_Row, Part | None, str]]:
        """Each row that has a picture, with it and its state; the others are named."""
        while some := list(islice(rows, 1000)):
            places = self._urls.places(url for _, _, url in some)
            self.used[places[places >= 0]] = True
            for row, place in zip(some, places.tolist(), strict=True):
                if place < 0:
                    problems.append((row[0], "there is no image of its URL"))
                    continue
                number, start, size = self._table[place].tolist()
                file, suffix, packed = self._files[number]
                yield row, Part(file, start, size, suffix, packed), self._urls.stamp(place)
