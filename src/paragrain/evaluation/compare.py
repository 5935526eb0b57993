"""Two models on the same benchmark, query by query; each may come with several seeds.

Let a model's recall be a random variable of two things: the queries that happened to be in the
benchmark (q) and the seed of its training (s). By the law of total variance

    Var(recall) = Var_q( mean over s ) + mean over q of Var_s( recall | q )

The first term is estimated by the bootstrap variance of the mean over the seeds at hand, the second
by the variance of the seeds' recalls on the queries at hand (divisor S - 1). `Spread` gives the
square root of each and of their sum, which is how far one run on other queries would lie; the mean
over S seeds has the second term divided by S.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from paragrain.errors import UsageError
from paragrain.evaluation.results import Result, SavedResult, check_out, load_result
from paragrain.evaluation.stored import DIRECTIONS, KS
from paragrain.evaluation.told import trained_on_lines
from paragrain.files import write_json
from paragrain.retrieval.bootstrap import (
    LEVEL,
    RESAMPLES,
    SignTest,
    Units,
    interval,
    resample,
    two_sided,
)
from paragrain.tables import data_frame, write_csv


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a recall in percentage points, after its two sources.

    Attributes:
        queries: from the choice of queries (bootstrap), of the mean over seeds.
        seeds: between seeds; `None` with one seed, which cannot tell.
        run: both together, of one run: sqrt(queries^2 + seeds^2).
        mean: both together, of the mean over S seeds: sqrt(queries^2 + seeds^2 / S).

    >>> spread = Spread.of(np.array([40.0, 44.0]), queries=2.0)
    >>> round(spread.seeds**2), round(spread.run**2), round(spread.mean**2)
    (8, 12, 8)
    """

    queries: float
    seeds: float | None
    run: float
    mean: float

    @classmethod
    def of(cls, recalls: np.ndarray, queries: float) -> "Spread":
        """From the recalls [S] of the seeds and the bootstrap deviation of their mean."""
        seeds = float(np.std(recalls, ddof=1)) if len(recalls) > 1 else None
        between = seeds or 0.0
        together = (queries**2 + between**2) ** 0.5
        return cls(queries, seeds, together, (queries**2 + between**2 / len(recalls)) ** 0.5)


@dataclass(frozen=True)
class Side:
    """One model at one Recall@K, in percent.

    Attributes:
        recalls: of each seed.
        mean: over the seeds.
        interval: 95 % percentile interval of the mean, from the queries alone.
        spread: standard deviations.
    """

    recalls: list[float]
    mean: float
    interval: list[float]
    spread: Spread


@dataclass(frozen=True)
class Row:
    """Two models at one Recall@K of one direction.

    Attributes:
        first, second: each model.
        difference: mean of the second less mean of the first, in percentage points.
        interval: 95 % percentile interval of the difference.
        p: two-sided bootstrap p-value of no difference; see `bootstrap.two_sided`.
        sign_test: at R@1, each query votes for the model that hits it more often; exact.
        sign_test_images: the same with one vote for each image (or group of images that show the
            same): the texts of one image do not vote independently, so believe this one where an
            image has several texts.
    """

    direction: str
    k: int
    first: Side
    second: Side
    difference: float
    interval: list[float]
    p: float
    sign_test: SignTest | None
    sign_test_images: SignTest | None


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` found.

    Attributes:
        first, second: names of the models, the files of their seeds, and what must be known of
            the images that they were trained on.
        benchmark: what both were measured on.
        rows: one for each direction and K.
        resamples, seed: of the bootstrap.
        units: images, or groups of them, that were drawn.
    """

    first: dict[str, Any]
    second: dict[str, Any]
    benchmark: dict[str, Any]
    rows: list[Row]
    resamples: int
    seed: int
    units: int

    def __repr__(self) -> str:
        """Both models and their differences in a few lines."""
        rows = [
            f"{row.direction.replace('_', ' ')} R@{row.k}: {row.difference:+.2f} "
            f"[{row.interval[0]:+.2f}, {row.interval[1]:+.2f}]"
            for row in self.rows
        ]
        return "\n".join([f"<{self.second['name']} less {self.first['name']}", *rows]) + ">"

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "level": LEVEL}

    def save(self, path: str | Path) -> None:
        """Write it as a `.json` file with everything, or a `.csv` table with a row for each K.

        Raises:
            UsageError: the name has another end, or is a folder's.
            ParagrainError: there is no room.
        """
        path = Path(path)
        check_out(path)
        if path.suffix == ".csv":
            write_csv(self._rows(), path)
        else:
            write_json(path, self.as_dict())

    def to_frame(self) -> Any:
        """A pandas table with a row for each direction and K.

        Raises:
            ParagrainError: pandas is not installed.
        """
        return data_frame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "direction": row.direction,
                "k": row.k,
                "first": row.first.mean,
                "second": row.second.mean,
                "difference": row.difference,
                "low": row.interval[0],
                "high": row.interval[1],
                "p": row.p,
            }
            for row in self.rows
        ]


Measured = SavedResult | Result | str | PathLike[str]
"""What `compare` takes for a result: one in memory, or the path of its file."""


def compare(
    first: Measured | Sequence[Measured],
    second: Measured | Sequence[Measured],
    *,
    ks: Sequence[int] = KS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare two models, strictly judged, on the same queries.

    The difference is resampled over groups of images, the same draws for all results. Where a model
    has S > 1 seeds, each draw also moves its mean by (deviation between seeds) / sqrt(S) times a
    draw of Student's t with S - 1 degrees of freedom (as Behrens and Fisher do), so that interval
    and p of the difference hold both sources of spread; with two or three seeds they are wide, as
    so few tell little. With one seed they hold the queries alone.

    Args:
        first, second: results of one model each, one for each seed of its training: from
            `evaluate`, from `load_result`, or paths of result files.
        ks: the K of the recalls.
        resamples, seed: of the bootstrap.

    Raises:
        UsageError: a side has no result, or two were not measured on the same queries alike.
    """
    sides = [_results(side) for side in (first, second)]
    everyone = [one for side in sides for one in side]
    if not all(sides):
        raise UsageError("there is nothing to compare: name a result on both sides")
    for other in everyone[1:]:
        _check_pair(everyone[0], other)
    for side in sides:
        _check_seeds(side)
    names = [(direction, k) for direction in DIRECTIONS for k in ks]
    hits = [[one.queries.hits(*name) for name in names] for one in everyone]
    units = Units.of([column for columns in hits for column in columns])
    shape = (-1, len(everyone), len(names))
    draws = 100 * resample(units, resamples=resamples, seed=seed).reshape(shape)
    means = 100 * units.means.reshape(shape[1:])
    rng = np.random.default_rng([seed, 1])
    rows = []
    for place, (direction, k) in enumerate(names):
        seeds = len(sides[0])
        votes = _votes(hits, place, seeds) if k == 1 else (None, None)
        parts = np.split(draws[:, :, place], [seeds], axis=1)
        both = [
            _side(*pair) for pair in zip(np.split(means[:, place], [seeds]), parts, strict=True)
        ]
        after, before = (
            with_seeds(parts[i].mean(1), both[i].spread, len(both[i].recalls), rng) for i in (1, 0)
        )
        change = after - before
        rows.append(_row(direction, k, both, change, votes))
    who = [_who(side) for side in sides]
    return Comparison(who[0], who[1], _benchmark(everyone[0]), rows, resamples, seed, len(units))


def _results(side: Measured | Sequence[Measured]) -> list[SavedResult]:
    """The results of one side, with their queries in the order of the ids."""
    if isinstance(side, SavedResult | Result | str | PathLike):
        side = [side]
    if not isinstance(side, Sequence):
        raise UsageError(
            f"a side of a comparison is a result, its file, or a list of these, not "
            f"{type(side).__name__}"
        )
    found = []
    for number, one in enumerate(side, 1):
        if isinstance(one, Result):
            name = f"{one.about['encoder']['name']} (result {number})"
            one = SavedResult(Path(name), one.as_dict(), one.queries)
        elif not isinstance(one, SavedResult):
            if not isinstance(one, str | PathLike):
                raise UsageError(f"a result is one of `evaluate` or a file, not {one!r}")
            one = load_result(Path(one))
        found.append(replace(one, queries=one.queries.by_id()))
    return found


def _row(
    direction: str,
    k: int,
    sides: Sequence[Side],
    change: np.ndarray,
    votes: tuple[SignTest | None, SignTest | None],
) -> Row:
    first, second = sides
    change = np.round(change, 9) + 0.0  # equal means differ in their last digits, and -0 is 0
    bounds = interval(change[:, None])[:, 0].tolist()
    p = two_sided(change[~np.isnan(change)])
    return Row(direction, k, first, second, second.mean - first.mean, bounds, p, *votes)


def _side(recalls: np.ndarray, draws: np.ndarray) -> Side:
    mean = draws.mean(1)
    bounds = interval(mean[:, None])[:, 0].tolist()
    spread = Spread.of(recalls, float(np.nanstd(mean)))
    return Side(recalls.tolist(), float(recalls.mean()), bounds, spread)


def with_seeds(
    draws: np.ndarray, spread: Spread, seeds: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws [R] of the mean over S seeds, moved by what the seeds leave open.

    Each is moved by (deviation between seeds) / sqrt(S) times a draw of Student's t with S - 1
    degrees of freedom; one seed moves nothing, since it cannot tell.

    >>> one = Spread.of(np.array([40.0]), queries=2.0)
    >>> with_seeds(np.zeros(3), one, 1, np.random.default_rng()).tolist()
    [0.0, 0.0, 0.0]
    """
    if spread.seeds is None:
        return draws
    moved: np.ndarray = draws + spread.seeds / seeds**0.5 * rng.standard_t(seeds - 1, len(draws))
    return moved


def _votes(
    hits: list[list[tuple[np.ndarray, np.ndarray]]], place: int, first: int
) -> tuple[SignTest, SignTest]:
    """Votes at R@1 of each query, and of each unit, on the mean over the seeds."""
    probabilities = np.stack([columns[place][0] for columns in hits])
    units = hits[0][place][1]
    sides = [part.mean(0) for part in np.split(probabilities, [first])]
    _, unit = np.unique(units, return_inverse=True)
    return SignTest.of(*sides), SignTest.of(*(np.bincount(unit, side) for side in sides))


def _check_pair(one: SavedResult, other: SavedResult) -> None:
    """Refuse results that were not measured on the same queries in the same way."""
    for (name, a), b in zip(_benchmark(one).items(), _benchmark(other).values(), strict=True):
        if a != b:
            raise UsageError(
                f"{one.path} and {other.path} differ in {name} ({a} and {b}), so their queries "
                "are no pairs: evaluate both alike"
            )
    pairs = (
        ("image ids", one.queries.ids == other.queries.ids),
        ("texts", np.array_equal(one.queries.text_image, other.queries.text_image)),
        ("groups of images", np.array_equal(one.queries.groups, other.queries.groups)),
    )
    for name, same in pairs:
        if not same:
            raise UsageError(
                f"{one.path} and {other.path} hold other {name}, so their queries are no pairs: "
                "evaluate both on the same images, those that failed in one left out of both"
            )


def _check_seeds(side: Sequence[SavedResult]) -> None:
    """Refuse a result that is there twice, which would pass for a seed that changes nothing."""
    seen: dict[str, SavedResult] = {}
    for one in side:
        weights = one.about["encoder"]["text_fingerprint"]
        if weights in seen:
            raise UsageError(
                f"{seen[weights].path} and {one.path} are of the same weights, not of two seeds: "
                "name each run once"
            )
        seen[weights] = one


def _benchmark(one: SavedResult) -> dict[str, Any]:
    """What must be equal, by the words that a message uses."""
    about = one.about
    return {
        "images and texts": about["collection"]["contents"],
        "split": about["collection"]["split"],
        "text field": about["protocol"]["text_field"],
        "maximum length": about["protocol"]["max_length"],
        "text normalisation": about["protocol"]["text_normalisation"],
        "truncation": about["protocol"]["truncation"],
    }


def _who(side: Sequence[SavedResult]) -> dict[str, Any]:
    names = dict.fromkeys(str(one.about["encoder"]["name"]) for one in side)
    told = dict.fromkeys(line for one in side for line in trained_on_lines(one.about))
    return {
        "name": ", ".join(names),
        "files": [str(one.path) for one in side],
        "trained_on": list(told),
    }
