"""The cells of a study in worker processes.

Importing this module must not import torch: a worker sets its threads before that.
"""

import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

from paragrain.runtime import tune

if TYPE_CHECKING:
    from paragrain.study.plan import Cell, Study


def run_cells(
    study: "Study",
    cells: Sequence["Cell"],
    out: Path,
    workers: int,
    threads: int,
    device: str | None,
) -> Iterator[tuple["Cell", dict[str, float], str]]:
    """(cell, seconds, problem) of each cell as it ends, `workers` at a time."""
    if workers == 1:
        for cell in cells:
            yield cell, *_run_cell(study, cell, out, device)
        return
    left = list(cells)
    while left:
        died = yield from _pooled(study, left, out, workers, threads, device)
        if died and workers == 1:  # they run in order, so that it was the first of them
            yield died.pop(0), {}, "its process died: is there enough memory?"
        left, workers = died, 1


def _pooled(
    study: "Study",
    cells: Sequence["Cell"],
    out: Path,
    workers: int,
    threads: int,
    device: str | None,
) -> Generator[tuple["Cell", dict[str, float], str], None, list["Cell"]]:
    """As `run_cells`; gives back the cells that are not done since a process died."""
    context = multiprocessing.get_context("spawn")  # torch and numba do not survive a fork
    with ProcessPoolExecutor(workers, context, initializer=_set_up, initargs=(threads,)) as pool:
        try:
            futures = {pool.submit(_run_cell, study, cell, out, device): cell for cell in cells}
            for future in as_completed(futures):
                if not isinstance(future.exception(), BrokenProcessPool):
                    yield futures[future], *future.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return [cell for future, cell in futures.items() if future.exception() is not None]


def _set_up(threads: int) -> None:
    """Give this process its share of the cores, before numeric libraries are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(threads)
    tune()
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End with the process that started this one, also if that was killed without a word."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_cell(
    study: "Study", cell: "Cell", out: Path, device: str | None
) -> tuple[dict[str, float], str]:
    """Run a cell of a study.

    Returns:
        seconds of its parts, and why it failed, or "".
    """
    from paragrain.errors import ParagrainError
    from paragrain.study.cells import run_cell
    from paragrain.study.data import open_collections

    try:
        return run_cell(study, cell, out, open_collections(study, out), device=device), ""
    except ParagrainError as error:
        return {}, str(error)
    except Exception as error:  # another cell may still succeed; this one is named
        return {}, f"{type(error).__name__}: {error}"
