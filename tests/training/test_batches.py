import numpy as np
import pytest

from paragrain.embeddings import Embeddings
from paragrain.errors import ParagrainError
from paragrain.training.batches import Schedule, TrainingSet
from paragrain.training.supervision import load_recipe


def embeddings(ids: list[str]) -> Embeddings:
    vectors = np.arange(len(ids), dtype=np.float32)[:, None] * np.ones(4, np.float32)
    return Embeddings(ids, vectors, list(ids), "f", [], computed=len(ids), reused=0, cache=None)


@pytest.mark.parametrize(
    ("images", "size", "sizes"),
    [
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),  # a single image would have nothing to contrast with
        (8, 4, [4, 4]),
        (3, 4, [3]),  # a set smaller than a batch is a batch
        (5, 4, [5]),
        (2, 2, [2]),
    ],
)
def test_every_image_comes_once_an_epoch(images, size, sizes):
    schedule = Schedule(images, size, epochs=2, max_steps=None, seed=0)
    for epoch in range(2):
        steps = range(epoch * len(sizes), (epoch + 1) * len(sizes))
        batches = [schedule.rows(step) for step in steps]
        assert [len(rows) for rows in batches] == sizes
        assert sorted(np.concatenate(batches)) == list(range(images))
        assert [schedule.ends_epoch(step) for step in steps] == [False] * (len(sizes) - 1) + [True]
    assert schedule.steps == 2 * len(sizes)


def test_the_order_follows_seed_and_epoch_alone():
    def orders(seed: int) -> list[list[int]]:
        schedule = Schedule(50, 50, epochs=3, max_steps=None, seed=seed)
        return [schedule.rows(step).tolist() for step in range(3)]

    first = orders(0)
    assert first == orders(0)
    assert len({tuple(order) for order in [*first, *orders(1)]}) == 6


def test_max_steps_ends_the_run_within_an_epoch():
    schedule = Schedule(10, 4, epochs=2, max_steps=4, seed=0)
    assert schedule.steps == 4
    assert [schedule.ends_epoch(step) for step in range(4)] == [False, False, True, True]


def test_records_without_texts_or_vectors_are_counted(record, write_records, tmp_path):
    records = [record(number) for number in range(6)]
    records[1].paragraph = None
    records[1].captions = [" "]
    records[2].paragraph = ""
    records[3].negatives = []
    photos = write_records(tmp_path / "photos", records)
    images = embeddings([r.id for r in records if r.id != "train/004"])
    data = TrainingSet.load(photos, images, load_recipe("c5"), split="train", seed=0)
    assert [r.id for r in data.records] == [f"train/00{n}" for n in (0, 2, 3, 5)]
    assert data.vectors[:, 0].tolist() == [0, 2, 3, 4]
    assert data.report == {
        "images": 6,
        "used": 4,
        "pairs": 7,
        "left out: no positive text": 1,
        "left out: no image embedding": 1,
    }
    hard = TrainingSet.load(photos, images, load_recipe("c7"), split="train", seed=0)
    assert len(hard) == 4
    assert hard.report["used without a negative"] == 1

    batch = data.batch([2, 1], epoch=0)
    assert batch.images[:, 0].tolist() == [3, 2]
    assert [t.field for t in batch.texts] == ["captions", "paragraph", "captions"]
    assert batch.text_image.tolist() == [0, 0, 1]
    batch = hard.batch([0, 2, 1], epoch=0)
    assert batch.text_image.tolist() == [0] * 6 + [1] + [2] * 6
    assert batch.negative.tolist() == [False] + [True] * 5 + [False] + [False] + [True] * 5


def test_less_than_two_images_are_refused_in_one_sentence(record, write_records, tmp_path):
    records = [record(0), record(1)]
    records[1].paragraph = None
    photos = write_records(tmp_path / "photos", records)
    images = embeddings([r.id for r in records])
    with pytest.raises(ParagrainError, match=r"has 1 of 2 images .* recipe c4 .* at least two"):
        TrainingSet.load(photos, images, load_recipe("c4"), split="train", seed=0)
