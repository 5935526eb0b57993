"""A ranking that is killed goes on where it was, and ends in the same ranks."""

from pathlib import Path

import numpy as np
import pytest

from paragrain.retrieval import exact_ranks, tiles
from paragrain.retrieval import saved_counts as module

IMAGES, TEXTS = 50, 120


def unit(rows: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("grouped", [False, True])
def test_a_killed_ranking_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    images, texts = unit(IMAGES, 0), unit(TEXTS, 1)
    owners = np.arange(TEXTS) % IMAGES
    groups = np.arange(IMAGES) // 2 if grouped else None
    file = tmp_path / "ranks.npz"
    walked: list[int] = []
    real = tiles.spans

    def spans(total: int, size: int, first: int = 0):
        for part in real(total, size, first):
            if total == IMAGES and size == 7:
                walked.append(part.start)
                if len(walked) == 4:
                    raise Killed
            yield part

    monkeypatch.setattr(tiles, "spans", spans)
    with pytest.raises(Killed):
        exact_ranks(images, texts, owners, groups=groups, tile=(7, 16), resume=file)
    assert file.exists()
    ranks = exact_ranks(images, texts, owners, groups=groups, tile=(7, 16), resume=file)
    assert walked == [0, 7, 14, 21, 21, 28, 35, 42, 49]  # the first three were not done again
    assert not file.exists()
    whole = exact_ranks(images, texts, owners, groups=groups)
    for judged in ("strict", "lenient"):
        for direction in ("image_to_text", "text_to_image"):
            one = getattr(getattr(ranks, judged), direction)
            other = getattr(getattr(whole, judged), direction)
            for name in ("num_gt", "tied_negatives", "tied_positives"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_counts_of_other_vectors_or_a_damaged_file_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(module.SavedCounts, "remove", lambda self: None)
    images, texts, owners = unit(IMAGES, 0), unit(TEXTS, 1), np.arange(TEXTS) % IMAGES
    file = tmp_path / "ranks.npz"
    exact_ranks(images, texts, owners, tile=(7, 16), resume=file)
    other = exact_ranks(unit(IMAGES, 2), texts, owners, tile=(7, 16), resume=file)
    expected = exact_ranks(unit(IMAGES, 2), texts, owners)
    np.testing.assert_array_equal(
        other.strict.text_to_image.num_gt, expected.strict.text_to_image.num_gt
    )
    file.write_bytes(file.read_bytes()[:100])
    again = exact_ranks(images, texts, owners, tile=(7, 16), resume=file)
    expected = exact_ranks(images, texts, owners)
    np.testing.assert_array_equal(
        again.strict.image_to_text.num_gt, expected.strict.image_to_text.num_gt
    )
