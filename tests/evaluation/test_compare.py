"""Stored ranks, intervals of results, and two models compared on them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import (
    QueryRanks,
    SavedResult,
    compare,
    evaluate,
    load_result,
    save_results,
    sweep,
)
from paragrain.retrieval import exact_ranks
from paragrain.stats import Estimate

IMAGES, EACH = 60, 3


def made(noise: float, seed: int, *, model: str = "m", groups: np.ndarray | None = None):  # type: ignore[no-untyped-def]
    """A result on random vectors; the more noise in the texts, the worse the model."""
    data = np.random.default_rng(0)
    images = data.standard_normal((IMAGES, 8))
    rows = np.repeat(np.arange(IMAGES), EACH)
    texts = images[rows] + noise * np.random.default_rng([1, seed]).standard_normal((len(rows), 8))
    images, texts = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, texts))
    numbers = np.arange(IMAGES) if groups is None else groups
    ranks = exact_ranks(images, texts, rows, groups=numbers)
    about = {
        "collection": {"fingerprint": "f", "contents": "f", "split": "test"},
        "encoder": {"name": model, "text_fingerprint": f"{noise} {seed}"},
        "protocol": {
            "truncation": "tokens",
            "text_field": "captions",
            "max_length": 77,
            "text_normalisation": "none",
        },
    }
    ids = [f"bild {row}.é\n" for row in range(IMAGES)]
    return SavedResult(Path(f"{model}{seed}.json"), about, QueryRanks(ids, numbers, rows, ranks))


@pytest.mark.parametrize("groups", [None, np.arange(IMAGES) // 2])
def test_ranks_come_back_from_their_file_as_they_went(
    tmp_path: Path, groups: np.ndarray | None
) -> None:
    queries = made(1.0, 0, groups=groups).queries
    queries.save(tmp_path / "r.npz")
    back = QueryRanks.load(tmp_path / "r.npz")
    assert back.fingerprint == queries.fingerprint
    assert back.ids == queries.ids
    assert back.intervals(seed=4) == queries.intervals(seed=4)
    assert back.ranks.grouped_images == queries.ranks.grouped_images
    for judgement in ("strict", "lenient"):
        for direction in ("image_to_text", "text_to_image"):
            one, other = (q.direction(direction, judgement) for q in (queries, back))
            assert np.array_equal(one.expected, other.expected)
            assert (len(one), one.gallery) == (len(other), other.gallery)


def test_intervals_hold_the_recall_and_count_groups() -> None:
    alone, paired = (
        made(1.0, 0, groups=groups).queries.intervals() for groups in (None, np.arange(IMAGES) // 2)
    )
    assert (alone["units"], paired["units"]) == (IMAGES, IMAGES // 2)
    low, high = alone["strict"]["image_to_text"]["R@1"]
    hits, _ = made(1.0, 0).queries.hits("image_to_text", 1)
    assert low < 100 * hits.mean() < high
    assert alone["lenient"] == alone["strict"]
    assert paired["lenient"]["text_to_image"]["R@10"] > paired["strict"]["text_to_image"]["R@10"]


def test_a_result_file_has_its_ranks_beside_it(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    result = evaluate(world, encoder, texts="captions", max_length=77, progress=False)
    result.save(tmp_path / "r.json")
    saved = load_result(tmp_path / "r.json")
    assert saved.about == json.loads(json.dumps(result.as_dict()))
    assert saved.queries.intervals() == result.intervals
    hits, _ = saved.queries.hits("text_to_image", 5)
    assert 100 * hits.mean() == pytest.approx(result.text_to_image[5])
    assert saved.queries.ids == world.ids("test")

    short, long = sweep(world, encoder, [20, 77], texts="captions", progress=False)
    save_results([short, long], tmp_path / "sweep.json")
    assert load_result(tmp_path / "sweep.json", 77).queries.fingerprint == long.queries.fingerprint
    assert long.queries.fingerprint == result.queries.fingerprint
    with pytest.raises(UsageError, match="of 20 tokens, 77 tokens: say which with --max-length"):
        load_result(tmp_path / "sweep.json")
    with pytest.raises(UsageError, match="no result of 30 tokens: it has 20 tokens, 77 tokens"):
        load_result(tmp_path / "sweep.json", 30)


def test_what_cannot_be_read_is_told_in_one_sentence(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    path, ranks = tmp_path / "r.json", tmp_path / "r.npz"
    with pytest.raises(UsageError, match="there is no result file"):
        load_result(path)
    for content in ("no JSON", "[]", "{}", '{"protocol": {"max_length": 5}}'):
        path.write_text(content)
        with pytest.raises(ParagrainError, match="not a result file with ranks"):
            load_result(path)
    evaluate(world, encoder, texts="captions", max_length=77, progress=False).save(path)
    whole = ranks.read_bytes()
    for content in (whole[:200], b"", b"nothing", whole[:400] + b"\0" * 40 + whole[440:]):
        ranks.write_bytes(content)
        with pytest.raises(ParagrainError, match="cannot be read"):
            load_result(path)
    evaluate(world, encoder, texts="captions", max_length=20, progress=False).queries.save(ranks)
    with pytest.raises(ParagrainError, match=r"r\.npz are not those of"):
        load_result(path)
    ranks.unlink()
    with pytest.raises(UsageError, match="keep them beside their result file"):
        load_result(path)
    with pytest.raises(UsageError, match=r"let it end with \.json"):
        evaluate(world, encoder, texts="captions", max_length=20, progress=False).save(ranks)


def test_a_better_model_is_better_and_a_copy_is_not() -> None:
    good, bad = made(0.6, 0, model="good"), made(1.6, 0, model="bad")
    found = compare([bad], [good])
    assert [(row.direction, row.k) for row in found.rows[:4]] == [
        ("image_to_text", 1), ("image_to_text", 5), ("image_to_text", 10), ("text_to_image", 1)
    ]  # fmt: skip
    row = found.rows[3]
    hits = [one.queries.hits("text_to_image", 1)[0] for one in (bad, good)]
    change = row.difference
    assert change.value == pytest.approx(100 * (hits[1].mean() - hits[0].mean()))
    assert 0 < change.low < change.value < change.high
    assert change.p < 0.01
    assert row.sign_test.second == (hits[1] > hits[0]).sum()
    assert row.sign_test.first == (hits[1] < hits[0]).sum()
    assert row.sign_test.p < 1e-6
    # Sixty images cannot vote more than sixty times, whatever the number of their texts.
    assert row.sign_test_images.first + row.sign_test_images.second <= IMAGES
    assert row.sign_test_images.p > row.sign_test.p
    assert found.rows[1].sign_test is None
    json.dumps(found.as_dict(), allow_nan=False)

    turned = compare([good], [bad]).rows[3].difference
    assert turned.value == -change.value
    assert (turned.low, turned.high) == pytest.approx((-change.high, -change.low))
    same = compare([good], [made(0.6, 0, model="copy")])
    assert {row.difference for row in same.rows} == {Estimate(0, 0, 0, p=1)}


def test_several_seeds_show_both_sources_of_spread() -> None:
    ours = [made(0.9, seed, model="ours") for seed in range(4)]
    theirs = [made(1.2, seed, model="theirs") for seed in range(4)]
    found = compare(theirs, ours)
    row = found.rows[0]
    recalls = [100 * one.queries.hits("image_to_text", 1)[0].mean() for one in ours]
    assert row.second.seeds == pytest.approx(recalls)
    assert row.second.value == pytest.approx(np.mean(recalls))
    spread = row.std[1]
    assert spread.seeds == pytest.approx(np.std(recalls, ddof=1))
    assert spread.run == pytest.approx((spread.queries**2 + spread.seeds**2) ** 0.5)
    assert spread.mean == pytest.approx((spread.queries**2 + spread.seeds**2 / 4) ** 0.5)
    # The deviation of a mean of 60 images' mean hits, told by formula.
    mean_hits = np.mean([one.queries.hits("image_to_text", 1)[0] for one in ours], axis=0)
    assert spread.queries == pytest.approx(100 * mean_hits.std() / IMAGES**0.5, rel=0.08)
    assert found.second["files"] == [f"ours{seed}.json" for seed in range(4)]

    single = compare([theirs[0]], [ours[0]]).rows[0]
    assert single.std[1].seeds is None
    assert single.std[1].run == single.std[1].queries


def test_seeds_that_find_the_same_find_no_difference() -> None:
    """Means of equal numbers differ in their last digits: that is no difference."""
    copies = [made(1.0, 0, model="copies") for _ in range(3)]
    for number, one in enumerate(copies):
        one.about["encoder"]["text_fingerprint"] = str(number)
    for row in compare([made(1.0, 0)], copies).rows:
        assert (row.difference.low, row.difference.high, row.difference.p) == (0, 0, 1)


def test_seeds_that_differ_widen_the_interval_of_the_difference() -> None:
    """Both sources are in it: with seeds far apart, their spread must be seen."""
    apart = [made(noise, 0, model="apart") for noise in (0.7, 1.1, 1.5)]
    fixed = [made(1.1, 1, model="fixed")]
    row = compare(fixed, apart).rows[3]
    queries_alone = row.std[1].queries
    low, high = row.difference.low, row.difference.high
    assert row.std[1].seeds > 3 * queries_alone
    # t with two degrees of freedom: 4.3 deviations of the mean of three on each side.
    assert (high - low) / 2 == pytest.approx(4.3 * row.std[1].seeds / 3**0.5, rel=0.25)


def test_results_that_are_no_pair_are_refused() -> None:
    one = made(1.0, 0)

    def other(**changed: dict[str, object]) -> SavedResult:
        about = {name: {**one.about[name], **changed.get(name, {})} for name in one.about}
        return replace(made(1.2, 0), about=about)

    for wrong, message in (
        (other(collection={"contents": "g"}), r"differ in images and texts \(f and g\)"),
        (other(collection={"split": "val"}), r"differ in split \(test and val\)"),
        (other(protocol={"text_field": "paragraph"}), "differ in text field"),
        (other(protocol={"max_length": 128}), r"differ in maximum length \(77 and 128\)"),
        (other(protocol={"text_normalisation": "blip-original"}), "differ in text normalisation"),
        (made(1.2, 0, groups=np.arange(IMAGES) // 2), "hold other groups of images"),
    ):
        with pytest.raises(UsageError, match=message):
            compare([one], [wrong])
    ids = replace(one, queries=replace(one.queries, ids=["else", *one.queries.ids[1:]]))
    with pytest.raises(UsageError, match="hold other image ids"):
        compare([one], [ids])
    with pytest.raises(UsageError, match="the same weights, not of two seeds"):
        compare([one, one], [made(1.2, 0)])
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([one], [])


def test_the_command(
    paragrain: Callable, world: Collection, random_blip: Path, tmp_path: Path
) -> None:
    for name, tokens in (("a", 77), ("b", 77), ("short", 20)):
        done = paragrain("evaluate", world.folder, "--model", random_blip, "--texts", "captions",
                         "--max-length", tokens, "--out", tmp_path / f"{name}.json")  # fmt: skip
        assert done.code == 0, done.err
        assert f"95 % at {tokens} tokens, text to image: R@1 [" in done.out
    a, b, short = (tmp_path / f"{name}.json" for name in ("a", "b", "short"))
    done = paragrain("compare", a, b)
    assert done.code == 0, done.err
    assert "text to image R@1" in done.out
    assert "+0.00  [ +0.00,  +0.00]  1.0000" in done.out
    assert paragrain("compare", a, "vs", b, "--json").json["rows"][0]["difference"]["p"] == 1
    for words, message in (
        ((a, short), "differ in maximum length"),
        ((a, b, b), "A1 A2 vs B1 B2"),
        ((a,), "A1 A2 vs B1 B2"),
        ((a, b, "vs", a), "the same weights"),
        ((a, tmp_path / "none.json"), "there is no result file"),
    ):
        done = paragrain("compare", *words)
        assert done.code == 2
        assert message in done.err
    said = " ".join(paragrain("compare", "--help").out.split())
    assert "Example" in said
    assert "--json" in said
    swept = paragrain("evaluate", world.folder, "--model", random_blip, "--texts", "captions",
                      "--sweep", "20,77", "--out", tmp_path / "s.json", "--json")  # fmt: skip
    assert swept.json == json.loads((tmp_path / "s.json").read_text("utf-8"))
    assert paragrain("compare", tmp_path / "s.json", short, "--max-length", 20).code == 0
