"""The demo, small, with the real model that ships with the package."""

import re
from html import unescape
from pathlib import Path

import pytest

from paragrain.cli.demo import demo_study, recall_table, run_demo
from paragrain.files import read_json
from paragrain.study.cells import cell_folder, result_path
from paragrain.study.plan import Study, parse_study
from paragrain.study.report import WrittenReport
from paragrain.study.scores import StudyScores

Result = tuple[Study, Path, StudyScores, WrittenReport]


def small(out: Path) -> Study:
    """The demo's study with few scenes and steps."""
    text = demo_study(out, seed=3).text
    text = text.replace("size: 4000", "size: 64").replace("max_steps: 64", "max_steps: 2")
    return parse_study(text, out / "study.yaml")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("demo")
    study = small(out)
    return (study, out, *run_demo(study, out, progress=False))


def test_the_seed_is_that_of_the_world_and_of_the_training(tmp_path: Path) -> None:
    file = demo_study(tmp_path, seed=7).file
    assert file.seeds == (7,)
    assert file.collections["world"].scenes is not None
    assert file.collections["world"].scenes.seed == 7


def test_every_model_is_measured_on_every_benchmark(result: Result) -> None:
    study, _, scores, _ = result
    assert [study.title(name) for name in scores.recalls] == ["BLIP0", "C1", "C4", "C5"]
    table = recall_table(study, scores)
    assert table[0] == "Recall@1, %, image to text / text to image (seed 3)"
    assert re.fullmatch(r" +short +short, twins +long +long, other style", table[1])
    assert all(len(re.findall(r"\d+\.\d / \d+\.\d", line)) == 4 for line in table[2:])
    (lines,) = scores.curves.values()
    assert {len(line) for by in lines.values() for line in by.values()} == {7}


def test_training_changed_the_text_side_alone(result: Result) -> None:
    study, out, _, _ = result
    paths = [result_path(study, cell, "long", out) for cell in study.cells()]
    encoders = [read_json(path)["encoder"] for path in paths]
    assert len({encoder["vision_fingerprint"] for encoder in encoders}) == 1
    assert len({encoder["text_fingerprint"] for encoder in encoders}) == 4


def test_the_report_needs_no_network_and_shows_what_it_should(result: Result) -> None:
    html = result[3].page.read_text("utf-8")
    content = read_json(result[3].page.parent / "results.json")
    counts = {d: len(one["examples"]) for d, one in content["analyses"]["examples"].items()}
    assert html.count("<img") == counts["text_to_image"] * 2 * 5 + counts["image_to_text"]
    assert html.count("<blockquote>") == counts["text_to_image"] > 0
    assert "<script" not in html
    links = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"url\((?!#)", html)


def test_a_second_run_repeats_no_training(result: Result) -> None:
    study, out, scores, _ = result
    run = cell_folder(study.models["c4"][0], out) / "run"
    before = (run / "checkpoint" / "model.safetensors").stat().st_mtime_ns
    again, _ = run_demo(study, out, progress=False)
    assert (run / "checkpoint" / "model.safetensors").stat().st_mtime_ns == before
    assert recall_table(study, again) == recall_table(study, scores)


def test_the_question_is_answered_from_the_intervals(result: Result) -> None:
    study, _, _, report = result
    html = unescape(report.page.read_text("utf-8"))
    assert len(report.claims) == len(study.file.claims) == 4
    for claim, word in report.claims:
        assert f"{claim} {word.capitalize()}." in html


def test_examples_keep_the_proportion_of_wins_and_losses(result: Result) -> None:
    page = result[3].page
    found = read_json(page.parent / "results.json")["analyses"]["examples"]["text_to_image"]
    assert (found["first"], found["second"]) == ("C4", "BLIP0")
    told = [found["counts"][kind] for kind in ("first", "second")]
    if any(told):
        wins = sum(example["kind"] == "first" for example in found["examples"])
        share = wins / len(found["examples"])
        assert abs(share - told[0] / sum(told)) <= 1 / len(found["examples"])
