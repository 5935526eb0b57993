"""Runs that train the image tower too."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.embeddings import embed
from paragrain.encoders.base import TrainSpec, encode_pixels
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.pair import PairEncoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import evaluate
from paragrain.images import decode
from paragrain.training import TrainConfig, gradients, train, trainer
from paragrain.training.batches import TrainingSet
from paragrain.training.gradients import accumulate_gradients, tokenize
from paragrain.training.images import ImageReader
from paragrain.training.objectives.contrastive import contrastive_loss
from paragrain.training.optimizer import decays
from paragrain.training.recipes import load_recipe

SHORT = {"batch_size": 8, "max_steps": 10, "epochs": 4, "learning_rate": 1e-3, "progress": False}


@pytest.fixture(scope="module")
def whole(shapes, encoder, tmp_path_factory):
    """Ten steps without a break."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    return train(shapes, encoder, recipe="c7", out=out, train_vision=True, **SHORT)


@pytest.fixture(scope="module")
def joint(shapes, encoder, tmp_path_factory):
    """A batch of eight images with negatives, and the pixels of its images."""
    reader = ImageReader(shapes, encoder, "train", tmp_path_factory.mktemp("p"), progress=False)
    data = TrainingSet.load(shapes, reader.contents, load_recipe("c7"), split="train", seed=0)
    batch = data.batch([5, 3, 8, 13, 0, 20, 1, 2], step=0, epoch=0)
    return batch, list(reader.stream([record.id for record in batch.records], batch_size=3))


def curve(run) -> list[dict]:
    return [
        {key: value for key, value in line.items() if not key.endswith("per_second")}
        for line in run.history
    ]


def test_pictures_come_in_the_order_asked_for(shapes, encoder, joint):
    batch, pixels = joint
    images = embed(shapes, encoder, split="train", progress=False)
    rows = [images.ids.index(record.id) for record in batch.records]
    np.testing.assert_allclose(encode_pixels(encoder, pixels), images.vectors[rows], atol=1e-6)


def test_both_towers_learn(whole, encoder, random_blip):
    before, after = (
        load_file(folder / "model.safetensors")
        for folder in (random_blip, whole.folder / "checkpoint")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed <= set(encoder.text_tensors()) | set(encoder.vision_tensors())
    for name in (
        "vision_proj.weight",
        "vision_model.embeddings.patch_embedding.weight",
        "vision_model.encoder.layers.0.self_attn.qkv.weight",
        "text_proj.weight",
    ):
        assert name in changed
    losses = [line["loss"] for line in whole.history if "loss" in line]
    assert losses[-1] < losses[0] - 0.1
    fresh = load_encoder(random_blip, device="cpu")
    assert encoder.vision_fingerprint == fresh.vision_fingerprint
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_vision_can_learn_at_a_rate_of_its_own(shapes, encoder, random_blip, tmp_path):
    settings = {**SHORT, "max_steps": 2, "train_vision": True, "vision_learning_rate": 1e-6}
    run = train(shapes, encoder, recipe="c1", out=tmp_path / "run", **settings)
    before, after = (
        load_file(folder / "model.safetensors")
        for folder in (random_blip, run.folder / "checkpoint")
    )
    moved = {name: float((before[name] - after[name]).abs().max()) for name in before}
    # A step of AdamW moves a weight by its rate at most, but for the decay.
    assert 0 < max(moved[name] for name in encoder.vision_tensors()) < 3e-6
    assert moved["text_proj.weight"] > 5e-4


def test_the_results_say_that_vision_trained(whole, encoder):
    results = whole.results
    assert results["train_vision"] is True
    assert results["vision_fingerprint"] == whole.encoder.vision_fingerprint
    assert results["vision_fingerprint"] != results["start"]["vision_fingerprint"]
    assert results["start"]["vision_fingerprint"] == encoder.vision_fingerprint
    assert whole.settings["config"]["train_vision"] is True
    assert any("image tower trains too" in note for note in results["notes"])


def test_validation_sees_the_vision_of_its_time_and_caches_none_of_it(whole, shapes, encoder):
    folders = {path.name for path in (shapes.folder / "embeddings").iterdir()}
    assert folders == {encoder.vision_fingerprint}
    score = evaluate(shapes, whole.encoder, texts="paragraph", split="val", progress=False)
    expected = (score.image_to_text[1] + score.text_to_image[1]) / 2
    assert whole.results["best_score"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "memory",
    [{}, {"micro_batch_tokens": 20, "grad_cache_threshold": 1}, {"grad_cache_threshold": 300}],
)
def test_the_joint_gradient_is_that_of_plain_autograd(encoder, joint, contrast, memory):
    batch, pixels = joint
    model = encoder.trainable_copy(TrainSpec(vision=True)).train().double()
    pixels = [image.double() for image in pixels]
    # The features end in float32, whose rounding the tolerance below is.
    cut = tokenize(model, batch.texts, TrainConfig())
    texts = torch.cat(
        [
            model.text_features(torch.tensor([row.tolist()]), torch.ones(1, len(row)).long())
            for row in cut.ids
        ]
    )
    negative, owner = torch.tensor(batch.negative), torch.tensor(batch.text_image)
    loss = contrastive_loss(
        model.image_features(torch.stack(pixels)),
        texts[~negative],
        owner[~negative],
        negatives=texts[negative],
        negative_image=owner[negative],
        groups=torch.tensor(batch.groups),
    ).total
    named = model.trained_parameters()
    expected = torch.autograd.grad(loss, list(named.values()))
    config = TrainConfig(**memory)
    report = accumulate_gradients(model, contrast(model), batch, config, pixels=pixels)
    assert report.loss == pytest.approx(loss.item(), abs=1e-6)
    for (name, parameter), gradient in zip(named.items(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert model.model.vision_proj.weight.grad.abs().max() > 1e-3


def test_memory_is_bounded_by_the_pass_for_images_too(encoder, joint, contrast, monkeypatch):
    batch, pixels = joint
    model = encoder.trainable_copy(TrainSpec(vision=True)).train()
    tokens = gradients.patches(model, pixels)
    assert tokens == 17  # 32 px in patches of 8, and the class token
    held = []
    original = type(model).image_features

    def watched(self, some):
        held.append((torch.is_grad_enabled(), len(some) * tokens))
        return original(self, some)

    monkeypatch.setattr(type(model), "image_features", watched)
    config = TrainConfig(micro_batch_tokens=40, grad_cache_threshold=40)
    accumulate_gradients(model, contrast(model), batch, config, pixels=pixels)
    assert held == [(grad, 34) for grad in (False, True) for _ in range(4)]
    held.clear()
    accumulate_gradients(model, contrast(model), batch, TrainConfig(), pixels=pixels)
    assert held == [(True, 8 * tokens)]


def test_a_stopped_run_goes_on_with_the_same_curve(whole, shapes, encoder, tmp_path, monkeypatch):
    def stops(*args, step: int, **rest):
        if step == 7:
            raise KeyboardInterrupt
        return accumulate_gradients(*args, step=step, **rest)

    settings = {**SHORT, "recipe": "c7", "out": tmp_path / "run", "train_vision": True}
    monkeypatch.setattr(trainer, "accumulate_gradients", stops)
    with pytest.raises(KeyboardInterrupt):
        train(shapes, encoder, save_steps=5, **settings)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="train_vision is True there and False here"):
        train(shapes, encoder, **{**settings, "train_vision": False})
    resumed = train(shapes, encoder, **settings)
    assert curve(resumed) == curve(whole)
    for name in ("last/state.safetensors", "checkpoint/model.safetensors"):
        one, two = (load_file(run.folder / name) for run in (whole, resumed))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
    state = load_file(resumed.folder / "last" / "state.safetensors")
    assert "exp_avg/vision_proj.weight" in state
    assert sorted(path.name for path in resumed.folder.iterdir()) == [
        "checkpoint",
        "last",
        "metrics.jsonl",
        "results.json",
        "run.yaml",
        "trained_on.json",
    ]


def test_a_bad_image_is_left_out_and_one_that_goes_bad_stops_the_run(
    record, write_records, encoder, tmp_path, monkeypatch
):
    collection = write_records(tmp_path / "c", [record(n) for n in range(6)])
    original = type(collection).image_bytes
    monkeypatch.setattr(
        type(collection),
        "image_bytes",
        lambda self, one: b"no picture" if one.id == "train/002" else original(self, one),
    )
    settings = {**SHORT, "recipe": "c1", "train_vision": True, "max_steps": 2}
    run = train(collection, encoder, out=tmp_path / "a", **settings)
    assert [name for name, _ in run.results["images_failed"]] == ["train/002"]
    assert run.results["data"]["used"] == 5

    seen = []

    def broken(data):
        if data == original(collection, record(4)):
            seen.append(data)
            return decode(b"" if len(seen) > 1 else data)
        return decode(data)

    monkeypatch.setattr("paragrain.training.images.decode", broken)
    with pytest.raises(
        ParagrainError, match=r"image of train/004 .* cannot be now \(an empty file"
    ):
        train(collection, encoder, out=tmp_path / "b", **settings)


def test_images_that_are_files_are_read_where_they_are(encoder, tmp_path, record, monkeypatch):
    folder = tmp_path / "c"

    def make(number: int) -> Record:
        one = record(number)
        path = folder / "images" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(one.image.bytes)
        return replace(one, image=ImageRef(None, f"images/{number}.png"))

    items = [Item(id=f"train/{n:03d}", stamp="1", make=partial(make, n)) for n in range(4)]
    write_collection(folder, items, name="shapes", source="test", progress=False)
    collection = Collection.open(folder)
    run = train(collection, encoder, recipe="c1", out=tmp_path / "r", train_vision=True, **SHORT)
    assert run.finished
    stream = ImageReader.stream

    def loses_a_file(self, ids, batch_size):
        (folder / "images" / "2.png").unlink()
        return stream(self, ids, batch_size)

    monkeypatch.setattr(ImageReader, "stream", loses_a_file)
    with pytest.raises(ParagrainError, match="cannot be read"):
        train(collection, encoder, recipe="c4", out=tmp_path / "s", train_vision=True, **SHORT)
    monkeypatch.undo()
    run = train(collection, encoder, recipe="c4", out=tmp_path / "t", train_vision=True, **SHORT)
    assert [name for name, _ in run.results["images_failed"]] == ["train/002"]


def test_a_half_precision_vision_trains_in_float32(random_blip):
    model = load_encoder(random_blip, device="cpu").half().trainable_copy(TrainSpec(vision=True))
    assert {t.dtype for t in model.vision_tensors().values()} == {torch.float32}
    assert all(t.requires_grad for t in model.vision_tensors().values())


def test_weight_decay_spares_norms_biases_embeddings_and_learned_tokens(encoder):
    named = encoder.trainable_copy(TrainSpec(vision=True)).trained_parameters()
    decayed = {name for name, parameter in named.items() if decays(name, parameter)}
    assert "vision_model.encoder.layers.1.mlp.fc1.weight" in decayed
    assert "vision_proj.weight" in decayed
    assert not any("norm" in name or "bias" in name or "embed" in name for name in decayed)
    assert not decays("vision_model.head.probe", torch.nn.Parameter(torch.zeros(1, 1, 4)))


def test_a_pair_s_image_side_stays_as_it_is(shapes, tmp_path):
    pair = PairEncoder.__new__(PairEncoder)
    pair.name = "dino+minilm"
    with pytest.raises(UsageError, match=r"image tower of dino\+minilm cannot be trained"):
        train(shapes, pair, out=tmp_path / "run", train_vision=True, progress=False)
    assert not (tmp_path / "run").exists()
