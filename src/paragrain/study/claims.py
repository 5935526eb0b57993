"""Which claims hold in a study: a verdict from differences, intervals and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paragrain.evaluation.stored import DIRECTIONS
from paragrain.study.file import Above, Claim, Rise, Share
from paragrain.study.plan import Study
from paragrain.study.tables import Column, Difference, Scores

DIRECTION = {"image_to_text": "image to text", "text_to_image": "text to image"}


@dataclass(frozen=True)
class Evidence:
    """One comparison.

    Attributes:
        what: what is compared, in words.
        difference: in percentage points, or in parts of a gain for a share.
        holds: True or False where the interval leaves no doubt, else None.
    """

    what: str
    difference: Difference
    holds: bool | None


@dataclass(frozen=True)
class Verdict:
    """A claim and what the study says of it.

    Attributes:
        claim: of the study file.
        evidence: each comparison that could be made.
        whole: whether that is each comparison that the claim is about.
    """

    claim: Claim
    evidence: list[Evidence]
    whole: bool = True

    @property
    def word(self) -> str:
        """Holds, holds in part, is open, does not hold, or was not measured.

        It holds if every comparison was made and shows it beyond its interval; in part, if some do
        and none shows the contrary; it does not hold if some comparison shows the contrary and none
        shows it; and where some do and some show the contrary, it is mixed.
        """
        found = [evidence.holds for evidence in self.evidence]
        if not found:
            return "not measured"
        if all(found) and self.whole:
            return "holds"
        if True in found:
            return "mixed" if False in found else "holds in part"
        return "does not hold" if False in found else "open"

    @property
    def count(self) -> str:
        """How many comparisons say what, as "7 for it, 1 against, 2 open"."""
        found = [evidence.holds for evidence in self.evidence]
        parts = [
            f"{found.count(holds)} {what}"
            for holds, what in ((True, "for it"), (False, "against"), (None, "open"))
            if holds in found
        ]
        return ", ".join(parts)


def verdicts(study: Study, scores: Scores) -> list[Verdict]:
    """A verdict for every claim of the study, in its order."""
    found = []
    for claim in study.file.claims:
        evidence = list(_evidence(study, scores, claim))
        found.append(Verdict(claim, evidence, len(evidence) == _comparisons(claim)))
    return found


def _comparisons(claim: Claim) -> int:
    """How many comparisons a claim is about."""
    pairs = 0
    if claim.above:
        pairs = len(claim.above.seconds) * len(claim.above.benchmarks)
    elif claim.rise:
        pairs = len(claim.rise.models)
    elif claim.share:
        pairs = len(claim.share.benchmarks)
    return pairs * len(DIRECTIONS)


def _evidence(study: Study, scores: Scores, claim: Claim) -> Iterator[Evidence]:
    found: Iterator[tuple[str, Difference]] = iter(())
    if claim.above:
        found = _above(study, scores, claim.above)
    elif claim.rise:
        found = _rise(study, scores, claim.rise)
    elif claim.share:
        found = _share(study, scores, claim.share)
    for what, difference in found:
        yield Evidence(what, difference, _holds(difference, claim))


def _holds(difference: Difference, claim: Claim) -> bool | None:
    """Whether zero (or the least share) is left out by the interval, and on which side."""
    least = claim.share.least if claim.share else 0.0
    up, down = difference.low > least, difference.high < least
    if claim.rise and claim.below:  # "no more" is to be shown, not only not refuted
        up, down = difference.high < claim.rise.margin, up
    elif claim.below:
        up, down = down, up
    return True if up else False if down else None


def _above(study: Study, scores: Scores, spec: Above) -> Iterator[tuple[str, Difference]]:
    for second in spec.seconds:
        for benchmark in spec.benchmarks:
            for direction in DIRECTIONS:
                column = Column(benchmark, direction)
                difference = scores.difference(spec.first, second, column)
                if difference is not None:
                    names = f"{study.title(second)} less {study.title(spec.first)}"
                    yield f"{names}, {_title(study, benchmark)}, {DIRECTION[direction]}", difference


def _rise(study: Study, scores: Scores, spec: Rise) -> Iterator[tuple[str, Difference]]:
    for name in spec.models:
        lines = scores.curves.get(spec.curve, {}).get(name, {})
        for direction in DIRECTIONS:
            line = lines.get(direction, {})
            if spec.low in line and spec.high in line:
                what = f"{study.title(name)} at {spec.high} less {spec.low} tokens"
                difference = Difference.within(line[spec.low], line[spec.high])
                yield f"{what}, {DIRECTION[direction]}", difference


def _share(study: Study, scores: Scores, spec: Share) -> Iterator[tuple[str, Difference]]:
    for benchmark in spec.benchmarks:
        for direction in DIRECTIONS:
            column = Column(benchmark, direction)
            three = [
                scores.recalls.get(name, {}).get(column)
                for name in (spec.base, spec.part, spec.whole)
            ]
            if any(estimate is None for estimate in three):
                continue
            base, part, whole = (estimate for estimate in three if estimate is not None)
            if not (gain := Difference.of(base, whole)).significant or gain.value < 0:
                continue  # no gain of which a part could be had
            with np.errstate(divide="ignore", invalid="ignore"):
                draws = (part.draws - base.draws) / (whole.draws - base.draws)
            value = (part.mean - base.mean) / (whole.mean - base.mean)
            what = f"share of the gain, {_title(study, benchmark)}, {DIRECTION[direction]}"
            yield what, Difference.from_draws(value, draws[np.isfinite(draws)])


def _title(study: Study, benchmark: str) -> str:
    return study.file.benchmarks[benchmark].title or benchmark
