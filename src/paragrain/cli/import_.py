"""`paragrain import`: any data set as a collection."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import JsonOption, end, tell

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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def coco(
    images: ImagesOption,
    captions: Annotated[Path, typer.Option(help="The captions_*.json of COCO, or of its layout.")],
    out: OutArgument,
    texts: TextsOption = None,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def karpathy(
    dataset: Annotated[
        Path, typer.Option(help="dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json.")
    ],
    images: ImagesOption,
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def docci(
    jsonl: Annotated[Path, typer.Option(help="docci_descriptions.jsonlines.")],
    images: ImagesOption,
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def urban1k(
    folder: Annotated[Path, typer.Argument(help="Folder with the folders image and caption.")],
    out: OutArgument,
    texts: TextsOption = None,
    licence: LicenceOption = None,
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
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def webdataset(
    samples: Annotated[
        Path, typer.Argument(help="A tar, a folder of tars, or 'shards/{00000..00009}.tar'.")
    ],
    out: OutArgument,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import WebDataset or img2dataset samples.

    Example: `paragrain import webdataset 'shards/{00000..00009}.tar' photos`
    """
    from paragrain.sources import import_webdataset

    report = import_webdataset(
        samples, out, split=split, licence=licence, max_pixels=max_pixels, show=not json
    )
    _report(report, json)


@app.command()
def cc3m(
    captions: Annotated[Path, typer.Argument(help="The TSV with a caption and a URL a line.")],
    out: OutArgument,
    images: Annotated[
        Path | None, typer.Option(help="img2dataset's output of that file, joined by URL.")
    ] = None,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import Conceptual Captions.

    Example: `paragrain import cc3m Train_GCC-training.tsv --images cc3m photos`
    """
    from paragrain.sources import import_cc3m

    report = import_cc3m(
        captions,
        out,
        images=images,
        split=split,
        licence=licence,
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


@app.command()
def sharegpt4v(
    texts: Annotated[Path, typer.Argument(help="The JSON list of entries with conversations.")],
    images: Annotated[
        list[Path], typer.Option(help="Folder that the entries' paths start from; repeatable.")
    ],
    out: OutArgument,
    hold_out: Annotated[
        int, typer.Option(min=0, help="So many first entries become the split test.")
    ] = 0,
    split: SplitNameOption = "train",
    licence: LicenceOption = None,
    max_pixels: PixelsOption = None,
    json: JsonOption = False,
) -> None:
    """Import ShareGPT4V; Long-CLIP holds out its first 1,000.

    Example: `paragrain import sharegpt4v share.json --images data --hold-out 1000 photos`
    """
    from paragrain.sources import import_sharegpt4v

    report = import_sharegpt4v(
        texts,
        images,
        out,
        hold_out=hold_out,
        split=split,
        licence=licence,
        max_pixels=max_pixels,
        show=not json,
    )
    _report(report, json)


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

    _report(
        import_scenes(out, size=size, seed=seed, pixels=pixels, family=family, show=not json), json
    )


def _report(report: "ImportReport", json: bool) -> None:
    splits = ", ".join(f"{name} {count:,}" for name, count in report.splits.items())
    tell(
        json,
        {
            "folder": str(report.folder),
            "written": report.written,
            "kept": report.kept,
            "removed": report.removed,
            "skipped": [list(item) for item in report.skipped],
            "splits": report.splits,
            "notes": report.notes,
        },
        [
            f"{report.folder}: {sum(report.splits.values()):,} records ({splits})",
            f"{report.written:,} written, {report.kept:,} unchanged, {report.removed:,} removed",
            *(f"note: {note}" for note in report.notes),
        ],
    )
    end(report.skipped, named_in=str(report.folder / "skipped.jsonl"))
