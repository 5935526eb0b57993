"""Two judges: the measures by hand, their intervals, and a sample that order cannot change."""

import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.annotation.measures.agreement import agreement, sample_scored
from paragrain.collection import Record
from paragrain.errors import UsageError
from paragrain.stats import Estimate

SCORE = st.integers(0, 10)
PAIRS = st.lists(st.tuples(SCORE, SCORE), min_size=1, max_size=40)


def test_every_measure_by_hand() -> None:
    found = agreement([2, 4, 4, 8, None, 1, None], [3, 4, 6, 9, 5, None, None])
    assert (found.compared, found.first_unscored) == (4, 2)
    assert (found.second_unscored, found.both_unscored) == (2, 1)
    assert found.exact.value == 1 / 4
    assert found.within_one.value == 3 / 4
    assert found.difference.value == (1 + 0 + 2 + 1) / 4
    # Average ranks 1 2.5 2.5 4 against 1 2 3 4, less 2.5: products 2.25 + 0 + 0 + 2.25 over the
    # root of (2.25 + 2.25) (2.25 + .25 + .25 + 2.25).
    assert found.spearman.value == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    # Squared distances of the pairs: 1 + 0 + 4 + 1. Of all 16 pairings, over 4:
    # 2: 1+4+16+49, 4 twice: 1+0+4+25, 8: 25+16+4+1.
    assert found.kappa.value == pytest.approx(1 - 6 / ((70 + 2 * 30 + 46) / 4))
    assert found.confusion[4][6] == found.confusion[4][4] == found.confusion[8][9] == 1
    assert sum(map(sum, found.confusion)) == 4


def test_a_reversed_order_correlates_with_minus_one() -> None:
    assert agreement([1, 2, 3], [9, 8, 7]).spearman.value == pytest.approx(-1)


def test_what_is_not_defined_is_none_and_the_rest_is_there() -> None:
    found = agreement([7, 7, 7], [7, 7, 7])
    assert found.spearman == found.kappa == Estimate()
    assert found.exact == Estimate(1.0, 1.0, 1.0)
    nothing = agreement([None, 3], [4, None])
    assert nothing.compared == 0
    assert nothing.exact == nothing.difference == Estimate()
    # Half of all draws of two pairs are one pair twice: this one has no correlation.
    unlucky = agreement([1, 2], [3, 4], seed=3, resamples=1)
    assert unlucky.spearman == Estimate(1.0)
    for each in (found, nothing, unlucky):
        json.dumps(each.as_dict(), allow_nan=False)
    assert [row[1] for row in nothing.table().rows] == ["-"] * 5


@given(PAIRS)
@settings(deadline=None)
def test_swapping_the_judges_changes_only_the_sign_of_the_difference(
    pairs: list[tuple[int, int]],
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = (agreement(*both, resamples=1) for both in ((first, second), (second, first)))
    assert one.exact.value == other.exact.value
    assert one.within_one.value == other.within_one.value
    assert one.spearman.value == pytest.approx(other.spearman.value, nan_ok=True)
    assert one.kappa.value == pytest.approx(other.kappa.value, nan_ok=True)
    assert one.difference.value == -other.difference.value
    assert np.array_equal(np.transpose(one.confusion), other.confusion)


@given(st.lists(SCORE, min_size=1, max_size=40))
@settings(deadline=None)
def test_a_judge_agrees_with_itself(scores: list[int]) -> None:
    found = agreement(scores, scores, resamples=20)
    assert found.exact == found.within_one == Estimate(1.0, 1.0, 1.0)
    assert found.difference == Estimate(0.0, 0.0, 0.0)
    if len(set(scores)) > 1:
        assert found.spearman.value == pytest.approx(1)
        assert found.kappa.value == 1


@given(PAIRS)
@settings(deadline=None)
def test_spearman_is_pearson_of_average_ranks(pairs: list[tuple[int, int]]) -> None:
    columns = np.array(pairs).T
    below = (columns[:, None, :] < columns[:, :, None]).sum(axis=2)
    equal = (columns[:, None, :] == columns[:, :, None]).sum(axis=2)
    ranks = below + (equal + 1) / 2
    value = agreement(*columns.tolist(), resamples=1).spearman.value
    if (ranks.std(axis=1) == 0).any():
        assert np.isnan(value)
    else:
        assert value == pytest.approx(np.corrcoef(ranks)[0, 1], abs=1e-9)


def test_intervals_are_those_of_drawing_pairs_anew() -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 11, 150)
    second = (first + rng.integers(-3, 4, 150)).clip(0, 10)
    found = agreement(first.tolist(), second.tolist(), seed=1, resamples=4000)
    draws = rng.integers(0, 150, (4000, 150))
    a, b = first[draws], second[draws]
    plain = {
        "exact": (a == b).mean(axis=1),
        "within_one": (abs(a - b) <= 1).mean(axis=1),
        "difference": (b - a).mean(axis=1),
    }
    for name, values in plain.items():
        low, high = np.percentile(values, [2.5, 97.5])
        measure = getattr(found, name)
        assert (measure.low, measure.high) == pytest.approx((low, high), abs=0.025)
    for measure in (found.spearman, found.kappa):
        assert measure.low < measure.value < measure.high < 1
        assert measure.high - measure.low < 0.2


def test_an_interval_hangs_on_the_seed_alone_not_on_the_order() -> None:
    first, second = [1, 5, 7, 8, 3, 9], [2, 5, 6, 9, 3, 4]
    found = agreement(first, second, seed=5)
    assert agreement(first[::-1], second[::-1], seed=5) == found
    assert agreement(first, second, seed=6).difference.low != found.difference.low


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: agreement([1], [1, 2]), "1 and 2 paragraphs"),
        (lambda: agreement([1, 11], [1, 2]), "score 1 is 11"),
        (lambda: agreement([1], [-1]), "score 0 is -1"),
        (lambda: agreement([7.5], [7]), "score 0 is 7.5"),
        (lambda: agreement([1], [1], resamples=0), "0 resamples"),
        (lambda: sample_scored([], 0, 0), "a sample of 0"),
    ],
)
def test_mistakes_are_named(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        call()


# --- The sample -------------------------------------------------------------------------------


def scored(count: int) -> list[Record]:
    return [Record(f"{n}", paragraph="A dog runs.", paragraph_score=n % 11) for n in range(count)]


def test_only_paragraphs_with_a_score_are_drawn() -> None:
    records = [Record("a", paragraph="A dog."), Record("b", paragraph_score=3), *scored(4)]
    assert sorted(sample_scored(iter(records), 9, seed=0)) == ["0", "1", "2", "3"]


@given(st.integers(0, 2**32), st.integers(1, 30), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_does_not_matter_and_a_smaller_sample_begins_a_larger(
    seed: int, count: int, rng: random.Random
) -> None:
    records = scored(30)
    sample = sample_scored(records, count, seed)
    assert len(set(sample)) == count
    assert sample_scored(records, 30, seed)[:count] == sample
    rng.shuffle(records)
    assert sample_scored(records, count, seed) == sample


def test_every_record_is_drawn_equally_often() -> None:
    records = scored(20)
    counts = np.zeros(20)
    for seed in range(1500):
        for id in sample_scored(records, 5, seed):
            counts[int(id)] += 1
    expected, spread = 1500 / 4, (1500 / 4 * 3 / 4) ** 0.5
    assert abs(counts - expected).max() < 4.5 * spread
