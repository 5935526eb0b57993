"""A sweep as a picture: recall above, what the budget cuts below."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paragrain.evaluation.results import Result
from paragrain.evaluation.stored import DIRECTIONS
from paragrain.files import replacing
from paragrain.pages import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sweep_figure(results: Sequence[Result]) -> "Figure":
    """Recall@1 with its 95 % band at each token budget, and the share of texts that are cut.

    Args:
        results: of `sweep`, of one encoder on one benchmark; in any order.
    """
    from matplotlib.figure import Figure

    ordered = sorted(results, key=lambda result: result.about["protocol"]["token_budget"])
    protocols = [result.about["protocol"] for result in ordered]
    budgets = [protocol["token_budget"] for protocol in protocols]
    drawing = Figure(figsize=(6.4, 5.6), layout="constrained")
    above, below = drawing.subplots(2, sharex=True, height_ratios=(2.4, 1))
    for direction, colour in zip(DIRECTIONS, COLOURS, strict=False):
        _recall(above, budgets, ordered, direction, colour)
    about = ordered[0].about
    above.set_title(
        f"{about['encoder']['name']} on {about['collection']['name']}, "
        f"{protocols[0]['text_field']}, cut by {protocols[0]['text_cut']}",
        fontsize=11,
        parse_math=False,
    )
    above.set_ylabel("Recall@1, % (band: 95 %)")
    above.set_ylim(bottom=0)
    above.legend(frameon=False)
    shares = [100 * protocol["share_cut"] for protocol in protocols]
    below.plot(budgets, shares, marker="o", color="#555555")
    below.set_ylabel("texts cut, %")
    below.set_ylim(-4, 104)
    below.set_xlabel("token budget of a text")
    for axes in (above, below):
        axes.grid(alpha=0.25)
    return drawing


def save_sweep_figure(results: Sequence[Result], path: Path) -> None:
    """Write `sweep_figure` as SVG, whole or not at all; the same results give the same file."""
    from matplotlib import rc_context

    with replacing(path) as temporary, rc_context({"svg.hashsalt": "paragrain"}):
        sweep_figure(results).savefig(temporary, format="svg", metadata={"Date": None})


def _recall(
    axes: "Axes", budgets: Sequence[int], results: Sequence[Result], direction: str, colour: str
) -> None:
    name = direction.replace("_", " ")
    recalls = [getattr(result, direction)[1] for result in results]
    low, high = zip(
        *(result.intervals["strict"][direction]["R@1"] for result in results), strict=True
    )
    axes.fill_between(budgets, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(budgets, recalls, marker="o", color=colour, label=name)
