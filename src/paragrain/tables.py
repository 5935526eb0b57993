"""One table for all: text for a terminal, Markdown, HTML, CSV, rows for JSON and pandas."""

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from paragrain.errors import ParagrainError
from paragrain.files import write_text
from paragrain.stats import Estimate

Cell = str | int | float | Estimate | None
Header = str | tuple[str, str]
"""The name of a column; or that of a group of columns, and its own within it."""

_INTERVAL = re.compile(r"^(\S+(?: %)?) (\([^()]+\)\*?)$")
_LONG = 24  # letters of a row's name, from which it is let wrap


@dataclass(frozen=True)
class Table:
    """A table of typed cells; the first column names the rows.

    Attributes:
        title: stands above it as text, below it on a page.
        header: of the columns.
        rows: of cells. None is shown as a dash.
        formats: how the cells of a column are shown (`format`'s specifications), by column; by
            default whole numbers with their thousands apart, others with one digit.
        marks: "best" or "second" by (row, column).
        words: whether its cells are sentences rather than numbers.

    >>> table = Table("Recall, %", ("model", ("long", "R@1"), ("long", "R@5")), [("a", 1200, 7.25)])
    >>> print(table.text())
    Recall, %
    model | long R@1  R@5
    ---------------------
    a     |    1,200  7.2
    >>> print(table.markdown())
    | model | long, R@1 | long, R@5 |
    |---|--:|--:|
    | a | 1,200 | 7.2 |
    <BLANKLINE>
    *Recall, %*
    >>> table.records()
    [{'model': 'a', 'long R@1': 1200, 'long R@5': 7.25}]
    """

    title: str
    header: Sequence[Header]
    rows: Sequence[Sequence[Cell]]
    formats: Mapping[int, str] = field(default_factory=dict)
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    words: bool = False

    def _shown(self) -> list[list[str]]:
        """Its cells as they are shown."""
        return [
            [_text(value, self.formats.get(column)) for column, value in enumerate(row)]
            for row in self.rows
        ]

    def text(self) -> str:
        """Lines for a terminal: a bar before each group, words left and numbers right."""
        names, bars, group = [], [], ""
        for name in self.header:
            above, own = name if isinstance(name, tuple) else ("", name)
            names.append(f"{above} {own}".strip() if above != group else own)
            bars.append(" | " if above != group else "  ")
            group = above
        lines = [names, *self._shown()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = [all(isinstance(v, str) for v in column) for column in zip(*self.rows, strict=True)]
        shown = []
        for line in lines:
            cells = [
                cell.ljust(width) if is_left else cell.rjust(width)
                for cell, width, is_left in zip(line, widths, left, strict=True)
            ]
            text = "".join(bar + cell for bar, cell in zip(["", *bars[1:]], cells, strict=True))
            shown.append(text.rstrip())
        shown.insert(1, "-" * max(map(len, shown)))
        return "\n".join([self.title, *shown] if self.title else shown)

    def markdown(self) -> str:
        """A table of GitHub's Markdown, its title below."""
        names = [", ".join(name) if isinstance(name, tuple) else name for name in self.header]
        side = "|---" if self.words else "|--:"
        styles = {"best": "**{}**", "second": "*{}*"}
        lines = [
            [
                styles.get(self.marks.get((number, column), ""), "{}").format(cell)
                for column, cell in enumerate(map(_markdown, row))
            ]
            for number, row in enumerate(self._shown())
        ]
        written = [f"| {' | '.join(line)} |" for line in [[*map(_markdown, names)], *lines]]
        written.insert(1, "|---" + side * (len(names) - 1) + "|")
        return "\n".join(written) + (f"\n\n*{plain_markdown(self.title)}*" if self.title else "")

    def html(self) -> str:
        """A table that scrolls within itself, an interval below its number, its title below."""

        def cell(shown: str, place: tuple[int, int]) -> str:
            shown = html.escape(shown)
            if place[1] == 0:
                return f"<th scope=row>{shown}</th>"
            shown = shown if self.words else _INTERVAL.sub(r"\1<small>\2</small>", shown)
            mark = self.marks.get(place, "")
            return f"<td{f' class={mark}' if mark else ''}>{shown}</td>"

        shown = self._shown()
        body = "".join(
            "<tr>" + "".join(cell(value, (r, c)) for c, value in enumerate(row)) + "</tr>"
            for r, row in enumerate(shown)
        )
        long = any(len(row[0]) > _LONG for row in shown if row)
        kinds = " ".join(["words"] * self.words + ["long"] * long)
        return (
            f"<div class=wide tabindex=0 role=region aria-label='{html.escape(self.title[:120])}'>"
            f"<table{f' class={kinds!r}' if kinds else ''}><thead>{self._html_header()}</thead>"
            f"<tbody>{body}</tbody></table></div><p class=dim>{html.escape(self.title)}</p>"
        )

    def _html_header(self) -> str:
        """One row of names, or two where columns have groups."""
        if not any(isinstance(name, tuple) for name in self.header):
            names = (f"<th scope=col>{html.escape(str(name))}</th>" for name in self.header)
            return f"<tr>{''.join(names)}</tr>"
        above: list[str] = []
        below: list[str] = []
        for group, columns in groupby(self.header, lambda n: n[0] if isinstance(n, tuple) else n):
            own, named = list(columns), html.escape(str(group))
            inner = [html.escape(name[1]) for name in own if isinstance(name, tuple)]
            if inner:
                above.append(f"<th class=group scope=colgroup colspan={len(own)}>{named}</th>")
                below += [f"<th scope=col>{name}</th>" for name in inner]
            else:
                above += [f"<th scope=col rowspan=2>{named}</th>"] * len(own)
        return f"<tr>{''.join(above)}</tr><tr>{''.join(below)}</tr>"

    @property
    def columns(self) -> list[str]:
        """The names of the columns, groups before them."""
        return [" ".join(name) if isinstance(name, tuple) else name for name in self.header]

    def records(self) -> list[dict[str, Any]]:
        """One row of plain data by the names of the columns, for JSON."""
        return [
            {
                name: value.as_dict() if isinstance(value, Estimate) else value
                for name, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]

    def csv(self) -> str:
        r"""Comma-separated values with a header; lines end with `\n`."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def write_csv(self, path: Path) -> None:
        """Write `csv` as UTF-8, whole or not at all; bytes that are no text are spelled out."""
        write_text(path, self.csv().encode("utf-8", "backslashreplace").decode())

    def data_frame(self) -> Any:
        """The cells as a pandas table.

        Raises:
            ParagrainError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ParagrainError(
                "a table in memory needs pandas: `pip install pandas`, or save the result as a .csv"
            ) from None
        return pandas.DataFrame([tuple(row) for row in self.rows], columns=self.columns)


def _text(value: Cell, spec: str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if spec is None:
        spec = "," if isinstance(value, int) else ".1f"
    return format(value, spec)


def plain_markdown(text: str) -> str:
    """Text in which Markdown finds no HTML: what looks like a tag or an entity is spelled out."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))


def _markdown(cell: str) -> str:
    return plain_markdown(cell).replace("|", "\\|").replace("\n", " ")
