"""Annotations of drawn scenes measured against what is in the pictures, whoever wrote them.

A text that uses words outside the world's lexicon cannot be read back (`sources.scenes.truth`). It
counts as unreadable, and no share is of it. Intervals take texts as independent of each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from paragrain.annotation.loop import provenance
from paragrain.annotation.measures.lengths import Table
from paragrain.collection import Record
from paragrain.sources.scenes import Scene, is_true, scene_of
from paragrain.sources.scenes.truth import verdicts

Verdict = bool | None  # None: it cannot be read

THRESHOLDS = tuple(range(10))

_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Proportion:
    """`count` of `of` things, as a share with its uncertainty.

    >>> print(Proportion(1, 10))
    10.0 % (1.8 to 40.4)
    >>> Proportion(0, 0).share is None
    True
    """

    count: int
    of: int

    @property
    def share(self) -> float | None:
        """0 to 1; None of nothing."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval of the share, within 0 to 1; None of nothing."""
        if not self.of:
            return None
        share, slack = self.count / self.of, _Z95**2 / self.of
        centre = share + slack / 2
        half = sqrt(slack * share * (1 - share) + slack**2 / 4)
        low, high = (centre - half) / (1 + slack), (centre + half) / (1 + slack)
        # The ends are exact where rounding would leave them 1e-17 off.
        return (low if self.count else 0.0, high if self.count < self.of else 1.0)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON: count, of, share, low, high."""
        low, high = self.interval or (None, None)
        return {**asdict(self), "share": self.share, "low": low, "high": high}

    def __str__(self) -> str:
        """`10.0 % (1.8 to 40.4)`, or a dash of nothing."""
        if self.interval is None:
            return "-"
        low, high = self.interval
        return f"{100 * self.count / self.of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


@dataclass(frozen=True)
class Truth:
    """How true the texts of a collection are; the `of` of each proportion are those judged.

    Attributes:
        records: all of them.
        not_judged: records that are no drawn scene, or lack all three kinds of text.
        false_captions: of the `generated` texts.
        unreadable_captions: `generated` texts that cannot be judged.
        true_negatives: hard negatives that are in fact true.
        unreadable_negatives: hard negatives that cannot be judged.
        faultless_paragraphs: of those of which every sentence can be read.
        unreadable_paragraphs: the others.
        false_sentences: of all paragraphs' sentences that can be read.
        unreadable_sentences: the others.
        right_images: images whose captions and paragraph are true and whose negatives are false, of
            those of which everything can be read.
        unreadable_images: images with a text that cannot be read.
    """

    records: int
    not_judged: int
    false_captions: Proportion
    unreadable_captions: int
    true_negatives: Proportion
    unreadable_negatives: int
    faultless_paragraphs: Proportion
    unreadable_paragraphs: int
    false_sentences: Proportion
    unreadable_sentences: int
    right_images: Proportion
    unreadable_images: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: value.as_dict() if isinstance(value, Proportion) else value
            for name, value in vars(self).items()
        }


def measure(records: Iterable[Record]) -> Truth:
    """Judge every text of a collection that can be judged.

    One true caption, one false and one that cannot be read:

    >>> from paragrain.sources.scenes import Thing
    >>> graph = Scene("mint", (Thing("star", "red", "large", "plain", 0),), look=0).to_json()
    >>> captions = ["a red star", "a huge blue star", "a dog"]
    >>> truth = measure([Record("1", graph=graph, generated=captions), Record("2")])
    >>> truth.false_captions, truth.unreadable_captions, truth.not_judged
    (Proportion(count=1, of=2), 1, 1)
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
    return Truth(
        total,
        total - len(images),
        *_share(captions, False),
        *_share(negatives, True),
        *_share(paragraphs, True),
        *_share(told, False),
        *_share(images, True),
    )


# --- the judge


@dataclass(frozen=True)
class JudgeQuality:
    """How well "write again what scores `threshold` or less" finds paragraphs with a wrong fact.

    Attributes:
        threshold: 0 to 9.
        precision: paragraphs with a wrong fact among those found.
        recall: paragraphs found among those with a wrong fact.
    """

    threshold: int
    precision: Proportion
    recall: Proportion


def judge_quality(
    pairs: Iterable[tuple[int | None, bool]], thresholds: Sequence[int] = THRESHOLDS
) -> list[JudgeQuality]:
    """Precision and recall of a judge by threshold.

    Args:
        pairs: score, and whether the paragraph is faultless; pairs without a score are left out.
        thresholds: those to compute.

    Four paragraphs, two of which have a wrong fact; the judge sees one of them:

    >>> (at_5,) = judge_quality([(10, True), (5, False), (9, False), (4, True)], [5])
    >>> at_5.precision.share, at_5.recall.share
    (0.5, 0.5)
    """
    scored = [(score, faultless) for score, faultless in pairs if score is not None]
    wrong = sum(not faultless for _, faultless in scored)
    result = []
    for threshold in thresholds:
        found = [faultless for score, faultless in scored if score <= threshold]
        hits = len(found) - sum(found)
        result.append(
            JudgeQuality(threshold, Proportion(hits, len(found)), Proportion(hits, wrong))
        )
    return result


def attempts_of(record: Record) -> list[tuple[str, int | None]]:
    """Every paragraph that was written for a record, with its score, from its `annotation`.

    >>> import json
    >>> attempt = {"text": "A red star.", "score": 7}
    >>> attempts_of(Record("7", annotation=json.dumps({"paragraph": {"attempts": [attempt]}})))
    [('A red star.', 7)]
    >>> attempts_of(Record("8"))
    []
    """
    try:
        attempts = provenance(record)["paragraph"]["attempts"]
        return [(attempt["text"], attempt["score"]) for attempt in attempts]
    except (KeyError, TypeError):  # not written, or another annotator's notes
        return []


@dataclass(frozen=True)
class Attempt:
    """One paragraph of an image: its score, and whether it is faultless (None: unreadable)."""

    score: int | None
    faultless: Verdict


def judged_attempts(records: Iterable[Record]) -> list[list[Attempt]]:
    """The attempts of every drawn scene that has any."""
    result = []
    for record in records:
        scene = scene_of(record)
        if scene is not None and (attempts := attempts_of(record)):
            result.append([_attempt(text, score, scene) for text, score in attempts])
    return result


def quality_after(records: Iterable[Record], k: int, threshold: int = 5) -> Proportion:
    """Faultless ones among the kept paragraphs, had there been at most `k` attempts.

    Args:
        records: of a finished run with as many attempts or more.
        k: most attempts.
        threshold: what scores this or less is written again. Above that of the run itself, attempts
            are missing.

    Returns:
        Of the images whose kept paragraph can be read.

    A first attempt with a wrong fact scores 5, the second is faultless:

    >>> from paragrain.sources.scenes import Thing
    >>> graph = Scene("mint", (Thing("star", "red", "large", "plain", 0),), look=0).to_json()
    >>> import json
    >>> attempts = [{"text": "A blue star.", "score": 5}, {"text": "A red star.", "score": 10}]
    >>> notes = json.dumps({"paragraph": {"attempts": attempts}})
    >>> record = Record("7", graph=graph, annotation=notes)
    >>> quality_after([record], 1), quality_after([record], 2)
    (Proportion(count=0, of=1), Proportion(count=1, of=1))
    """
    return _quality_after(judged_attempts(records), k, threshold)


def _quality_after(images: Iterable[list[Attempt]], k: int, threshold: int) -> Proportion:
    return _share([_kept(attempts, k, threshold).faultless for attempts in images], True)[0]


def _kept(attempts: list[Attempt], k: int, threshold: int) -> Attempt:
    """The first of the best among those that the loop would have written."""
    best = attempts[0]
    for attempt in attempts[1:k]:
        if _score(best) > threshold:
            break
        best = max(best, attempt, key=_score)
    return best


def _score(attempt: Attempt) -> int:
    return -1 if attempt.score is None else attempt.score


def _attempt(text: str, score: int | None, scene: Scene) -> Attempt:
    return Attempt(score, _all(verdicts(text, scene)))


def _all(found: list[Verdict]) -> Verdict:
    """Whether all of them are true; None if one cannot be read."""
    return None if None in found else all(found)


def _share(found: list[Verdict], value: bool) -> tuple[Proportion, int]:
    """`value` among those that can be read, and the number of the others."""
    unreadable = found.count(None)
    return Proportion(found.count(value), len(found) - unreadable), unreadable


# --- tables


def truth_tables(records: Iterable[Record], threshold: int = 5) -> list[Table]:
    """Everything that can be measured on truth: texts, and for judged paragraphs judge and loop.

    Args:
        records: of a collection of drawn scenes.
        threshold: the run's `min_score`.
    """
    records = list(records)
    images = judged_attempts(records)
    tables = [_texts_table(measure(records))]
    if images:
        tables += [_judge_table(images), _attempts_table(images, threshold)]
    return tables


def _texts_table(truth: Truth) -> Table:
    lines = [
        ("captions that are false", truth.false_captions, truth.unreadable_captions),
        ("hard negatives that are true", truth.true_negatives, truth.unreadable_negatives),
        ("sentences that are false", truth.false_sentences, truth.unreadable_sentences),
        ("faultless paragraphs", truth.faultless_paragraphs, truth.unreadable_paragraphs),
        ("images with everything right", truth.right_images, truth.unreadable_images),
    ]
    return Table(
        f"Texts of {truth.records - truth.not_judged} scenes ({truth.not_judged} of "
        f"{truth.records} records not judged)",
        ("text", "found", "of", "share (95 %)", "unreadable"),
        [(name, p.count, p.of, str(p), rest) for name, p, rest in lines],
    )


def _judge_table(images: list[list[Attempt]]) -> Table:
    attempts = [attempt for attempts in images for attempt in attempts]
    pairs = [(a.score, a.faultless) for a in attempts if a.faultless is not None]
    rows: list[tuple[str | int | float, ...]] = [
        (at.threshold, at.precision.of, str(at.precision), str(at.recall))
        for at in judge_quality(pairs)
    ]
    scored = sum(score is not None for score, _ in pairs)
    return Table(
        f"Judge: finding paragraphs with a wrong fact ({scored} of {len(attempts)} attempts are "
        "scored and readable)",
        ("score at most", "found", "precision (95 %)", "recall (95 %)"),
        rows,
    )


def _attempts_table(images: list[list[Attempt]], threshold: int) -> Table:
    most = max(3, *map(len, images))
    rows: list[tuple[str | int | float, ...]] = []
    for k in range(1, most + 1):
        quality = _quality_after(images, k, threshold)
        rows.append((k, quality.count, quality.of, str(quality)))
    return Table(
        f"Kept paragraphs by attempts (written again at {threshold} or less)",
        ("attempts at most", "faultless", "of", "share (95 %)"),
        rows,
    )
