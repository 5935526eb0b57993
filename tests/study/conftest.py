"""A study so small that it ends in seconds, and results made by hand."""

import copy
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from paragrain.collection import Collection
from paragrain.evaluation import QueryRanks
from paragrain.evaluation.results import ranks_files
from paragrain.files import write_json
from paragrain.retrieval import DirectionRanks, Ranks, RanksPair
from paragrain.study.cells import curve_path, result_path
from paragrain.study.plan import Study, load_study
from paragrain.study.runner import run_study

MINI: dict[str, Any] = {
    "name": "mini",
    "title": "A mini study",
    "model": "blip0",
    "model_title": "BLIP",
    "train": "world",
    "settings": {
        "max_steps": 2,
        "epochs": 100,
        "batch_size": 8,
        "warmup_steps": 0,
        "learning_rate": 1e-3,
        "micro_batch_tokens": 1_000_000,
    },
    "seeds": [0, 1],
    "collections": {"world": {"scenes": {"size": 30, "seed": 1}}},
    "recipes": ["c1", "c4"],
    "benchmarks": {
        "short": {"collection": "world", "split": "test", "texts": "captions", "max_length": 20},
        "long": {"collection": "world", "split": "twins", "texts": "paragraph", "max_length": 40},
    },
    "curves": {
        "cut": {"benchmark": "long", "max_lengths": [10, 40], "cells": ["BLIP", "c1", "c4"]}
    },
    "groups": {
        "half": {
            "kind": "control",
            "title": "Half",
            "question": "Is half enough?",
            "with_cells": ["c4"],
            "cells": {"c4-10": {"recipe": "c4", "settings": {"max_length": {"paragraph": 10}}}},
            "pairs": [["c4-10", "c4"]],
        }
    },
    "claims": [
        {"text": "Longer.", "above": {"first": "c1", "seconds": ["c4"], "benchmarks": ["long"]}}
    ],
}

Changes = Mapping[str, Any]


def changed(content: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """A copy with some places changed: `{"groups.half.cells": ...}`; `None` takes one away."""
    content = copy.deepcopy(content)
    for place, value in changes.items():
        *way, last = place.split("/")
        inner = content
        for name in way:
            inner = inner.setdefault(name, {})
        if value is None:
            inner.pop(last)
        else:
            inner[last] = value
    return content


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Study]:
    """Load the mini study from `study.yaml`, changed as `changed` says."""

    def make(changes: Changes = {}) -> Study:  # noqa: B006
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(changed(MINI, changes), sort_keys=False), "utf-8")
        return load_study(path)

    return make


@pytest.fixture(scope="session")
def random_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny CLIP of random weights, which reads 77 tokens."""
    make = runpy.run_path(str(Path(__file__).parents[1] / "encoders" / "conftest.py"))["make_clip"]
    return make(tmp_path_factory.mktemp("models") / "random-clip")


@pytest.fixture(scope="session")
def here(world: Collection, random_blip: Path) -> dict[str, Any]:
    """Changes that make the mini study train the random BLIP on a world that is there."""
    return {"model": str(random_blip), "collections/world": {"path": str(world.folder)}}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, here: dict[str, Any]) -> tuple[Study, Path]:
    """The mini study, run to its end by one process; nothing may change it."""
    folder = tmp_path_factory.mktemp("finished")
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(changed(MINI, here), sort_keys=False), "utf-8")
    study = load_study(path)
    report = run_study(study, folder / "out", workers=1, device="cpu", progress=False)
    assert (report.done, report.failed) == (7, [])
    return study, folder / "out"


def ranks_of(found: Sequence[float], back: Sequence[float] | None = None) -> QueryRanks:
    """Ranks of N images with one text each: 1 is found first, 0.5 ties with one, 0 is not found.

    Args:
        found: of each image.
        back: of each text; as `found` if not given.
    """

    def direction(of: Sequence[float]) -> DirectionRanks:
        hits = np.asarray(of)
        greater, tied = np.where(hits == 0, 99, 0), np.where(hits == 0.5, 1, 0)
        return DirectionRanks(greater, tied, np.ones(len(hits), np.int64), 200)

    pair = RanksPair(direction(found), direction(found if back is None else back))
    count = len(found)
    rows = np.arange(count)
    ranks = Ranks(pair, pair, rows, count, 0)
    return QueryRanks([f"image {n}" for n in range(count)], rows, rows, ranks)


def put_result(path: Path, ranks: QueryRanks, max_length: int = 40) -> None:
    """A result file with its ranks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ranks.save(path.with_suffix(".npz"))
    protocol = {
        "text_field": "paragraph",
        "max_length": max_length,
        "text_normalisation": "none",
    } | {"truncation": "tokens"}
    encoder = {name: str(path) for name in ("name", "vision_fingerprint", "text_fingerprint")}
    about = {"collection": {"name": "w", "contents": "f", "split": "all"}, "encoder": encoder}
    write_json(path, {**about, "protocol": protocol, "ranks": ranks.fingerprint})


def put_curve(path: Path, ranks: Mapping[int, QueryRanks]) -> None:
    """The file of a sweep, with the ranks of each maximum length."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        {
            "encoder": {"name": "m"},
            "protocol": {"max_length": max_length},
            "ranks": own.fingerprint,
        }
        for max_length, own in ranks.items()
    ]
    for file, own in zip(ranks_files(path, entries), ranks.values(), strict=True):
        own.save(file)
    write_json(path, {"results": entries} if len(entries) > 1 else entries[0])


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., None]:
    """Lay down results of a model: one list of hits for each seed, of all images."""

    def lay(study: Study, name: str, benchmark: str, seeds: Sequence[Sequence[float]]) -> None:
        for cell, found in zip(study.models[name], seeds, strict=False):
            put_result(result_path(study, cell, benchmark, tmp_path / "out"), ranks_of(found))

    return lay


@pytest.fixture
def put_line(tmp_path: Path) -> Callable[..., None]:
    """Lay down the curve of a model: for each seed the hits by maximum length."""

    def lay(
        study: Study, name: str, curve: str, seeds: Sequence[Mapping[int, Sequence[float]]]
    ) -> None:
        for cell, line in zip(study.models[name], seeds, strict=False):
            path = curve_path(study, cell, curve, tmp_path / "out")
            put_curve(path, {max_length: ranks_of(found) for max_length, found in line.items()})

    return lay
