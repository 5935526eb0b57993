"""`paragrain study`: the whole experiment, its state, its report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    end,
    tell,
)
from paragrain.words import duration

if TYPE_CHECKING:
    from paragrain.study.forecast import Forecast

app = typer.Typer(
    help="Run a study: every recipe, seed, ablation and control of a file, and one report.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

StudyArgument = Annotated[
    Path, typer.Argument(help="A study file, or one that ships: scenes, paper, demo.")
]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder of the study's cells; runs/NAME if not given.")
]


@app.command("new")
def new(
    collection: CollectionArgument,
    file: Annotated[Path, typer.Argument(help="The study file to write.")] = Path("study.yaml"),
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Write a first study file for a collection: what its splits and texts allow.

    Example: `paragrain study new photos study.yaml --model Salesforce/blip-itm-base-coco`
    """
    from paragrain.errors import UsageError
    from paragrain.files import write_text
    from paragrain.study.plan import load_study
    from paragrain.study.template import study_template

    if file.exists():
        raise UsageError(f"{file} is there already: name another file, or remove it")
    write_text(file, study_template(collection, model))
    plan = load_study(file)
    cells = len(list(plan.cells()))
    value = {"file": str(file), "recipes": plan.file.recipes, "cells": cells}
    tell(
        json,
        value,
        [
            f"{file}: {len(plan.models)} models, {len(plan.file.seeds)} seeds, {cells} cells",
            f"next: paragrain study run {file} --dry-run",
        ],
    )


@app.command("show")
def show(study: StudyArgument, json: JsonOption = False) -> None:
    """Print a study file, such as one that ships, to be saved and edited.

    Example: `paragrain study show scenes > mine.yaml`
    """
    from paragrain.study.plan import study_text

    text = study_text(study)
    tell(json, {"study": str(study), "text": text}, text.splitlines())


@app.command("run")
def run(
    study: StudyArgument,
    out: OutOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will do, need and cost; do nothing.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this model; may be given several times.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Only this seed; may be given several times.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Cells at a time; by default one a core for small models."),
    ] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Train and measure what is not done yet of a study; a killed one goes on where it was.

    Example: `paragrain study run scenes`
    """
    from paragrain.study.plan import load_study
    from paragrain.study.runner import default_out, run_study

    plan = load_study(study)
    if dry_run:
        from paragrain.study.forecast import forecast

        _tell_forecast(forecast(plan, out or default_out(plan)), json)
        return
    report = run_study(
        plan,
        out,
        only=only or (),
        seeds=seed or (),
        workers=workers,
        device=device,
        progress=not json,
    )
    tell(
        json,
        report.as_dict(),
        [
            f"{report.out}: {report.done:,} cells done in {duration(report.seconds)}, "
            f"{report.kept:,} were there, {len(report.failed):,} failed",
            f"next: paragrain study report {study}",
        ],
    )
    end([*report.failed, *report.skipped], what="failed or skipped")


@app.command("status")
def status(study: StudyArgument, out: OutOption = None, json: JsonOption = False) -> None:
    """Say which cells of a study are done, and how long they took.

    Example: `paragrain study status scenes`
    """
    from paragrain.study.plan import load_study
    from paragrain.study.runner import default_out, progress_of

    plan = load_study(study)
    rows = progress_of(plan, out or default_out(plan))
    done, cells = sum(row["done"] for row in rows), sum(row["cells"] for row in rows)
    lines = [f"{done:,} of {cells:,} cells are done"]
    for row in rows:
        took = f"{row['seconds']:.0f} s each" if row["seconds"] is not None else ""
        lines.append(f"{row['name']:24} {row['done']:>3} of {row['cells']:<3} {took}".rstrip())
    tell(json, {"done": done, "cells": cells, "models": rows}, lines)


@app.command("report")
def report(
    study: StudyArgument,
    out: OutOption = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the report; OUT/report if not given.")
    ] = None,
    stored: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="The results.json of an earlier report: draw page and plots from its numbers.",
        ),
    ] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Write the report of a study: one HTML page, Markdown, CSV, JSON and plots.

    Cells that are not done are left out and named.

    Example: `paragrain study report scenes --to docs/results`
    """
    from paragrain.study.plan import load_study
    from paragrain.study.report import write_report
    from paragrain.study.runner import default_out

    plan = load_study(study)
    where = out or default_out(plan)
    written = write_report(
        plan, where, to or where / "report", stored=stored, device=device, progress=not json
    )
    tell(json, written.as_dict(), [*written.lines(), f"report: {written.page.resolve()}"])
    end([(label, "has no results yet") for label in written.missing], what="not in the report")


def _tell_forecast(forecast: "Forecast", json: bool) -> None:
    """The plan in words: what it needs, what it does, what it costs."""
    config = forecast.settings
    most = f"{config['max_steps']:,} steps at most, " if config["max_steps"] else ""
    lines = ["It needs:"]
    for need in forecast.needs:
        lines.append(f"  {'ok     ' if need.there else 'MISSING'} {need.name}: {need.what}")
        lines.append(f"          {need.says}")
    max_lengths = ", ".join(f"{name} {tokens}" for name, tokens in config["max_length"].items())
    lines += [
        "",
        f"Training: AdamW, learning rate {config['learning_rate']:g}, "
        f"batch {config['batch_size']}, "
        f"temperature {config['temperature']:g}, cosine after {config['warmup_steps']} warm-up "
        f"steps, {config['epochs']:,} epochs, {most}"
        f"weight decay {config['weight_decay']:g}, precision {config['precision']}",
        f"Token max_lengths: {max_lengths}",
        "",
        f"{'cell':22}{'loss':16}{'images':>10}{'steps':>9}{'tokens':>14}{'hours':>9}  seeds (done)",
    ]
    for row in forecast.cells:
        lines.append(
            f"{row.name:22}{row.loss:16}{row.images:>10,}{row.steps:>9,}{row.tokens:>14,}"
            f"{row.hours:>9.2f}  {row.cells} ({row.done})"
        )
    lines += [
        "",
        f"In all {forecast.hours:,.1f} hours for what is not done: embedding "
        f"{forecast.embedding_hours:.1f}, measuring {forecast.measuring_hours:.1f}, training the "
        f"rest; at {forecast.throughput.tokens_per_second:,.0f} tokens and "
        f"{forecast.throughput.images_per_second:,.0f} images a second ({forecast.throughput.of})",
        f"Image embeddings: {forecast.vectors_bytes / 1e9:.2f} GB",
    ]
    tell(json, forecast.as_dict(), lines)
