"""`paragrain search`: ask a collection in words."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    SplitOption,
    TrustOption,
    end,
    tell,
)
from paragrain.errors import UsageError

if TYPE_CHECKING:
    from paragrain.searching import SearchResult

STDIN = "-"


def search(
    collection: CollectionArgument,
    query: Annotated[
        str | None,
        typer.Argument(
            help="What you are looking for, as long as you like; - or nothing reads it from "
            "standard input, over as many lines as it has."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(help="Ask each line of this file, or of standard input if it is -."),
    ] = None,
    model: ModelOption = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many images to find.")] = 5,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Read so many tokens of the query; by default as many as the model is made for."
        ),
    ] = None,
    split: SplitOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Find the images that a text describes best, comparing with every image of the collection.

    Each is told by the absolute path of its file, or by its id where no file of it is known.

    Example: `paragrain search photos --model runs/c5/checkpoint "two dogs on a wet beach ..."`

    Example: `paragrain search photos --file queries.txt --json`
    """
    from paragrain.collection import Collection

    source = Collection.open(collection)
    queries = _queries(query, file)

    from paragrain.encoders import encoder_for
    from paragrain.searching import search as run

    encoder = encoder_for(source, model, device, trust_remote_code=trust_remote_code)
    results = run(
        source, encoder, queries, k=k, max_length=max_length, split=split, progress=not json
    )
    if file is None:
        tell(json, {"model": encoder.name, **results[0].as_dict()}, _lines(results[0]))
    else:
        value = {"model": encoder.name, "queries": [result.as_dict() for result in results]}
        lines = [line for r in results for line in ["", f"query: {r.query}", *_lines(r)]]
        tell(json, value, lines[1:])
    end([*source.problems, *results[0].failed])


def _lines(result: "SearchResult") -> list[str]:
    lines = [f"{hit.score:7.4f}  {hit.file or hit.id}" for hit in result]
    if result.truncated:
        lines.append(
            f"not read, beyond {result.max_length} of {result.tokens} tokens: {result.truncated!r}"
        )
    return lines


def _queries(query: str | None, file: str | None) -> list[str]:
    """The one text that was given or typed, or those of a file, one a line."""
    if query is not None and file is not None:
        raise UsageError("a query and --file both say what to look for: give one of them")
    if file is not None:
        lines = [line.strip() for line in _read(file).split("\n")]
        if not any(lines):
            raise UsageError(f"{_name(file)} holds no query: write one on each line")
        return [line for line in lines if line]
    if query is None and sys.stdin.isatty():
        raise UsageError("there is no query: type one, or name a file of them by --file")
    text = _read(STDIN).strip() if query is None or query == STDIN else query
    if not text.strip():  # told here too, before a model is loaded
        raise UsageError("the query is empty: describe what you are looking for")
    return [text]


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{_name(file)} cannot be read ({error.strerror or error}): name a file of queries"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{_name(file)} is no UTF-8 text: save it as UTF-8") from None


def _name(file: str) -> str:
    return "standard input" if file == STDIN else file
