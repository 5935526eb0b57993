"""Bounds rule pairs out without changing a single count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.retrieval import Ranks, exact_ranks, kernel, tiles
from paragrain.retrieval.answers import Layout, strict_answers
from paragrain.retrieval.bounded import Bound, choose_bound, principal_axes

WIDTH = 24


def normalised(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def embedded(images: int, texts: int, noise: float, seed: int, width: int = WIDTH):
    """Vectors as of an encoder: six dimensions and a little noise, texts near their image."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.standard_normal((width, width)))[0][:6]
    centres = random.standard_normal((images, 6))
    owners = np.sort(random.integers(0, images, texts))
    near = centres[owners] + random.uniform(0, 1.5) * random.standard_normal((texts, 6))
    return (
        normalised(centres @ basis + noise * random.standard_normal((images, width))),
        normalised(near @ basis + noise * random.standard_normal((texts, width))),
        owners,
        random,
    )


@st.composite
def worlds(draw):
    """Clustered, random, tied, duplicated, collapsed; groups; images without texts."""
    images, texts = draw(st.integers(1, 90)), draw(st.integers(1, 300))
    noise = draw(st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 10.0]))
    left, right, owners, random = embedded(images, texts, noise, draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["plain", "duplicated", "matching", "collapsed", "near ties"]))
    if kind == "duplicated":
        left = left[random.integers(0, images, images)]
        right = right[random.integers(0, texts, texts)]
    elif kind == "matching":
        right = left[owners]
    elif kind == "collapsed":
        left[:], right[:] = left[0], left[0]
    elif kind == "near ties":
        shift = random.uniform(-2e-6, 2e-6, (texts, 1)) * random.standard_normal((texts, WIDTH))
        right = normalised(right[random.integers(0, texts, texts)] + shift)
    groups = random.integers(0, 2 * images, images) if draw(st.booleans()) else None
    return left, right, random.permutation(owners), groups


def assert_same(left: Ranks, right: Ranks) -> None:
    for judged in ("strict", "lenient"):
        for direction in ("image_to_text", "text_to_image"):
            one, other = (getattr(getattr(ranks, judged), direction) for ranks in (left, right))
            for name in ("greater", "tied", "own"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(1, 12), st.sampled_from([(64, 128), (33, 70), (90, 300)]))
def test_every_count_is_that_of_the_full_product(world, leading, tile):
    *sides, groups = world
    bounded = exact_ranks(*sides, groups=groups, tile=tile, leading=leading)
    assert_same(bounded, exact_ranks(*sides, groups=groups, tile=tile, leading=0))


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
def test_hardly_a_tile_is_scored_where_the_vectors_have_few_dimensions(monkeypatch, noise):
    images, texts, owners, _ = embedded(600, 1500, noise, seed=0)
    full = exact_ranks(images, texts, owners, tile=(128, 256), leading=0)
    assert np.median(full.strict.text_to_image.greater) > 0
    scored = []
    real = tiles._HostTally.add
    monkeypatch.setattr(
        tiles._HostTally, "add", lambda *given: (scored.append(given[2:]), real(*given))
    )
    bounded = exact_ranks(images, texts, owners, tile=(128, 256), leading=8)
    assert_same(bounded, full)
    assert len(scored) < 30 / 4  # of 5 x 6 tiles


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, WIDTH - 1), st.floats(0, 2))
def test_no_score_leaves_its_bounds(seed, leading, noise):
    images, texts, _, random = embedded(40, 60, noise, seed)
    images *= random.uniform(0.995, 1.005, (40, 1)).astype(np.float32)  # as bfloat16 makes them
    bound = Bound.of(images, texts, principal_axes(images, texts)[:, :leading])
    upper = (bound.images @ bound.texts.T).astype(np.float64)
    gap = 2 * bound.images[:, -1:].astype(np.float64) * bound.texts[:, -1]
    scores = images.astype(np.float64) @ texts.astype(np.float64).T
    assert (scores <= upper + bound.slack).all()
    assert (scores >= upper - gap - bound.slack).all()
    assert (np.abs(images @ texts.T - scores) <= bound.margin).all()


def settle(score: float, low: float, high: float) -> tuple[tuple[int, int], list[int]]:
    """One pair of this score, with a bound that tells nothing."""
    image = np.array([[1.0, 0.0]], np.float32)
    text = np.array([[score, 0.0]], np.float32)
    one = np.ones(1, np.float32)
    counts = np.zeros((4, 1), np.uint32)
    bounds = [np.full(1, value, np.float32) for value in (low, high, np.inf, np.inf)]
    found = kernel.settle(
        np.array([[2.0]], np.float32), image, text, one, one, *bounds, 1e-6, 1e-6, 9, 9, *counts
    )
    return found, counts[:, 0].tolist()


def test_a_pair_at_the_edge_of_a_tie_stays_open():
    assert settle(0.5, 0.4, 0.45) == ((1, 0), [1, 1, 0, 0])  # above
    assert settle(0.5, 0.4, 0.55) == ((1, 0), [1, 0, 0, 0])  # a tie
    assert settle(0.5, 0.6, 0.7) == ((1, 0), [0, 0, 0, 0])  # below
    assert settle(0.5, 0.5, 0.7)[0] == (1, 1)
    assert settle(0.5, 0.4, 0.5)[0] == (1, 1)


def test_a_pair_that_its_bounds_place_is_not_scored():
    nowhere = np.full((1, 2), np.nan, np.float32)
    rest = np.full(1, 1e-3, np.float32)
    bounds = [np.full(1, value, np.float32) for value in (0.3, 0.4, 0.6, 0.7)]
    counts = np.zeros((4, 1), np.uint32)
    upper = np.array([[0.5]], np.float32)
    found = kernel.settle(upper, nowhere, nowhere, rest, rest, *bounds, 1e-6, 1e-6, 9, 9, *counts)
    assert found == (0, 0)
    assert counts[:, 0].tolist() == [1, 1, 0, 0]


def test_bounds_are_used_where_they_pay_and_only_there(unit):
    images, texts, owners, _ = embedded(4200, 4200, 0.01, seed=1, width=128)

    def chosen(images, texts, owners, leading=None):
        layout = Layout.of(owners, np.arange(len(images)))
        images, texts = images[layout.image_order], texts[layout.text_order]
        judgement = strict_answers(layout, images, texts, 1e-6).judgement
        return choose_bound(images, texts, judgement, leading)

    assert chosen(images, texts, owners).images.shape == (4200, 17)
    assert chosen(images, texts, owners, leading=0) is None
    assert chosen(images, texts, owners, leading=5).texts.shape == (4200, 6)
    assert chosen(images[:500], texts[:500], np.minimum(owners[:500], 499)) is None  # too few
    random = np.arange(4200)
    assert chosen(unit(4200, 128, seed=0), unit(4200, 128, seed=1), random) is None
    assert chosen(images[:1].repeat(4200, 0), images[:1].repeat(4200, 0), random) is None


def test_bounds_are_dropped_where_ties_leave_every_tile_open(monkeypatch):
    images = embedded(200, 1, 0.1, seed=0, width=256)[0]
    images, texts, owners = images.repeat(2, 0), images.repeat(2, 0), np.arange(400)
    tried = []
    real = tiles._HostTally.settle
    monkeypatch.setattr(
        tiles._HostTally, "settle", lambda *given: tried.append(real(*given)) or tried[-1]
    )
    bounded = exact_ranks(images, texts, owners, tile=(10, 400), leading=8)
    assert tried == [False] * 16
    assert_same(bounded, exact_ranks(images, texts, owners, tile=(10, 400), leading=0))
