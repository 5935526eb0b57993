"""Two models on the same benchmark, query by query; each may come with several seeds."""

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
from paragrain.stats import (
    LEVEL,
    RESAMPLES,
    Estimate,
    SignTest,
    StandardDeviations,
    Units,
    resample,
    with_seeds,
)
from paragrain.tables import Table


@dataclass(frozen=True)
class ComparedRecall:
    """Two models at one Recall@K of one direction, in percent.

    Attributes:
        first, second: each model, the mean over its seeds; intervals from the queries alone.
        std: standard deviations of each.
        difference: the second less the first, with its p-value.
        sign_test: at R@1, each query votes for the model that hits it more often; exact.
        sign_test_images: the same with one vote for each image (or group of images that show the
            same): the texts of one image do not vote independently, so believe this one where an
            image has several texts.
    """

    direction: str
    k: int
    first: Estimate
    second: Estimate
    std: tuple[StandardDeviations, StandardDeviations]
    difference: Estimate
    sign_test: SignTest | None
    sign_test_images: SignTest | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        models = {
            name: {**model.as_dict(), "std": asdict(std)}
            for name, model, std in zip(
                ("first", "second"), (self.first, self.second), self.std, strict=True
            )
        }
        votes = {name: getattr(self, name) for name in ("sign_test", "sign_test_images")}
        return {
            "direction": self.direction,
            "k": self.k,
            **models,
            "difference": self.difference.as_dict(),
            **{name: test and asdict(test) for name, test in votes.items()},
        }


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
    rows: list[ComparedRecall]
    resamples: int
    seed: int
    units: int

    def __repr__(self) -> str:
        """Both models and their differences in a few lines."""
        rows = [
            f"{row.direction.replace('_', ' ')} R@{row.k}: {row.difference:+.2f}"
            for row in self.rows
        ]
        return "\n".join([f"<{self.second['name']} less {self.first['name']}", *rows]) + ">"

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "rows": [row.as_dict() for row in self.rows], "level": LEVEL}

    def save(self, path: str | Path) -> None:
        """Write it as a `.json` file with everything, or a `.csv` table with a row for each K.

        Raises:
            UsageError: the name has another end, or is a folder's.
            ParagrainError: there is no room.
        """
        path = Path(path)
        check_out(path)
        if path.suffix == ".csv":
            self._table().write_csv(path)
        else:
            write_json(path, self.as_dict())

    def to_frame(self) -> Any:
        """A pandas table with a row for each direction and K.

        Raises:
            ParagrainError: pandas is not installed.
        """
        return self._table().data_frame()

    def _table(self) -> Table:
        names = ("direction", "k", "first", "second", "difference", "low", "high", "p")
        rows = [
            (row.direction, row.k, row.first.value, row.second.value, d.value, d.low, d.high, d.p)
            for row in self.rows
            for d in [row.difference]
        ]
        return Table("", names, rows)


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
        drawn = [part.mean(1) for part in np.split(draws[:, :, place], [seeds], axis=1)]
        recalls = np.split(means[:, place], [seeds])
        models = [
            Estimate.from_draws(own.mean(), of_mean, seeds=tuple(own.tolist()))
            for own, of_mean in zip(recalls, drawn, strict=True)
        ]
        std = [
            StandardDeviations.of(own, float(np.nanstd(of_mean)))
            for own, of_mean in zip(recalls, drawn, strict=True)
        ]
        after, before = (with_seeds(drawn[i], models[i].seeds, rng) for i in (1, 0))
        change = Estimate.difference(models[1].value - models[0].value, after - before)
        both = (std[0], std[1])
        rows.append(ComparedRecall(direction, k, models[0], models[1], both, change, *votes))
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
