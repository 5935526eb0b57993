"""What a study file may say, and how it is refused in one sentence."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.errors import UsageError
from paragrain.study.plan import Study, load_study
from paragrain.study.schema import BenchmarkSpec, names_in

MakeStudy = Callable[..., Study]


def test_defaults(make_study: MakeStudy) -> None:
    file = make_study().file
    assert (file.baselines, file.analyses, file.throughput) == ({}, None, None)
    assert file.benchmarks["long"].kind == "other"
    assert file.groups["half"].members == ("c4", "c4-10")


@pytest.mark.parametrize(
    ("spec", "max_length"),
    [
        ({"protocol": "docci-all"}, 128),
        ({"protocol": "docci-all", "max_length": 77}, 77),
        ({"texts": "captions", "max_length": 30}, 30),
    ],
)
def test_a_benchmark_has_its_own_budget_or_that_of_its_protocol(
    spec: dict[str, Any], max_length: int
) -> None:
    assert BenchmarkSpec.model_validate({"collection": "c", **spec}).length == max_length


def test_every_name_that_has_to_be_defined_is_found(make_study: MakeStudy) -> None:
    share = {"base": "BLIP", "part": "c1", "whole": "c4", "benchmarks": ["long"]}
    study = make_study({"claims": [{"text": "t", "share": share}]})
    found = list(names_in(study.file))
    assert ("train", "collection", "world") in found
    assert ("groups.half.pairs", "cell", "c4-10") in found
    assert [one for one in found if one[0].startswith("claims")] == [
        ("claims.share.base", "cell", "BLIP"),
        ("claims.share.part", "cell", "c1"),
        ("claims.share.whole", "cell", "c4"),
        ("claims.share.benchmarks", "benchmark", "long"),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"colour": "red"}, "colour"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seed"),
        ({"name": "../up"}, "name"),
        ({"name": None}, "name"),
        ({"recipes": ["c99"]}, "c99"),
        ({"settings": {"learning_rate": -1}}, "learning_rate"),
        ({"settings": {"lerning_rate": 1}}, "lerning_rate"),
        ({"collections/world": {"path": "x", "scenes": {"size": 30}}}, "exactly one of"),
        ({"collections/world": {}}, "exactly one of"),
        ({"collections": {"a:b": {"path": "x"}}}, "collections"),
        ({"benchmarks/short": {"collection": "world"}}, "says texts and max_length"),
        ({"benchmarks/short/texts": "poems"}, "texts"),
        ({"benchmarks/short/max_length": 2}, "max_length"),
        ({"benchmarks/short": {"collection": "world", "protocol": "docci"}}, "no protocol 'docci'"),
        ({"claims": [{"text": "t"}]}, "exactly one of above"),
        ({"groups/half/cells/c4-10/recipe": {"positives": []}}, "positives"),
        ({"groups/half/cells/c4-10/recipe": "c0"}, "c0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    make_study: MakeStudy, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as refused:
        make_study(changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"a: [", b"\xff\xfe\x00", b"name: 3"])
def test_what_is_no_study_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(str(path))) as refused:
        load_study(path)
    assert "\n" not in str(refused.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no study file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        load_study(tmp_path)
