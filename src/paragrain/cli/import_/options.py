"""The command `paragrain import` without its kinds: their common options, and what they tell."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.common import JsonOption, end, tell
from paragrain.cli.import_.plugins import Kinds

if TYPE_CHECKING:
    from paragrain.collection import ImportReport

app = typer.Typer(
    cls=Kinds,
    help="Make a collection from a folder of images, a data set, or the procedural world.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

OutArgument = Annotated[Path, typer.Argument(help="Folder of the collection to make or update.")]
ImagesOption = Annotated[Path, typer.Option(help="Folder with the images.")]
SplitNameOption = Annotated[
    str | None,
    typer.Option(help="Split of the records, where nothing else says one; by default train."),
]
VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify", help="Read every image: sees another one of the same name, size and time."
    ),
]
DropTextsOption = Annotated[
    bool,
    typer.Option(
        "--drop-texts", help="Keep no text but those that this import brings, however it came."
    ),
]


class Keeping(StrEnum):
    """Where the images of a collection lie."""

    BYTES = "bytes"
    PATHS = "paths"


def _shared(
    *,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV, TSV or JSON lines with further texts, joined by id or file name; "
            "repeatable, and a later one counts for more."
        ),
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="Licence of the data, to be kept with it.")
    ] = None,
    store: Annotated[
        Keeping | None,
        typer.Option(
            help="Images inside the Parquet files (bytes), or as files beside them: linked, so "
            "that they take no room, or copied where the source is on another disk. By default "
            "as they are, and bytes at first."
        ),
    ] = None,
    max_pixels: Annotated[
        int | None, typer.Option(min=1, help="Skip images of more pixels than this (100 million).")
    ] = None,
    val: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of the images, from 0 to 1, for the split val."),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of the images, from 0 to 1, for the split test."),
    ] = None,
    verify: VerifyOption = False,
    drop_texts: DropTextsOption = False,
    json: JsonOption = False,
) -> None:
    """The options of all importers; see `collection.WriteOptions`."""


def import_command(command: Callable[..., "ImportReport"]) -> Callable[..., None]:
    """Give a command the options of all importers, and have it tell its report.

    The command takes them as `**options`, which go on to the importer.
    """
    signature, shared = inspect.signature(command), inspect.signature(_shared).parameters
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in own]

    @wraps(command)
    def run(**values: Any) -> None:
        json = values.pop("json")
        given = {
            name: value
            for name, value in values.items()
            if name not in shared or (value is not None and value is not False)
        }
        tell_report(command(**given, progress=not json), json)

    run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
    del run.__annotations__  # the signature has them
    return run


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
            "renamed": report.renamed,
            "skipped": [list(item) for item in report.skipped],
            "skipped_total": report.skipped_total,
            "splits": report.splits,
            "texts": {
                "carried": report.carried,
                "replaced": report.replaced,
                "dropped": report.dropped,
                "waiting": report.waiting,
            },
            "notes": report.notes,
        },
        [
            f"{report.folder}: {sum(report.splits.values()):,} records ({splits})",
            f"{report.written:,} written, {report.kept:,} unchanged, {report.removed:,} removed"
            + f" ({report.renamed:,} of them only renamed)" * bool(report.renamed),
            *(f"note: {note}" for note in report.notes),
        ],
    )
    end(report.skipped, total=report.skipped_total, named_in=str(names))
