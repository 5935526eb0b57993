import numpy as np
import pytest

from paragrain.errors import ParagrainError
from paragrain.training.batches import TrainingSet
from paragrain.training.recipes import load_recipe


def load(photos, ids: list[str], recipe: str) -> TrainingSet:
    """With embeddings that are the place of the image, four times."""
    vectors = np.arange(len(ids), dtype=np.float32)[:, None] * np.ones(4, np.float32)
    contents = {id: id for id in ids}
    return TrainingSet.load(
        photos, contents, load_recipe(recipe), split="train", seed=0, embeddings=vectors
    )


def test_records_without_texts_or_vectors_are_counted(record, write_records, tmp_path):
    records = [record(number) for number in range(6)]
    records[1].paragraph = None
    records[1].captions = [" "]
    records[2].paragraph = ""
    records[3].negatives = []
    photos = write_records(tmp_path / "photos", records)
    ids = [r.id for r in records if r.id != "train/004"]
    data = load(photos, ids, "c5")
    assert [r.id for r in data.records] == [f"train/00{n}" for n in (0, 2, 3, 5)]
    assert data.embeddings[:, 0].tolist() == [0, 2, 3, 4]
    assert data.report == {
        "images": 6,
        "used": 4,
        "pairs": 7,
        "left out: no positive text": 1,
        "left out: no image embedding": 1,
    }
    hard = load(photos, ids, "c7")
    assert len(hard) == 4
    assert hard.report["used without a negative"] == 1

    batch = data.batch([2, 1], step=0, epoch=0)
    assert batch.image_embeddings[:, 0].tolist() == [3, 2]
    assert [t.field for t in batch.texts] == ["captions", "paragraph", "captions"]
    assert batch.text_image.tolist() == [0, 0, 1]
    batch = hard.batch([0, 2, 1], step=0, epoch=0)
    assert batch.text_image.tolist() == [0] * 6 + [1] + [2] * 6
    assert batch.negative.tolist() == [False] + [True] * 5 + [False] + [False] + [True] * 5


def test_less_than_two_images_are_refused_in_one_sentence(record, write_records, tmp_path):
    records = [record(0), record(1)]
    records[1].paragraph = None
    photos = write_records(tmp_path / "photos", records)
    with pytest.raises(ParagrainError, match=r"has 1 of 2 images .* recipe c4 .* at least two"):
        load(photos, [r.id for r in records], "c4")
