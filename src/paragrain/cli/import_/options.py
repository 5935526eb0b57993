"""The command `paragrain import` without its kinds: their common options, and what they tell."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import end, tell

if TYPE_CHECKING:
    from paragrain.collection import ImportReport

app = typer.Typer(
    help="Make a collection from a folder of images, a data set, or the procedural world.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

OutArgument = Annotated[Path, typer.Argument(help="Folder of the collection to make or update.")]
ImagesOption = Annotated[Path, typer.Option(help="Folder with the images.")]
TextsOption = Annotated[
    Path | None,
    typer.Option(help="CSV, TSV or JSON lines with further texts, joined by id or file name."),
]
SplitNameOption = Annotated[str, typer.Option(help="Name of the split the records belong to.")]
LicenceOption = Annotated[str | None, typer.Option(help="Licence of the data, to be kept with it.")]
PixelsOption = Annotated[
    int | None, typer.Option(min=1, help="Skip images of more pixels than this (100 million).")
]


class Keeping(StrEnum):
    """Where the images of a collection lie."""

    BYTES = "bytes"
    PATHS = "paths"


StoreOption = Annotated[
    Keeping,
    typer.Option(
        help="Images inside the Parquet files, or as files beside them: linked, so that they "
        "take no room, or copied where the source is on another disk."
    ),
]


def tell_report(report: "ImportReport", json: bool) -> None:
    """Tell what came of an import, and leave with exit code 3 if anything was skipped."""
    names = report.folder / "skipped.jsonl"
    splits = ", ".join(f"{name} {count:,}" for name, count in report.splits.items())
    tell(
        json,
        {
            "folder": str(report.folder),
            "written": report.written,
            "kept": report.kept,
            "removed": report.removed,
            "skipped": [list(item) for item in report.skipped],
            "skipped_total": report.skipped_total,
            "splits": report.splits,
            "notes": report.notes,
        },
        [
            f"{report.folder}: {sum(report.splits.values()):,} records ({splits})",
            f"{report.written:,} written, {report.kept:,} unchanged, {report.removed:,} removed",
            *(f"note: {note}" for note in report.notes),
        ],
    )
    end(report.skipped, total=report.skipped_total, named_in=str(names))
