"""What the cells of a study found, over their seeds: recalls with intervals, and differences.

Intervals and p-values hold both sources of spread: which queries happened to be in the benchmark
(bootstrap over groups of images) and which seed a training had (Student's t over the seeds); see
`paragrain.evaluation.compare`, whose arithmetic this is, for many models at once, on a scale that
has ends: `bounded`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paragrain.errors import ParagrainError
from paragrain.evaluation import load_result, result_entries, trained_on_lines
from paragrain.evaluation.stored import DIRECTIONS, KS
from paragrain.stats import RESAMPLES, Estimate, Units, interval, resample, with_seeds
from paragrain.study.cells import curve_path, result_path
from paragrain.study.plan import Study

METHOD = (
    "Intervals are of 95 %: bootstrap over groups of images with their texts (2,000 draws), "
    "widened by the spread between seeds (Student's t) on the arcsine scale of a proportion, so "
    "that none reaches below 0 or above 100; where no query of any seed is missed, or none is "
    "found, the exact binomial bound. Differences are paired on the queries."
)
"""How the intervals of this module are made, for reports; kept with the numbers."""


def bounded(
    draws: np.ndarray,
    seeds: Sequence[float],
    rng: np.random.Generator,
    ends: tuple[float, float] = (0.0, 100.0),
) -> np.ndarray:
    """Draws [R] of a mean over seeds, moved by what the seeds leave open, never past the ends.

    As `with_seeds`, on the angle asin(sqrt(p)), where p is the place between the ends: on it a
    proportion varies by the same amount everywhere (Anscombe 1948), and it has ends of its own.

    Args:
        draws: of the mean over the seeds, from the queries.
        seeds: the number of each of the S seeds; one moves nothing, since it cannot tell.
        rng: draws Student's t with S - 1 degrees of freedom.
        ends: of the scale: 0 and 100 for a recall, -100 and 100 for a difference.

    >>> moved = bounded(np.full(1000, 1.0), [0.0, 2.0], np.random.default_rng(0))
    >>> bool(moved.min() >= 0), bool(moved.max() <= 100)
    (True, True)
    """
    if len(seeds) < 2:
        return draws
    low, width = ends[0], ends[1] - ends[0]

    def angle(value: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.arcsin(np.sqrt(np.clip((value - low) / width, 0, 1)))
        return found

    moved = with_seeds(angle(draws), angle(np.asarray(seeds)).tolist(), rng)
    back: np.ndarray = low + width * np.sin(np.clip(moved, 0, np.pi / 2)) ** 2
    return back


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over several benchmarks of one model.

    How benchmarks go together, by common images or seeds, is not known. They are taken as
    wholly bound to each other, so that bounds add up and the interval is rather too wide.

    >>> mean_of([Estimate(40.0, 38.0, 42.0), Estimate(60.0, 55.0, 64.0)])
    Estimate(value=50.0, low=46.5, high=53.0, n=None, p=None, seeds=())
    """
    value, low, high = (
        float(np.mean([getattr(one, part) for one in estimates]))
        for part in ("value", "low", "high")
    )
    return Estimate(value, low, high)


def change_within(first: Estimate, second: Estimate) -> Estimate:
    """The second less the first of one model, whose seeds are paired as its queries are."""
    assert first.query_draws is not None
    assert second.query_draws is not None
    changes = np.subtract(second.seeds, first.seeds)
    rng = np.random.default_rng([0, 2])
    drawn = second.query_draws - first.query_draws
    moved = bounded(drawn, changes.tolist(), rng, (-100.0, 100.0))
    return Estimate.difference(float(changes.mean()), moved)


@dataclass(frozen=True)
class Column:
    """One benchmark, direction and K of a table."""

    benchmark: str
    direction: str
    k: int = 1


@dataclass(frozen=True)
class MeasuredBenchmark:
    """What a benchmark turned out to be.

    Attributes:
        images, texts: that were ranked.
        max_length: of each model on it.
        trained_on: what is to be said of its images that a model learned from; of such models.
    """

    images: int
    texts: int
    max_length: dict[str, int]
    trained_on: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyScores:
    """All estimates of a study, in percent: from the results that are there, or from stored ones.

    Stored estimates have no draws, so that what a report tells of two of them is stored too.

    Attributes:
        recalls: by model and column.
        curves: by curve, model and direction: R@1 at each maximum length.
        missing: labels of cells that have not all their results.
        measured: by benchmark.
        method: how the intervals were made, in words.
        pairing: how the differences along the curves were made.
        differences: that were stored, by (first, second, column).
        along: differences along curves that were stored, by (curve, first, second, direction).
        marked: marks that were stored.
    """

    recalls: Mapping[str, Mapping[Column, Estimate]]
    curves: Mapping[str, Mapping[str, Mapping[str, Mapping[int, Estimate]]]]
    missing: Sequence[str]
    measured: Mapping[str, MeasuredBenchmark] = field(default_factory=dict)
    method: str = METHOD
    pairing: str = "paired on the queries"
    differences: Mapping[tuple[str, str, Column], Estimate] = field(default_factory=dict)
    along: Mapping[tuple[str, str, str, str], Mapping[int, Estimate]] = field(default_factory=dict)
    marked: Mapping[Column, Mapping[str, str]] = field(default_factory=dict)

    def difference(self, first: str, second: str, column: Column) -> Estimate | None:
        """The second model less the first; None if one was not measured, or nothing is stored."""
        one, other = (self.recalls.get(name, {}).get(column) for name in (first, second))
        if one is None or other is None or one.draws is None:
            return self.differences.get((first, second, column))
        return other - one

    def change_along(
        self, curve: str, first: str, second: str, direction: str
    ) -> Mapping[int, Estimate]:
        """The second model less the first, at each length of a curve that both were read at."""
        stored = self.along.get((curve, first, second, direction))
        if stored is not None:
            return stored
        one, other = (
            self.curves.get(curve, {}).get(name, {}).get(direction, {}) for name in (first, second)
        )
        return {length: other[length] - one[length] for length in one if length in other}

    def marks(self, models: Sequence[str], column: Column) -> Mapping[str, str]:
        """The best and the second best model of a column, each only if all behind it are worse.

        Returns:
            "best" and "second" by model; a place that is shared within the error goes to nobody,
            and so does the second if the first is shared.
        """
        if column in self.marked:
            return self.marked[column]
        ranked = sorted(
            (name for name in models if column in self.recalls.get(name, {})),
            key=lambda name: -self.recalls[name][column].value,
        )
        found = {}
        for place, title in enumerate(("best", "second")):
            gaps = [self.difference(n, ranked[place], column) for n in ranked[place + 1 :]]
            if not gaps or not all(gap is not None and gap.significant for gap in gaps):
                break
            found[ranked[place]] = title
        return found

    def seeds(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Fewest and most seeds that the numbers of each model rest on; of measured ones alone."""
        counts = {
            name: [len(e.seeds) for e in self.recalls.get(name, {}).values()] for name in names
        }
        return {name: (min(own), max(own)) for name, own in counts.items() if own}


def read_scores(study: Study, out: Path) -> StudyScores:
    """Read every result of a study that is there, and estimate."""
    recalls: dict[str, dict[Column, Estimate]] = {}
    missing: dict[str, None] = {}
    measured = {}
    names = [(direction, k) for direction in DIRECTIONS for k in KS]
    for benchmark in study.file.benchmarks:
        found: dict[str, list[_Hits]] = {}
        for name, cells in study.models.items():
            for cell in cells if benchmark in study.benchmarks(name) else ():
                path = result_path(study, cell, benchmark, out)
                if path.is_file():
                    found.setdefault(name, []).append(_Hits.load(path, None, names))
                else:
                    missing[cell.label] = None
        for (name, direction, k), estimate in _estimates(found, names).items():
            recalls.setdefault(name, {})[Column(benchmark, direction, k)] = estimate
        if found:
            one = next(iter(found.values()))[0]
            tokens = {name: hits[0].max_length for name, hits in found.items()}
            seen = {
                name: list(dict.fromkeys(line for one in hits for line in one.trained_on))
                for name, hits in found.items()
            }
            known = {name: lines for name, lines in seen.items() if lines}
            measured[benchmark] = MeasuredBenchmark(one.images, one.texts, tokens, known)
    curves = _curves(study, out, missing)
    return StudyScores(recalls, curves, list(missing), measured)


def _curves(
    study: Study, out: Path, missing: dict[str, None]
) -> dict[str, dict[str, dict[str, dict[int, Estimate]]]]:
    """Estimates of every curve; a length that a model cannot read is no part of its line."""
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
                there = [entry["protocol"]["max_length"] for entry in result_entries(path)]
                for max_length in (
                    max_length for max_length in spec.max_lengths if max_length in there
                ):
                    hits = _Hits.load(path, max_length, names)
                    found.setdefault((name, max_length), []).append(hits)
        estimates = _estimates(found, names)
        for ((name, max_length), direction, _), estimate in estimates.items():
            lines = curves.setdefault(curve, {}).setdefault(name, {})
            lines.setdefault(direction, {})[max_length] = estimate
    return curves


_TAIL = 0.025
_ALL = 1e-9


@dataclass(frozen=True)
class _Hits:
    """What the estimates need of a result; the ranks themselves are thirty times as large.

    Attributes:
        path: of the result.
        asked: hash of the images and of the groups and texts that ask.
        units: sums of hits, a column for each direction and K.
        images, texts, tokens: that were ranked, and the maximum length.
        trained_on: see `trained_on_lines`.
    """

    path: Path
    asked: bytes
    units: Units
    images: int
    texts: int
    max_length: int
    trained_on: list[str]

    @classmethod
    def load(cls, path: Path, max_length: int | None, names: Sequence[tuple[str, int]]) -> "_Hits":
        result = load_result(path, max_length)
        queries = result.queries
        asked = hashlib.blake2b("\n".join(queries.ids).encode())
        for part in (queries.groups, queries.text_image):
            asked.update(part.tobytes())
        return cls(
            path,
            asked.digest(),
            Units.of([queries.hits(*name) for name in names]),
            len(queries.ids),
            len(queries.text_image),
            result.about["protocol"]["max_length"],
            trained_on_lines(result.about),
        )


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
            moved = bounded(queries, recalls.tolist(), rng)
            low, high = interval(moved).tolist()
            # No draw of queries that are all found (or none) says how many others would be.
            exact = 100 * _TAIL ** (1 / len(units))
            low = min(low, exact) if recalls.min() > 100 - _ALL else low
            high = max(high, 100 - exact) if recalls.max() < _ALL else high
            estimates[key, direction, k] = Estimate(
                float(recalls.mean()),
                low,
                high,
                seeds=tuple(recalls.tolist()),
                draws=moved,
                query_draws=queries,
            )
    return estimates
