"""Plots of texts, scores and agreement: PNG files and one self-contained page."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paragrain import plots
from paragrain.pages import old as pages
from paragrain.annotation.measures.agreement import Agreement
from paragrain.annotation.measures.lengths import MAX_LENGTHS, Table, TextLengths
from paragrain.annotation.measures.statistics import SCORES, AnnotationStatistics
from paragrain.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PAGE = "index.html"
_DASHES = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
_TICKS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def token_lengths(lengths: TextLengths) -> "Figure":
    """One curve a kind: the share of its texts that a maximum length holds whole."""
    drawing, axes = _figure("tokens of a text, special tokens included", "texts that fit, %")
    styles = zip(plots.COLOURS, _DASHES, strict=False)
    longest = 600.0
    for (name, kind), (colour, dash) in zip(lengths.kinds.items(), styles, strict=False):
        if kind.tokens is None:
            continue
        curve = kind.tokens.percentiles
        # From 0 at the shortest text to 100 at the right edge, so that no curve just ends.
        axes.plot([*curve, 1e6], [*range(101), 100], color=colour, linestyle=dash,
                  linewidth=2, label=f"{name} ({kind.texts:,})")  # fmt: skip
        longest = max(longest, 1.2 * curve[-1])
    axes.set_xscale("log")
    axes.set_xlim(2, longest)
    axes.set_ylim(0, 102)
    ticks = [tick for tick in _TICKS if tick <= longest]
    axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    for max_length in MAX_LENGTHS:
        axes.axvline(max_length, color=plots.SOFT, linewidth=1, zorder=0)
    # Their labels stand above the frame, where no curve and no other label can be.
    above = axes.secondary_xaxis("top")
    above.set_xticks(MAX_LENGTHS, labels=[str(max_length) for max_length in MAX_LENGTHS])
    above.minorticks_off()
    above.set_xlabel("maximum lengths", labelpad=6)
    above.tick_params(labelsize=plots.SMALL, colors=plots.SOFT)
    above.xaxis.label.set_color(plots.INK)
    above.spines["top"].set_color(plots.FRAME)
    plots.legend_below(axes)
    return drawing


def scores(statistics: AnnotationStatistics) -> "Figure":
    """How often the first and the kept attempts got each score."""
    drawing, axes = _figure("judge's score, 0 (wrong) to 10 (accurate)", "paragraphs")
    places = np.arange(len(SCORES) + 1)
    parts = (("first attempt", statistics.first, -0.2), ("kept attempt", statistics.kept, 0.2))
    for (label, own, shift), colour in zip(parts, plots.COLOURS, strict=False):
        axes.bar(places + shift, [*own.counts, own.none], 0.4, color=colour, label=label)
    axes.set_xticks(places, labels=[*(str(score) for score in SCORES), "none"])
    _count_upwards(axes)
    plots.legend_below(axes)
    return drawing


def attempts(statistics: AnnotationStatistics) -> "Figure":
    """How many paragraphs took how many attempts."""
    drawing, axes = _figure("attempts of a paragraph", "paragraphs")
    most = max(statistics.attempts, default=1)
    numbers = range(1, most + 1)
    bars = axes.bar(numbers, [statistics.attempts[n] for n in numbers], color=plots.COLOURS[0])
    if most <= 10:
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, color=plots.INK)
        axes.set_xticks(numbers)
    axes.margins(y=0.12)
    _count_upwards(axes)
    return drawing


def confusion(found: Agreement, first: str, second: str) -> "Figure":
    """How often the judges called `first` and `second` gave each pair of scores."""
    from matplotlib.colors import LinearSegmentedColormap

    drawing, axes = _figure("", "", size=(6.6, 5.6))
    counts = np.asarray(found.confusion)
    colours = LinearSegmentedColormap.from_list("counts", ["#ffffff", plots.COLOURS[0]])
    most = max(int(counts.max()), 1)
    shown = axes.imshow(counts, cmap=colours, origin="lower", vmin=0, vmax=most)
    size = 8 if most < 1000 else 6
    for row, column in np.argwhere(counts):
        number = counts[row, column]
        ink = "#fefefe" if number > 0.8 * most else "#1b1d20"  # the shades are pixels
        axes.text(column, row, f"{number:,}", ha="center", va="center", color=ink, fontsize=size)
    axes.set_xticks(SCORES)
    axes.set_yticks(SCORES)
    axes.grid(False)
    # Names of models may hold a dollar sign, which is no formula.
    axes.set_xlabel(plots.label(f"score by {_short(second)}"), parse_math=False)
    axes.set_ylabel(plots.label(f"score by {_short(first)}"), parse_math=False)
    bar = drawing.colorbar(shown, ax=axes, shrink=0.8)
    bar.set_label("paragraphs", color=plots.INK)
    bar.ax.tick_params(labelsize=plots.SMALL, colors=plots.SOFT)
    _whole_numbers(bar.ax.yaxis)
    return drawing


def write_stats_page(
    folder: Path,
    name: str,
    lengths: TextLengths,
    statistics: AnnotationStatistics,
    found: Agreement | None = None,
    judges: tuple[str, str] = ("the first judge", "the second judge"),
    samples: str = "",
) -> Path:
    """Write the plots as PNG files, and a page with plots and tables that needs no other file.

    Plots of an earlier call that there is no data for any more are removed.

    Args:
        folder: gets `index.html`, `token_lengths.png`, and `scores.png`, `attempts.png` and
            `agreement.png` where there is something to show.
        name: of the collection.
        lengths: from `text_lengths`.
        statistics: from `annotation_statistics`.
        found: from `agreement`, if a second judge was asked.
        judges: what the two judges are called.
        samples: a part of the page that shows some images with their texts.

    Returns:
        The page.
    """
    judged = bool(statistics.attempts)
    figures = {
        "token_lengths": token_lengths(lengths),
        "scores": scores(statistics) if judged else None,
        "attempts": attempts(statistics) if judged else None,
        "agreement": confusion(found, *judges) if found and found.compared else None,
    }
    for stem, figure in figures.items():
        path = folder / f"{stem}.png"
        if figure is None:
            path.unlink(missing_ok=True)
            continue
        plots.save_png(figure, path)
    parts = _parts(lengths, statistics, found, judges, figures)
    write_text(folder / PAGE, pages.page(f"Texts of {name}", samples, *parts))
    return folder / PAGE


def _parts(
    lengths: TextLengths,
    statistics: AnnotationStatistics,
    found: Agreement | None,
    judges: tuple[str, str],
    figures: "dict[str, Figure | None]",
) -> list[str]:
    captions = {
        "token_lengths": "Share of the texts of each kind that fit into so many tokens uncut. "
        "The lines: 77 tokens (CLIP), 128 (paragraphs here), 248 (Long-CLIP), 512 (BLIP).",
        "scores": "Scores of the first and of the kept attempt of each paragraph.",
        "attempts": "A paragraph that scores too low is written again; the best is kept.",
        "agreement": "Paragraphs by the scores of both judges; equal scores lie on the diagonal.",
    }
    shown = {
        stem: pages.figure(figure, captions[stem]) if figure else ""
        for stem, figure in figures.items()
    }
    parts = [
        pages.heading("How long the texts are"),
        shown["token_lengths"],
        *map(_html, lengths.tables()),
        pages.heading("How they were made"),
        pages.paragraph(
            f"{statistics.records:,} records; annotated: "
            + ", ".join(f"{n:,} with {kind}" for kind, n in statistics.annotated.items())
            + f"; annotations that cannot be read: {len(statistics.malformed):,}."
        ),
        shown["scores"],
        shown["attempts"],
        *(_html(table) for table in statistics.tables() if table.rows),
    ]
    if found:
        parts += [
            pages.heading("Do two judges agree?"),
            pages.paragraph(
                f"First judge: {judges[0]}; second: {judges[1]}. Without a score: "
                f"{found.first_unscored:,} by the first, {found.second_unscored:,} by the second, "
                f"{found.both_unscored:,} by both."
            ),
            shown["agreement"],
            _html(found.table()),
        ]
    return parts


def _html(table: Table) -> str:
    return pages.table(table.head, table.rows, table.title)


def _figure(across: str, up: str, size: tuple[float, float] = (6.4, 3.8)) -> "tuple[Figure, Axes]":
    """An empty plot with its axes named."""
    drawing, (axes,) = plots.panels(size=size)
    plots.dress(axes, across, up)
    return drawing, axes


def _count_upwards(axes: "Axes") -> None:
    """Whole numbers from 0 on the upright axis."""
    axes.set_ylim(bottom=0)
    _whole_numbers(axes.yaxis)


def _whole_numbers(axis: "Axis") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _short(name: str, most: int = 45) -> str:
    """The end of a long name, which is what tells models apart."""
    return name if len(name) <= most else "…" + name[1 - most :]
