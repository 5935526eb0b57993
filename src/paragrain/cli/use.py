"""`paragrain use`: the model that a collection remembers."""

from pathlib import Path
from typing import Annotated

import typer

from paragrain.cli.common import JsonOption, TrustOption, tell
from paragrain.errors import UsageError


def use(
    first: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            help="A folder, such as runs/c5/checkpoint, or a Hugging Face Hub name; without it, "
            "say which model is remembered.",
        ),
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="COLLECTION", help="Folder of the collection.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget the model.")] = False,
    trust_remote_code: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Have a collection remember its model, for all verbs without --model.

    The model is opened, and fetched from the Hub if it is not here yet.

    Example: `paragrain use Salesforce/blip-itm-base-coco photos`

    Example: `paragrain use runs/c5/checkpoint photos`

    Example: `paragrain use --clear photos`
    """
    from paragrain.collection import Collection

    if second is not None and clear:
        raise UsageError("--clear forgets the model: give the collection alone")
    source = Collection.open(first if second is None else second)
    max_length = most = None
    if second is not None or clear:
        from paragrain.encoders import use as run

        encoder = run(source, None if clear else first, trust_remote_code=trust_remote_code)
        if encoder is not None:
            max_length, most = encoder.max_length, encoder.max_tokens
    lines = [f"{source.folder}: {source.model or 'no model is remembered'}"]
    if max_length is not None and most is not None:
        lines[0] += f", which reads {max_length:,} tokens of a text"
        lines[0] += f", and up to {most:,} with --max-length" if max_length < most else ""
    told = {"collection": str(source.folder), "model": source.model}
    tell(json, {**told, "max_length": max_length, "max_tokens": most}, lines)
