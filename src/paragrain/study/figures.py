"""The drawings of a study in one style: fonts, sizes, colours, curves with bands, Pareto plots.

All are white, so that they can be read on a dark page too. Models are told apart by colour, marker
and dash at once. `paragrain.pages.svg` makes the same bytes of the same drawing each time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import pages
from paragrain.study.labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (5.4, 3.7)
"""Inches; 390 points across, so that letters of 11 can still be read on a phone."""

FONT, SMALL = 11, 9.5
INK, SOFT = "#1c1e21", "#5f6670"
DPI = 130
"""Of what is drawn as pixels inside an SVG: clouds of points."""

_MARKERS = "osD^vP"
_DASHES = ("-", "--", "-.", ":")
_LEGEND_LETTERS = 46  # of a row below a plot


@dataclass(frozen=True)
class Band:
    """A curve and its interval, one number for each place on the axis."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class ParetoPoint:
    """One model between two measures, each in percent with its interval (low, high)."""

    name: str
    across: float
    across_interval: tuple[float, float]
    up: float
    up_interval: tuple[float, float]


def look(index: int) -> dict[str, Any]:
    """Colour, marker and dash of the line number `index`; 42 lines differ in one of them."""
    colours = pages.COLOURS
    return {
        "color": colours[index % len(colours)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index // len(colours) % len(_DASHES)],
    }


def panels(
    count: int = 1, *, across: int = 3, size: tuple[float, float] = SIZE
) -> "tuple[Figure, list[Axes]]":
    """A drawing of `count` plots, at most `across` in a row, each of `size` inches, undressed."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    columns = min(count, across)
    rows = -(-count // columns)
    drawing = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=DPI, layout=layout)
    drawing.set_facecolor("white")
    axes = drawing.subplots(rows, columns, squeeze=False).ravel().tolist()
    for unused in axes[count:]:
        unused.remove()
    return drawing, axes[:count]


def dress(axes: "Axes", across: str, up: str, title: str = "", *, grid: bool = True) -> None:
    """Names, fonts, frame and grid of a plot. No text is taken for a formula."""
    axes.set_xlabel(across, fontsize=FONT, color=INK, parse_math=False)
    axes.set_ylabel(up, fontsize=FONT, color=INK, parse_math=False)
    axes.set_title(title, fontsize=FONT, color=INK, parse_math=False)
    axes.tick_params(labelsize=SMALL, colors=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9aa0a6")
    if grid:
        axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def legend_below(axes: "Axes") -> None:
    """Name the lines under the plot, in as many columns as their names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    columns = max(1, min(len(names), _LEGEND_LETTERS // (5 + max(map(len, names)))))
    legend = axes.legend(
        handles,
        names,
        ncols=columns,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        frameon=False,
        fontsize=SMALL,
        handlelength=2.6,
    )
    for entry in legend.get_texts():
        entry.set_parse_math(False)


def draw_curves(
    places: Sequence[float],
    lines: Mapping[str, Band],
    *,
    across: str = "tokens read of each text",
    up: str = "Recall@1, %",
    title: str = "",
) -> "Figure":
    """One line a model, its interval as a shaded band.

    Args:
        places: P positions on the axis, such as token budgets.
        lines: by name, each with P numbers; NaN leaves a gap.
        across, up, title: names of the axes with their units, and of the plot.
    """
    drawing, (axes,) = panels()
    for index, (name, band) in enumerate(lines.items()):
        style = look(index)
        axes.fill_between(
            places, band.low, band.high, color=style["color"], alpha=0.16, linewidth=0
        )
        axes.plot(places, band.mean, **style, markersize=4.5, linewidth=1.8, label=name)
    dress(axes, across, up, title)
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return drawing


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point beats, from left to right.

    A point is beaten if another is at least as good both ways and better in one; higher is better.

    >>> pareto_front([(1.0, 5.0), (2.0, 4.0), (1.5, 4.0), (3.0, 1.0), (3.0, 0.5)])
    [0, 1, 3]
    """

    def is_beaten(x: float, y: float) -> bool:
        return any(a >= x and b >= y and (a, b) != (x, y) for a, b in points)

    front = [index for index, point in enumerate(points) if not is_beaten(*point)]
    return sorted(front, key=lambda index: points[index])


def draw_pareto(
    points: Sequence[ParetoPoint], *, across: str, up: str, title: str = ""
) -> "Figure":
    """Each model at its two measures, with both intervals; the front is filled and joined.

    The front is that of the means: where intervals overlap, a model on it need not be better.

    Args:
        points: the models; their names are set where they cover nothing, as far as there is room.
        across, up: names of the axes, such as "mean R@1 on short texts, %".
    """
    drawing, (axes,) = panels(size=(5.4, 4.6))
    front = pareto_front([(point.across, point.up) for point in points])
    steps = [points[index] for index in front]
    axes.plot(
        [p.across for p in steps],
        [p.up for p in steps],
        color=SOFT,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        drawstyle="steps-pre",  # what lies below it is beaten
        zorder=1,
    )
    for index, point in enumerate(points):
        colour = pages.COLOURS[0] if index in front else SOFT
        axes.errorbar(
            point.across,
            point.up,
            xerr=_reach(point.across, point.across_interval),
            yerr=_reach(point.up, point.up_interval),
            marker="o",
            markersize=6,
            color=colour,
            markerfacecolor=colour if index in front else "white",
            ecolor=colour,
            elinewidth=1,
            alpha=0.95,
        )
    dress(axes, across, up, title)
    axes.margins(0.08)
    bars = [((low, p.up), (high, p.up)) for p in points for low, high in [p.across_interval]]
    bars += [((p.across, low), (p.across, high)) for p in points for low, high in [p.up_interval]]
    for left, right in pairwise(steps):
        corner = (left.across, right.up)
        bars += [((left.across, left.up), corner), (corner, (right.across, right.up))]
    named = [(p.name, p.across, p.up) for p in points]
    place_labels(drawing, axes, named, bold=set(front), lines=bars)
    return drawing


def _reach(value: float, interval: tuple[float, float]) -> np.ndarray:
    """How far an interval reaches below and above its value, [2, 1]; never below nothing."""
    low, high = interval
    return np.maximum([[value - low], [high - value]], 0)


def draw_matrix(
    axes: "Axes",
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    digits: int,
    limits: tuple[float, float],
) -> None:
    """Numbers on a grid of shades: from white to blue, or from orange over white to blue.

    Args:
        axes: a plot of its own.
        values: [R, C].
        rows, columns: names.
        digits: decimals of the numbers.
        limits: values of the palest (or most orange, if below 0) and of the bluest shade.
    """
    from matplotlib.colors import LinearSegmentedColormap

    blue, orange = pages.COLOURS[0], pages.COLOURS[1]
    ends = ["#ffffff", blue] if limits[0] >= 0 else [orange, "#ffffff", blue]
    colours = LinearSegmentedColormap.from_list("shades", ends)
    axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    far = 0.62 * max(abs(limits[0]), abs(limits[1]))
    for (row, column), value in np.ndenumerate(values):
        ink = "white" if abs(value) > far else INK
        axes.text(
            column, row, f"{value:.{digits}f}", ha="center", va="center", color=ink, fontsize=SMALL
        )
    axes.set_xticks(range(len(columns)), labels=columns, rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), labels=rows)
    axes.grid(False)
    for name in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        name.set_parse_math(False)
