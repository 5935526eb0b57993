import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paragrain.training.distributed import Processes
from paragrain.training.runs import Run

SCRIPT = Path(__file__).with_name("two_processes.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def in_two_processes(arguments: list[str]) -> None:
    """Run the script in two processes, as `torchrun` would."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, str(SCRIPT), *arguments]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        for process in running:
            _, errors = process.communicate(timeout=400)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in running:
            process.kill()


def test_two_processes_take_the_same_step_as_one(shapes, random_blip, tmp_path):
    """Batch 8 on one process against 4 + 4 on two: same loss, gradients and, later, weights."""
    # c7 has hard negatives: some texts have no part in text to image.
    arguments = [str(shapes.folder), str(random_blip), "c7"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    runpy.run_path(str(SCRIPT))["main"](*arguments, str(tmp_path / "one"))
    in_two_processes([*arguments, str(tmp_path / "two")])
    for case in ("text", "vision", "states"):
        one = load_file(tmp_path / "one" / f"{case}-0.safetensors")
        assert ("vision_proj.weight" in one) == (case != "text")
        assert ("contrastive.log_temperature" in one) == (case == "vision")
        assert ("states.bridge.weight" in one) == (case == "states")
        for rank in range(2):
            two = load_file(tmp_path / "two" / f"{case}-{rank}.safetensors")
            assert one.keys() == two.keys()
            for name, gradient in one.items():
                torch.testing.assert_close(two[name], gradient, rtol=1e-5, atol=1e-6)

        runs = [Run.open(tmp_path / name / f"{case}-run") for name in ("one", "two")]
        losses = [[line["loss"] for line in run.history if "loss" in line] for run in runs]
        assert losses[1] == pytest.approx(losses[0], abs=1e-4)
        assert len(losses[0]) == 4
        assert runs[0].results["totals"] == runs[1].results["totals"]
        assert runs[1].settings["made_with"]["processes"] == 2


def test_one_process_does_nothing(encoder):
    processes = Processes.join(encoder.device)
    assert (processes.rank, processes.world_size, processes.is_main) == (0, 1, True)
    assert not torch.distributed.is_initialized()
    tensor = torch.ones(3, 2)
    assert processes.gather_parts(tensor, 3) is tensor
    assert processes.sum_(tensor) is tensor
    parameter = torch.nn.Parameter(torch.zeros(2))
    processes.sum_gradients([parameter])
    assert parameter.grad is None
    processes.barrier()
    with processes.main_first():
        pass


def test_the_parts_are_all_of_it():
    for count in (1, 2, 3, 7):
        for total in (0, 1, 5, 8, 100):
            parts = [Processes(rank, count).part(total) for rank in range(count)]
            assert [i for part in parts for i in range(total)[part]] == list(range(total))
