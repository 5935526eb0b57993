"""Each setting reaches the arithmetic: a run that ignored it would fail here."""

import math

import pytest
import torch

from paragrain.encoders import load_encoder
from paragrain.errors import ParagrainError
from paragrain.evaluation import evaluate
from paragrain.training import TrainConfig, train
from paragrain.training.validation import Validation

ONE_STEP = {
    "max_steps": 1,
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "batch_size": 32,
    "progress": False,
}


def largest_change(before, run) -> float:
    after = run.encoder.text_tensors()
    return max(
        float((after[name] - value).abs().max()) for name, value in before.text_tensors().items()
    )


@pytest.mark.parametrize("rate", [1e-3, 1e-5])
def test_the_first_step_of_adam_is_as_long_as_the_learning_rate(shapes, encoder, tmp_path, rate):
    run = train(shapes, encoder, recipe="c5", out=tmp_path / "r", learning_rate=rate, **ONE_STEP)
    assert largest_change(encoder, run) == pytest.approx(rate, rel=0.05)
    assert run.history[0]["learning_rate"] == rate


def test_a_clipped_gradient_makes_a_shorter_step(shapes, encoder, tmp_path):
    run = train(shapes, encoder, recipe="c5", out=tmp_path / "r", learning_rate=1e-3,
                clip_norm=1e-12, **ONE_STEP)  # fmt: skip
    assert largest_change(encoder, run) < 1e-6  # far below Adam's epsilon, the step vanishes


def test_temperature_scales_the_loss(shapes, encoder, tmp_path):
    warm, cold = (
        train(shapes, encoder, recipe="c4", out=tmp_path / str(t), temperature=t, **ONE_STEP)
        for t in (100.0, 0.07)
    )
    assert warm.history[0]["loss"] == pytest.approx(math.log(21), abs=0.02)  # all nearly equal
    assert cold.history[0]["loss"] > warm.history[0]["loss"] + 0.01


def test_records_of_one_group_do_not_contrast(record, write_records, encoder, tmp_path):
    records = [record(n) for n in range(6)]
    for n in range(4):
        records[n].group = "same"
    grouped = write_records(tmp_path / "grouped", records)
    config = {**ONE_STEP, "temperature": 100.0}  # every pair counts nearly the same
    run = train(grouped, encoder, recipe="c4", out=tmp_path / "g", **config)
    # Each of four grouped images contrasts with 2 others and itself, each of the rest with all 6.
    expected = (4 * math.log(3) + 2 * math.log(6)) / 6
    assert run.history[0]["loss"] == pytest.approx(expected, abs=0.02)


def test_images_that_are_all_the_same_are_refused(record, write_records, encoder, tmp_path):
    records = [record(n) for n in range(4)]
    for one in records:
        one.group = "same"
    with pytest.raises(ParagrainError, match="nothing to contrast"):
        train(write_records(tmp_path / "c", records), encoder, out=tmp_path / "r", progress=False)


def test_the_best_checkpoint_is_kept_not_the_last(shapes, encoder, tmp_path, monkeypatch):
    scores = iter([10.0, 50.0, 20.0])
    fingerprints = []

    def measure(self, model):
        fingerprints.append(model.text_fingerprint)
        return {"score": next(scores), "fields": {}}

    monkeypatch.setattr(Validation, "measure", measure)
    run = train(shapes, encoder, recipe="c1", out=tmp_path / "r", epochs=3, batch_size=21,
                learning_rate=1e-3, progress=False)  # fmt: skip
    assert run.results["best_step"] == 2
    assert run.results["best_score"] == 50.0
    kept = load_encoder(run.folder / "checkpoint", "cpu")
    assert kept.text_fingerprint == fingerprints[1] != fingerprints[2]


def test_validation_is_the_evaluation_in_both_directions_at_the_field_s_budget(shapes, encoder):
    config = TrainConfig(validation_texts=("captions",), max_length={"captions": 6})
    validation = Validation.load(shapes, encoder, config, progress=False)
    score = validation.measure(encoder)["score"]
    whole = evaluate(shapes, encoder, texts="captions", max_length=6, split="val", progress=False)
    assert score == pytest.approx((whole.image_to_text[1] + whole.text_to_image[1]) / 2)
    assert validation.benchmarks["captions"][1].max_length == 6


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change(
    shapes, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        torch.nn.utils, "clip_grad_norm_", lambda *_, **__: torch.tensor(float("nan"))
    )
    with pytest.raises(ParagrainError, match="stopped at step 1"):
        train(shapes, encoder, recipe="c5", out=tmp_path / "r", **ONE_STEP)
    assert not (tmp_path / "r" / "checkpoint").exists()


def test_a_broken_validation_image_is_named(record, write_records, encoder, tmp_path, monkeypatch):
    records = [record(n) for n in range(6)] + [record(n, "val") for n in range(20, 23)]
    collection = write_records(tmp_path / "c", records)
    original = type(collection).image_bytes

    def damaged(self, one):
        return b"no picture" if one.id == "val/021" else original(self, one)

    monkeypatch.setattr(type(collection), "image_bytes", damaged)
    run = train(collection, encoder, recipe="c1", out=tmp_path / "r", **ONE_STEP)
    assert [name for name, _ in run.results["images_failed"]] == ["val/021"]
