"""Intervals against plain loops and against what they promise; the sign test against fractions."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.errors import UsageError
from paragrain.retrieval import exact_ranks, hit_probability, recall_at
from paragrain.stats import (
    SignTest,
    Units,
    _draws,
    interval,
    resample,
    sign_p,
    two_sided,
)


def columns(seed: int, images: int = 12, each: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Image-to-text and text-to-image hits of images with several texts each, ties among them."""
    rng = np.random.default_rng(seed)
    choices = np.array([0.0, 1.0, 0.25])
    return [
        (rng.choice(choices, images), np.arange(images)),
        (rng.choice(choices, images * each), np.repeat(np.arange(images), each)),
    ]


def in_a_loop(
    hits: np.ndarray, unit: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """The mean over the queries of as many units as there are, drawn one by one."""
    units = np.unique(unit)
    return np.array(
        [
            np.concatenate([hits[unit == drawn] for drawn in rng.choice(units, len(units))]).mean()
            for _ in range(resamples)
        ]
    )


def test_a_draw_is_the_mean_over_the_queries_of_the_units_in_it() -> None:
    """The same draws, once as weights and once laid out query by query."""
    [(hits, unit)] = columns(0)[1:]
    units = Units.of([(hits, unit)])
    both = np.hstack([units.sums, units.counts])
    _, first, members = np.unique(both, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    kinds, members = both[first[order]], members[order]
    drawn = _draws(np.random.default_rng(5), members, 50)
    laid_out = []
    for row in drawn.astype(int):
        taken = np.repeat(kinds, row, axis=0)  # a row for each unit in the draw
        assert len(taken) == len(units)
        laid_out.append(taken[:, 0].sum() / taken[:, 1].sum())
    assert resample(units, resamples=50, seed=5)[:, 0] == pytest.approx(laid_out, abs=1e-12)


def test_the_distribution_is_that_of_a_plain_loop() -> None:
    both = columns(1)
    draws = resample(Units.of(both), resamples=20_000, seed=0)
    for place, (hits, unit) in enumerate(both):
        loop = in_a_loop(hits, unit, 5000, np.random.default_rng(place))
        assert draws[:, place].mean() == pytest.approx(loop.mean(), abs=4 * loop.std() / 5000**0.5)
        assert draws[:, place].std() == pytest.approx(loop.std(), rel=0.05)
        assert interval(draws)[:, place] == pytest.approx(
            np.percentile(loop, [2.5, 97.5]), abs=0.04
        )


def test_few_kinds_and_many_are_drawn_from_one_distribution() -> None:
    """Multinomial for few kinds, counting for many: the same mean and variance of the weights."""
    members = np.full(4, 25)  # 4 kinds, 100 units: one draw of the multinomial
    few = _draws(np.random.default_rng(0), members, 4000)
    many = _draws(np.random.default_rng(0), np.ones(100, int), 4000).reshape(4000, 4, 25).sum(2)
    for drawn in (few, many):
        assert (drawn.sum(1) == 100).all()
        assert drawn.mean(0) == pytest.approx([25] * 4, abs=0.35)
        assert drawn.var(0) == pytest.approx([100 * 0.25 * 0.75] * 4, rel=0.12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_order_of_columns_changes_no_draw(seed: int, many: bool) -> None:
    both = columns(seed, images=400 if many else 12, each=1)  # few kinds among many, or not
    one, other = (resample(Units.of(c), resamples=50, seed=3) for c in (both, both[::-1]))
    assert one == pytest.approx(other[:, ::-1], abs=1e-12)


def test_a_seed_gives_the_same_draws_and_another_others() -> None:
    units = Units.of(columns(2))
    assert np.array_equal(resample(units, seed=1), resample(units, seed=1))
    assert not np.array_equal(resample(units, seed=1), resample(units, seed=2))


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """A population whose images have five texts that are hits together: 400 benchmarks of it.

    The share of intervals with the truth in them is binomial about 0.95, and the percentile
    interval of 150 units is known to fall short by a point or so: 0.95 less 4 deviations.
    Resampling the texts one by one, as if they were independent, is far off.
    """
    truth, images, each, trials = 0.4, 150, 5, 400
    rng = np.random.default_rng(7)
    covered = np.zeros(2)
    for trial in range(trials):
        image_hits = (rng.random(images) < truth).astype(float)
        hits = np.repeat(image_hits, each)
        for place, unit in enumerate((np.repeat(np.arange(images), each), np.arange(len(hits)))):
            draws = resample(Units.of([(hits, unit)]), resamples=400, seed=trial)
            low, high = interval(draws)[:, 0]
            covered[place] += low <= truth <= high
    tolerance = 4 * (0.95 * 0.05 / trials) ** 0.5
    assert covered[0] / trials == pytest.approx(0.95, abs=tolerance)
    assert covered[1] / trials < 0.75


def test_of_two_equal_models_one_in_twenty_comparisons_finds_a_difference() -> None:
    rng = np.random.default_rng(11)
    trials, found = 300, 0
    for trial in range(trials):
        hits = (rng.random((2, 120)) < 0.5).astype(float)
        units = Units.of([(side, np.arange(120)) for side in hits])
        draws = resample(units, resamples=400, seed=trial)
        difference = draws[:, 1] - draws[:, 0]
        p = two_sided(difference)
        low, high = interval(difference[:, None])[:, 0]
        if not low <= 0 <= high:
            assert p <= 0.06  # interval and p agree but for the rounding of a percentile
        found += p < 0.05
    assert found / trials == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / trials) ** 0.5)


def test_differences_are_paired() -> None:
    """Two models that agree on nearly all queries: each is uncertain, their difference is not."""
    rng = np.random.default_rng(3)
    first = (rng.random(500) < 0.5).astype(float)
    second = first.copy()
    second[np.flatnonzero(first == 0)[:10]] = 1
    draws = resample(Units.of([(side, np.arange(500)) for side in (first, second)]))
    assert draws.std(0) == pytest.approx([0.0224, 0.0224], rel=0.1)
    assert (draws[:, 1] - draws[:, 0]).std() == pytest.approx((0.02 * 0.98 / 500) ** 0.5, rel=0.1)


def test_ties_enter_by_their_probability() -> None:
    collapsed = np.tile(np.eye(1, 8, dtype=np.float32), (20, 1))
    ranks = exact_ranks(collapsed, collapsed, np.arange(20)).strict.text_to_image
    units = Units.of([(hit_probability(ranks, 1), np.arange(20))])
    assert 100 * units.means[0] == pytest.approx(recall_at(ranks, 1)) == pytest.approx(5.0)
    # Every query hits one time in twenty: no draw of queries differs from another.
    assert interval(resample(units))[:, 0] == pytest.approx([0.05, 0.05])


def test_a_draw_without_a_query_of_a_column_is_left_out_of_its_interval() -> None:
    hits = [(np.array([1.0, 0.0]), np.array([0, 1])), (np.array([1.0]), np.array([0]))]
    draws = resample(Units.of(hits), resamples=200)
    assert np.isnan(draws[:, 1]).any()
    assert interval(draws)[:, 1].tolist() == [1, 1]


def test_there_must_be_a_resample() -> None:
    with pytest.raises(UsageError, match="at least one resample, not 0"):
        resample(Units.of(columns(0)), resamples=0)


def exact(first: int, second: int) -> float:
    total, least = first + second, min(first, second)
    tail = sum(comb(total, k) for k in range(least + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**total)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(0, 400))
def test_the_sign_test_is_exact(first: int, second: int) -> None:
    assert sign_p(first, second) == pytest.approx(exact(first, second), rel=1e-9)
    assert sign_p(first, second) == sign_p(second, first)


def test_the_sign_test_of_many_votes_is_exact_too() -> None:
    assert sign_p(1200, 1300) == pytest.approx(exact(1200, 1300), rel=1e-9)
    assert 0 < sign_p(100_000, 101_000) < 0.03
    assert sign_p(0, 100_000) == 0  # 2^-99999 is no double


def test_whoever_finds_no_difference_does_not_vote() -> None:
    first = np.array([1.0, 0.0, 0.3, 0.1 + 0.2])
    assert SignTest.of(first, np.array([0.0, 0.0, 0.4, 0.3])) == SignTest(1, 1, 1.0)
