"""The best few gallery rows of each query, exactly, with ties in gallery order."""

from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from paragrain.errors import UsageError
from paragrain.retrieval import kernel
from paragrain.retrieval.tiles import spans
from paragrain.retrieval.vectors import on_host, unit_vectors

_MARGIN = np.float32(1e-5)  # more than a float32 product of unit vectors can be wrong by
_TILE = (256, 4096)
_FEW = 4  # queries that are compared with codes one by one; of more, a product is as fast


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
    return Gallery(gallery).top_k(queries, k, tile=tile)


class Gallery:
    """Embeddings that are searched many times: checked once, and exact as `top_k`.

    From the second call with few queries on, a code of one byte a number, of which the greatest
    error of each row is known, rules out all rows that cannot be among the best: a quarter of the
    memory is read, and the few that are left are scored exactly. Several threads may ask at once.

    Args:
        vectors: [N, D] floating, rows of length 1; an array or a tensor. float32 is not copied.

    >>> gallery = Gallery(np.eye(3))
    >>> [gallery.top_k([[0.0, 0.6, 0.8]], k=1)[0].item() for _ in range(2)]
    [2, 2]
    """

    def __init__(self, vectors: Any) -> None:
        self.vectors = on_host(unit_vectors(vectors, "gallery"))
        self._calls = 0
        self._codes: _Codes | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.vectors)

    def top_k(
        self, queries: Any, k: int, *, tile: tuple[int, int] = _TILE
    ) -> tuple[np.ndarray, np.ndarray]:
        """As the function `top_k`."""
        if k < 1:
            raise UsageError(f"k must be at least 1, not {k}.")
        asked = on_host(unit_vectors(queries, "query"))
        if asked.shape[1] != self.vectors.shape[1]:
            raise UsageError(
                f"Query embeddings are {asked.shape[1]} wide and gallery embeddings "
                f"{self.vectors.shape[1]}; encode both with the same model."
            )
        best = np.full((len(asked), min(k, len(self))), -np.inf, np.float32)
        indices = np.zeros(best.shape, np.int64)
        codes = self._codes_from_the_second_call() if len(asked) <= _FEW else None
        if codes is None:
            self._compare_with_all(asked, best, indices, tile)
        else:
            for row in range(len(asked)):
                own = slice(row, row + 1)
                self._compare_with_few(codes, asked[own], best[own], indices[own])
        return indices, best

    def _codes_from_the_second_call(self) -> "_Codes | None":
        """Codes take as long to make as some ten queries to answer, so one query makes none."""
        with self._lock:
            self._calls += 1
            if self._codes is None and self._calls > 1:
                self._codes = _Codes.of(self.vectors)
            return self._codes

    def _compare_with_all(
        self, asked: np.ndarray, best: np.ndarray, indices: np.ndarray, tile: tuple[int, int]
    ) -> None:
        height, width = min(tile[0], len(asked)), min(tile[1], len(self))
        buffer = np.empty(height * width, np.float32)
        for rows in spans(len(asked), height):
            for columns in spans(len(self), width):
                shape = (rows.stop - rows.start, columns.stop - columns.start)
                scores = buffer[: shape[0] * shape[1]].reshape(shape)
                np.matmul(asked[rows], self.vectors[columns].T, out=scores)
                own = best[rows], indices[rows]
                kernel.keep_best(scores, asked[rows], self.vectors, columns.start, _MARGIN, *own)

    def _compare_with_few(
        self, codes: "_Codes", query: np.ndarray, best: np.ndarray, indices: np.ndarray
    ) -> None:
        k = best.shape[1]
        scores = codes.scores(query[0])
        # |q·v - q·code| is at most |v - code| for a q of length 1; _MARGIN is for the rounding.
        least = np.partition(scores - codes.errors, len(self) - k)[len(self) - k]
        rows = np.flatnonzero(scores + codes.errors >= least - 2 * _MARGIN)
        every = np.full((1, len(rows)), np.inf, np.float32)
        kernel.keep_best(every, query, self.vectors[rows], 0, _MARGIN, best, indices)
        indices[:] = rows[indices]


class _Codes(NamedTuple):
    """Rows rounded to whole numbers from -127 to 127.

    Attributes:
        codes: int8 [N, D].
        steps: float32 [N]; row i is about `steps[i] * codes[i]`.
        errors: float32 [N]; the length of what that leaves over, rounded up.
    """

    codes: np.ndarray
    steps: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> "_Codes":
        codes = np.empty(vectors.shape, np.int8)
        steps, errors = np.empty((2, len(vectors)), np.float32)
        for rows in spans(len(vectors), 4096):
            part = vectors[rows]
            steps[rows] = np.abs(part).max(axis=1) / 127
            codes[rows] = np.rint(part / steps[rows, None])
            left_over = part - steps[rows, None] * codes[rows]
            # A query may be longer than 1 by what `unit_vectors` allows.
            errors[rows] = 1.01 * np.linalg.norm(left_over, axis=1)
        return cls(codes, steps, errors)

    def scores(self, query: np.ndarray) -> np.ndarray:
        """The products of all codes with a query [D], float32 [N]."""
        scores = np.empty(len(self.codes), np.float32)
        kernel.code_scores(self.codes, self.steps, query, scores)
        return scores
