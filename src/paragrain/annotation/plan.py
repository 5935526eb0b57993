"""What an annotation run will take, without asking a model anything: `annotate --dry-run`."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.log import CallLog, ImageLog
from paragrain.annotation.loop import annotate_image, wanted_kinds
from paragrain.annotation.pictures import Contents, Picture, prepare
from paragrain.annotation.replay import known, replay, walk
from paragrain.annotation.report import FinishedFiles, Problems
from paragrain.annotation.settings import AnnotationSettings, run_name
from paragrain.collection import Collection, Record
from paragrain.errors import ParagrainError
from paragrain.images import BadImage
from paragrain.progress import progress_bar
from paragrain.runtime import cores

_CHUNK = 16  # records whose images are looked at at once
CHARACTERS_A_TOKEN = 4
PATCH = 28
"""Pixels of a side of what becomes one image token, as Qwen2-VL counts them."""


@dataclass
class Plan:
    """What is still to be asked.

    Least means that every first reply can be read and every first paragraph is good enough; most,
    that every paragraph is written `num_candidates` times. Replies that cannot be read come on top;
    an image that the collection holds twice is counted twice, though it is asked about once.

    Attributes:
        folder: the collection.
        images: records that the run will look at.
        complete: of them, those about which nothing is to be asked any more.
        fewer: those with fewer captions or hard negatives than asked for, though every retry has
            been made.
        failed: those that lack a text, though every retry has been made.
        to_ask: images about which a model will be asked.
        unusable: (id, reason) of images that cannot be sent.
        calls: least and most requests.
        prompt_tokens: least and most tokens to be read, estimated: a quarter of the characters,
            and one for each 28 x 28 pixels of the image as it is sent.
        completion_tokens: least and most tokens to be written, if all replies are as long as they
            may be.
        seconds: least and most at the given rate of requests; None if no rate is given.
        cost: least and most at the given prices; None if no price is given.
    """

    folder: Path
    images: int = 0
    complete: int = 0
    fewer: int = 0
    failed: int = 0
    to_ask: int = 0
    unusable: Problems = field(default_factory=list)
    calls: tuple[int, int] = (0, 0)
    prompt_tokens: tuple[int, int] = (0, 0)
    completion_tokens: tuple[int, int] = (0, 0)
    seconds: tuple[float, float] | None = None
    cost: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "folder": str(self.folder)}


def plan(
    collection: Collection,
    settings: AnnotationSettings,
    *,
    split: str | None = None,
    limit: int | None = None,
    rate: float | None = None,
    prices: tuple[float, float] | None = None,
    progress: bool = True,
) -> Plan:
    """Find out what `annotate` with the same arguments will ask; nothing is written.

    Args:
        collection: what is to be annotated.
        settings: how.
        split: this split only.
        limit: the first so many records only.
        rate: requests a second that the servers answer.
        prices: of a million tokens read, and of a million written, in any currency.
        progress: whether to show progress.
    """
    folder = collection.folder / "annotation"
    wanted = set(collection.ids(split)[:limit])
    contents = Contents(collection)
    finished = FinishedFiles(collection.folder, f"{run_name(settings)} {contents.linked}", split)
    log = CallLog(folder / "calls", writing=False)
    images = ImageLog(folder / "images", writing=False)
    result = Plan(collection.folder, images=len(wanted))

    def look(record: Record) -> tuple[Picture | str | None, str]:
        """What would be sent, or why it cannot be, or None if nothing is to be written."""
        if not wanted_kinds(record, settings):
            return None, ""
        try:
            data, content = contents.read(record)
            return prepare(data, settings.image), content
        except BadImage as error:
            return error.reason, ""

    def count(record: Record, picture: Picture | str | None, content: str) -> None:
        if picture is None:
            result.complete += 1
            return
        if isinstance(picture, str):
            result.unusable.append((record.id, picture))
            return
        found = replay(record, content, settings, log, images)
        if (outcome := found.outcome) is not None:
            result.failed += bool(outcome.failures)
            result.fewer += not outcome.failures and bool(outcome.fewer)
            result.complete += not outcome.lacking
            return
        result.to_ask += 1
        seen = ceil(picture.width / PATCH) * ceil(picture.height / PATCH)
        both = []
        for score in (10, 0):
            missing: list[Call] = []

            def answer(call: Call, score: int = score, missing: list[Call] = missing) -> Reply:
                reply = known(log, call, content, settings, found.fresh)
                if reply is None:
                    missing.append(call)
                    reply = _imagined(call, score)
                return reply

            walk(annotate_image(record, content, settings, found.caption), answer)
            read = sum(seen + len(call.prompt) // CHARACTERS_A_TOKEN for call in missing)
            both.append((len(missing), read, sum(call.max_tokens for call in missing)))
        names = ("calls", "prompt_tokens", "completion_tokens")
        for name, least, most in zip(names, *both, strict=True):
            before = getattr(result, name)
            setattr(result, name, (before[0] + least, before[1] + most))

    with (
        progress_bar("looking at images", len(wanted), unit="images", show=progress) as advance,
        ThreadPoolExecutor(max(2, cores())) as pool,
    ):
        for path, ids in collection.files().items():
            chosen = [id for id in ids if id in wanted]
            through = finished.find(path)
            if through is not None and through.images == len(chosen):
                result.complete += through.complete
                result.failed += len(through.failed)
                result.fewer += len(through.fewer)
                result.unusable += through.skipped
                advance(len(chosen))
                continue
            try:
                for start in range(0, len(chosen), _CHUNK):
                    records = collection.get(chosen[start : start + _CHUNK]).values()
                    for record, seen in zip(records, pool.map(look, records), strict=True):
                        count(record, *seen)
                        advance()
            except ParagrainError as error:  # damaged: the others are not
                result.unusable.append((path.name, str(error)))
    if rate:
        result.seconds = (result.calls[0] / rate, result.calls[1] / rate)
    if prices:
        tokens = zip(result.prompt_tokens, result.completion_tokens, strict=True)
        least, most = ((read * prices[0] + made * prices[1]) / 1e6 for read, made in tokens)
        result.cost = (least, most)
    return result


def _imagined(call: Call, score: int) -> Reply:
    """A reply as it should be, of usual length."""
    if call.kind == "judge":
        return Reply(str(score))
    if call.kind == "paragraph":
        places = ("middle", "foreground", "background", "sky", "corner on the left")
        return Reply(" ".join(f"There is something to be seen in the {p} here." for p in places))
    words = "abcdefghijklmnopqrstuvwxyz"
    items = [f"imagined {call.kind} about something {words[i]} here" for i in range(call.count)]
    return Reply("\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)))
