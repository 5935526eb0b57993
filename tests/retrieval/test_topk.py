"""Exact nearest neighbours."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.errors import ParagrainError, UsageError
from paragrain.retrieval import Gallery, top_k


def brute_force(queries, gallery, k):
    # einsum adds in one order for every pair, so copies have equal scores; a product may not.
    products = queries.astype(np.float64)[:, None] * gallery.astype(np.float64)[None]
    scores = np.array([[sum(pair) for pair in row] for row in products]).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 45),
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 11),
)
def test_equal_to_brute_force_with_copies(queries, rows, distinct, k, seed, height, width):
    random = np.random.default_rng(seed)
    directions = random.standard_normal((distinct, 6)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    asked = directions[random.integers(0, distinct, queries)]
    gallery = directions[random.integers(0, distinct, rows)]
    indices, scores = top_k(asked, gallery, k, tile=(height, width))
    wanted, wanted_scores = brute_force(asked, gallery, k)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(scores, wanted_scores)
    opened = Gallery(gallery)
    for row in range(queries):  # from the second on by codes
        one, one_scores = opened.top_k(asked[row : row + 1], k)
        np.testing.assert_array_equal(one[0], wanted[row])
        np.testing.assert_array_equal(one_scores[0], wanted_scores[row])


@pytest.mark.parametrize("spread", [1.0, 0.01])
def test_codes_rule_out_no_row_that_is_among_the_best(unit, spread):
    """Also where all rows are nearly the same, closer together than their codes are exact."""
    gallery = unit(1, 64, seed=0) + spread * unit(3000, 64, seed=1)
    gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
    queries, opened = unit(20, 64, seed=2), Gallery(gallery)
    expected, expected_scores = top_k(queries, gallery, 10)
    for row, query in enumerate(queries):
        indices, scores = opened.top_k(query[None], 10)
        np.testing.assert_array_equal(indices[0], expected[row])
        np.testing.assert_array_equal(scores[0], expected_scores[row])


def test_several_threads_may_ask_one_gallery(unit):
    gallery, queries = unit(2000, 32, seed=0), unit(64, 32, seed=1)
    opened, (expected, _) = Gallery(gallery), top_k(queries, gallery, 5)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: opened.top_k(query[None], 5)[0][0], queries))
    np.testing.assert_array_equal(found, expected)


def test_the_top_five_is_a_prefix_of_the_top_fifteen(unit):
    queries, gallery = unit(40, 64, seed=0), unit(500, 64, seed=1)
    gallery[100:200] = gallery[:100]
    few, few_scores = top_k(queries, gallery, 5)
    many, many_scores = top_k(queries, gallery, 15, tile=(7, 61))
    np.testing.assert_array_equal(few, many[:, :5])
    np.testing.assert_array_equal(few_scores, many_scores[:, :5])


def test_equal_vectors_keep_the_order_of_the_gallery(unit):
    gallery = np.repeat(unit(1, 256, seed=0), 333, axis=0)
    indices, scores = top_k(unit(3, 256, seed=1), gallery, 7, tile=(2, 50))
    np.testing.assert_array_equal(indices, np.tile(np.arange(7), (3, 1)))
    assert (scores == scores[:, :1]).all()


def test_a_small_gallery_gives_all_it_has(unit):
    indices, scores = top_k(unit(2, 8, seed=0), torch.from_numpy(unit(3, 8, seed=1)), 10)
    assert indices.shape == scores.shape == (2, 3)


def test_what_does_not_fit_is_refused(unit):
    queries = unit(2, 8, seed=0)
    with pytest.raises(UsageError, match="at least 1"):
        top_k(queries, queries, 0)
    with pytest.raises(UsageError, match="8 wide and gallery embeddings 4"):
        top_k(queries, unit(2, 4, seed=0), 1)
    with pytest.raises(ParagrainError, match="no gallery embeddings"):
        top_k(queries, np.zeros((0, 8)), 1)
