"""The demo, small, with the real model that ships with the package."""

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser

import pytest

from paragrain.files import read_json
from paragrain.study import demo
from paragrain.study.demo import DemoResult, run_demo


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(demo.TRAINING, "max_steps", 2)
        yield run_demo(tmp_path_factory.mktemp("demo"), size=64, progress=False)


def test_every_model_is_measured_on_every_benchmark(result: DemoResult) -> None:
    assert list(result.scores) == ["BLIP0", "C1", "C4", "C5"]
    assert all(list(of_model) == list(demo.BENCHMARKS) for of_model in result.scores.values())
    assert len(result.table()) == 2 + 4
    assert list(result.curves) == list(result.scores)
    assert {len(curve) for curve in result.curves.values()} == {7}


def test_training_changed_the_text_side_alone(result: DemoResult) -> None:
    encoders = [of_model["long"].about["encoder"] for of_model in result.scores.values()]
    assert len({encoder["vision_fingerprint"] for encoder in encoders}) == 1
    assert len({encoder["text_fingerprint"] for encoder in encoders}) == 4


def test_results_are_kept_beside_the_report(result: DemoResult) -> None:
    kept = read_json(result.report.parent / "results.json")
    assert kept["seed"] == 0
    assert kept["scores"]["C5"]["long"]["protocol"]["max_length"] == 128


class Page(HTMLParser):
    """What a page holds and where it points."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_needs_no_network_and_shows_what_it_should(result: DemoResult) -> None:
    html = result.report.read_text("utf-8")
    page = Page()
    page.feed(html)
    shown = len(result.examples.examples)
    assert page.tags.count("table") == 3
    assert page.tags.count("img") == shown * 2 * 5
    assert page.tags.count("blockquote") == shown > 0
    assert page.tags.count("svg") == 2
    assert "script" not in page.tags
    assert all(link.startswith(("data:", "#")) for link in page.links)
    assert not re.search(r"url\((?!#)", html)


def test_a_second_run_repeats_no_training(
    result: DemoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(demo.TRAINING, "max_steps", 2)
    checkpoint = result.report.parent / "runs" / "c4" / "checkpoint" / "model.safetensors"
    before = checkpoint.stat().st_mtime_ns
    again = run_demo(result.report.parent, size=64, progress=False)
    assert checkpoint.stat().st_mtime_ns == before
    assert again.rows() == result.rows()


def test_the_question_is_answered_from_the_intervals(result: DemoResult) -> None:
    html = result.report.read_text("utf-8")
    answer = result.answer()
    assert len(answer) == 2 * 3
    assert all(sentence in unescape(html) for sentence in answer)
    for change in result.changes:
        assert change.low <= change.value <= change.high
        named = f"{change.benchmark}, {change.direction.replace('_', ' ')} {change.value:+.1f}"
        [sentence] = [
            s
            for s in answer
            if s.startswith(change.model) and (change.benchmark in demo.LONG) == ("long texts" in s)
        ]
        assert (named in sentence) == (change.low > 0 or change.high < 0)


def test_examples_keep_the_proportion_of_wins_and_losses(result: DemoResult) -> None:
    found, counts = result.examples, result.examples.counts
    assert (found.first, found.second) == ("BLIP0", "C4")
    assert found.rule in unescape(result.report.read_text("utf-8"))
    told = [counts.first, counts.second]
    if any(told):
        wins = sum(example.kind == "first" for example in found.examples)
        share = wins / len(found.examples)
        assert abs(share - told[0] / sum(told)) <= 1 / len(found.examples)
