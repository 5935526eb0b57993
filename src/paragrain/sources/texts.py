"""Texts that come in a table of their own (CSV, TSV or JSON lines), joined to images by name."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragrain.collection.fields import FIELDS, LIST_FIELDS
from paragrain.errors import UsageError
from paragrain.sources.cells import Values, take
from paragrain.sources.finding import Finder
from paragrain.sources.names import is_valid, shown
from paragrain.sources.tables import CELL_SUFFIXES, column_name, table_rows

NAME_COLUMNS = (
    "file_name", "filename", "file", "path", "file_path", "filepath", "relative_path",
    "image", "image_path", "image_file", "image_name",
)  # fmt: skip
"""Columns that name an image's file, the most telling first."""

ID_COLUMNS = ("image_id", "id", "key", "cocoid")
"""Columns that hold an image's id. A table may use `id` to count its own rows, so a file name
counts for more."""

_COLUMNS = {column: name for name, field in FIELDS.items() for column in field.columns}
TEXT_COLUMNS = {column: name for column, name in _COLUMNS.items() if FIELDS[name].role == "text"}
OTHER_COLUMNS = {column: name for column, name in _COLUMNS.items() if column not in TEXT_COLUMNS}
"""Columns of a table and the fields of a record that they fill."""

_NUMBERED = re.compile(r"(.*[a-z])_?\d{1,2}")


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
        unused: how many texts stand in each column that is none of ours.
        garbled: how many rows of cells hold bytes that are not UTF-8.
    """

    path: Path
    rows: list[_Row] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unused: Counter[str] = field(default_factory=Counter)
    garbled: int = 0

    def report(self, where: str, reason: str) -> None:
        """Add a problem."""
        self.problems.append((f"texts: {shown(where)}", reason))

    def join(self, images: Mapping[str, str], *, root: Path | None = None) -> dict[str, Values]:
        """The values for each image id, from the rows that name it.

        A row finds its image by file name if it has one, else by id, by the rules of `Finder`. A
        row that has a file name can fall back on its id only if that fits exactly. What fits
        none, or several, is reported.

        Texts of several rows for one image are gathered in order. Where a field holds one value
        only, the first row counts and a different later one is reported.

        Args:
            images: relative POSIX path of every image id.
            root: the folder that the paths start from; a row may put its name in front.
        """
        finder = Finder(images, None if root is None else Path(root))
        joined: dict[str, Values] = {}
        for row in self.rows:
            found = _find(finder, images, row)
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

    def join(self, images: Mapping[str, str], *, root: Path | None = None) -> dict[str, Values]:
        """The values for each image id; see `TextTable.join`."""
        joined: dict[str, Values] = {}
        for table in self._tables:
            for id, values in table.join(images, root=root).items():
                joined.setdefault(id, {}).update(values)
        return joined


def read_texts(path: Path) -> TextTable:
    r"""Read a table of texts: `.csv`, `.tsv`, or JSON lines (`.jsonl`, `.ndjson`, `.jsonlines`).

    A table needs a column that says which image (`NAME_COLUMNS`, `ID_COLUMNS`) and one with text
    (`TEXT_COLUMNS`); other columns are ignored. In their names upper and lower case are equal,
    and so are spaces, hyphens and underscores. Text is kept to the last character: "None", "NA"
    and "null" are words, and white space stays. Only text of nothing but white space is dropped,
    and reported unless it is an empty cell of a row that has other texts.

    - CSV: as Python's `csv` reads it strictly. The delimiter is a comma, semicolon or tab,
      whichever the first line has most of, or what Excel's `sep=` says. Cells in quotes may hold
      line breaks, unless two of their lines could be rows of their own (a stray quote has then
      met one in a later row) and not all cells of the file are quoted.
    - TSV: the same with tabs if that reads without any error; otherwise a line is a row and quotes
      are text, as in files that were written without quoting.
    - A cell may be a list of texts as JSON, Python or NumPy prints it; see `cells.texts_of`. A
      column may be numbered, as `caption_1`.
    - JSON lines end at "\n" alone: U+2028 and U+0085 are text.

    A line or a text that cannot be read is named in `problems`, and the others count.

    Raises:
        UsageError: no such file, another kind of file, or no usable columns.
    """
    table = TextTable(path)
    for line, cells in table_rows(
        path, table.report, keys=NAME_COLUMNS + ID_COLUMNS, check_columns=_check_columns
    ):
        row = _row(table, line, cells, from_cells=path.suffix.lower() in CELL_SUFFIXES)
        if row is not None:
            table.rows.append(row)
    if unused := [name for name, count in table.unused.items() if count]:
        names = ", ".join(f"{shown(name)} ({table.unused[name]:,} texts)" for name in unused[:8])
        table.notes.append(f"columns of {path.name} that are not used: {names}")
    if table.garbled:
        table.notes.append(
            f"{table.garbled:,} rows of {path.name} hold letters that are not in UTF-8: save it as "
            'UTF-8 (Excel calls that "CSV UTF-8") and run this again'
        )
    if not table.rows and not table.problems:
        raise UsageError(f"{path} holds no rows")
    return table


def _find(finder: Finder, images: Mapping[str, str], row: _Row) -> list[str]:
    """No id, the one that the row fits, or all that it does."""
    found: list[str] = []
    for key in row.names or row.ids:
        found = finder.find(key)
        if len(found) == 1:
            return found
    exact = [id for id in row.ids if id in images] if row.names else []
    return exact[:1] or found


# --- Rows -------------------------------------------------------------------------------------


def _row(table: TextTable, line: int, cells: Mapping[str, Any], *, from_cells: bool) -> _Row | None:
    """One row of a table; what is wrong with it goes to the table's problems."""
    known: dict[str, Any] = {}
    for heading, value in cells.items():
        column = column_name(str(heading))
        if column in known and _is_used(column):
            table.report(f"line {line}", f"it has several values called {column}")
            return None
        known[column] = value
    table.garbled += from_cells and not all(map(is_valid, known.values()))
    row = _Row(line, _keys(known, NAME_COLUMNS), _keys(known, ID_COLUMNS), {})
    if not row.names and not row.ids:
        table.report(f"line {line}", "it names no image")
        return None
    problems: list[str] = []
    for column, value in known.items():  # in the file's order: the first caption is the original
        if value is None or (from_cells and not value.strip()):
            continue
        if name := field_of(column):
            take(row.values, name, value, problems)
        elif not _is_used(column):
            table.unused[column] += is_prose(value)
    for problem in problems:
        table.report(row.shown, f"line {line}: {problem}")
    if not row.values and not problems:
        table.report(row.shown, f"line {line} has no text")
    return row if row.values else None


def field_of(column: str) -> str | None:
    """The field of a record that a column fills, if any.

    >>> field_of("Alt Text"), field_of("caption_3"), field_of("width")
    ('captions', 'captions', None)
    """
    column = column_name(column)
    fields = TEXT_COLUMNS | OTHER_COLUMNS
    if column not in fields and (found := _NUMBERED.fullmatch(column)):
        several = fields.get(found[1])
        return several if several in LIST_FIELDS else None
    return fields.get(column)


def _is_used(column: str) -> bool:
    """Whether a column says something that is kept."""
    return column in NAME_COLUMNS + ID_COLUMNS or field_of(column) is not None


def is_prose(value: Any) -> bool:
    """Whether it could be a text that somebody would miss."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and len(text.split()) > 1 for text in values)


def _keys(cells: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    keys = []
    for column in columns:
        value = cells.get(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            keys.append(str(value))
    return keys


def _check_columns(path: Path, columns: list[str]) -> None:
    names = [column_name(column) for column in columns]
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    if repeated:
        raise UsageError(f"{path} has several columns called {repeated[0]}: rename all but one")
    for wanted, what in [
        ((*NAME_COLUMNS, *ID_COLUMNS), "names the image"),
        ((*TEXT_COLUMNS, *OTHER_COLUMNS), "holds text"),
    ]:
        texts = what == "holds text" and any(map(field_of, names))
        if not texts and not set(wanted) & set(names):
            there = ", ".join(column.strip() for column in columns) or "none"
            raise UsageError(
                f"{path} has no column that {what}: its first line has {there}, and one of "
                f"{', '.join(wanted)} is needed"
            )
