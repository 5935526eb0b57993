"""Ranks against hand-written matrices and against brute force in double precision."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.errors import ParagrainError, UsageError
from paragrain.retrieval import Ranks, exact_ranks, group_numbers, kernel
from paragrain.retrieval.answers import Layout, lenient_answers, strict_answers
from paragrain.retrieval.tiles import _DeviceCounter, _walk
from paragrain.retrieval.vectors import full_precision


def with_cosines(scores):
    """Images along axes, and texts whose cosines with them are `scores` [N, M]."""
    scores = np.asarray(scores, dtype=np.float64)
    count = len(scores)
    images = np.eye(count, count + 1)
    rest = np.sqrt(1 - (scores**2).sum(0))
    return images, np.concatenate([scores, rest[None]]).T


def table(ranks: Ranks) -> dict[str, np.ndarray]:
    """The same form as the brute force fixture gives."""
    return {
        f"{judged} {direction}": np.stack(
            [found.num_gt, found.tied_negatives, found.tied_positives], axis=1
        )
        for judged, pair in (("strict", ranks.strict), ("lenient", ranks.lenient))
        for direction, found in (
            ("image_to_text", pair.image_to_text),
            ("text_to_image", pair.text_to_image),
        )
    }


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@st.composite
def worlds(draw):
    """Few directions, so that copies and ties abound; groups, shared wordings; in any order."""
    images, texts = draw(st.integers(1, 12)), draw(st.integers(1, 30))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    directions = random.integers(-2, 3, size=(draw(st.integers(1, 8)), 3)).astype(np.float64)
    directions[~directions.any(axis=1)] = 1.0
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    pick = random.integers(0, len(directions), size=images + texts)
    groups = random.integers(0, draw(st.integers(1, 2 * images)), size=images) - 3
    return (
        directions[pick[:images]].astype(np.float32),
        directions[pick[images:]].astype(np.float32),
        random.integers(0, images, size=texts),
        groups,
        random.integers(0, draw(st.integers(1, 2 * texts)), size=texts) - 4,
    )


def test_three_images_with_five_captions_each_and_ranks_set_by_hand():
    # Three times five columns: captions of image 0, of image 1, of image 2; in percent.
    scores = [
        # Image 0: its best own caption scores 50, and nothing scores higher.
        [10, 50, 12, 11, 13, *(20, 21, 22, 23, 24), *(0, 1, 2, 3, 4)],
        # Image 1: its best own caption scores 30; captions 0, 2 and 14 score higher.
        [40, 15, 35, 14, 16, *(30, 29, 28, 27, 26), *(5, 6, 7, 8, 45)],
        # Image 2: two own captions score 9, and the ten captions of the others score higher.
        [31, 32, 33, 34, 36, *(37, 38, 39, 41, 42), *(9, 9, 1, 2, 8)],
    ]
    scores = np.array(scores) / 100
    ranks = exact_ranks(*with_cosines(scores), np.repeat([0, 1, 2], 5)).strict
    np.testing.assert_array_equal(ranks.image_to_text.num_gt, [0, 3, 10])
    np.testing.assert_array_equal(ranks.image_to_text.tied_negatives, [0, 0, 0])
    np.testing.assert_array_equal(ranks.image_to_text.tied_positives, [1, 1, 2])
    # Text to image counts each caption: the images that score higher than its own, per column.
    np.testing.assert_array_equal(
        ranks.text_to_image.num_gt, [2, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 2, 2, 1]
    )
    assert ranks.image_to_text.gallery == 15
    assert ranks.text_to_image.gallery == 3


def test_directions_are_never_swapped():
    # Each image finds its own text first; both texts find image 0 first.
    ranks = exact_ranks(*with_cosines([[0.6, 0.5], [0.1, 0.3]]), [0, 1]).strict
    np.testing.assert_array_equal(ranks.image_to_text.num_gt, [0, 0])
    np.testing.assert_array_equal(ranks.text_to_image.num_gt, [0, 1])


def test_images_without_texts_stay_in_the_gallery_and_ask_nothing():
    images, texts = with_cosines([[0.5], [0.3], [0.1]])
    ranks = exact_ranks(images, texts, [1])
    np.testing.assert_array_equal(ranks.image_queries, [1])
    assert len(ranks.strict.image_to_text) == 1
    np.testing.assert_array_equal(ranks.strict.text_to_image.num_gt, [1])
    assert ranks.strict.text_to_image.gallery == ranks.images == 3


def test_strict_and_lenient_differ_only_for_groups_of_several():
    # Images 0 and 2 show the same. Text 0 tells best of image 2, text 1 of image 0, text 2 of 1.
    images, texts = with_cosines([[0.3, 0.5, 0.2], [0.4, 0.1, 0.3], [0.5, 0.0, 0.4]])
    ranks = exact_ranks(images, texts, [0, 1, 2], groups=[8, 5, 8])
    np.testing.assert_array_equal(ranks.strict.image_to_text.num_gt, [1, 2, 1])
    np.testing.assert_array_equal(ranks.strict.text_to_image.num_gt, [2, 1, 0])
    # Leniently image 0 has texts 0 and 2 (best 0.3, text 1 beats it), image 2 has them too (0.5).
    np.testing.assert_array_equal(ranks.lenient.image_to_text.num_gt, [1, 2, 0])
    # Leniently text 0 has images 0 and 2 (best 0.5), text 2 too (0.4).
    np.testing.assert_array_equal(ranks.lenient.text_to_image.num_gt, [0, 1, 0])
    assert ranks.grouped_images == 2


def test_group_names_become_numbers():
    numbers = group_numbers(["a", None, "", "a", None, ""])
    assert len(set(numbers[[1, 4]])) == 2
    assert numbers[0] == numbers[3]
    assert numbers[2] == numbers[5]
    assert len(set(numbers)) == 4


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(1, 9), st.integers(1, 17))
def test_equal_to_brute_force_for_any_tile(brute_force, world, height, width):
    images, texts, text_image, groups, wordings = world
    asked = {"groups": groups, "wordings": wordings}
    ranks = exact_ranks(images, texts, text_image, **asked, tile=(height, width))
    assert_same(table(ranks), brute_force(images, texts, text_image, groups, wordings))


@settings(max_examples=50, deadline=None)
@given(worlds(), st.integers(1, 9), st.integers(1, 17))
def test_the_torch_tiles_count_as_the_compiled_ones(world, height, width):
    images, texts, text_image, groups, wordings = world
    layout = Layout.of(text_image, groups, wordings)
    images, texts = images[layout.image_order], texts[layout.text_order]
    answers = [
        make(layout, torch.from_numpy(images), torch.from_numpy(texts), 1e-6)
        for make in (strict_answers, lenient_answers)
    ]
    all_targets = [answer.targets for answer in answers]
    counters = [_DeviceCounter(targets, torch.device("cpu")) for targets in all_targets]
    buffer = torch.empty(height * width)
    sides = (torch.from_numpy(images), torch.from_numpy(texts))
    _walk(*sides, (height, width), torch.mm, buffer, counters, lambda done: None)
    for counter in counters:
        counter.finish()
    names = {"groups": groups[layout.image_order], "wordings": wordings[layout.text_order]}
    expected = table(exact_ranks(images, texts, layout.owner, **names))
    asked = np.diff(layout.edges) > 0
    for name, answer in zip(("strict", "lenient"), answers, strict=True):
        targets = answer.targets
        image_tied_negatives = targets.image_num_ge - targets.image_num_gt - answer.image_outside
        text_tied_negatives = targets.text_num_ge - targets.text_num_gt - answer.text_outside
        rows = asked & (np.arange(len(images)) < targets.images)
        queries = np.flatnonzero(asked)
        wanted = expected[f"{name} image_to_text"][np.isin(queries, np.flatnonzero(rows))]
        np.testing.assert_array_equal(targets.image_num_gt[rows], wanted[:, 0])
        np.testing.assert_array_equal(image_tied_negatives[rows], wanted[:, 1])
        wanted = expected[f"{name} text_to_image"][: targets.texts]
        over = targets.text_num_gt[: targets.texts]
        np.testing.assert_array_equal(over, wanted[:, 0])
        np.testing.assert_array_equal(text_tied_negatives[: targets.texts], wanted[:, 1])


def test_large_tiles_with_several_threads_equal_brute_force(unit, brute_force):
    images, texts = unit(300, 24, seed=0), unit(901, 24, seed=1)
    images[250:] = images[:50]
    texts[850:900] = texts[:50]
    text_image = np.random.default_rng(2).integers(0, 290, size=901)
    groups, wordings = np.arange(300) % 170, np.arange(901) % 700
    asked = {"groups": groups, "wordings": wordings}
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        ranks = exact_ranks(images, texts, text_image, **asked, tile=(257, 700))
    finally:
        torch.set_num_threads(threads)
    assert_same(table(ranks), brute_force(images, texts, text_image, groups, wordings))


def test_the_callers_order_of_texts_does_not_matter(unit):
    images, texts = unit(20, 8, seed=0), unit(60, 8, seed=1)
    text_image = np.repeat(np.arange(20), 3)
    order = np.random.default_rng(0).permutation(60)
    ranks = table(exact_ranks(images, texts, text_image))
    shuffled = table(exact_ranks(images, texts[order], text_image[order]))
    np.testing.assert_array_equal(shuffled["strict image_to_text"], ranks["strict image_to_text"])
    np.testing.assert_array_equal(
        shuffled["strict text_to_image"], ranks["strict text_to_image"][order]
    )


@pytest.mark.parametrize("width", [64, 256, 768])
def test_copies_tie_wherever_they_stand_in_a_tile(unit, width):
    vector = unit(1, width, seed=3)
    images, texts = np.repeat(vector, 301, axis=0), np.repeat(unit(1, width, seed=4), 703, axis=0)
    for tile in [(301, 703), (64, 129), (7, 13)]:
        ranks = exact_ranks(images, texts, np.arange(703) % 301, tile=tile).strict
        assert not ranks.image_to_text.num_gt.any()
        assert not ranks.text_to_image.num_gt.any()
        np.testing.assert_array_equal(ranks.text_to_image.tied_negatives, 300)
        np.testing.assert_array_equal(
            ranks.image_to_text.tied_negatives + ranks.image_to_text.tied_positives, 703
        )


def test_arrays_and_tensors_of_any_width_are_taken(unit):
    images, texts = unit(7, 16, seed=0), unit(9, 16, seed=1)
    text_image = np.arange(9) % 7
    expected = table(exact_ranks(images, texts, text_image))
    tensors = torch.from_numpy(images).requires_grad_(), torch.from_numpy(texts).double()
    assert_same(table(exact_ranks(*tensors, torch.from_numpy(text_image))), expected)
    assert_same(
        table(exact_ranks(images.T.copy().T, texts.astype(np.float64), text_image)), expected
    )
    half = torch.from_numpy(images).bfloat16(), torch.from_numpy(texts).half()
    assert len(exact_ranks(*half, text_image).strict.text_to_image) == 9


def test_the_callers_arrays_are_left_alone(unit):
    images, texts = unit(7, 16, seed=0), unit(9, 16, seed=1)
    images.setflags(write=False)
    texts.setflags(write=False)
    exact_ranks(images, texts, np.arange(9)[::-1] % 7, groups=np.zeros(7, int))


def test_nan_and_infinity_are_refused_with_their_count_and_first_row(unit):
    images, texts = unit(5, 4, seed=0), unit(5, 4, seed=1)
    texts[2, 1], texts[4] = np.nan, np.inf
    with pytest.raises(ParagrainError, match=r"2 of 5 text embeddings hold NaN .* first in row 2"):
        exact_ranks(images, texts, np.arange(5))
    with pytest.raises(ParagrainError, match=r"2 of 5 image embeddings"):
        exact_ranks(torch.from_numpy(texts), images, np.arange(5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((0, 4))}, "no image embeddings"),
        ({"texts": np.zeros((0, 4)), "text_image": []}, "no text embeddings"),
        ({"images": np.ones((3, 4))}, "do not have length 1, the first is row 0 with length 2"),
        ({"images": np.eye(3, 5)}, "5 wide and text embeddings 4"),
        ({"images": np.eye(4)[0]}, "shape"),
        ({"images": np.eye(4, dtype=int)}, "floating"),
        ({"text_image": [0, 1]}, "each of the 3 texts"),
        ({"text_image": [0.0, 1.0, 2.0]}, "whole number"),
        ({"text_image": [0, 3, -1]}, "2 texts belong to no image; the first, text 1, names .* 3"),
        ({"groups": [1, 2]}, "each of the 3 images"),
        ({"groups": ["a", "b", "c"]}, "group_numbers"),
        ({"tile": (0, 5)}, "at least one"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(change, message):
    arguments = {"images": np.eye(3, 4), "texts": np.eye(3, 4), "text_image": [0, 1, 2], **change}
    with pytest.raises(ParagrainError, match=message):
        exact_ranks(**arguments)


def test_a_wrong_request_is_told_from_a_broken_model():
    with pytest.raises(UsageError):
        exact_ranks(np.ones((3, 4)), np.eye(3, 4), [0, 1, 2])


def test_products_stay_in_float32_whatever_the_caller_allows():
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision():
            assert matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_without_a_place_for_compiled_code_it_is_compiled_anew(monkeypatch):
    def refuses_a_cache(*, nogil, cache=False):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, nogil)

    monkeypatch.setattr(kernel, "njit", refuses_a_cache)
    assert kernel._compiled(len) == (len, True)


LARGE = """
import sys, tracemalloc
import numpy as np
from paragrain.retrieval import exact_ranks

count, texts_each, width = int(sys.argv[1]), 5, int(sys.argv[2])
random = np.random.default_rng(0)
def unit(rows):
    vectors = random.standard_normal((rows, width), dtype=np.float32)
    vectors /= np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    return vectors
images, texts = unit(count), unit(count * texts_each)
owner = random.permutation(np.repeat(np.arange(count), texts_each))
exact_ranks(images[:8], texts[:8], np.arange(8))  # compile first
tracemalloc.start()
ranks = exact_ranks(images, texts, owner)
peak = tracemalloc.get_traced_memory()[1]
allowed = images.nbytes + texts.nbytes + 3 * 1024 * 4096 * 4 + 60 * 8 * len(texts)
assert peak < allowed, (peak, allowed)
for image in random.choice(count, 50, replace=False):
    scores = texts.astype(np.float64) @ images[image].astype(np.float64)
    best = scores[owner == image].max()
    wrong = scores[owner != image]
    found = ranks.strict.image_to_text
    # A float32 score may fall on the other side of a bound that it nearly touches.
    assert (wrong > best + 2e-6).sum() <= found.num_gt[image] <= (wrong > best).sum()
for text in random.choice(len(texts), 50, replace=False):
    scores = images.astype(np.float64) @ texts[text].astype(np.float64)
    best, wrong = scores[owner[text]], np.delete(scores, owner[text])
    found = ranks.strict.text_to_image
    assert (wrong > best + 2e-6).sum() <= found.num_gt[text] <= (wrong > best).sum()
print("equal", peak // 2**20, "MB")
"""


@pytest.mark.parametrize(
    ("images", "width"),
    [(3000, 64), pytest.param(30_000, 256, marks=pytest.mark.slow)],
)
def test_many_random_vectors_in_bounded_memory_equal_brute_force_on_a_subset(images, width):
    run = subprocess.run(
        [sys.executable, "-c", LARGE, str(images), str(width)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("equal")
