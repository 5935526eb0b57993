"""`paragrain annotate`: captions, hard negatives and judged paragraphs by two models."""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from paragrain.cli.common import (
    CollectionArgument,
    DeviceOption,
    JsonOption,
    SplitOption,
    end,
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
        help="Address of an OpenAI-compatible server, such as http://localhost:8000/v1; without "
        "it, OpenAI's own."
    ),
]
KeyOption = Annotated[
    str, typer.Option(help="Name of the environment's variable that holds the server's key.")
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
    backend: Annotated[
        str, typer.Option(help="openai (any compatible server), transformers, or scenes.")
    ] = "openai",
    judge_endpoint: Annotated[
        str | None, typer.Option(help="Address of the judge's server, if it is another one.")
    ] = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    judge_key_env: Annotated[
        str | None, typer.Option(help="The same for the judge's server; by default the same key.")
    ] = None,
    judge: Annotated[
        str, typer.Option(help="Model that scores the paragraphs, `same`, or `none`.")
    ] = "same",
    texts: Annotated[
        str, typer.Option(help="Which of captions, negatives, paragraph to write.")
    ] = "captions,negatives,paragraph",
    min_score: Annotated[
        int, typer.Option(help="A paragraph that scores this or less is written again.")
    ] = 5,
    attempts: Annotated[int, typer.Option(help="Most paragraphs an image; the best stays.")] = 3,
    tries: Annotated[
        int, typer.Option(help="Most times a question is asked until the reply can be read.")
    ] = 3,
    temperature: Annotated[
        float, typer.Option(help="Of the generator; the judge is greedy.")
    ] = 0.7,
    top_p: Annotated[float, typer.Option(help="Nucleus of the generator.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of all sampling, where the model takes one.")] = 0,
    prompts: Annotated[
        Path | None, typer.Option(help="YAML with own templates; see the guide.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write anew texts that came with the data, too.")
    ] = False,
    structured: Annotated[
        str, typer.Option(help="Hold the server to a JSON schema: auto, on, off.")
    ] = "auto",
    in_flight: Annotated[int, typer.Option(help="Most requests under way at each server.")] = 32,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 180.0,
    patience: Annotated[
        float, typer.Option(help="Seconds for which a failing request is tried again.")
    ] = 900.0,
    batch_size: Annotated[int, typer.Option(help="Images a batch, in this process.")] = 8,
    device: DeviceOption = None,
    max_side: Annotated[int, typer.Option(help="Longer side of an image as sent, pixels.")] = 1024,
    errors: Annotated[
        str, typer.Option(help="For scenes: rates such as false_caption=0.1,lenient=0.2.")
    ] = "",
    split: SplitOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many records, to try it out.")
    ] = None,
    runner: Annotated[str, typer.Option(help="local, or ray for many machines.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="For ray: processes; by default one a CPU.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="For --dry-run: requests a second, for the time."),
    ] = None,
    price_in: Annotated[
        float | None,
        typer.Option(min=0, help="For --dry-run: price of a million tokens read."),
    ] = None,
    price_out: Annotated[
        float | None,
        typer.Option(min=0, help="For --dry-run: price of a million tokens written."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Have a model write texts for each image, and a second one judge the paragraphs.

    Stop it at any time; run it again to go on. No finished request is made twice.

    Example: `paragrain annotate photos --endpoint http://localhost:8000/v1 --model
    Qwen/Qwen2-VL-7B-Instruct --judge-endpoint http://localhost:8001/v1 --judge
    meta-llama/Llama-3.2-11B-Vision-Instruct`
    """
    from paragrain import annotation
    from paragrain.collection import Collection

    source = Collection.open(collection)
    common = {
        "backend": backend,
        "structured": structured,
        "in_flight": in_flight,
        "timeout": timeout,
        "patience": patience,
        "batch_size": batch_size,
        "device": device,
        "errors": _rates(errors, backend),
    }
    if dry_run:  # asks nobody, not even which models there are
        model = model or "any"
    elif rate is not None or price_in is not None or price_out is not None:
        raise UsageError("--rate and the prices belong to --dry-run: add it, or leave them out")
    if (price_in is None) != (price_out is None):
        raise UsageError("the cost needs both prices: give --price-in and --price-out")
    generator = {**common, **who(backend, endpoint, model, key_env)}
    judging: dict[str, Any] | None = generator
    if judge == "none":
        judging = None
    elif judge != "same" or judge_endpoint:
        place, key = judge_endpoint or endpoint, judge_key_env or key_env
        kind = "openai" if judge_endpoint else backend
        named = (model if dry_run else None) if judge == "same" else judge
        judging = {**common, "backend": kind, **who(kind, place, named, key)}
    settings = annotation.make_settings(
        generator=generator,
        judge=judging,
        texts=tuple(name.strip() for name in texts.split(",") if name.strip()),
        min_score=min_score,
        attempts=attempts,
        tries=tries,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        replace=replace,
        image={"max_side": max_side},
        prompts=annotation.load_prompts(prompts) if prompts else annotation.PromptSet(),
    )
    if dry_run:
        prices = None if price_in is None or price_out is None else (price_in, price_out)
        planned = annotation.plan(
            source, settings, split=split, limit=limit, rate=rate, prices=prices, progress=not json
        )
        _tell_plan(planned, json)
        end([*source.problems, *planned.unusable])
        return
    if runner not in ("local", "ray"):
        raise UsageError(f"there is no runner {runner!r}: choose local or ray")
    report = annotation.annotate(
        source,
        settings,
        split=split,
        limit=limit,
        runner="ray" if runner == "ray" else "local",
        workers=workers,
        progress=not json,
    )
    _tell_report(report, settings, json)
    named_in = str(report.folder / "annotation" / "failed.jsonl")
    end([*source.problems, *report.problems], named_in=named_in, what="not complete")


def who(backend: str, endpoint: str | None, model: str | None, key_env: str) -> dict[str, Any]:
    """Model and endpoint of a backend; a server that offers one model need not be told which."""
    if endpoint and backend in ("scenes", "transformers"):
        raise UsageError(f"--backend {backend} asks no server: leave --endpoint or --backend out")
    if backend == "scenes":
        return {"model": "scenes"}
    if backend == "transformers":
        if model is None:
            raise UsageError("--backend transformers needs --model: a folder, or a Hub name")
        return {"model": model}
    if model is None:
        from paragrain.annotation import only_model

        if endpoint is None and key_env not in os.environ:
            raise UsageError(
                "there is no model to ask: give the --endpoint of a server, or --backend "
                "transformers and a --model"
            )
        model = only_model(endpoint, key_env)
    return {"model": model, "endpoint": endpoint, "key_env": key_env}


def _rates(text: str, backend: str) -> dict[str, float]:
    if text and backend != "scenes":
        raise UsageError("--errors belongs to --backend scenes: add that, or leave it out")
    rates = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            rates[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--errors takes NAME=RATE,..., not {part!r}") from None
    return rates


def _tell_plan(plan: "Plan", json: bool) -> None:
    def span(values: tuple[float, float], form: str = ",.0f") -> str:
        least, most = (format(value, form) for value in values)
        return least if least == most else f"{least} to {most}"

    lines = [
        f"{plan.folder}: {plan.images:,} images, {plan.complete:,} complete, {plan.failed:,} "
        f"failed (asked again with more --tries), {plan.to_ask:,} to be asked about, "
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
        lines.append(
            f"note: --tries {settings.tries + 1} asks once more what could not be read so far"
        )
    tell(json, report.as_json(), lines)
