"""Pages are safe to open, whatever is in the texts, and say the same as their Markdown."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from paragrain.pages import (
    Block,
    Command,
    Figure,
    Gallery,
    Heading,
    Listing,
    OnPage,
    Picture,
    Sample,
    Shaded,
    Text,
    markdown,
    page,
    save,
)
from paragrain.tables import Table

EVIL = "<script>alert('x')</script> & \"quotes\""


def titled(title: str) -> Drawing:
    drawing = Drawing()
    drawing.subplots().set_title(title)
    return drawing


PICTURE = Picture(b"\x89PNG", EVIL, [EVIL], correct=True, media_type="image/png")
BLOCKS: list[Block] = [
    Text(EVIL, dim=True),
    Text(EVIL, quote=True),
    Heading(EVIL, note=EVIL),
    Command(EVIL),
    Table(EVIL, [EVIL, (EVIL, EVIL)], [[EVIL, EVIL]]),
    Figure(titled(EVIL), EVIL, EVIL),
    Gallery([PICTURE, Picture(None, EVIL)], EVIL, large=True),
    Listing(EVIL, [EVIL], ordered=True, correct=[EVIL]),
    Sample(PICTURE, [Listing(EVIL, [EVIL]), Listing("nothing", [])]),
    Shaded(EVIL, [(EVIL, 0.5, EVIL), (EVIL, None, ""), (EVIL, 0.0, "")]),
    OnPage([Text("seen on the page")], "told in Markdown"),
]


class Tags(HTMLParser):
    """The tags of a page, each with its attributes; complains of what is not closed."""

    VOID = frozenset({"meta", "img", "input", "path", "use", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def tags(html: str) -> Tags:
    parser = Tags()
    parser.feed(html)
    assert not parser.open
    return parser


def test_every_block_is_escaped_and_closed() -> None:
    html = page(EVIL, BLOCKS)
    found = tags(html)
    assert not found.all("script")
    assert "alert(&#39;x&#39;)" in html
    shown = found.all("img")
    assert [one["alt"] for one in shown] == [EVIL, EVIL]
    assert all((one["src"] or "").startswith("data:image/png;base64,") for one in shown)
    assert len(found.all("mark")) == len(found.all("s")) == 1
    assert "nothing" not in html
    assert "seen on the page" in html
    assert "told in Markdown" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_correct_answer_is_marked_where_its_picture_is_gone_too() -> None:
    gone = [Picture(None, "a", correct=True), Picture(None, "b")]
    assert tags(page("t", [Gallery(gone)])).all("span") == [{"class": "correct"}, {}]


def test_markdown_says_the_same_without_the_pictures(tmp_path: Path) -> None:
    text = markdown("Title", BLOCKS, "plots")
    assert text.startswith("# Title\n")
    assert "told in Markdown" in text
    assert "seen on the page" not in text
    assert "<script" not in re.sub(
        r"```.*?```", "", text, flags=re.DOTALL
    )  # a command stays as it is
    assert "![&lt;script>alert('x')&lt;/script> & \"quotes\"](plots/script-alert-x-script" in text
    save("Title", BLOCKS, tmp_path)
    assert (tmp_path / "report.md").read_text("utf-8") == text
    assert (tmp_path / "index.html").is_file()
    (svg,) = (tmp_path / "plots").iterdir()
    assert svg.read_text("utf-8").startswith("<?xml")


def test_a_figure_is_one_svg_without_a_file_header() -> None:
    html = page("t", [Figure(titled("t"), "c")])
    assert tags(html).all("figure")[0]["aria-label"] == "c"
    assert html.count("<svg") == 1
    assert "<?xml" not in html
    assert html.lower().count("<!doctype") == 1


def test_headings_become_the_contents_and_every_link_has_its_place() -> None:
    blocks = [Heading(EVIL), Heading("Two"), Heading("In", 3), Heading("Two"), Heading("Last")]
    found = tags(page("t", blocks))
    links = [one["href"] for one in found.all("a")]
    ids = [one["id"] for level in ("h2", "h3") for one in found.all(level)]
    assert len(links) == 6
    assert links.pop() == "#top"
    assert {f"#{id}" for id in ids} == set(links)
    assert found.all("nav") == [{"aria-label": "Contents"}]
    assert not tags(page("t", [Heading("one"), Heading("two")])).all("nav")


def test_no_level_of_heading_is_left_out_whatever_the_blocks_say() -> None:
    blocks = [Heading("a"), Heading("deep", 4), Heading("b"), Heading("c", 3), Heading("d", 4)]
    levels = [tag for tag, _ in tags(page("t", blocks)).found if re.fullmatch(r"h\d", tag)]
    assert levels == ["h1", "h2", "h3", "h2", "h3", "h4"]


@pytest.mark.parametrize("folded", [True, False])
def test_a_section_is_open_unless_it_is_said_to_be_folded(folded: bool) -> None:
    (section,) = tags(page("t", [Heading("a", folded=folded, note="b"), Text("c")])).all("details")
    assert ("open" in section) != folded
