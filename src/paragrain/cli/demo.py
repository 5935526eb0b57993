"""`paragrain demo`: the main job on the embedded world."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import JsonOption, tell


def demo(
    out: Annotated[Path, typer.Option(help="Folder for world, cells and report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the world and the training.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make a world, fine-tune by three recipes, measure, and write a report: under five minutes.

    Example: `paragrain demo --out demo`
    """
    from paragrain.study.demo import demo_study, recall_table, run_demo

    study = demo_study(out, seed=seed)
    scores, report = run_demo(study, out, progress=not json)
    recalls = {
        study.title(model): {
            f"{study.benchmark_title(column.benchmark)}, {column.direction}": recall.value
            for column, recall in own.items()
            if column.k == 1
        }
        for model, own in scores.recalls.items()
    }
    tell(
        json,
        {"seed": seed, "recalls": recalls, **report.as_dict()},
        [*recall_table(study, scores), f"report: {report.page.resolve()}"],
    )
