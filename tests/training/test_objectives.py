"""Objectives: what a recipe names, what they may hold, and that it survives a kill."""

import copy

import pytest
import torch
from torch import Tensor, nn

from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.training import train
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.objectives import (
    Features,
    Objective,
    make_objectives,
    objective_class,
    register_objective,
)
from paragrain.training.recipes import Recipe, parse_recipe
from paragrain.training.reporting import Reporter

SHORT = {"batch_size": 8, "max_steps": 6, "learning_rate": 1e-3, "save_steps": 1}


def recipe(loss: object) -> Recipe:
    fields = {"positives": [{"from": "captions"}], "loss": loss}
    return Recipe.model_validate({"name": "tried", **fields})


@register_objective("momentum")
class Momentum(Objective):
    """A head over tokens and patches, a momentum encoder and a queue, as BLIP's pre-training has.

    The embeddings are drawn to those that the momentum encoder had of the last images.
    """

    requires = frozenset(
        {"image_embeddings", "image_states", "text_states", "pixels", "input_ids", "attention_mask"}
    )

    def __init__(
        self, encoder: ImageTextEncoder, config: TrainConfig, momentum: float = 0.9
    ) -> None:
        super().__init__(encoder, config)
        self.momentum = momentum
        self.head = nn.Linear(2 * encoder.model.config.text_config.hidden_size, 2)
        self.slow = copy.deepcopy(encoder.model.vision_model).requires_grad_(False).eval()
        self.queue = nn.Buffer(torch.zeros(16, encoder.dim))

    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        model = features.encoder.model
        owner = torch.from_numpy(batch.text_image)
        grounded = model.text_encoder(  # patches of the wrong image, then of the right one
            features.input_ids.repeat(2, 1),
            features.attention_mask.repeat(2, 1),
            encoder_hidden_states=features.image_states[torch.cat([owner.roll(1), owner])],
        ).last_hidden_state[:, 0]
        tokens = features.text_states[:, 0].repeat(2, 1)
        right = torch.arange(2).repeat_interleave(len(owner))
        matching = nn.functional.cross_entropy(
            self.head(torch.cat([grounded, tokens], dim=1)), right
        )
        with torch.no_grad():
            for slow, fast in zip(
                self.slow.parameters(), model.vision_model.parameters(), strict=True
            ):
                slow.lerp_(fast, 1 - self.momentum)
            seen = self.slow(pixel_values=features.pixels).last_hidden_state[:, 0]
            vectors = nn.functional.normalize(model.vision_proj(seen), dim=-1)
            self.queue.copy_(torch.cat([vectors, self.queue])[: len(self.queue)])
        distance = (1 - features.image_embeddings @ self.queue.T).mean()
        return {"matching": matching, "distance": distance}


@pytest.mark.parametrize("vision", [True, False])
def test_a_queue_a_momentum_encoder_and_a_head_go_on_after_a_kill(
    shapes, encoder, tmp_path, monkeypatch, vision
):
    settings = {**SHORT, "recipe": recipe(["contrastive", "momentum"]), "train_vision": vision}
    whole = train(shapes, encoder, out=tmp_path / "whole", progress=False, **settings)
    log_step = Reporter.log_step

    def dies_at_step_4(self: Reporter, step: int, *report: object) -> None:
        if step == 4:
            raise KeyboardInterrupt
        log_step(self, step, *report)

    monkeypatch.setattr(Reporter, "log_step", dies_at_step_4)
    with pytest.raises(KeyboardInterrupt):
        train(shapes, encoder, out=tmp_path / "killed", progress=False, **settings)
    monkeypatch.undo()
    killed = train(shapes, encoder, out=tmp_path / "killed", progress=False, **settings)
    curves = [
        [{k: v for k, v in line.items() if "second" not in k} for line in run.history]
        for run in (whole, killed)
    ]
    assert curves[0] == curves[1]
    steps = [line for line in curves[0] if "loss" in line]
    assert len(steps) == 6
    for line in steps:
        assert line["momentum"] == pytest.approx(
            line["momentum/matching"] + line["momentum/distance"]
        )
        assert line["loss"] == pytest.approx(line["contrastive"] + line["momentum"])
    changed = whole.encoder.vision_fingerprint != encoder.vision_fingerprint
    assert changed == vision


def test_a_loss_is_contrastive_unless_the_recipe_says_otherwise(shapes, encoder, tmp_path):
    runs = [
        train(shapes, encoder, recipe=one, out=tmp_path / str(n), progress=False, **SHORT)
        for n, one in enumerate(
            (
                parse_recipe("positives: [{from: captions}]", "tried"),
                recipe("contrastive"),
                recipe({"contrastive": 2}),
            )
        )
    ]
    usual, named, doubled = (
        [line["loss"] for line in run.history if "loss" in line] for run in runs
    )
    assert usual == named
    assert doubled[0] == pytest.approx(2 * usual[0])
    assert [run.results["loss"] for run in runs] == [
        "multi-positive",
        "multi-positive",
        "2 x multi-positive",
    ]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("contrastiv", "there is no loss 'contrastiv': use one of contrastive, scene_graph"),
        ({"contrastive": {"temperatur": 1}}, "contrastive does not take these options"),
        ({"contrastive": {"temperature": "warm"}}, "fixed or learned, not 'warm'"),
        ("scene_graph", "has no scene graph"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(shapes, encoder, tmp_path, loss, message):
    with pytest.raises(Exception, match=message):
        train(shapes, encoder, recipe=recipe(loss), out=tmp_path, progress=False, **SHORT)


@pytest.mark.parametrize("loss", [{"contrastive": -1}, {"contrastive": {"weight": "much"}}, 3, []])
def test_a_weight_is_a_number_from_0(loss):
    with pytest.raises(ValueError, match="loss"):
        recipe(loss)


def test_a_stage_weighs_only_losses_of_the_recipe(shapes, encoder, tmp_path):
    stages = [{"steps": 2, "weights": {"scene_graph": 1.0}}]
    with pytest.raises(UsageError, match="a stage weighs the loss scene_graph"):
        train(shapes, encoder, recipe="c1", out=tmp_path, stages=stages, progress=False)


def test_a_feature_that_was_not_required_is_named(encoder):
    with pytest.raises(AttributeError, match="hold no text_states: the objective has to require"):
        _ = Features(encoder).text_states


def test_first_weights_follow_the_seed_and_names_are_taken_once(encoder):
    one, same, other = (
        make_objectives({"momentum": {}}, encoder, TrainConfig(seed=seed))["momentum"].head.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert objective_class("momentum") is Momentum
    with pytest.raises(UsageError, match="loss of paragrain's own"):
        register_objective("contrastive")(Momentum)
    with pytest.raises(UsageError, match="cannot be a loss"):
        register_objective("another")(dict)  # type: ignore[type-var]
