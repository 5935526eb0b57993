"""What a study will cost, against sums that were done by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.collection import Collection
from paragrain.files import write_json
from paragrain.study.forecast import (
    MEASURED,
    CellForecast,
    Forecast,
    forecast,
    image_tokens,
    measured_hours,
)
from paragrain.study.plan import Study

MakeStudy = Callable[..., Study]
SCENES = {"scenes": {"size": 1000, "seed": 0}}  # 1,000 and 62 and 124 and 124
SPEEDS = {
    "tokens_per_second": 1000,
    "images_per_second": 100,
    "lengths": {"captions": 10, "generated": 20, "negatives": 30, "paragraph": 100},
    "of": "a guess",
}


def plan(make: MakeStudy, changes: dict[str, Any], tmp_path: Path) -> Forecast:
    settings = {"batch_size": 100, "epochs": 3, "max_length": {"paragraph": 64}}
    basis = {"collections/world": SCENES, "throughput": SPEEDS, "settings": settings}
    return forecast(make({**basis, **changes}), tmp_path / "out")


def rows(found: Forecast) -> dict[str, CellForecast]:
    return {row.name: row for row in found.cells}


def test_steps_and_tokens_by_hand(make_study: MakeStudy, tmp_path: Path) -> None:
    found = plan(make_study, {"recipes": ["c1", "c4", "c5", "c7", "c8"]}, tmp_path)
    # 10 steps an epoch, three epochs; every image is seen three times.
    tokens = {
        "c1": 3000 * 10,
        "c4": 3000 * 64,  # of 100, cut
        "c5": 3000 * (10 + 64),
        "c7": 3000 * (10 + 5 * 30),
        "c8": 3000 * (10 + 5 * 20),
        "c4-10": 3000 * 10,
        "BLIP": 0,
    }
    assert {name: row.tokens for name, row in rows(found).items()} == tokens
    assert {row.steps for name, row in rows(found).items() if name != "BLIP"} == {30}
    assert {row.images for name, row in rows(found).items() if name != "BLIP"} == {1000}
    c4 = rows(found)["c4"]
    assert (c4.cells, c4.done, c4.loss) == (2, 0, "InfoNCE")
    assert c4.hours == pytest.approx(3000 * 64 / 1000 / 3600, abs=1e-4)


def test_a_limit_of_steps_and_the_default_lengths(make_study: MakeStudy, tmp_path: Path) -> None:
    settings = {"batch_size": 100, "epochs": 50, "max_steps": 7}
    study = make_study({"collections/world": SCENES, "settings": settings})
    found = forecast(study, tmp_path / "out")
    assert rows(found)["c4"].steps == 7
    assert rows(found)["c4"].tokens == 7 * 100 * 110
    assert found.throughput == MEASURED


def test_shares_joined_texts_and_equal_tokens(make_study: MakeStudy, tmp_path: Path) -> None:
    half = {"positives": [{"from": "paragraph", "share": 0.5}]}
    part = {
        "positives": [{"from": "captions", "select": "first"}, {"from": "paragraph", "share": 0.5}]
    }
    joined = {"positives": [{"from": "generated", "join": True, "max_length": "paragraph"}]}
    cells = {
        "half": {"recipe": half},
        "part": {"recipe": part},
        "joined": {"recipe": joined},
        "like": {"recipe": "c1", "tokens_like": "c4"},
        "big": {"recipe": "c4", "settings": {"batch_size": 5000}},
    }
    found = rows(plan(make_study, {"groups/half/cells": cells, "groups/half/pairs": []}, tmp_path))
    assert (found["half"].steps, found["half"].tokens) == (15, 3 * 500 * 64)
    assert found["part"].tokens == 3 * 1000 * (10 + 32)
    assert found["joined"].tokens == 3 * 1000 * 64  # 5 x 20, as one text that is cut
    assert found["like"].steps == round(30 * 64 / 10)
    assert found["like"].tokens == pytest.approx(found["c4"].tokens, rel=0.01)
    assert (found["big"].steps, found["big"].tokens) == (3, 3 * 1000 * 64)


def test_what_is_to_be_measured(make_study: MakeStudy, tmp_path: Path) -> None:
    found = plan(make_study, {}, tmp_path)
    # Captions of 10 tokens, five a test scene, and paragraphs cut at 40; seven cells. Five of them
    # have a curve at 10 and 40 tokens.
    scenes = 124
    tokens = 7 * (scenes * 5 * 10 + scenes * 40) + 5 * scenes * (10 + 40)
    assert found.measuring_hours == pytest.approx(tokens / 3000 / 3600)
    images = 1000 + 62 + 2 * scenes
    assert found.embedding_hours == pytest.approx(images / 100 / 3600)
    assert found.vectors_bytes == images * 1024
    assert found.hours == pytest.approx(
        sum(row.hours * row.cells for row in found.cells)
        + found.measuring_hours
        + found.embedding_hours
    )


def test_what_is_absent_is_named_with_its_command(make_study: MakeStudy, tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    make = "paragrain import docci x y"
    study = make_study(
        {
            "collections/world": {"path": str(folder), "make": make, "images": 500},
            "baselines/Gone": {"model": str(tmp_path / "g.pt"), "needs": "g.pt from its authors"},
        }
    )
    found = forecast(study, tmp_path / "out")
    needs = {need.name: need for need in found.needs}
    assert not found.ready
    assert not needs["world"].there
    assert needs["world"].says.endswith(f"; make it with: {make}")
    assert (needs["Gone"].there, needs["Gone"].says) == (False, "g.pt from its authors")
    assert needs["BLIP"].there
    assert rows(found)["c4"].images == 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.yaml"]
    assert found.as_dict()["ready"] is False


def test_a_collection_that_is_there_is_counted(
    make_study: MakeStudy, world: Collection, tmp_path: Path
) -> None:
    there = {"collections/world": {"path": str(world.folder)}}
    before = sorted(world.folder.rglob("*"))
    found = forecast(make_study(there), tmp_path / "out")
    (need,) = (need for need in found.needs if need.name == "world")
    assert (need.there, need.says) == (True, "train 30, val 10, test 20, twins 20")
    assert rows(found)["c4"].images == 30
    assert sorted(world.folder.rglob("*")) == before
    odd = forecast(make_study({**there, "benchmarks/long/split": "moon"}), tmp_path / "out")
    assert "no split 'moon'" in odd.needs[0].says
    assert not odd.ready


def test_texts_that_are_not_written_yet_are_named(make_study: MakeStudy, tmp_path: Path) -> None:
    from paragrain.collection import Item, write_collection
    from paragrain.sources.scenes import import_scenes

    import_scenes(tmp_path / "w", size=20, progress=False)
    full = Collection.open(tmp_path / "w")

    def items() -> Any:
        for record in full.records(images=True):
            record.paragraph, record.negatives = None, []
            yield Item(record.id, "1", lambda r=record: r)

    write_collection(tmp_path / "bare", items, name="bare", source="test", progress=False)
    study = make_study({"collections/world": {"path": str(tmp_path / "bare")}})
    (need, *_) = forecast(study, tmp_path / "out").needs
    assert "it has no texts in paragraph: write them with `paragrain annotate" in need.says


def test_tokens_of_an_image_with_numbered_picks(make_study: MakeStudy) -> None:
    recipe = {
        "positives": [{"from": "generated", "select": 3}],
        "negatives": [{"from": "negatives", "select": 2}],
    }
    study = make_study({"groups/half/cells/n": {"recipe": recipe}})
    cell = study.models["n"][0]
    assert cell.recipe is not None
    assert image_tokens(cell.recipe, cell, MEASURED) == 3 * 16 + 2 * 16


def test_hours_of_cells_that_are_done(make_study: MakeStudy, tmp_path: Path) -> None:
    study = make_study()
    folders = [next(study.cells()).folder, study.models["c4"][1].folder, "gone-12345678/seed0"]
    for name, seconds in zip(folders, ({"t": 1800, "m": 900}, {"m": 900}, {"m": 9}), strict=True):
        (tmp_path / "cells" / name).mkdir(parents=True)
        write_json(tmp_path / "cells" / name / "seconds.json", seconds)
    assert measured_hours(study, tmp_path) == 1.0
    assert measured_hours(study, tmp_path / "none") == 0.0
