"""The best few gallery rows of each query, exactly, with ties in gallery order."""

from typing import Any

import numpy as np

from paragrain.errors import UsageError
from paragrain.retrieval import kernel
from paragrain.retrieval.tiles import spans
from paragrain.retrieval.vectors import on_host, unit_vectors

_MARGIN = np.float32(1e-5)  # more than a float32 product of unit vectors can be wrong by
_TILE = (256, 4096)


def top_k(
    queries: Any, gallery: Any, k: int, *, tile: tuple[int, int] = _TILE
) -> tuple[np.ndarray, np.ndarray]:
    """Find, for each query, the `k` gallery rows with the highest cosine, best first.

    Scores are computed in double precision and rounded to float32, so equal vectors have equal
    scores wherever they stand, and equal scores keep the gallery's order. The first 5 of 15 are
    therefore the 5. Runs on the CPU, in the memory of one tile beside the results.

    Args:
        queries: [Q, D] floating, rows of length 1; an array or a tensor.
        gallery: [N, D] likewise.
        k: how many; with fewer than `k` rows in the gallery, all of them are given.
        tile: queries and gallery rows scored at once; changes no result.

    Returns:
        indices [Q, min(k, N)] int64 and scores [Q, min(k, N)] float32.

    Raises:
        UsageError: `k` below 1, and as for `exact_ranks`.

    >>> gallery = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    >>> indices, scores = top_k([[1.0, 0.0]], gallery, k=10)
    >>> indices, scores
    (array([[1, 2, 0]]), array([[1., 1., 0.]], dtype=float32))
    """
    if k < 1:
        raise UsageError(f"k must be at least 1, not {k}.")
    asked = on_host(unit_vectors(queries, "query"))
    offered = on_host(unit_vectors(gallery, "gallery"))
    if asked.shape[1] != offered.shape[1]:
        raise UsageError(
            f"Query embeddings are {asked.shape[1]} wide and gallery embeddings "
            f"{offered.shape[1]}; encode both with the same model."
        )
    kept = min(k, len(offered))
    best = np.full((len(asked), kept), -np.inf, np.float32)
    indices = np.zeros((len(asked), kept), np.int64)
    height, width = min(tile[0], len(asked)), min(tile[1], len(offered))
    buffer = np.empty(height * width, np.float32)
    for rows in spans(len(asked), height):
        for columns in spans(len(offered), width):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            scores = buffer[: shape[0] * shape[1]].reshape(shape)
            np.matmul(asked[rows], offered[columns].T, out=scores)
            kernel.keep_best(
                scores, asked[rows], offered, columns.start, _MARGIN, best[rows], indices[rows]
            )
    return indices, best
