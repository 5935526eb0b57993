"""Flickr8k and Flickr30k as they are handed around: a file of captions and a folder of images."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.errors import UsageError
from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.listing import Listing, record_id
from paragrain.sources.names import base, stem
from paragrain.sources.photo import said
from paragrain.sources.registry import importer
from paragrain.sources.tables import read_text
from paragrain.sources.texts import NAME_COLUMNS

TOKEN = re.compile(r"(?P<name>[^\t]+)#(?P<number>\d{1,9})\t(?P<caption>.*)", re.DOTALL)
"""A line of a `.token` file: name.jpg#2 TAB caption."""

UNSEPARATED = re.compile(r"\s*(\d{1,9})\s+(\S.*)", re.DOTALL)
"""A number and a caption with no separator between them, as in one row of Flickr30k."""

NUMBER_COLUMNS = ("comment_number", "caption_number")
CAPTION_COLUMNS = ("caption", "comment")

Row = tuple[str, int, str]
"""Name of the image, number and text of a caption."""


@importer("flickr")
def import_flickr(
    captions: Path,
    images: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring Flickr8k or Flickr30k, with its captions in any of their files, into a collection.

    The kind of file is told by its first line:

    - `name.jpg#0 TAB caption`: `Flickr8k.token.txt`, `results_20130124.token`.
    - `image,caption`: `captions.txt`. Cells in quotes are read as CSV says if the whole file, or
      else the line, is sound CSV; otherwise everything after the first comma is the caption.
    - `image_name| comment_number| comment` (or with commas): `results.csv`. The row of Flickr30k
      that lacks the separator after its number is mended, and a note says so.

    The id is the file's name without extension, as in `import_karpathy`. Captions are in the
    order of their numbers, or of the file if they have none, and kept to the last character.

    Args:
        captions: the file of captions.
        images: the folder with the images; see `Listing` for how one is found.
        out: the collection's folder.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        split: of all images for which `texts` does not say another.
        options: see `WriteOptions`.

    Raises:
        UsageError: one of the paths does not hold what it should.
        ParagrainError: none of the images is there.
    """
    listing = Listing(captions, images)
    numbered: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, number, caption in _rows(captions, listing):
        numbered[name].append((number, caption))
    for name, pairs in numbered.items():
        in_order = sorted(pairs, key=lambda pair: pair[0])  # stable: equal numbers as in the file
        good = listing.kept(name, [caption for _, caption in in_order])
        values = said(split=split, captions=good)
        listing.add(name, record_id(stem(base(name))), [name], values)
    return listing.write(
        out,
        name="flickr",
        source="flickr",
        field="captions",
        texts=texts,
        **options,
    )


def _rows(path: Path, listing: Listing) -> Iterator[Row]:
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the captions in {path} cannot be read: {reason}") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]  # only "\n" ends a line
    first = next((line for line in lines if line.strip()), "")
    if TOKEN.fullmatch(first):
        return _token_rows(lines, listing)
    layout = _layout(path, first)
    whole = _csv(text, layout)
    if whole and all(
        len(cells) == layout.width and not _swallows(cells, layout) for _, cells in whole
    ):
        return _table_rows(whole[1:], layout, listing)
    by_line = [(n, _cells(line, layout)) for n, line in enumerate(lines, 1) if line.strip()]
    return _table_rows(by_line[1:], layout, listing)


def _token_rows(lines: list[str], listing: Listing) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if found := TOKEN.fullmatch(line):
            yield found["name"], int(found["number"]), found["caption"]
        elif line.strip():
            listing.problems.append((f"line {number}", "it is not `name#number TAB caption`"))


@dataclass(frozen=True)
class _Layout:
    """How a table of captions is written.

    Attributes:
        delimiter: between cells.
        spaced: one space after the delimiter belongs to it.
        width: cells of a row: image and caption, or with a number between them.
    """

    delimiter: str
    spaced: bool
    width: int


def _layout(path: Path, header: str) -> _Layout:
    delimiter = max(",|\t;", key=header.count)
    cells = header.split(delimiter)
    names = [cell.strip().strip('"').lower() for cell in cells]
    known = names[0] in NAME_COLUMNS and names[-1] in CAPTION_COLUMNS
    if not known or len(names) > 3 or not set(names[1:-1]) <= set(NUMBER_COLUMNS):
        raise UsageError(
            f"{path} is not in a layout of Flickr's captions: its first line should be "
            "`name.jpg#0 TAB caption`, `image,caption` or `image_name| comment_number| comment`"
        )
    return _Layout(delimiter, all(cell.startswith(" ") for cell in cells[1:]), len(cells))


def _csv(text: str, layout: _Layout) -> list[tuple[int, list[str]]] | None:
    """Last line and cells of each row by the rules of CSV, or `None` if they are broken.

    Tables with "|" are written without quoting, so quotes are text there.
    """
    if layout.delimiter == "|":
        return None
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=layout.delimiter, strict=True)
    try:
        return [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error:
        return None


def _swallows(cells: list[str], layout: _Layout) -> bool:
    """Whether a stray quote made rows a part of this row's caption, though the CSV is sound."""
    further = (line.partition(layout.delimiter)[0] for line in cells[-1].split("\n")[1:])
    return any(PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES for name in further)


def _cells(line: str, layout: _Layout) -> list[str]:
    """The cells of a single line, of which only the caption may hold the delimiter."""
    rows = _csv(line, layout)
    if rows and len(rows[0][1]) == layout.width:
        return rows[0][1]
    cells = line.split(layout.delimiter, layout.width - 1)
    return [cell.removeprefix(" ") if layout.spaced else cell for cell in cells]


def _table_rows(
    rows: list[tuple[int, list[str]]], layout: _Layout, listing: Listing
) -> Iterator[Row]:
    for line, cells in rows:
        if layout.width == 3 and len(cells) == 2 and (found := UNSEPARATED.fullmatch(cells[1])):
            listing.notes.append(f"line {line} lacks the separator after its number: mended")
            cells = [cells[0], *found.groups()]
        if len(cells) != layout.width:
            reason = f"it has {len(cells)} cells, and {layout.width} are needed"
            listing.problems.append((f"line {line}", reason))
            continue
        number = cells[1].strip() if layout.width == 3 else "0"
        if number.isascii() and number.isdigit() and len(number) < 10:
            yield cells[0].strip(), int(number), cells[-1]
        else:
            listing.problems.append((f"line {line}", f"its number is {cells[1]!r}"))
