"""`paragrain import`: folders, and data sets that list their images in one file."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import JsonOption
from paragrain.cli.import_.options import (
    ImagesOption,
    Keeping,
    LicenceOption,
    OutArgument,
    PixelsOption,
    SplitNameOption,
    StoreOption,
    TextsOption,
    app,
    tell_report,
)


@app.command()
def folder(
    images: Annotated[Path, typer.Argument(help="Folder with images, searched to any depth.")],
    out: OutArgument,
    texts: TextsOption = None,
    txt_field: Annotated[
        str,
        typer.Option(help="What a .txt holds: captions (one a line), description or paragraph."),
    ] = "captions",
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import a folder of images, with one .txt beside each or a table of texts.

    Run it again after images came, went or changed: only those are done.

    Example: `paragrain import folder ~/pictures --texts texts.csv photos`
    """
    from paragrain.sources import import_folder

    report = import_folder(
        images,
        out,
        texts=texts,
        txt_field=txt_field,
        split=split,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
def coco(
    images: ImagesOption,
    captions: Annotated[Path, typer.Option(help="The captions_*.json of COCO, or of its layout.")],
    out: OutArgument,
    texts: TextsOption = None,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import COCO captions, or any data set in their layout.

    Example: `paragrain import coco --images images --captions captions.json photos`
    """
    from paragrain.sources import import_coco

    report = import_coco(
        images,
        captions,
        out,
        texts=texts,
        split=split,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
def karpathy(
    dataset: Annotated[
        Path, typer.Option(help="dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json.")
    ],
    images: ImagesOption,
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import COCO, Flickr30k or Flickr8k in Karpathy's splits; restval counts as train.

    Example: `paragrain import karpathy --dataset dataset_coco.json --images coco photos`
    """
    from paragrain.sources import import_karpathy

    report = import_karpathy(
        dataset,
        images,
        out,
        texts=texts,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
def flickr(
    captions: Annotated[
        Path, typer.Option(help="captions.txt, results.csv, Flickr8k.token.txt or results.token.")
    ],
    images: ImagesOption,
    out: OutArgument,
    texts: TextsOption = None,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import Flickr8k or Flickr30k with its file of captions.

    Example: `paragrain import flickr --captions captions.txt --images Images photos`
    """
    from paragrain.sources import import_flickr

    report = import_flickr(
        captions,
        images,
        out,
        texts=texts,
        split=split,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
def docci(
    jsonl: Annotated[Path, typer.Option(help="docci_descriptions.jsonlines.")],
    images: ImagesOption,
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import DOCCI with its four splits.

    Example: `paragrain import docci --jsonl docci_descriptions.jsonlines --images images docci`
    """
    from paragrain.sources import import_docci

    report = import_docci(
        jsonl,
        images,
        out,
        texts=texts,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
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
        str, typer.Option(help="Where the text goes: description, captions, paragraph, ...")
    ] = "description",
    texts: TextsOption = None,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import JSON lines that name an image and hold text: IIW, DetailCaps, your own.

    Example: `paragrain import jsonl data.jsonl --images images --text-key IIW --split test iiw`
    """
    from paragrain.sources import import_jsonl

    report = import_jsonl(
        file,
        images,
        out,
        image_key=image_key,
        text_keys=text_key or (),
        id_key=id_key,
        field=field,
        texts=texts,
        split=split,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)


@app.command()
def urban1k(
    folder: Annotated[Path, typer.Argument(help="Folder with the folders image and caption.")],
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
    store: StoreOption = Keeping.BYTES,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import Urban1k: image/ID.jpg and caption/ID.txt, one to one, all of it the split test.

    Example: `paragrain import urban1k Urban1k urban`
    """
    from paragrain.sources import import_urban1k

    report = import_urban1k(
        folder,
        out,
        texts=texts,
        licence=licence,
        store=store.value,
        max_pixels=max_pixels,
        show=not json,
    )
    tell_report(report, json)
