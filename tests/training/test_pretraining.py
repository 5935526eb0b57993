"""Pre-training from nothing: it learns, it resumes, and what it saves is a real BLIP."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, BlipForImageTextRetrieval

from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.encoders import load_encoder
from paragrain.encoders.trained_on import content_key
from paragrain.errors import UsageError
from paragrain.evaluation import evaluate
from paragrain.sources.scenes import Scene, Thing, import_scenes, sample_scene
from paragrain.training.checkpoints import MetricsLog
from paragrain.training.config import TrainConfig
from paragrain.training.objectives.scene_graph import SceneGraph, graph_targets
from paragrain.training.pretraining import (
    TinySize,
    build_tokenizer,
    fresh_encoder,
    new_blip,
    pretrain,
)
from paragrain.training.reporting import Reporter

SMALL = TinySize(width=32, heads=4, vision_layers=1, text_layers=1, vector_width=16)
LOSSES = [18.1873856, 16.5564404, 16.1367073, 4.0219498, 4.1315031, 3.9978724, 3.9846827, 3.9526420]
QUICK = {"batch_size": 8, "dense_steps": 2, "contrast_steps": 2, "size": SMALL, "progress": False}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("pretraining") / "world"
    import_scenes(folder, size=24, seed=2, progress=False)
    return Collection.open(folder)


def test_it_makes_a_folder_that_plain_transformers_opens(world: Collection, tmp_path: Path) -> None:
    done = pretrain(world, tmp_path / "run", **QUICK)
    _, info = BlipForImageTextRetrieval.from_pretrained(
        done.folder / "checkpoint", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    processor = AutoProcessor.from_pretrained(done.folder / "checkpoint")
    batch = processor(text=["a red star"], return_tensors="pt")
    assert batch["input_ids"].shape == (1, 5)  # whole words of the world are one token each
    encoder = load_encoder(done.folder / "checkpoint", "cpu")
    assert (encoder.dim, encoder.max_tokens) == (16, 512)
    assert all(p.dtype == torch.float32 for p in encoder.parameters())


def test_the_loss_falls(world: Collection, tmp_path: Path) -> None:
    settings = {**QUICK, "batch_size": 24, "dense_steps": 30, "contrast_steps": 60}
    pretrain(world, tmp_path / "run", **settings)
    lines = MetricsLog(tmp_path / "run" / "metrics.jsonl").read()
    dense = [line["loss"] for line in lines if "contrastive" not in line]
    contrast = [line["contrastive"] for line in lines if "contrastive" in line]
    assert len(dense) == 30
    assert len(contrast) == 60
    assert dense[-1] < 0.9 * dense[0]
    assert np.mean(contrast[-5:]) < 0.9 * contrast[0]


def test_a_killed_run_goes_on_with_the_same_curve(
    world: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "save_minutes": 1e-9}
    pretrain(world, tmp_path / "whole", **settings)

    log_step = Reporter.log_step

    def dies_at_step_3(self: Reporter, step: int, *report: object) -> None:
        if step == 3:
            raise KeyboardInterrupt
        log_step(self, step, *report)

    monkeypatch.setattr(Reporter, "log_step", dies_at_step_3)
    with pytest.raises(KeyboardInterrupt):
        pretrain(world, tmp_path / "killed", **settings)
    monkeypatch.undo()
    pretrain(world, tmp_path / "killed", **settings)
    whole, killed = (
        [line["loss"] for line in MetricsLog(tmp_path / name / "metrics.jsonl").read()]
        for name in ("whole", "killed")
    )
    assert whole == killed
    weights = [
        (tmp_path / name / "checkpoint" / "model.safetensors").read_bytes()
        for name in ("whole", "killed")
    ]
    assert weights[0] == weights[1]


def test_the_model_knows_the_pictures_it_saw_and_those_of_its_start(
    world: Collection, tmp_path: Path
) -> None:
    import_scenes(tmp_path / "more", size=24, seed=3, progress=False)
    more = Collection.open(tmp_path / "more")
    steps = {**QUICK, "batch_size": 12, "dense_steps": 0, "contrast_steps": 1}
    first = pretrain(world, tmp_path / "first", **steps)
    start = str(first.folder / "checkpoint")
    pretrain(more, tmp_path / "second", **{**steps, "contrast_steps": 2}, start=start)
    known = load_encoder(tmp_path / "second" / "checkpoint", "cpu").trained_on
    assert known is not None
    assert [entry["images"] for entry in known.sets] == [12, 24]
    assert all(entry["vision"] and entry["split"] == "train" for entry in known.sets)
    keys = [
        [content_key(record.content or "") for record in one.records("train")]
        for one in (world, more)
    ]
    assert [int(known.has("trained", own).sum()) for own in keys] == [12, 24]
    told = evaluate(world, start, texts="captions", split="train", progress=False).about[
        "trained_on"
    ]
    assert told["splits"]["train"]["same_content"] == 12


def test_other_settings_do_not_touch_a_run(world: Collection, tmp_path: Path) -> None:
    pretrain(world, tmp_path / "run", **QUICK)
    with pytest.raises(UsageError, match="other settings"):
        pretrain(world, tmp_path / "run", **{**QUICK, "contrast_steps": 3})
    with pytest.raises(UsageError, match="contrast_stepz"):
        pretrain(world, tmp_path / "other", contrast_stepz=1)


def test_without_graphs_there_is_only_contrast(tmp_path: Path) -> None:
    rng = random.Random(0)
    records = [picture_without_graph(row, sample_scene(rng)) for row in range(4)]
    items = [Item(r.id, "1", lambda r=r: r) for r in records]  # type: ignore[misc]
    write_collection(tmp_path / "c", items, name="plain", source="test", progress=False)
    pretrain(Collection.open(tmp_path / "c"), tmp_path / "run", **QUICK)
    lines = MetricsLog(tmp_path / "run" / "metrics.jsonl").read()
    assert len(lines) == 2
    assert all("scene_graph" not in line for line in lines)


def picture_without_graph(row: int, scene: Scene) -> Record:
    from paragrain.sources.scenes.render import png

    return Record(str(row), ImageRef(png(scene), f"{row}.png"), captions=[f"picture {row}"])


def test_it_goes_on_from_a_checkpoint(world: Collection, tmp_path: Path) -> None:
    first = pretrain(world, tmp_path / "first", **QUICK)
    start = str(first.folder / "checkpoint")
    still = {**QUICK, "learning_rate": 1e-12, "dense_steps": 0, "contrast_steps": 1}
    second = pretrain(world, tmp_path / "second", start=start, **still)
    one, two = (load_encoder(run.folder / "checkpoint", "cpu") for run in (first, second))
    assert one.tokenizer.get_vocab() == two.tokenizer.get_vocab()
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, two.model.state_dict()[name]), name  # nothing moved but by 1e-12
    moved = pretrain(world, tmp_path / "third", start=start, **{**still, "learning_rate": 1e-2})
    three = load_encoder(moved.folder / "checkpoint", "cpu")
    assert one.text_fingerprint != three.text_fingerprint
    assert one.vision_fingerprint != three.vision_fingerprint


def test_graph_targets_are_the_graph() -> None:
    thing = Thing("star", "red", "large", "plain", 5)
    cells, backgrounds = graph_targets([Scene("cream", (thing,), look=0)])
    assert cells.shape == (1, 9, 4)
    assert (cells[0].sum(dim=1) > 0).nonzero().flatten().tolist() == [5]
    assert cells[0, 5].tolist() == [5, 1, 3, 1]
    assert backgrounds.tolist() == [0]


def test_patches_belong_to_the_cell_that_they_lie_in(world: Collection) -> None:
    objective = SceneGraph(fresh_encoder(world, SMALL, 0), TrainConfig())
    cells = objective.cell_of_patch.view(6, 6)
    assert cells[0].tolist() == [0, 0, 1, 1, 2, 2]
    assert cells[:, 0].tolist() == [0, 0, 3, 3, 6, 6]


def test_fresh_weights_are_not_zero_and_follow_the_seed() -> None:
    tokenizer = build_tokenizer(["a red star"] * 3)
    one, same, other = (new_blip(SMALL, tokenizer, seed) for seed in (0, 0, 1))
    weight = "vision_model.encoder.layers.0.mlp.fc1.weight"
    values = [model.state_dict()[weight] for model in (one, same, other)]
    assert 0.01 < values[0].std() < 0.03  # Hugging Face's default of 1e-10 would never learn
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def test_the_graph_counts_beside_the_contrast_as_it_is_weighed(
    world: Collection, tmp_path: Path
) -> None:
    for weight in (0.0, 0.5):
        settings = {**QUICK, "dense_steps": 0, "contrast_steps": 1, "graph_weight": weight}
        pretrain(world, tmp_path / str(weight), **settings)
    without, with_it = (
        MetricsLog(tmp_path / str(weight) / "metrics.jsonl").read()[0] for weight in (0.0, 0.5)
    )
    halves = without["image_to_text"] + without["text_to_image"]
    assert without["loss"] == pytest.approx(halves / 2)
    assert without["loss"] == with_it["contrastive"]
    assert with_it["loss"] == pytest.approx(with_it["contrastive"] + 0.5 * with_it["scene_graph"])


def test_the_learning_rate_moves_the_weights(world: Collection, tmp_path: Path) -> None:
    norms = []
    for rate in (1e-3, 1e-5):
        settings = {**QUICK, "dense_steps": 0, "contrast_steps": 1, "warmup_steps": 0}
        done = pretrain(world, tmp_path / str(rate), **settings, learning_rate=rate)
        fresh = new_blip(SMALL, load_encoder(done.folder / "checkpoint").tokenizer, 0)
        trained = load_encoder(done.folder / "checkpoint", "cpu").model
        change = (trained.text_proj.weight - fresh.text_proj.weight).detach()
        norms.append(float(change.abs().max()))
    assert norms[0] == pytest.approx(1e-3, rel=0.1)
    assert norms[1] < 1e-4


def test_the_losses_are_those_of_the_run_that_made_blip0(world: Collection, tmp_path: Path) -> None:
    # Measured with the trainer that made BLIP0, which pre-training had to itself.
    run = pretrain(world, tmp_path / "run", **{**QUICK, "dense_steps": 3, "contrast_steps": 5})
    losses = [line["loss"] for line in run.history]
    assert losses == pytest.approx(LOSSES, rel=1e-5)
