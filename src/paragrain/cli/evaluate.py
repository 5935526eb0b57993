"""`paragrain evaluate`: exact recall in both directions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    end,
    tell,
)
from paragrain.errors import UsageError

if TYPE_CHECKING:
    from paragrain.evaluation import Result


def evaluate(
    collection: CollectionArgument,
    model: ModelOption = "blip0",
    texts: Annotated[
        str, typer.Option(help="Which texts: paragraph, captions, description, generated.")
    ] = "paragraph",
    tokens: Annotated[int, typer.Option(help="Token budget; what is cut is reported.")] = 128,
    sweep: Annotated[
        str | None, typer.Option(help="Several budgets, such as 20,40,60,80,100,128.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="By default test if there is one; all for everything.")
    ] = None,
    normalise: Annotated[
        str, typer.Option(help="none, or blip-original (30 words, no punctuation).")
    ] = "none",
    out: Annotated[Path | None, typer.Option(help="Also write the result to this file.")] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Rank every image against every text, exactly, and report Recall@1, 5, 10 both ways.

    Example: `paragrain evaluate photos --model runs/c5/checkpoint --texts paragraph --tokens 128`
    """
    from paragrain.collection import Collection
    from paragrain.encoders import load_encoder
    from paragrain.evaluation import sweep as run
    from paragrain.files import write_json

    if out is not None and out.is_dir():
        raise UsageError(f"{out} is a folder: name a file for the result")
    budgets = [tokens] if sweep is None else _budgets(sweep)
    source = Collection.open(collection)
    results = run(
        source,
        load_encoder(model, device),
        budgets,
        texts=texts,
        split=split,
        normalise=normalise,
        show=not json,
    )
    value: dict[str, Any] = (
        results[0].as_dict() if sweep is None else {"sweep": [r.as_dict() for r in results]}
    )
    lines = [_headline(results[0]), *_table(results)]
    if out is not None:
        write_json(out, value)
        lines.append(f"written to {out}")
    tell(json, value, lines)
    end([*source.problems, *(tuple(item) for item in results[0].about["images_failed"])])


def _budgets(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--sweep takes numbers such as 20,40,128, not {text!r}") from None


def _headline(result: "Result") -> str:
    about, counts = result.about, result.scores
    return (
        f"{about['encoder']['name']} on {about['collection']['name']}, "
        f"split {about['collection']['split']}: {counts.images:,} images "
        f"({counts.images_with_texts:,} with texts), {counts.texts:,} texts of "
        f"{about['protocol']['text_field']}"
    )


def _table(results: list["Result"]) -> list[str]:
    head = "tokens   cut   lost | image to text R@1   R@5  R@10 | text to image R@1   R@5  R@10"
    lines = [head, "-" * len(head)]
    for result in results:
        protocol = result.about["protocol"]
        strict = (result.image_to_text, result.text_to_image)
        values = " | ".join(
            f"{recall[1]:17.1f} {recall[5]:5.1f} {recall[10]:5.1f}" for recall in strict
        )
        lines.append(
            f"{protocol['token_budget']:6d} {protocol['texts_cut']:5,d} "
            f"{protocol['tokens_lost']:6,d} | {values}"
        )
    lenient = results[-1].scores
    if lenient.grouped_images:
        i2t, t2i = (d.recall[1] for d in _directions(results[-1]))
        lines.append(
            f"{lenient.grouped_images:,} images share their group with others; with any member "
            f"of the group right, R@1 is {i2t:.1f} and {t2i:.1f}"
        )
    return lines


def _directions(result: "Result") -> tuple[Any, Any]:
    return result.scores.lenient.image_to_text, result.scores.lenient.text_to_image
