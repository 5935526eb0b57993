"""The loop for one image: generate, score, regenerate; a pure function of the replies it gets.

`annotate_image` is a generator: it yields the `Call` that it needs next and is sent the reply. It
asks nothing itself, so that the same code runs against a server, replays a log after a kill, and
tells a dry run what is still to be asked.
"""

import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, cast

from paragrain.annotation.calls import KINDS, Call, Failure, Kind, Reply, RequestFailed
from paragrain.annotation.parsing import (
    fold,
    gives_itself_away,
    parse_items,
    parse_paragraph,
    parse_score,
)
from paragrain.annotation.prompts import schema
from paragrain.annotation.rooms import Rooms
from paragrain.annotation.settings import AnnotationSettings
from paragrain.collection import Record, fields
from paragrain.words import sentences

Answer = Reply | RequestFailed
Asking = Generator[Call, Answer, Any]

FIELDS: dict[Kind, str] = {
    cast(Kind, field.annotated_as): name
    for name, field in fields.FIELDS.items()
    if field.annotated_as
}
"""The field of a record that each kind of text goes to."""


@dataclass
class Outcome:
    """What became of one image.

    Attributes:
        id: the record's.
        changes: new values of the record's fields, `annotation` among them; empty if there is
            nothing new.
        failures: for each kind of text that is not there or not scored, why.
        fewer: for each list that is there with fewer items than asked for, why.
        asked: the kinds that this run was to write; the others came with the data.
        score: of the kept paragraph, if one was written and scored.
        attempts: paragraphs written.
    """

    id: str
    changes: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    fewer: dict[str, Failure] = field(default_factory=dict)
    asked: tuple[Kind, ...] = ()
    score: int | None = None
    attempts: int = 0

    @property
    def reason(self) -> str:
        """All that is lacking, in one line."""
        return "; ".join(f"{kind}: {why}" for kind, why in self.lacking.items())

    @property
    def lacking(self) -> dict[str, Failure]:
        """What is not there, not scored, or there with fewer items than asked for."""
        return self.failures | self.fewer


def wanted_kinds(record: Record, settings: AnnotationSettings) -> tuple[Kind, ...]:
    """The kinds of text to write for a record: those it lacks, or that an annotation wrote.

    Texts that came with the data are never overwritten, unless `settings.replace` says so; nor is
    a scored paragraph where there is no judge.
    """
    ours = set(provenance(record))
    if settings.judge is None and record.paragraph_score is not None:
        ours.discard("paragraph")
    return tuple(
        kind
        for kind in KINDS
        if kind in settings.texts
        and (settings.replace or kind in ours or not getattr(record, FIELDS[kind]))
    )


def provenance(record: Record) -> dict[str, Any]:
    """What a record's `annotation` says, by kind of text; nothing if it is absent or garbled."""
    return {kind: value for kind, value in _all_notes(record).items() if isinstance(value, dict)}


def _all_notes(record: Record) -> dict[str, Any]:
    """The same with what other tools may have written there."""
    try:
        value = json.loads(record.annotation or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def guide_of(record: Record) -> str | None:
    """The caption that guides the models: the first that came with the image."""
    return record.captions[0] if record.captions else None


def annotate_image(
    record: Record, content: str, settings: AnnotationSettings, caption: str | None
) -> Generator[Call, Answer, Outcome]:
    """Write and judge the texts of one image.

    Args:
        record: what is known of the image.
        content: `images.content_hash` of the image; equal images get equal seeds.
        settings: what to write, and when it is good enough.
        caption: guides the models; as a rule that of `guide_of`.

    Yields:
        The next call. It has to be sent the reply, or the `RequestFailed` that ended it.

    Returns:
        The outcome; texts that cannot be had with certainty are missing there, with the reason.
    """
    loop = _Loop(record, content, settings, caption)
    outcome = Outcome(record.id, asked=loop.asked)
    notes = _all_notes(record)
    for kind in outcome.asked:
        write = loop.paragraph if kind == "paragraph" else loop.items
        yield from write(kind, outcome, notes)
        if any(failure.kind == "unanswered" for failure in outcome.lacking.values()):
            break  # the other questions would be waited for as long, and in vain
    if loop.clash(outcome):  # the paragraph says what was to be wrong: replies are read once more
        yield from loop.items("negatives", outcome, notes)
    if outcome.changes:
        outcome.changes["annotation"] = json.dumps(notes)
    return outcome


class _Loop:
    """The state that the questions about one image share."""

    def __init__(
        self, record: Record, content: str, settings: AnnotationSettings, caption: str | None
    ) -> None:
        self.record = record
        self.content = content
        self.settings = settings
        self.caption = caption
        self.asked = wanted_kinds(record, settings)
        self.rooms = Rooms(settings.most_tokens)

    def items(self, kind: Kind, outcome: Outcome, notes: dict[str, Any]) -> Asking:
        """Ask for captions or hard negatives until enough different ones can be read."""
        settings = self.settings
        count = getattr(settings, kind)
        taken = self._taken(kind, outcome)
        outcome.changes.pop(FIELDS[kind], None)
        kept: list[str] = []
        failure: Failure | None = None
        room = self.rooms.first(settings.generator.name, getattr(settings, f"{kind}_tokens"))
        number, tries = 0, 0
        while tries < settings.tries and len(kept) < count:
            number += 1
            call = self._list_call(kind, count - len(kept), kept, number, room)
            reply = yield call
            if isinstance(reply, RequestFailed):
                failure = reply.failure
                break
            read = parse_items(reply, call.count, settings.prompts.wording(kind))
            new = _different(read.items, taken, kind)
            kept += new[: count - len(kept)]
            repeated = len(new) < len(read.items)
            failure = read.failure or Failure("repeated" if repeated else "too few")
            failure = replace(failure, said=_excerpt(reply))
            room, counts = self.rooms.next(settings.generator.name, room, read.failure)
            tries += counts
        if len(kept) < count:
            lack = failure or Failure("too few")
            stands = getattr(self.record, FIELDS[kind])
            if not kept or len(stands) > len(kept):  # it was paid for, and says its model
                self._fail(kind, lack, outcome)
                return
            detail = f"{len(kept)} of {count}" + (f": {lack.detail}" if lack.detail else "")
            outcome.fewer[kind] = replace(lack, detail=detail)
        self._note(kind, notes, tries=number)
        outcome.changes[FIELDS[kind]] = kept

    def clash(self, outcome: Outcome) -> bool:
        """Whether new hard negatives equal what the image's own texts say in the end."""
        new = outcome.changes.get("negatives", [])
        return not self._taken("negatives", outcome).isdisjoint(fold(text) for text in new)

    def paragraph(self, kind: Kind, outcome: Outcome, notes: dict[str, Any]) -> Asking:
        """Write paragraphs until one scores above the threshold; keep the best."""
        settings = self.settings
        attempts: list[dict[str, Any]] = []
        failure: Failure | None = None  # of the latest attempt, to write or to score
        unscored: Failure | None = None
        for attempt in range(1, settings.attempts + 1):
            text, tries, failed = yield from self._one_paragraph(attempt)
            if text is None:
                failure = failed
                break
            score: int | None = None
            if settings.judge is not None:
                score, failure = yield from score_paragraph(
                    self.record, text, settings, attempt, self.rooms
                )
                unscored = failure or unscored
            attempts.append({"text": text, "score": score, "tries": tries})
            if settings.judge is None or (score is not None and score > settings.min_score):
                break
            if failure is not None and failure.passing:
                break
        outcome.attempts = len(attempts)
        broken_off = failure is not None and failure.passing
        if failure is not None and (not attempts or broken_off):
            self._fail(kind, failure, outcome)
        if not attempts:
            return
        # The first of the best: a later one that scores the same has gained nothing.
        best = max(attempts, key=lambda a: -1 if a["score"] is None else a["score"])
        if best["score"] is None and settings.judge is not None and not broken_off:
            outcome.failures["judge"] = unscored or Failure("unreadable")
        if self.record.paragraph_score is not None and (broken_off or best["score"] is None):
            return  # a paragraph with its score only makes way for another one
        outcome.score = best["score"]
        outcome.changes |= {"paragraph": best["text"], "paragraph_score": best["score"]}
        judge = settings.judge and settings.judge.name
        kept = attempts.index(best) + 1
        self._note(kind, notes, judge=judge, attempts=attempts, kept=kept)

    def _fail(self, kind: Kind, failure: Failure, outcome: Outcome) -> None:
        """Say that a text cannot be had, unless one by the same model and prompts is there."""
        known = provenance(self.record).get(kind, {})
        made = (known.get("model"), known.get("prompts"))
        if failure.passing or made != (self.settings.generator.name, self.settings.prompts.version):
            outcome.failures[kind] = failure

    def _one_paragraph(
        self, attempt: int
    ) -> Generator[Call, Answer, tuple[str | None, int, Failure | None]]:
        """One paragraph that can be read, with the tries it took; or why there is none."""
        settings = self.settings
        prompt, _ = settings.prompts.generation("paragraph", self.caption)
        wording = settings.prompts.wording("paragraph")
        failure: Failure | None = None
        room = self.rooms.first(settings.generator.name, settings.paragraph_tokens)
        number, tries = 0, 0
        while tries < settings.tries:
            number += 1
            call = Call(
                "paragraph",
                self.record,
                prompt,
                attempt=attempt,
                number=number,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=room,
            )
            reply = yield self._seeded(call)
            if isinstance(reply, RequestFailed):
                return None, number, reply.failure
            text = parse_paragraph(reply, wording)
            if isinstance(text, str) and (equal := self._equal_negative(text)):
                text = Failure("repeated", f"says what a hard negative says: {equal}")
            if isinstance(text, str):
                return text, number, None
            failure = replace(text, said=_excerpt(reply))
            room, counts = self.rooms.next(settings.generator.name, room, failure)
            tries += counts
        return None, number, failure

    def _equal_negative(self, paragraph: str) -> str:
        """A sentence that equals a hard negative which stays; empty if none does."""
        if "negatives" in self.asked:
            return ""
        wrong = {fold(text) for text in self.record.negatives}
        return next((text for text in sentences(paragraph) if fold(text) in wrong), "")

    def _list_call(self, kind: Kind, count: int, known: list[str], number: int, room: int) -> Call:
        settings = self.settings
        prompt, json_prompt = settings.prompts.generation(kind, self.caption, count, known)
        call = Call(
            kind,
            self.record,
            prompt,
            json_prompt,
            schema(kind, count),
            count=count,
            number=number,
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=room,
        )
        return self._seeded(call)

    def _seeded(self, call: Call) -> Call:
        """Give a call the seed that follows from the image and the question."""
        return replace(call, seed=call_seed(self.settings.seed, self.content, call))

    def _taken(self, kind: Kind, outcome: Outcome) -> set[str]:
        """What the new texts may not say again: folded."""
        texts = list(self.record.captions)
        if kind == "negatives":
            now = vars(self.record) | outcome.changes
            long = [text for text in (now["description"], now["paragraph"]) if text]
            texts += [*now["generated"], *long, *(s for text in long for s in sentences(text))]
        elif "negatives" not in self.asked:  # these stay
            texts += self.record.negatives
        return {fold(text) for text in texts}

    def _note(self, kind: str, notes: dict[str, Any], **more: Any) -> None:
        """Write down who wrote the texts of a kind."""
        model, version = self.settings.generator.name, self.settings.prompts.version
        notes[kind] = {"model": model, "prompts": version, **more}


def score_paragraph(
    record: Record,
    text: str,
    settings: AnnotationSettings,
    attempt: int = 1,
    rooms: Rooms | None = None,
) -> Generator[Call, Answer, tuple[int | None, Failure | None]]:
    """Ask the judge for the score of a paragraph until one can be read.

    Args:
        record: what the paragraph is about.
        text: the paragraph.
        settings: of the run.
        attempt: which paragraph of this image it is, from 1.
        rooms: what is known of the room that the models take for this image.

    Returns:
        The score, 0 to 10, or None and the reason.
    """
    assert settings.judge is not None
    rooms = rooms or Rooms(settings.most_tokens)
    failure: Failure | None = None
    prompt, json_prompt = settings.prompts.judging(text)
    room = rooms.first(settings.judge.name, settings.judge_tokens)
    number, tries = 0, 0
    while tries < settings.tries:
        number += 1
        call = Call(
            "judge",
            record,
            prompt,
            json_prompt,
            schema("judge", 0),
            attempt=attempt,
            number=number,
            candidate=text,
            # The same greedy question would bring the same unreadable answer.
            temperature=0.0 if tries == 0 else settings.temperature,
            top_p=1.0 if tries == 0 else settings.top_p,
            max_tokens=room,
        )
        reply = yield replace(call, seed=call_seed(settings.seed, text, call))
        if isinstance(reply, RequestFailed):
            return None, reply.failure
        score = parse_score(reply)
        if isinstance(score, int):
            return score, None
        failure = replace(score, said=_excerpt(reply))
        room, counts = rooms.next(settings.judge.name, room, failure, factor=4)
        tries += counts
    return None, failure


def call_seed(seed: int, content: str, call: Call) -> int:
    """31 bits that are different for each question, attempt and try, and equal in every run.

    >>> call = Call("paragraph", Record("7"), "Describe it.")
    >>> call_seed(0, "ab", call) == call_seed(0, "ab", call) != call_seed(1, "ab", call)
    True
    """
    parts = f"{seed} {content} {call.kind} {call.attempt} {call.number}"
    return int.from_bytes(blake2b(parts.encode(), digest_size=4).digest(), "big") >> 1


def _different(items: Iterable[str], taken: set[str], kind: Kind) -> list[str]:
    """The items that say something new, which join `taken`."""
    new = []
    for item in items:
        if fold(item) in taken or (kind == "negatives" and gives_itself_away(item)):
            continue
        taken.add(fold(item))
        new.append(item)
    return new


def _excerpt(reply: Reply) -> str:
    """How a reply begins, on one line, to show what could not be read."""
    words = " ".join((reply.text or reply.refusal or "").split())
    return words if len(words) <= 160 else words[:157] + "..."
