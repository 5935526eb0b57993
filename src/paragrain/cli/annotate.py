"""`paragrain annotate run | status | check | stats | truth`: texts by models, and their quality.

The settings of a run are keys of one flat YAML file, or of `--set`; the options most used are keys
too.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from paragrain.cli.common import (
    CollectionArgument,
    ConfigOption,
    JsonOption,
    SetOption,
    SplitOption,
    end,
    given_settings,
    tell,
)
from paragrain.errors import UsageError
from paragrain.words import duration

if TYPE_CHECKING:
    from paragrain.annotation import AnnotationReport, AnnotationSettings, Plan


class _RunByDefault(TyperGroup):
    """`annotate photos ...` means `annotate run photos ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            meant = get_close_matches(args[0], self.commands, n=1)
            if meant and not Path(args[0]).exists():
                raise UsageError(
                    f"there is neither a verb nor a folder {args[0]!r}: did you mean {meant[0]!r}?"
                )
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Write captions, hard negatives and judged paragraphs for a collection. "
    "`paragrain annotate COLLECTION ...` is short for `paragrain annotate run COLLECTION ...`; "
    "its options are listed by `paragrain annotate run --help`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="URL of an OpenAI-compatible server, such as http://localhost:8000/v1; without it, "
        "OpenAI's own."
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(help="openai (any compatible server, by default), transformers, or scenes."),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option(help="Most requests at once at each server (32).")
]


@app.command()
def run(
    collection: CollectionArgument,
    endpoint: EndpointOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Name on the server, or a folder; may be left out where a server offers just one.",
        ),
    ] = None,
    backend: BackendOption = None,
    judge: Annotated[
        str | None,
        typer.Option(help="Model that scores the paragraphs, `same` (by default), or `none`."),
    ] = None,
    judge_endpoint: Annotated[
        str | None, typer.Option(help="URL of the judge's server, if it is another one.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help="Which of captions, negatives, paragraph to write; by default all."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write anew texts that came with the data, too.")
    ] = False,
    max_concurrency: ConcurrencyOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    split: SplitOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many records, to try it out.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Have a model write texts for each image, and a second one judge the paragraphs.

    Stop it at any time; run it again to go on. No finished request is made twice. All settings,
    such as `--set num_candidates=5`, are listed in the guide.

    Example: `paragrain annotate photos --endpoint http://localhost:8000/v1 --model
    Qwen/Qwen2-VL-7B-Instruct --judge-endpoint http://localhost:8001/v1 --judge
    meta-llama/Llama-3.2-11B-Vision-Instruct`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    source = Collection.open(collection)
    options = {
        "endpoint": endpoint,
        "model": model,
        "backend": backend,
        "judge": judge,
        "judge_endpoint": judge_endpoint,
        "texts": texts,
        "replace": replace or None,
        "max_concurrency": max_concurrency,
    }
    wanted, how = annotation.run_settings(
        given_settings(config, settings, options), asks=not dry_run
    )
    if dry_run:
        prices = how.price_in, how.price_out
        planned = annotation.plan(
            source,
            wanted,
            split=split,
            limit=limit,
            rate=how.rate,
            prices=None if None in prices else prices,  # type: ignore[arg-type]
            progress=not json,
        )
        _tell_plan(planned, json)
        end([*source.problems, *planned.unusable])
        return
    report = annotation.annotate(
        source,
        wanted,
        split=split,
        limit=limit,
        runner=how.runner,
        workers=how.workers,
        progress=not json,
    )
    _tell_report(report, wanted, json)
    named_in = str(report.folder / "annotation" / "failed.jsonl")
    end([*source.problems, *report.problems], named_in=named_in, what="not complete")


def _tell_plan(plan: "Plan", json: bool) -> None:
    def span(values: tuple[float, float], form: str = ",.0f") -> str:
        least, most = (format(value, form) for value in values)
        return least if least == most else f"{least} to {most}"

    lines = [
        f"{plan.folder}: {plan.images:,} images, {plan.complete:,} complete, {plan.failed:,} "
        f"failed (asked again with more max_retries), {plan.to_ask:,} to be asked about, "
        f"{len(plan.unusable):,} that cannot be sent"
        + (f", {plan.fewer:,} with fewer texts than asked for" if plan.fewer else ""),
        f"requests: {span(plan.calls)}",
        f"tokens to be read, about: {span(plan.prompt_tokens)}; written, at most: "
        f"{span(plan.completion_tokens)}",
    ]
    if plan.seconds:
        least, most = map(duration, plan.seconds)
        lines.append(f"time at that rate: {least if least == most else f'{least} to {most}'}")
    if plan.cost:
        lines.append(f"cost at those prices: {span(plan.cost, ',.2f')}")
    tell(json, plan.as_json(), lines)


def _tell_report(report: "AnnotationReport", settings: "AnnotationSettings", json: bool) -> None:
    scored = sum(report.scores.values())
    mean = sum(score * count for score, count in report.scores.items()) / scored if scored else None
    weak = sum(count for score, count in report.scores.items() if score <= settings.min_score)
    lines = [
        f"{report.folder}: {report.images:,} images, {report.complete:,} complete"
        + (f" ({report.untouched:,} came with all texts)" if report.untouched else "")
        + (f", {len(report.fewer):,} with fewer texts than asked for" if report.fewer else "")
        + f", {len(report.failed):,} failed, {len(report.skipped):,} not sent",
        f"{report.calls:,} replies in {report.seconds:,.1f} s ({report.reused:,} more were in the "
        f"log), {report.prompt_tokens:,} tokens read, {report.completion_tokens:,} written; "
        f"{report.changed:,} records changed",
    ]
    if mean is not None:
        lines.append(
            f"paragraphs: mean score {mean:.2f}, {report.regenerated:,} written more than once, "
            f"{weak:,} kept with {settings.min_score} or less"
        )
    lines += [f"note: {note}" for note in report.notes]
    lacking = report.failed + report.fewer
    if any("request (" not in why and "unanswered (" not in why for _, why in lacking):
        more = settings.max_retries + 1
        lines.append(f"note: --set max_retries={more} asks once more what could not be read so far")
    tell(json, report.as_json(), lines)


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
        counts = ", ".join(f"{n}: {count:,}" for n, count in sorted(found.candidates.items()))
        lines.append(f"paragraphs by candidates: {counts}")
    lines += [f"failed {count:,}: {reason}" for reason, count in found.failed.items()]
    tell(json, found.as_json(), lines)


@app.command()
def check(
    collection: CollectionArgument,
    endpoint: EndpointOption = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The third judge: name, or a folder.")
    ] = None,
    backend: BackendOption = None,
    sample: Annotated[int, typer.Option(min=1, help="Paragraphs to score again.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw, and of the intervals.")] = 0,
    max_concurrency: ConcurrencyOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    split: SplitOption = None,
    json: JsonOption = False,
) -> None:
    """Have a third judge score a sample of the paragraphs, and compare with the second's scores.

    Example: `paragrain annotate check photos --model gpt-4o --sample 200`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    source = Collection.open(collection)
    options = {
        "endpoint": endpoint,
        "model": model,
        "backend": backend,
        "max_concurrency": max_concurrency,
    }
    wanted, _ = annotation.run_settings(given_settings(config, settings, options))
    done = annotation.check(
        source,
        wanted.generator,
        sample=sample,
        seed=seed,
        split=split,
        prompts=wanted.prompts,
        max_retries=wanted.max_retries,
        progress=not json,
    )
    first = ", ".join(done.first_judges) or "the judge"
    lines = [f"{first} against {done.judge}; each score: {done.file}"]
    if done.judge in done.first_judges:
        lines.append("note: the same model has judged before, so this says nothing of the scores")
    tell(json, done.as_json(), [*lines, *done.agreement.table().text().splitlines()])
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
    lines = [line for table in done.tables() for line in [*table.text().splitlines(), ""]]
    if not (model or own):
        lines += ["note: tokens are those of blip0: name the --model that is to read the texts", ""]
    tell(json, done.as_json(), [*lines, f"page and plots: {done.page}"])
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
    from paragrain.stats import Estimate

    source = Collection.open(collection)
    if all(record.graph is None for record in source.records(split, fields=["graph"])):
        raise UsageError(f"{source.place(split)} holds no drawn scenes, so no truth is known")
    tables = annotation.truth_tables(source.records(split), threshold=min_score)
    plain = [
        {
            "title": table.title,
            "head": table.columns,
            "rows": [[f"{c:.1%}" if isinstance(c, Estimate) else c for c in r] for r in table.rows],
        }
        for table in tables
    ]
    lines = [line for table in tables for line in ["", *table.text().splitlines()]]
    tell(json, {"tables": plain}, lines[1:])
    end(source.problems)
