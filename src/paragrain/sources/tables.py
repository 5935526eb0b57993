"""The rows of CSV, TSV and JSON lines files, read so that one bad line costs one line."""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paragrain.errors import UsageError
from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.names import number

Report = Callable[[str, str], None]
"""Takes where something is wrong, such as "line 3", and what."""

Cells = tuple[int, list[str] | str]
"""The first line of a row, and its cells or else why it cannot be read."""

CELL_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")

_EXCEL = re.compile(r'"?sep=(.)"?\r?\n')
"""A first line by which Excel tells the delimiter."""

_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def table_rows(
    path: Path,
    report: Report,
    *,
    keys: Collection[str] = (),
    check_columns: Callable[[Path, list[str]], None],
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number and values by column of every row that can be read; the others are reported.

    Args:
        path: the file; its extension says the kind, `texts.read_texts` the rules of each.
        report: called for each line that cannot be read.
        keys: names of columns that say which image a row is about.
        check_columns: raises if the columns of a CSV or TSV file will not do.

    Raises:
        UsageError: the file cannot be read as text, or is of another kind.
    """
    suffix = path.suffix.lower()
    if suffix not in CELL_SUFFIXES + JSON_SUFFIXES:
        raise UsageError(f"{path} is not a table of texts: use a .csv, .tsv or .jsonl file")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the texts in {path} cannot be read: {reason}") from error
    if suffix in JSON_SUFFIXES:
        yield from _json_rows(report, text)
        return
    read = list(_csv_rows(text, keys) if suffix == ".csv" else _tsv_rows(text, keys))
    (_, first), *rest = read or [(1, [])]
    header, rows = _without_ends(first if isinstance(first, list) else [], rest)
    check_columns(path, header)
    for line, cells in rows:
        if isinstance(cells, str):
            report(f"line {line}", cells)
        elif len(cells) != len(header):
            report(f"line {line}", f"it has {len(cells)} cells, the first has {len(header)}")
        else:
            yield line, dict(zip(header, cells, strict=True))


def column_name(heading: str) -> str:
    """How a column is known, however people write its heading.

    >>> column_name("File name"), column_name(" Alt-Text "), column_name("CAPTION 1")
    ('file_name', 'alt_text', 'caption_1')
    """
    return re.sub(r"[\s_-]+", "_", heading.strip().lower())


def _without_ends(header: list[str], rows: Sequence[Cells]) -> tuple[list[str], list[Cells]]:
    """Headings and rows without the empty cells that delimiters at the end of lines make.

    Only where the headings end so too, or every row does: a row that alone has an empty cell more
    may hold, in a cell before, a delimiter that nobody quoted.
    """
    width = len(header)
    while width and not header[width - 1].strip():
        width -= 1

    def ends(cells: list[str]) -> bool:
        return len(cells) > width and not "".join(cells[width:]).strip()

    own = [cells for _, cells in rows if isinstance(cells, list)]
    if width == len(header) and not (len(own) > 1 and all(map(ends, own))):
        return header, list(rows)
    cut = [(n, c[:width] if isinstance(c, list) and ends(c) else c) for n, c in rows]
    return header[:width], cut


def read_text(path: Path) -> str:
    r"""The text of a file in UTF-8, or in UTF-16 or UTF-32 if it begins so; lines end with "\n".

    Bytes that are no text become surrogates, which `cells.text_problem` finds: so they cost the
    text that they stand in, and not the file. Line ends of a lone "\r" count where there are no
    others.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it ends within a letter.
    """
    return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    """The text that bytes are; see `read_text`.

    Raises:
        UnicodeDecodeError: they end within a letter.
    """
    kind = next((kind for mark, kind in _MARKS if data.startswith(mark)), None)
    if kind is None and data[:2].count(0) == 1 and len(data) > 2:  # UTF-16 without its mark
        kind = "utf-16-le" if data[1] == 0 else "utf-16-be"
    errors = "surrogatepass" if kind else "surrogateescape"
    text = data.decode(kind or "utf-8-sig", errors)
    return text if "\n" in text else text.replace("\r", "\n")


def _json_rows(report: Report, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line_number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            report(f"line {line_number}", f"not JSON ({error})")
            continue
        if isinstance(value, dict):
            yield line_number, value
        else:
            report(f"line {line_number}", "JSON, but not an object with names and values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose names comes twice: one value would be lost."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} comes twice")
    return values


# --- Cells ------------------------------------------------------------------------------------


def _csv_rows(text: str, keys: Collection[str]) -> list[Cells]:
    found = _EXCEL.match(text)
    if found is None:
        return _quoted(text, max(",;\t", key=text.partition("\n")[0].count), keys)
    rows = _quoted(text[found.end() :], found[1], keys)
    return [(line + 1, cells) for line, cells in rows]


def _tsv_rows(text: str, keys: Collection[str]) -> list[Cells]:
    rows = _quoted(text, "\t", keys)
    if all(isinstance(cells, list) for _, cells in rows):
        return rows
    lines = enumerate(text.split("\n"), 1)
    return [(n, line.removesuffix("\r").split("\t")) for n, line in lines if line.strip()]


def _quoted(text: str, delimiter: str, keys: Collection[str]) -> list[Cells]:
    """First line and cells of each row; where it cannot be read, a reason in place of cells.

    Reading then goes on at the next line, so that one stray quote does not swallow the file. A
    stray quote may also pair with a later one. So cells are joined over lines only if no two of
    those lines could be rows of their own, or if the whole file is quoted.
    """
    limit = csv.field_size_limit(len(text) + 1)
    try:
        rows, joined = _parsed(text, delimiter, lambda _: None)
        if not joined or _is_quoted_throughout(text, delimiter):
            return rows
        return _parsed(text, delimiter, _Glue(rows, joined, delimiter, keys).problem)[0]
    finally:
        csv.field_size_limit(limit)


def _parsed(
    text: str, delimiter: str, problem: Callable[[list[str]], str | None]
) -> tuple[list[Cells], set[int]]:
    """The rows, and the first lines of those that take several; `problem` judges their lines."""
    lines = io.StringIO(text, newline="\n").readlines()  # only "\n" ends a line
    rows: list[Cells] = []
    joined: set[int] = set()
    start = 0
    while start < len(lines):
        rest = (lines[i] for i in range(start, len(lines)))
        reader = csv.reader(rest, delimiter=delimiter, strict=True)
        taken = 0
        try:
            for cells in reader:
                if reader.line_num - taken > 1:
                    joined.add(start + taken + 1)
                    if reason := problem(lines[start + taken : start + reader.line_num]):
                        raise csv.Error(reason)
                if cells:
                    rows.append((start + taken + 1, cells))
                taken = reader.line_num
            break
        except csv.Error as error:
            rows.append((start + taken + 1, f"it cannot be read as a row ({error})"))
            start += taken + 1
    return rows, joined


def _is_quoted_throughout(text: str, delimiter: str) -> bool:
    """Whether all cells but numbers are quoted; those of the first line may all be bare."""
    header, _, rows = text.partition("\n")
    lines = io.StringIO(text if '"' in header else rows, newline="\n")
    reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONNUMERIC)
    try:
        return all(cells is not None for cells in reader)
    except (csv.Error, ValueError):
        return False


class _Glue:
    """Knows lines that a stray quote has made one row."""

    def __init__(self, rows: list[Cells], joined: set[int], delimiter: str, keys: Collection[str]):
        """See what the rows that are sound name their images by."""
        self._delimiter = delimiter
        header = rows[0][1] if isinstance(rows[0][1], list) else []
        names = [column_name(cell) for cell in header]
        self._width = len(header)
        self._key = next((place for place, name in enumerate(names) if name in keys), 0)
        self._kinds = {
            _kind(cells[self._key])
            for line, cells in rows[1:]
            if isinstance(cells, list) and line not in joined and len(cells) > self._key
        }

    def problem(self, lines: list[str]) -> str | None:
        """What is wrong with joining some lines, if anything is."""
        alone = [line for line in lines if self._is_row(line)]
        words = [line.replace(self._delimiter, " ").split()[:1] for line in lines[1:]]
        begins = [word for word in words if word and _kind(word[0]) == "image"]
        if len(alone) < 2 and not begins:
            return None
        return "its quotes close in a later row: double those that are text, or quote all cells"

    def _is_row(self, line: str) -> bool:
        cells = line.split(self._delimiter)
        if len(cells) < self._width:
            return False
        return not self._kinds or _kind(cells[self._key]) in self._kinds


def _kind(name: str) -> str:
    """What an image is named by."""
    name = name.strip().strip('"').split("\n")[0]
    if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES:
        return "image"
    return "number" if number(name) else "word"
