"""Worlds as collections, and their pictures."""

import random
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.images import decode
from paragrain.sources.scenes import Scene, import_scenes, is_true, near_twin, render, sample_scene
from paragrain.sources.scenes.lexicon import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES
from paragrain.sources.scenes.world import scenes_of, write_record


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("scenes") / "world"
    import_scenes(folder, size=40, seed=7, progress=False)
    return Collection.open(folder)


def test_the_world_has_what_the_design_asks_for() -> None:
    assert len(SHAPES) >= 10
    assert len(COLOURS) >= 10
    assert len(SIZES) == 3
    assert len(PATTERNS) >= 3
    assert len(BACKGROUNDS) >= 8
    rng = random.Random(0)
    counts = {len(sample_scene(rng).things) for _ in range(200)}
    assert counts == {4, 5, 6, 7, 8}
    for _ in range(100):
        cells = [thing.cell for thing in sample_scene(rng).things]
        assert len(set(cells)) == len(cells), "two things overlap"


def test_splits_and_ids(world: Collection) -> None:
    assert world.splits == {"train": 40, "val": 10, "test": 20, "twins": 20}
    ids = world.ids()
    assert len(set(ids)) == len(ids)


def test_train_has_alt_text_and_the_others_five_references(world: Collection) -> None:
    for record in world.records():
        assert len(record.captions) == (1 if record.split == "train" else 5)
        assert len(record.generated) == len(record.negatives) == 5
        assert record.paragraph
        assert record.description


def test_the_stored_graph_can_be_asked(world: Collection) -> None:
    for record in world.records():
        scene = Scene.from_json(record.graph or "")
        assert is_true(record.paragraph or "", scene)
        assert is_true(record.description or "", scene)
        assert not any(is_true(text, scene) for text in record.negatives)


def test_pictures_in_the_collection_are_those_of_the_graph(world: Collection) -> None:
    for record in world.records("twins", images=True):
        picture = np.asarray(decode(world.image_bytes(record)))
        assert np.array_equal(picture, render(Scene.from_json(record.graph or "")))


def test_same_seed_same_world_and_other_seed_no_shared_scene(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        import_scenes(tmp_path / name, size=20, seed=seed, progress=False)
    a, b, c = (Collection.open(tmp_path / name) for name in "abc")
    assert a.fingerprint == b.fingerprint != c.fingerprint
    graphs = [[record.graph for record in x.records()] for x in (a, c)]
    assert not set(graphs[0]) & set(graphs[1])
    assert len(set(graphs[0])) == len(graphs[0]), "a scene repeats between splits"


def test_a_larger_world_begins_as_the_smaller_one() -> None:
    small, large = (list(scenes_of("train", n, seed=0)) for n in (5, 9))
    assert large[:5] == small


def test_a_family_of_two_is_a_pair() -> None:
    scenes = [scene for _, scene in scenes_of("twins", 20, seed=0, family=2)]
    for one, other in zip(scenes[::2], scenes[1::2], strict=True):
        assert one != other
        assert one.look == other.look


def test_training_scenes_come_in_families(tmp_path: Path) -> None:
    import_scenes(tmp_path / "w", size=8, seed=3, family=2, progress=False)
    graphs = [
        Scene.from_json(r.graph or "") for r in Collection.open(tmp_path / "w").records("train")
    ]
    for one, other in zip(graphs[::2], graphs[1::2], strict=True):
        assert one != other
        assert one.look == other.look


def test_members_of_a_family_are_different_and_one_fact_from_the_first() -> None:
    scenes = [scene for _, scene in scenes_of("train", 24, seed=0, family=8)]
    for start in range(0, 24, 8):
        first, *others = scenes[start : start + 8]
        assert len({first, *others}) == 8
        for other in others:
            changed = sum(a != b for a, b in zip(first.things, other.things, strict=True))
            assert changed in (1, 2)  # two where a pair has swapped places
            assert (other.background, other.look) == (first.background, first.look)


def test_the_split_test_holds_unrelated_scenes(world: Collection) -> None:
    looks = [Scene.from_json(record.graph or "").look for record in world.records("test")]
    assert len(set(looks)) == len(looks)
    looks = [Scene.from_json(record.graph or "").look for record in world.records("twins")]
    assert len(set(looks)) == 3  # twenty scenes in families of eight


def test_twins_look_alike_but_not_the_same() -> None:
    rng = random.Random(5)
    for _ in range(50):
        scene = sample_scene(rng)
        twin, kind = near_twin(scene, rng)
        changed = (render(scene) != render(twin)).any(axis=-1).mean()
        assert 0 < changed < 0.25, kind


def test_pictures_are_anti_aliased_and_of_the_size_asked_for() -> None:
    scene = sample_scene(random.Random(1))
    picture = render(scene)
    assert picture.shape == (96, 96, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50  # edges are mixed tones
    assert render(scene, 192).shape == (192, 192, 3)


def test_every_shape_size_and_pattern_looks_different() -> None:
    from paragrain.sources.scenes import Thing

    pictures = set()
    for shape in SHAPES:
        for size in SIZES:
            for pattern in PATTERNS:
                thing = Thing(shape, "red", size, pattern, 4)
                pictures.add(render(Scene("cream", (thing,), look=0)).tobytes())
    assert len(pictures) == len(SHAPES) * len(SIZES) * len(PATTERNS)


def test_wrong_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        import_scenes(tmp_path / "w", size=0)
    with pytest.raises(UsageError, match="one scene or more"):
        import_scenes(tmp_path / "w", family=0)
    with pytest.raises(UsageError, match="multiple of 3"):
        import_scenes(tmp_path / "w", pixels=100)


def test_a_record_is_the_same_every_time() -> None:
    scene = sample_scene(random.Random(2))
    assert write_record("x", scene, "train") == write_record("x", scene, "train")
