"""`paragrain study`: run, status and report, in words and as JSON, and how they end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]


@pytest.fixture
def study(world: Path, random_blip: Path, tmp_path: Path) -> Path:
    """A study file of two cells and an untouched model."""
    content = {
        "name": "mini",
        "title": "Mini",
        "model": str(random_blip),
        "model_title": "BLIP",
        "train": "world",
        "settings": {"max_steps": 2, "batch_size": 8, "micro_batch_tokens": 1_000_000},
        "seeds": [0, 1],
        "collections": {"world": {"path": str(world)}},
        "recipes": ["c1"],
        "benchmarks": {
            "long": {"collection": "world", "split": "test", "texts": "paragraph", "max_length": 30}
        },
        "claims": [
            {"text": "Up.", "above": {"first": "BLIP", "seconds": ["c1"], "benchmarks": ["long"]}}
        ],
    }
    path = tmp_path / "mini.yaml"
    path.write_text(yaml.safe_dump(content), "utf-8")
    return path


def changed(study: Path, **changes: Any) -> Path:
    content = yaml.safe_load(study.read_text("utf-8")) | changes
    study.write_text(yaml.safe_dump(content), "utf-8")
    return study


def test_a_study_from_the_plan_to_the_report(
    paragrain: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--workers", 1, "--device", "cpu")
    plan = paragrain("study", "run", study, "--dry-run")
    assert plan.code == 0
    assert "ok      world" in plan.out
    assert "learning rate 1e-05, batch 8" in plan.out
    assert not (tmp_path / "runs").exists()

    nothing = paragrain("study", "report", study)
    assert (nothing.code, "run the study first" in nothing.err) == (2, True)

    half = paragrain("study", "run", study, *options, "--seed", 0)
    assert half.code == 0
    assert half.out.splitlines()[0].startswith("runs/mini: 2 cells done in ")
    assert "c1, seed 0: training" in half.err
    status = paragrain("study", "status", study)
    assert status.out.splitlines()[0] == "2 of 3 cells are done"

    partial = paragrain("study", "report", study, "--to", tmp_path / "half")
    assert partial.code == 3
    assert "c1, seed 1: has no results yet" in partial.err
    assert "report: " in partial.out

    rest = paragrain("study", "run", study, *options, "--json").json
    assert (rest["done"], rest["kept"], rest["failed"], rest["skipped"]) == (1, 2, [], [])
    status = paragrain("study", "status", study, "--json").json
    assert (status["done"], status["cells"]) == (3, 3)
    assert status["models"][1]["seconds"] > 0

    report = paragrain("study", "report", study, "--json")
    assert report.code == 0
    assert report.json["missing"] == []
    assert [claim["claim"] for claim in report.json["claims"]] == ["Up."]
    folder = Path(report.json["report"]).parent
    assert folder == Path("runs/mini/report")
    data = json.loads((folder / "results.json").read_bytes())
    assert {row["model"] for row in data["recalls"]} == {"BLIP", "c1"}
    lines = (folder / "results.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 2 * 6


def test_the_plan_as_json(paragrain: Run, study: Path) -> None:
    plan = paragrain("study", "run", study, "--dry-run", "--json").json
    assert plan["ready"] is True
    assert [cell["name"] for cell in plan["cells"]] == ["BLIP", "c1"]
    assert plan["settings"]["batch_size"] == 8


def test_a_failing_cell_is_named_and_counted(paragrain: Run, study: Path, tmp_path: Path) -> None:
    changed(study, baselines={"Gone": {"model": "nowhere/at-all"}})
    where = ("--out", tmp_path / "o", "--device", "cpu", "--workers", 1, "--seed", 0)
    said = paragrain("study", "run", study, *where)
    assert said.code == 3
    assert "2 cells done" in said.out
    assert "0 were there, 1 failed" in said.out
    assert "1 failed or skipped:\n  Gone: " in said.err
    again = paragrain("study", "run", study, *where, "--json")
    assert again.code == 3
    assert again.json["kept"] == 2
    assert again.json["failed"][0][0] == "Gone"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--only", "c9"], "has no cell 'c9'"),
        (["--seed", "9"], "has no seed 9"),
        (["--only", "c1", "--only", "typo"], "has no cell 'typo'"),
        (["--workers", "0"], "workers"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_sentence(
    paragrain: Run, study: Path, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    said = paragrain("study", "run", study, "--out", tmp_path / "o", *arguments)
    assert said.code == 2
    assert problem in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("verb", ["run", "status", "report"])
def test_a_file_that_is_no_study(paragrain: Run, verb: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("name: 1\n")
    for name in ("s.yaml", "absent.yaml"):
        said = paragrain("study", verb, tmp_path / name)
        assert said.code == 2
        assert name in said.err
        assert "Traceback" not in said.err
