"""The drawings of a study: curves with bands and differences, Pareto plots, matrices.

Letters, colours and files are those of `paragrain.plots`; a recipe looks the same in all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import plots
from paragrain.plots import FRAME, INK, SMALL, SOFT, dress, name_ends, panels
from paragrain.study.labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[str, Mapping[str, Any]]
"""Colour, marker and dash of each model by its title; see `plots.families`."""

LINES = 4
"""So many curves can be told apart where they run close; more go into further figures."""

_CELL_INK = "#1b1d20"  # on a shade that stays pale on a dark page too, and so no colour of `DARK`


@dataclass(frozen=True)
class Band:
    """A curve and its interval, one number for each place on the axis; NaN leaves a gap."""

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


def draw_curves(
    places: Sequence[float],
    lines: Mapping[str, Band],
    looks: Looks | None = None,
    *,
    differences: Mapping[str, Band] | None = None,
    base: str = "",
    across: str = "tokens read of each text",
    up: str = "Recall@1, %",
    title: str = "",
) -> "Figure":
    """One line a model, named at its end, its interval as a band; differences to one model below.

    Args:
        places: P positions on the axis, such as maximum lengths.
        lines: by name, each with P numbers.
        looks: of each name; shades of ink if not given, for lines that are no models.
        differences: by name, each line less that of `base`, in points.
        base: name of the model that the differences are to.
        across, up, title: names of the axes with their units, and of the plot.
    """
    drawing, axes = panels(2 if differences else 1, size=(5.4, 3.3), share_x=True)
    looks = looks or _inks(lines)
    _draw_lines(axes[0], places, lines, looks)
    dress(axes[0], "" if differences else across, up, title)
    axes[0].set_ylim(bottom=0)
    ends = [(axes[0], lines)]
    if differences:
        axes[1].axhline(0, color=SOFT, linewidth=1)
        _draw_lines(axes[1], places, differences, looks)
        dress(axes[1], across, f"less {plots.label(base, 30)}, points")
        ends.append((axes[1], differences))
    for own, named in ends:
        name_ends(own, [end for name, band in named.items() if (end := _end(name, places, band))])
    return drawing


def _draw_lines(
    axes: "Axes", places: Sequence[float], lines: Mapping[str, Band], looks: Looks
) -> None:
    for name, band in lines.items():
        style = looks[name]
        axes.fill_between(
            places, band.low, band.high, color=style["color"], alpha=0.16, linewidth=0
        )
        axes.plot(places, band.mean, **style, markersize=4.5, linewidth=1.8)


def _end(name: str, places: Sequence[float], band: Band) -> tuple[str, float, float] | None:
    """Name and place of the last point of a line; none if it has no point."""
    there = [(x, y) for x, y in zip(places, band.mean, strict=True) if not np.isnan(y)]
    return (name, *there[-1]) if there else None


def _inks(names: Mapping[str, Any]) -> Looks:
    """Lines in ink, told apart by marker, dash and the names at their ends."""
    looks = {}
    for index, name in enumerate(names):
        colour = (INK, SOFT)[index % 2]
        looks[name] = {
            "color": colour,
            "marker": "osD^vP"[index % 6],
            "linestyle": ("-", "--", "-.", ":")[index % 4],
            "markerfacecolor": colour,
        }
    return looks


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
    points: Sequence[ParetoPoint], looks: Looks, *, across: str, up: str, title: str = ""
) -> "Figure":
    """Each model at its two measures, with both intervals; the front is filled and joined.

    The front is that of the means: where intervals overlap, a model on it need not be better.

    Args:
        points: the models; their names are set where they cover nothing, as far as there is room.
        looks: of each name.
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
        look = looks[point.name]
        axes.errorbar(
            point.across,
            point.up,
            xerr=_reach(point.across, point.across_interval),
            yerr=_reach(point.up, point.up_interval),
            marker=look["marker"],
            markersize=6,
            color=look["color"],
            markerfacecolor=look["color"] if index in front else "none",
            ecolor=look["color"],
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
    named = [(plots.label(p.name, 34), p.across, p.up) for p in points]
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

    blue, orange = plots.COLOURS[0], plots.COLOURS[1]
    ends = ["#ffffff", blue] if limits[0] >= 0 else [orange, "#ffffff", blue]
    colours = LinearSegmentedColormap.from_list("shades", ends)
    axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    far = 0.62 * max(abs(limits[0]), abs(limits[1]))
    for (row, column), value in np.ndenumerate(values):
        ink = "#fefefe" if abs(value) > far else _CELL_INK
        axes.text(
            column, row, f"{value:.{digits}f}", ha="center", va="center", color=ink, fontsize=SMALL
        )
    axes.set_xticks(range(len(columns)), labels=map(plots.label, columns), rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), labels=map(plots.label, rows))
    axes.grid(False)
    axes.spines[:].set_color(FRAME)
    for name in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        name.set_parse_math(False)
