"""The demo: the study `demo`, with its recalls as a table for the terminal."""

from pathlib import Path

from paragrain.evaluation.stored import DIRECTIONS
from paragrain.study.plan import Study, parse_study, study_text
from paragrain.study.report import WrittenReport, write_report
from paragrain.study.runner import run_study
from paragrain.study.scores import Column, StudyScores, read_scores


def demo_study(out: Path, *, seed: int = 0) -> Study:
    """The study that ships as `demo`, with another seed of world and training."""
    text = study_text("demo")
    text = text.replace("seed: 0", f"seed: {seed}").replace("seeds: [0]", f"seeds: [{seed}]")
    return parse_study(text, out / "study.yaml")


def run_demo(
    study: Study, out: Path, *, progress: bool = True
) -> tuple[StudyScores, WrittenReport]:
    """Run the demo in a folder, where what is there from a killed run is kept, and report it.

    Raises:
        ParagrainError: a training or a measurement failed.
    """
    # One process, so that the numbers do not depend on how many cores there are.
    run_study(study, out, workers=1, device="cpu", progress=progress).raise_if_failed()
    report = write_report(study, out, out / "report", device="cpu", progress=progress)
    return read_scores(study, out), report


def recall_table(study: Study, scores: StudyScores) -> list[str]:
    """Recall@1 of each model on each benchmark as lines of text."""
    names = "".join(f"{study.benchmark_title(name):>20}" for name in study.file.benchmarks)
    seed = study.file.seeds[0]
    lines = [
        f"Recall@1, %, image to text / text to image (seed {seed})",
        f"{'':8}{names}",
    ]
    for model, recalls in scores.recalls.items():
        cells = (
            " / ".join(f"{recalls[Column(name, d)].value:.1f}" for d in DIRECTIONS)
            for name in study.file.benchmarks
        )
        lines.append(f"{study.title(model):8}" + "".join(f"{cell:>20}" for cell in cells))
    return lines
