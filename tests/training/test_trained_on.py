"""What a model has learned from is known wherever it and the pictures are copied to."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection, ImageRef
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.errors import ParagrainError
from paragrain.evaluation import Result, evaluate, trained_on_lines
from paragrain.training import Run, train

SHORT = {"batch_size": 8, "epochs": 1, "learning_rate": 1e-3, "progress": False}


@pytest.fixture(scope="module")
def photos(write_records, record, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """12 images to train on, 7 to validate on; of 8 to test on, 3 are copies and 1 is a twin."""
    records = [record(n) for n in range(12)] + [record(n + 15, "val") for n in range(7)]
    records[3].group = "one scene"
    tests = [record(n + 30, "test") for n in range(8)]
    for copy, n in ((0, 1), (1, 2), (2, 5)):
        tests[copy].image = ImageRef(records[n].image.bytes)
    tests[3].group = "one scene"
    return write_records(tmp_path_factory.mktemp("c") / "photos", records + tests)


@pytest.fixture(scope="module")
def run(photos: Collection, encoder: ImageTextEncoder, tmp_path_factory) -> Run:
    return train(photos, encoder, recipe="c5", out=tmp_path_factory.mktemp("r") / "c5", **SHORT)


def counts(result: Result) -> dict[str, tuple[int, int, int]]:
    """Of each split the images, those trained on, and those validated on."""
    splits = result.about["trained_on"]["splits"]
    return {k: (v["images"], v["trained"], v["validated"]) for k, v in splits.items()}


def seen(photos: Collection, encoder: ImageTextEncoder, split: str = "test") -> Result:
    return evaluate(photos, encoder, max_length=40, split=split, progress=False)


def test_a_test_split_that_holds_copies_and_twins_is_no_test(
    photos: Collection, run: Run, encoder: ImageTextEncoder
) -> None:
    result = seen(photos, run.encoder)
    assert counts(result) == {"test": (8, 4, 0)}
    line = "4 of 8 images of split test were trained on (3 same content, 1 same group)"
    assert trained_on_lines(result.about) == [f"{line}: this is not a test"]
    assert line in repr(result)
    parts = result.about["trained_on"]["parts"]
    assert [parts[name]["images"] for name in ("all", "seen", "unseen")] == [8, 4, 4]
    hits, _ = result.queries.hits("image_to_text", 1)
    recall = parts["seen"]["scores"]["strict"]["image_to_text"]["R@1"]
    assert recall == pytest.approx(100 * hits[:4].mean())
    assert seen(photos, encoder).about["trained_on"] is None  # where it started from does not tell


def test_each_split_of_a_whole_collection_is_told_apart(photos: Collection, run: Run) -> None:
    result = seen(photos, run.encoder, "all")
    assert counts(result) == {"train": (12, 12, 0), "val": (7, 0, 7), "test": (8, 4, 0)}
    assert [line.split(" of split")[0] for line in trained_on_lines(result.about)] == [
        "12 of 12 images",
        "the best step was chosen on 7 of 7 images",
        "4 of 8 images",
    ]


def test_a_checkpoint_is_known_wherever_it_is(photos: Collection, run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder / "checkpoint", tmp_path / "moved")
    run.encoder.save(tmp_path / "saved")
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "trained_on.json").unlink()  # as a kill, or its own `save`
    for place in ("moved", "saved", "run/checkpoint", "run"):
        assert counts(seen(photos, load_encoder(tmp_path / place)))["test"][1] == 4, place


def test_the_pictures_are_known_under_other_ids_and_in_other_collections(
    photos: Collection, run: Run, write_records, tmp_path: Path
) -> None:
    records = [
        replace(one, id=f"other {n}", split="any", group=None, captions=["new words"])
        for n, one in enumerate(photos.records("train", images=True))
    ]
    other = write_records(tmp_path / "other", records)
    result = evaluate(other, run.encoder, texts="captions", max_length=40, progress=False)
    assert counts(result) == {"any": (12, 12, 0)}


def test_other_bytes_under_an_id_of_the_same_set_are_named(
    photos: Collection, run: Run, write_records, record, tmp_path: Path
) -> None:
    changed = [record(n) for n in range(12)]
    for n, one in enumerate(changed):
        one.image = ImageRef(record(n + 50).image.bytes)
    result = seen(write_records(tmp_path / "again", changed), run.encoder, "train")
    known = result.about["trained_on"]
    assert known["same_id"] + known["splits"]["train"]["trained"] == 12
    assert known["same_id"] > 0
    assert "other bytes" in trained_on_lines(result.about)[-1]


def test_a_run_that_starts_from_a_run_knows_both(
    photos: Collection, run: Run, write_records, record, tmp_path: Path
) -> None:
    more = [record(n, "more") for n in range(40, 52)]
    for n, one in enumerate(more):
        one.image = ImageRef(one.image.bytes + bytes([n]))  # a picture of its own
    second = write_records(tmp_path / "more", more)
    later = train(second, run.encoder, recipe="c4", out=tmp_path / "later", split="more", **SHORT)
    assert [entry["split"] for entry in later.encoder.trained_on.sets] == ["train", "val", "more"]
    assert counts(seen(photos, later.encoder))["test"][1] == 4
    assert counts(seen(second, later.encoder, "more"))["more"][1] == 12


def test_only_what_a_short_run_has_shown_counts(
    photos: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    run = train(photos, encoder, recipe="c5", out=tmp_path / "r", max_steps=1, **SHORT)
    assert counts(seen(photos, run.encoder, "train")) == {"train": (12, 8, 0)}


def test_training_says_what_it_does_with_each_split(
    photos: Collection, run: Run, paragrain: Callable, random_blip: Path, tmp_path: Path
) -> None:
    assert run.results["splits"] == {
        "train": {"use": "trained", "images": 12, "same_content": 12},
        "val": {"use": "validated", "images": 7, "same_content": 0},
        "test": {"use": None, "images": 8, "same_content": 3},
    }
    done = paragrain("train", photos.folder, "--model", random_blip, "--out", tmp_path / "r",
                     "--set", "max_steps=1", "--set", "split=val", "--batch-size", 8)  # fmt: skip
    assert done.code == 0, done.err
    told = "trains on split val (7 images), validates on none, leaves train (12 images), test (8"
    assert told in done.err
    assert "3 of 8 images of split test are trained on too" not in done.err


def test_the_command_says_so_above_its_table(
    photos: Collection, run: Run, paragrain: Callable, tmp_path: Path
) -> None:
    words = ("evaluate", photos.folder, "--model", run.folder, "--max-length", 40)
    done = paragrain(*words, "--out", tmp_path / "a.json")
    lines = done.out.splitlines()
    assert lines[1].startswith("NOTE: 4 of 8 images of split test were trained on")
    assert lines[2].startswith("tokens ")
    assert [line.split()[:2] for line in lines if line.startswith(("seen", "unseen"))] == [
        ["seen", "4"],
        ["unseen", "4"],
    ]
    done = paragrain("compare", tmp_path / "a.json", tmp_path / "a.json")
    assert "NOTE: A: 4 of 8 images of split test were trained on" in done.out
    assert paragrain(*words, "--json").json["trained_on"]["splits"]["test"]["trained"] == 4


def test_a_damaged_record_is_an_error(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder / "checkpoint", tmp_path / "c")
    for content in ("", "{}", '{"format": 1, "sets": 5, "trained": "", "validated": ""}',
                    '{"format": 1, "sets": [], "trained": "AAA", "validated": ""}'):  # fmt: skip
        (tmp_path / "c" / "trained_on.json").write_text(content)
        with pytest.raises(ParagrainError, match=r"trained_on\.json, which tells what"):
            load_encoder(tmp_path / "c")


def test_hashes_are_few_bytes(run: Run) -> None:
    known = run.encoder.trained_on
    assert known is not None
    assert known.keys["trained"].dtype == np.uint64
    assert (run.folder / "trained_on.json").stat().st_size < 3000
