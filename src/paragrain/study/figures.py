"""The drawings of a study: curves with bands and differences, Pareto plots, matrices.

Fonts, colours and files are those of `paragrain.plots`; a recipe looks the same in all of them.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import plots
from paragrain.plots import FRAME, INK, SMALL, SOFT, dress, name_ends, panels, quiet
from paragrain.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Styles = Mapping[str, Mapping[str, Any]]
"""Colour, marker and dash of each model by its title; see `plots.families`."""

LINES = 4
"""So many curves can be told apart where they run close; more go into further figures."""

_CELL_INK = "#1b1d20"  # on a shade that stays pale on a dark page too, and so no colour of `DARK`


@dataclass(frozen=True)
class Band:
    """A curve and its interval at P places on the axis."""

    places: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @classmethod
    def of(cls, places: Sequence[float], found: Sequence[Estimate], *, scale: float = 1) -> "Band":
        """Of an estimate at each place, times `scale`; those that are not defined are left out."""
        known = [(x, e) for x, e in zip(places, found, strict=True) if e.defined]
        return cls(
            [x for x, _ in known],
            *([scale * getattr(e, part) for _, e in known] for part in ("value", "low", "high")),
        )

    def end(self, name: str) -> tuple[str, float, float] | None:
        """A name and the place of the last point; None if there is no point."""
        return (name, self.places[-1], self.mean[-1]) if self.mean else None


def draw_curves(
    lines: Mapping[str, Band],
    styles: Styles | None = None,
    *,
    differences: Mapping[str, Band] | None = None,
    base: str = "",
    across: str = "tokens read of each text",
    up: str = "Recall@1, %",
    title: str = "",
) -> "Figure":
    """One line a model, named at its end, its interval as a band; differences to one model below.

    Args:
        lines: by name.
        styles: of each name; shades of ink if not given, for lines that are no models.
        differences: by name, each line less that of `base`, in points.
        base: name of the model that the differences are to.
        across, up, title: names of the axes with their units, and of the plot.
    """
    drawing, axes = panels(2 if differences else 1, size=(5.4, 3.3), share_x=True)
    styles = styles or _inks(lines)
    draw_bands(axes[0], lines, styles)
    dress(axes[0], "" if differences else across, up, title)
    axes[0].set_ylim(bottom=0)
    drawn = [lines]
    if differences:
        axes[1].axhline(0, color=SOFT, linewidth=1)
        draw_bands(axes[1], differences, styles)
        dress(axes[1], across, f"less {plots.label(base, 30)}, points")
        drawn.append(differences)
    for own, bands in zip(axes, drawn, strict=True):
        name_ends(own, [end for name, band in bands.items() if (end := band.end(name))])
    return drawing


def draw_bands(axes: "Axes", lines: Mapping[str, Band], styles: Styles) -> None:
    """Each line with its markers, on its interval."""
    for name, band in lines.items():
        style = styles[name]
        axes.fill_between(
            band.places, band.low, band.high, color=style["color"], alpha=0.16, linewidth=0
        )
        axes.plot(band.places, band.mean, **style, markersize=4.5, linewidth=1.8)


def _inks(names: Mapping[str, Any]) -> Styles:
    """Lines in ink, told apart by marker, dash and the names at their ends."""
    return {
        name: {
            "color": (INK, SOFT)[index % 2],
            "marker": "osD^vP"[index % 6],
            "linestyle": ("-", "--", "-.", ":")[index % 4],
            "markerfacecolor": (INK, SOFT)[index % 2],
        }
        for index, name in enumerate(names)
    }


# --- Two measures -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ParetoPoint:
    """One model between two measures, each in percent."""

    name: str
    across: Estimate
    up: Estimate


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
    points: Sequence[ParetoPoint], styles: Styles, *, across: str, up: str, title: str = ""
) -> "Figure":
    """Each model at its two measures, with both intervals; the front is filled and joined.

    The front is that of the means: where intervals overlap, a model on it need not be better.

    Args:
        points: the models; their names are set where they cover nothing, as far as there is room.
        styles: of each name.
        across, up: names of the axes, such as "mean R@1 on short texts, %".
    """
    drawing, (axes,) = panels(size=(5.4, 4.6))
    places = [(point.across.value, point.up.value) for point in points]
    front = pareto_front(places)
    steps = [places[index] for index in front]
    axes.plot(
        *zip(*steps, strict=True),
        color=SOFT,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        drawstyle="steps-pre",  # what lies below it is beaten
        zorder=1,
    )
    for index, point in enumerate(points):
        style = styles[point.name]
        axes.errorbar(
            *places[index],
            xerr=_reach(point.across),
            yerr=_reach(point.up),
            marker=style["marker"],
            markersize=6,
            color=style["color"],
            markerfacecolor=style["color"] if index in front else "none",
            ecolor=style["color"],
            elinewidth=1,
            alpha=0.95,
        )
    dress(axes, across, up, title)
    axes.margins(0.08)
    bars = []
    for point, (x, y) in zip(points, places, strict=True):
        bars += [((point.across.low, y), (point.across.high, y))]
        bars += [((x, point.up.low), (x, point.up.high))]
    for left, right in pairwise(steps):
        corner = (left[0], right[1])
        bars += [(left, corner), (corner, right)]
    named = [(plots.label(p.name, 34), *place) for p, place in zip(points, places, strict=True)]
    place_labels(drawing, axes, named, bold=set(front), lines=bars)
    return drawing


def _reach(found: Estimate) -> np.ndarray:
    """How far an interval reaches below and above its value, [2, 1]; never below nothing."""
    return np.maximum([[found.value - found.low], [found.high - found.value]], 0)


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


# --- Names of points --------------------------------------------------------------------------

_POINT = 6.0  # half the side of the square around a point that is kept free, in points
_REACHES = (8.0, 16.0, 26.0, 38.0, 52.0, 70.0)  # how far from its point a label may stand
_ANGLES = np.deg2rad([0, 45, -45, 30, -30, 90, -90, 135, -135, 180, 60, -60, 120, -120, 150, -150])

Box = tuple[float, float, float, float]


def place_labels(
    drawing: "Figure",
    axes: "Axes",
    points: Sequence[tuple[str, float, float]],
    *,
    bold: AbstractSet[int] = frozenset(),
    lines: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
) -> None:
    """Write the name of each point beside it; a thin line leads there where it stands far off.

    Greedy and the same each time: points in the thick of others choose first, each takes the
    nearest place that is free. Where none is, it takes the one that covers least.

    Args:
        drawing, axes: the plot, with its limits as they stay.
        points: (name, x, y) in data.
        bold: indices of names to be set in bold.
        lines: level or upright ones, from point to point in data, that names should not cross.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(drawing)
    with quiet():
        canvas.draw()  # fixes the layout, without which nothing has a place
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    unit = drawing.dpi / 72  # pixels of one point
    places = axes.transData.transform([(x, y) for _, x, y in points])
    texts = [
        axes.annotate(
            name,
            (x, y),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=SMALL,
            color=INK,
            ha="center",
            va="center",
            weight="bold" if index in bold else "normal",
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": FRAME, "linewidth": 0.7, "shrinkB": 4},
        )
        for index, (name, x, y) in enumerate(points)
    ]
    # Of the words alone: the annotation's own extent would hold its line too.
    sizes = [Text.get_window_extent(text, canvas.get_renderer()) for text in texts]
    wide_high = [(size.width / unit + 2, size.height / unit + 1) for size in sizes]
    frame = axes.get_window_extent()
    inside = (frame.x0 / unit, frame.y0 / unit, frame.x1 / unit, frame.y1 / unit)
    ends = axes.transData.transform(np.reshape(lines, (-1, 2))).reshape(-1, 2, 2) / unit
    bars = [(*(pair.min(0) - 1), *(pair.max(0) + 1)) for pair in ends]
    offsets = free_places(places / unit, wide_high, inside, bars)
    for text, (across, up), (width, height) in zip(texts, offsets, wide_high, strict=True):
        text.set_in_layout(False)  # or the layout, and with it every place, would change again
        text.set_position((across, up))
        # Beside its point a name needs no line to it.
        near = abs(across) <= width / 2 + _REACHES[1] and abs(up) <= height / 2 + _REACHES[1]
        assert text.arrow_patch is not None
        text.arrow_patch.set_visible(not near)


def free_places(
    points: np.ndarray,
    sizes: Sequence[tuple[float, float]],
    inside: Box,
    bars: Sequence[Box] = (),
) -> list[tuple[float, float]]:
    """Offset of the middle of each label from its point.

    Args:
        points: [N, 2].
        sizes: width and height of each label.
        inside: the box that labels must not leave.
        bars: what else is in the way.

    >>> free_places(np.array([[50.0, 50.0]]), [(20.0, 10.0)], (0, 0, 100, 100))
    [(18.0, 0.0)]
    """
    squares = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in points.tolist()]
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    crowded = np.argsort(np.sort(distances, axis=1)[:, : min(4, len(points))].sum(1), kind="stable")
    taken: list[Box] = []
    found = [(0.0, 0.0)] * len(points)
    for index in crowded.tolist():
        width, height = sizes[index]
        best: tuple[float, Box, tuple[float, float]] | None = None
        for reach, angle in product(_REACHES, _ANGLES.tolist()):
            # The label's nearest edge, not its middle, is that far away.
            across = round((reach + width / 2) * math.cos(angle), 1)
            up = round((reach + height / 2) * math.sin(angle), 1)
            x, y = points[index] + (across, up)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            covered = sum(_overlap(box, other) for other in (*taken, *squares, *bars))
            covered += width * height - _overlap(box, inside)
            if best is None or covered < best[0] - 1e-6:
                best = (covered, box, (across, up))
            if covered <= 1e-6:
                break
        assert best is not None
        taken.append(best[1])
        found[index] = best[2]
    return found


def _overlap(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, across) * max(0.0, up)
