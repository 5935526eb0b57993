"""All statistics of a collection's texts at once, on a page with plots: `annotate stats`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import plots
from paragrain.annotation.loop import provenance
from paragrain.annotation.measures.agreement import Agreement, agreement, drawn
from paragrain.annotation.measures.lengths import (
    MAX_LENGTHS,
    TextLengths,
    distribution,
    text_lengths,
)
from paragrain.annotation.measures.statistics import (
    SCORES,
    AnnotationStatistics,
    annotation_statistics,
)
from paragrain.annotation.pictures import prepare
from paragrain.annotation.settings import ImageRule
from paragrain.collection import Collection, Record
from paragrain.collection.fields import TEXT_FIELDS
from paragrain.errors import ParagrainError
from paragrain.files import read_json, write_text
from paragrain.images import BadImage
from paragrain.pages import Block, Figure, Heading, Listing, Picture, Sample, Text, page
from paragrain.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

    from paragrain.encoders import ImageTextEncoder

PAGE = "index.html"
SAMPLES = 6
_THUMBNAIL = ImageRule(min_side=1, max_ratio=1000, max_side=400, quality=80)
_DASHES = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
_TICKS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_CAPTIONS = {
    "token_lengths": "Share of the texts of each kind that fit whole into so many tokens. "
    "The lines: 77 tokens (CLIP), 128 (paragraphs here), 248 (Long-CLIP), 512 (BLIP).",
    "scores": "Scores of the first and of the kept candidate of each paragraph.",
    "candidates": "A paragraph that scores too low is written again; the best is kept.",
    "agreement": "Paragraphs by the scores of both judges; equal scores lie on the diagonal.",
}


@dataclass(frozen=True)
class Overview:
    """What the texts of a collection are like.

    Attributes:
        lengths: of all texts, in words and tokens.
        annotation: who wrote them, and how they were scored.
        agreement: of the latest third judge that `check` asked, if any.
        judges: names of the judges that are compared there.
        page: a page with tables and plots; the plots lie beside it as PNG files.
    """

    lengths: TextLengths
    annotation: AnnotationStatistics
    agreement: Agreement | None
    judges: tuple[str, str]
    page: Path

    def tables(self) -> list[Table]:
        """All that was found, as tables."""
        tables = [*self.lengths.tables(), *self.annotation.tables()]
        tables += [self.agreement.table()] if self.agreement else []
        return [table for table in tables if table.rows]

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "lengths": self.lengths.as_dict(),
            "annotation": self.annotation.as_dict(),
            "agreement": self.agreement and self.agreement.as_dict(),
            "judges": list(self.judges),
            "page": str(self.page),
        }


def overview(
    collection: Collection,
    encoder: "ImageTextEncoder",
    *,
    split: str | None = None,
    progress: bool = True,
) -> Overview:
    """Measure the texts of a collection, and write a page with plots into `annotation/stats`.

    Args:
        collection: annotated or not.
        encoder: its tokenizer counts the tokens.
        split: of this split only.
        progress: whether to show progress.
    """
    total = len(collection.ids(split))
    records = collection.records(split, fields=TEXT_FIELDS)
    lengths = text_lengths(records, encoder, total=total, progress=progress)
    made = annotation_statistics(collection.records(split, fields=["annotation"]))
    found, judges = _latest_check(collection.folder / "annotation")
    folder = collection.folder / "annotation" / "stats"
    name = collection.folder.resolve().name
    shown = samples(collection, split)
    page = write_stats_page(folder, name, lengths, made, found, judges, shown)
    return Overview(lengths, made, found, judges, page)


def _latest_check(folder: Path) -> tuple[Agreement | None, tuple[str, str]]:
    """What the latest `check` found, and the names of the judges."""
    files = sorted(folder.glob("check-*.json"), key=lambda path: path.stat().st_mtime)
    if not files:
        return None, ("", "")
    try:
        value = read_json(files[-1])
        _, first, second = zip(*value["rows"], strict=True)
        judges = (", ".join(value["first_judges"]) or "the judge", value["judge"])
        return agreement(first, second, seed=value["seed"]), judges
    except (ValueError, KeyError, TypeError) as error:
        raise ParagrainError(
            f"{files[-1]} cannot be read ({error}): delete it, or run `annotate check` again"
        ) from error


# --- some images ------------------------------------------------------------------------------


def samples(collection: Collection, split: str | None = None, count: int = SAMPLES) -> list[Block]:
    """A section of a page with some annotated images, drawn at random, the same in every call."""
    records = collection.records(split, fields=["annotation"])
    annotated = (record.id for record in records if record.annotation is not None)
    found = collection.get(drawn(annotated, count, seed=0)).values()
    shown = [_sample(collection, record) for record in found]
    return [Heading("Some of them"), *shown] if shown else []


def _sample(collection: Collection, record: Record) -> Sample:
    try:
        file = prepare(collection.image_bytes(record), _THUMBNAIL)
        picture = Picture(file.data, record.id, media_type=file.media_type)
    except BadImage as error:
        picture = Picture(None, error.reason)
    candidates = [
        f"{candidate.get('score', '-')}: {candidate.get('text', '')}"
        for candidate in provenance(record).get("paragraph", {}).get("candidates", [])
        if isinstance(candidate, dict)
    ]
    lists = {
        "Came with the image": record.captions,
        "Captions": record.generated,
        "Hard negatives": record.negatives,
        "Paragraphs, with their scores": candidates or record.texts("paragraph"),
    }
    return Sample(picture, [Listing(title, texts) for title, texts in lists.items()])


# --- the page ---------------------------------------------------------------------------------


def write_stats_page(
    folder: Path,
    name: str,
    lengths: TextLengths,
    statistics: AnnotationStatistics,
    found: Agreement | None = None,
    judges: tuple[str, str] = ("the first judge", "the second judge"),
    samples: Sequence[Block] = (),
) -> Path:
    """Write the plots as PNG files, and a page with plots and tables that needs no other file.

    Plots of an earlier call that there is no data for any more are removed.

    Args:
        folder: gets `index.html`, `token_lengths.png`, and `scores.png`, `candidates.png` and
            `agreement.png` where there is something to show.
        name: of the collection.
        lengths: from `text_lengths`.
        statistics: from `annotation_statistics`.
        found: from `agreement`, if a second judge was asked.
        judges: what the two judges are called.
        samples: the section of the page that shows some images with their texts.

    Returns:
        The page.
    """
    judged = bool(statistics.candidates)
    figures = {
        "token_lengths": token_lengths(lengths),
        "scores": scores(statistics) if judged else None,
        "candidates": candidates(statistics) if judged else None,
        "agreement": confusion(found, *judges) if found and found.compared else None,
    }
    shown: dict[str, list[Block]] = {}
    for stem, figure in figures.items():
        path = folder / f"{stem}.png"
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            plots.save_png(figure, path)
        shown[stem] = [Figure(figure, _CAPTIONS[stem])] if figure else []
    blocks: list[Block] = [
        *samples,
        Heading("How long the texts are"),
        *shown["token_lengths"],
        *(table for table in lengths.tables() if table.rows),
        Heading("How they were made"),
        Text(
            f"{statistics.records:,} records; annotated: "
            + ", ".join(f"{n:,} with {kind}" for kind, n in statistics.annotated.items())
            + f"; annotations that cannot be read: {len(statistics.malformed):,}."
        ),
        *shown["scores"],
        *shown["candidates"],
        *(table for table in statistics.tables() if table.rows),
    ]
    if found:
        blocks += [
            Heading("Do two judges agree?"),
            Text(
                f"First judge: {judges[0]}; second: {judges[1]}. Without a score: "
                f"{found.first_unscored:,} by the first, {found.second_unscored:,} by the second, "
                f"{found.both_unscored:,} by both."
            ),
            *shown["agreement"],
            found.table(),
        ]
    write_text(folder / PAGE, page(f"Texts of {name}", blocks))
    return folder / PAGE


# --- plots ------------------------------------------------------------------------------------


def token_lengths(lengths: TextLengths) -> "Drawing":
    """One curve a kind: the share of its texts that a maximum length holds whole."""
    drawing, axes = _figure("tokens of a text, special tokens included", "texts that fit, %")
    styles = zip(plots.COLOURS, _DASHES, strict=False)
    longest = 600.0
    for (name, tokens), (colour, dash) in zip(lengths.tokens.items(), styles, strict=False):
        measured = distribution(tokens)
        if measured is None:
            continue
        curve = measured["percentiles"]
        # From 0 at the shortest text to 100 at the right edge, so that no curve just ends.
        axes.plot([*curve, 1e6], [*range(101), 100], color=colour, linestyle=dash,
                  linewidth=2, label=f"{name} ({len(tokens):,})")  # fmt: skip
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


def scores(statistics: AnnotationStatistics) -> "Drawing":
    """How often the first and the kept candidates got each score."""
    drawing, axes = _figure("judge's score, 0 (wrong) to 10 (accurate)", "paragraphs")
    places = np.arange(len(SCORES) + 1)
    parts = (("first candidate", statistics.first, -0.2), ("kept candidate", statistics.kept, 0.2))
    for (label, counts, shift), colour in zip(parts, plots.COLOURS, strict=False):
        heights = [counts[score] for score in (*SCORES, None)]
        axes.bar(places + shift, heights, 0.4, color=colour, label=label)
    axes.set_xticks(places, labels=[*map(str, SCORES), "none"])
    _whole_numbers(axes.yaxis, axes)
    plots.legend_below(axes)
    return drawing


def candidates(statistics: AnnotationStatistics) -> "Drawing":
    """How many paragraphs took how many candidates."""
    drawing, axes = _figure("candidates of a paragraph", "paragraphs")
    most = max(statistics.candidates, default=1)
    numbers = range(1, most + 1)
    heights = [statistics.candidates[n] for n in numbers]
    bars = axes.bar(numbers, heights, color=plots.COLOURS[0])
    if most <= 10:
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, color=plots.INK)
        axes.set_xticks(numbers)
    axes.margins(y=0.12)
    _whole_numbers(axes.yaxis, axes)
    return drawing


def confusion(found: Agreement, first: str, second: str) -> "Drawing":
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


def _figure(across: str, up: str, size: tuple[float, float] = (6.4, 3.8)) -> "tuple[Drawing, Axes]":
    """An empty plot with its axes named."""
    drawing, (axes,) = plots.panels(size=size)
    plots.dress(axes, across, up)
    return drawing, axes


def _whole_numbers(axis: "Axis", axes: "Axes | None" = None) -> None:
    """Whole numbers on an axis; from 0 on, where it is that of `axes`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if axes is not None:
        axes.set_ylim(bottom=0)
    axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _short(name: str, most: int = 45) -> str:
    """The end of a long name, which is what tells models apart."""
    return name if len(name) <= most else "…" + name[1 - most :]
