"""A mini study, run and run again, changed and broken."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.files import read_json
from paragrain.locks import hold
from paragrain.study import workers
from paragrain.study.cells import cell_folder
from paragrain.study.plan import Cell, Study
from paragrain.study.report import write_report
from paragrain.study.runner import StudyReport, progress_of, run_study
from paragrain.study.scores import Column, read_scores

MakeStudy = Callable[..., Study]
Here = dict[str, Any]


def run(study: Study, out: Path, **more: Any) -> StudyReport:
    return run_study(study, out, **{"workers": 1, "device": "cpu", "progress": False, **more})


def stamps(out: Path) -> dict[str, int]:
    """When each file of the cells was written."""
    files = (path for path in (out / "cells").rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


@pytest.fixture
def copied(finished: tuple[Study, Path], tmp_path: Path) -> Path:
    """A copy of the finished study's folder, as `out`."""
    return Path(shutil.copytree(finished[1], tmp_path / "out"))


def test_a_study_comes_to_its_end(finished: tuple[Study, Path]) -> None:
    study, out = finished
    scores = read_scores(study, out)
    assert scores.missing == []
    assert {name: len(c) for name, c in scores.recalls.items()} == dict.fromkeys(study.models, 12)
    assert len(scores.recalls["c4"][Column("long", "image_to_text")].seeds) == 2
    assert list(scores.curves["cut"]) == ["BLIP", "c1", "c4"]
    assert all(row["done"] == row["cells"] for row in progress_of(study, out))
    for cell in study.cells():
        assert not (cell_folder(cell, out) / "run" / "last").exists()
        assert (cell_folder(cell, out) / "seconds.json").is_file()
    kept = cell_folder(study.models["c4"][1], out) / "run"
    assert read_json(kept / "results.json")["seed"] == 1
    assert read_json(kept / "results.json")["steps"] == 2


def test_seeds_differ_and_a_point_of_a_curve_is_the_result_at_its_budget(
    finished: tuple[Study, Path],
) -> None:
    study, out = finished
    scores = read_scores(study, out)
    for direction in ("image_to_text", "text_to_image"):
        point = scores.curves["cut"]["c4"][direction][40]
        assert point.seeds == scores.recalls["c4"][Column("long", direction)].seeds
    weights = [cell_folder(cell, out) / "run/checkpoint/model.safetensors" for cell in
               study.models["c4"]]  # fmt: skip
    assert weights[0].read_bytes() != weights[1].read_bytes()


def test_a_second_call_does_nothing(finished: tuple[Study, Path], copied: Path) -> None:
    before = stamps(copied)
    again = run(finished[0], copied)
    assert (again.done, again.kept, again.failed) == (0, 7, [])
    assert stamps(copied) == before


@pytest.mark.parametrize(
    ("changes", "done", "kept", "of"),
    [
        ({"recipes": ["c1", "c2", "c4"]}, 2, 7, {"c2"}),
        ({"seeds": [0, 1, 5]}, 3, 7, {"c1", "c4", "c4-10"}),
        (
            {"benchmarks/third": {"collection": "world", "texts": "captions", "max_length": 9,
                                  "models": ["c1"]}},
            2, 5, {"c1"},
        ),
        ({"curves/cut/cells": ["BLIP", "c1", "c4", "c4-10"]}, 2, 5, {"c4-10"}),
        ({"settings/max_steps": 3}, 6, 1, {"c1", "c4", "c4-10"}),
    ],
)  # fmt: skip
def test_what_is_new_is_all_that_is_done(
    make_study: MakeStudy, here: Here, copied: Path, changes: Here, done: int, kept: int, of: set
) -> None:
    before = stamps(copied)
    study = make_study({**here, **changes})
    report = run(study, copied)
    assert (report.done, report.kept, report.failed) == (done, kept, [])
    after = stamps(copied)
    moved = {n for n in before if after[n] != before[n]}
    assert all(name.endswith("/seconds.json") for name in moved)
    new = after.keys() - before.keys()
    assert {name.split("/")[1].rsplit("-", 1)[0] for name in new | moved} == of
    assert read_scores(study, copied).missing == []


def test_a_changed_file_under_the_same_path_is_seen_in_the_same_process(
    make_study: MakeStudy, here: Here, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run(make_study(here), out, only=["BLIP"]).done == 1
    report = run(make_study({**here, "recipes": ["c4", "c1"]}), out, only=["c4"], seeds=[1])
    assert (report.done, report.failed) == (1, [])
    assert [path.name.split("-")[0] for path in (out / "cells").iterdir()] in (
        ["blip", "c4"],
        ["c4", "blip"],
    )


def test_only_some_cells_and_seeds(make_study: MakeStudy, here: Here, tmp_path: Path) -> None:
    study, out = make_study(here), tmp_path / "out"
    assert run(study, out, only=["c4"], seeds=[1]).done == 1
    rows = {row["name"]: (row["done"], row["cells"]) for row in progress_of(study, out)}
    assert rows == {"BLIP": (0, 1), "c1": (0, 2), "c4": (1, 2), "c4-10": (0, 2)}
    for wrong in ({"only": ["c4", "c9"]}, {"seeds": [7]}, {"seeds": [0, 7]}):
        with pytest.raises(UsageError, match=r"has no (cell 'c9'|seed 7)"):
            run(study, out, **wrong)


def test_a_run_of_the_copy_in_its_own_folder(finished: tuple[Study, Path], copied: Path) -> None:
    from paragrain.study.plan import load_study

    own = load_study(copied / "study.yaml")
    assert run(own, copied).kept == 7


def test_a_failing_cell_is_named_and_the_others_go_on(
    make_study: MakeStudy, here: Here, copied: Path
) -> None:
    blind = {"from": "description", "share": 0.0001}
    study = make_study(
        {
            **here,
            "recipes": ["c1", "c2", "c4"],
            "groups/half/cells/none": {"recipe": {"positives": [blind]}},
            "baselines/Gone": {"model": "nowhere/at-all"},
        }
    )
    report = run(study, copied)
    assert (report.done, report.kept) == (2, 7)
    assert [label for label, _ in report.failed] == ["Gone", "none, seed 0", "none, seed 1"]
    assert "takes in no image" in report.failed[1][1]
    assert all("\n" not in why for _, why in report.failed)


def test_an_error_of_any_kind_is_named(
    make_study: MakeStudy, here: Here, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("paragrain.study.cells.train", broken)
    report = run(make_study({**here, "recipes": ["c1", "c2", "c4"]}), copied)
    assert report.failed == [
        ("c2, seed 0", "ZeroDivisionError: by zero"),
        ("c2, seed 1", "ZeroDivisionError: by zero"),
    ]


@pytest.fixture
def own_world(world: Collection, tmp_path: Path) -> Path:
    """A copy of the world, to be changed."""
    return Path(shutil.copytree(world.folder, tmp_path / "world"))


def test_a_collection_that_changed_is_refused(
    make_study: MakeStudy, here: Here, own_world: Path, tmp_path: Path
) -> None:
    from paragrain.sources.scenes import import_scenes

    there = {**here, "collections/world": {"path": str(own_world)}}
    run(make_study(there), tmp_path / "out", only=["BLIP"])
    import_scenes(own_world, size=31, seed=1, progress=False)
    with pytest.raises(UsageError, match="is not what it was"):
        run(make_study(there), tmp_path / "out")
    assert run(make_study(there), tmp_path / "other", only=["BLIP"]).done == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"benchmarks/long/split": "moon"}, "no split 'moon'"),
        ({"settings/split": "moon"}, "no split 'moon'"),
        ({"collections/world": {"path": "no/where", "make": "paragrain import x"}}, "import x`"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_trained(
    make_study: MakeStudy, here: Here, tmp_path: Path, changes: Here, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        run(make_study({**here, **changes}), tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()


def test_two_runs_in_one_folder_are_refused(finished: tuple[Study, Path], copied: Path) -> None:
    with hold(copied / ".lock"), pytest.raises(UsageError, match="another process runs"):
        run(finished[0], copied)


def test_images_that_cannot_be_used_are_named_once(
    make_study: MakeStudy, here: Here, own_world: Path, tmp_path: Path
) -> None:
    from paragrain.collection import Item, write_collection

    def items() -> Any:
        for record in Collection.open(own_world).records(images=True):
            if record.id.endswith("00003"):
                record.image.bytes = b"no picture"
            yield Item(record.id, "1", lambda r=record: r, trusted=True)

    write_collection(tmp_path / "odd", items, name="odd", source="test", progress=False)
    study = make_study({**here, "collections/world": {"path": str(tmp_path / "odd")}})
    report = run(study, tmp_path / "out", only=["BLIP", "c4"], seeds=[0])
    assert (report.done, report.failed) == (2, [])
    assert len(report.skipped) == 4  # one of each split
    assert {row["name"] for row in progress_of(study, tmp_path / "out")} >= {"c4"}
    scores = read_scores(study, tmp_path / "out")
    assert {len(one.seeds) for one in scores.recalls["c4"].values()} == {1}


def test_a_model_that_reads_less_than_a_curve_asks_for_has_a_shorter_line(
    make_study: MakeStudy, here: Here, random_clip: Path, tmp_path: Path
) -> None:
    study = make_study(
        {
            **here,
            "baselines/CLIP": {"model": str(random_clip)},
            "benchmarks/long/max_length": 128,
            "curves/cut/max_lengths": [10, 77, 128],
            "curves/cut/cells": ["BLIP", "CLIP"],
            "curves/far": {
                "benchmark": "long",
                "max_lengths": [100, 128],
                "cells": ["BLIP", "CLIP"],
            },
        }
    )
    assert run(study, tmp_path / "out", only=["BLIP", "CLIP"]).failed == []
    scores = read_scores(study, tmp_path / "out")
    assert list(scores.curves["cut"]["CLIP"]["image_to_text"]) == [10, 77]
    assert list(scores.curves["cut"]["BLIP"]["image_to_text"]) == [10, 77, 128]
    assert list(scores.curves["far"]) == ["BLIP"]
    assert not {"CLIP", "BLIP"} & set(scores.missing)


def test_trained_vision_and_equal_tokens_and_joined_texts(
    make_study: MakeStudy, here: Here, own_world: Path, tmp_path: Path
) -> None:
    study = make_study(
        {
            **here,
            "seeds": [0],
            "collections/world": {"path": str(own_world)},
            "collections/joined": {
                "joined": {"collection": "world", "fields": ["paragraph", "description"]}
            },
            "benchmarks/all": {
                "collection": "joined", "split": "twins", "texts": "description", "max_length": 60,
                "models": ["c4-joined", "c1-like"],
            },
            "groups/more": {
                "kind": "control", "title": "t", "question": "q",
                "cells": {
                    "c4-vision": {"recipe": "c4", "settings": {"train_vision": True}},
                    "c1-like": {"recipe": "c1", "tokens_like": "c4"},
                    "c4-joined": {
                        "recipe": {"positives": [{"from": "description"}]},
                        "collection": "joined",
                        "settings": {"max_length": {"description": 60}},
                    },
                },
            },
        }
    )  # fmt: skip
    out = tmp_path / "out"
    run(study, out, only=["BLIP"])
    vectors = set((own_world / "embeddings").iterdir())
    report = run(study, out, only=["c4", "c4-vision", "c1-like", "c4-joined"])
    assert (report.done, report.failed) == (4, [])

    def trained(name: str) -> dict[str, Any]:
        return read_json(cell_folder(study.models[name][0], out) / "run" / "results.json")

    assert trained("c4-vision")["train_vision"] is True
    tokens = trained("c1-like")["totals"]["tokens"] / trained("c4")["totals"]["tokens"]
    steps = trained("c1-like")["steps"]
    assert abs(tokens - 1) < 1 / steps + 0.1
    record = next(iter(Collection.open(out / "collections" / "joined").records("twins")))
    assert record.description is not None
    assert record.description.startswith(record.paragraph or "?")
    # The vectors of a image tower that trained are of no use to any other cell.
    assert set((own_world / "embeddings").iterdir()) == vectors


class FakePool:
    """A pool whose process dies at the cell `c4, seed 0`, and takes all others with it."""

    def __init__(self, workers: int, *_: Any, **__: Any) -> None:
        self.broken = False

    def __enter__(self) -> "FakePool":
        return self

    def __exit__(self, *_: object) -> None: ...

    def shutdown(self, **_: Any) -> None: ...

    def submit(self, _: Any, study: Study, cell: Cell, *__: Any) -> Any:
        from concurrent.futures import Future
        from concurrent.futures.process import BrokenProcessPool

        future: Any = Future()
        self.broken |= cell.label == "c4, seed 0"
        if self.broken:
            future.set_exception(BrokenProcessPool("died"))
        else:
            future.set_result(({}, ""))
        return future


def test_a_process_that_dies_costs_its_own_cell_alone(
    make_study: MakeStudy, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", FakePool)
    report = run(make_study(here), tmp_path / "out", workers=2)
    assert report.done == 6
    assert report.failed == [("c4, seed 0", "its process died: is there enough memory?")]


def test_a_report_of_half_a_study_names_the_rest(
    make_study: MakeStudy, here: Here, tmp_path: Path
) -> None:
    study, out = make_study(here), tmp_path / "out"
    with pytest.raises(UsageError, match="run the study first"):
        write_report(study, out, tmp_path / "report", progress=False)
    run(study, out, only=["BLIP", "c4"], seeds=[0])
    written = write_report(study, out, tmp_path / "report", progress=False)
    assert set(written.missing) == {
        *("c1, seed 0", "c1, seed 1", "c4, seed 1", "c4-10, seed 0", "c4-10, seed 1")
    }
    assert written.claims == [("Longer.", "not measured")]
    assert read_json(tmp_path / "report" / "results.json")["missing"] == list(written.missing)
    assert "c4-10, seed 1" in written.page.read_text("utf-8")
