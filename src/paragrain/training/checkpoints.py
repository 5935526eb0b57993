"""What a run needs to go on after a kill, in one file that is whole or absent.

`last/state.safetensors` holds the weights that train, the buffers of the objectives, the moments of
the optimiser and, as JSON in its header, where the run was. The learning rate, the order of the
data, the random selections and dropout are functions of seed and step, and need no saving. There is
no pickle.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from paragrain.errors import ParagrainError
from paragrain.files import NO_ROOM, no_room, replacing, write_text
from paragrain.training.gradients import StepReport


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        step: steps done.
        images: that it trains on, without which a resumed run would see others in each step.
        best_step: the step whose weights are in `checkpoint/`; `None` before the first.
        best_score: its validation score; `None` without a validation split.
        best_fingerprint: `text_fingerprint` of those weights.
        best_vision_fingerprint: their `vision_fingerprint`, where vision trains.
        seconds: time spent training.
        totals: sums over all steps: images, pairs, texts, tokens, texts truncated, tokens lost.
    """

    step: int = 0
    images: int = 0
    best_step: int | None = None
    best_score: float | None = None
    best_fingerprint: str | None = None
    best_vision_fingerprint: str | None = None
    seconds: float = 0.0
    totals: dict[str, int] = field(default_factory=dict)

    def count(self, report: StepReport, seconds: float) -> None:
        """Count one step more."""
        self.step += 1
        self.seconds += seconds
        for name in ("pairs", "texts", "tokens", "texts_truncated", "tokens_lost"):
            self.totals[name] = self.totals.get(name, 0) + getattr(report, name)


def save_progress(
    path: Path,
    progress: Progress,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    buffers: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, buffers, optimiser and progress to `path`, in the place of what was there.

    Raises:
        ParagrainError: there is no room.
    """
    state: dict[str, Tensor] = {f"weight/{name}": weight for name, weight in parameters.items()}
    state |= {f"buffer/{name}": buffer for name, buffer in (buffers or {}).items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{key}/{name}"] = torch.as_tensor(value)
    # Clones, since buffers may share memory, which safetensors refuses.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    header = {"progress": json.dumps(asdict(progress), allow_nan=False)}
    try:
        with replacing(path) as temporary:
            save_file(tensors, temporary, header)
    except SafetensorError as error:
        raise no_room(path, error) from error


def load_progress(
    path: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    buffers: Mapping[str, Tensor] | None = None,
) -> Progress:
    """Put saved weights, buffers and optimiser back in place, and say how far the run had come.

    A run that was never saved starts at step 0.

    Raises:
        ParagrainError: the file is damaged, or belongs to another model.
    """
    if not path.is_file():
        return Progress()
    places: dict[str, Tensor] = {f"weight/{name}": tensor for name, tensor in parameters.items()}
    places |= {f"buffer/{name}": tensor for name, tensor in (buffers or {}).items()}
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # Copied, since the tensors that `safe_open` gives may be views of the mapped file,
            # and the next save takes its place.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        with torch.no_grad():
            for name, place in places.items():
                tensor = tensors.pop(name)
                if tensor.shape != place.shape:
                    shapes = f"{list(tensor.shape)} where {list(place.shape)} is needed"
                    raise ValueError(f"a weight of shape {shapes}")
                place.copy_(tensor)
        for key, value in tensors.items():
            kind, name = key.split("/", 1)
            parameter = parameters[name]
            # AdamW counts its steps on the CPU, unless it is fused.
            on_cpu = kind == "step" and not optimizer.defaults.get("fused")
            device = "cpu" if on_cpu else parameter.device
            optimizer.state.setdefault(parameter, {})[kind] = value.to(device)
        return Progress(**json.loads(header["progress"]))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise ParagrainError(
            f"the saved state {path} cannot be used ({error}): train with --overwrite to start anew"
        ) from None


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line, only ever appended to.

    After a kill, `trim` drops a torn last line and every line after the saved step, so that the
    resumed run writes the very curve that the uninterrupted one would have written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, **line: Any) -> None:
        """Write one line at once; a NaN is refused.

        Raises:
            ParagrainError: there is no room.
        """
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise no_room(self.path, error) from error

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        data = self.path.read_bytes() if self.path.is_file() else b""
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def trim(self, step: int) -> None:
        """Keep the lines up to `step` only."""
        kept = [line for line in self.read() if line["step"] <= step]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
