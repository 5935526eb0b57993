"""`paragrain import`: folders, and data sets that list their images in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.import_.options import (
    ImagesOption,
    OutArgument,
    SplitNameOption,
    app,
    import_command,
)

if TYPE_CHECKING:
    from paragrain.collection import ImportReport


@app.command()
@import_command
def folder(
    images: Annotated[Path, typer.Argument(help="Folder with images, searched to any depth.")],
    out: OutArgument,
    txt_field: Annotated[
        str,
        typer.Option(help="What a .txt holds: captions (one a line), description or paragraph."),
    ] = "captions",
    split: SplitNameOption = None,
    all: Annotated[
        bool,
        typer.Option("--all", help="Hidden files, thumbnails and what else programs leave, too."),
    ] = False,
    **options: Any,
) -> "ImportReport":
    """Import a folder of images, with one .txt beside each or a table of texts.

    Run it again after images came, went or changed: only those are done.

    Example: `paragrain import folder ~/pictures --texts texts.csv photos`
    """
    from paragrain.sources import import_folder

    return import_folder(images, out, txt_field=txt_field, split=split, all=all, **options)


@app.command()
@import_command
def coco(
    images: ImagesOption,
    captions: Annotated[Path, typer.Option(help="The captions_*.json of COCO, or of its layout.")],
    out: OutArgument,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import COCO captions, or any data set in their layout.

    Example: `paragrain import coco --images images --captions captions.json photos`
    """
    from paragrain.sources import import_coco

    return import_coco(images, captions, out, split=split, **options)


@app.command()
@import_command
def karpathy(
    dataset: Annotated[
        Path, typer.Option(help="dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json.")
    ],
    images: ImagesOption,
    out: OutArgument,
    **options: Any,
) -> "ImportReport":
    """Import COCO, Flickr30k or Flickr8k in Karpathy's splits; restval counts as train.

    Example: `paragrain import karpathy --dataset dataset_coco.json --images coco photos`
    """
    from paragrain.sources import import_karpathy

    return import_karpathy(dataset, images, out, **options)


@app.command()
@import_command
def flickr(
    captions: Annotated[
        Path, typer.Option(help="captions.txt, results.csv, Flickr8k.token.txt or results.token.")
    ],
    images: ImagesOption,
    out: OutArgument,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import Flickr8k or Flickr30k with its file of captions.

    Example: `paragrain import flickr --captions captions.txt --images Images photos`
    """
    from paragrain.sources import import_flickr

    return import_flickr(captions, images, out, split=split, **options)


@app.command()
@import_command
def docci(
    jsonl: Annotated[Path, typer.Option(help="docci_descriptions.jsonlines.")],
    images: ImagesOption,
    out: OutArgument,
    **options: Any,
) -> "ImportReport":
    """Import DOCCI with its four splits.

    Example: `paragrain import docci --jsonl docci_descriptions.jsonlines --images images docci`
    """
    from paragrain.sources import import_docci

    return import_docci(jsonl, images, out, **options)


@app.command()
@import_command
def jsonl(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .jsonlines or .ndjson file.")],
    images: ImagesOption,
    out: OutArgument,
    image_key: Annotated[
        str | None, typer.Option(help="Key of the image's name; by default one that is known.")
    ] = None,
    text_key: Annotated[
        list[str] | None,
        typer.Option(help="Key of the text; several times if the field holds several texts."),
    ] = None,
    id_key: Annotated[
        str | None, typer.Option(help="Key of the id; by default one that is known, or the image.")
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="Where the text of --text-key goes; by default the description."),
    ] = None,
    split: SplitNameOption = None,
    **options: Any,
) -> "ImportReport":
    """Import JSON lines that name an image and hold text: IIW, DetailCaps, your own.

    Example: `paragrain import jsonl data.jsonl --images images --text-key IIW --split test iiw`
    """
    from paragrain.sources import import_jsonl

    return import_jsonl(
        file,
        images,
        out,
        image_key=image_key,
        text_keys=text_key or (),
        id_key=id_key,
        field=field,
        split=split,
        **options,
    )


@app.command()
@import_command
def urban1k(
    folder: Annotated[Path, typer.Argument(help="Folder with the folders image and caption.")],
    out: OutArgument,
    **options: Any,
) -> "ImportReport":
    """Import Urban1k: image/ID.jpg and caption/ID.txt, one to one, all of it the split test.

    Example: `paragrain import urban1k Urban1k urban`
    """
    from paragrain.sources import import_urban1k

    return import_urban1k(folder, out, **options)
