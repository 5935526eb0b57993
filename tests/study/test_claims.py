"""Verdicts from differences that were set by hand, one for each word."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from paragrain.pages import markdown
from paragrain.stats import Estimate
from paragrain.study.claims import Verdict, claims_section, verdicts
from paragrain.study.plan import Study
from paragrain.study.scores import Column, StudyScores

I2T, T2I = "image_to_text", "text_to_image"
MakeStudy = Callable[..., Study]
ABOVE = {"first": "BLIP", "seconds": ["c1", "c4"], "benchmarks": ["long"]}


def known(mean: float, reach: float, draws: np.ndarray) -> Estimate:
    ends = (mean - reach, mean + reach)
    return Estimate(mean, *ends, seeds=(mean,), draws=draws, query_draws=draws)


def sure(mean: float) -> Estimate:
    """A recall that is known to a tenth of a point."""
    draws = mean + np.random.default_rng(int(10 * mean)).uniform(-0.1, 0.1, 1000)
    return known(mean, 0.1, draws)


def vague(mean: float) -> Estimate:
    draws = mean + np.random.default_rng(int(10 * mean)).uniform(-40, 40, 1000)
    return known(mean, 40, draws)


def judge(
    study: Study,
    models: Mapping[str, tuple[Estimate, Estimate]],
    curves: Mapping[str, Mapping[int, Estimate]] | None = None,
) -> Verdict:
    """The verdict on the study's claim, from R@1 on `long` in both directions, and from curves."""
    recalls = {
        name: {Column("long", I2T): i2t, Column("long", T2I): t2i}
        for name, (i2t, t2i) in models.items()
    }
    lines = {name: {I2T: line, T2I: line} for name, line in (curves or {}).items()}
    (verdict,) = verdicts(study, StudyScores(recalls, {"cut": lines}, []))
    return verdict


def claim(make: MakeStudy, **parts: Any) -> Study:
    return make({"claims": [{"text": "A claim.", **parts}]})


@pytest.mark.parametrize(
    ("c1", "c4", "word", "below"),
    [
        ((60, 60), (70, 70), "holds", "does not hold"),
        ((60, 60), (70, None), "holds in part", "does not hold"),
        ((60, 60), (70, 30), "mixed", "mixed"),
        ((None, None), (None, None), "open", "open"),
        ((30, None), (20, 30), "does not hold", "holds in part"),
        ((30, 30), (20, 20), "does not hold", "holds"),
    ],
)
def test_the_word_for_models_above_another(
    make_study: MakeStudy, c1: Any, c4: Any, word: str, below: str
) -> None:
    def recall_of(recall: float | None) -> Estimate:
        return vague(50) if recall is None else sure(recall)

    models = {
        "BLIP": (sure(50), sure(50)),
        "c1": (recall_of(c1[0]), recall_of(c1[1])),
        "c4": (recall_of(c4[0]), recall_of(c4[1])),
    }
    verdict = judge(claim(make_study, above=ABOVE), models)
    assert verdict.word == word
    assert len(verdict.evidence) == 4
    assert judge(claim(make_study, above=ABOVE, below=True), models).word == below


def test_evidence_says_what_was_compared(make_study: MakeStudy) -> None:
    study = make_study(
        {"claims": [{"text": "A claim.", "above": ABOVE}], "benchmarks/long/title": "Long text"}
    )
    models = {name: (sure(r), sure(r)) for name, r in (("BLIP", 50), ("c1", 40), ("c4", 62))}
    verdict = judge(study, models)
    assert [(e.what, round(e.difference.value, 6), e.holds) for e in verdict.evidence] == [
        ("C1 less BLIP, Long text, image to text", -10, False),
        ("C1 less BLIP, Long text, text to image", -10, False),
        ("C4 less BLIP, Long text, image to text", 12, True),
        ("C4 less BLIP, Long text, text to image", 12, True),
    ]


def test_how_many_comparisons_say_what(make_study: MakeStudy) -> None:
    study = claim(make_study, above=ABOVE)
    models = {"BLIP": (sure(50), sure(50)), "c1": (sure(60), vague(50)), "c4": (sure(70), sure(30))}
    assert judge(study, models).count == "2 for it, 1 against, 1 open"
    assert judge(study, {**models, "c1": models["c4"]}).count == "2 for it, 2 against"
    assert judge(study, {"BLIP": (sure(50), sure(50))}).count == ""


def test_the_report_says_why_that_may_be(make_study: MakeStudy) -> None:
    models = {"BLIP": (sure(50), sure(50)), "c1": (sure(60), sure(60)), "c4": (sure(70), sure(70))}
    explained = judge(claim(make_study, above=ABOVE, why="Since it is drawn so."), models)
    plain = judge(claim(make_study, above=ABOVE), models)
    text = markdown("Title", list(claims_section([explained, plain])), "plots")
    assert "| A claim. | holds | 4 for it |" in text
    assert text.count("A claim. Holds. Since it is drawn so.") == 1
    assert "Why" not in markdown("Title", list(claims_section([plain])), "plots")


def test_what_was_not_measured_is_not_judged(make_study: MakeStudy) -> None:
    study = claim(make_study, above=ABOVE)
    verdict = judge(study, {"BLIP": (sure(50), sure(50))})
    assert (verdict.word, verdict.evidence) == ("not measured", [])


def test_a_claim_of_which_a_part_was_measured_holds_at_most_in_part(make_study: MakeStudy) -> None:
    study = claim(make_study, above=ABOVE)
    models = {"BLIP": (sure(50), sure(50)), "c1": (sure(60), sure(60))}
    assert judge(study, models).word == "holds in part"


RISE = {"curve": "cut", "models": ["c1", "c4"], "low": 10, "high": 40}


@pytest.mark.parametrize(
    ("c1", "c4", "word", "below"),
    [
        ((30, 40), (30, 50), "holds", "does not hold"),
        ((30, 40), (50, 30), "mixed", "mixed"),
        ((50, 30), (50, 20), "does not hold", "holds"),
    ],
)
def test_a_rise_with_the_budget(
    make_study: MakeStudy, c1: Any, c4: Any, word: str, below: str
) -> None:
    lines = {n: {10: sure(a), 40: sure(b)} for n, (a, b) in (("c1", c1), ("c4", c4))}
    verdict = judge(claim(make_study, rise=RISE), {}, lines)
    assert verdict.word == word
    assert verdict.evidence[0].what == "C1 at 40 less 10 tokens, image to text"
    assert verdict.evidence[0].difference.value == pytest.approx(c1[1] - c1[0])
    assert judge(claim(make_study, rise=RISE, below=True), {}, lines).word == below


def test_no_rise_is_shown_only_below_its_margin(make_study: MakeStudy) -> None:
    """A rise of one point is none to speak of; where three are possible, nothing is shown."""
    none = claim(make_study, rise={**RISE, "models": ["c1"]}, below=True)
    for made, word in ((sure, "holds"), (vague, "open")):
        lines = {"c1": {10: made(30), 40: made(31)}}
        assert judge(none, {}, lines).word == word


def test_a_rise_needs_both_ends(make_study: MakeStudy) -> None:
    verdict = judge(claim(make_study, rise=RISE), {}, {"c1": {10: sure(30)}})
    assert verdict.word == "not measured"


SHARE = {"base": "BLIP", "part": "c1", "whole": "c4", "benchmarks": ["long"], "least": 0.5}


@pytest.mark.parametrize(
    ("part", "value", "word"),
    [(48, 0.9, "holds"), (43, 0.65, "holds"), (33, 0.15, "does not hold")],
)
def test_the_share_of_a_gain(make_study: MakeStudy, part: int, value: float, word: str) -> None:
    models = {n: (sure(r), sure(r)) for n, r in (("BLIP", 30), ("c1", part), ("c4", 50))}
    verdict = judge(claim(make_study, share=SHARE), models)
    assert verdict.word == word
    assert verdict.evidence[0].difference.value == pytest.approx(value)
    assert verdict.evidence[0].what == "share of the gain, long, image to text"


def test_a_share_about_the_least_is_open(make_study: MakeStudy) -> None:
    models = {n: (sure(r), sure(r)) for n, r in (("BLIP", 30), ("c1", 40), ("c4", 50))}
    assert judge(claim(make_study, share=SHARE), models).word == "open"


@pytest.mark.parametrize("whole", [sure(30.12), sure(20), vague(45)])
def test_no_certain_gain_has_no_share(make_study: MakeStudy, whole: Estimate) -> None:
    models = {"BLIP": (sure(30), sure(30)), "c1": (sure(40), sure(40)), "c4": (whole, whole)}
    assert judge(claim(make_study, share=SHARE), models).word == "not measured"
