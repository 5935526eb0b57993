"""A sweep as a picture: recall above, what the maximum length truncates below."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paragrain import plots
from paragrain.evaluation.query_ranks import DIRECTIONS
from paragrain.evaluation.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sweep_figure(results: Sequence[Result]) -> "Figure":
    """Recall@1 with its 95 % band at each maximum length, and the share of truncated texts.

    Args:
        results: of `sweep`, of one encoder on one benchmark; in any order.
    """
    ordered = sorted(results, key=lambda result: result.about["protocol"]["max_length"])
    protocols = [result.about["protocol"] for result in ordered]
    max_lengths = [protocol["max_length"] for protocol in protocols]
    drawing, (above, below) = plots.panels(2, size=(5.8, 2.9), share_x=True)
    for direction, colour in zip(DIRECTIONS, plots.COLOURS, strict=False):
        _recall(above, max_lengths, ordered, direction, colour)
    about = ordered[0].about
    name, collection = about["encoder"]["name"], about["collection"]["name"]
    texts, truncation = protocols[0]["text_field"], protocols[0]["truncation"]
    title = f"{plots.label(name, 30)} on {plots.label(collection, 30)}, {texts}, by {truncation}"
    plots.dress(above, "", "Recall@1, % (band: 95 %)", title)
    above.set_ylim(bottom=0)
    shares = [100 * protocol["share_truncated"] for protocol in protocols]
    below.plot(max_lengths, shares, marker="o", color=plots.SOFT)
    plots.dress(below, "maximum length of a text", "truncated, %")
    below.set_ylim(-4, 104)
    plots.name_ends(
        above,
        [(d.replace("_", " "), max_lengths[-1], getattr(ordered[-1], d)[1]) for d in DIRECTIONS],
    )
    return drawing


def save_sweep_figure(results: Sequence[Result], path: Path) -> None:
    """Write `sweep_figure` as SVG, whole or not at all; the same results give the same file."""
    plots.save_svg(sweep_figure(results), path)


def _recall(
    axes: "Axes", max_lengths: Sequence[int], results: Sequence[Result], direction: str, colour: str
) -> None:
    recalls = [getattr(result, direction)[1] for result in results]
    low, high = zip(
        *(result.intervals["strict"][direction]["R@1"] for result in results), strict=True
    )
    axes.fill_between(max_lengths, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(max_lengths, recalls, marker="o", color=colour)
