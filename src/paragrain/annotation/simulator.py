"""Annotation measured on truth: a model that answers from drawn scenes' graphs, and the measures.

`ScenesBackend` errs at chosen rates, and its replies go the same way as any server's; nothing looks
at the pixels. What any annotator wrote about drawn scenes can then be held against what is in the
pictures. A text that uses words outside the world's lexicon cannot be read back
(`sources.scenes.truth`): it counts as unreadable, and no share is of it. Intervals take texts as
independent of each other.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paragrain.annotation.calls import Call, Reply, RequestFailed
from paragrain.annotation.loop import provenance
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings, SceneErrors
from paragrain.collection import Record
from paragrain.sources.scenes import Scene, is_true, scene_of
from paragrain.sources.scenes.graph import MAX_THINGS, MIN_THINGS
from paragrain.sources.scenes.language import falsified, hard_negatives, paragraph, short_captions
from paragrain.sources.scenes.truth import verdicts
from paragrain.stats import Estimate
from paragrain.tables import Cell, Table
from paragrain.words import sentences

_LIST_STYLES = ("{n}. {text}", "{n}) {text}", "**{n}.** {text}", '{n}. "{text}"')
_LIST_GAPS = ("\n", "\n", "\n\n")
_PREAMBLES = (
    "Sure! Here is what you asked for:",
    "Here are the captions for this image:",
    "Certainly. I looked at the image closely and wrote the following:",
)
_SIGN_OFFS = (
    "Let me know if you would like any changes!",
    "I hope this helps. Feel free to ask for more.",
)
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "I'm unable to describe this image.",
)
_SCORES = ("{score}", "{score}", "{score}/10", "Score: {score}", "Rating: {score}/10")
_UNCLEAR = ("Rating: high", "I cannot evaluate this.", "The description is mostly accurate.")
_WORDY = "I compared the description with the image, shape by shape and colour by colour. "


# --- a model that knows the truth -----------------------------------------------------------------


class ScenesBackend:
    """Answers calls about drawn scenes; every reply follows from the call alone."""

    def __init__(self, settings: BackendSettings) -> None:
        self.max_concurrency = settings.max_concurrency
        self.stall_reason = ""
        self.notes: list[str] = []
        self._errors = settings.errors

    async def ask(self, call: Call, picture: PreparedImage) -> Reply:
        """Answer one call.

        Raises:
            RequestFailed: the record has no graph of a drawn scene.
        """
        scene, errors = scene_of(call.record), self._errors
        if scene is None or not MIN_THINGS <= len(scene.things) <= MAX_THINGS:
            raise RequestFailed(
                f"record {call.record.id!r} has no graph of a drawn scene, and the backend "
                "`scenes` answers from nothing else: choose another backend"
            )
        rng = random.Random(
            f"{call.seed} {call.kind} {call.candidate} {call.number} {call.record.graph}"
        )
        refused, truncated = rng.random() < errors.refusal, rng.random() < errors.truncated
        if refused:
            text = rng.choice(_REFUSALS)
        elif call.kind == "judge":
            text = _verdict(call, scene, rng, errors)
            text = _WORDY + text if truncated else text
        elif call.kind == "paragraph":
            text = _paragraph(scene, rng, errors)
        else:
            text = _list(_items(call, scene, rng, errors), rng, errors)
        return Reply(_truncated(text, rng), finish="length") if truncated else Reply(text)

    async def close(self) -> None:
        """Nothing is open."""


def _items(call: Call, scene: Scene, rng: random.Random, errors: SceneErrors) -> list[str]:
    """As many texts as are asked for, none of them one that the prompt shows."""
    usual, slip = _endless(short_captions, scene, rng), _endless(hard_negatives, scene, rng)
    rate = errors.false_caption
    if call.kind == "negatives":
        usual, slip, rate = slip, usual, errors.true_negative
    items: list[str] = []
    for _ in range(call.count):
        texts = slip if rng.random() < rate else usual
        items.append(next(text for text in texts if text not in items and text not in call.prompt))
    return items


def _endless(
    write: Callable[[Scene, random.Random], list[str]], scene: Scene, rng: random.Random
) -> Iterator[str]:
    """Texts of one kind without end, five by five, which have a focus each."""
    while True:
        yield from write(scene, rng)


def _list(items: list[str], rng: random.Random, errors: SceneErrors) -> str:
    """The items as a numbered list, with what goes wrong with lists."""
    if rng.random() < errors.short_list:
        items = items[: rng.randrange(min(1, len(items) - 1), len(items))]
    if rng.random() < errors.repeat and items:
        if len(items) == 1:
            items = items * 2
        else:
            kept, lost = rng.sample(range(len(items)), 2)
            items = [items[kept] if i == lost else item for i, item in enumerate(items)]
    style, gap = rng.choice(_LIST_STYLES), rng.choice(_LIST_GAPS)
    text = gap.join(style.format(n=n, text=item) for n, item in enumerate(items, 1))
    if rng.random() < errors.preamble:
        text = "\n\n".join([rng.choice(_PREAMBLES), text, rng.choice(_SIGN_OFFS)])
    return text


def _paragraph(scene: Scene, rng: random.Random, errors: SceneErrors) -> str:
    """A paragraph in the training style; each of its sentences may have one fact wrong."""
    return " ".join(
        falsified(sentence, scene, rng) if rng.random() < errors.false_sentence else sentence
        for sentence in sentences(paragraph(scene, rng))
    )


def _verdict(call: Call, scene: Scene, rng: random.Random, errors: SceneErrors) -> str:
    """The score of a paragraph: 10, less 5 for each sentence that is not known to be true."""
    wrong = sum(verdict is not True for verdict in verdicts(call.paragraph or "", scene))
    score = max(0, 10 - 5 * wrong)
    erring = rng.random()
    if wrong and erring < errors.lenient:
        score = rng.randint(8, 10)
    elif not wrong and erring < errors.harsh:
        score = rng.randint(0, 5)
    if rng.random() < errors.unclear:
        return rng.choice(_UNCLEAR)
    return rng.choice(_SCORES).format(score=score)


def _truncated(text: str, rng: random.Random) -> str:
    """The beginning of a text, at least a third of it, up to the middle of a word."""
    places = [
        at
        for at in range(max(1, len(text) // 3), len(text))
        if text[at - 1].isalpha() and text[at].isalpha()
    ]
    return text[: rng.choice(places)] if places else text


# --- texts against the truth ----------------------------------------------------------------------

Verdict = bool | None  # None: it cannot be read


@dataclass(frozen=True)
class VerdictCount:
    """How often something was found among verdicts: `count` of `n`, and how many are unreadable."""

    count: int
    n: int
    unreadable: int = 0

    @classmethod
    def of(cls, found: Sequence[Verdict], value: bool) -> "VerdictCount":
        """`value` among those that can be read."""
        unreadable = found.count(None)
        return cls(found.count(value), len(found) - unreadable, unreadable)

    @property
    def estimate(self) -> Estimate:
        """The share from 0 to 1 with Wilson's interval."""
        return Estimate.proportion(self.count, self.n)


def measure(records: Iterable[Record]) -> tuple[int, int, dict[str, VerdictCount]]:
    """Judge every text of a collection that can be judged.

    Returns:
        The number of records; that of those that are no drawn scene, or lack all three kinds of
        text; and what was found, by what it is.

    One true caption, one false and one that cannot be read:

    >>> from paragrain.sources.scenes import Thing
    >>> graph = Scene("mint", (Thing("star", "red", "large", "plain", 0),), look=0).to_json()
    >>> captions = ["a red star", "a huge blue star", "a dog"]
    >>> total, not_judged, found = measure([Record("1", graph=graph, generated=captions)])
    >>> found["captions that are false"]
    VerdictCount(count=1, n=2, unreadable=1)
    """
    total = 0
    captions: list[Verdict] = []
    negatives: list[Verdict] = []
    told: list[Verdict] = []
    paragraphs: list[Verdict] = []
    images: list[Verdict] = []
    for record in records:
        total += 1
        scene = scene_of(record)
        if scene is None:
            continue
        own_captions = [is_true(text, scene) for text in record.generated]
        own_negatives = [is_true(text, scene) for text in record.negatives]
        own_told = [] if record.paragraph is None else verdicts(record.paragraph, scene)
        captions += own_captions
        negatives += own_negatives
        told += own_told
        paragraphs += [_all(own_told)] if own_told else []
        right = [*own_captions, *own_told, *(None if v is None else not v for v in own_negatives)]
        images += [_all(right)] if right else []
    return (
        total,
        total - len(images),
        {
            "captions that are false": VerdictCount.of(captions, False),
            "hard negatives that are true": VerdictCount.of(negatives, True),
            "sentences that are false": VerdictCount.of(told, False),
            "faultless paragraphs": VerdictCount.of(paragraphs, True),
            "images with everything right": VerdictCount.of(images, True),
        },
    )


def _all(found: list[Verdict]) -> Verdict:
    """Whether all of them are true; None if one cannot be read."""
    return None if None in found else all(found)


# --- judge and loop against the truth -------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One paragraph of an image: its score, and whether it is faultless (None: unreadable)."""

    score: int | None
    faultless: Verdict


def candidates_of(record: Record) -> list[tuple[str, int | None]]:
    """Every paragraph that was written for a record, with its score, from its `annotation`.

    >>> import json
    >>> written = {"text": "A red star.", "score": 7}
    >>> candidates_of(Record("7", annotation=json.dumps({"paragraph": {"candidates": [written]}})))
    [('A red star.', 7)]
    """
    try:
        written = provenance(record)["paragraph"]["candidates"]
        return [(candidate["text"], candidate["score"]) for candidate in written]
    except (KeyError, TypeError):  # not written, or another annotator's notes
        return []


def judged_candidates(records: Iterable[Record]) -> list[list[Candidate]]:
    """The candidates of every drawn scene that has any."""
    result = []
    for record in records:
        scene = scene_of(record)
        if scene is not None and (written := candidates_of(record)):
            result.append([Candidate(s, _all(verdicts(text, scene))) for text, s in written])
    return result


def judge_quality(
    pairs: Iterable[tuple[int | None, bool]], thresholds: Sequence[int] = range(10)
) -> dict[int, tuple[VerdictCount, VerdictCount]]:
    """How well "write again what scores this or less" finds paragraphs with a wrong fact.

    Args:
        pairs: score, and whether the paragraph is faultless; pairs without a score are left out.
        thresholds: those to compute, of 0 to 9.

    Returns:
        By threshold: paragraphs with a wrong fact among those found (precision), and paragraphs
        found among those with a wrong fact (recall).

    Four paragraphs, two of which have a wrong fact; the judge sees one of them:

    >>> judge_quality([(10, True), (5, False), (9, False), (4, True)], [5])
    {5: (VerdictCount(count=1, n=2, unreadable=0), VerdictCount(count=1, n=2, unreadable=0))}
    """
    scored = [(score, faultless) for score, faultless in pairs if score is not None]
    wrong = sum(not faultless for _, faultless in scored)
    result = {}
    for threshold in thresholds:
        found = [faultless for score, faultless in scored if score <= threshold]
        hits = len(found) - sum(found)
        result[threshold] = VerdictCount(hits, len(found)), VerdictCount(hits, wrong)
    return result


def quality_after(images: Iterable[list[Candidate]], k: int, threshold: int = 5) -> VerdictCount:
    """Faultless ones among the kept paragraphs, had there been at most `k` candidates.

    Args:
        images: the candidates of a finished run with as many of them or more.
        k: most candidates.
        threshold: what scores this or less is written again. Above that of the run itself,
            candidates are missing.

    A first candidate with a wrong fact scores 5, the second is faultless:

    >>> images = [[Candidate(5, False), Candidate(10, True)]]
    >>> quality_after(images, 1).count, quality_after(images, 2).count
    (0, 1)
    """

    def score(candidate: Candidate) -> int:
        return -1 if candidate.score is None else candidate.score

    kept = []
    for best, *others in images:
        for candidate in others[: k - 1]:
            if score(best) > threshold:
                break
            best = max(best, candidate, key=score)  # the first of the best
        kept.append(best.faultless)
    return VerdictCount.of(kept, True)


def truth_tables(records: Iterable[Record], threshold: int = 5) -> list[Table]:
    """Everything that can be measured on truth: texts, and for judged paragraphs judge and loop.

    Args:
        records: of a collection of drawn scenes.
        threshold: the run's `min_score`.
    """
    records = list(records)
    total, not_judged, found = measure(records)
    texts = Table(
        f"Texts of {total - not_judged} scenes ({not_judged} of {total} records not judged)",
        ("text", "found", "of", "share (95 %)", "unreadable"),
        [(name, s.count, s.n, s.estimate, s.unreadable) for name, s in found.items()],
        formats={3: ".1%"},
    )
    images = judged_candidates(records)
    if not images:
        return [texts]
    candidates = [candidate for own in images for candidate in own]
    pairs = [(c.score, c.faultless) for c in candidates if c.faultless is not None]
    scored = sum(score is not None for score, _ in pairs)
    judge = Table(
        f"Judge: finding paragraphs with a wrong fact ({scored} of {len(candidates)} candidates "
        "are scored and readable)",
        ("score at most", "found", "precision (95 %)", "recall (95 %)"),
        [
            (threshold, precision.n, precision.estimate, recall.estimate)
            for threshold, (precision, recall) in judge_quality(pairs).items()
        ],
        formats={2: ".1%", 3: ".1%"},
    )
    rows: list[Sequence[Cell]] = []
    for k in range(1, max(3, *map(len, images)) + 1):
        share = quality_after(images, k, threshold)
        rows.append((k, share.count, share.n, share.estimate))
    kept = Table(
        f"Kept paragraphs by candidates (written again at {threshold} or less)",
        ("candidates at most", "faultless", "of", "share (95 %)"),
        rows,
        formats={3: ".1%"},
    )
    return [texts, judge, kept]
