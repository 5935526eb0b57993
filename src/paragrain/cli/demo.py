"""`paragrain demo`: the study `demo`, with its recalls as a table for the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import JsonOption, tell

if TYPE_CHECKING:
    from paragrain.study.plan import Study
    from paragrain.study.report import WrittenReport
    from paragrain.study.scores import StudyScores


def demo(
    out: Annotated[Path, typer.Option(help="Folder for world, cells and report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the world and the training.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make a world, fine-tune by three recipes, measure, and write a report: under five minutes.

    Example: `paragrain demo --out demo`
    """
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


def demo_study(out: Path, *, seed: int = 0) -> "Study":
    """The study that ships as `demo`, with another seed of world and training."""
    from paragrain.study.plan import parse_study, study_text

    text = study_text("demo")
    text = text.replace("seed: 0", f"seed: {seed}").replace("seeds: [0]", f"seeds: [{seed}]")
    return parse_study(text, out / "study.yaml")


def run_demo(
    study: "Study", out: Path, *, progress: bool = True
) -> tuple["StudyScores", "WrittenReport"]:
    """Run the demo in a folder, where what is there from a killed run is kept, and report it.

    Raises:
        ParagrainError: a training or a measurement failed.
    """
    from paragrain.study.report import write_report
    from paragrain.study.runner import run_study
    from paragrain.study.scores import read_scores

    # One process, so that the numbers do not depend on how many cores there are.
    run_study(study, out, workers=1, device="cpu", progress=progress).raise_if_failed()
    report = write_report(study, out, out / "report", device="cpu", progress=progress)
    return read_scores(study, out), report


def recall_table(study: "Study", scores: "StudyScores") -> list[str]:
    """Recall@1 of each model on each benchmark as lines of text."""
    from paragrain.evaluation.query_ranks import DIRECTIONS
    from paragrain.study.scores import Column

    names = "".join(f"{study.benchmark_title(name):>20}" for name in study.file.benchmarks)
    seed = study.file.seeds[0]
    lines = [f"Recall@1, %, image to text / text to image (seed {seed})", f"{'':8}{names}"]
    for model, recalls in scores.recalls.items():
        cells = (
            " / ".join(f"{recalls[Column(name, d)].value:.1f}" for d in DIRECTIONS)
            for name in study.file.benchmarks
        )
        lines.append(f"{study.title(model):8}" + "".join(f"{cell:>20}" for cell in cells))
    return lines
