"""`paragrain embed`: image embeddings, once."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    SplitOption,
    TrustOption,
    end,
    tell,
)
from paragrain.errors import UsageError


def embed(
    collection: CollectionArgument,
    model: ModelOption = None,
    split: SplitOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a batch.")] = 64,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Store the vectors of this .npy file [R, D] instead of computing any."),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="The ids of their rows: .txt, .json, .npy, or .csv, .tsv, .jsonl with a column id."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Name of the given vectors, by default that of their file; the same for other "
            "collections whose vectors come from the same model.",
        ),
    ] = None,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Compute the image embeddings of a collection and keep them beside it.

    A rerun computes only what is new or changed; any text encoder fine-tuned from the model
    uses the same vectors. Vectors from elsewhere are stored with --vectors and --ids, and used by
    --model vectors:NAME:WIDTH+TEXT.

    Example: `paragrain embed photos --model Salesforce/blip-itm-base-coco`

    Example: `paragrain embed photos --vectors dino.npy --ids ids.txt`
    """
    if vectors is None and ids is None and name is None:
        _compute(collection, model, split, batch_size, device, trust_remote_code, json)
    elif vectors is None or ids is None:
        raise UsageError("vectors from elsewhere need --vectors FILE.npy and --ids FILE")
    elif model is not None:
        raise UsageError("--vectors are stored and --model computes them: give one of them")
    else:
        _store(collection, vectors, ids, name, split, json)


def _compute(
    collection: Path,
    model: str | None,
    split: str | None,
    batch_size: int,
    device: str | None,
    trust_remote_code: bool,
    json: bool,
) -> None:
    from paragrain.collection import Collection
    from paragrain.embeddings import embed as run
    from paragrain.encoders import encoder_for

    source = Collection.open(collection)
    done = run(
        source,
        encoder_for(source, model, device, trust_remote_code=trust_remote_code),
        split=split,
        batch_size=batch_size,
        progress=not json,
    )
    place = str(done.cache) if done.cache else "not kept, since the folder cannot be written"
    tell(
        json,
        {
            "folder": str(done.cache) if done.cache else None,
            "images": len(done.ids),
            "computed": done.computed,
            "reused": done.reused,
            "failed": [list(item) for item in done.failed],
        },
        [
            f"{place}: {len(done.ids):,} image embeddings "
            f"({done.computed:,} computed, {done.reused:,} reused)"
        ],
    )
    end([*source.problems, *done.failed])


def _store(
    collection: Path, vectors: Path, ids: Path, name: str | None, split: str | None, json: bool
) -> None:
    from paragrain.collection import Collection
    from paragrain.embeddings import store_vectors

    source = Collection.open(collection)
    done = store_vectors(source, vectors, ids, name=name, split=split, progress=not json)
    tell(
        json,
        {
            "folder": str(done.folder),
            "space": done.space,
            "dim": done.dim,
            "rows": done.rows,
            "images": done.stored,
            "refused": done.refused,
            "not_in_collection": done.absent,
            "without_vector": done.without,
            "failed": [list(item) for item in done.failed],
        },
        [
            f"{done.folder}: {done.stored:,} image embeddings stored, {done.refused:,} refused, "
            f"{done.absent:,} not in the collection, {done.without:,} images without one",
            f"use them as --model {done.space}+TEXT, TEXT being a Hugging Face text encoder",
        ],
    )
    end([*source.problems, *done.failed])
