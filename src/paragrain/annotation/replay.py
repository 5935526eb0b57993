"""What has been paid for, found again: by the image's content, under whatever name it has now."""

from collections.abc import Callable
from dataclasses import dataclass

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.log import CallLog, ImageLog, call_key
from paragrain.annotation.loop import Answer, Calls, Outcome, annotate_image, guide_of
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Record


def model_of(call: Call, settings: AnnotationSettings) -> str:
    """The name of the model that a call goes to."""
    model = settings.judge if call.kind == "judge" else settings.generator
    assert model is not None
    return model.name


def walk(
    loop: Calls[Outcome], answer: Callable[[Call], Answer | None]
) -> tuple[Outcome | None, int]:
    """Run a loop as far as answers go: its outcome, or None at the first call without one; and how
    many calls were answered.
    """
    given: Answer | None = None
    found = 0
    try:
        while True:
            call = next(loop) if given is None else loop.send(given)
            given = answer(call)
            if given is None:
                return None, found
            found += 1
    except StopIteration as ended:
        return ended.value, found


@dataclass(frozen=True)
class Replay:
    """What the log makes of an image.

    Attributes:
        outcome: what becomes of it; None if something is to be asked.
        found: replies that the log has.
        caption: what guides the prompts.
        fresh: whether replies that did not end well are to be asked for again.
    """

    outcome: Outcome | None
    found: int
    caption: str | None
    fresh: bool


def replay(
    record: Record, content: str, settings: AnnotationSettings, log: CallLog, images: ImageLog
) -> Replay:
    """What the log makes of an image: with the caption that knows most, the record's own first.

    What failed since a reply did not end well is asked for again; where there is nothing to be
    gained by that, or nothing failed, such replies are steps to those that came after them.
    """

    def run(caption: str | None, fresh: bool = False) -> Replay:
        loop = annotate_image(record, content, settings, caption)
        outcome, found = walk(loop, lambda call: known(log, call, content, settings, fresh))
        again = not fresh and outcome is not None and outcome.lacking
        return run(caption, True) if again else Replay(outcome, found, caption, fresh)

    best = run(guide_of(record))
    if best.outcome is None and content and not settings.replace:
        former = images.caption(content)
        if former is not None and former[0] != best.caption:
            other = run(former[0])
            if other.outcome is not None or other.found > best.found:
                return other
    return best


def known(
    log: CallLog, call: Call, content: str, settings: AnnotationSettings, fresh: bool
) -> Reply | None:
    """The reply that the log has; with `fresh`, only one that ended well."""
    reply = log.find(call_key(call, content, model_of(call, settings), settings.image))
    return None if fresh and reply is not None and reply.ending != "whole" else reply
