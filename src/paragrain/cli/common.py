"""What the verbs share: options, output as JSON or lines, exit codes."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from paragrain.errors import EXIT_SOME_FAILED, UsageError
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
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as NAME=VALUE; the guide lists them."),
]
ConfigOption = Annotated[Path | None, typer.Option(help="YAML file with settings.")]
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


def given_settings(
    config: Path | None, pairs: Sequence[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of a file, changed by those of `--set`, changed by the options that are given."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**settings_from_file(config), **settings_from_pairs(pairs), **given}


def settings_from_file(path: Path | None) -> dict[str, Any]:
    """The settings in a YAML file, if there is one."""
    if path is None:
        return {}
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"the settings in {path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds no settings: write lines such as `seed: 3`")
    return values


def settings_from_pairs(pairs: Sequence[str] | None) -> dict[str, Any]:
    """`betas=0.9,0.98` as a list; `max_length.paragraph=60` as a dictionary in one."""
    values: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, not {pair!r}")
        *outer, last = name.split(".")
        place = values
        try:
            for part in outer:
                place = place.setdefault(part, {})
            read = yaml.safe_load(value)
            listed = isinstance(read, str) and "," in read
            place[last] = [yaml.safe_load(part) for part in value.split(",")] if listed else read
        except (AttributeError, TypeError, yaml.YAMLError):
            raise UsageError(f"--set {pair} cannot be understood: give NAME=VALUE") from None
    return values
