"""A recipe that misses a field is another recipe, and says so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.training import load_recipe, train
from paragrain.training.coverage import count_coverage
from paragrain.training.recipes import parse_recipe

SHORT = {"batch_size": 8, "max_steps": 1, "progress": False}


@pytest.fixture
def lacking(write_records, record, tmp_path: Path) -> Callable[..., Collection]:
    """Ten images of which some lack some texts: `lacking(captions=10, paragraph=3)`."""

    def make(**lost: int) -> Collection:
        records = [record(n) for n in range(10)]
        for field, count in lost.items():
            empty = None if field in ("paragraph", "description") else ["  "] * (count % 2)
            for n in range(count):
                records[n] = replace(records[n], **{field: empty})
        return write_records(tmp_path / "c", records)

    return make


@pytest.mark.parametrize(
    ("recipe", "lost", "message"),
    [
        ("c5", {"captions": 10}, "c5 would not be what it says: use the recipe c4, which is what "
                                 "is left, or --fallback generated"),
        ("c5", {"paragraph": 10}, "has a text in paragraph, .* use the recipe c1"),
        ("c6", {"generated": 10}, "has a text in generated, .* use the recipe c5"),
        ("c7", {"negatives": 10}, "use the recipe c1, which is what is left, or annotate nega"),
        ("c10", {"paragraph": 10}, "use a recipe of your own, from generated, or --fallback capt"),
        ("c4", {"paragraph": 10}, "use a recipe of fields that are there, or --fallback captions"),
        ("c2", {"generated": 10, "captions": 10}, "--fallback paragraph to take paragraph in"),
    ],
)  # fmt: skip
def test_a_field_that_no_image_has_is_refused(
    lacking, encoder: ImageTextEncoder, tmp_path: Path, recipe, lost, message
) -> None:
    photos = lacking(**lost)
    with pytest.raises(UsageError, match=message):
        train(photos, encoder, recipe=recipe, out=tmp_path / "r", **SHORT)
    assert not (tmp_path / "r").exists()
    assert not (photos.folder / "embeddings").exists()  # before anything is computed


def test_negatives_that_are_all_true_are_none(
    write_records, record, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    records = [replace(one, negatives=one.captions[:1]) for one in map(record, range(10))]
    photos = write_records(tmp_path / "c", records)
    with pytest.raises(UsageError, match=r"none of the 10 images .* has a text in negatives"):
        train(photos, encoder, recipe="c7", out=tmp_path / "r", **SHORT)


def test_a_share_that_takes_in_nobody_is_refused(
    lacking, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    few = parse_recipe("positives: [{from: captions}, {from: paragraph, share: 0.00001}]", "few")
    with pytest.raises(UsageError, match="share that few has of paragraph takes in no image"):
        train(lacking(), encoder, recipe=few, out=tmp_path / "r", **SHORT)


def test_a_fallback_takes_the_place_and_is_named(
    lacking, paragrain: Callable, random_blip: Path, tmp_path: Path
) -> None:
    photos = lacking(captions=10, paragraph=2)
    words = ("train", photos.folder, "--model", random_blip, "--recipe", "c5", "--set",
             "max_steps=1", "--batch-size", 8, "--out", tmp_path / "r")  # fmt: skip
    done = paragrain(*words)
    assert (done.code, "--fallback generated" in done.err) == (2, True)
    done = paragrain(*words, "--fallback", "generated", "--json")
    assert done.code == 0, done.err
    value = done.json
    assert value["recipe"] == "c5 (captions from generated)"
    assert [(one["field"], one["images"], one["of"]) for one in value["found"]] == [
        ("generated", 10, 10),
        ("paragraph", 8, 10),
    ]
    again = paragrain(*words, "--fallback", "generated")
    assert again.code == 0  # the finished run is given back
    with_two = paragrain(*words[:-1], tmp_path / "s", "--fallback", "generated", "--set", "seed=2")
    told = "texts for c5 (captions from generated): generated: 10 of 10 images; paragraph: 8 of 10"
    assert told in with_two.err
    assert "training c5 (captions from generated) into" in with_two.err


@pytest.mark.parametrize(
    ("recipe", "lost", "fallback", "message"),
    [
        ("c5", {"captions": 10}, "paragraph", "c5 has it already"),
        ("c5", {"captions": 10}, "negatives", "there is no such text"),
        ("c5", {"captions": 10}, "nonsense", "there is no such text"),
        ("c5", {"captions": 10}, "description", "has a text in description"),
        ("c7", {"negatives": 10}, "generated", "cannot stand in for wrong ones"),
        ("c6", {"captions": 10, "generated": 10}, "description", "one field cannot be both"),
    ],
)
def test_a_fallback_that_does_not_help_is_refused(
    lacking, encoder: ImageTextEncoder, tmp_path: Path, recipe, lost, fallback, message
) -> None:
    with pytest.raises(UsageError, match=message):
        train(lacking(**lost), encoder, recipe=recipe, fallback=fallback, **SHORT)


def test_a_part_that_is_missing_is_counted(
    lacking, encoder: ImageTextEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = lacking(captions=3, negatives=5)
    settings = SHORT | {"progress": True}
    run = train(photos, encoder, recipe="c7", out=tmp_path / "r", fallback="generated", **settings)
    assert "texts for c7: captions: 7 of 10 images; negatives: 5 of 7" in capsys.readouterr().err
    assert run.results["recipe"] == "c7"
    kept = load_recipe("c8")
    short = replace(next(photos.records(images=True)), generated=["one"], captions=["two"])

    assert str(count_coverage([short], kept)[1]) == (
        "generated: 1 of 1 images (1 of them with fewer than 5)"
    )


def test_several_seeds_are_a_run_each_and_a_spread(
    shapes: Collection, paragrain: Callable, random_blip: Path, tmp_path: Path
) -> None:
    words = ("train", shapes.folder, "--model", random_blip, "--recipe", "c4", "--set",
             "max_steps=2", "--batch-size", 8, "--out", tmp_path / "r")  # fmt: skip
    done = paragrain(*words, "--seeds", "0,2-3", "--json")
    assert done.code == 0, done.err
    total = done.json["summary"]
    assert total["seeds"] == [0, 2, 3]
    assert len(total["scores"]) == 3
    assert min(total["scores"]) <= total["mean"] <= max(total["scores"])
    folders = sorted(path.name for path in (tmp_path / "r").iterdir())
    assert folders == ["seed0", "seed2", "seed3"]
    (tmp_path / "r" / "seed2" / "results.json").unlink()
    again = paragrain(*words, "--seeds", "0,2-3")
    assert f"3 seeds: validation R@1 {total['mean']:.1f} %, standard deviation" in again.out
    assert again.err.count("training c4 into") == 1
    for extra, message in (
        (("--seeds", "0-"), "--seeds takes numbers"),
        (("--seeds", "1,1"), "names one twice"),
        (("--seeds", "3-1"), "names none"),
        (("--seeds", "0", "--seed", "1"), "both say the seed"),
    ):
        bad = paragrain(*words, *extra)
        assert (bad.code, message in bad.err) == (2, True), bad.err
