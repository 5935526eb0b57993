"""Gap, alignment, uniformity, the flat map and the cross-set matrices, on pairs made by hand."""

import json

import numpy as np
import pytest

from paragrain import plots
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.evaluation import Benchmark
from paragrain.study.analyses.cross_set import cross_set, draw_cross_set
from paragrain.study.analyses.geometry import Geometry, draw_maps, geometry, tsne_map
from paragrain.study.analyses.sample import (
    EmbeddedPairs,
    draw_pairs,
    draw_rows,
    mean_over_images,
)
from paragrain.study.serialization import from_plain, to_plain


@pytest.fixture(scope="module")
def captions(world: Collection, encoder: ImageTextEncoder) -> Benchmark:
    return Benchmark.load(world, encoder, "captions", split="test", progress=False)


def unit(vectors: np.ndarray) -> np.ndarray:
    rows: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows.astype(np.float32)


def made(images: np.ndarray, texts: np.ndarray, prefix: str = "") -> EmbeddedPairs:
    ids = [f"{prefix}{n}" for n in range(len(images))]
    return EmbeddedPairs(ids, unit(images), unit(texts), ["text"] * len(ids), 77)


def random_pairs(count: int, seed: int, dim: int = 8, prefix: str = "") -> EmbeddedPairs:
    rng = np.random.default_rng(seed)
    return made(rng.normal(size=(count, dim)), rng.normal(size=(count, dim)), prefix)


def test_pairs_belong_together_and_are_drawn_alike(
    captions: Benchmark, encoder: ImageTextEncoder
) -> None:
    pairs = draw_pairs(captions, encoder, max_length=40, size=8, seed=3)
    again = draw_pairs(captions, encoder, max_length=40, size=8, seed=3)
    assert pairs.written == again.written
    assert len(set(pairs.ids)) == 8
    for id, written, vector in zip(pairs.ids, pairs.written, pairs.images, strict=True):
        row = captions.ids.index(id)
        assert row in captions.text_image[[t == written for t in captions.texts]]
        assert np.array_equal(vector, captions.images[row])
    assert draw_pairs(captions, encoder, max_length=40, size=8, seed=4).ids != pairs.ids


def test_every_text_of_an_image_may_be_drawn(captions: Benchmark) -> None:
    drawn = {draw_rows(captions, 99, seed)[1][0] for seed in range(60)}
    assert drawn == set(np.flatnonzero(captions.text_image == 0).tolist())


def test_a_sample_of_one_is_refused(captions: Benchmark) -> None:
    with pytest.raises(UsageError, match="draw 2 or more"):
        draw_rows(captions, 1, 0)


def test_numbers_of_a_known_arrangement() -> None:
    # Images all at one pole, texts all at the opposite one.
    pole = np.tile([1.0, 0.0, 0.0], (5, 1))
    found = geometry(made(pole, -pole), resamples=50)
    assert found.modality_gap.value == pytest.approx(2)
    assert found.alignment.value == pytest.approx(4)
    assert found.matched_cosine.value == pytest.approx(-1)
    assert found.uniformity_images.value == found.uniformity_texts.value == pytest.approx(0)
    assert found.modality_gap.low == found.modality_gap.high == pytest.approx(2)


def test_intervals_hold_their_values_and_shrink_with_the_sample() -> None:
    few, many = (geometry(random_pairs(n, 1), resamples=400) for n in (20, 500))
    for found in (few, many):
        for one in (
            found.alignment,
            found.matched_cosine,
            found.uniformity_images,
            found.uniformity_texts,
        ):
            assert one.low < one.value < one.high
    assert many.alignment.high - many.alignment.low < few.alignment.high - few.alignment.low
    plain = json.loads(json.dumps(to_plain(few), allow_nan=False))
    assert to_plain(from_plain(Geometry, plain)) == plain


def test_a_copy_drawn_twice_is_no_pair_with_itself() -> None:
    # Vectors at right angles: every true pair has potential exp(-4), whatever is drawn.
    found = geometry(made(np.eye(6), np.eye(6)), resamples=200)
    assert found.uniformity_images.value == pytest.approx(-4)
    assert found.uniformity_images.low == pytest.approx(-4)
    assert (
        found.uniformity_images.high < 0
    )  # copies of one image in a draw are pairs of equal vectors


def test_means_leave_out_what_is_not_there() -> None:
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    one, other, nothing = mean_over_images(values, resamples=100)
    assert (one.value, other.value) == (2, 5)
    assert (other.low, other.high) == (5, 5)
    assert np.isnan(nothing.value)


def test_the_map_is_the_same_each_time_and_keeps_apart_what_is_apart() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn draws the map")
    rng = np.random.default_rng(0)
    images = rng.normal([9, 0, 0, 0], 1, (20, 4))
    texts = rng.normal([0, 9, 0, 0], 1, (20, 4))
    found = tsne_map(made(images, texts), seed=1)
    assert np.array_equal(found.texts, tsne_map(made(images, texts), seed=1).texts)
    between = np.linalg.norm(found.images.mean(0) - found.texts.mean(0))
    assert between > 2 * np.linalg.norm(found.images - found.images.mean(0), axis=1).mean()
    assert found.perplexity == 13
    json.dumps(to_plain(found), allow_nan=False)
    drawn = plots.svg(draw_maps({"C5 $": found, "C1": found, "C4": found}))
    assert "C5 $" in drawn
    assert len(drawn) < 300_000


def test_texts_of_the_right_kind_draw_images_and_own_texts_do_not_count() -> None:
    rng = np.random.default_rng(2)
    near, far = rng.normal([5, 0, 0], 1, (30, 3)), rng.normal([0, 5, 0], 1, (30, 3))
    sets = {"a": made(near, near, "a"), "b": made(near, far, "a")}
    found = cross_set(sets, resamples=100)
    assert found.nearest.value.sum(1) == pytest.approx([100, 100])
    assert found.nearest.value[:, 0].min() > 90
    assert found.matched[0].value == pytest.approx(1, abs=1e-5)
    assert found.centroids is None
    alone = {"a": made(np.eye(3), np.eye(3), "a"), "b": made(np.eye(3), -np.eye(3), "b")}
    assert cross_set(alone, resamples=10).nearest.value[0, 0] == 100  # texts of other images of a


def test_centroids_of_sets_of_other_topics_point_the_same_way() -> None:
    rng = np.random.default_rng(4)
    gap = np.array([0, 0, 0, 6.0])
    sets = {
        name: made(rng.normal(topic - gap, 1, (80, 4)), rng.normal(topic + gap, 1, (80, 4)), name)
        for name, topic in zip("abc", 4 * np.eye(4)[:3], strict=True)
    }
    found = cross_set(sets, resamples=200)
    assert found.centroids is not None
    assert np.diag(found.centroids.value).min() > 0.95
    assert (found.centroids.low <= found.centroids.value).all()
    assert found.centroids.value[0, 1] < 0
    json.dumps(to_plain(found), allow_nan=False)
    assert "cosine of centred centroids" in plots.svg(draw_cross_set(found))


def test_unequal_sets_are_refused() -> None:
    with pytest.raises(UsageError, match="a 4, b 5"):
        cross_set({"a": random_pairs(4, 0), "b": random_pairs(5, 0)})
