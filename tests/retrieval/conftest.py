"""The slow truth that fast ranking is compared with."""

from collections.abc import Callable

import numpy as np
import pytest

TIE = 1e-6


def _count(scores: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> tuple[int, int, int]:
    best = scores[right].max()
    others = scores[wrong]
    return (
        int((others > best + TIE).sum()),
        int((np.abs(others - best) <= TIE).sum()),
        int((scores[right] >= best - TIE).sum()),
    )


def _brute_force(
    images: np.ndarray,
    texts: np.ndarray,
    text_image: np.ndarray,
    groups: np.ndarray,
    wordings: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """num_gt, tied negatives and positives [Q, 3], one query at a time in float64."""
    scores = images.astype(np.float64) @ texts.astype(np.float64).T
    found: dict[str, np.ndarray] = {}
    own = text_image[None, :] == np.arange(len(images))[:, None]
    same_group = groups[:, None] == groups[text_image][None, :]
    if wordings is not None:  # of the texts of the own group, and of all that say the same
        same_group = same_group @ (wordings[:, None] == wordings[None, :])
    for name, right in (("strict", own), ("lenient", same_group)):
        found[f"{name} image_to_text"] = np.array(
            [
                _count(scores[i], right[i], ~right[i])
                for i in range(len(images))
                if own[i].any()  # an image without texts of its own asks nothing
            ]
        )
        found[f"{name} text_to_image"] = np.array(
            [_count(scores[:, j], right[:, j], ~right[:, j]) for j in range(len(texts))]
        )
    return found


@pytest.fixture(scope="session")
def brute_force() -> Callable[..., dict[str, np.ndarray]]:
    return _brute_force


@pytest.fixture(scope="session")
def unit() -> Callable[..., np.ndarray]:
    """Random vectors of unit length, [rows, width] float32."""

    def make(rows: int, width: int, seed: int) -> np.ndarray:
        vectors = np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    return make
