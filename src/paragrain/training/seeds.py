"""One training for each of several seeds, and what they have in common."""

import statistics
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.runs import Run
from paragrain.training.trainer import train


def parse_seeds(text: str) -> list[int]:
    """Seeds as they are written: single ones and ranges, with commas between.

    Raises:
        UsageError: it is no such list, or names a seed twice.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--seeds takes numbers such as 0-4 or 0,1,2, not {text!r}")
        seeds += range(int(first), int(last or first) + 1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text} names {'one twice' if seeds else 'none'}: try 0-4")
    return seeds


def train_seeds(
    collection: Collection | str | PathLike[str],
    encoder: ImageTextEncoder | str | PathLike[str],
    seeds: Sequence[int],
    *,
    out: str | Path | None = None,
    config: TrainConfig | None = None,
    **arguments: Any,
) -> list[Run]:
    """`train` for each seed, one after another; what is finished is given back as it is.

    Args:
        collection, encoder, config: as in `train`.
        seeds: of the runs.
        out: folder for the runs, each in `seed<N>` below it; as in `train` if not given.
        **arguments: further ones of `train`.

    Raises:
        UsageError, ParagrainError: see `train`.
    """
    return [
        train(
            collection,
            encoder,
            out=None if out is None else Path(out) / f"seed{seed}",
            config=make_config(config, {"seed": seed}),
            **arguments,
        )
        for seed in seeds
    ]


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """The validation scores of several seeds, their mean and their spread.

    Returns:
        `seeds`, `scores` (mean R@1 of both directions in percent), `mean`, and `deviation`: the
        standard deviation between seeds (divisor S - 1), None with one seed. All but the seeds are
        None without a validation split.
    """
    scores = [run.results["best_score"] for run in runs]
    summary: dict[str, Any] = {
        "seeds": [run.config.seed for run in runs],
        "scores": None,
        "mean": None,
        "deviation": None,
    }
    if None not in scores:
        summary |= {"scores": scores, "mean": statistics.fmean(scores)}
        summary["deviation"] = statistics.stdev(scores) if len(scores) > 1 else None
    return summary
