"""Which claims hold in a study: a verdict from differences, intervals and nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paragrain.evaluation.query_ranks import DIRECTIONS
from paragrain.pages import Block, Heading, Text
from paragrain.stats import Estimate
from paragrain.study.plan import DIRECTION_TITLES, Study
from paragrain.study.schema import Above, Claim, Rise, Share
from paragrain.study.scores import Column, StudyScores, change_within
from paragrain.tables import Table


@dataclass(frozen=True)
class Evidence:
    """One comparison.

    Attributes:
        what: what is compared, in words.
        difference: in percentage points, or in parts of a gain for a share.
        holds: True or False where the interval leaves no doubt, else None.
    """

    what: str
    difference: Estimate
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


def verdicts(study: Study, scores: StudyScores) -> list[Verdict]:
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


def _evidence(study: Study, scores: StudyScores, claim: Claim) -> Iterator[Evidence]:
    found: Iterator[tuple[str, Estimate]] = iter(())
    if claim.above:
        found = _above(study, scores, claim.above)
    elif claim.rise:
        found = _rise(study, scores, claim.rise)
    elif claim.share:
        found = _share(study, scores, claim.share)
    for what, difference in found:
        yield Evidence(what, difference, _holds(difference, claim))


def _holds(difference: Estimate, claim: Claim) -> bool | None:
    """Whether zero (or the least share) is left out by the interval, and on which side."""
    least = claim.share.least if claim.share else 0.0
    up, down = difference.low > least, difference.high < least
    if claim.rise and claim.below:  # "no more" is to be shown, not only not refuted
        up, down = difference.high < claim.rise.margin, up
    elif claim.below:
        up, down = down, up
    return True if up else False if down else None


def _above(study: Study, scores: StudyScores, spec: Above) -> Iterator[tuple[str, Estimate]]:
    for second in spec.seconds:
        for benchmark in spec.benchmarks:
            for direction in DIRECTIONS:
                column = Column(benchmark, direction)
                difference = scores.difference(spec.first, second, column)
                if difference is not None:
                    names = f"{study.title(second)} less {study.title(spec.first)}"
                    where = f"{study.benchmark_title(benchmark)}, {DIRECTION_TITLES[direction]}"
                    yield f"{names}, {where}", difference


def _rise(study: Study, scores: StudyScores, spec: Rise) -> Iterator[tuple[str, Estimate]]:
    for name in spec.models:
        lines = scores.curves.get(spec.curve, {}).get(name, {})
        for direction in DIRECTIONS:
            line = lines.get(direction, {})
            if spec.low in line and spec.high in line:
                what = f"{study.title(name)} at {spec.high} less {spec.low} tokens"
                difference = change_within(line[spec.low], line[spec.high])
                yield f"{what}, {DIRECTION_TITLES[direction]}", difference


def _share(study: Study, scores: StudyScores, spec: Share) -> Iterator[tuple[str, Estimate]]:
    for benchmark in spec.benchmarks:
        for direction in DIRECTIONS:
            column = Column(benchmark, direction)
            measured = [scores.recalls.get(name, {}) for name in (spec.base, spec.part, spec.whole)]
            if not all(column in own for own in measured):
                continue
            base, part, whole = (own[column] for own in measured)
            if not (gain := whole - base).significant or gain.value < 0:
                continue  # no gain of which a part could be had
            assert base.draws is not None
            assert part.draws is not None
            assert whole.draws is not None
            with np.errstate(divide="ignore", invalid="ignore"):
                draws = (part.draws - base.draws) / (whole.draws - base.draws)
            value = (part.value - base.value) / (whole.value - base.value)
            what = (
                f"share of the gain, {study.benchmark_title(benchmark)}, "
                f"{DIRECTION_TITLES[direction]}"
            )
            yield what, Estimate.difference(value, draws[np.isfinite(draws)])


# --- In a report ------------------------------------------------------------------------------


def claims_section(verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """What holds here of what the study's file claims, and why that may be."""
    if not verdicts:
        return
    yield Heading("Which claims hold here?")
    yield Table(
        "A claim holds if every comparison shows it beyond its 95 % interval; it holds in part if "
        "some do and none shows the contrary; it is open if none leaves zero out; it does not hold "
        "if some show the contrary and none shows it; it is mixed if some do and some do not.",
        ["claim", "here", "comparisons"],
        [[verdict.claim.text, verdict.word, verdict.count] for verdict in verdicts],
        words=True,
    )
    explained = [verdict for verdict in verdicts if verdict.claim.why]
    if explained:
        yield Heading("Why that may be", 3, folded=True)
    for verdict in explained:
        yield Text(f"{verdict.claim.text} {verdict.word.capitalize()}. {verdict.claim.why}")


def evidence_section(verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """The comparisons that each verdict rests on."""
    if not verdicts:
        return
    yield Heading("The evidence, claim by claim")
    for verdict in verdicts:
        yield Heading(f"{verdict.claim.text} {verdict.word.capitalize()}.", 3, folded=True)
        if not verdict.evidence:
            yield Text("None of its comparisons could be made: its cells are not done.")
            continue
        share = verdict.claim.share is not None
        yield Table(
            "Parts of a gain in Recall@1, means over the seeds."
            if share
            else "Differences of Recall@1 in percentage points, means over the seeds.",
            ["comparison", "share (95 % interval)" if share else "difference, points", "shows it"],
            [[e.what, e.difference, _SHOWS[e.holds]] for e in verdict.evidence],
            {1: ".2f" if share else "+.1f"},
        )


_SHOWS = {True: "yes", False: "the contrary", None: "open"}
