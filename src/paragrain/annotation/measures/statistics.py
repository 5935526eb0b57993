"""How a collection's texts were made: by whom, of how many candidates, and what judges said."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paragrain.annotation.measures.lengths import share
from paragrain.collection import Record
from paragrain.tables import Cell, Table

SCORES = range(11)
"""The scores that a judge can give."""

_NAMED = 20

_Count = Annotated[int, Field(ge=0, le=10**6)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Made(_Strict):
    """What an annotation says of a list of texts; what is not counted here is not read."""

    model: str
    prompts: str
    requests: _Count


class _Candidate(_Strict):
    score: Annotated[int, Field(ge=0, le=10)] | None
    requests: _Count


class _Paragraph(_Strict):
    model: str
    prompts: str
    judge: str | None = None
    candidates: Annotated[list[_Candidate], Field(min_length=1)]
    kept: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _check(self) -> "_Paragraph":
        if self.kept > len(self.candidates):
            raise ValueError(f"keeps candidate {self.kept} of {len(self.candidates)}")
        return self


class _Annotation(BaseModel):
    captions: _Made | None = None
    negatives: _Made | None = None
    paragraph: _Paragraph | None = None


Made = tuple[str, str, str, str | None]
"""Kind of text, model, version of the prompts, and the judge, None where there was none."""


def mean(counts: Counter[Any]) -> float | None:
    """Mean of the numbers that were counted; None if there are none.

    >>> mean(Counter([4, 9, None]))
    6.5
    """
    numbers = {number: n for number, n in counts.items() if number is not None}
    return share(sum(number * n for number, n in numbers.items()), sum(numbers.values()))


@dataclass
class AnnotationStatistics:
    """What was made by whom, and what judging and writing again was good for.

    A paragraph is regenerated if there was more than one candidate. It gained if the kept one
    scored more than the first; that, and by how much, is known where both have a score.

    Attributes:
        records: all that were looked at, annotated or not.
        made: records by what was made.
        first: scores of the first candidates, None among them.
        kept: scores of the kept candidates, None among them.
        candidates: paragraphs by their number of candidates.
        gains: kept score less first of the regenerated paragraphs that have both.
        requests: for each kind, how often so many requests were needed for a list or paragraph.
        malformed: (id, reason) of annotations that cannot be read; they are in no other count.
    """

    records: int = 0
    made: Counter[Made] = field(default_factory=Counter)
    first: Counter[int | None] = field(default_factory=Counter)
    kept: Counter[int | None] = field(default_factory=Counter)
    candidates: Counter[int] = field(default_factory=Counter)
    gains: Counter[int] = field(default_factory=Counter)
    requests: dict[str, Counter[int]] = field(
        default_factory=lambda: {kind: Counter() for kind in _Annotation.model_fields}
    )
    malformed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def annotated(self) -> dict[str, int]:
        """Records that have each kind."""
        counts = Counter(dict.fromkeys(self.requests, 0))
        for (kind, *_), number in self.made.items():
            counts[kind] += number
        return dict(counts)

    @property
    def regenerated(self) -> int:
        """Paragraphs of more than one candidate."""
        return self.candidates.total() - self.candidates[1]

    @property
    def gained(self) -> int:
        """Regenerated paragraphs whose kept candidate scored more than the first."""
        return sum(n for gain, n in self.gains.items() if gain > 0)

    def _add(self, annotation: _Annotation) -> None:
        for kind, made in (("captions", annotation.captions), ("negatives", annotation.negatives)):
            if made:
                self.made[kind, made.model, made.prompts, None] += 1
                self.requests[kind][made.requests] += 1
        if (paragraph := annotation.paragraph) is None:
            return
        candidates = paragraph.candidates
        self.made["paragraph", paragraph.model, paragraph.prompts, paragraph.judge] += 1
        self.requests["paragraph"].update(candidate.requests for candidate in candidates)
        self.candidates[len(candidates)] += 1
        first, kept = candidates[0].score, candidates[paragraph.kept - 1].score
        self.first[first] += 1
        self.kept[kept] += 1
        if len(candidates) > 1 and first is not None and kept is not None:
            self.gains[kept - first] += 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("kind", "model", "prompts", "judge", "records")

        def scores(counts: Counter[int | None]) -> dict[str, Any]:
            listed = [counts[score] for score in SCORES]
            return {"counts": listed, "none": counts[None], "mean": mean(counts)}

        def plain(counts: Counter[int]) -> dict[str, int]:
            return {str(key): number for key, number in sorted(counts.items())}

        return {
            "records": self.records,
            "annotated": self.annotated,
            "made": [dict(zip(names, (*key, n), strict=True)) for key, n in self._by_kind()],
            "first_scores": scores(self.first),
            "kept_scores": scores(self.kept),
            "candidates": plain(self.candidates),
            "regenerated": self.regenerated,
            "share_regenerated": share(self.regenerated, self.candidates.total()),
            "compared": self.gains.total(),
            "gained": self.gained,
            "share_gained": share(self.gained, self.gains.total()),
            "mean_gain": mean(self.gains),
            "requests": {kind: plain(counts) for kind, counts in self.requests.items()},
            "malformed": [list(problem) for problem in self.malformed],
        }

    def _by_kind(self) -> list[tuple[Made, int]]:
        """What was made, kind by kind, the most frequent first."""
        order = list(self.requests)
        return sorted(
            self.made.items(),
            key=lambda item: (order.index(item[0][0]), -item[1], [p or "" for p in item[0]]),
        )

    def tables(self) -> list[Table]:
        """Who made what, what judging and writing again did, and what cannot be read."""

        def percent(part: float, whole: int) -> float | None:
            return share(100 * part, whole)

        made = [(*key, number) for key, number in self._by_kind()]
        judged = [
            ("paragraphs", self.candidates.total()),
            ("written again, %", percent(self.regenerated, self.candidates.total())),
            ("of these with both scores", self.gains.total()),
            ("of these gained, %", percent(self.gained, self.gains.total())),
            ("mean gain, points", mean(self.gains)),
            ("mean score of the first candidate", mean(self.first)),
            ("mean score of the kept candidate", mean(self.kept)),
        ]
        scores = [
            ("none" if score is None else str(score), self.first[score], self.kept[score])
            for score in (*SCORES, None)
        ]
        if not self.candidates:  # no paragraph was judged: no tables of zeros
            judged, scores = [], []
        requests: list[Sequence[Cell]] = []
        for kind, counts in self.requests.items():
            if number := counts.total():
                again = percent(number - counts[0] - counts[1], number)
                requests.append((kind, mean(counts), again, max(counts)))
        title = f"Annotations that cannot be read (the first {_NAMED:,} at most)"
        return [
            Table("Made by", ("texts", "model", "prompts", "judge", "records"), made),
            Table("Paragraphs, judged", ("", "all"), judged),
            Table("Scores", ("score", "first candidate", "kept candidate"), scores),
            Table("Candidates", ("candidates", "paragraphs"), sorted(self.candidates.items())),
            Table("Requests", ("texts", "mean", "more than one, %", "most"), requests),
            Table(title, ("record", "reason"), self.malformed[:_NAMED]),
        ]


def annotation_statistics(records: Iterable[Record]) -> AnnotationStatistics:
    """Count what the annotations of records say; one that cannot be read is named, never raised.

    Args:
        records: such as `collection.records(fields=["annotation"])`; streamed.

    >>> made = '"model": "m", "prompts": "1"'
    >>> written = '[{"score": 4, "requests": 1}, {"score": 8, "requests": 2}]'
    >>> text = f'{{"paragraph": {{{made}, "candidates": {written}, "kept": 2}}}}'
    >>> found = annotation_statistics([Record("a", annotation=text), Record("b", annotation="{")])
    >>> found.annotated["paragraph"], found.regenerated, mean(found.gains)
    (1, 1, 4.0)
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
