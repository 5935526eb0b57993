"""The loop for one image: generate, score, regenerate; a pure function of the replies it gets.

`annotate_image` is a generator: it yields the `Call` that it needs next and is sent the reply. It
asks nothing itself, so that the same code runs against a server, replays a log after a kill, and
tells a dry run what is still to be asked.
"""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar, cast

from paragrain.annotation.calls import KINDS, Call, Failure, Kind, Reply, RequestFailed
from paragrain.annotation.parsing import (
    fold,
    gives_itself_away,
    parse_items,
    parse_paragraph,
    parse_score,
)
from paragrain.annotation.prompts import schema
from paragrain.annotation.settings import AnnotationSettings, BackendSettings
from paragrain.collection import Record, fields
from paragrain.words import sentences

Answer = Reply | RequestFailed
T = TypeVar("T")
Calls = Generator[Call, Answer, T]
"""Yields calls, is sent their answers, and returns what came of them."""

Read = tuple[T | None, int, Failure | None]
"""What was read, of how many requests, or why nothing was."""

FIELDS: dict[Kind, str] = {
    cast(Kind, field.annotated_as): name
    for name, field in fields.FIELDS.items()
    if field.annotated_as
}
"""The field of a record that each kind of text goes to."""

_NO_USE = 1_000_000  # retries


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
        candidates: paragraphs written.
    """

    id: str
    changes: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    fewer: dict[str, Failure] = field(default_factory=dict)
    asked: tuple[Kind, ...] = ()
    score: int | None = None
    candidates: int = 0

    @property
    def lacking(self) -> dict[str, Failure]:
        """What is not there, not scored, or there with fewer items than asked for."""
        return self.failures | self.fewer

    @property
    def reason(self) -> str:
        """All that is lacking, in one line."""
        return "; ".join(f"{kind}: {why}" for kind, why in self.lacking.items())


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
) -> Calls[Outcome]:
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
    outcome = loop.outcome
    for kind in outcome.asked:
        yield from loop.write_paragraph() if kind == "paragraph" else loop.write_list(kind)
        if any(failure.kind == "unanswered" for failure in outcome.lacking.values()):
            break  # the other questions would be waited for as long, and in vain
    new = outcome.changes.get("negatives", [])
    if not loop.taken("negatives").isdisjoint(map(fold, new)):
        # The paragraph says what was to be wrong: replies are read once more.
        yield from loop.write_list("negatives")
    if outcome.changes:
        outcome.changes["annotation"] = json.dumps(loop.notes)
    return outcome


class TokenLimits:
    """How many tokens a reply may take: more after each that was truncated, up to a limit.

    A model that thinks first may spend all of them before the answer begins. That is no try: it
    gets four times as many, at once for all further questions about the image. Where even the
    limit was not enough, asking again is of no use.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._least: dict[str, int] = {}

    def first(self, model: str, tokens: int) -> int:
        """The limit of a new question to a model, of which its answer takes `tokens`."""
        return max(tokens, self._least.get(model, 0))

    def next(self, model: str, limit: int, failure: Failure, factor: int) -> tuple[int, int]:
        """The limit of the next request, and for how many retries the last one counts.

        It grows by `factor` if the answer had begun.

        >>> limits = TokenLimits(8192)
        >>> limits.next("m", 160, Failure("truncated"), 2)
        (320, 1)
        >>> limits.next("m", 160, Failure("unreadable"), 2)
        (160, 1)
        >>> limits.next("m", 16, Failure("truncated", thinking=True), 2), limits.first("m", 16)
        ((64, 0), 64)
        """
        if failure.kind != "truncated":
            return limit, 1
        if not failure.thinking:
            return max(limit, min(factor * limit, self._most)), 1
        more = max(limit, min(4 * limit, self._most))
        self._least[model] = max(more, self._least.get(model, 0))
        return more, _NO_USE if more == limit else 0


def _ask(
    model: BackendSettings,
    settings: AnnotationSettings,
    limits: TokenLimits,
    tokens: int,
    make: Callable[[int, int], Call],
    read: Callable[[Reply], T | Failure],
    factor: int = 2,
) -> Calls[Read[T]]:
    """Ask a question again until its reply can be read.

    Args:
        model: who is asked.
        settings: of the run.
        limits: of tokens, for this image.
        tokens: that the answer takes.
        make: the call, from its number and from how many retries there were before.
        read: what a reply says, or why it says nothing.
        factor: by which the limit of tokens grows.
    """
    limit, number, retries = limits.first(model.name, tokens), 0, 0
    failure: Failure | None = None
    while retries <= settings.max_retries:
        number += 1
        reply = yield replace(make(number, retries), max_tokens=limit)
        if isinstance(reply, RequestFailed):
            return None, number, reply.failure
        found = read(reply)
        if not isinstance(found, Failure):
            return found, number, None
        failure = replace(found, said=_excerpt(reply))
        limit, counts = limits.next(model.name, limit, failure, factor)
        retries += counts
    return None, number, failure


class _Loop:
    """The state that the questions about one image share."""

    def __init__(
        self, record: Record, content: str, settings: AnnotationSettings, caption: str | None
    ) -> None:
        self.record, self.content, self.settings = record, content, settings
        self.caption = caption
        self.outcome = Outcome(record.id, asked=wanted_kinds(record, settings))
        self.notes = _all_notes(record)
        self.limits = TokenLimits(settings.most_tokens)

    def write_list(self, kind: Kind) -> Calls[None]:
        """Ask for captions or hard negatives until enough different ones can be read."""
        settings, outcome = self.settings, self.outcome
        count = getattr(settings, kind)
        taken = self.taken(kind)
        outcome.changes.pop(FIELDS[kind], None)
        kept: list[str] = []

        def make(number: int, retries: int) -> Call:
            missing = count - len(kept)
            prompts = settings.prompts.generation(kind, self.caption, missing, kept)
            return self._call(
                kind, *prompts, schema=schema(kind, missing), count=missing, number=number
            )

        def read(reply: Reply) -> list[str] | Failure:
            found = parse_items(reply, count - len(kept), settings.prompts.wording(kind))
            new = []
            for item in found.items:
                key = fold(item)
                if key not in taken and not (kind == "negatives" and gives_itself_away(item)):
                    taken.add(key)
                    new.append(item)
            kept.extend(new[: count - len(kept)])
            if len(kept) == count:
                return kept
            repeated = len(new) < len(found.items)
            return found.failure or Failure("repeated" if repeated else "too few")

        tokens = getattr(settings, f"{kind}_tokens")
        _, requests, lack = yield from _ask(
            settings.generator, settings, self.limits, tokens, make, read
        )
        if lack is not None:
            stands = getattr(self.record, FIELDS[kind])
            if not kept or len(stands) > len(kept):  # it was paid for, and says its model
                self._fail(kind, lack)
                return
            detail = f"{len(kept)} of {count}" + (f": {lack.detail}" if lack.detail else "")
            outcome.fewer[kind] = replace(lack, detail=detail)
        self._note(kind, requests=requests)
        outcome.changes[FIELDS[kind]] = kept

    def write_paragraph(self) -> Calls[None]:
        """Write paragraphs until one scores above the threshold; keep the best."""
        settings, outcome = self.settings, self.outcome
        candidates: list[dict[str, Any]] = []
        failure: Failure | None = None  # of the latest candidate, to write or to score
        unscored: Failure | None = None
        for number in range(1, settings.num_candidates + 1):
            text, requests, failure = yield from self._one_paragraph(number)
            if text is None:
                break
            score: int | None = None
            if settings.judge is not None:
                score, failure = yield from score_paragraph(
                    self.record, text, settings, number, self.limits
                )
                unscored = failure or unscored
            candidates.append({"text": text, "score": score, "requests": requests})
            if settings.judge is None or (score is not None and score > settings.min_score):
                break
            if failure is not None and failure.transient:
                break
        outcome.candidates = len(candidates)
        broken_off = failure is not None and failure.transient
        if failure is not None and (not candidates or broken_off):
            self._fail("paragraph", failure)
        if not candidates:
            return
        # The first of the best: a later one that scores the same has gained nothing.
        best = max(candidates, key=lambda c: -1 if c["score"] is None else c["score"])
        if best["score"] is None and settings.judge is not None and not broken_off:
            outcome.failures["judge"] = unscored or Failure("unreadable")
        if self.record.paragraph_score is not None and (broken_off or best["score"] is None):
            return  # a paragraph with its score only makes way for another one
        outcome.score = best["score"]
        outcome.changes |= {"paragraph": best["text"], "paragraph_score": best["score"]}
        judge = settings.judge and settings.judge.name
        kept = candidates.index(best) + 1
        self._note("paragraph", judge=judge, candidates=candidates, kept=kept)

    def _one_paragraph(self, candidate: int) -> Calls[Read[str]]:
        settings = self.settings
        prompt, _ = settings.prompts.generation("paragraph", self.caption)
        wording = settings.prompts.wording("paragraph")
        # Hard negatives that stay, which no sentence may equal.
        stay = () if "negatives" in self.outcome.asked else self.record.negatives
        wrong = {fold(text) for text in stay}

        def read(reply: Reply) -> str | Failure:
            text = parse_paragraph(reply, wording)
            if isinstance(text, str):
                for sentence in sentences(text):
                    if fold(sentence) in wrong:
                        return Failure("repeated", f"says what a hard negative says: {sentence}")
            return text

        def make(number: int, retries: int) -> Call:
            return self._call("paragraph", prompt, candidate=candidate, number=number)

        tokens = settings.paragraph_tokens
        return (yield from _ask(settings.generator, settings, self.limits, tokens, make, read))

    def _call(self, kind: Kind, prompt: str, json_prompt: str | None = None, **more: Any) -> Call:
        """A call to the generator, with the seed that follows from image and question."""
        more |= {"temperature": self.settings.temperature, "top_p": self.settings.top_p}
        call = Call(kind, self.record, prompt, json_prompt, **more)
        return replace(call, seed=call_seed(self.settings.seed, self.content, call))

    def _fail(self, kind: Kind, failure: Failure) -> None:
        """Say that a text cannot be had, unless one by the same model and prompts is there."""
        known = provenance(self.record).get(kind, {})
        made = (known.get("model"), known.get("prompts"))
        ours = (self.settings.generator.name, self.settings.prompts.version)
        if failure.transient or made != ours:
            self.outcome.failures[kind] = failure

    def taken(self, kind: Kind) -> set[str]:
        """What the new texts may not say again: folded."""
        texts = list(self.record.captions)
        if kind == "negatives":
            now = vars(self.record) | self.outcome.changes
            long = [text for text in (now["description"], now["paragraph"]) if text]
            texts += [*now["generated"], *long, *(s for text in long for s in sentences(text))]
        elif "negatives" not in self.outcome.asked:  # these stay
            texts += self.record.negatives
        return {fold(text) for text in texts}

    def _note(self, kind: str, **more: Any) -> None:
        """Write down who wrote the texts of a kind."""
        model, version = self.settings.generator.name, self.settings.prompts.version
        self.notes[kind] = {"model": model, "prompts": version, **more}


def score_paragraph(
    record: Record,
    text: str,
    settings: AnnotationSettings,
    candidate: int = 1,
    limits: TokenLimits | None = None,
) -> Calls[tuple[int | None, Failure | None]]:
    """Ask the judge for the score of a paragraph until one can be read.

    Args:
        record: what the paragraph is about.
        text: the paragraph.
        settings: of the run.
        candidate: which paragraph of this image it is, from 1.
        limits: of tokens, as far as they are known for this image.

    Returns:
        The score, 0 to 10, or None and the reason.
    """
    assert settings.judge is not None
    question = partial(Call, "judge", record, *settings.prompts.judging(text), schema("judge", 0))

    def make(number: int, retries: int) -> Call:
        # The same greedy question would bring the same unreadable answer.
        sampling = (settings.temperature, settings.top_p) if retries else (0.0, 1.0)
        call = question(
            candidate=candidate,
            number=number,
            paragraph=text,
            temperature=sampling[0],
            top_p=sampling[1],
        )
        return replace(call, seed=call_seed(settings.seed, text, call))

    limits = limits or TokenLimits(settings.most_tokens)
    score, _, failure = yield from _ask(
        settings.judge, settings, limits, settings.judge_tokens, make, parse_score, factor=4
    )
    return score, failure


def call_seed(seed: int, content: str, call: Call) -> int:
    """31 bits that are different for each question and request, and equal in every run.

    >>> call = Call("paragraph", Record("7"), "Describe it.")
    >>> call_seed(0, "ab", call) == call_seed(0, "ab", call) != call_seed(1, "ab", call)
    True
    """
    parts = f"{seed} {content} {call.kind} {call.candidate} {call.number}"
    return int.from_bytes(blake2b(parts.encode(), digest_size=4).digest(), "big") >> 1


def _excerpt(reply: Reply) -> str:
    """How a reply begins, on one line, to show what could not be read."""
    words = " ".join((reply.text or reply.refusal or "").split())
    return words if len(words) <= 160 else words[:157] + "..."
