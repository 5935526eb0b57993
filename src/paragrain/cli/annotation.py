"""`paragrain annotate status | check | stats | truth`: what an annotation is like."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.annotate import EndpointOption, KeyOption, app, who
from paragrain.cli.common import (
    CollectionArgument,
    JsonOption,
    SplitOption,
    end,
    tell,
)
from paragrain.errors import UsageError
from paragrain.words import duration

if TYPE_CHECKING:
    from paragrain.annotation import Table


@app.command()
def status(collection: CollectionArgument, json: JsonOption = False) -> None:
    """Say how far the latest run is, be it under way, killed or done.

    Example: `paragrain annotate status photos`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    found = annotation.status(Collection.open(collection))
    failed = found.images - found.complete - found.answered - found.remaining
    waiting = "are written when their file is through"
    if not found.running:
        waiting = "the same command writes them and asks nothing about them"
    lines = [
        f"{found.folder}: {found.complete:,} of {found.images:,} images complete, "
        f"{failed:,} failed, {found.remaining:,} to come; "
        + ("running now" if found.running else "not running"),
        *[f"{kind}: {n:,} with fewer than asked for" for kind, n in found.fewer.items()],
        f"{found.calls:,} replies in the log"
        + (f"; {found.rate:,.2f} images/s" if found.rate else "")
        + (f", {duration(found.seconds_left)} left" if found.seconds_left else ""),
    ]
    if found.answered:
        lines.append(f"{found.answered:,} answered, not in the collection: {waiting}")
    if found.scores:
        most = max(found.scores.values())
        lines.append("score  paragraphs")
        for score in [*map(str, range(11)), "none"]:
            count = found.scores.get(score, 0)
            bar = "█" * round(40 * count / most)
            lines.append(f"{score:>5}  {count:>10,} {bar}".rstrip())
        counts = ", ".join(f"{n}: {count:,}" for n, count in sorted(found.attempts.items()))
        lines.append(f"paragraphs by attempts: {counts}")
    lines += [f"failed {count:,}: {reason}" for reason, count in found.failed.items()]
    tell(json, found.as_json(), lines)


@app.command()
def check(
    collection: CollectionArgument,
    endpoint: EndpointOption = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The third judge: name, or a folder.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="openai (any compatible server), transformers, or scenes.")
    ] = "openai",
    sample: Annotated[int, typer.Option(min=1, help="Paragraphs to score again.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw, and of the intervals.")] = 0,
    prompts: Annotated[Path | None, typer.Option(help="YAML with an own `judge` template.")] = None,
    in_flight: Annotated[int, typer.Option(help="Most requests under way.")] = 32,
    patience: Annotated[
        float, typer.Option(help="Seconds for which a failing request is tried again.")
    ] = 900.0,
    key_env: KeyOption = "OPENAI_API_KEY",
    split: SplitOption = None,
    json: JsonOption = False,
) -> None:
    """Have a third judge score a sample of the paragraphs, and compare with the second's scores.

    Example: `paragrain annotate check photos --model gpt-4o --sample 200`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    source = Collection.open(collection)
    judge = annotation.make_backend_settings(
        backend=backend,
        in_flight=in_flight,
        patience=patience,
        **who(backend, endpoint, model, key_env),
    )
    done = annotation.check(
        source,
        judge,
        sample=sample,
        seed=seed,
        split=split,
        prompts=annotation.load_prompts(prompts) if prompts else None,
        progress=not json,
    )
    first = ", ".join(done.first_judges) or "the judge"
    same = done.judge in done.first_judges
    lines = [f"{first} against {done.judge}; each score: {done.place}"]
    if same:
        lines.append("note: the same model has judged before, so this says nothing of the scores")
    tell(json, done.as_json(), [*lines, *table_lines(done.found.table())])
    end([*source.problems, *done.failed])


@app.command()
def stats(
    collection: CollectionArgument,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Whose tokens count; by default the collection's own."),
    ] = None,
    split: SplitOption = None,
    json: JsonOption = False,
) -> None:
    """Lengths and scores of all texts: tables, PNG plots and a page.

    Tokens are those of one model's tokenizer: of --model, else of the model that the collection
    remembers, else of blip0, which knows few words and spells the others.

    Example: `paragrain annotate stats photos --model Salesforce/blip-itm-base-coco`
    """
    from paragrain import annotation
    from paragrain.collection import Collection
    from paragrain.encoders import load_encoder

    source = Collection.open(collection)
    own = source.model
    encoder = load_encoder(model or own or "blip0", "cpu")
    done = annotation.overview(source, encoder, split=split, progress=not json)
    lines = [line for table in done.tables() for line in ["", *table_lines(table)]]
    if not (model or own):
        lines += ["", "note: tokens are those of blip0: name the --model that is to read the texts"]
    tell(json, done.as_json(), [*lines[1:], "", f"page and plots: {done.page}"])
    end([*source.problems, *done.annotation.malformed])


@app.command()
def truth(
    collection: CollectionArgument,
    min_score: Annotated[int, typer.Option(help="The run's own threshold.")] = 5,
    split: SplitOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the annotation of drawn scenes against their graphs, whoever wrote it.

    Example: `paragrain annotate truth world`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    source = Collection.open(collection)
    if all(record.graph is None for record in source.records(split, fields=["graph"])):
        raise UsageError(f"{source.place(split)} holds no drawn scenes, so no truth is known")
    tables = annotation.truth_tables(source.records(split), threshold=min_score)
    value = {"tables": [vars(table) for table in tables]}
    tell(json, value, [line for table in tables for line in ["", *table_lines(table)]][1:])
    end(source.problems)


def table_lines(table: "Table") -> list[str]:
    """A table as lines of text: first column to the left, the others to the right."""
    cells = [[str(cell) for cell in table.head]]
    cells += [[f"{c:.1f}" if isinstance(c, float) else str(c) for c in row] for row in table.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.head))]

    def line(row: list[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]).rstrip()

    return [table.title, *map(line, cells)]
