"""Recall as an exact expectation over random tie-breaking."""

import json
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.errors import UsageError
from paragrain.retrieval import (
    DirectionRanks,
    exact_ranks,
    hit_probability,
    recall_at,
    retrieval_scores,
)


def one(greater: int, tied: int, own: int, gallery: int = 10**6) -> DirectionRanks:
    return DirectionRanks(np.array([greater]), np.array([tied]), np.array([own]), gallery)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 60), st.integers(1, 40)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 140),
)
def test_equal_to_the_binomials(rows, k):
    greater, tied, own = np.array(rows).T
    found = hit_probability(DirectionRanks(greater, tied, own, 200), k)
    for value, (above, level, right) in zip(found, rows, strict=True):
        places = min(max(k - above, 0), level + right)
        exact = 1 - comb(level, places) / comb(level + right, places)
        assert value == pytest.approx(exact, abs=1e-12)


def test_equal_to_shuffling():
    random = np.random.default_rng(0)
    ranks, k = one(2, 4, 2), 4
    bag = np.array([False] * 4 + [True] * 2)
    hits = [random.permutation(bag)[: k - 2].any() for _ in range(4000)]
    assert hit_probability(ranks, k)[0] == pytest.approx(np.mean(hits), abs=0.03)


def test_huge_ties_and_huge_k_stay_exact():
    assert hit_probability(one(0, 10**6 - 1, 1), 10)[0] == pytest.approx(1e-5, rel=1e-9)
    assert hit_probability(one(0, 10**6, 5), 10**9)[0] == 1.0
    assert hit_probability(one(5, 0, 1), 10**9)[0] == 1.0
    assert hit_probability(one(5, 0, 1), 5)[0] == 0.0


def test_worst_and_expected_rank():
    ranks = one(3, 4, 1)
    assert ranks.worst[0] == 8
    assert ranks.expected[0] == 6.0  # the middle of places 4 to 8


def test_a_collapsed_model_scores_exactly_at_chance():
    images, texts, captions = 12, 60, 5
    everywhere = np.tile(np.float32([0.6, 0.8]), (texts, 1))
    scores = retrieval_scores(
        everywhere[:images], everywhere, np.repeat(np.arange(images), captions)
    )
    for k in (1, 5, 10):
        missed = comb(texts - captions, k) / comb(texts, k)
        assert scores.strict.image_to_text.recall[k] == pytest.approx(100 * (1 - missed), abs=1e-9)
        assert scores.strict.text_to_image.recall[k] == pytest.approx(100 * k / images, abs=1e-9)
    assert scores.strict.text_to_image.median_rank == (images + 1) / 2
    assert scores.strict.text_to_image.tied_queries == texts


def test_a_collapsed_model_in_groups_scores_at_the_groups_chance():
    everywhere = np.tile([0.6, 0.8], (6, 1))
    scores = retrieval_scores(everywhere, everywhere, np.arange(6), groups=[0, 0, 0, 1, 1, 2])
    # Three images have three right texts of six, two have two, one has one.
    expected = 100 * (3 * 3 / 6 + 2 * 2 / 6 + 1 / 6) / 6
    assert scores.lenient.image_to_text.recall[1] == pytest.approx(expected)
    assert scores.lenient.text_to_image.recall[1] == pytest.approx(expected)
    assert scores.strict.image_to_text.recall[1] == pytest.approx(100 / 6)


def test_three_images_with_k_of_ten():
    images = np.eye(3)
    scores = retrieval_scores(images, images[[1, 2, 0]], [0, 1, 2])
    # Each own pair scores 0; one wrong item scores 1 and the other ties.
    for direction in (scores.strict.image_to_text, scores.strict.text_to_image):
        assert direction.recall == {1: 0.0, 5: 100.0, 10: 100.0}
        assert direction.median_rank == 2.5


def test_a_repeated_text_gets_its_fair_share():
    images = np.eye(2)
    ranks = exact_ranks(images, images[[0, 1, 0]], [0, 1, 1]).strict
    # Image 0's text is copied under image 1: image 0 finds either with probability one half.
    np.testing.assert_allclose(hit_probability(ranks.image_to_text, 1), [0.5, 1.0])
    np.testing.assert_allclose(hit_probability(ranks.text_to_image, 1), [1.0, 1.0, 0.0])


def test_as_dict_holds_plain_numbers_and_the_counts():
    images = np.eye(4)
    scores = retrieval_scores(images, images[:3], [0, 1, 2], groups=[0, 1, 1, 2], ks=(1,))
    value = json.loads(json.dumps(scores.as_dict()))
    assert value["counts"] == {
        "images": 4,
        "images_with_texts": 3,
        "texts": 3,
        "grouped_images": 2,
        "shared_texts": 0,
    }
    perfect = {"R@1": 100.0, "median_rank": 1.0, "tied_queries": 0}
    for judged in ("strict", "lenient"):
        assert value[judged] == {"image_to_text": perfect, "text_to_image": perfect}
    assert scores.strict.mean_recall == 100.0


def test_k_below_one_is_refused():
    with pytest.raises(UsageError, match="at least 1"):
        recall_at(one(0, 0, 1), 0)
