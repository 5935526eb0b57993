"""Scores of what a training set shares and of the rest, from the ranks of the whole."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paragrain.auditing import audit, audit_of, load_report, marks
from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Result, evaluate, load_result, with_parts
from paragrain.sources.scenes.render import png
from paragrain.sources.scenes.world import scenes_of

SOURCE = {"name": "train", "split": "train"}


@pytest.fixture(scope="module")
def result(world: Collection, encoder: ImageTextEncoder) -> Result:
    return evaluate(world, encoder, texts="captions", max_length=77, progress=False)


def test_the_parts_make_the_whole_and_are_not_ranked_anew(result: Result) -> None:
    ids = result.queries.ids
    known = {"near": set(ids[:3]), "text": {ids[2], ids[7], "of another split"}, "url": set[str]()}
    said = with_parts(result, known, SOURCE).about["audited"]
    assert said["train"] == SOURCE
    assert said["marked"] == {"near": 3, "text": 2, "url": 0}
    parts = said["parts"]
    assert [parts[name]["images"] for name in parts] == [20, 4, 16]
    assert [parts[name]["texts"] for name in parts] == [100, 20, 80]
    rows = np.isin(ids, [*ids[:3], ids[7]])
    for direction in ("image_to_text", "text_to_image"):
        hits, _ = result.queries.hits(direction, 5)
        owner = rows if direction == "image_to_text" else rows[result.queries.text_image]
        for name, own in (("all", owner | True), ("overlapping", owner), ("disjoint", ~owner)):
            recall = parts[name]["scores"]["strict"][direction]["R@5"]
            assert recall == pytest.approx(100 * hits[own].mean())
            low, high = parts[name]["intervals"]["strict"][direction]["R@5"]
            assert low <= recall <= high
    assert parts["all"]["intervals"] == result.intervals
    assert parts["all"]["scores"]["strict"] == result.scores.as_dict()["strict"]
    assert parts["overlapping"]["intervals"]["units"] == 4


def test_a_part_that_asks_nothing_has_no_score(result: Result) -> None:
    parts = with_parts(result, {}, SOURCE).about["audited"]["parts"]
    assert parts["overlapping"] == {"images": 0, "texts": 0, "scores": None, "intervals": None}
    assert parts["disjoint"] == parts["all"]
    assert json.dumps(parts, allow_nan=False)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """TRAIN of a split for training and another, EVAL of 12 images; two are shared, one text is."""
    folder = tmp_path_factory.mktemp("sets")
    drawn = {
        split: [png(scene) for _, scene in scenes_of(split, 12, 5, family=1)]
        for split in ("train", "test")
    }
    own = [
        Record(f"e{n}", ImageRef(data), captions=[f"a red star, {n}"])
        for n, data in enumerate(drawn["test"])
    ]
    seen = [Record("c1", ImageRef(drawn["test"][1]), split="train"),
            Record("c5", ImageRef(drawn["test"][5]), split="val")]  # fmt: skip
    seen += [
        Record(f"t{n}", ImageRef(data), split="train", captions=[f"A RED star -- {n + 8}!"])
        for n, data in enumerate(drawn["train"])
    ]
    for name, records in (("train", seen), ("eval", own)):
        items = [Item(r.id, "", lambda r=r: r, trusted=True) for r in records]
        write_collection(folder / name, items, name=name, source="test", progress=False)
    return folder / "train", folder / "eval"


def test_the_split_that_is_trained_on_is_compared(sets: tuple[Path, Path]) -> None:
    train, data = sets[0], Collection.open(sets[1])
    by_default = marks(audit_of(train, data, progress=False))
    assert by_default["bytes"] == {"e1"}
    assert by_default["text"] == {"e8", "e9", "e10", "e11"}
    everything = audit_of(train, data, train_split="all", progress=False)
    assert marks(everything, ["bytes"]) == {"bytes": {"e1", "e5"}}
    with pytest.raises(UsageError, match=r"nothing by 'looks': choose from id, url"):
        marks(everything, ["looks"])
    with pytest.raises(UsageError, match="audited against itself"):
        audit_of(sets[1], data, progress=False)


def test_a_written_audit_is_taken_if_it_is_of_this_data(
    sets: tuple[Path, Path], tmp_path: Path
) -> None:
    train, data = Collection.open(sets[0]), Collection.open(sets[1])
    report = audit(train, data, progress=False)
    report.write(tmp_path / "a")
    back = load_report(tmp_path / "a" / "audit.json")
    assert back.as_dict() == report.as_dict()
    assert audit_of(tmp_path / "a", data).findings == report.findings
    with pytest.raises(UsageError, match=r"is of other data \(eval\)"):
        audit_of(tmp_path / "a", train)
    with pytest.raises(UsageError, match="name none of TRAIN"):
        audit_of(tmp_path / "a", data, train_split="train")
    audit(data, progress=False).write(tmp_path / "own")
    with pytest.raises(UsageError, match="compares one collection with itself"):
        audit_of(tmp_path / "own", data)
    audit(data, train, split="val", progress=False).write(tmp_path / "val")
    with pytest.raises(UsageError, match="of the split val alone, not of train"):
        audit_of(tmp_path / "val", train, split="train")
    for damage in ("{}", "[1]", '{"train": 1', ""):
        (tmp_path / "a" / "audit.json").write_text(damage)
        with pytest.raises(ParagrainError, match="is not an audit, or is damaged"):
            audit_of(tmp_path / "a", data)
    with pytest.raises(UsageError, match="there is no audit"):
        load_report(tmp_path / "b.json")


def test_the_command_reports_the_parts(
    sets: tuple[Path, Path], paragrain: Callable, tmp_path: Path, random_blip: Path
) -> None:
    train, data = sets
    words = ("evaluate", data, "--model", random_blip, "--texts", "captions", "--max-length", 40)
    done = paragrain(*words, "--audited", train, "--out", tmp_path / "r.json")
    assert done.code == 0, done.err
    told = "5 of 12 images with texts are shared with train, split train (1 by bytes, 4 by text)"
    assert told in done.out
    rows = [line.split()[:3] for line in done.out.splitlines()]
    assert ["overlapping", "5", "5"] in rows
    assert ["disjoint", "7", "7"] in rows
    saved = load_result(tmp_path / "r.json").about["audited"]
    assert saved["marked"]["text"] == 4
    assert saved["parts"]["overlapping"]["intervals"]["units"] == 5

    assert paragrain("audit", train, data, "--out", tmp_path / "a").code == 0
    by_file = paragrain(
        *words, "--audited", tmp_path / "a", "--audited-by", "bytes, near", "--json"
    )
    assert by_file.json["audited"]["marked"] == {"bytes": 2, "near": 0}
    sweep = paragrain(*words[:-2], "--sweep", "20,40", "--audited", train)
    assert sweep.out.count("overlapping") == 2
    for extra, message in (
        (("--audited", tmp_path / "none"), "none"),
        (("--audited", data), "cannot be audited against itself"),
        (("--audited", train, "--audited-by", "looks"), "finds nothing by 'looks'"),
    ):
        done = paragrain(*words, *extra)
        assert done.code == 2, done.err
        assert message in done.err


def test_images_of_train_that_cannot_be_compared_are_named(
    sets: tuple[Path, Path], paragrain: Callable, tmp_path: Path, random_blip: Path
) -> None:
    broken = tmp_path / "broken"
    picture = next(png(scene) for _, scene in scenes_of("train", 1, 5, family=1))
    records = [Record("b", ImageRef(b"no picture")), Record("c", ImageRef(picture))]
    items = [Item(r.id, "", lambda r=r: r, trusted=True) for r in records]
    write_collection(broken, items, name="broken", source="test", progress=False)
    done = paragrain("evaluate", sets[1], "--model", random_blip, "--texts", "captions",
                     "--audited", broken)  # fmt: skip
    assert done.code == 3
    assert "broken, b: " in done.err
