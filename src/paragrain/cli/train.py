"""`paragrain train`: fine-tune the text encoder by a recipe."""

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    end,
    settings_from_file,
    settings_from_pairs,
    tell,
)
from paragrain.errors import UsageError

if TYPE_CHECKING:
    from paragrain.training import Run


def train(
    collection: CollectionArgument,
    model: ModelOption = None,
    recipe: Annotated[str, typer.Option(help="c1 to c10, or a YAML file of your own.")] = "c5",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run, by default runs/RECIPE-seedSEED; with --seeds, of the runs."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of data order and random selections.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Several, such as 0-4 or 0,1,2: a run for each, and their spread."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images (10).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step (256).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Largest rate (1e-5).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as --set max_length.paragraph=60."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Texts to take where a field of the recipe is missing throughout, such as "
            "generated.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Begin anew if the folder holds a run.")] = False,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Fine-tune the text encoder and its projection; the image embeddings stay as they are.

    A killed run goes on where it was when the same command is given again. The best weights are
    in OUT/checkpoint, a complete Hugging Face folder.

    Example: `paragrain train photos --model Salesforce/blip-itm-base-coco --recipe c5 --out
    runs/c5`

    Example: `paragrain train photos --recipe c5 --seeds 0-4 --out runs/c5`
    """
    from paragrain import training
    from paragrain.collection import Collection
    from paragrain.encoders import encoder_for
    from paragrain.training.config import make_config

    if seed is not None and seeds is not None:
        raise UsageError("--seed and --seeds both say the seed: give one of them")
    several = None if seeds is None else training.parse_seeds(seeds)
    options = {
        "seed": seed,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    given = {name: value for name, value in options.items() if value is not None}
    train_config = None
    for changes in (settings_from_file(config), settings_from_pairs(settings), given):
        train_config = make_config(train_config, changes)
    source = Collection.open(collection)
    encoder = encoder_for(source, model, device)
    arguments: dict[str, Any] = {
        "recipe": recipe,
        "out": out,
        "config": train_config,
        "fallback": fallback,
        "overwrite": overwrite,
        "progress": not json,
    }
    if several is None:
        runs = [training.train(source, encoder, **arguments)]
    else:
        runs = training.train_seeds(source, encoder, several, **arguments)
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one speaks for all
    values, lines = zip(*map(_describe, runs), strict=True)
    if several is None:
        tell(json, values[0], lines[0])
    else:
        summary = training.summary(runs)
        described = [*chain(*lines), _describe_summary(summary)]
        tell(json, {"runs": values, "summary": summary}, described)
    failed = {tuple(item): None for run in runs for item in run.results["images_failed"]}
    end([*source.problems, *failed])


def _describe(run: "Run") -> tuple[dict[str, Any], list[str]]:
    """A run as data and in lines."""
    results, checkpoint = run.results, run.folder / "checkpoint"
    score = results["best_score"]
    speed = results["pairs_per_second"]
    return {"folder": str(run.folder), "checkpoint": str(checkpoint), **results}, [
        f"{run.folder}: {results['steps']:,} steps"
        + ("" if speed is None else f", {speed:,} pairs/s")
        + ("" if score is None else f", validation R@1 {score:.1f} %"),
        f"{checkpoint}: the best text encoder (step {results['best_step']:,})",
    ]


def _describe_summary(summary: dict[str, Any]) -> str:
    """Mean and spread of several seeds."""
    if summary["mean"] is None:
        return "there is no validation split, so that the seeds cannot be compared here"
    spread = summary["deviation"]
    return f"{len(summary['seeds'])} seeds: validation R@1 {summary['mean']:.1f} %" + (
        "" if spread is None else f", standard deviation between seeds {spread:.1f}"
    )
