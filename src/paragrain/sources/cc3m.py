"""CC3M (Conceptual Captions): a table of captions and URLs, and pictures fetched by img2dataset."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from paragrain.collection import BadRecord, ImageRef, ImportReport, Item, Record, write_collection
from paragrain.collection.wanted import Wanted
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash
from paragrain.sources.photo import check_split
from paragrain.sources.texts import Values, shown, text_problem
from paragrain.sources.webdataset import Found, Part, find_samples, read_samples

HEADERS = (["caption", "url"], ["url", "caption"])
"""First lines that name the columns. Google's own file has none; img2dataset asks for one."""

Problems = list[tuple[str, str]]
_Row = tuple[str, str, str]  # id, caption, url


def import_cc3m(
    captions: Path,
    out: Path,
    *,
    images: Path | None = None,
    split: str = "train",
    name: str = "cc3m",
    licence: str | None = None,
    max_pixels: int | None = None,
    show: bool = True,
) -> ImportReport:
    """Bring Conceptual Captions, or any table of captions and URLs, into a collection.

    `captions` has a line `caption TAB url` for each image, as in `Train_GCC-training.tsv`; further
    cells are ignored, quotes are text, and a first line `caption TAB url` or `url TAB caption`
    names the columns. The id is the number of the row from zero in nine digits, "000000017", which
    is also the key that img2dataset gives the row unless it is told otherwise. So the same file
    gives the same ids, and rows of one URL stay apart.

    Without `images` the records have a caption and a URL and no image. With them, each row gets
    the picture that img2dataset fetched from its URL (its `.json` says which), and rows whose
    picture is not there are named among the skipped: most often their link was dead.

    Everything is streamed: in memory stay some 50 bytes for each row and 100 for each picture.

    Args:
        captions: the table.
        out: the collection's folder.
        images: img2dataset's output: as `samples` of `import_webdataset`.
        split: of all records.
        name: of the data set.
        licence: of the data, as far as known.
        max_pixels: see `images.decode`.
        show: whether to show a progress bar.

    Raises:
        UsageError: `captions` cannot be read, or there are no samples at `images`.
        ParagrainError: there is no usable row, or none has a picture.
    """
    check_split(split)
    if not captions.is_file():
        raise UsageError(f"there is no file {captions}: check the path of the table")
    pictures = None if images is None else _Pictures(images, out)
    values: Values = {"split": split, "source": name}
    problems: Problems = []
    notes: list[str] = []

    def items() -> Iterator[Item]:
        problems[:] = [] if pictures is None else pictures.problems
        notes.clear()
        count = 0
        rows = _rows(captions, problems)
        for row, image, state in pictures.join(rows, problems) if pictures else _bare(rows):
            count += 1
            yield _item(row, values, image, state)
        if not count:
            first = f" ({problems[0][0]}: {problems[0][1]})" if problems else ""
            raise ParagrainError(f"there is nothing to import from {captions}{first}: check it")
        if pictures is not None and (unused := int(np.sum(~pictures.used))):
            notes.append(f"{unused:,} pictures belong to no row of {captions.name}")

    return write_collection(
        out,
        items,
        name=name,
        source="cc3m",
        licence=licence,
        problems=problems,
        notes=notes,
        max_pixels=max_pixels,
        show=show,
    )


# --- The table --------------------------------------------------------------------------------


def _rows(path: Path, problems: Problems) -> Iterator[_Row]:
    """Id, caption and URL of each sound row; blank lines do not count."""
    place = (0, 1)
    number = 0
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
        for line_number, line in enumerate(lines, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            if line_number == 1 and [c.strip().lower() for c in cells] in HEADERS:
                place = (0, 1) if cells[0].strip().lower() == "caption" else (1, 0)
                continue
            id = f"{number:09d}"
            number += 1
            problem = _row_problem(cells, *place)
            if problem is None:
                yield id, cells[place[0]], cells[place[1]]
            else:
                problems.append((f"line {line_number}", problem))


def _row_problem(cells: list[str], caption: int, url: int) -> str | None:
    if len(cells) < 2:
        return "it has no tab between caption and URL"
    if problem := text_problem(cells[caption]):
        return f"{problem} as its caption"
    if "://" not in cells[url] or text_problem(cells[url]):
        return f"{shown(cells[url])[:80]!r} is not a URL"
    return None


def _bare(rows: Iterator[_Row]) -> Iterator[tuple[_Row, Part | None, str]]:
    return ((row, None, "") for row in rows)


def _item(row: _Row, values: Values, image: Part | None, state: str) -> Item:
    id, caption, url = row
    stamp = content_hash(json.dumps([caption, url, state, values], sort_keys=True).encode())
    return Item(id, stamp, partial(_record, row, values, image))


def _record(row: _Row, values: Values, image: Part | None) -> Record:
    id, caption, url = row
    picture = ImageRef() if image is None else ImageRef(image.read(), id + image.suffix)
    return Record(id, picture, captions=[caption], url=url, **values)


# --- The pictures -----------------------------------------------------------------------------


class _Pictures:
    """Where the picture of each URL lies: about 100 bytes for each.

    Attributes:
        problems: what of img2dataset's output could not be used.
        used: bool, one for each picture: some row has asked for it.
    """

    def __init__(self, images: Path, out: Path):
        """Read the `.json` of every sample once."""
        self.problems: Problems = []
        self._files: list[tuple[Path, str]] = []  # and extensions
        self._places = bytearray()  # file, start, size
        self._urls = Wanted(self._read(find_samples(images, out)))
        self._table = np.frombuffer(self._places, np.int64).reshape(-1, 3)
        self.used = np.zeros(len(self._urls), bool)

    def _read(self, found: Found) -> Iterator[tuple[str, str]]:
        """URL and stamp of every picture; its place goes to the table."""
        self.problems += found.problems
        for sample in read_samples(found, self.problems):
            try:
                url = sample.read_info().get("url")
            except (BadRecord, OSError) as error:
                self.problems.append((sample.id, str(error)))
                continue
            if not isinstance(url, str) or sample.image is None:
                self.problems.append((sample.id, "its .json has no url to join it by"))
                continue
            file = (sample.image.file, sample.image.suffix)
            if not self._files or self._files[-1] != file:
                self._files.append(file)
            place = (len(self._files) - 1, sample.image.start, sample.image.size)
            self._places += np.array(place, np.int64).tobytes()
            yield url, sample.stamp

    def join(
        self, rows: Iterator[_Row], problems: Problems
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
                file, suffix = self._files[number]
                yield row, Part(file, start, size, suffix), self._urls.stamp(place)
