"""What the verbs share: options, output as JSON or lines, exit codes."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from paragrain.errors import EXIT_SOME_FAILED
from paragrain.words import printable

SHOWN_FAILURES = 10

CollectionArgument = Annotated[Path, typer.Argument(help="Folder of the collection.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A folder, or a Hugging Face Hub name; by default the one that the collection "
        "remembers (`paragrain use`), and blip0, which ships with the package, for drawn scenes.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the code that a model of an unknown architecture brings, if it does.",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Such as cpu or cuda:1; by default a CUDA card if there is one.")
]
SplitOption = Annotated[str | None, typer.Option(help="Use this split only.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def tell(as_json: bool, value: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Print the outcome of a verb on standard output: one JSON object, or lines for people.

    A line stays one line, whatever names of files are in it.
    """
    if as_json:
        # Names of files may hold bytes that are no text: as ASCII, JSON can say them all.
        print(json.dumps(value, allow_nan=False))
    else:
        for line in lines:
            print(printable(line))


def end(
    failed: Sequence[tuple[str, str]],
    *,
    total: int | None = None,
    named_in: str = "",
    what: str = "skipped",
) -> None:
    """Name on standard error what failed, and leave with exit code 3 if anything did.

    Args:
        failed: name and reason of what failed, or of the first of it.
        total: how much failed, if that is more.
        named_in: the file that names all.
        what: happened to it.
    """
    if not failed:
        return
    total = len(failed) if total is None else total
    print(f"paragrain: {total:,} {what}:", file=sys.stderr)
    for identity, reason in failed[:SHOWN_FAILURES]:
        print(f"  {printable(identity)}: {printable(reason)}", file=sys.stderr)
    if total > SHOWN_FAILURES:
        more = f"  and {total - SHOWN_FAILURES:,} more"
        print(more + (f", named in {named_in}" if named_in else ""), file=sys.stderr)
    raise typer.Exit(EXIT_SOME_FAILED)
