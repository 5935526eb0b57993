"""Self-contained HTML pages: no network, light and dark, readable on a phone, all text escaped.

A page is a list of blocks. The same blocks become HTML, by the templates beside this file, and
Markdown, so that both say the same.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paragrain import plots
from paragrain.files import slug, write_text
from paragrain.tables import Table, plain_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CONTENTS = 4
"""A page with so many headings has its contents beside it."""


@dataclass(frozen=True)
class Heading:
    """A heading; what follows it, up to the next of its level, folds under it.

    Attributes:
        text: the heading.
        level: 2, 3 or 4; on the page no level is left out.
        folded: whether its section is closed until the reader opens it.
        note: stays in sight even then.
    """

    text: str
    level: int = 2
    folded: bool = False
    note: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; `dim` for remarks, `quote` for a text of the data."""

    text: str
    dim: bool = False
    quote: bool = False


@dataclass(frozen=True)
class Command:
    """Commands to copy."""

    lines: str


@dataclass(frozen=True, eq=False)
class Figure:
    """A matplotlib figure as inline SVG; `name` is that of its file in a saved report."""

    drawing: "Drawing"
    caption: str
    name: str = ""

    @property
    def file(self) -> str:
        """The name of its file, whatever characters its own name holds."""
        return f"{slug(self.name)}.svg"

    @property
    def svg(self) -> Markup:
        """The drawing as an element of a page."""
        return Markup(plots.inline(self.drawing))


@dataclass(frozen=True)
class Picture:
    """A photograph inside the page; where there is no `data`, `alt` stands for it.

    Attributes:
        data: an image file.
        alt: what it shows, such as its id.
        captions: below it.
        correct: frame it in green.
        media_type: of the file.
    """

    data: bytes | None
    alt: str
    captions: Sequence[str] = ()
    correct: bool = False
    media_type: str = "image/jpeg"

    @property
    def source(self) -> str:
        """The file as a URL."""
        assert self.data is not None
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class Gallery:
    """Pictures in a row, under their title; large ones two or three in a row."""

    pictures: Sequence[Picture]
    title: str = ""
    large: bool = False


@dataclass(frozen=True)
class Listing:
    """Texts of the data under a title; those in `correct` are marked."""

    title: str
    texts: Sequence[str]
    ordered: bool = False
    correct: Sequence[str] = ()


@dataclass(frozen=True)
class Sample:
    """A picture with lists of texts beside it; lists that are empty are left out."""

    picture: Picture
    lists: Sequence[Listing]


@dataclass(frozen=True)
class Shaded:
    """A text whose parts are shaded.

    Attributes:
        title: before the text.
        parts: (text, strength from 0 to 1, remark) of each part; a strength of None strikes it out.
        colour: red, green and blue of the shade.
    """

    title: str
    parts: Sequence[tuple[str, float | None, str]]
    colour: tuple[int, int, int] = (213, 94, 0)


@dataclass(frozen=True)
class OnPage:
    """Blocks that only the page has; Markdown gets the text in their place."""

    blocks: Sequence["Block"]
    instead: str


Block = Heading | Text | Command | Table | Figure | Gallery | Listing | Sample | Shaded | OnPage


# --- HTML -------------------------------------------------------------------------------------


@dataclass
class _Section:
    """A heading with its blocks and its subsections."""

    heading: Heading
    level: int
    id: str
    blocks: list[Block] = field(default_factory=list)
    sections: list["_Section"] = field(default_factory=list)


def page(title: str, blocks: Iterable[Block]) -> str:
    """A whole page; where it has `CONTENTS` headings and more, they are its contents.

    The contents stand at the side where there is room, and fold above the page on a phone.
    """
    whole, sections = _sections(_flat(blocks), title)
    template = _environment().get_template("page.html")
    return template.render(page=whole, with_contents=len(sections) >= CONTENTS)


def _flat(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, OnPage):
            yield from _flat(block.blocks)
        else:
            yield block


def _sections(blocks: Iterable[Block], title: str) -> tuple[_Section, list[_Section]]:
    """The page as a tree, and its sections of levels 2 and 3 in order."""
    root = _Section(Heading(title, 1), 1, "top")
    stack = [root]
    listed: list[_Section] = []
    for block in blocks:
        if not isinstance(block, Heading):
            stack[-1].blocks.append(block)
            continue
        while stack[-1].heading.level >= block.level:
            stack.pop()
        section = _Section(block, len(stack) + 1, f"s{len(listed) + 1}")
        if section.level < 4:
            listed.append(section)
        stack[-1].sections.append(section)
        stack.append(section)
    return root, listed


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("paragrain.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__.lower()
    environment.filters["table"] = lambda table: Markup(table.html())
    environment.globals["theme"] = Markup(plots.theme(".plot"))
    return environment


# --- Markdown ---------------------------------------------------------------------------------


def markdown(title: str, blocks: Iterable[Block], plots_folder: str) -> str:
    """The blocks as Markdown, with the figures as links into a folder, without the pictures."""
    parts = (_markdown(block, plots_folder) for block in blocks)
    return "\n\n".join([f"# {plain_markdown(title)}", *filter(None, parts)]) + "\n"


def _markdown(block: Block, plots_folder: str) -> str:
    match block:
        case Heading():
            note = f"\n\n{plain_markdown(block.note)}" if block.note else ""
            return f"{'#' * block.level} {plain_markdown(block.text)}{note}"
        case Text():
            return plain_markdown(block.text)
        case Command():
            return f"```\n{block.lines}\n```"
        case Table():
            return block.markdown()
        case Figure():
            caption = plain_markdown(block.caption)
            return f"![{caption}]({plots_folder}/{block.file})\n\n*{caption}*"
        case OnPage():
            return plain_markdown(block.instead)
    return ""


def save(title: str, blocks: Sequence[Block], folder: Path) -> Path:
    """Write `index.html`, `report.md` and `plots/`; returns the page."""
    for block in blocks:
        if isinstance(block, Figure):
            write_text(folder / "plots" / block.file, plots.svg(block.drawing))
    write_text(folder / "report.md", markdown(title, blocks, "plots"))
    write_text(folder / "index.html", page(title, blocks))
    return folder / "index.html"
