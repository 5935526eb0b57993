"""Self-contained HTML pages: no network, light and dark, readable on a phone, all text escaped."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from paragrain import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #5a616b; --paper: #fdfdfb; --line: #d9dbd6;
  --mark: #0b6288; --soft: #eef4f6; --right: #00795a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --dim: #a9aeb4; --paper: #17191b; --line: #3a3e42; --mark: #7cc8ea;
    --soft: #22292d; --right: #2fc79d; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { min-width: 0; }
a { color: var(--mark); }
h1 { font-size: 1.7rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; font-size: 1.25rem; } h3 { margin-top: 1.8rem; font-size: 1.05rem; }
h2, h3, h4 { overflow-wrap: anywhere; }
nav input { position: absolute; opacity: 0; }
nav label { display: inline-block; cursor: pointer; padding: .35rem .8rem; font-weight: 600;
  border: 1px solid var(--line); border-radius: .3rem; }
nav label::before { content: "\\2630\\a0"; }
nav input:focus-visible + label { outline: 2px solid var(--mark); }
nav ol { display: none; } nav input:checked ~ ol { display: block; }
nav ol { list-style: none; margin: .5rem 0; padding: 0; font-size: .9rem; line-height: 1.35; }
nav ol ol { display: block; margin: 0 0 .3rem; padding-left: .9rem; font-size: .85rem; }
nav a { display: block; padding: .2rem 0; text-decoration: none; overflow-wrap: anywhere; }
nav ol ol a { color: var(--dim); } nav a:hover { text-decoration: underline; }
.up { position: fixed; right: .6rem; bottom: .6rem; padding: .3rem .7rem; border-radius: .3rem;
  background: var(--soft); border: 1px solid var(--line); text-decoration: none; z-index: 2; }
@media (min-width: 70rem) {
  body.contents { max-width: 84rem; display: grid; grid-template-columns: 15rem minmax(0, 1fr);
    gap: 2.5rem; }
  nav { position: sticky; top: 1.5rem; align-self: start; max-height: calc(100vh - 3rem);
    overflow-y: auto; }
  nav input, nav label, .up { display: none; } nav ol { display: block; }
  .contents p, .contents blockquote, .contents pre { max-width: 46rem; } }
details.part { border-top: 1px solid var(--line); margin-top: 1.2rem; }
details.part > summary { cursor: pointer; list-style: none; padding: .6rem 0 .2rem; }
details.part > summary::-webkit-details-marker { display: none; }
details.part > summary > h2, details.part > summary > h3 { display: inline; margin: 0; }
details.part > summary::before { content: "\\25b8\\a0"; color: var(--dim); }
details.part[open] > summary::before { content: "\\25be\\a0"; }
details.part > summary > p { margin: .2rem 0 .3rem 1.1rem; color: var(--dim); font-size: .95rem; }
details.part > summary:focus-visible { outline: 2px solid var(--mark); }
pre { padding: .5rem .8rem; border-radius: .3rem; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
p.dim, figcaption { color: var(--dim); font-size: .9rem; margin: .4rem 0; }
.wide { overflow-x: auto; background: no-repeat
    linear-gradient(90deg, var(--paper), transparent) local 0 / 2rem 100%,
    no-repeat linear-gradient(270deg, var(--paper), transparent) local 100% / 2rem 100%,
    no-repeat linear-gradient(90deg, #8886, transparent) scroll 0 / .6rem 100%,
    no-repeat linear-gradient(270deg, #8886, transparent) scroll 100% / .6rem 100%; }
.wide:focus-visible { outline: 2px solid var(--mark); }
.sample { display: grid; grid-template-columns: minmax(8rem, 16rem) 1fr; gap: 1rem;
  margin: 1.5rem 0; } .sample > img { width: 100%; border-radius: .3rem; }
.sample ul { margin: .3rem 0; padding-left: 1.2rem; } .sample b { font-size: .9rem; }
@media (max-width: 40rem) { .sample { grid-template-columns: 1fr; }
  table.words tbody th, table.words thead th { position: static !important; } }
table { border-collapse: collapse; min-width: 100%; font-size: .95rem; }
th, td { padding: .35rem .55rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; vertical-align: bottom; }
td:not(:first-child) { white-space: nowrap; vertical-align: top; }
th.group { text-align: center; border-bottom: 0; padding-bottom: 0; }
tbody th, thead tr:first-child > th:first-child { text-align: left; font-weight: 400;
  vertical-align: top; position: sticky; left: 0; background: var(--paper); z-index: 1;
  min-width: 5rem; max-width: min(18rem, 42vw); }
thead tr:first-child > th:first-child { font-weight: 700; vertical-align: bottom; }
table.long tbody th { min-width: min(18rem, 42vw); }
table.words th, table.words td { text-align: left; white-space: normal; vertical-align: top; }
table.words td { min-width: 7rem; } table.words tbody th { min-width: min(20rem, 68vw);
  max-width: 24rem; } table.words tbody th:has(+ td + td + td) { min-width: 5rem; }
td small { display: block; color: var(--dim); font-size: .8rem; font-weight: 400; }
td.best { font-weight: 700; } td.second { font-style: italic; }
figure { margin: 1rem 0; } .plot svg { max-width: 100%; height: auto; overflow: visible; }
.plot { background: var(--paper); display: inline-block; width: min(100%, 28.5rem);
  vertical-align: top; margin-right: .4rem; }
blockquote { margin: 0 0 .8rem; padding: .6rem 1rem; border-left: 3px solid var(--mark);
  background: var(--soft); overflow-wrap: anywhere; }
.row { display: grid; grid-template-columns: repeat(5, minmax(0, 7rem)); gap: .4rem;
  margin: .3rem 0 .8rem; } .row > b { grid-column: 1 / -1; }
.row img { width: 100%; aspect-ratio: 1; border-radius: .3rem; border: 3px solid transparent;
  object-fit: contain; } .row img.right { border-color: var(--right); }
.row > span { overflow-wrap: anywhere; font-size: .8rem; }
.heat { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem; }
.heat img { width: 100%; border-radius: .3rem; display: block; } .heat figure { margin: 0; }
.answers { padding-left: 1.6rem; margin: .2rem 0 1rem; font-size: .95rem; }
.answers li { border-left: 3px solid transparent; padding-left: .5rem; }
.answers li.right { border-color: var(--right); }
.shaded mark { color: inherit; border-radius: .2rem; padding: .1em 0; }
.shaded s { color: var(--dim); }
code { background: var(--soft); padding: .1rem .3rem; border-radius: .2rem;
  overflow-wrap: anywhere; }
""" + plots.theme(".plot")


def text(value: object) -> str:
    """`value` as HTML text."""
    return html.escape(str(value))


CONTENTS = 4
"""A page with so many headings has its contents beside it."""

_HEADING = re.compile(r"<h([23])>(.*?)</h[23]>", re.DOTALL)


class _Entry(NamedTuple):
    level: int
    id: str
    html: str


def page(title: str, *parts: str) -> str:
    """A whole page from parts that are HTML already; its headings become its contents.

    The contents stand at the side where there is room, and fold above the page on a phone.
    """
    entries: list[_Entry] = []

    def marked(found: re.Match[str]) -> str:
        entry = _Entry(int(found[1]), f"s{len(entries) + 1}", found[2])
        entries.append(entry)
        return f"<h{entry.level} id={entry.id}>{entry.html}</h{entry.level}>"

    # Text is escaped, so that nothing but a heading looks like one.
    body = _HEADING.sub(marked, "\n".join(parts))
    whole = f"<main id=top><h1>{text(title)}</h1>\n{body}\n</main>"
    with_contents = len(entries) >= CONTENTS
    if with_contents:
        whole = _contents(entries) + whole + "<a class=up href='#top'>\u2191 contents</a>"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{text(title)}</title><style>{STYLE}</style></head>"
        f"<body{' class=contents' if with_contents else ''}>{whole}</body></html>\n"
    )


def _contents(entries: Sequence[_Entry]) -> str:
    """The headings as links, those of the third level under those of the second."""
    items: list[str] = []
    inner: list[str] = []

    def close() -> None:
        if inner:
            items.append(f"<li><ol>{''.join(inner)}</ol></li>")
            inner.clear()

    for entry in entries:
        link = f"<li><a href='#{entry.id}'>{entry.html}</a></li>"
        if entry.level == 3:
            inner.append(link)
        else:
            close()
            items.append(link)
    close()
    return (
        "<nav aria-label='Contents'><input type=checkbox id=contents>"
        f"<label for=contents>Contents</label><ol>{''.join(items)}</ol></nav>"
    )


def part(value: object, *inner: str, level: int = 2, folded: bool = False, note: str = "") -> str:
    """A section that folds: its heading, a remark that stays in sight, and what is inside."""
    state = "" if folded else " open"
    remark = paragraph(note) if note else ""
    head = f"<summary>{heading(value, level)}{remark}</summary>"
    return f"<details class=part{state}>{head}{''.join(inner)}</details>"


def paragraph(value: object, *, dim: bool = False) -> str:
    """A paragraph of text."""
    return f"<p{' class=dim' if dim else ''}>{text(value)}</p>"


def heading(value: object, level: int = 2) -> str:
    """A section's heading."""
    return f"<h{level}>{text(value)}</h{level}>"


def command(line: str) -> str:
    """A command to copy."""
    return f"<pre class=wide tabindex=0><code>{text(line)}</code></pre>"


Head = str | tuple[str, str]
"""The name of a column; or that of a group of columns, and its own within it."""


def table(
    head: Sequence[Head],
    rows: Sequence[Sequence[object]],
    caption: str,
    *,
    mark_best: bool = False,
    marks: Mapping[tuple[int, int], str] | None = None,
    words: bool = False,
) -> str:
    """A table that scrolls within itself; with `mark_best`, the best of each column is bold.

    `marks` names single cells, by (row, column), as "best" or "second". With `words`, cells are set
    as text, not as numbers. A number with its interval behind it, "41.4 (39.5 to 43.3)", has the
    interval below it.
    """
    marks = marks or {}
    columns = list(zip(*rows, strict=True))
    best = [max((v for v in column if isinstance(v, float)), default=None) for column in columns]

    def cell(value: object, place: tuple[int, int]) -> str:
        shown = f"{value:.1f}" if isinstance(value, float) else text(value)
        if place[1] == 0:
            return f"<th scope=row>{shown}</th>"
        is_best = mark_best and isinstance(value, float) and value == best[place[1]]
        mark = "best" if is_best else marks.get(place, "")
        shown = shown if words else _INTERVAL.sub(r"\1<small>\2</small>", shown)
        return f"<td{f' class={mark}' if mark else ''}>{shown}</td>"

    body = "".join(
        "<tr>" + "".join(cell(value, (r, c)) for c, value in enumerate(row)) + "</tr>"
        for r, row in enumerate(rows)
    )
    kinds = ["words"] if words else []
    kinds += ["long"] if any(len(str(row[0])) > _LONG for row in rows if row) else []
    named = f" class='{' '.join(kinds)}'" if kinds else ""
    return (
        f"<div class=wide tabindex=0 role=region aria-label='{text(caption[:120])}'>"
        f"<table{named}><thead>{_header(head)}</thead><tbody>{body}</tbody>"
        f"</table></div>{paragraph(caption, dim=True)}"
    )


_INTERVAL = re.compile(r"^(\S+) (\([^()]+\)\*?)$")
_LONG = 24  # letters of a row's name, from which it is let wrap


def _header(head: Sequence[Head]) -> str:
    """One row of names, or two where columns have groups."""
    if not any(isinstance(name, tuple) for name in head):
        return "<tr>" + "".join(f"<th scope=col>{text(name)}</th>" for name in head) + "</tr>"
    above, below = [], []
    for group, names in groupby(head, lambda name: name[0] if isinstance(name, tuple) else name):
        own = list(names)
        if isinstance(own[0], tuple):
            above.append(f"<th class=group scope=colgroup colspan={len(own)}>{text(group)}</th>")
            below += [f"<th scope=col>{text(name[1])}</th>" for name in own]
        else:
            above += [f"<th scope=col rowspan=2>{text(name)}</th>" for name in own]
    return f"<tr>{''.join(above)}</tr><tr>{''.join(below)}</tr>"


def figure(drawing: "Figure", caption: str) -> str:
    """A matplotlib figure as inline SVG, light or dark with the page."""
    shown = plots.inline(drawing)
    named = shown.replace("<svg ", f'<svg role="img" aria-label="{text(caption)}" ', 1)
    return f"<figure class=plot>{named}<figcaption>{text(caption)}</figcaption></figure>"


def picture(data: bytes, media_type: str, alt: str, *, right: bool = False) -> str:
    """An image inside the page; `right` frames it in green."""
    source = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    mark = " class=right" if right else ""
    return f'<img{mark} src="{source}" alt="{text(alt)}" title="{text(alt)}">'
