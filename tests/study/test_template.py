"""A first study file for whatever collection is at hand, which a dry run accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paragrain.collection import Collection, Record, write_collection
from paragrain.errors import UsageError
from paragrain.study.plan import load_study, shipped, study_text
from paragrain.study.template import study_template


def make(folder: Path, png: bytes, texts: dict[str, dict[str, object]]) -> Path:
    """A collection: for each split, the texts of its three images."""
    from functools import partial

    from paragrain.collection import ImageRef, Item

    def record(split: str, number: int) -> Record:
        own = texts[split]
        return Record(f"{split}-{number}", ImageRef(png, None), split=split, **own)  # type: ignore[arg-type]

    def items() -> object:
        for split in texts:
            for number in range(3):
                yield Item(f"{split}-{number}", "1", partial(record, split, number))

    write_collection(folder, items, name=folder.name, source="test", progress=False)  # type: ignore[arg-type]
    return folder


ALL: dict[str, object] = {
    "captions": ["a dog"],
    "generated": ["a dog runs"],
    "negatives": ["a cat"],
    "paragraph": "A dog runs over a field.",
    "description": "There is a dog.",
}


@pytest.fixture
def png() -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("texts", "recipes", "benchmarks"),
    [
        ({"train": ALL, "test": ALL}, 10, ["short", "long", "long-other"]),
        ({"train": {"captions": ["a"]}, "val": {"captions": ["b"]}}, 1, ["short"]),
        ({"train": {"paragraph": "A b."}, "test": {"paragraph": "C."}}, 1, ["long"]),
        ({"train": {"description": "A b."}, "test": {"description": "C."}}, 0, ["long-other"]),
        ({"left": {"captions": ["a"]}, "right": {"captions": ["b"]}}, 1, ["short"]),
    ],
)
@pytest.mark.parametrize("name", ["photos", "照片 <b>: #1", "-"])
def test_a_dry_run_accepts_what_is_written(
    tmp_path: Path,
    png: bytes,
    texts: dict[str, dict[str, object]],
    recipes: int,
    benchmarks: list[str],
    name: str,
    paragrain: Callable[..., Any],
) -> None:
    folder = make(tmp_path / name, png, texts)
    file = tmp_path / "study.yaml"
    assert paragrain("study", "new", folder, file, "--model", "blip0").code == 0
    study = load_study(file)
    assert len(study.file.recipes) == recipes
    assert list(study.file.benchmarks) == benchmarks
    dry = paragrain("study", "run", file, "--dry-run", "--json", "--out", tmp_path / "out")
    assert dry.code == 0
    told = json.loads(dry.out)
    assert told["ready"]
    assert {row["images"] for row in told["cells"]} == {0, 3}
    again = paragrain("study", "new", folder, file, "--model", "blip0")
    assert again.code == 2
    assert "is there already" in again.err


@pytest.mark.parametrize(
    ("texts", "model", "problem"),
    [
        ({"train": ALL}, "blip0", "--val 0.1 --test 0.1"),
        ({"train": ALL, "test": ALL}, None, "remembers no model"),
        ({"train": {}, "test": ALL}, "blip0", "no texts to train by"),
        ({"train": ALL, "test": {"generated": ["a"]}}, "blip0", "to measure with"),
    ],
)
def test_what_a_study_cannot_be_made_of_is_said(
    tmp_path: Path,
    png: bytes,
    texts: dict[str, dict[str, object]],
    model: str | None,
    problem: str,
) -> None:
    folder = make(tmp_path / "photos", png, texts)
    with pytest.raises(UsageError, match=problem):
        study_template(folder, model)


def test_the_model_that_the_collection_remembers_is_taken(tmp_path: Path, png: bytes) -> None:
    folder = make(tmp_path / "photos", png, {"train": ALL, "test": ALL})
    info = json.loads((folder / "collection.json").read_text("utf-8"))
    (folder / "collection.json").write_text(json.dumps({**info, "model": "/models/mine"}), "utf-8")
    assert yaml.safe_load(study_template(folder))["model"] == "/models/mine"
    assert Collection.open(folder).model == "/models/mine"


def test_studies_ship_and_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paragrain: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped() == ["demo", "paper", "scenes"]
    for name in shipped():
        assert load_study(name).file == load_study(_written(tmp_path / "mine.yaml", name)).file
    assert paragrain("study", "show", "scenes").out == study_text("scenes")
    with pytest.raises(UsageError, match="ships \\(demo, paper, scenes\\)"):
        load_study("scene")
    (tmp_path / "scenes").write_text("name: [", "utf-8")  # an own file of that name comes first
    with pytest.raises(UsageError, match="cannot be read"):
        load_study("scenes")


def _written(path: Path, name: str) -> Path:
    path.write_text(study_text(name), "utf-8")
    return path
