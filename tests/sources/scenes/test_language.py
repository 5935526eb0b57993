"""Every kind of text: true where it must be, false where it must be, of the right length."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.sources.scenes.graph import Scene, near_twin, sample_scene
from paragrain.sources.scenes.language import (
    alt_text,
    description,
    hard_negatives,
    paragraph,
    short_captions,
)
from paragrain.sources.scenes.truth import is_true

SEEDS = st.integers(0, 2**32)


def sentences(text: str) -> int:
    return len(re.findall(r"\.(?:\s|$)", text))


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_every_text_is_true_of_its_scene_and_negatives_are_false(seed: int) -> None:
    rng = random.Random(seed)
    scene = sample_scene(rng)
    captions = short_captions(scene, rng)
    references = short_captions(scene, rng, reference=True)
    for text in [*captions, *references, paragraph(scene, rng), description(scene, rng)]:
        assert is_true(text, scene) is True, text
    negatives = hard_negatives(scene, rng)
    assert len(set(negatives)) == 5
    for text in negatives:
        assert is_true(text, scene) is False, text


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_lengths_and_counts(seed: int) -> None:
    rng = random.Random(seed)
    scene = sample_scene(rng)
    for texts in (short_captions(scene, rng), short_captions(scene, rng, reference=True)):
        assert len(set(texts)) == 5
        assert all(len(text.split()) < 20 for text in texts)
    assert len(alt_text(scene, rng).split()) < 10
    assert 3 <= sentences(paragraph(scene, rng)) <= 6
    assert 3 <= sentences(description(scene, rng)) <= 6


def test_about_a_quarter_of_the_alt_texts_is_useless() -> None:
    rng = random.Random(0)
    scenes = [sample_scene(rng) for _ in range(2000)]
    useless = sum(is_true(alt_text(scene, rng), scene) is None for scene in scenes)
    assert 0.2 < useless / 2000 < 0.3


def test_the_held_out_style_shares_no_attribute_word_with_the_training_style() -> None:
    rng = random.Random(0)
    ours, theirs = set(), set()
    for _ in range(300):
        scene = sample_scene(rng)
        ours |= set(re.findall(r"[a-z]+", paragraph(scene, rng).lower()))
        theirs |= set(re.findall(r"[a-z]+", description(scene, rng).lower()))
    shared = ours & theirs
    assert not shared & {"red", "crimson", "circle", "disc", "large", "huge", "striped", "lined"}
    assert len(shared) < 25, shared  # articles, numbers and the like


def test_references_are_worded_apart_from_the_generated_captions() -> None:
    rng = random.Random(0)
    scenes = [sample_scene(rng) for _ in range(300)]
    generated = {text for scene in scenes for text in short_captions(scene, rng)}
    references = {text for scene in scenes for text in short_captions(scene, rng, reference=True)}
    assert not generated & references


def first_difference(one: str, other: str) -> float:
    """Share of the longer text that comes before the first word in which two texts differ."""
    a, b = one.split(), other.split()
    same = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    return same / max(len(a), len(b))


def test_near_twins_differ_in_one_fact_told_late_by_both_styles() -> None:
    rng = random.Random(3)
    late: dict[str, list[float]] = {"paragraph": [], "description": []}
    kinds = set()
    for seed in range(400):
        scene = sample_scene(rng)
        twin, kind = near_twin(scene, rng)
        kinds.add(kind)
        assert twin != scene
        assert (twin.background, twin.look, len(twin.things)) == (
            scene.background, scene.look, len(scene.things),
        )  # fmt: skip
        changed = sum(a != b for a, b in zip(scene.things, twin.things, strict=True))
        assert changed == (2 if kind == "swap" else 1)
        for name, write in (("paragraph", paragraph), ("description", description)):
            texts = [write(s, random.Random(seed)) for s in (scene, twin)]
            if kind not in ("swap", "move"):  # those may change the order of mention
                assert is_true(texts[1], scene) is False
                late[name].append(first_difference(*texts))
    assert kinds == {"colour", "shape", "size", "pattern", "move", "swap"}
    assert sum(late["paragraph"]) / len(late["paragraph"]) > 0.5
    assert sum(late["description"]) / len(late["description"]) > 0.5


@pytest.mark.parametrize(
    ("sentence", "truth"),
    [
        ("There are two shapes on a cream background.", True),
        ("Three shapes on a cream background.", False),
        ("a red star in the upper left corner", True),
        ("the northwest holds a huge solid crimson starburst", True),
        ("a red star in the centre", False),
        ("a tiny azure moon to the right of a star", True),
        ("a moon to the left of a star", False),
        ("a striped star", False),
        ("on mint we see a star", False),
        ("a giraffe next to a star", None),
        ("", None),
        ("?!...", None),
    ],
)
def test_hand_written_sentences(sentence: str, truth: bool | None) -> None:
    graph = (
        '{"background": "cream", "look": 0, "things": '
        '[["star", "red", "large", "plain", 0], ["crescent", "blue", "small", "dotted", 5]]}'
    )
    assert is_true(sentence, Scene.from_json(graph)) is truth


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_no_text_of_any_kind_raises(text: str) -> None:
    is_true(text, sample_scene(random.Random(0)))
