"""A report as blocks that become HTML and Markdown alike, so that both say the same."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from paragrain import pages, plots
from paragrain.files import write_text
from paragrain.pages import Head
from paragrain.study.plan import slug

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Heading:
    """A heading of the levels 2 to 4; what follows one of the first two folds under it.

    Attributes:
        text: the heading.
        level: 2, 3 or 4.
        folded: whether its part is closed until the reader opens it.
        note: what stays in sight even then.
    """

    text: str
    level: int = 2
    folded: bool = False
    note: str = ""


@dataclass(frozen=True)
class Words:
    """A paragraph; `dim` for remarks."""

    text: str
    dim: bool = False


@dataclass(frozen=True)
class Command:
    """A command that makes the numbers before it."""

    line: str


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        head: of the columns; the first names the rows. (group, name) where columns have groups.
        rows: of cells, as text.
        caption: what is shown, with units.
        marks: "best" or "second" by (row, column).
        words: whether its cells are text rather than numbers.
    """

    head: Sequence[Head]
    rows: Sequence[Sequence[str]]
    caption: str
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    words: bool = False


@dataclass(frozen=True)
class Plot:
    """A drawing and the name of its file."""

    name: str
    drawing: "Figure"
    caption: str

    @property
    def file(self) -> str:
        """The name of its file, whatever characters its own name holds."""
        return f"{slug(self.name)}.svg"


@dataclass(frozen=True)
class Html:
    """A part with pictures that only the page has; Markdown gets the words in its place."""

    html: str
    words: str


_FOLDING = 3  # the last level whose parts fold

Block = Heading | Words | Command | Table | Plot | Html


def as_page(title: str, blocks: Sequence[Block]) -> str:
    """One self-contained HTML page, in parts that fold."""
    return pages.page(title, *_parts(blocks, 2))


def _parts(blocks: Sequence[Block], level: int) -> list[str]:
    """HTML of blocks; each heading of `level` takes what follows it as its part."""
    if level > _FOLDING:
        return [_html(block) for block in blocks]
    starts = [n for n, b in enumerate(blocks) if isinstance(b, Heading) and b.level == level]
    parts = _parts(blocks[: starts[0] if starts else None], level + 1)
    for start, end in pairwise([*starts, len(blocks)]):
        head = blocks[start]
        assert isinstance(head, Heading)
        inner = _parts(blocks[start + 1 : end], level + 1)
        parts.append(pages.part(head.text, *inner, level=level, folded=head.folded, note=head.note))
    return parts


def _html(block: Block) -> str:
    match block:
        case Heading():
            return pages.heading(block.text, block.level)
        case Words():
            return pages.paragraph(block.text, dim=block.dim)
        case Command():
            return pages.command(block.line)
        case Table():
            return pages.table(
                block.head, block.rows, block.caption, marks=block.marks, words=block.words
            )
        case Plot():
            return pages.figure(block.drawing, block.caption)
        case Html():
            return block.html


def as_markdown(title: str, blocks: Sequence[Block], images: str) -> str:
    """The same in Markdown, with the plots as links into the folder `images`."""
    parts = [f"# {_plain(title)}", *(_markdown(block, images) for block in blocks)]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Text in which Markdown finds no HTML: what looks like a tag or an entity is spelled out."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))


def _markdown(block: Block, images: str) -> str:
    match block:
        case Heading():
            note = f"\n\n{_plain(block.note)}" if block.note else ""
            return f"{'#' * block.level} {_plain(block.text)}{note}"
        case Words():
            return _plain(block.text)
        case Command():
            return f"```\n{block.line}\n```"
        case Table():
            return _markdown_table(block)
        case Plot():
            caption = _plain(block.caption)
            return f"![{caption}]({images}/{block.file})\n\n*{caption}*"
        case Html():
            return _plain(block.words)


def _markdown_table(table: Table) -> str:
    head = [", ".join(name) if isinstance(name, tuple) else name for name in table.head]
    lines = ["| " + " | ".join(map(_cell, head)) + " |"]
    side = "|---" if table.words else "|--:"
    lines.append("|---" + side * (len(table.head) - 1) + "|")
    styles = {"best": "**{}**", "second": "*{}*"}
    for number, row in enumerate(table.rows):
        cells = [
            styles.get(table.marks.get((number, column), ""), "{}").format(_cell(value))
            for column, value in enumerate(row)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\n*{_plain(table.caption)}*"


def _cell(value: str) -> str:
    return _plain(value).replace("|", "\\|").replace("\n", " ")


def save_plots(blocks: Sequence[Block], folder: Path) -> None:
    """Write every plot as an SVG file."""
    for block in blocks:
        if isinstance(block, Plot):
            write_text(folder / block.file, plots.svg(block.drawing))


def save(title: str, blocks: Sequence[Block], folder: Path) -> Path:
    """Write `index.html`, `report.md` and `plots/`; returns the page."""
    save_plots(blocks, folder / "plots")
    write_text(folder / "report.md", as_markdown(title, blocks, "plots"))
    page = folder / "index.html"
    write_text(page, as_page(title, blocks))
    return page
