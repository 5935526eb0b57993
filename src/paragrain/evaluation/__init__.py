"""Measuring an encoder on a collection, with a full account of what was measured."""

from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.compare import Comparison, compare
from paragrain.evaluation.evaluate import (
    evaluate,
    load_benchmark,
    split_of,
    sweep,
    sweep_benchmark,
)
from paragrain.evaluation.parts import with_parts
from paragrain.evaluation.plots import save_sweep_figure, sweep_figure
from paragrain.evaluation.protocols import Protocol, load_protocol, protocols
from paragrain.evaluation.results import (
    Result,
    SavedResult,
    check_out,
    figure_path,
    load_result,
    save_sweep,
)
from paragrain.evaluation.stored import QueryRanks

__all__ = [
    "Benchmark",
    "Comparison",
    "Protocol",
    "QueryRanks",
    "Result",
    "SavedResult",
    "check_out",
    "compare",
    "evaluate",
    "figure_path",
    "load_benchmark",
    "load_protocol",
    "load_result",
    "protocols",
    "save_sweep",
    "save_sweep_figure",
    "split_of",
    "sweep",
    "sweep_benchmark",
    "sweep_figure",
    "with_parts",
]
