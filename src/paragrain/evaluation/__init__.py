"""Measuring an encoder on a collection, with a full account of what was measured."""

from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.compare import Comparison, compare
from paragrain.evaluation.evaluate import evaluate, sweep, sweep_benchmark
from paragrain.evaluation.protocols import Protocol, load_protocol, protocols
from paragrain.evaluation.results import Result, SavedResult, load_result, save_sweep
from paragrain.evaluation.stored import QueryRanks

__all__ = [
    "Benchmark",
    "Comparison",
    "Protocol",
    "QueryRanks",
    "Result",
    "SavedResult",
    "compare",
    "evaluate",
    "load_protocol",
    "load_result",
    "protocols",
    "save_sweep",
    "sweep",
    "sweep_benchmark",
]
