"""A report's blocks: the page and the Markdown say the same, and neither executes anything."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from paragrain.pages import Block, Command, Figure, Heading, OnPage, Text, markdown, page, save
from paragrain.study.figures import Band, draw_curves
from paragrain.tables import Table

HOSTILE = "a|b <img src=x onerror=alert(1)> & </td><script>alert(2)</script> &lt;b&gt; **c**"


def plot(name: str = "curve", caption: str = "A caption.") -> Figure:
    drawing = draw_curves({"m": Band([1, 2], [1, 2], [0, 1], [2, 3])}, title="t")
    return Figure(drawing, caption, name)


def blocks() -> list[Block]:
    return [
        Heading("Results"),
        Heading("In detail", 3),
        Text("p < 0.05 says little."),
        Text("A remark.", dim=True),
        Command("paragrain study run a.yaml\nparagrain study report a.yaml"),
        Table(
            "Points.",
            ["model", "x", "y"],
            [["one", 1.0, 2.0], ["two", 3.0, ""]],
            marks={(0, 2): "best", (1, 1): "second"},
        ),
        plot(),
        OnPage([Text("seen")], "told"),
    ]


class Seen(HTMLParser):
    """Tags, attributes and text of a page, its style left out."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text: list[str] = []
        self.classes: dict[str, list[str]] = {}
        self._open = ""
        self._class = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self._open, self._class = tag, dict(attrs).get("class") or ""

    def handle_data(self, data: str) -> None:
        if self._open != "style" and data.strip():
            self.text.append(data.strip())
            self.classes.setdefault(self._class, []).append(data.strip())


def seen(html: str) -> Seen:
    parser = Seen()
    parser.feed(html)
    return parser


def test_markdown_to_the_letter() -> None:
    assert markdown("Title", blocks(), "plots") == (
        "# Title\n\n## Results\n\n### In detail\n\np < 0.05 says little.\n\nA remark.\n\n"
        "```\nparagrain study run a.yaml\nparagrain study report a.yaml\n```\n\n"
        "| model | x | y |\n|---|--:|--:|\n| one | 1.0 | **2.0** |\n| two | *3.0* |  |\n\n"
        "*Points.*\n\n"
        "![A caption.](plots/curve.svg)\n\n*A caption.*\n\ntold\n"
    )


def test_the_page_says_the_same() -> None:
    found = seen(page("Title", blocks()))
    for said in ("Title", "Results", "In detail", "p < 0.05 says little.", "Points.", "seen"):
        assert said in found.text
    assert found.text.count("A caption.") == 1
    assert found.classes["best"][0] == "2.0"
    assert found.classes["second"][0] == "3.0"
    assert found.tags.count("td") == 4
    assert found.tags.count("details") == 2
    assert found.tags.count("svg") == 1


@pytest.mark.parametrize(
    "block",
    [
        Heading(HOSTILE),
        Text(HOSTILE),
        Command(HOSTILE),
        Table(HOSTILE, [HOSTILE], [[HOSTILE]]),
        plot(HOSTILE, HOSTILE),
    ],
)
def test_hostile_text_stays_text(block: Block, tmp_path: Path) -> None:
    found = seen(page(HOSTILE, [block]))
    assert not {"script", "img"} & set(found.tags)
    assert "onerror" not in found.attributes
    assert HOSTILE in html.unescape(page(HOSTILE, [block]))
    text = markdown(HOSTILE, [block], "plots")
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # where nothing is HTML
    assert not re.search(r"<[a-zA-Z/!?]", outside)
    assert "&amp;lt;b&amp;gt;" in outside  # it said &lt;, not <


def test_a_line_in_a_cell_ends_no_row() -> None:
    text = markdown("t", [Table("c", ["a", "b"], [["x\ny", "1|2"]])], "p")
    assert "| x y | 1\\|2 |" in text


@pytest.mark.parametrize("name", ["a b%", "../../up", "c:\\x", "curve-CLIP B/16-i2t", "ü"])
def test_plots_lie_in_their_folder_under_names_that_links_can_hold(
    name: str, tmp_path: Path
) -> None:
    written = save("t", [plot(name)], tmp_path / "report")
    (file,) = (written.parent / "plots").iterdir()
    assert re.fullmatch(r"[a-z0-9.-]*\.svg", file.name)
    assert f"(plots/{file.name})" in (written.parent / "report.md").read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"report"}


def test_a_second_report_is_the_same_to_the_byte(tmp_path: Path) -> None:
    written = [save("t", blocks(), tmp_path / str(n)) for n in range(2)]
    for name in ("index.html", "report.md", "plots/curve.svg"):
        one, other = (path.parent / name for path in written)
        assert one.read_bytes() == other.read_bytes()
