"""A disk, a quota or a file that is full: one sentence that names the place, and a way on."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import ParagrainError
from paragrain.evaluation import evaluate, load_result
from paragrain.files import write_json
from paragrain.training.checkpoints import MetricsLog


@contextmanager
def room(bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: the kernel says EFBIG."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("checkpoint/model.safetensors", ()),
        ("last/state.safetensors", ("--set", "save_steps=1")),
    ],
)
def test_a_training_that_runs_out_of_room_goes_on(
    world: Collection, paragrain: Callable, random_blip: Path, tmp_path: Path, file, settings
) -> None:
    words = ("train", world.folder, "--model", random_blip, "--recipe", "c4", "--batch-size", 8,
             "--set", "max_steps=3", "--seed", 3, *settings)  # fmt: skip
    assert paragrain(*words, "--out", tmp_path / "whole").code == 0
    out = tmp_path / "r"
    with room((tmp_path / "whole" / file).stat().st_size - 100):
        done = paragrain(*words, "--out", out)
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if line.startswith("paragrain:")]
    assert file.split("/")[0] in line
    assert "make room" in line
    assert not list(out.rglob("*.tmp"))
    again = paragrain(*words, "--out", out)
    assert again.code == 0, again.err
    weights = (
        (folder / "checkpoint" / "model.safetensors").read_bytes()
        for folder in (out, tmp_path / "whole")
    )
    assert next(weights) == next(weights)


def test_a_result_that_does_not_fit_leaves_the_old_one(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    result = evaluate(world, encoder, texts="captions", max_length=20, progress=False)
    for name in ("r.json", "r.csv"):
        result.save(tmp_path / name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("r.json", "r.csv"):
        with room(200), pytest.raises(ParagrainError, match=r"r\.\w+ cannot be written \(File too"):
            result.save(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert load_result(tmp_path / "r.json").queries.fingerprint == result.queries.fingerprint


def test_vectors_that_do_not_fit_are_told(
    paragrain: Callable, random_blip: Path, tmp_path: Path, write_world
) -> None:
    data = write_world(tmp_path / "w")
    with room(1000):
        done = paragrain("embed", data, "--model", random_blip)
    assert done.code == 1
    assert "make room" in done.err
    assert "Traceback" not in done.err
    done = paragrain("embed", data, "--model", random_blip, "--json")
    assert (done.code, done.json["failed"]) == (0, [])


def test_small_files_and_lines_are_told_too(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(step=1, loss=1.0)
    with room(40):
        with pytest.raises(ParagrainError, match=r"metrics\.jsonl cannot be written"):
            log.append(step=2, loss=1.0, more="x" * 50)
        with pytest.raises(ParagrainError, match=r"a\.json cannot be written"):
            write_json(tmp_path / "a.json", np.zeros(50).tolist())
    log.trim(1)
    assert log.read() == [{"step": 1, "loss": 1.0}]


@pytest.fixture
def write_world() -> Callable[[Path], Path]:
    from paragrain.sources.scenes import import_scenes

    def make(folder: Path) -> Path:
        import_scenes(folder, size=12, seed=4, progress=False)
        return folder

    return make
