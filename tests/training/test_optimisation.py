from itertools import pairwise

import pytest
import torch
from torch import nn

from paragrain.encoders import TrainSpec
from paragrain.errors import UsageError
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.optimisation import (
    decays,
    learning_rate,
    make_optimizer,
    warmup_steps,
)


def test_norms_biases_and_embeddings_do_not_decay(encoder):
    model = encoder.trainable_copy()
    named = model.text_tensors()
    decay, plain = make_optimizer(named, TrainConfig()).param_groups
    assert (decay["weight_decay"], plain["weight_decay"]) == (0.05, 0.0)
    decayed = {id(parameter) for parameter in decay["params"]}
    modules = dict(model.model.named_modules())
    for name, parameter in named.items():
        owner, _, kind = name.rpartition(".")
        matrix = isinstance(modules[owner], nn.Linear) and kind == "weight"
        assert (id(parameter) in decayed) == matrix, name
    assert len(decay["params"]) + len(plain["params"]) == len(named)


def test_vision_learns_at_its_own_rate(encoder):
    model = encoder.trainable_copy(TrainSpec(vision=True))
    named, vision = model.trained_parameters(), model.vision_tensors()
    config = TrainConfig(train_vision=True, learning_rate=1e-4, vision_learning_rate=1e-5)
    scales = {
        id(parameter): (group["scale"], group["weight_decay"])
        for group in make_optimizer(named, config, vision).param_groups
        for parameter in group["params"]
    }
    assert len(scales) == len(named)
    for name, parameter in named.items():
        expected = 0.1 if name.startswith("vision_") else 1.0
        decay = 0.05 if decays(name, parameter) else 0.0
        assert scales[id(parameter)] == (pytest.approx(expected), decay), name
    same = make_optimizer(named, TrainConfig(train_vision=True), vision)
    assert {group["scale"] for group in same.param_groups} == {1.0}


def test_a_rate_for_vision_that_does_not_train_is_refused():
    with pytest.raises(UsageError, match="vision_learning_rate is of no use without train_vision"):
        make_config(None, {"vision_learning_rate": 1e-6})


def test_master_weights_must_be_float32():
    half = {"weight": nn.Parameter(torch.zeros(2, 2, dtype=torch.float16))}
    with pytest.raises(ValueError, match="must be float32"):
        make_optimizer(half, TrainConfig())


def test_the_learning_rate_rises_straight_and_falls_as_a_cosine():
    config = TrainConfig(learning_rate=1e-5, warmup_steps=500)
    steps = 20_000
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    assert rates[0] == pytest.approx(1e-5 / 500)
    assert rates[499] == rates[500] == 1e-5
    assert rates[(steps + 500) // 2] == pytest.approx(0.5e-5)
    assert rates[-1] < 1e-12
    assert all(a > b for a, b in pairwise(rates[500:]))


def test_short_runs_warm_up_for_a_tenth():
    assert warmup_steps(30, TrainConfig()) == 3
    assert warmup_steps(5, TrainConfig()) == 0
    assert learning_rate(0, 5, TrainConfig()) == 1e-5
    assert warmup_steps(30, TrainConfig(warmup_steps=0)) == 0
