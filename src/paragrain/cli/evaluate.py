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
    tokens: Annotated[
        int | None,
        typer.Option(
            help="Token budget, by default 128 or what the model can read; what is cut is reported."
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Several budgets, such as 20,40,60,80,100,128.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="By default test if there is one; all for everything.")
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(help="none (default), or blip-original (30 words, no punctuation)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the result to this .json file, and the rank of every query beside it "
            "(.npz), for `paragrain compare`."
        ),
    ] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Rank every image against every text, exactly, and report Recall@1, 5, 10 both ways.

    Each recall comes with its 95 % interval: 2,000 seeded draws of the images with their texts.

    Example: `paragrain evaluate photos --model runs/c5/checkpoint --texts paragraph --tokens 128`

    Example: `paragrain evaluate docci --model blip0 --protocol docci-all --out runs/docci.json`
    """
    from paragrain.collection import Collection
    from paragrain.encoders import load_encoder
    from paragrain.evaluation import load_protocol, save_sweep
    from paragrain.evaluation import sweep as run
    from paragrain.evaluation.results import ranks_path

    if out is not None and out.is_dir():
        raise UsageError(f"{out} is a folder: name a file for the result")
    if out is not None:
        ranks_path(out)  # refuses a name that the ranks need, before anything is computed
    if protocol is not None:
        load_protocol(protocol)
    if sweep is not None and tokens is not None:
        raise UsageError("--sweep and --tokens both say the token budget: give one of them")
    budgets = _budgets(sweep) if sweep is not None else None if tokens is None else [tokens]
    source = Collection.open(collection)
    results = run(
        source,
        load_encoder(model, device),
        budgets,
        texts=texts,
        split=split,
        normalise=normalise,
        protocol=protocol,
        show=not json,
    )
    lines = [_headline(results[0]), *_sizes(results[0]), *_table(results), *_intervals(results)]
    value: dict[str, Any]
    if sweep is None:
        value = results[0].as_dict()
        if out is not None:
            results[0].save(out)
    else:
        value = {"sweep": [result.as_dict() for result in results]}
        if out is not None:
            save_sweep(results, out)
    if out is not None:
        lines.append(f"written to {out}, the ranks beside it")
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


def _sizes(result: "Result") -> list[str]:
    """Which protocol it was, and whether the collection has the sizes that it should have."""
    protocol = result.about["protocol"]
    if protocol["name"] == "custom":
        return []
    name, changed, sizes = protocol["name"], protocol["changed"], protocol["sizes"]
    lines = [f"protocol {name}" + (f", with other {', '.join(changed)}" if changed else "")]
    if not sizes["as_expected"]:
        found = sizes["found"]
        wanted = " or ".join(
            f"{size['images']:,} images and {size['texts']:,} texts" for size in sizes["expected"]
        )
        lines.append(
            f"this is not all of {name}: {found['images']:,} images and {found['texts']:,} texts "
            f"were found where {wanted} are expected"
        )
    return lines


def _intervals(results: list["Result"]) -> list[str]:
    """The 95 % intervals, one line a direction and budget."""
    lines = []
    for result in results:
        for name in ("image_to_text", "text_to_image"):
            cells = "  ".join(
                f"{k} [{low:.1f}, {high:.1f}]"
                for k, (low, high) in result.intervals["strict"][name].items()
            )
            budget = result.about["protocol"]["token_budget"]
            lines.append(f"95 % at {budget} tokens, {name.replace('_', ' ')}: {cells}")
    return lines


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
