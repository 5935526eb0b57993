"""`paragrain demo`: the main job on the embedded world."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import JsonOption, tell


def demo(
    out: Annotated[Path, typer.Option(help="Folder for world, runs and report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the world and the training.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make a world, fine-tune by three recipes, measure, and write a report: under five minutes.

    Example: `paragrain demo --out demo`
    """
    from paragrain.study.demo import run_demo

    result = run_demo(out, seed=seed, progress=not json)
    tell(json, result.as_dict(), [*result.table(), f"report: {result.report.resolve()}"])
