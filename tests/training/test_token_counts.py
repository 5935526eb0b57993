import pytest

from paragrain.errors import ParagrainError
from paragrain.training import TrainConfig, train
from paragrain.training.recipes import load_recipe, parse_recipe
from paragrain.training.token_counts import steps_for_tokens, tokens_per_epoch

RECIPE = """
positives:
  - {from: captions, select: first}
  - {from: generated, join: true, max_length: paragraph, share: 0.5}
  - {from: paragraph, order: words}
negatives: [{from: negatives, select: 3}]
"""
CONFIG = {"batch_size": 8, "epochs": 1, "max_length": {"paragraph": 20}, "progress": False}


def test_the_tokens_of_an_image_are_those_that_a_run_reports(shapes, encoder, tmp_path):
    recipe = parse_recipe(RECIPE, "mine")
    run = train(shapes, encoder, recipe=recipe, out=tmp_path / "run", **CONFIG)
    records = shapes.records("train", fields=recipe.fields)
    mean = tokens_per_epoch(records, recipe, encoder, run.config)
    assert mean * run.results["data"]["used"] == pytest.approx(run.results["totals"]["tokens"])
    assert run.results["totals"]["tokens_lost"] > 0
    assert run.results["max_lengths"] == {"captions": 77, "paragraph": 20, "negatives": 77}


def test_images_outside_of_every_share_cost_nothing(shapes, encoder, tmp_path):
    part = parse_recipe("positives: [{from: paragraph, share: 0.5}]", "part")
    run = train(shapes, encoder, recipe=part, out=tmp_path / "run", **CONFIG)
    data = run.results["data"]
    assert data["used"] + data["left out: in no share of the recipe"] == 21
    mean = tokens_per_epoch(shapes.records("train"), part, encoder, run.config)
    assert mean * data["used"] == pytest.approx(run.results["totals"]["tokens"])


def test_captions_for_as_many_tokens_as_paragraphs(shapes, encoder, tmp_path):
    config = TrainConfig(batch_size=8, epochs=2)
    c1, c5 = load_recipe("c1"), load_recipe("c5")
    steps = steps_for_tokens(shapes, encoder, c1, config, c5, config)
    runs = [
        train(
            shapes,
            encoder,
            recipe=recipe,
            out=tmp_path / recipe.name,
            config=longer,
            progress=False,
        )
        for recipe, longer in (
            (c5, config),
            (c1, config.model_copy(update={"epochs": 1000, "max_steps": steps})),
        )
    ]
    tokens = [run.results["totals"]["tokens"] for run in runs]
    assert tokens[1] == pytest.approx(tokens[0], rel=0.05)
    assert steps > 2 * runs[0].results["steps"]


def test_no_texts_are_one_sentence(shapes, encoder):
    recipe = parse_recipe("positives: [{from: description}]", "mine")
    with pytest.raises(ParagrainError, match="no image has a text for the recipe mine"):
        tokens_per_epoch(shapes.records("train"), recipe, encoder, TrainConfig())
