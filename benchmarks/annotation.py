"""What annotation adds to a bare client loop, and how busy it keeps a server.

    python benchmarks/annotation.py                        # scenes, 2 cores, about two minutes
    python benchmarks/annotation.py --images ~/pictures --count 50

Against a server on this machine that answers at once, `annotate` and a loop of bare `openai` calls
make the same requests (four an image: captions, negatives, paragraph, score) about the same
pictures. The loop decodes, scales and encodes each image once, as it has to, and throws the
replies away; `annotate` also reads the collection, parses, logs each reply to disk and writes the
texts into the collection. Both are run in turn, some times; the table gives medians. Then the
server takes 200 ms for each answer, and the share of its places that are busy from the first
request to the last is measured, at several numbers of requests in flight.
"""

import argparse
import asyncio
import base64
import importlib.util
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich.console import Console
from rich.table import Table

from paragrain.annotation import AnnotationSettings, BackendSettings, annotate
from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.loop import annotate_image, guide_of
from paragrain.annotation.pictures import prepare
from paragrain.collection import Collection, Record
from paragrain.runtime import tune
from paragrain.sources import import_folder, import_scenes

STUB = Path(__file__).parents[1] / "tests" / "annotation" / "stub.py"
GOOD_SCORE = [{"match": {"kind": "judge"}, "do": {"text": "9"}}]
CALLS = 4


def load_stub() -> Any:
    """The stand-in for a server that the tests use."""
    spec = importlib.util.spec_from_file_location("stub", STUB)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Stub()


def calls_of(record: Record, settings: AnnotationSettings) -> list[Call]:
    """The four calls of an image whose replies are all good."""
    loop = annotate_image(record, "", settings, guide_of(record))
    calls = [next(loop)]
    words = ("one", "two", "three", "four", "five")
    while len(calls) < CALLS:
        kind = calls[-1].kind
        text = "\n".join(f"{n}. {kind} {word} here" for n, word in enumerate(words, 1))
        calls.append(loop.send(Reply("It is a scene. " * 5 if kind == "paragraph" else text)))
    return calls


async def bare_loop(
    source: Collection, settings: AnnotationSettings, limit: int, *, as_it_is: bool
) -> None:
    """The same requests by the client alone."""
    own = settings.generator
    client = AsyncOpenAI(api_key="none", base_url=own.endpoint, max_retries=0)
    places = asyncio.Semaphore(own.max_concurrency)

    async def one(record: Record) -> None:
        async with places:
            data = source.image_bytes(record)
            kind = "image/png"
            if not as_it_is:
                data = (await asyncio.to_thread(prepare, data, settings.image)).data
                kind = "image/jpeg"
            url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
            for call in calls_of(record, settings):
                content = [
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "text", "text": call.prompt},
                ]
                await client.chat.completions.create(
                    model=own.model,
                    messages=[{"role": "user", "content": content}],  # type: ignore[list-item,misc]
                    max_tokens=call.max_tokens,
                    temperature=call.temperature,
                    top_p=call.top_p,
                    seed=call.seed,
                )

    async with client:
        records = [r for r, _ in zip(source.records(images=True), range(limit), strict=False)]
        await asyncio.gather(*(one(record) for record in records))


def fresh(source: Path, place: Path) -> Collection:
    """A copy that was never annotated."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    return Collection.open(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=Path, help="folder with images; by default scenes")
    parser.add_argument("--count", type=int, default=300, help="images to annotate")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds, in the second part")
    args = parser.parse_args()
    tune()
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        if args.images:
            import_folder(args.images, place / "source", progress=False)
        else:
            import_scenes(place / "source", size=args.count, pixels=384, progress=False)
        stub = load_stub().start()
        try:
            overhead(stub, place, args, console)
            busy(stub, place, args, console)
        finally:
            stub.stop()


def settings_for(stub: Any, max_concurrency: int) -> AnnotationSettings:
    model = BackendSettings(
        model="stub", endpoint=stub.url, max_concurrency=max_concurrency, structured="off"
    )
    return AnnotationSettings(generator=model, judge=model, replace=True)


def overhead(stub: Any, place: Path, args: argparse.Namespace, console: Console) -> None:
    """Time both against an instant server."""
    settings = settings_for(stub, args.max_concurrency)
    stub.script(rules=GOOD_SCORE)
    times: dict[str, list[float]] = {"ours": [], "prepared": [], "as it is": []}
    for _ in range(args.rounds):
        work = fresh(place / "source", place / "work")
        started = time.perf_counter()
        report = annotate(work, settings, limit=args.count, progress=False)
        times["ours"].append(time.perf_counter() - started)
        assert not report.problems, report.problems[:3]
        assert report.calls == CALLS * report.images
        for name in ("prepared", "as it is"):
            started = time.perf_counter()
            asyncio.run(bare_loop(work, settings, args.count, as_it_is=name == "as it is"))
            times[name].append(time.perf_counter() - started)
    counts = stub.counters()
    console.print(
        f"{report.images} images, {report.calls} requests, {args.max_concurrency} at once"
    )
    assert counts["by_status"].keys() == {"200"}, counts
    table = Table(
        "", "seconds", "requests/s", "annotate / it", title="A server that answers at once"
    )
    for name, label in [
        ("ours", "paragrain annotate"),
        ("prepared", "bare openai loop, images prepared"),
        ("as it is", "bare openai loop, files sent as they are"),
    ]:
        median = statistics.median(times[name])
        ratio = statistics.median(o / t for o, t in zip(times["ours"], times[name], strict=True))
        table.add_row(label, f"{median:.2f}", f"{report.calls / median:.0f}", f"{ratio:.2f}")
    console.print(table)


def busy(stub: Any, place: Path, args: argparse.Namespace, console: Console) -> None:
    """How busy a slower server is kept, from its first request to its last."""
    table = Table("in flight", "requests", "seconds", "busy", title=f"{args.latency:g} s an answer")
    for max_concurrency in (8, 16, 32):
        work = fresh(place / "source", place / "work")
        stub.script(rules=GOOD_SCORE, latency=args.latency)
        annotate(work, settings_for(stub, max_concurrency), limit=args.count, progress=False)
        counts = stub.counters()
        share = counts["busy_seconds"] / (max_concurrency * counts["seconds"])
        cells = (
            max_concurrency,
            counts["requests"],
            f"{counts['seconds']:.1f}",
            f"{100 * share:.1f} %",
        )
        table.add_row(*map(str, cells))
    console.print(table)


if __name__ == "__main__":
    main()
