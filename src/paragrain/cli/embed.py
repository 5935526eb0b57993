"""`paragrain embed`: image vectors, once."""

from typing import Annotated

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    SplitOption,
    end,
    tell,
)


def embed(
    collection: CollectionArgument,
    model: ModelOption = "blip0",
    split: SplitOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a batch.")] = 64,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Compute the image vectors of a collection and keep them beside it.

    A rerun computes only what is new or changed; any text encoder fine-tuned from the model
    uses the same vectors.

    Example: `paragrain embed photos --model Salesforce/blip-itm-base-coco`
    """
    from paragrain.collection import Collection
    from paragrain.embeddings import embed as run
    from paragrain.encoders import load_encoder

    source = Collection.open(collection)
    done = run(
        source,
        load_encoder(model, device),
        split=split,
        batch_size=batch_size,
        show=not json,
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
            f"{place}: {len(done.ids):,} image vectors "
            f"({done.computed:,} computed, {done.reused:,} reused)"
        ],
    )
    end([*source.problems, *done.failed])
