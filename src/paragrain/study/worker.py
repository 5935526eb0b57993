"""What a worker process of a study runs. Importing this module must not import torch."""

import multiprocessing
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from paragrain.runtime import tune

if TYPE_CHECKING:
    from paragrain.study.plan import Cell, Study


def set_up(threads: int) -> None:
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


def work(
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
