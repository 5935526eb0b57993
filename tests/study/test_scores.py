"""Recalls with intervals, differences and marks, from hits that were set by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paragrain.errors import ParagrainError
from paragrain.evaluation.compare import compare
from paragrain.evaluation.results import load_result
from paragrain.stats import Estimate, Units, interval, resample, with_seeds
from paragrain.study.cells import cell_max_length, result_path
from paragrain.study.plan import Study
from paragrain.study.scores import (
    Column,
    StudyScores,
    bounded,
    change_within,
    mean_of,
    read_scores,
)

I2T, T2I = "image_to_text", "text_to_image"
MakeStudy = Callable[..., Study]
Put = Callable[..., None]


def estimate(
    mean: float, spread: float, seed: int = 0, recalls: tuple[float, ...] = ()
) -> Estimate:
    draws = mean + spread * np.random.default_rng(seed).standard_normal(4000)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(
        mean,
        float(low),
        float(high),
        seeds=recalls or (mean,),
        draws=draws,
        query_draws=draws,
    )


def scores(**models: Estimate) -> tuple[StudyScores, Column]:
    column = Column("long", I2T)
    return StudyScores({name: {column: one} for name, one in models.items()}, {}, []), column


def test_recalls_are_means_over_queries_and_seeds(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    study = make_study()
    # Hits: 3 of 4 and 1 of 4; a tie of two counts half.
    put(study, "c4", "long", [[1, 1, 0.5, 0.5], [1, 0, 0, 0]])
    put(study, "BLIP", "long", [[0, 0, 0, 1]])
    found = read_scores(study, tmp_path / "out")
    own = found.recalls["c4"][Column("long", I2T)]
    assert own.seeds == (75.0, 25.0)
    assert own.value == 50.0
    assert found.recalls["c4"][Column("long", I2T, 5)].seeds == (100.0, 25.0)
    alone = found.recalls["BLIP"][Column("long", T2I)]
    assert (alone.value, alone.seeds, alone.low, alone.high) == (25.0, (25.0,), 0.0, 75.0)
    assert f"{alone:.1f}" == "25.0 (0.0 to 75.0)"
    # Two seeds so far apart tell next to nothing: t with one degree of freedom is 12.7 at 97.5 %.
    assert (own.low, own.high) == (0.0, 100.0)
    assert "c1, seed 0" in found.missing
    assert "c4, seed 0" in found.missing  # its other benchmark


def test_differences_are_those_of_compare(make_study: MakeStudy, put: Put, tmp_path: Path) -> None:
    study = make_study()
    rng = np.random.default_rng(0)
    hard = rng.random(300)
    hits = {
        name: [(rng.random(300) * 0.4 + hard * 0.8 < level).astype(float) for _ in range(2)]
        for name, level in (("c1", 0.5), ("c4", 0.65))
    }
    for name, of_seeds in hits.items():
        put(study, name, "long", of_seeds)
    out = tmp_path / "out"
    difference = read_scores(study, out).difference("c1", "c4", Column("long", I2T))
    assert difference is not None
    one, other = (
        [load_result(result_path(study, cell, "long", out)) for cell in study.models[name]]
        for name in ("c1", "c4")
    )
    row = compare(one, other).rows[0]
    assert difference.value == pytest.approx(row.difference.value)
    assert difference.value == pytest.approx(
        100 * (np.mean(hits["c4"]) - np.mean(hits["c1"]))  # type: ignore[arg-type]
    )
    assert (difference.low, difference.high) == pytest.approx(
        (row.difference.low, row.difference.high), abs=6
    )


def test_the_difference_of_a_model_and_itself_is_nothing() -> None:
    one = estimate(40, 2)
    same = one - one
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert not same.significant
    assert f"{same:+.1f}" == "+0.0 (0.0 to 0.0)"


def test_a_difference_by_hand() -> None:
    draws = np.array([1.0, 2.0, 3.0, np.nan] * 250)
    difference = Estimate.difference(2.0, draws)
    assert (difference.value, difference.low, difference.high) == (2.0, 1.0, 3.0)
    assert difference.p == pytest.approx(2 / 751)
    assert difference.significant
    assert f"{difference:+.1f}" == "+2.0 (1.0 to 3.0)"
    assert f"{Estimate.difference(-2.0, -draws):+.1f}" == "-2.0 (-3.0 to -1.0)"


def test_two_budgets_of_one_model_are_compared_seed_by_seed(
    make_study: MakeStudy, put_line: Put, tmp_path: Path
) -> None:
    # One seed finds much more than the other, but both find a tenth more at 40 tokens.
    study = make_study()
    more = np.r_[np.ones(20), np.zeros(180)]
    weak, strong = np.r_[np.zeros(160), np.ones(40)], np.r_[np.zeros(60), np.ones(140)]
    lines = [{10: seed, 40: np.maximum(seed, more)} for seed in (weak, strong)]
    put_line(study, "c4", "cut", lines)
    line = read_scores(study, tmp_path / "out").curves["cut"]["c4"][I2T]
    paired = change_within(line[10], line[40])
    assert paired.value == pytest.approx(10)
    assert paired.significant
    # Bootstrap of 20 in 200: 10 % with a deviation of sqrt(0.1 x 0.9 / 200) = 2.1 %.
    assert (paired.low, paired.high) == pytest.approx((5.8, 14.2), abs=0.6)
    assert not (line[40] - line[10]).significant


def test_the_mean_over_benchmarks_is_as_wide_as_if_they_went_together() -> None:
    two = [estimate(40, 2, 1, (39, 41)), estimate(60, 4, 2, (58, 62))]
    mean = mean_of(two)
    assert mean.value == 50.0
    assert mean.low == pytest.approx((two[0].low + two[1].low) / 2)
    assert mean.high == pytest.approx((two[0].high + two[1].high) / 2)


def test_best_and_second_are_marked_where_all_behind_are_worse() -> None:
    found, column = scores(a=estimate(30, 1, 1), b=estimate(50, 1, 2), c=estimate(40, 1, 3))
    assert found.marks(["a", "b", "c"], column) == {"b": "best", "c": "second"}
    assert found.marks(["a", "c"], column) == {"c": "best"}
    assert found.marks(["a"], column) == {}
    assert found.marks(["a", "c", "nobody"], column) == {"c": "best"}
    assert found.marks(["a", "b"], Column("long", T2I)) == {}


def test_a_shared_first_place_leaves_no_second() -> None:
    found, column = scores(a=estimate(50.5, 1, 1), b=estimate(50, 1, 2), c=estimate(30, 1, 3))
    assert found.marks(["a", "b", "c"], column) == {}


def test_a_shared_second_place_goes_to_nobody() -> None:
    found, column = scores(a=estimate(60, 1, 1), b=estimate(50, 1, 2), c=estimate(49.5, 1, 3))
    assert found.marks(["a", "b", "c"], column) == {"a": "best"}


def test_the_best_is_better_than_a_vague_third_too() -> None:
    found, column = scores(a=estimate(60, 1, 1), b=estimate(50, 1, 2), c=estimate(49, 20, 3))
    assert found.difference("b", "a", column).significant  # type: ignore[union-attr]
    assert found.marks(["a", "b", "c"], column) == {}


def test_a_difference_needs_both(make_study: MakeStudy) -> None:
    found, column = scores(a=estimate(60, 1, 1))
    assert found.difference("a", "b", column) is None


def test_curves_hold_the_budgets_that_a_model_can_read(
    make_study: MakeStudy, put_line: Put, tmp_path: Path
) -> None:
    study = make_study()
    put_line(study, "c4", "cut", [{10: [0, 0, 0, 1], 40: [1, 1, 0, 1]}] * 2)
    put_line(study, "BLIP", "cut", [{10: [1, 0, 0, 0]}])
    found = read_scores(study, tmp_path / "out")
    lines = found.curves["cut"]
    assert {max_length: one.value for max_length, one in lines["c4"][I2T].items()} == {
        10: 25,
        40: 75,
    }
    assert list(lines["BLIP"][T2I]) == [10]
    assert "c1, seed 1" in found.missing


def test_a_cell_without_its_curve_is_missing(
    make_study: MakeStudy, put: Put, put_line: Put, tmp_path: Path
) -> None:
    study = make_study()
    for benchmark in study.file.benchmarks:
        put(study, "c1", benchmark, [[1, 0], [1, 0]])
    put_line(study, "c1", "cut", [{10: [0, 1], 40: [1, 1]}])
    missing = read_scores(study, tmp_path / "out").missing
    assert "c1, seed 0" not in missing
    assert "c1, seed 1" in missing


def test_results_on_different_images_are_refused(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    study = make_study()
    put(study, "c1", "long", [[1, 0, 1]])
    put(study, "c4", "long", [[1, 0]])
    with pytest.raises(ParagrainError, match="different images"):
        read_scores(study, tmp_path / "out")


def test_a_model_with_its_own_budget_uses_it_where_the_text_is_not_short(
    make_study: MakeStudy,
) -> None:
    study = make_study(
        {"baselines/Long": {"model": "blip0", "max_length": 248}, "benchmarks/short/kind": "short"}
    )
    assert cell_max_length(study.models["Long"][0], study.file.benchmarks["long"]) == 248
    assert cell_max_length(study.models["Long"][0], study.file.benchmarks["short"]) == 20
    assert cell_max_length(study.models["c1"][0], study.file.benchmarks["long"]) == 40


@pytest.mark.parametrize(("seeds", "between"), [(5, 0.03), (3, 0.05), (5, 0.0)])
def test_nine_in_ten_intervals_and_more_hold_the_truth(seeds: int, between: float) -> None:
    """Simulated models whose true recall is known: the 95 % intervals hold it in 91 to 99 %."""
    rng = np.random.default_rng(1)
    truth, queries, held, repeats = 0.4, 250, 0, 200
    for _ in range(repeats):
        hard = rng.normal(0, 0.15, queries)
        shift = rng.normal(0, between, seeds)
        chance = np.clip(truth + hard[None] + shift[:, None], 0, 1)
        hits = (rng.random((seeds, queries)) < chance).astype(float)
        units = Units.of([(row, np.arange(queries)) for row in hits])
        draws = resample(units, resamples=400, seed=0).mean(1)
        low, high = interval(with_seeds(draws, units.means.tolist(), rng))
        held += bool(low <= truth <= high)
    assert 0.91 <= held / repeats <= 0.995


@pytest.mark.parametrize("seeds", [2, 3, 5])
@given(level=st.sampled_from([0.0, 0.01, 0.5, 0.97, 1.0]), salt=st.integers(0, 99))
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_interval_leaves_the_scale(
    make_study: MakeStudy, put: Put, tmp_path: Path, seeds: int, level: float, salt: int
) -> None:
    study = make_study({"seeds": list(range(seeds))})
    rng = np.random.default_rng(salt)
    put(study, "c1", "long", (rng.random((seeds, 30)) < level).astype(float).tolist())
    put(study, "c4", "long", (rng.random((seeds, 30)) < 0.5).astype(float).tolist())
    found = read_scores(study, tmp_path / "out")
    for estimates in found.recalls.values():
        for one in estimates.values():
            assert 0 <= one.low <= one.value + 1e-9
            assert one.value - 1e-9 <= one.high <= 100
            assert one.high > one.low, "so few queries leave no doubt?"
    difference = found.difference("c1", "c4", Column("long", I2T))
    assert difference is not None
    assert -100 <= difference.low <= difference.high <= 100


def test_far_from_the_ends_the_scale_changes_next_to_nothing() -> None:
    draws = np.random.default_rng(0).normal(50, 2, 4000)
    plain = with_seeds(draws, [49.0, 50.0, 51.0], np.random.default_rng(1))
    own = bounded(draws, [49.0, 50.0, 51.0], np.random.default_rng(1))
    ends = np.percentile([plain, own], [2.5, 97.5], axis=1)
    assert np.allclose(ends[:, 0], ends[:, 1], atol=0.2)
