"""Several processes that share the work of a step; with one process nothing here does anything.

Started by `accelerate launch` or `torchrun`. Every process holds the same data and the same
weights, encodes its part of each step's texts, and sees the vectors of all. The gradients are
summed, so that the step is the one that a single process would have taken.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from accelerate import PartialState
from accelerate.utils import gather
from torch import Tensor

from paragrain.errors import UsageError


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def join(cls, device: torch.device) -> "Processes":
        """Join the other processes, if this one was started among several.

        Raises:
            UsageError: there are several, and `device` is not the GPU of this one.
        """
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        if not several and not torch.distributed.is_initialized():
            return cls()
        state = PartialState(cpu=device.type == "cpu")
        if device.type == "cuda" and device.index != state.device.index:
            raise UsageError(
                f"process {state.process_index} works on {state.device} but its encoder is on "
                f"{device}: load it with device={str(state.device)!r}"
            )
        return cls(state.process_index, state.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def part(self, total: int, rank: int | None = None) -> slice:
        """The part of `total` items that this process (or the one named) works on.

        >>> [Processes(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        rank = self.rank if rank is None else rank
        return slice(total * rank // self.world_size, total * (rank + 1) // self.world_size)

    def gather_parts(self, part: Tensor, total: int) -> Tensor:
        """Put the parts `[n, ...]` of all processes together to `[total, ...]`; no gradient."""
        if self.world_size == 1:
            return part
        # Collectives want equal sizes: the shorter parts are padded, and the padding taken out.
        slices = [self.part(total, rank) for rank in range(self.world_size)]
        sizes = [s.stop - s.start for s in slices]
        padded = part.new_zeros((max(sizes), *part.shape[1:]))
        padded[: len(part)] = part
        everything = gather(padded).view(self.world_size, max(sizes), *part.shape[1:])
        return torch.cat([everything[rank, :size] for rank, size in enumerate(sizes)])

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over the processes."""
        if self.world_size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def max_(self, value: int) -> int:
        """The largest of a value over the processes."""
        if self.world_size == 1:
            return value
        return int(gather(torch.tensor([value], device=PartialState().device)).max())

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes."""
        if self.world_size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # no text fell to this process
                parameter.grad = torch.zeros_like(parameter)
            self.sum_(parameter.grad)

    def barrier(self) -> None:
        """Wait until all processes have come this far."""
        if self.world_size > 1:
            torch.distributed.barrier()

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let the first process go through the block alone, then the others."""
        if not self.is_main:
            self.barrier()
        try:
            yield
        finally:
            if self.is_main:
                self.barrier()
