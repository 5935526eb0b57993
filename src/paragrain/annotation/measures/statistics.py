"""How a collection's texts were made: by whom, in how many attempts, and what judges said."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paragrain.annotation.measures.lengths import Table, percent, share
from paragrain.collection import Record

SCORES = range(11)
"""The scores that a judge can give."""

_NAMED = 20

_Count = Annotated[int, Field(ge=0, le=10**6)]


class _Made(BaseModel):
    """What an annotation says of a list of texts; what is not counted here is not read."""

    model_config = ConfigDict(strict=True)

    model: str
    prompts: str
    tries: _Count


class _Attempt(BaseModel):
    model_config = ConfigDict(strict=True)

    score: Annotated[int, Field(ge=0, le=10)] | None
    tries: _Count


class _Paragraph(BaseModel):
    model_config = ConfigDict(strict=True)

    model: str
    prompts: str
    judge: str | None = None
    attempts: Annotated[list[_Attempt], Field(min_length=1)]
    kept: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _check(self) -> "_Paragraph":
        if self.kept > len(self.attempts):
            raise ValueError(f"keeps attempt {self.kept} of {len(self.attempts)}")
        return self


class _Annotation(BaseModel):
    captions: _Made | None = None
    negatives: _Made | None = None
    paragraph: _Paragraph | None = None


@dataclass
class Scores:
    """A histogram of scores.

    Attributes:
        counts: how often each of 0 to 10 was given.
        none: paragraphs without a score.

    >>> scores = Scores()
    >>> for score in (4, 9, None):
    ...     scores.add(score)
    >>> scores.mean, scores.none
    (6.5, 1)
    """

    counts: list[int] = field(default_factory=lambda: [0] * len(SCORES))
    none: int = 0

    def add(self, score: int | None) -> None:
        """Count one score from 0 to 10, or none."""
        if score is None:
            self.none += 1
        else:
            self.counts[score] += 1

    @property
    def mean(self) -> float | None:
        """Mean of the scores that were given; None if none was."""
        return share(sum(s * n for s, n in enumerate(self.counts)), sum(self.counts))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"counts": list(self.counts), "none": self.none, "mean": self.mean}


@dataclass
class AnnotationStatistics:
    """What was made by whom, and what judging and writing again was good for.

    A paragraph is regenerated if there was more than one attempt. It gained if the kept attempt
    scored more than the first; that, and by how much, is known where both have a score.

    Attributes:
        records: all that were looked at, annotated or not.
        made: records by kind, model, version of the prompts and judge; the judge is None where
            there was none.
        first: scores of the first attempts.
        kept: scores of the kept attempts.
        attempts: paragraphs by their number of attempts.
        regenerated: paragraphs of more than one attempt.
        compared: those of them in which the first and the kept attempt have a score.
        gained: those of the compared that gained.
        gain: sum over the compared of the kept score less the first.
        tries: for each kind, how often so many tries were needed for one list or paragraph.
        malformed: (id, reason) of annotations that cannot be read; they are in no other count.
    """

    records: int = 0
    made: Counter[tuple[str, str, str, str | None]] = field(default_factory=Counter)
    first: Scores = field(default_factory=Scores)
    kept: Scores = field(default_factory=Scores)
    attempts: Counter[int] = field(default_factory=Counter)
    regenerated: int = 0
    compared: int = 0
    gained: int = 0
    gain: int = 0
    tries: dict[str, Counter[int]] = field(
        default_factory=lambda: {kind: Counter() for kind in _Annotation.model_fields}
    )
    malformed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def annotated(self) -> dict[str, int]:
        """Records that have each kind."""
        counts = Counter(dict.fromkeys(self.tries, 0))
        for (kind, *_), number in self.made.items():
            counts[kind] += number
        return dict(counts)

    @property
    def share_regenerated(self) -> float | None:
        """Share from 0 to 1 of the paragraphs that were written more than once."""
        return share(self.regenerated, self.attempts.total())

    @property
    def share_gained(self) -> float | None:
        """Share from 0 to 1 of the compared paragraphs that gained."""
        return share(self.gained, self.compared)

    @property
    def mean_gain(self) -> float | None:
        """Points that the compared paragraphs gained on average."""
        return share(self.gain, self.compared)

    def _add(self, annotation: _Annotation) -> None:
        for kind, made in (("captions", annotation.captions), ("negatives", annotation.negatives)):
            if made:
                self.made[kind, made.model, made.prompts, None] += 1
                self.tries[kind][made.tries] += 1
        if paragraph := annotation.paragraph:
            self._add_paragraph(paragraph)

    def _add_paragraph(self, paragraph: _Paragraph) -> None:
        self.made["paragraph", paragraph.model, paragraph.prompts, paragraph.judge] += 1
        self.tries["paragraph"].update(attempt.tries for attempt in paragraph.attempts)
        self.attempts[len(paragraph.attempts)] += 1
        first, kept = paragraph.attempts[0].score, paragraph.attempts[paragraph.kept - 1].score
        self.first.add(first)
        self.kept.add(kept)
        if len(paragraph.attempts) > 1:
            self.regenerated += 1
            if first is not None and kept is not None:
                self.compared += 1
                self.gained += kept > first
                self.gain += kept - first

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("kind", "model", "prompts", "judge", "records")
        return {
            "records": self.records,
            "annotated": self.annotated,
            "made": [dict(zip(names, (*key, n), strict=True)) for key, n in self._by_kind()],
            "first_scores": self.first.as_dict(),
            "kept_scores": self.kept.as_dict(),
            "attempts": _with_text_keys(self.attempts),
            "regenerated": self.regenerated,
            "share_regenerated": self.share_regenerated,
            "compared": self.compared,
            "gained": self.gained,
            "share_gained": self.share_gained,
            "mean_gain": self.mean_gain,
            "tries": {kind: _with_text_keys(counts) for kind, counts in self.tries.items()},
            "malformed": [list(problem) for problem in self.malformed],
        }

    def _by_kind(self) -> list[tuple[tuple[str, str, str, str | None], int]]:
        """What was made, kind by kind, the most frequent first."""
        order = list(self.tries)
        return sorted(
            self.made.items(),
            key=lambda item: (order.index(item[0][0]), -item[1], [p or "" for p in item[0]]),
        )

    def tables(self) -> list[Table]:
        """Who made what, what judging and writing again did, and what cannot be read."""
        made: list[tuple[str | int | float, ...]] = [
            (kind, model, prompts, judge or "-", number)
            for (kind, model, prompts, judge), number in self._by_kind()
        ]
        means = [_or_dash(mean) for mean in (self.first.mean, self.kept.mean, self.mean_gain)]
        judged: list[tuple[str | int | float, ...]] = [
            ("paragraphs", self.attempts.total()),
            ("written again, %", percent(self.share_regenerated)),
            ("of these with both scores", self.compared),
            ("of these gained, %", percent(self.share_gained)),
            ("mean gain, points", means[2]),
            ("mean score of the first attempt", means[0]),
            ("mean score of the kept attempt", means[1]),
        ]
        names = [*(str(score) for score in SCORES), "none"]
        columns = ([*scores.counts, scores.none] for scores in (self.first, self.kept))
        scores = [tuple(row) for row in zip(names, *columns, strict=True)]
        return [
            Table("Made by", ("texts", "model", "prompts", "judge", "records"), made),
            Table("Paragraphs, judged", ("", "all"), judged),
            Table("Scores", ("score", "first attempt", "kept attempt"), scores),
            Table("Attempts", ("attempts", "paragraphs"), sorted(self.attempts.items())),
            Table("Tries", ("texts", "mean", "more than one, %", "most"), self._tries()),
            Table(
                f"Annotations that cannot be read (the first {_NAMED:,} at most)",
                ("record", "reason"),
                list(self.malformed[:_NAMED]),
            ),
        ]

    def _tries(self) -> list[tuple[str | int | float, ...]]:
        rows: list[tuple[str | int | float, ...]] = []
        for kind, counts in self.tries.items():
            if number := counts.total():
                mean = sum(tries * n for tries, n in counts.items()) / number
                again = sum(n for tries, n in counts.items() if tries > 1)
                rows.append((kind, mean, percent(share(again, number)), max(counts)))
        return rows


def annotation_statistics(records: Iterable[Record]) -> AnnotationStatistics:
    """Count what the annotations of records say; one that cannot be read is named, never raised.

    Args:
        records: such as `collection.records(fields=["annotation"])`; streamed.

    >>> made = '"model": "m", "prompts": "1"'
    >>> attempts = '[{"score": 4, "tries": 1}, {"score": 8, "tries": 2}]'
    >>> text = f'{{"paragraph": {{{made}, "attempts": {attempts}, "kept": 2}}}}'
    >>> found = annotation_statistics([Record("a", annotation=text), Record("b", annotation="{")])
    >>> found.annotated["paragraph"], found.share_regenerated, found.mean_gain
    (1, 1.0, 4.0)
    >>> [id for id, reason in found.malformed]
    ['b']
    """
    statistics = AnnotationStatistics()
    for record in records:
        statistics.records += 1
        if record.annotation is None:
            continue
        try:
            annotation = _Annotation.model_validate(json.loads(record.annotation))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            reason = f"{where}: {first['msg']}" if where else first["msg"]
            statistics.malformed.append((record.id, reason))
        except (ValueError, RecursionError) as error:
            statistics.malformed.append((record.id, f"no JSON ({error})"))
        else:
            statistics._add(annotation)
    return statistics


def _or_dash(value: float | None) -> float | str:
    return "-" if value is None else value


def _with_text_keys(counts: Counter[int]) -> dict[str, int]:
    return {str(key): number for key, number in sorted(counts.items())}
