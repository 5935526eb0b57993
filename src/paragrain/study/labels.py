"""Names of points in a plot, set where they cover neither points nor each other."""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from paragrain.plots import FRAME, INK, SMALL, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
