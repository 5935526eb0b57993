"""Every plot's letters, colours and files: one palette, light and dark, for every script.

A plot is drawn for a light page. `theme` turns the colours of `DARK` where the reader's system is
dark: as a part of a page's style for drawings within it, and inside each SVG file. Letters stay
text in an SVG, so that the reader's own fonts show what matplotlib's cannot; in pixels, letters
that no font at hand has are spelled out by their Unicode names.
"""

import io
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragrain.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

SIZE = (5.4, 3.7)
"""Inches; 390 points across, so that letters of 11 can still be read on a phone."""

FONT, SMALL = 11, 9.5
INK, SOFT, FRAME, GRID = "#1c1e21", "#5f6670", "#9aa0a6", "#dcdfe2"
DPI = 130
"""Of what is drawn as pixels inside an SVG: clouds of points."""

BASE = "model"
"""The family of the model that was not trained here."""

_FAMILIES: dict[str, tuple[str, str, str]] = {
    BASE: ("#434343", "#cdcdcd", "o"),
    "c1": ("#a25c0f", "#ef8143", "s"),
    "c2": ("#ca76ae", "#bd7699", "D"),
    "c3": ("#68440e", "#a8592a", "X"),
    "c4": ("#0055c6", "#01c4ff", "^"),
    "c5": ("#06a97a", "#337961", "v"),
    "c6": ("#352582", "#8e74f6", "P"),
    "c7": ("#5e021c", "#c92a59", "<"),
    "c8": ("#d77f00", "#f9c94c", ">"),
    "c9": ("#307b73", "#7fb4ca", "h"),
    "c10": ("#2a88e7", "#c5e1ff", "p"),
}
"""Colour on light, on dark, and marker of each recipe, in every figure. Any two differ by at least
16 in CIELAB (the base model, C1, C4 and C5 by 30), also as the colour-blind see them (Machado,
Oliveira and Fernandes 2009), and by 3 to 1 from the page: found by search, held by a test."""

COLOURS = tuple(_FAMILIES[name][0] for name in ("c4", "c1", "c5", "c2", "c8", "c6", "c9"))
"""For what is no recipe: kinds of text, directions."""

DARK = {
    INK: "#e6e6e3",
    SOFT: "#a0a5ab",
    FRAME: "#70767d",
    GRID: "#34383c",
    **{light: dark for light, dark, _ in _FAMILIES.values()},
}
"""What becomes of each colour on a dark page."""

PAPER_DARK = "#17191b"

_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_LEGEND_LETTERS = 46  # of a row below a plot
_UNSEEN = ("Cc", "Cs", "Cn", "Co", "Zl", "Zp")
_LABEL = 60
"""Characters of a name in a plot."""

_FONTS = ["DejaVu Sans", "Verdana", "Arial", "sans-serif"]
"""Verdana is as wide as the font that matplotlib has measured with."""


def theme(where: str) -> str:
    """Style rules by which the drawings inside `where` follow the reader's dark mode."""
    rules = "".join(
        f"{where} [style*='{kind}: {light}']{{{kind}:{dark}!important}}"
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    rules += f"{where} text:not([style*='fill:']){{fill:{DARK[INK]}}}"
    return f"@media (prefers-color-scheme: dark) {{{rules}}}"


def families(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash of each line, the same in every figure of a recipe.

    Args:
        names: family of each line, in the order in which a study names them: a recipe, or `BASE`.
            A family that the palette does not know takes the next colour that is free; further
            lines of one family differ from the first in their dash and in a hollow marker.

    >>> looks = families({"C4": "c4", "C4, cut": "c4"})
    >>> looks["C4"]["color"] == looks["C4, cut"]["color"]
    True
    """
    known = {name: (light, marker) for name, (light, _, marker) in _FAMILIES.items()}
    free = [look for name, look in known.items() if name not in names.values() and name != BASE]
    free = free or [look for name, look in known.items() if name != BASE]
    taken: dict[str, int] = {}
    strangers = 0
    looks = {}
    for name, family in names.items():
        if family not in known:
            known[family] = free[strangers % len(free)]
            strangers += 1
        colour, marker = known[family]
        nth = taken[family] = taken.get(family, -1) + 1
        looks[name] = {
            "color": colour,
            "marker": marker,
            "linestyle": _DASHES[nth % len(_DASHES)],
            "markerfacecolor": "none" if nth else colour,
        }
    return looks


# --- Drawing ----------------------------------------------------------------------------------


def panels(
    count: int = 1,
    *,
    across: int = 1,
    size: tuple[float, float] = SIZE,
    share_x: bool = False,
) -> "tuple[Figure, list[Axes]]":
    """A drawing of `count` plots, `across` in a row, each of `size` inches, undressed."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    columns = min(count, across)
    rows = -(-count // columns)
    drawing = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=DPI, layout=layout)
    axes = drawing.subplots(rows, columns, squeeze=False, sharex=share_x).ravel().tolist()
    for unused in axes[count:]:
        unused.remove()
    for own in axes[:count]:
        own.set_facecolor("none")
    return drawing, axes[:count]


def dress(axes: "Axes", across: str, up: str, title: str = "", *, grid: bool = True) -> None:
    """Names, fonts, frame and grid of a plot. No text is taken for a formula."""
    axes.set_xlabel(label(across), fontsize=FONT, color=INK, parse_math=False)
    axes.set_ylabel(label(up), fontsize=FONT, color=INK, parse_math=False)
    axes.set_title(label(title), fontsize=FONT, color=INK, parse_math=False)
    axes.tick_params(labelsize=SMALL, colors=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    if grid:
        axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def legend_below(axes: "Axes") -> None:
    """Name the lines under the plot, in as many columns as their names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    names = [label(name) for name in names]
    columns = max(1, min(len(names), _LEGEND_LETTERS // (5 + max(map(len, names)))))
    legend = axes.figure.legend(
        handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL
    )
    for entry in legend.get_texts():
        entry.set(parse_math=False, color=INK)


def label(text: object, most: int = _LABEL) -> str:
    r"""A name as one line for a plot: no control characters, no half surrogates, not too long.

    >>> label("red\x1b[1m fox\nin snow")
    'red [1m fox in snow'
    >>> label("a" * 99, most=10)
    'aaaaaaaaa…'
    """
    shown = str(text).encode("utf-8", "replace").decode("utf-8")
    shown = "".join(" " if unicodedata.category(c) in _UNSEEN else c for c in shown)
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else shown[: most - 1] + "…"


# --- Files ------------------------------------------------------------------------------------


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of letters that matplotlib's fonts lack: what is drawn stays text, or is spelled
    out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def svg(drawing: "Figure") -> str:
    """A drawing as an SVG file of its own, light or dark as its reader likes.

    The same drawing gives the same bytes, whenever it is made. Its letters stay text, which can be
    selected, and is a quarter of their outlines in size.
    """
    whole = inline(drawing)
    own = f"svg{{background:#fff}}{theme('svg')}"
    own += f"@media (prefers-color-scheme: dark) {{svg{{background:{PAPER_DARK}}}}}"
    end = whole.index(">") + 1
    return (
        '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
        f"{whole[:end]}\n <style>{own}</style>{whole[end:]}"
    )


def inline(drawing: "Figure") -> str:
    """A drawing as the element `svg` of a page, whose style has `theme`."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    settings: dict[str, Any] = {
        "svg.hashsalt": "paragrain",
        "svg.fonttype": "none",
        "font.sans-serif": _FONTS,
    }
    buffer = io.StringIO()
    strange = 0  # letters wider than they were measured
    for text in drawing.findobj(Text):
        shown = text.get_text()
        if not shown.isprintable():
            text.set_text(label(shown, most=len(shown)))
        if not shown.isascii():
            strange = max(strange, sum(not _known(c, text.get_fontproperties()) for c in shown))
    with quiet(), rc_context(settings):
        drawing.savefig(
            buffer,
            format="svg",
            bbox_inches="tight",
            pad_inches=0.1 + 0.07 * strange,
            transparent=True,
            metadata={"Date": None},
        )
    whole = buffer.getvalue()
    return whole[whole.index("<svg") :]


def save_svg(drawing: "Figure", path: Path) -> None:
    """Write `svg`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(svg(drawing), "utf-8")


def save_png(drawing: "Figure", path: Path) -> None:
    """Write a drawing as pixels on white; letters that no font has are spelled out."""
    from matplotlib.text import Text

    for text in drawing.findobj(Text):
        if not text.get_text().isascii():
            text.set_text(spelled(text.get_text(), text.get_fontproperties()))
    with replacing(path) as temporary, quiet():
        drawing.savefig(temporary, format="png", dpi=150, bbox_inches="tight", facecolor="white")


def spelled(text: str, fonts: "FontProperties | None" = None) -> str:
    """`text` with each letter that the fonts at hand lack by its Unicode name.

    >>> spelled("né 한 🐕")
    'né han :dog:'
    """
    parts: list[str] = []
    for letter in label(text, most=len(text)):
        parts.append(letter if _known(letter, fonts) else _spelled(letter))
    return label("".join(parts))


def _spelled(letter: str) -> str:
    plain = unicodedata.normalize("NFKD", letter)
    if plain.isascii():
        return plain
    name = unicodedata.name(letter, "").lower()
    if unicodedata.category(letter) in ("Mn", "Cf"):
        return ""
    for kind in ("letter ", "syllable ", "vowel sign "):
        if kind in name:
            return name.split(kind)[-1].removeprefix("small ")
    if not name or "ideograph" in name:
        return f"[{ord(letter):X}]"
    return f":{name}:"


def _known(letter: str, fonts: "FontProperties | None") -> bool:
    """Whether the font that matplotlib takes has a letter."""
    return letter.isascii() or ord(letter) in _letters(_font(fonts))


def _font(fonts: "FontProperties | None") -> str:
    from matplotlib.font_manager import FontProperties, findfont

    return str(findfont(fonts or FontProperties()))


@lru_cache(maxsize=8)
def _letters(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    return frozenset(get_font(path).get_charmap())


# --- Names at the ends of lines ---------------------------------------------------------------


def name_ends(axes: "Axes", ends: Sequence[tuple[str, float, float]]) -> None:
    """Write the name of each line behind its end, none over another; thin lines lead to them.

    Args:
        axes: the plot, in a drawing of `panels`, otherwise finished.
        ends: (name, x, y) of the last point of each line, in data.
    """
    if not ends:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import offset_copy

    drawing = axes.get_figure(root=True)
    assert drawing is not None
    right = max(x for _, x, _ in ends)
    behind = offset_copy(axes.transData, drawing, x=16, units="points")
    texts = [
        axes.annotate(
            label(name, 34),
            (x, y),
            xytext=(right, y),
            textcoords=behind,
            fontsize=SMALL,
            color=INK,
            va="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FRAME, "linewidth": 0.7, "shrinkB": 3},
        )
        for name, x, y in ends
    ]
    with quiet():
        FigureCanvasAgg(drawing).draw()  # fixes the layout, without which nothing has a place
    axes.set_ylim(axes.get_ylim())
    heights = [float(axes.transData.transform((x, y))[1]) for _, x, y in ends]
    frame = axes.get_window_extent()
    placed = spread(heights, SMALL * 1.25 * drawing.dpi / 72, (frame.y0, frame.y1))
    back = axes.transData.inverted()
    for text, height in zip(texts, placed, strict=True):
        text.set_position((right, float(back.transform((0, height))[1])))


def spread(wanted: Sequence[float], step: float, inside: tuple[float, float]) -> list[float]:
    """Places nearest to those wanted that keep `step` between each other and stay inside.

    >>> spread([5.0, 5.0, 20.0], 4.0, (0.0, 100.0))
    [3.0, 7.0, 20.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[list[float]] = []  # [sum of (wanted - its place in the block), count]
    for i in order:
        blocks.append([wanted[i], 1])
        # A block's first place is its mean; blocks that would overlap become one.
        while len(blocks) > 1 and (
            blocks[-2][0] / blocks[-2][1] + blocks[-2][1] * step > blocks[-1][0] / blocks[-1][1]
        ):
            total, count = blocks.pop()
            blocks[-1][0] += total - count * blocks[-1][1] * step
            blocks[-1][1] += count
    places: list[float] = []
    for total, count in blocks:
        places += [total / count + k * step for k in range(int(count))]
    low, high = inside
    for k in range(len(places)):  # push up from below, then down from above
        places[k] = max(places[k], low if k == 0 else places[k - 1] + step)
    for k in range(len(places) - 1, -1, -1):
        places[k] = min(places[k], high if k == len(places) - 1 else places[k + 1] - step)
    found = [0.0] * len(wanted)
    for place, i in zip(places, order, strict=True):
        found[i] = round(place, 6)
    return found
