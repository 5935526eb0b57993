"""A third, stronger judge on a sample: how far it agrees with the one that scored everything."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragrain.annotation.client import Client
from paragrain.annotation.database import Database
from paragrain.annotation.loop import provenance, score_paragraph
from paragrain.annotation.measures.agreement import Agreement, agreement, sample_scored
from paragrain.annotation.pictures import Contents, prepare
from paragrain.annotation.prompts import PromptSet
from paragrain.annotation.report import AnnotationReport, Problems
from paragrain.annotation.runs import locked, run_coroutine
from paragrain.annotation.settings import AnnotationSettings, BackendSettings
from paragrain.collection import Collection, Record
from paragrain.errors import ParagrainError
from paragrain.files import write_json
from paragrain.images import BadImage, content_hash
from paragrain.progress import progress_bar

_LONGEST_NAME = 100  # bytes, of a file's name


@dataclass
class Check:
    """What the third judge said.

    Attributes:
        judge: its model's name.
        first_judges: names of the models whose scores it was compared with.
        rows: (id, stored score, its score) of each paragraph of the sample.
        failed: (id, reason) of paragraphs that it did not score.
        agreement: of the stored scores with its own.
        file: where all this was written.
    """

    judge: str
    first_judges: list[str]
    rows: list[tuple[str, int | None, int | None]]
    failed: Problems
    agreement: Agreement
    file: Path

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**vars(self), "agreement": self.agreement.as_dict(), "file": str(self.file)}


def check(
    collection: Collection,
    judge: BackendSettings,
    *,
    sample: int = 200,
    seed: int = 0,
    split: str | None = None,
    prompts: PromptSet | None = None,
    max_retries: int = 2,
    progress: bool = True,
) -> Check:
    """Have another judge score a sample of the paragraphs, and compare.

    Its replies are in the same database as all others, so that the same sample costs nothing again.
    Nothing in the collection's records changes.

    Args:
        collection: an annotated collection.
        judge: the third judge.
        sample: paragraphs to be scored again, drawn at random.
        seed: of the draw, and of the intervals.
        split: of this split only.
        prompts: templates, of which `judge` is used.
        max_retries: most times that the judge is asked again until a score can be read.
        progress: whether to show progress.

    Raises:
        ParagrainError: no paragraph of the collection has a score, or the judge cannot be asked.
    """
    fields = ["paragraph", "paragraph_score"]
    ids = sample_scored(collection.records(split, fields=fields), sample, seed)
    if not ids:
        raise ParagrainError(
            f"{collection.place(split)} has no scored paragraphs: run `paragrain annotate` first"
        )
    settings = AnnotationSettings(
        generator=judge, judge=judge, max_retries=max_retries, prompts=prompts or PromptSet()
    )
    folder = collection.folder / "annotation"
    report = AnnotationReport(collection.folder)
    scores: dict[str, int | None] = {}
    failed: Problems = []
    records = collection.get(ids, images=False)
    contents = Contents(collection)

    async def score(record: Record, client: Client, semaphore: asyncio.Semaphore) -> None:
        async with semaphore:
            try:
                data, content = await asyncio.to_thread(contents.read, record)
                picture = await asyncio.to_thread(prepare, data, settings.image)
            except BadImage as error:
                failed.append((record.id, error.reason))
                return
            assert record.paragraph is not None
            calls = score_paragraph(record, record.paragraph, settings)
            (scores[record.id], failure), _ = await client.drive(calls, content, picture)
            if failure is not None:
                failed.append((record.id, str(failure)))

    async def score_all() -> None:
        with (
            Database(folder) as database,
            progress_bar("judging", len(ids), unit="paragraphs", show=progress) as advance,
        ):
            async with Client(settings, database, report) as client:
                semaphore = asyncio.Semaphore(client.max_concurrency + 2)
                tasks = [asyncio.create_task(score(r, client, semaphore)) for r in records.values()]
                try:
                    for done in asyncio.as_completed(tasks):
                        await done
                        advance()
                finally:
                    for task in tasks:
                        task.cancel()

    with locked(folder):
        run_coroutine(score_all())
    stored = [records[id].paragraph_score for id in ids]
    first = [score if score in range(11) else None for score in stored]
    second = [scores.get(id) for id in ids]
    judges = {str(provenance(r).get("paragraph", {}).get("judge")) for r in records.values()}
    result = Check(
        judge.name,
        sorted(judges - {"None"}),
        list(zip(ids, first, second, strict=True)),
        sorted(failed),
        agreement(first, second, seed=seed),
        folder / f"check-{_file_name(judge.name)}.json",
    )
    write_json(result.file, {**result.as_json(), "sample": len(ids), "seed": seed})
    return result


def _file_name(model: str) -> str:
    """A model's name as part of a file's.

    >>> _file_name("meta-llama/Llama-3.2-11B")
    'meta-llama-Llama-3.2-11B'
    """
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in model)
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    start = name.encode("ascii", "ignore").decode()[:_LONGEST_NAME]
    return f"{start}-{content_hash(model.encode())[:8]}"
