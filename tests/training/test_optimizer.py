import pytest
import torch
from torch import nn

from paragrain.encoders.base import TrainSpec
from paragrain.errors import UsageError
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.optimizer import (
    decays,
    make_optimizer,
)


def test_norms_biases_and_embeddings_do_not_decay(encoder):
    model = encoder.trainable_copy()
    named = model.text_tensors()
    groups = make_optimizer(named, TrainConfig()).param_groups
    plain, decay = sorted(groups, key=lambda group: group["weight_decay"])
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
