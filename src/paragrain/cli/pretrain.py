"""`paragrain pretrain`: a tiny BLIP from nothing."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import CollectionArgument, JsonOption, end, tell


def pretrain(
    collection: CollectionArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run; the model is OUT/checkpoint.")],
    dense_steps: Annotated[
        int, typer.Option(help="Steps of dense prediction of the scene graph.")
    ] = 1200,
    contrast_steps: Annotated[int, typer.Option(help="Steps of image-text contrast.")] = 2400,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Largest rate.")] = 1e-3,
    start: Annotated[str | None, typer.Option(help="Go on from this checkpoint.")] = None,
    block: Annotated[
        int, typer.Option(help="So many records that follow each other stay in one batch.")
    ] = 1,
    graph_weight: Annotated[
        float, typer.Option(help="Weight of predicting the graph beside the contrast.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Of weights, data order and texts.")] = 0,
    json: JsonOption = False,
) -> None:
    """Train a tiny BLIP's two towers from fresh weights, on images and short texts.

    BLIP0, which ships with the package, was made by this; the README has the two commands. A
    killed run goes on where it was.

    Example: `paragrain import scenes --size 40000 --seed 1000 --family 1 world && paragrain
    pretrain world --out runs/first`
    """
    from paragrain.collection import Collection
    from paragrain.training import pretraining

    source = Collection.open(collection)
    made = pretraining.pretrain(
        source,
        out,
        dense_steps=dense_steps,
        contrast_steps=contrast_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        start=start,
        block=block,
        graph_weight=graph_weight,
        seed=seed,
        progress=not json,
    )
    checkpoint, results = made.folder / "checkpoint", made.results
    tell(
        json,
        {"checkpoint": str(checkpoint), **results},
        [f"{checkpoint}: a tiny BLIP, trained for {results['seconds'] / 60:.0f} minutes"],
    )
    end([*source.problems, *map(tuple, results["images_failed"])])
