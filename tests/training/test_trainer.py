import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paragrain.encoders import encode_texts
from paragrain.encoders.loading import load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.training import trainer
from paragrain.training.gradients import accumulate_gradients
from paragrain.training.runs import Run
from paragrain.training.trainer import repeat, train

SHORT = {"batch_size": 8, "epochs": 4, "max_steps": 10, "learning_rate": 1e-3, "progress": False}


@pytest.fixture(scope="module")
def whole(shapes, encoder, tmp_path_factory) -> Run:
    """Ten steps without a break, over four epochs of three steps."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return train(shapes, encoder, recipe="c5", out=folder, **SHORT)


def curve(run: Run) -> list[dict]:
    """The lines of a run without the speeds, which no two runs share."""
    return [
        {key: value for key, value in line.items() if not key.endswith("per_second")}
        for line in run.history
    ]


def weights(run: Run) -> dict[str, torch.Tensor]:
    """Last text weights and optimiser state."""
    return load_file(run.folder / "last" / "state.safetensors")


def assert_same_run(first: Run, second: Run) -> None:
    assert curve(first) == curve(second)
    one, two = weights(first), weights(second)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    best = [load_file(run.folder / "checkpoint" / "model.safetensors") for run in (first, second)]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])


def test_a_run_leaves_everything_that_it_promises(whole, shapes, encoder):
    assert sorted(path.name for path in whole.folder.iterdir()) == [
        "checkpoint",
        "last",
        "metrics.jsonl",
        "results.json",
        "run.yaml",
        "trained_on.json",
    ]
    steps = [line for line in whole.history if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 11))
    assert [line["epoch"] for line in steps] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert steps[0]["learning_rate"] == 1e-3  # a warm-up of one step
    assert steps[-1]["loss"] < steps[0]["loss"]
    checks = [line for line in whole.history if "validation" in line]
    assert [line["step"] for line in checks] == [3, 6, 9, 10]
    results = whole.results
    assert results["best_score"] == max(line["validation"]["score"] for line in checks)
    assert list(results["validation"]["fields"]) == ["paragraph"]
    assert results["data"] == {"images": 21, "used": 21, "pairs": 42}
    assert results["totals"]["pairs"] == 3 * 42 + 16
    assert results["totals"]["tokens_lost"] == 0
    assert results["max_lengths"] == {"captions": 77, "paragraph": 128}
    assert any("warm-up is 1 step," in note for note in results["notes"])
    assert results["collection"]["fingerprint"] == shapes.fingerprint
    assert results["text_fingerprint"] == whole.encoder.text_fingerprint
    assert whole.recipe.name == "c5"
    assert whole.config.batch_size == 8
    assert whole.config.temperature == 0.07


def test_only_text_weights_change_and_the_given_encoder_does_not(whole, encoder, random_blip):
    before, after = (
        load_file(folder / "model.safetensors")
        for folder in (random_blip, whole.folder / "checkpoint")
    )
    assert before.keys() == after.keys()
    text = set(encoder.text_tensors())
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed <= text
    assert {
        "text_proj.weight",
        "text_encoder.encoder.layer.0.attention.self.query.weight",
    } <= changed
    assert whole.encoder.vision_fingerprint == encoder.vision_fingerprint
    fresh = load_encoder(random_blip, device="cpu")
    assert encoder.text_fingerprint == fresh.text_fingerprint != whole.encoder.text_fingerprint
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_the_checkpoint_opens_in_plain_transformers(whole):
    from transformers import AutoTokenizer, BlipForImageTextRetrieval

    folder = whole.folder / "checkpoint"
    model = BlipForImageTextRetrieval.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)("a red star", return_tensors="pt")
    hidden = model.text_encoder(
        input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
    ).last_hidden_state
    theirs = torch.nn.functional.normalize(model.text_proj(hidden[:, 0]), dim=-1)
    ours = encode_texts(whole.encoder, ["a red star"], max_length=77).vectors
    torch.testing.assert_close(theirs.detach(), torch.from_numpy(ours), rtol=0, atol=1e-6)
    assert (folder / "preprocessor_config.json").is_file()


def test_five_steps_a_stop_and_five_are_ten_steps(whole, shapes, encoder, tmp_path, monkeypatch):
    def stops(*args, step: int, **rest):
        if step == 7:
            raise KeyboardInterrupt
        return accumulate_gradients(*args, step=step, **rest)

    monkeypatch.setattr(trainer, "accumulate_gradients", stops)
    with pytest.raises(KeyboardInterrupt):
        train(shapes, encoder, recipe="c5", out=tmp_path / "run", save_steps=5, **SHORT)
    monkeypatch.undo()
    # The state is that of step 6, the end of an epoch; the curve holds step 7 and half a line.
    log = tmp_path / "run" / "metrics.jsonl"
    with log.open("ab") as file:
        file.write(b'{"step": 8, "epo')
    assert not (tmp_path / "run" / "results.json").exists()
    # A convenience such as how often to save may change; the batch size may not.
    with pytest.raises(UsageError, match="batch_size is 8 there and 7 here"):
        train(shapes, encoder, recipe="c5", out=tmp_path / "run", **{**SHORT, "batch_size": 7})
    resumed = train(shapes, encoder, recipe="c5", out=tmp_path / "run", **SHORT)
    assert_same_run(whole, resumed)
    assert resumed.results["totals"] == whole.results["totals"]


SLOW_RUN = """
    import sys, time
    from paragrain.collection import Collection
    from paragrain.encoders.loading import load_encoder
    from paragrain.training import trainer

    accumulate = trainer.accumulate_gradients
    def slow(*args, step, **rest):
        if step >= 5:
            time.sleep(60)
        return accumulate(*args, step=step, **rest)
    trainer.accumulate_gradients = slow
    trainer.train(
        Collection.open(sys.argv[1]), load_encoder(sys.argv[2], device="cpu"), recipe="c5",
        out=sys.argv[3], batch_size=8, epochs=4, max_steps=10, learning_rate=1e-3, save_steps=1,
    )
"""


def test_a_killed_process_goes_on_with_the_same_curve(
    whole, shapes, encoder, random_blip, tmp_path
):
    out = tmp_path / "run"
    command = [sys.executable, "-c", textwrap.dedent(SLOW_RUN)]
    command += [str(shapes.folder), str(random_blip), str(out)]
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command, env={**os.environ, **threads}, stderr=subprocess.PIPE)
    log, deadline = out / "metrics.jsonl", time.monotonic() + 300
    while not log.is_file() or b'"step": 5' not in log.read_bytes():
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    resumed = train(shapes, encoder, recipe="c5", out=out, **SHORT)
    assert_same_run(whole, resumed)


def test_a_finished_run_is_given_back_and_another_refused(whole, shapes, encoder, monkeypatch):
    stamp = (whole.folder / "results.json").stat().st_mtime_ns
    monkeypatch.setattr(trainer, "accumulate_gradients", None)  # no step may be taken
    same = train(shapes, encoder, recipe="c5", out=whole.folder, **SHORT)
    assert same.results == whole.results
    assert (whole.folder / "results.json").stat().st_mtime_ns == stamp
    with pytest.raises(UsageError, match=r"recipe's positives .* or --overwrite it"):
        train(shapes, encoder, recipe="c1", out=whole.folder, **SHORT)


def test_overwrite_begins_anew(shapes, encoder, tmp_path):
    settings = {**SHORT, "max_steps": 1}
    train(shapes, encoder, recipe="c1", out=tmp_path / "run", **settings)
    run = train(shapes, encoder, recipe="c4", out=tmp_path / "run", overwrite=True, **settings)
    assert run.results["recipe"] == "c4"
    assert len([line for line in run.history if "loss" in line]) == 1


def test_a_folder_with_other_things_is_not_touched(shapes, encoder, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="holds no run"):
            train(shapes, encoder, out=tmp_path, overwrite=overwrite, **SHORT)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_run_yaml_repeats_the_run(whole, tmp_path):
    again = repeat(whole.folder, out=tmp_path / "again", progress=False)
    assert_same_run(whole, again)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(
    shapes, encoder, tmp_path, monkeypatch
):
    def broken(model, *args, step: int, **rest):
        report = accumulate_gradients(model, *args, step=step, **rest)
        return report._replace(losses={"loss": float("nan")}) if step == 3 else report

    monkeypatch.setattr(trainer, "accumulate_gradients", broken)
    with pytest.raises(ParagrainError, match=r"stopped at step 4, whose loss is nan"):
        train(shapes, encoder, out=tmp_path / "run", **SHORT)
    monkeypatch.undo()
    # What was saved is sound, and the run can go on from it.
    state = weights(Run.open(tmp_path / "run"))
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())
    run = train(shapes, encoder, out=tmp_path / "run", **SHORT)
    assert run.finished


def test_weights_that_overflow_stop_the_run(shapes, encoder, tmp_path):
    ill = encoder.trainable_copy()
    with torch.no_grad():
        ill.model.text_proj.weight.fill_(float("inf"))
    with pytest.raises(ParagrainError, match="stopped at step 1"):
        train(shapes, ill, out=tmp_path / "run", validation_split="train", **SHORT)


def test_half_precision_starts_train_in_float32(shapes, random_blip, tmp_path):
    half = load_encoder(random_blip, device="cpu").half()
    # The images are encoded by the float32 model: only the text side is of interest here.
    full = load_encoder(random_blip, device="cpu")
    full.model.text_encoder.half()
    full.model.text_proj.half()
    run = train(shapes, full, recipe="c1", out=tmp_path / "run", **{**SHORT, "max_steps": 2})
    saved = load_file(run.folder / "checkpoint" / "model.safetensors")
    for name in half.text_tensors():
        assert saved[name].dtype == torch.float32, name
    assert next(full.model.text_proj.parameters()).dtype == torch.float16


def test_a_collection_smaller_than_a_batch_without_validation(
    record, write_records, encoder, tmp_path
):
    few = write_records(tmp_path / "few", [record(number) for number in range(3)])
    run = train(few, encoder, recipe="c7", out=tmp_path / "run", epochs=2, progress=False)
    results = run.results
    assert (results["steps"], results["best_step"], results["best_score"]) == (2, 2, None)
    assert results["validation"] is None
    notes = " ".join(results["notes"])
    assert "the last weights are the best" in notes
    assert "all 3 images" in notes


def test_random_picks_are_redrawn_each_epoch(record, write_records, encoder, tmp_path, monkeypatch):
    few = write_records(tmp_path / "few", [record(number) for number in range(4)])
    seen: list[dict[int, str]] = []

    def watched(model, loss, batch, *args, **rest):
        rows = [record.id for record in batch.records]
        texts = (text.text for text in batch.texts)
        seen.append({rows[i]: t for i, t in zip(batch.text_image, texts, strict=True)})
        return accumulate_gradients(model, loss, batch, *args, **rest)

    monkeypatch.setattr(trainer, "accumulate_gradients", watched)
    train(few, encoder, recipe="c2", out=tmp_path / "run", epochs=6, progress=False)
    assert len(seen) == 6
    assert all(len({epoch[image] for epoch in seen}) > 1 for image in seen[0])


def test_validation_can_be_chosen(shapes, encoder, tmp_path):
    settings = {**SHORT, "max_steps": 1}
    with pytest.raises(UsageError, match=r"no text in 'description'"):
        train(
            shapes,
            encoder,
            out=tmp_path / "a",
            validation_texts=("captions", "description"),
            **settings,
        )
    run = train(
        shapes,
        encoder,
        out=tmp_path / "b",
        validation_split="train",
        validation_texts=("captions", "paragraph"),
        **settings,
    )
    assert list(run.results["validation"]["fields"]) == ["captions", "paragraph"]
    with pytest.raises(UsageError, match="no split 'dev'"):
        train(shapes, encoder, out=tmp_path / "c", validation_split="dev", **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lerning_rate": 1}, "no setting 'lerning_rate'"),
        ({"batch_size": 1}, "batch_size"),
        ({"max_length": {"paragraphs": 9}}, "no setting 'max_length.paragraphs'"),
        ({"precision": "bf16"}, "slower than fp32 on a CPU"),
        ({"split": "training"}, "no split 'training'"),
        ({"recipe": "c11"}, "no recipe 'c11'"),
    ],
)
def test_wrong_requests_are_one_sentence_and_leave_nothing(
    shapes, encoder, tmp_path, settings, words
):
    with pytest.raises(UsageError) as caught:
        train(shapes, encoder, out=tmp_path / "run", progress=False, **settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_where_it_writes_by_default_is_said(
    record, write_records, encoder, tmp_path, monkeypatch, capsys
):
    few = write_records(tmp_path / "few", [record(number) for number in range(2)])
    monkeypatch.chdir(tmp_path)
    run = train(few, encoder, recipe="c1", max_steps=1, seed=3)
    assert run.folder == Path("runs/c1-seed3")
    assert "into runs/c1-seed3" in capsys.readouterr().err
    assert json.loads((tmp_path / "runs/c1-seed3/results.json").read_bytes())["seed"] == 3
