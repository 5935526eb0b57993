"""`paragrain evaluate`: exact recall in both directions."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    TrustOption,
    end,
    tell,
)
from paragrain.cli.evaluation import result_lines
from paragrain.errors import UsageError


def evaluate(
    collection: CollectionArgument,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="blip0 (ships with the package), a folder, or a Hugging Face Hub name; several "
            "--model make one table.",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="What a published number was measured on, such as docci-all; it says texts, "
            "tokens, split and normalise, and other options override it."
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help="Which texts: paragraph (default), captions, description, generated."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Length, by default the protocol's or the model's; what is cut is reported."
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Several maximum lengths, such as 20,40,60,80,100,128.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="By default test if there is one; all for everything.")
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(help="none (default), or blip-original (30 words, no punctuation)."),
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(
            help="What a text too long for the length is cut to: tokens (default), whole words or "
            "whole sentences."
        ),
    ] = None,
    audited: Annotated[
        Path | None,
        typer.Option(
            metavar="TRAIN",
            help="What the model was trained on, a collection or an audit of it and this one: "
            "also report the images that it shares, and the others, apart.",
        ),
    ] = None,
    audited_split: Annotated[
        str | None, typer.Option(help="Of TRAIN; by default train if there is one, or all.")
    ] = None,
    audited_by: Annotated[
        str | None,
        typer.Option(
            help="What marks an image as shared, by default id,url,bytes,pixels,near,embedding,"
            "text; near text can be named too."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the result to this .json file, the rank of every query beside it "
            "(.npz), for `paragrain compare`, and of a sweep a plot (.svg)."
        ),
    ] = None,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Rank every image against every text, exactly, and report Recall@1, 5, 10 both ways.

    Each recall comes with its 95 % interval: 2,000 seeded draws of the images with their texts.

    Example: `paragrain evaluate photos --model runs/c5/checkpoint --texts paragraph --tokens 128`

    Example: `paragrain evaluate docci --model blip0 --protocol docci-all --out runs/docci.json`

    Example: `paragrain evaluate docci --model runs/c5/checkpoint --audited coco-train`
    """
    from paragrain.audit import MARKING, audit_of, marks
    from paragrain.collection import Collection
    from paragrain.encoders import encoder_for
    from paragrain.evaluation import (
        check_out,
        evaluate_models,
        figure_path,
        save_results,
        save_sweep_figure,
        split_of,
        with_parts,
    )

    if sweep is not None and max_length is not None:
        raise UsageError("--sweep and --max-length both say the maximum length: give one of them")
    max_lengths = (
        _max_lengths(sweep) if sweep is not None else None if max_length is None else [max_length]
    )
    if out is not None:
        check_out(out)  # before anything is computed
    source = Collection.open(collection)
    asked: list[str | None] = [*model] if model else [None]
    models = [
        encoder_for(source, name, device, trust_remote_code=trust_remote_code) for name in asked
    ]
    report = None
    if audited is not None:
        report = audit_of(
            audited,
            source,
            split=split_of(source, split, protocol),
            train_split=audited_split,
            progress=not json,
        )
        reasons = MARKING if audited_by is None else audited_by.split(",")
        marked = marks(report, [reason.strip() for reason in reasons])
    results = evaluate_models(
        source,
        models,
        max_lengths,
        texts=texts,
        split=split,
        normalise=normalise,
        truncation=truncation,
        protocol=protocol,
        progress=not json,
    )
    if report is not None:
        results = [with_parts(result, marked, report.train) for result in results]
    lines = result_lines(results)
    value = results[0].as_dict()
    if len(results) > 1:
        value = {"results": [result.as_dict() for result in results]}
    if out is not None:
        save_results(results, out)
        lines.append(f"written to {out}" + (", the ranks beside it" * (out.suffix == ".json")))
    if out is not None and out.suffix == ".json" and sweep is not None and len(models) == 1:
        save_sweep_figure(results, figure_path(out))
        lines[-1] = f"written to {out}, the ranks and the plot {figure_path(out).name} beside it"
    tell(json, value, lines)
    failed = {tuple(item): None for result in results for item in result.about["images_failed"]}
    skipped = [*source.problems, *failed]
    if report is not None:
        skipped += [
            (f"{where}, {id}", why) for where, id, why in report.failed if where != source.name
        ]
    end(skipped)


def _max_lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--sweep takes numbers such as 20,40,128, not {text!r}") from None
