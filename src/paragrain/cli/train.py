"""`paragrain train`: fine-tune the text encoder by a recipe."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    end,
    tell,
)
from paragrain.errors import UsageError


def train(
    collection: CollectionArgument,
    model: ModelOption = None,
    recipe: Annotated[str, typer.Option(help="c1 to c10, or a YAML file of your own.")] = "c5",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default runs/RECIPE-seedSEED.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of data order and random picks.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images (10).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step (256).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Largest rate (1e-5).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as --set tokens.paragraph=60."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Begin anew if the folder holds a run.")] = False,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Fine-tune the text encoder and its projection; the image vectors stay as they are.

    A killed run goes on where it was when the same command is given again. The best weights are
    in OUT/checkpoint, a complete Hugging Face folder.

    Example: `paragrain train photos --model Salesforce/blip-itm-base-coco --recipe c5 --out
    runs/c5`
    """
    from paragrain.collection import Collection
    from paragrain.encoders import encoder_for
    from paragrain.training import train as run
    from paragrain.training.config import make_config

    named = {
        "seed": seed,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    given = {name: value for name, value in named.items() if value is not None}
    wanted = None
    for changes in (_from_file(config), _from_pairs(settings or []), given):
        wanted = make_config(wanted, changes)
    source = Collection.open(collection)
    done = run(
        source,
        encoder_for(source, model, device),
        recipe=recipe,
        out=out,
        config=wanted,
        overwrite=overwrite,
        show=not json,
    )
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one speaks for all
    results = done.results
    score = results["best_score"]
    tell(
        json,
        {"folder": str(done.folder), "checkpoint": str(done.folder / "checkpoint"), **results},
        [
            f"{done.folder}: {results['steps']:,} steps, {results['pairs_per_second']:,} pairs/s"
            + ("" if score is None else f", validation R@1 {score:.1f} %"),
            f"{done.folder / 'checkpoint'}: the best text encoder (step {results['best_step']:,})",
        ],
    )
    end([*source.problems, *(tuple(item) for item in results["images_failed"])])


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"the settings in {path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds no settings: write lines such as `epochs: 3`")
    return values


def _from_pairs(pairs: list[str]) -> dict[str, Any]:
    """`tokens.paragraph=60` as `{"tokens": {"paragraph": 60}}`; `betas=0.9,0.98` as a list."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, not {pair!r}")
        *outer, last = name.split(".")
        place = values
        try:
            for part in outer:
                place = place.setdefault(part, {})
            read = yaml.safe_load(value)
            listed = isinstance(read, str) and "," in read
            place[last] = [yaml.safe_load(part) for part in value.split(",")] if listed else read
        except (AttributeError, TypeError, yaml.YAMLError):
            raise UsageError(f"--set {pair} cannot be understood: give NAME=VALUE") from None
    return values
