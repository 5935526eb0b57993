"""Measuring an encoder on a collection, with a full account of what was measured."""

from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.compare import Comparison, compare
from paragrain.evaluation.contamination import with_parts
from paragrain.evaluation.evaluate import (
    default_max_length,
    evaluate,
    evaluate_models,
    load_benchmark,
    split_of,
    sweep,
    sweep_benchmark,
)
from paragrain.evaluation.plots import save_sweep_figure, sweep_figure
from paragrain.evaluation.protocols import Protocol, load_protocol, protocols
from paragrain.evaluation.query_ranks import QueryRanks
from paragrain.evaluation.results import (
    Result,
    SavedResult,
    check_out,
    figure_path,
    frame,
    load_result,
    models_in,
    result_entries,
    save_results,
    trained_on_lines,
)

__all__ = [
    "Benchmark",
    "Comparison",
    "Protocol",
    "QueryRanks",
    "Result",
    "SavedResult",
    "check_out",
    "compare",
    "default_max_length",
    "evaluate",
    "evaluate_models",
    "figure_path",
    "frame",
    "load_benchmark",
    "load_protocol",
    "load_result",
    "models_in",
    "protocols",
    "result_entries",
    "save_results",
    "save_sweep_figure",
    "split_of",
    "sweep",
    "sweep_benchmark",
    "sweep_figure",
    "trained_on_lines",
    "with_parts",
]
