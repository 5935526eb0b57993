"""`paragrain search`: ask a collection in words."""

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


def search(
    collection: CollectionArgument,
    query: Annotated[str, typer.Argument(help="What you are looking for, as long as you like.")],
    model: ModelOption = "blip0",
    k: Annotated[int, typer.Option("--k", "-k", help="How many images to find.")] = 5,
    tokens: Annotated[
        int | None, typer.Option(help="Read so many tokens of the query; by default all it can.")
    ] = None,
    split: SplitOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Find the images that a text describes best, comparing with every image of the collection.

    Example: `paragrain search photos --model runs/c5/checkpoint "two dogs on a wet beach ..."`
    """
    from paragrain.collection import Collection
    from paragrain.encoders import load_encoder
    from paragrain.searching import search as run

    source = Collection.open(collection)
    result = run(
        source,
        load_encoder(model, device),
        query,
        k=k,
        tokens=tokens,
        split=split,
        show=not json,
    )
    lines = [f"{hit.score:7.4f}  {hit.path or hit.id}" for hit in result]
    if result.cut:
        lines.append(f"not read, beyond {result.budget} of {result.tokens} tokens: {result.cut!r}")
    tell(
        json,
        {
            "hits": [{"id": hit.id, "path": hit.path, "score": hit.score} for hit in result],
            "tokens": result.tokens,
            "token_budget": result.budget,
            "cut": result.cut,
            "failed": [list(item) for item in result.failed],
        },
        lines,
    )
    end([*source.problems, *result.failed])
