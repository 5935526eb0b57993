"""What each step sees and how fast it learns."""

from itertools import pairwise

import numpy as np
import pytest

from paragrain.training.config import TrainConfig
from paragrain.training.schedule import Schedule, warmup_steps


@pytest.mark.parametrize(
    ("images", "size", "sizes"),
    [
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),  # a single image would have nothing to contrast with
        (8, 4, [4, 4]),
        (3, 4, [3]),  # a set smaller than a batch is a batch
        (5, 4, [5]),
        (2, 2, [2]),
    ],
)
def test_every_image_comes_once_an_epoch(images, size, sizes):
    schedule = Schedule(images, TrainConfig(batch_size=size, epochs=2))
    for epoch in range(2):
        steps = range(epoch * len(sizes), (epoch + 1) * len(sizes))
        batches = [schedule.rows(step) for step in steps]
        assert [len(rows) for rows in batches] == sizes
        assert sorted(np.concatenate(batches)) == list(range(images))
        assert [schedule.ends_epoch(step) for step in steps] == [False] * (len(sizes) - 1) + [True]
    assert schedule.steps == 2 * len(sizes)


def test_the_order_follows_seed_and_epoch_alone():
    def orders(seed: int) -> list[list[int]]:
        schedule = Schedule(50, TrainConfig(batch_size=50, epochs=3, seed=seed))
        return [schedule.rows(step).tolist() for step in range(3)]

    first = orders(0)
    assert first == orders(0)
    assert len({tuple(order) for order in [*first, *orders(1)]}) == 6


def test_max_steps_ends_the_run_within_an_epoch():
    schedule = Schedule(10, TrainConfig(batch_size=4, epochs=2, max_steps=4))
    assert schedule.steps == 4
    assert [schedule.ends_epoch(step) for step in range(4)] == [False, False, True, True]


def test_the_learning_rate_rises_straight_and_falls_as_a_cosine():
    steps = 20_000
    config = TrainConfig(learning_rate=1e-5, warmup_steps=500, stages=({"steps": steps},))
    rates = [Schedule(10, config).learning_rate(step) for step in range(steps)]
    assert rates[0] == pytest.approx(1e-5 / 500)
    assert rates[499] == rates[500] == 1e-5
    assert rates[(steps + 500) // 2] == pytest.approx(0.5e-5)
    assert rates[-1] < 1e-12
    assert all(a > b for a, b in pairwise(rates[500:]))


def test_short_runs_warm_up_for_a_tenth():
    assert warmup_steps(30, TrainConfig()) == 3
    assert warmup_steps(5, TrainConfig()) == 0
    assert Schedule(10, TrainConfig(max_steps=5)).learning_rate(0) == 1e-5
    assert warmup_steps(30, TrainConfig(warmup_steps=0)) == 0


def test_each_stage_has_a_warm_up_and_a_cosine_of_its_own():
    stages = ({"steps": 20, "final_rate": 0.25, "decay_after_warmup": False}, {"steps": 10})
    schedule = Schedule(10, TrainConfig(learning_rate=1.0, warmup_steps=500, stages=stages))
    assert schedule.steps == 30
    assert [schedule.stage(step)[1] for step in (0, 19, 20, 29)] == [0, 19, 0, 9]
    rates = [schedule.learning_rate(step) for step in range(30)]
    assert rates[0] == 0.5  # two steps of warm-up, a tenth of twenty
    assert rates[2] < rates[1] < 1  # the cosine has begun with the stage
    assert 0.25 < rates[19] < 0.26
    assert rates[20] == 1.0
    assert rates[29] < 0.031


def test_images_that_do_not_fill_a_batch_wait_for_the_next_epoch():
    schedule = Schedule(10, TrainConfig(batch_size=4, epochs=2, drop_last=True, seed=1))
    assert [len(schedule.rows(step)) for step in range(schedule.steps)] == [4] * 4
    assert len(set(np.concatenate([schedule.rows(step) for step in range(2)]))) == 8
    assert set(schedule.shown()) == set(np.concatenate([schedule.rows(step) for step in range(4)]))


def test_records_that_belong_together_stay_in_one_batch():
    schedule = Schedule(10, TrainConfig(batch_size=4, drop_last=True, block=2, seed=1))
    steps = [schedule.rows(step) for step in range(2)]
    for batch in steps:
        assert len(batch) == 4
        assert (batch[0::2] + 1 == batch[1::2]).all()
        assert (batch[0::2] % 2 == 0).all()
    assert len(set(np.concatenate(steps))) == 8
