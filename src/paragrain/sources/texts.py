"""Texts that come in a table of their own (CSV, TSV or JSON lines), joined to images by name."""

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from paragrain.collection.record import LIST_FIELDS
from paragrain.errors import UsageError
from paragrain.sources.tables import CELL_SUFFIXES, table_rows

NAME_COLUMNS = (
    "file_name", "filename", "file", "path", "file_path", "filepath", "relative_path",
    "image", "image_path", "image_file", "image_name",
)  # fmt: skip
"""Columns that name an image's file, the most telling first."""

ID_COLUMNS = ("image_id", "id", "key", "cocoid")
"""Columns that hold an image's id. A table may use `id` to count its own rows, so a file name
counts for more."""

TEXT_COLUMNS = {
    "captions": "captions",
    "caption": "captions",
    "text": "captions",
    "alt": "captions",
    "alt_text": "captions",
    "description": "description",
    "generated": "generated",
    "negatives": "negatives",
    "paragraph": "paragraph",
}
OTHER_COLUMNS = {name: name for name in ("paragraph_score", "group", "url", "split")}
"""Columns of a table and the fields of a record that they fill."""

Values = dict[str, Any]
"""Some fields of a record, by name; only those that something is known for."""


@dataclass
class _Row:
    line: int
    names: list[str]
    ids: list[str]
    values: Values

    @property
    def shown(self) -> str:
        return (self.names or self.ids)[0]


@dataclass
class TextTable:
    """The rows of a text file, not yet joined to anything.

    Attributes:
        path: the file.
        rows: those that could be read.
        problems: (where, reason) of every line, row or text that had to be left out.
        notes: what else is worth knowing.
    """

    path: Path
    rows: list[_Row] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self, where: str, reason: str) -> None:
        """Add a problem."""
        self.problems.append((f"texts: {shown(where)}", reason))

    def join(self, images: Mapping[str, str], *, root: str = "") -> dict[str, Values]:
        """The values for each image id, from the rows that name it.

        A row finds its image by file name if it has one, else by id. The first of these rules
        under which some image fits decides, and if several fit, the row is ambiguous: the id
        itself or the whole relative path; the end of the path (`b/x.jpg` of `a/b/x.jpg`); the
        same without extension; the same in Unicode's normal form C; the same number, leading
        zeros aside, if the key is a number. Upper and lower case always differ. A row that has a
        file name can fall back on its id only if that fits exactly.

        Texts of several rows for one image are gathered in order. Where a field holds one value
        only, the first row counts and a different later one is reported.

        Args:
            images: relative POSIX path of every image id.
            root: name of the folder that the paths start from; a row may put it in front.
        """
        finder = _Finder(images, root)
        joined: dict[str, Values] = {}
        for row in self.rows:
            found = finder.find(row)
            if len(found) == 1:
                self._merge(joined.setdefault(found[0], {}), row)
            elif found:
                fits = ", ".join(shown(id) for id in found[:3])
                self.report(row.shown, f"line {row.line} fits {len(found)} images: {fits}")
            else:
                self.report(row.shown, f"line {row.line} fits no image")
        if finder.by_number:
            self.notes.append(
                f"{finder.by_number} rows of {self.path.name} were joined by number alone, "
                "leading zeros aside"
            )
        return joined

    def _merge(self, values: Values, row: _Row) -> None:
        for name, value in row.values.items():
            if name in LIST_FIELDS:
                values.setdefault(name, []).extend(value)
            elif values.setdefault(name, value) != value:
                self.report(row.shown, f"line {row.line} has another {name} than a line before")


class Texts:
    """Several tables, each joined by itself; of two, the later one counts, field by field.

    There may be none, so that whoever imports need not ask.
    """

    def __init__(self, paths: Path | Sequence[Path] | None):
        """Read the tables; for the errors see `read_texts`."""
        paths = () if paths is None else [paths] if isinstance(paths, str | Path) else paths
        self._tables = [read_texts(Path(path)) for path in paths]

    def __bool__(self) -> bool:
        """Whether there is any table."""
        return bool(self._tables)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Those of all tables, so far."""
        return [problem for table in self._tables for problem in table.problems]

    @property
    def notes(self) -> list[str]:
        """Those of all tables, so far."""
        return [note for table in self._tables for note in table.notes]

    def join(self, images: Mapping[str, str], *, root: str = "") -> dict[str, Values]:
        """The values for each image id; see `TextTable.join`."""
        joined: dict[str, Values] = {}
        for table in self._tables:
            for id, values in table.join(images, root=root).items():
                joined.setdefault(id, {}).update(values)
        return joined


def read_texts(path: Path) -> TextTable:
    r"""Read a table of texts: `.csv`, `.tsv`, or JSON lines (`.jsonl`, `.ndjson`, `.jsonlines`).

    A table needs a column that says which image (`NAME_COLUMNS`, `ID_COLUMNS`) and one with text
    (`TEXT_COLUMNS`); other columns are ignored, and upper and lower case are equal in their
    names. Text is kept to the last character: "None", "NA" and "null" are words, and white space
    stays. Only text of nothing but white space is dropped, and reported unless it is an empty
    cell of a row that has other texts.

    - CSV: as Python's `csv` reads it strictly, so cells in quotes may hold line breaks. The
      delimiter is a comma, semicolon or tab, whichever the first line has most of.
    - TSV: the same with tabs if that reads without any error; otherwise a line is a row and quotes
      are text, as in files that were written without quoting.
    - In both, a cell of `captions`, `generated` or `negatives` may be a JSON list of texts.
    - JSON lines end at "\n" alone: U+2028 and U+0085 are text.

    A line or a text that cannot be read is named in `problems`, and the others count.

    Raises:
        UsageError: no such file, another kind of file, or no usable columns.
    """
    table = TextTable(path)
    for line, cells in table_rows(path, table.report, check_columns=_check_columns):
        row = _row(table, line, cells, from_cells=path.suffix.lower() in CELL_SUFFIXES)
        if row is not None:
            table.rows.append(row)
    if not table.rows and not table.problems:
        raise UsageError(f"{path} holds no rows")
    return table


def text_problem(text: Any) -> str | None:
    r"""Why something cannot be kept as a text, or `None` if it can.

    >>> text_problem("NA"), text_problem(" \n"), text_problem("\ud800"), text_problem(7)
    (None, 'an empty text', 'a text that is not valid Unicode', 'int where text should be')
    """
    if not isinstance(text, str):
        return f"{type(text).__name__} where text should be"
    if not text.strip():
        return "an empty text"
    return None if _is_valid(text) else "a text that is not valid Unicode"


def shown(name: str) -> str:
    r"""A name fit to be printed and stored: bytes that are no UTF-8 become \xNN or \uNNNN."""
    return name if _is_valid(name) else name.encode("utf-8", "backslashreplace").decode()


def _is_valid(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# --- Joining ----------------------------------------------------------------------------------


class _Finder:
    """Finds the images that a row means, by the rules in `TextTable.join`."""

    def __init__(self, images: Mapping[str, str], root: str):
        self.by_number = 0
        self._images = images
        self._root = root
        self._paths: dict[str, list[str]] = defaultdict(list)
        self._ends: dict[str, list[str]] = defaultdict(list)
        self._stems: dict[str, list[str]] = defaultdict(list)
        self._normal: dict[str, list[str]] = defaultdict(list)
        self._numbers: dict[int, list[str]] = defaultdict(list)
        for id, path in images.items():
            self._paths[path].append(id)
            for end in _ends(path):
                self._ends[end].append(id)
                self._stems[_stem(end)].append(id)
                self._normal[_normal(end)].append(id)
                self._normal[_normal(_stem(end))].append(id)
            for name in (id, _stem(path.rpartition("/")[2])):
                if (number := _number(name)) is not None:
                    self._numbers[number].append(id)

    def find(self, row: _Row) -> list[str]:
        """No id, the one that fits, or all that do."""
        found: list[str] = []
        for key in row.names or row.ids:
            found = self._find(key)
            if len(found) == 1:
                return found
        exact = [id for id in row.ids if id in self._images] if row.names else []
        return exact[:1] or found

    def _find(self, key: str) -> list[str]:
        if key in self._images:
            return [key]
        spellings = dict.fromkeys([key, key.replace("\\", "/").removeprefix("./")])
        below_root = [path for spelling in spellings for path in self._below_root(spelling)]
        for level, names in (
            (self._paths, [*spellings, *below_root]),
            (self._ends, spellings),
            (self._stems, spellings),
            (self._normal, [_normal(spelling) for spelling in spellings]),
        ):
            for name in names:
                if name in level:
                    return list(dict.fromkeys(level[name]))
        number = _number(key)
        found = [] if number is None else list(dict.fromkeys(self._numbers.get(number, ())))
        self.by_number += len(found) == 1
        return found

    def _below_root(self, path: str) -> Iterator[str]:
        """`a/x.jpg` of `photos/a/x.jpg` or `/home/me/photos/a/x.jpg`, if the root is `photos`."""
        parts = path.split("/")
        return ("/".join(parts[i + 1 :]) for i, part in enumerate(parts) if part == self._root)


def _ends(path: str) -> Iterator[str]:
    """`a/b/x.jpg`, `b/x.jpg` and `x.jpg` of `a/b/x.jpg`."""
    parts = path.split("/")
    return ("/".join(parts[first:]) for first in range(len(parts)))


def _stem(path: str) -> str:
    """The path without the last extension: `22.05` of `22.05.png`."""
    return path.removesuffix(PurePosixPath(path).suffix)


def _normal(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _number(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdigit() and len(name) <= 40 else None


# --- Rows -------------------------------------------------------------------------------------


def _row(table: TextTable, line: int, cells: Mapping[str, Any], *, from_cells: bool) -> _Row | None:
    """One row of a table; what is wrong with it goes to the table's problems."""
    known = {str(name).strip().lower(): value for name, value in cells.items()}
    row = _Row(line, _keys(known, NAME_COLUMNS), _keys(known, ID_COLUMNS), {})
    if not row.names and not row.ids:
        table.report(f"line {line}", "it names no image")
        return None
    problems: list[str] = []
    columns = TEXT_COLUMNS | OTHER_COLUMNS
    for column, value in known.items():  # in the file's order: the first caption is the original
        if column not in columns or value is None or (from_cells and not value.strip()):
            continue
        _take(row.values, columns[column], value, problems, from_cells=from_cells)
    for problem in problems:
        table.report(row.shown, f"line {line}: {problem}")
    if not row.values and not problems:
        table.report(row.shown, f"line {line} has no text")
    return row if row.values else None


def _keys(cells: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    keys = []
    for column in columns:
        value = cells.get(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            keys.append(str(value))
    return keys


def _take(values: Values, name: str, value: Any, problems: list[str], *, from_cells: bool) -> None:
    """Put a cell's value under a field's name, or say why not."""
    if name == "paragraph_score":
        score = _score(value)
        if score is None:
            problems.append(f"paragraph_score is {value!r}, not a whole number from 0 to 10")
        else:
            values[name] = score
        return
    if name in ("group", "split") and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    texts = _texts(value, from_cells) if name in LIST_FIELDS else [value]
    for text in texts:
        if problem := text_problem(text):
            problems.append(f"{problem} in {name}")
        elif name in LIST_FIELDS:
            values.setdefault(name, []).append(text)
        else:
            values[name] = text


def _texts(value: Any, from_cells: bool) -> list[Any]:
    if isinstance(value, list):
        return value
    if from_cells and value.lstrip().startswith("["):
        try:
            texts = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return texts
    return [value]


def _score(value: Any) -> int | None:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(score) if score in range(11) and not isinstance(value, bool) else None


def _check_columns(path: Path, columns: list[str]) -> None:
    names = [column.strip().lower() for column in columns]
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    if repeated:
        raise UsageError(f"{path} has several columns called {repeated[0]}: rename all but one")
    for wanted, what in [
        ((*NAME_COLUMNS, *ID_COLUMNS), "names the image"),
        ((*TEXT_COLUMNS, *OTHER_COLUMNS), "holds text"),
    ]:
        if not set(wanted) & set(names):
            raise UsageError(
                f"{path} has no column that {what}: its first line has "
                f"{', '.join(names) or 'none'}, and one of {', '.join(wanted)} is needed"
            )
