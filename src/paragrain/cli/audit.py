"""`paragrain audit`: what an evaluation set shares with a training set."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import DeviceOption, JsonOption, end, tell


def audit(
    train: Annotated[Path, typer.Argument(help="Folder of what a model was trained on.")],
    evaluation: Annotated[
        Path | None,
        typer.Argument(metavar="[EVAL]", help="Folder to measure on; without it, TRAIN itself."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Compare image embeddings of this model too."),
    ] = None,
    train_split: Annotated[str | None, typer.Option(help="Only this split of TRAIN.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split of EVAL.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for audit.html, audit.json and findings.csv.")
    ] = None,
    cosine: Annotated[float, typer.Option(help="Least cosine of a finding by --model.")] = 0.95,
    near_text: Annotated[
        float, typer.Option(help="Least share of three-word shingles in common (Jaccard).")
    ] = 0.6,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Find what EVAL shares with TRAIN: ids, URLs, images, near duplicates and texts.

    Example: `paragrain audit coco-train docci --out audit`
    """
    from paragrain.auditing import REASONS
    from paragrain.auditing import audit as run
    from paragrain.collection import Collection
    from paragrain.encoders import load_encoder

    sources = [Collection.open(path) for path in (train, evaluation) if path is not None]
    report = run(
        sources[0],
        sources[-1],
        train_split=train_split,
        split=split,
        encoder=None if model is None else load_encoder(model, device),
        cosine=cosine,
        near_text=near_text,
        progress=not json,
    )
    lines = [
        f"{len(report.overlapping()):,} of {report.evaluation['records']:,} records of "
        f"{report.evaluation['name']} share an image with {report.train['name']}"
    ]
    for reason, count in report.counts().items():
        if count["pairs"]:
            lines.append(f"{count['pairs']:9,} pairs: {REASONS[reason]}")
    lines += [
        f"{len(report.flat[0]):,} and {len(report.flat[1]):,} flat pictures are compared by their "
        "pixels only",
        report.not_found,
    ]
    if out is not None:
        report.write(out)
        lines.append(f"written to {out}: audit.html, audit.json, findings.csv")
    tell(json, report.as_dict(), lines)
    problems = [problem for source in sources for problem in source.problems]
    failed = [(f"{where}, {id}", reason) for where, id, reason in report.failed]
    end([*problems, *failed], named_in="audit.json" if out else "")
