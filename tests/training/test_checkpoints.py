import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from paragrain.encoders.loading import load_encoder
from paragrain.errors import ParagrainError
from paragrain.training.checkpoints import (
    MetricsLog,
    Progress,
    load_progress,
    save_progress,
)
from paragrain.training.config import TrainConfig
from paragrain.training.optimizer import make_optimizer, trained
from paragrain.training.trainer import train


class Tied(nn.Module):
    """A model that uses one tensor in two places, as language models tie input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embedding.weight

    def parts(self):
        named = dict(self.named_parameters(remove_duplicate=False))
        parameters = trained(named)
        return named, parameters, make_optimizer(parameters, TrainConfig(learning_rate=0.1))

    def learn(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        hidden = self.norm(self.embedding(torch.arange(5)))
        self.out(hidden).square().sum().backward()
        optimizer.step()


def test_tied_tensors_save_and_reload(tmp_path):
    torch.manual_seed(0)
    model = Tied()
    named, parameters, optimizer = model.parts()
    assert len(named) == 4
    assert list(parameters) == ["embedding.weight", "norm.weight", "norm.bias"]
    for _ in range(3):
        model.learn(optimizer)
    path = tmp_path / "state.safetensors"
    save_progress(path, Progress(step=3, totals={"pairs": 9}), parameters, optimizer)

    twin = Tied()
    _, twin_parameters, twin_optimizer = twin.parts()
    progress = load_progress(path, twin_parameters, twin_optimizer)
    assert (progress.step, progress.totals) == (3, {"pairs": 9})
    assert twin.out.weight is twin.embedding.weight
    for one, two in ((model, optimizer), (twin, twin_optimizer)):
        one.learn(two)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, twin_parameters[name])


def test_a_damaged_state_is_one_sentence(tmp_path):
    model = Tied()
    _, parameters, optimizer = model.parts()
    path = tmp_path / "state.safetensors"
    save_progress(path, Progress(), parameters, optimizer)
    data = path.read_bytes()
    for damaged in (data[:50], data[:-20], b"", b"PK" + data):
        path.write_bytes(damaged)
        with pytest.raises(ParagrainError, match="cannot be used") as caught:
            load_progress(path, parameters, optimizer)
        assert "\n" not in str(caught.value)
    save_file({"weight/other": torch.zeros(1)}, path, {"format": "1", "progress": "{}"})
    with pytest.raises(ParagrainError, match="cannot be used"):
        load_progress(path, parameters, optimizer)


def test_a_log_loses_a_torn_tail_and_what_is_past_the_step(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.read() == []
    for step in range(1, 4):
        log.append(step=step, loss=1 / step)
    with log.path.open("ab") as file:
        file.write(b'{"step": 4, "lo')
    assert [line["step"] for line in log.read()] == [1, 2, 3]
    log.trim(2)
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [1, 2]
    log.append(step=3, loss=0.5)
    assert log.read()[-1] == {"step": 3, "loss": 0.5}
    with pytest.raises(ValueError, match="JSON compliant"):
        log.append(step=4, loss=float("nan"))


def test_a_checkpoint_whose_keys_begin_with_module_trains_and_reloads(
    random_blip, shapes, tmp_path
):
    folder = tmp_path / "wrapped"
    folder.mkdir()
    for path in random_blip.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    state = load_file(random_blip / "model.safetensors")
    wrapped = {f"module.{key}": value for key, value in state.items()}
    save_file(wrapped, folder / "model.safetensors", {"format": "pt"})
    start = load_encoder(folder, device="cpu")
    run = train(shapes, start, recipe="c1", out=tmp_path / "run", max_steps=1, progress=False)
    saved = load_file(run.folder / "checkpoint" / "model.safetensors")
    assert saved.keys() == state.keys()
    assert run.encoder.text_fingerprint == run.results["text_fingerprint"]
