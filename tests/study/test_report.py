"""What a report says of itself is what was done, and it can be told anew from its numbers."""

import copy
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paragrain.errors import UsageError
from paragrain.files import read_json
from paragrain.pages import Text
from paragrain.plugins import register
from paragrain.study.analyses.context import AnalysisContext
from paragrain.study.analyses.registry import load_plugins
from paragrain.study.cells import note_failure, result_path
from paragrain.study.plan import ANALYSIS_PLUGINS, Study
from paragrain.study.report import write_report

MakeStudy = Callable[..., Study]
Put = Callable[..., None]


def hits(seeds: int, level: float = 0.5) -> list[list[float]]:
    rng = np.random.default_rng(seeds)
    return (rng.random((seeds, 40)) < level).astype(float).tolist()


def told(study: Study, tmp_path: Path, **options: Any) -> str:
    page = write_report(
        study, tmp_path / "out", tmp_path / "report", progress=False, **options
    ).page
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf-8"))))


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ({"c1": 2, "c4": 2}, "3 ways of training, 2 seeds each, from BLIP"),
        ({"c1": 1}, "1 of the 3 ways of training that the file names, 1 seed each"),
        ({"c1": 2, "c4": 1}, "2 of the 3 ways of training"),
        ({}, "0 of the 3 ways of training that the file names, from BLIP"),
    ],
)
def test_seeds_and_ways_are_counted_from_the_results(
    make_study: MakeStudy, put: Put, tmp_path: Path, done: dict[str, int], said: str
) -> None:
    study = make_study({"seeds": [0, 1, 2, 3, 4]})
    models = {**done, **({"c4-10": 2} if said.startswith("3 ways") else {})}
    for benchmark in study.file.benchmarks:
        put(study, "BLIP", benchmark, hits(1))
        for name, seeds in models.items():
            put(study, name, benchmark, hits(seeds))
    page = told(study, tmp_path)
    assert said in page
    assert "5 seeds" not in page
    assert "ten recipes" not in page.lower()
    assert "Not in here" in page
    if done == {"c1": 2, "c4": 1}:
        assert "1 to 2 seeds (C1 2, C4 1); BLIP: as it is" in page
    assert f"{1 + sum(models.values())} of 16 cells are done" not in page  # curves are missing


def test_a_benchmark_of_images_that_were_trained_on_says_so_above_all_numbers(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    study = make_study()
    for benchmark in ("short", "long"):
        for name, seeds in (("BLIP", 1), ("c1", 2), ("c4", 2)):
            put(study, name, benchmark, hits(seeds))
    assert "NOTE" not in told(study, tmp_path)
    count = {"images": 40, "trained": 40, "same_content": 40, "validated": 0}
    known = {"sets": [], "splits": {"train": count}, "same_id": 0}
    for name in ("c1", "c4"):
        for cell in study.models[name]:
            path = result_path(study, cell, "long", tmp_path / "out")
            path.write_text(json.dumps({**read_json(path), "trained_on": known}))
    page = told(study, tmp_path)
    title = study.file.benchmarks["long"].title or "long"
    models = f"({study.title('c1')}, {study.title('c4')})"
    said = f"NOTE: {title}: 40 of 40 images of split train were trained on (40 same content)"
    assert page.count(said) == page.count("NOTE") == 1
    assert f"{said}: this is not a test {models}." in page
    assert page.index(said) < page.index("Recall@1 in percent")
    stored = tmp_path / "report" / "results.json"
    assert said in told(study, tmp_path, stored=stored)


def test_a_failed_cell_is_told_apart_from_one_that_was_not_run(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    study = make_study()
    put(study, "BLIP", "long", hits(1))
    put(study, "c1", "long", hits(1))
    note_failure(study.models["c1"][1], tmp_path / "out", "no <b>memory</b>")
    page = told(study, tmp_path)
    assert "Failed: c1, seed 1 (no <b>memory</b>)." in page
    assert "measured on 1 benchmark by" in page
    note_failure(study.models["c1"][1], tmp_path / "out", "")
    assert "Failed" not in told(study, tmp_path)


def test_a_row_says_all_that_its_recipe_does(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    pick = {"from": "paragraph", "order": "sentences", "share": 0.25}
    spec = {"recipe": {"positives": [pick]}, "settings": {"learning_rate": 0.5}}
    study = make_study({"groups/half/cells/c4-scrambled": spec})
    for name in ("BLIP", "c1", "c4", "c4-scrambled"):
        put(study, name, "long", hits(1))
    page = told(study, tmp_path)
    assert "paragraph (all, share: 0.25, order: sentences)" in page
    assert "learning_rate 0.5" in page


def test_what_a_benchmark_was_stands_in_the_report(
    make_study: MakeStudy, put: Put, tmp_path: Path
) -> None:
    study = make_study()
    put(study, "c1", "long", hits(1))
    assert "world, twins paragraph 40 40 40" in told(study, tmp_path)
    put(study, "c1", "short", hits(1))  # its result says 40 tokens, the file 20
    assert "world, test captions 40 40 20; C1 40" in told(study, tmp_path)


def test_a_report_is_told_anew_from_its_numbers(
    make_study: MakeStudy, put: Put, put_line: Put, tmp_path: Path
) -> None:
    study = make_study({"groups/half/x": {"c4-10": 10, "c4": 40}, "groups/half/axis": "tokens"})
    for benchmark in study.file.benchmarks:
        put(study, "BLIP", benchmark, hits(1, 0.2))
        for place, name in enumerate(("c1", "c4", "c4-10")):
            put(study, name, benchmark, hits(2, 0.3 + 0.2 * place))
    for name, seeds in (("BLIP", 1), ("c1", 2), ("c4", 2)):
        put_line(study, name, "cut", [{10: one, 40: one[::-1]} for one in hits(seeds)])
    first = write_report(study, tmp_path / "out", tmp_path / "one", progress=False)
    again = write_report(
        study,
        tmp_path / "gone",
        tmp_path / "two",
        stored=tmp_path / "one/results.json",
        progress=False,
    )
    assert again.claims == first.claims
    one, two = (page.parent / "report.md" for page in (first.page, again.page))
    said = "Page and plots were drawn from the stored numbers"
    assert said in two.read_text("utf-8")
    kept = [line for line in two.read_text("utf-8").split("\n\n") if said not in line]
    assert kept == one.read_text("utf-8").split("\n\n")
    for name in ("results.json", "results.csv"):
        assert (one.parent / name).read_bytes() == (two.parent / name).read_bytes()
    plots = sorted(path.name for path in (one.parent / "plots").iterdir())
    assert plots == sorted(path.name for path in (two.parent / "plots").iterdir())
    assert "curve-cut-t2i.svg" in plots


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content["study"].update(name="other"), "is of the study 'other'"),
        (lambda content: content["recalls"][0].update(model="c9"), "has no model 'c9'"),
        (lambda content: content.pop("marks"), "is no results.json"),
        (lambda content: content["recalls"][0].pop("value"), "is no results.json"),
    ],
)
def test_numbers_of_another_study_are_refused(
    make_study: MakeStudy, put: Put, tmp_path: Path, change: Callable[[Any], Any], problem: str
) -> None:
    study = make_study()
    put(study, "c1", "long", hits(1))
    write_report(study, tmp_path / "out", tmp_path / "one", progress=False)
    content = copy.deepcopy(read_json(tmp_path / "one/results.json"))
    change(content)
    (tmp_path / "bad.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(UsageError, match=problem):
        write_report(
            study, tmp_path / "out", tmp_path / "two", stored=tmp_path / "bad.json", progress=False
        )
    with pytest.raises(UsageError, match="cannot be read"):
        write_report(study, tmp_path, tmp_path / "two", stored=tmp_path / "no.json", progress=False)


def test_an_analysis_of_another_package_is_named_in_the_file_or_refused(
    make_study: MakeStudy,
) -> None:
    spec = {"benchmark": "long", "cells": ["BLIP"], "right": "c4", "wrong": "BLIP"}
    with pytest.raises(UsageError, match="analysis 'margins' that nothing registers"):
        make_study({"analyses": {**spec, "added": ["margins"]}})

    def margins(context: AnalysisContext) -> list[Text]:
        return [Text(f"of {', '.join(context.spec.cells)}")]

    register(ANALYSIS_PLUGINS, "margins", margins)
    study = make_study({"analyses": {**spec, "added": ["margins"]}})
    found = load_plugins(study.file.analyses.added)["margins"](AnalysisContext(study, Path(), {}))
    assert found == [Text("of BLIP")]
