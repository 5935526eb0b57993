"""Drawings: what they hold, that names do not cover each other, and that they come out the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain import plots
from paragrain.stats import Estimate
from paragrain.study import figures
from paragrain.study.figures import (
    Band,
    ParetoPoint,
    draw_curves,
    draw_pareto,
    free_places,
    pareto_front,
)

NAMES = ["BLIP0", "C1", "C4", "C5, 60 tokens", "a $x_1$ & <b>"]


def points(count: int = 12, seed: int = 0) -> list[ParetoPoint]:
    rng = np.random.default_rng(seed)
    across, up = rng.normal(50, 5, count), rng.normal(40, 9, count)
    return [
        ParetoPoint(f"model {n}", Estimate(x, x - 1.5, x + 1.5), Estimate(y, y - 2, y + 2))
        for n, (x, y) in enumerate(zip(across.tolist(), up.tolist(), strict=True))
    ]


def styles(count: int) -> figures.Styles:
    return plots.families({f"model {n}": f"recipe {n}" for n in range(count)})


def curves() -> dict[str, Band]:
    return {
        name: Band([20, 128], [10.0, 20.0 + place], [8.0, 18.0], [12.0, 23.0])
        for place, name in enumerate(NAMES)
    }


@pytest.mark.parametrize("kind", ["curves", "pareto"])
def test_the_same_drawing_is_the_same_bytes(kind: str) -> None:
    def draw() -> str:
        if kind == "curves":
            return plots.svg(draw_curves(curves(), title="a title"))
        return plots.svg(draw_pareto(points(), styles(12), across="short, %", up="long, %"))

    assert draw() == draw()
    assert "<dc:date>" not in draw()


def test_names_are_shown_as_they_are_and_escaped() -> None:
    drawn = plots.svg(draw_curves(curves()))
    assert "a $x_1$ &amp; &lt;b&gt;" in drawn
    assert "Recall@1, %" in drawn
    assert "tokens read of each text" in drawn


def test_a_band_lies_around_its_curve() -> None:
    (axes,) = draw_curves({"C5": Band([20, 128], [10, 20], [8, 15], [12, 29])}).axes
    assert axes.collections[0].get_datalim(axes.transData).ymax == 29
    assert axes.lines[0].get_ydata().tolist() == [10, 20]


def test_a_difference_is_drawn_below_the_level_in_the_same_colours() -> None:
    own = plots.families({"BLIP": plots.BASE, "C4": "c4"})
    level = {
        "BLIP": Band([20, 128], [10, 20], [8, 18], [12, 22]),
        "C4": Band([20, 128], [11, 30], [9, 28], [13, 32]),
    }
    less = {"C4": Band([20, 128], [1, 10], [-1, 7], [3, 13])}
    drawing = draw_curves(level, own, differences=less, base="BLIP")
    above, below = drawing.axes
    assert below.get_ylabel() == "less BLIP, points"
    assert {line.get_color() for line in below.lines[1:]} == {above.lines[1].get_color()}
    assert below.lines[1].get_ydata().tolist() == [1, 10]
    assert [text.get_text() for text in above.texts] == ["BLIP", "C4"]
    assert above.get_legend() is None
    assert not drawing.legends


def test_names_at_the_ends_of_lines_neither_touch_nor_leave_the_plot() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    lines = {f"model {n}": Band([20, 128], [10, 20 + n / 10], [9, 19], [11, 22]) for n in range(6)}
    drawing = draw_curves(lines)
    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    boxes = [Text.get_window_extent(t, canvas.get_renderer()) for t in drawing.axes[0].texts]
    assert len(boxes) == 6
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])
        assert box.x1 <= drawing.bbox.x1 + 1


def test_a_line_without_a_single_point_costs_nothing() -> None:
    drawn = plots.svg(draw_curves({"none": Band.of([1, 2], [Estimate(), Estimate()])}))
    assert "none" not in drawn.split("</style>")[1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_whatever_is_not_on_the_front_is_beaten_by_it(found: list[tuple[int, int]]) -> None:
    front = [found[index] for index in pareto_front(found)]
    assert front
    for x, y in found:
        beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b in front)
        assert beaten != ((x, y) in front)


def test_names_in_a_pareto_plot_cover_neither_each_other_nor_the_points() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    for seed in range(3):
        drawing = draw_pareto(points(15, seed), styles(15), across="short, %", up="long, %")
        canvas = FigureCanvasAgg(drawing)
        canvas.draw()
        (axes,) = drawing.axes
        boxes = [Text.get_window_extent(text, canvas.get_renderer()) for text in axes.texts]
        assert len(boxes) == 15
        for place, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:place])
        spots = axes.transData.transform([(p.across.value, p.up.value) for p in points(15, seed)])
        assert not any(box.contains(*spot) for box in boxes for spot in spots)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_labels_stay_inside_while_there_is_room(seed: int, count: int) -> None:
    spots = np.random.default_rng(seed).uniform(0, 600, (count, 2))
    offsets = free_places(spots, [(60.0, 12.0)] * count, (0, 0, 600, 600))
    middles = spots + offsets
    assert (middles[:, 0] >= 30 - 0.1).all()
    assert (middles[:, 0] <= 570 + 0.1).all()
    assert (middles[:, 1] >= 6 - 0.1).all()
    assert (middles[:, 1] <= 594 + 0.1).all()
