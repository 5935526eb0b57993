"""Measuring an encoder on a collection, with a full account of what was measured."""

from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.evaluate import evaluate, sweep, sweep_benchmark
from paragrain.evaluation.results import Result

__all__ = ["Benchmark", "Result", "evaluate", "sweep", "sweep_benchmark"]
