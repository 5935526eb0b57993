"""Pre-training from nothing: it learns, it resumes, and what it saves is a real BLIP."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, BlipForImageTextRetrieval

from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.encoders import load_encoder
from paragrain.encoders.trained_on import content_key
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import evaluate
from paragrain.pretraining import TinySize, pretrain
from paragrain.pretraining.data import batch_of, draw_texts, load_data, normalised
from paragrain.pretraining.dense import GraphHead, graph_targets
from paragrain.pretraining.tiny import build_tokenizer, new_blip, new_processor
from paragrain.sources.scenes import Scene, Thing, import_scenes, render, sample_scene
from paragrain.training.checkpoints import MetricsLog

SMALL = {"width": 32, "heads": 4, "vision_layers": 1, "text_layers": 1, "vector_width": 16}
QUICK = {"batch_size": 8, "dense_steps": 2, "contrast_steps": 2, "size": SMALL, "progress": False}


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
    dense = [line["loss"] for line in lines if line["stage"] == "dense"]
    contrast = [line["contrast"] for line in lines if line["stage"] == "contrast"]
    assert len(dense) == 30
    assert len(contrast) == 60
    assert dense[-1] < 0.9 * dense[0]
    assert np.mean(contrast[-5:]) < 0.9 * contrast[0]


def test_a_killed_run_goes_on_with_the_same_curve(
    world: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "save_minutes": 1e-9}
    pretrain(world, tmp_path / "whole", **settings)

    from paragrain.pretraining.trainer import _Pretraining

    step = _Pretraining.step

    def dies_at_step_3(self: _Pretraining, number: int) -> dict:
        if number == 3:
            raise KeyboardInterrupt
        return step(self, number)

    monkeypatch.setattr(_Pretraining, "step", dies_at_step_3)
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
    with pytest.raises(UsageError, match="other settings or data"):
        pretrain(world, tmp_path / "run", **{**QUICK, "contrast_steps": 3})
    with pytest.raises(UsageError, match="contrast_stepz"):
        pretrain(world, tmp_path / "other", contrast_stepz=1)


def test_without_graphs_there_is_only_contrast(tmp_path: Path) -> None:
    rng = random.Random(0)
    records = [picture_without_graph(row, sample_scene(rng)) for row in range(4)]
    items = [Item(r.id, "1", lambda r=r: r) for r in records]  # type: ignore[misc]
    write_collection(tmp_path / "c", items, name="plain", source="test", progress=False)
    pretrain(Collection.open(tmp_path / "c"), tmp_path / "run", **QUICK)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["stage"] for line in lines} == {"contrast"}


def picture_without_graph(row: int, scene: Scene) -> Record:
    from paragrain.sources.scenes.render import png

    return Record(str(row), ImageRef(png(scene), f"{row}.png"), captions=[f"picture {row}"])


def test_long_texts_are_never_shown(world: Collection) -> None:
    data = load_data(world, "train", 96, progress=False)
    assert len(data) == len(data.scenes) == 24
    assert all(len(own) == 6 for own in data.texts)  # the alt-text and five captions
    assert max(len(text.split()) for own in data.texts for text in own) < 20
    assert np.array_equal(data.pixels[0], render(data.scenes[0]))


def test_too_few_pictures_are_refused(tmp_path: Path) -> None:
    record = picture_without_graph(0, sample_scene(random.Random(0)))
    write_collection(
        tmp_path / "c", [Item("0", "1", lambda: record)], name="one", source="test", progress=False
    )
    with pytest.raises(ParagrainError, match="needs two or more"):
        load_data(Collection.open(tmp_path / "c"), "train", 96, progress=False)


def test_pixels_are_those_of_the_processor() -> None:
    size = TinySize(**SMALL)
    processor = new_processor(size, build_tokenizer(["a red star"] * 3)).image_processor
    picture = render(sample_scene(random.Random(1)))
    ours = normalised(picture[None], processor.image_mean, processor.image_std)
    theirs = processor(images=picture, return_tensors="pt")["pixel_values"]
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_each_picture_once_an_epoch() -> None:
    steps = [batch_of(step, images=10, batch_size=5, seed=1) for step in range(4)]
    assert sorted(np.concatenate(steps[:2])) == list(range(10))
    assert sorted(np.concatenate(steps[2:])) == list(range(10))
    assert not np.array_equal(steps[0], steps[2])
    assert np.array_equal(steps[0], batch_of(0, images=10, batch_size=5, seed=1))


def test_records_that_belong_together_stay_in_one_batch() -> None:
    steps = [batch_of(step, images=10, batch_size=4, seed=1, block=2) for step in range(2)]
    for batch in steps:
        assert len(batch) == 4
        assert (batch[0::2] + 1 == batch[1::2]).all()
        assert (batch[0::2] % 2 == 0).all()
    assert len(set(np.concatenate(steps))) == 8


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


def test_texts_are_drawn_anew_for_each_step_and_never_twice() -> None:
    own = [range(6), range(1)]
    first, second = (draw_texts(own, step, 2, seed=0) for step in (0, 1))
    assert [place for place, _ in first] == [0, 0, 1]
    assert len(set(first)) == 3
    assert first == draw_texts(own, 0, 2, seed=0)
    assert first != second or draw_texts(own, 2, 2, seed=0) != first


def test_graph_targets_are_the_graph() -> None:
    thing = Thing("star", "red", "large", "plain", 5)
    cells, backgrounds = graph_targets([Scene("cream", (thing,), look=0)])
    assert cells.shape == (1, 9, 4)
    assert (cells[0].sum(dim=1) > 0).nonzero().flatten().tolist() == [5]
    assert cells[0, 5].tolist() == [5, 1, 3, 1]
    assert backgrounds.tolist() == [0]


def test_patches_belong_to_the_cell_that_they_lie_in() -> None:
    head = GraphHead(width=8, vector_width=8, patches=6)
    cells = head.cell_of_patch.view(6, 6)
    assert cells[0].tolist() == [0, 0, 1, 1, 2, 2]
    assert cells[:, 0].tolist() == [0, 0, 3, 3, 6, 6]


def test_fresh_weights_are_not_zero_and_follow_the_seed() -> None:
    tokenizer = build_tokenizer(["a red star"] * 3)
    one, same, other = (new_blip(TinySize(**SMALL), tokenizer, seed) for seed in (0, 0, 1))
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
    assert without["loss"] == without["contrast"] == with_it["contrast"]
    assert with_it["loss"] > with_it["contrast"] + 1


def test_the_learning_rate_moves_the_weights(world: Collection, tmp_path: Path) -> None:
    norms = []
    for rate in (1e-3, 1e-5):
        settings = {**QUICK, "dense_steps": 0, "contrast_steps": 1, "warmup_steps": 0}
        done = pretrain(world, tmp_path / str(rate), **settings, learning_rate=rate)
        fresh = new_blip(TinySize(**SMALL), load_encoder(done.folder / "checkpoint").tokenizer, 0)
        trained = load_encoder(done.folder / "checkpoint", "cpu").model
        change = (trained.text_proj.weight - fresh.text_proj.weight).detach()
        norms.append(float(change.abs().max()))
    assert norms[0] == pytest.approx(1e-3, rel=0.1)
    assert norms[1] < 1e-4


def test_a_gradient_that_is_not_finite_stops_the_run(
    world: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.nn.utils, "clip_grad_norm_", lambda *_, **__: torch.tensor(float("nan"))
    )
    with pytest.raises(ParagrainError, match="stopped at step 1"):
        pretrain(world, tmp_path / "run", **QUICK)
    assert not (tmp_path / "run" / "checkpoint").exists()
