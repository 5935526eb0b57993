"""Self-contained HTML pages: no network, light and dark, readable on a phone, all text escaped."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #5f6670; --paper: #fdfdfb; --line: #d9dbd6;
  --mark: #0b6e99; --soft: #eef4f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --dim: #a0a5ab; --paper: #17191b; --line: #3a3e42; --mark: #6cc0e5;
    --soft: #22292d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
h3 { margin-top: 1.8rem; font-size: 1.05rem; } pre { padding: .5rem .8rem; border-radius: .3rem; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
p.dim, figcaption { color: var(--dim); font-size: .9rem; margin: .4rem 0; }
.wide { overflow-x: auto; background: no-repeat
    linear-gradient(90deg, var(--paper), transparent) local 0 / 2rem 100%,
    no-repeat linear-gradient(270deg, var(--paper), transparent) local 100% / 2rem 100%,
    no-repeat linear-gradient(90deg, #8886, transparent) scroll 0 / .6rem 100%,
    no-repeat linear-gradient(270deg, #8886, transparent) scroll 100% / .6rem 100%; }
.sample { display: grid; grid-template-columns: minmax(8rem, 16rem) 1fr; gap: 1rem;
  margin: 1.5rem 0; } .sample > img { width: 100%; border-radius: .3rem; }
.sample ul { margin: .3rem 0; padding-left: 1.2rem; } .sample b { font-size: .9rem; }
@media (max-width: 40rem) { .sample { grid-template-columns: 1fr; } }
table { border-collapse: collapse; min-width: 100%; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td:not(:first-child) { white-space: nowrap; }
table.words th, table.words td { text-align: left; white-space: normal; }
td.best { font-weight: 700; } td.second { font-style: italic; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; background: #fff;
  border-radius: .4rem; }
blockquote { margin: 0 0 .8rem; padding: .6rem 1rem; border-left: 3px solid var(--mark);
  background: var(--soft); }
.row { display: grid; grid-template-columns: repeat(5, minmax(0, 7rem)); gap: .4rem;
  margin: .3rem 0 .8rem; } .row > b { grid-column: 1 / -1; }
.row img { width: 100%; aspect-ratio: 1; border-radius: .3rem; border: 3px solid transparent;
  object-fit: contain; } .row img.right { border-color: #009e73; }
.heat { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem; }
.heat img { width: 100%; border-radius: .3rem; display: block; } .heat figure { margin: 0; }
.answers { padding-left: 1.6rem; margin: .2rem 0 1rem; font-size: .95rem; }
.answers li { border-left: 3px solid transparent; padding-left: .5rem; }
.answers li.right { border-color: #009e73; }
.shaded mark { color: inherit; border-radius: .2rem; padding: .1em 0; }
.shaded s { color: var(--dim); }
code { background: var(--soft); padding: .1rem .3rem; border-radius: .2rem;
  overflow-wrap: anywhere; }
"""

# Okabe and Ito's colours, which the colour-blind can tell apart, from dark to light.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def text(value: object) -> str:
    """`value` as HTML text."""
    return html.escape(str(value))


def page(title: str, *parts: str) -> str:
    """A whole page from parts that are HTML already."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{text(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def paragraph(value: object, *, dim: bool = False) -> str:
    """A paragraph of text."""
    return f"<p{' class=dim' if dim else ''}>{text(value)}</p>"


def heading(value: object, level: int = 2) -> str:
    """A section's heading."""
    return f"<h{level}>{text(value)}</h{level}>"


def command(line: str) -> str:
    """A command to copy."""
    return f"<pre class=wide><code>{text(line)}</code></pre>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str,
    *,
    mark_best: bool = False,
    marks: Mapping[tuple[int, int], str] | None = None,
    words: bool = False,
) -> str:
    """A table; with `mark_best`, the largest number of each column is bold.

    `marks` names single cells, by (row, column), as "best" or "second". With `words`, cells are set
    as text, not as numbers.
    """
    marks = marks or {}
    columns = list(zip(*rows, strict=True))
    best = [max((v for v in column if isinstance(v, float)), default=None) for column in columns]

    def cell(value: object, place: tuple[int, int]) -> str:
        shown = f"{value:.1f}" if isinstance(value, float) else text(value)
        is_best = mark_best and isinstance(value, float) and value == best[place[1]]
        mark = "best" if is_best else marks.get(place, "")
        return f"<td{f' class={mark}' if mark else ''}>{shown}</td>"

    body = "".join(
        "<tr>" + "".join(cell(value, (r, c)) for c, value in enumerate(row)) + "</tr>"
        for r, row in enumerate(rows)
    )
    header = "".join(f"<th>{text(name)}</th>" for name in head)
    kind = " class=words" if words else ""
    return (
        f"<div class=wide><table{kind}><thead><tr>{header}</tr></thead><tbody>{body}</tbody>"
        f"</table></div>{paragraph(caption, dim=True)}"
    )


def svg(drawing: "Figure") -> str:
    """A matplotlib figure as SVG: the same drawing, the same bytes, whenever it is made.

    Its letters stay text, which can be selected, and is a quarter of their outlines in size.
    """
    from matplotlib import rc_context

    # Verdana is as wide as the font that matplotlib has measured with.
    fonts = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"]}
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "paragrain", **fonts}):
        drawing.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def figure(drawing: "Figure", caption: str) -> str:
    """A matplotlib figure as inline SVG."""
    whole = svg(drawing)
    shown = whole[whole.index("<svg") :]
    return f"<figure>{shown}<figcaption>{text(caption)}</figcaption></figure>"


def picture(data: bytes, media_type: str, alt: str, *, right: bool = False) -> str:
    """An image inside the page; `right` frames it in green."""
    source = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    mark = " class=right" if right else ""
    return f'<img{mark} src="{source}" alt="{text(alt)}" title="{text(alt)}">'
