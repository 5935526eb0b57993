"""What the cells of a study found, over their seeds: recalls with intervals, and differences.

Intervals and p-values hold both sources of spread: which queries happened to be in the benchmark
(bootstrap over groups of images) and which seed a training had (Student's t over the seeds); see
`paragrain.evaluation.compare`, whose arithmetic this is, for many models at once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paragrain.errors import ParagrainError
from paragrain.evaluation import load_result, result_entries
from paragrain.evaluation.compare import Spread, with_seeds
from paragrain.evaluation.stored import DIRECTIONS, KS
from paragrain.retrieval.bootstrap import RESAMPLES, Units, interval, resample, two_sided
from paragrain.study.cells import curve_path, result_path
from paragrain.study.plan import Study

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Estimate:
    """Recall of one model in percent.

    Attributes:
        mean: over its seeds.
        low, high: 95 % interval of the mean, from queries and seeds together.
        recalls: of each seed.
        draws: [R] draws of the mean; those of two models on one benchmark are paired.
        queries: [R] the same draws with the seeds as they are.
    """

    mean: float
    low: float
    high: float
    recalls: tuple[float, ...]
    draws: np.ndarray
    queries: np.ndarray

    @classmethod
    def mean_of(cls, estimates: "Sequence[Estimate]") -> "Estimate":
        """The mean over several benchmarks of one model."""
        # How benchmarks go together, by common images or seeds, is not known; sorted draws take
        # them as wholly bound to each other, so that the interval is rather too wide.
        draws, queries = (
            np.mean([np.sort(side) for side in sides], axis=0)
            for sides in zip(*((one.draws, one.queries) for one in estimates), strict=True)
        )
        low, high = interval(draws[:, None])[:, 0].tolist()
        recalls = np.mean([estimate.recalls for estimate in estimates], axis=0).tolist()
        mean = float(np.mean([estimate.mean for estimate in estimates]))
        return cls(mean, low, high, tuple(recalls), draws, queries)

    @property
    def text(self) -> str:
        """Such as "41.4 ± 1.9"; the half width of the interval."""
        return f"{self.mean:.1f} ± {(self.high - self.low) / 2:.1f}"


@dataclass(frozen=True)
class Difference:
    """One model less another, in percentage points, with a 95 % interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, first: Estimate, second: Estimate) -> "Difference":
        """The second less the first, on the same draws of queries."""
        return cls.from_draws(second.mean - first.mean, second.draws - first.draws)

    @classmethod
    def within(cls, first: Estimate, second: Estimate) -> "Difference":
        """The second less the first of one model, whose seeds are paired as its queries are."""
        changes = np.subtract(second.recalls, first.recalls)
        draws = second.queries - first.queries
        spread = Spread.of(changes, float(np.nanstd(draws)))
        rng = np.random.default_rng([0, 2])
        moved = with_seeds(draws, spread, len(changes), rng)
        return cls.from_draws(float(changes.mean()), moved)

    @classmethod
    def from_draws(cls, value: float, draws: np.ndarray) -> "Difference":
        """From draws [R] of the difference."""
        draws = np.round(draws[~np.isnan(draws)], 9) + 0.0
        low, high = interval(draws[:, None])[:, 0].tolist()
        return cls(value, low, high, two_sided(draws))

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05; no correction for the number of comparisons."""
        return self.p < SIGNIFICANT

    @property
    def text(self) -> str:
        """Such as "+3.1 (1.2 to 5.0)"."""
        return f"{self.value:+.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True)
class Column:
    """One benchmark, direction and K of a table."""

    benchmark: str
    direction: str
    k: int = 1


@dataclass(frozen=True)
class Scores:
    """All estimates of a study.

    Attributes:
        recalls: by model and column.
        curves: by curve, model and direction: R@1 at each budget.
        missing: labels of cells that have not all their results.
    """

    recalls: Mapping[str, Mapping[Column, Estimate]]
    curves: Mapping[str, Mapping[str, Mapping[str, Mapping[int, Estimate]]]]
    missing: Sequence[str]

    def difference(self, first: str, second: str, column: Column) -> Difference | None:
        """The second model less the first; None if one of the two was not measured."""
        one, other = (self.recalls.get(name, {}).get(column) for name in (first, second))
        return None if one is None or other is None else Difference.of(one, other)

    def marks(self, models: Sequence[str], column: Column) -> dict[str, str]:
        """The best and the second best model of a column, each only if all behind it are worse.

        Returns:
            "best" and "second" by model; a place that is shared within the error goes to nobody,
            and so does the second if the first is shared.
        """
        ranked = sorted(
            (name for name in models if column in self.recalls.get(name, {})),
            key=lambda name: -self.recalls[name][column].mean,
        )
        found = {}
        for place, title in enumerate(("best", "second")):
            gaps = [self.difference(n, ranked[place], column) for n in ranked[place + 1 :]]
            if not gaps or not all(gap is not None and gap.significant for gap in gaps):
                break
            found[ranked[place]] = title
        return found


def read_scores(study: Study, out: Path) -> Scores:
    """Read every result of a study that is there, and estimate."""
    recalls: dict[str, dict[Column, Estimate]] = {}
    missing: dict[str, None] = {}
    for benchmark in study.file.benchmarks:
        found: dict[str, list[_Hits]] = {}
        names = [(direction, k) for direction in DIRECTIONS for k in KS]
        for name, cells in study.models.items():
            for cell in cells if benchmark in study.benchmarks(name) else ():
                path = result_path(study, cell, benchmark, out)
                if path.is_file():
                    found.setdefault(name, []).append(_Hits.load(path, None, names))
                else:
                    missing[cell.label] = None
        for (name, direction, k), estimate in _estimates(found, names).items():
            recalls.setdefault(name, {})[Column(benchmark, direction, k)] = estimate
    curves = _curves(study, out, missing)
    return Scores(recalls, curves, list(missing))


def _curves(
    study: Study, out: Path, missing: dict[str, None]
) -> dict[str, dict[str, dict[str, dict[int, Estimate]]]]:
    """Estimates of every curve; a budget that a model cannot read is no part of its line."""
    curves: dict[str, dict[str, dict[str, dict[int, Estimate]]]] = {}
    names = [(direction, 1) for direction in DIRECTIONS]
    for curve, spec in study.file.curves.items():
        found: dict[tuple[str, int], list[_Hits]] = {}
        for name in spec.cells:
            for cell in study.models[name]:
                path = curve_path(study, cell, curve, out)
                if not path.is_file():
                    missing[cell.label] = None
                    continue
                there = [entry["protocol"]["token_budget"] for entry in result_entries(path)]
                for budget in (budget for budget in spec.budgets if budget in there):
                    hits = _Hits.load(path, budget, names)
                    found.setdefault((name, budget), []).append(hits)
        estimates = _estimates(found, names)
        for ((name, budget), direction, _), estimate in estimates.items():
            lines = curves.setdefault(curve, {}).setdefault(name, {})
            lines.setdefault(direction, {})[budget] = estimate
    return curves


@dataclass(frozen=True)
class _Hits:
    """What the estimates need of a result; the ranks themselves are thirty times as large.

    Attributes:
        path: of the result.
        asked: hash of the images and of the groups and texts that ask.
        units: sums of hits, a column for each direction and K.
    """

    path: Path
    asked: bytes
    units: Units

    @classmethod
    def load(cls, path: Path, budget: int | None, names: Sequence[tuple[str, int]]) -> "_Hits":
        queries = load_result(path, budget).queries
        asked = hashlib.blake2b("\n".join(queries.ids).encode())
        for part in (queries.groups, queries.text_image):
            asked.update(part.tobytes())
        return cls(path, asked.digest(), Units.of([queries.hits(*name) for name in names]))


def _estimates(found: Mapping, names: Sequence[tuple[str, int]]) -> dict:
    """Estimates by (key, direction, k) of results by key, all on the same draws of queries.

    Raises:
        ParagrainError: two results were not measured on the same images.
    """
    if not found:
        return {}
    everyone = [result for results in found.values() for result in results]
    for other in everyone[1:]:
        if other.asked != everyone[0].asked:
            raise ParagrainError(
                f"{everyone[0].path} and {other.path} were measured on different images: "
                "delete both, and run the study again"
            )
    units = Units(
        np.hstack([result.units.sums for result in everyone]),
        np.hstack([result.units.counts for result in everyone]),
    )
    shape = (-1, len(everyone), len(names))
    draws = 100 * resample(units, resamples=RESAMPLES, seed=0).reshape(shape)
    means = 100 * units.means.reshape(shape[1:])
    rng = np.random.default_rng([0, 1])
    estimates = {}
    first = 0
    for key, results in found.items():
        own = slice(first, first := first + len(results))
        for place, (direction, k) in enumerate(names):
            recalls, drawn = means[own, place], draws[:, own, place]
            queries = drawn.mean(1)
            spread = Spread.of(recalls, float(np.nanstd(queries)))
            moved = with_seeds(queries, spread, len(recalls), rng)
            low, high = interval(moved[:, None])[:, 0].tolist()
            estimates[key, direction, k] = Estimate(
                float(recalls.mean()), low, high, tuple(recalls.tolist()), moved, queries
            )
    return estimates
