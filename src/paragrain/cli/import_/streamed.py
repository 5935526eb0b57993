"""`paragrain import`: large data sets, which are streamed, and the procedural world."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.common import JsonOption
from paragrain.cli.import_.options import (
    OutArgument,
    SplitNameOption,
    app,
    import_command,
    tell_report,
)

if TYPE_CHECKING:
    from paragrain.collection import ImportReport


@app.command()
@import_command
def webdataset(
    samples: Annotated[
        Path,
        typer.Argument(
            help="A tar or img2dataset's Parquet, a folder of them, or 'shards/{00000..00009}.tar'."
        ),
    ],
    out: OutArgument,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import WebDataset or img2dataset samples.

    Example: `paragrain import webdataset 'shards/{00000..00009}.tar' photos`
    """
    from paragrain.sources import import_webdataset

    return import_webdataset(samples, out, split=split, **options)


@app.command()
@import_command
def cc3m(
    captions: Annotated[Path, typer.Argument(help="The TSV with a caption and a URL a line.")],
    out: OutArgument,
    images: Annotated[
        Path | None, typer.Option(help="img2dataset's output of that file, joined by URL.")
    ] = None,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import Conceptual Captions.

    Example: `paragrain import cc3m Train_GCC-training.tsv --images cc3m photos`
    """
    from paragrain.sources import import_cc3m

    return import_cc3m(captions, out, images=images, split=split, **options)


@app.command()
@import_command
def sharegpt4v(
    entries: Annotated[Path, typer.Argument(help="The JSON list of entries with conversations.")],
    images: Annotated[
        list[Path], typer.Option(help="Folder that the entries' paths start from; repeatable.")
    ],
    out: OutArgument,
    hold_out: Annotated[
        int, typer.Option(min=0, help="So many first entries become the split test.")
    ] = 0,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import ShareGPT4V; Long-CLIP holds out its first 1,000.

    Example: `paragrain import sharegpt4v share.json --images data --hold-out 1000 photos`
    """
    from paragrain.sources import import_sharegpt4v

    return import_sharegpt4v(entries, images, out, hold_out=hold_out, split=split, **options)


@app.command()
@import_command
def parquet(
    files: Annotated[
        Path, typer.Argument(help="A Parquet file, a folder of some, or 'data/train-*.parquet'.")
    ],
    out: OutArgument,
    image_column: Annotated[
        str | None, typer.Option(help="Column of the images; by default guessed and told.")
    ] = None,
    text_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of texts; repeatable. By default those that are known."),
    ] = None,
    field: Annotated[
        str | None, typer.Option(help="Where the texts of --text-column go: captions, ...")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of the ids; by default guessed and told.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images of which only paths are there.")
    ] = None,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import Parquet files with images inside, in Hugging Face's usual layout or others.

    Example: `paragrain import parquet 'data/*.parquet' photos`
    """
    from paragrain.sources import import_parquet

    return import_parquet(
        files,
        out,
        images=images,
        image_column=image_column,
        text_columns=text_column or (),
        field=field,
        id_column=id_column,
        split=split,
        **options,
    )


@app.command()
def scenes(
    out: OutArgument,
    size: Annotated[int, typer.Option(help="Number of training scenes.")] = 8000,
    seed: Annotated[int, typer.Option(help="Decides every scene, picture and text.")] = 0,
    pixels: Annotated[int, typer.Option(help="Side of the pictures.")] = 96,
    family: Annotated[
        int, typer.Option(help="Scenes in a row that differ in one fact; 1 for unrelated ones.")
    ] = 8,
    json: JsonOption = False,
) -> None:
    """Draw a procedural world: pictures whose truth is known, with every kind of text.

    Example: `paragrain import scenes --size 8000 --seed 0 world`
    """
    from paragrain.sources import import_scenes

    tell_report(
        import_scenes(out, size=size, seed=seed, pixels=pixels, family=family, progress=not json),
        json,
    )
