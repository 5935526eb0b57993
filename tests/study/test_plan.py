"""Cells and their folders: what changes them and what leaves them alone."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.errors import UsageError
from paragrain.files import slug
from paragrain.study.cells import curve_path, result_path
from paragrain.study.plan import Study, load_study

MakeStudy = Callable[..., Study]
OUT = Path("out")


def claim(**rise: Any) -> dict[str, Any]:
    return {"claims": [{"text": "t", "rise": rise}]}


def folders(study: Study) -> dict[str, str]:
    return {cell.label: cell.folder for cell in study.cells()}


def files(study: Study) -> set[Path]:
    cells = list(study.cells())
    found = {result_path(study, c, b, OUT) for c in cells for b in study.benchmarks(c.name)}
    found |= {curve_path(study, c, n, OUT) for c in cells for n in study.file.curves}
    return found


def test_the_cells_come_seed_by_seed_after_the_baselines(make_study: MakeStudy) -> None:
    study = make_study({"baselines/Other": {"model": "blip0", "max_length": 99}})
    assert [cell.label for cell in study.cells()] == [
        *("BLIP", "Other"),
        *("c1, seed 0", "c4, seed 0", "c4-10, seed 0"),
        *("c1, seed 1", "c4, seed 1", "c4-10, seed 1"),
    ]
    assert study.models["c4-10"][1].settings.max_length.paragraph == 10  # type: ignore[union-attr]
    assert study.models["c4-10"][1].settings.seed == 1  # type: ignore[union-attr]
    assert study.title("c1") == "C1"
    assert re.fullmatch(r"c4-10-[0-9a-f]{8}/seed1", study.models["c4-10"][1].folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipes": ["c1", "c2", "c4"]},
        {"seeds": [0, 1, 2]},
        {"seeds": [7, 1, 0]},
        {"benchmarks/third": {"collection": "world", "texts": "captions", "max_length": 9}},
        {"baselines/Other": {"model": "blip0", "max_length": 99}},
        {"curves/more": {"benchmark": "short", "max_lengths": [9], "cells": ["c1"]}},
        {"groups/third": {"kind": "ablation", "title": "t", "question": "q"}},
        {"groups/half/cells/c4-9": {"recipe": "c4", "settings": {"batch_size": 9}}},
        {"title": "Other", "notes": ["n"], "question": "q", "claims": []},
        {"benchmarks/long/title": "T", "benchmarks/long/kind": "long"},
        {"groups/half/cells/c4-10/title": "Cut"},
    ],
)
def test_what_is_added_leaves_all_that_is_there_alone(
    make_study: MakeStudy, changes: dict[str, Any]
) -> None:
    before, after = make_study(), make_study(changes)
    assert folders(before).items() <= folders(after).items()
    assert files(before) <= files(after)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"settings/learning_rate": 2e-3}, {"BLIP"}),
        ({"settings/max_steps": 3}, {"BLIP"}),
        ({"model": "other"}, set()),
        ({"groups/half/cells/c4-10/settings": {}}, {"BLIP", "c1", "c4"}),
        ({"groups/half/cells/c4-10/recipe": "c5"}, {"BLIP", "c1", "c4"}),
        ({"groups/half/cells/c4-10/tokens_like": "c1"}, {"BLIP", "c1", "c4"}),
    ],
)
def test_what_changes_a_cell_changes_its_folder(
    make_study: MakeStudy, changes: dict[str, Any], same: set[str]
) -> None:
    before, after = folders(make_study()), folders(make_study(changes))
    assert {label.split(",")[0] for label in before if before[label] == after[label]} == same


def test_the_tokens_of_the_other_cell_count_too(make_study: MakeStudy) -> None:
    like = {"groups/like": {"kind": "control", "title": "t", "question": "q", "cells": {}}}
    like["groups/like"]["cells"] = {"c1-like": {"recipe": "c1", "tokens_like": "c4"}}
    one = make_study(like)
    assert one.models["c1-like"][1].like == one.models["c4"][1]
    assert one.models["c1-like"][0].key != one.models["c1"][0].key


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmarks/long/max_length": 41},
        {"benchmarks/long/split": "test"},
        {"benchmarks/long/texts": "description"},
    ],
)
def test_a_changed_benchmark_is_measured_anew(
    make_study: MakeStudy, changes: dict[str, Any]
) -> None:
    before, after = make_study(), make_study(changes)
    kept = files(before) & files(after)
    assert {path.name.split("-")[0] for path in kept} == {"short"}


def test_a_model_with_its_own_budget_is_measured_anew_where_that_counts(
    make_study: MakeStudy,
) -> None:
    own = {"baselines/Long": {"model": "blip0", "max_length": 248}}
    before, after = make_study(own), make_study({**own, "benchmarks/long/kind": "short"})
    for name, moved in (("Long", True), ("BLIP", False)):
        paths = [result_path(s, s.models[name][0], "long", OUT) for s in (before, after)]
        assert (paths[0] != paths[1]) == moved


def test_a_changed_curve_is_measured_anew(make_study: MakeStudy) -> None:
    before, after = make_study(), make_study({"curves/cut/max_lengths": [10, 20, 40]})
    assert {path.name.split("-")[0] for path in files(before) - files(after)} == {"curve"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"train": "moon"}, "collection 'moon' at train"),
        ({"benchmarks/long/collection": "moon"}, "collection 'moon' at benchmarks.long"),
        ({"benchmarks/long/models": ["c9"]}, "cell 'c9' at benchmarks.long"),
        ({"curves/cut/benchmark": "no"}, "benchmark 'no' at curves.cut"),
        ({"curves/cut/cells": ["no"]}, "cell 'no' at curves.cut"),
        ({"groups/half/with_cells": ["no"]}, "cell 'no' at groups.half"),
        ({"groups/half/pairs": [["c1", "no"]]}, "cell 'no' at groups.half"),
        ({"groups/half/x": {"no": 1}}, "cell 'no' at groups.half"),
        ({"groups/half/benchmarks": ["no"]}, "benchmark 'no' at groups.half"),
        ({"groups/half/cells/c4-10/collection": "no"}, "collection 'no' at groups.half"),
        ({"groups/half/cells/c4-10/tokens_like": "no"}, "tokens_like names 'no'"),
        ({"collections/j": {"joined": {"collection": "no", "fields": ["paragraph"]}}}, "'no'"),
        ({"analyses": {"benchmark": "no", "cells": ["c1"], "right": "c1", "wrong": "c4"}}, "'no'"),
        ({"analyses": {"benchmark": "long", "cells": ["c1"], "right": "x", "wrong": "c4"}}, "'x'"),
        ({"benchmarks/long/models": ["c1", "c4"]}, "curve 'cut' of BLIP, which is not measured"),
        (
            claim(curve="no", models=["c1"], low=1, high=2),
            "curve 'no' at claims",
        ),
        (
            claim(curve="cut", models=["c4-10"], low=10, high=40),
            "does not have the model c4-10",
        ),
        (
            claim(curve="cut", models=["c1"], low=10, high=41),
            "does not have 41 tokens",
        ),
    ],
)
def test_names_of_nothing_are_refused_in_one_sentence(
    make_study: MakeStudy, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as refused:
        make_study(changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"recipes": ["c1", "c4", "c1"]}, "'c1' twice"),
        ({"groups/half/cells/c1": {"recipe": "c2"}}, "'c1' twice"),
        ({"baselines/c1": {"model": "blip0"}}, "'c1' twice"),
        ({"baselines/BLIP": {"model": "elsewhere"}}, "'BLIP' twice"),
        ({"seeds": [0, 1, 0]}, "0 twice"),
        ({"groups/half/cells/C4": {"recipe": "c4"}}, "'c4' and as 'C4'"),
    ],
)
def test_what_is_there_twice_is_refused(
    make_study: MakeStudy, changes: dict[str, Any], name: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(name)):
        make_study(changes)


def test_equal_tokens_are_of_one_collection(make_study: MakeStudy) -> None:
    with pytest.raises(UsageError, match="let it train on world"):
        make_study(
            {
                "collections/other": {"path": "x"},
                "groups/half/cells/c4-10/tokens_like": "c1",
                "groups/half/cells/c4-10/collection": "other",
            }
        )


@pytest.mark.parametrize("name", ["a/b", "..", "C:\\x", "con ", "ünï", "a:b*?", "-x-"])
def test_a_name_becomes_a_safe_part_of_a_path(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9.-]*", slug(name))
    assert not slug(name).startswith("-")


def test_no_folder_leaves_the_study_whatever_the_model_is_called(make_study: MakeStudy) -> None:
    study = make_study({"model_title": "../../etc/passwd", "curves": {}})
    (start,) = study.models["../../etc/passwd"]
    assert "/" not in start.folder
    assert re.fullmatch(r"[a-z0-9.-]+-[0-9a-f]{8}", start.folder)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("name: a\nseeds: [0]\nname: b\n", "utf-8")
    with pytest.raises(UsageError, match="'name' is there twice"):
        load_study(path)
