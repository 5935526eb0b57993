"""The study `paper`: each number as the paper states it."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from paragrain.study.plan import Study, load_study
from paragrain.training import load_recipe

PAPER = "paper"


@pytest.fixture(scope="module")
def paper() -> Study:
    return load_study(PAPER)


def test_training_is_as_the_paper_says(paper: Study) -> None:
    config = paper.config
    assert config.learning_rate == 1e-5
    assert config.batch_size == 256
    assert config.temperature == 0.07
    assert config.warmup_steps == 500
    assert config.epochs == 10
    assert config.max_steps is None
    assert not config.train_vision
    max_lengths = config.max_length
    assert (max_lengths.captions, max_lengths.generated, max_lengths.negatives) == (77, 77, 77)
    assert max_lengths.paragraph == 128
    assert paper.file.model == "Salesforce/blip-itm-base-coco"
    assert paper.file.train == "cc3m"
    assert len(paper.file.seeds) >= 5


def test_the_ten_recipes_are_the_papers(paper: Study) -> None:
    assert paper.file.recipes == tuple(f"c{n}" for n in range(1, 11))

    def texts(name: str) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        recipe = load_recipe(name)
        sides = (recipe.positives, recipe.negatives)
        positives, negatives = ([(pick.source, pick.select) for pick in side] for side in sides)
        return positives, negatives

    original, paragraph = ("captions", "first"), "paragraph"
    assert texts("c1") == ([original], [])
    assert texts("c2") == ([("generated", "random")], [])
    assert texts("c3") == ([original, ("generated", "random")], [])
    assert [name for name, _ in texts("c4")[0]] == [paragraph]
    assert [name for name, _ in texts("c5")[0]] == ["captions", paragraph]
    assert [name for name, _ in texts("c6")[0]] == ["captions", "generated", paragraph]
    assert texts("c6")[0][1] == ("generated", "random")
    assert texts("c7") == ([original], [("negatives", "all")])
    assert texts("c8") == ([original, ("generated", 5)], [])
    assert texts("c9")[0][:2] == [original, ("generated", 5)]
    assert [name for name, _ in texts("c9")[0]] == ["captions", "generated", paragraph]
    assert texts("c10")[0][0] == ("generated", 5)
    assert [name for name, _ in texts("c10")[0]] == ["generated", paragraph]
    losses = {n: load_recipe(n).loss for n in paper.file.recipes}
    assert {n for n, loss in losses.items() if loss == "InfoNCE"} == {"c1", "c2", "c4"}
    assert {n for n, loss in losses.items() if loss == "hard-negative"} == {"c7"}
    assert all("inferred" in load_recipe(name).note for name in ("c6", "c9", "c10"))
    assert any("C6, C9 and C10" in note for note in paper.file.notes)


def test_benchmarks_and_baselines_are_the_papers(paper: Study) -> None:
    max_lengths = {name: spec.length for name, spec in paper.file.benchmarks.items()}
    assert max_lengths["flickr30k"] == 77
    assert max_lengths["coco"] == 77
    assert max_lengths["sharegpt4v"] == 77
    assert max_lengths["sharegpt4v-128"] == 128
    assert max_lengths["docci"] == 128
    kinds = {name: spec.kind for name, spec in paper.file.benchmarks.items()}
    assert {n for n, kind in kinds.items() if kind == "short"} == {"flickr30k", "coco"}
    assert {n for n, kind in kinds.items() if kind == "long"} == {"sharegpt4v", "docci"}
    baselines = paper.baselines
    assert baselines["BLIP"].model == "Salesforce/blip-itm-base-coco"
    assert baselines["CLIP-B-16"].model == "openai/clip-vit-base-patch16"
    assert baselines["CLIP-B-16"].max_length is None
    assert {baselines[f"Long-CLIP-{size}"].max_length for size in "BL"} == {248}
    for curve in ("docci", "sharegpt4v"):
        assert set(paper.file.curves[curve].max_lengths) >= {20, 40, 60, 80, 100, 128}
    assert 512 in paper.file.curves["docci"].max_lengths
    assert paper.file.collections["docci"].images == 14847
    assert paper.file.collections["coco"].images == 118287
    assert paper.file.collections["sharegpt4v"].images == 80000
    assert paper.file.collections["flickr30k"].images == 31014  # of dataset_flickr30k.json


def test_ablations_and_controls_are_all_there(paper: Study) -> None:
    def recipe(name: str) -> Any:
        found = paper.models[name][0].recipe
        assert found is not None
        return found

    assert [recipe(f"captions-{n}").positives[0].select for n in (1, 3, 5)] == [1, 3, 5]
    assert [recipe(f"negatives-{n}").negatives[0].select for n in (1, 3)] == [1, 3]
    shares = {n: {p.share for p in recipe(f"c5-{n}").positives} for n in (25, 50, 75)}
    assert shares == {25: {0.25}, 50: {0.5}, 75: {0.75}}
    cut, long = (paper.models[name][0].settings for name in ("c5-60", "c5-512"))
    assert cut is not None
    assert long is not None
    assert (cut.max_length.paragraph, long.max_length.paragraph) == (60, 512)
    assert recipe("c5-sentences").positives[1].order == "sentences"
    assert recipe("c5-words").positives[1].order == "words"
    assert recipe("c5-joined").positives[1].join
    for name in ("c1-tokens", "c8-tokens"):
        assert [one.like for one in paper.models[name]] == paper.models["c5"]
    for name in ("c5-vision", "c7-vision"):
        settings = paper.models[name][0].settings
        assert settings is not None
        assert settings.train_vision
    # What was trained on 512 tokens is measured on as many.
    assert "c5-512" in paper.file.curves["docci"].cells


def commands(paper: Study) -> list[str]:
    made = [source.make for source in paper.file.collections.values()]
    return [line.strip() for make in made for line in make.split("&&")]


def test_the_commands_that_make_the_collections_are_commands(paper: Study) -> None:
    from paragrain.cli.app import app

    group = typer.main.get_command(app)
    for line in commands(paper):
        name, *arguments = shlex.split(line)
        assert name == "paragrain"
        command: Any = group
        while hasattr(command, "commands"):
            verb = arguments.pop(0) if arguments[0] in command.commands else "run"
            command = command.commands[verb]
        command.make_context(line, arguments)  # complains of what it does not know
    made = {shlex.split(line)[-1] for line in commands(paper) if " import " in line}
    assert made == {str(source.path) for source in paper.file.collections.values()}


def test_the_dry_run_prints_the_plan_and_writes_nothing(
    paragrain: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = paragrain("study", "run", PAPER, "--dry-run")
    assert said.code == 0
    for part in (
        "learning rate 1e-05, batch 256, temperature 0.07, cosine after 500 warm-up steps, "
        "10 epochs",
        "captions 77, description 128, generated 77, negatives 77, paragraph 128",
        "MISSING cc3m: data/cc3m",
        "make it with: paragrain import docci",
        "MISSING Long-CLIP-B",
        "In all ",
    ):
        assert part in said.out
    data = paragrain("study", "run", PAPER, "--dry-run", "--json").json
    rows = {row["name"]: row for row in data["cells"]}
    images, an_epoch = 500_000, 1954  # 1,953 whole batches and one of 32
    assert rows["c5"]["steps"] == 10 * an_epoch
    assert rows["c5"]["images"] == images
    assert rows["c5"]["cells"] == 5
    assert rows["c5-25"]["steps"] == 10 * 489  # 125,000 images: 488 whole batches and one of 72
    assert rows["c1-tokens"]["steps"] == round(19540 * (14 + 105) / 14)
    assert data["ready"] is False
    assert len(data["cells"]) == 4 + 10 + 17
    assert list(tmp_path.iterdir()) == []
