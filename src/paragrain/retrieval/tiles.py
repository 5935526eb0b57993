"""One pass over all image-text scores in tiles: a product into a reused buffer, then counting.

Rows are images and columns texts. One tile serves both directions: its rows are counted for
image-to-text, its columns for text-to-image. On the CPU, NumPy's product and compiled counting; on
a CUDA device, torch. Nothing of the size images x texts ever exists.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from paragrain.retrieval import kernel
from paragrain.retrieval.bounded import RARE, Bound, choose_bound
from paragrain.retrieval.saved import Saved
from paragrain.retrieval.vectors import Vectors, on_host

HOST_TILE = (1024, 4096)
DEVICE_TILE = (8192, 32768)
"""Images x texts in a tile: 16 MB of scores on the CPU, 1 GB on a CUDA device."""

_TRIAL = 16  # tiles after which bounds are dropped if they have settled fewer than half
_LEAST_SHARE = 64  # rows below which waking another thread costs more than it brings


@dataclass
class Judgement:
    """What is right for whom, the scores to beat, and, after the pass, how many beat them.

    Attributes:
        first, last: [N] int64; texts first[i] to last[i] (exclusive) are right for image i and are
            never counted for or against anybody. Both never fall from one image to the next.
        image_best, text_best: [N] and [M] float32; best right score, or infinity for
            those who are not asked.
        images, texts: only the first so many images and texts are asked.
        tie: scores this close to the best are a tie.
        image_reach, image_over, text_reach, text_over: int64 counts of scores that tie with the
            best or beat it, and of those that beat it.
    """

    first: np.ndarray
    last: np.ndarray
    image_best: np.ndarray
    text_best: np.ndarray
    images: int
    texts: int
    tie: float
    image_reach: np.ndarray = field(init=False)
    image_over: np.ndarray = field(init=False)
    text_reach: np.ndarray = field(init=False)
    text_over: np.ndarray = field(init=False)

    def asks(self, rows: slice, columns: slice) -> bool:
        """Whether anybody in this tile is asked."""
        return rows.start < self.images or columns.start < self.texts

    def bounds(self) -> list[np.ndarray]:
        """Lowest score that ties and highest that does, of images and of texts, as float32."""
        tie = np.float32(self.tie)
        best = (self.image_best, self.text_best)
        return [bound for values in best for bound in (values - tie, values + tie)]


def spans(total: int, size: int, first: int = 0) -> Iterator[slice]:
    """Cut `range(first, total)` into slices of at most `size`.

    >>> list(spans(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(first, total, size):
        yield slice(start, min(start + size, total))


def count_tiles(
    images: Vectors,
    texts: Vectors,
    judgements: Sequence[Judgement],
    *,
    tile: tuple[int, int] | None,
    advance: Callable[[int], None],
    saved: Saved | None = None,
    leading: int | None = None,
) -> None:
    """Fill the counts of `judgements`, each of which must hold every right pair of those before it.

    Args:
        images: [N, D] float32; texts: [M, D] float32; both on the same device.
        judgements: strict before lenient: what one erases from a tile the next does not see.
        tile: images and texts in a tile; None for the device's own choice.
        advance: called with the number of images done.
        saved: keeps the counts on the way; for the CPU alone, a card is done in seconds.
        leading: dimensions by which pairs are ruled out, on the CPU; None to choose, 0 for none.
    """
    height, width = tile or (DEVICE_TILE if isinstance(images, torch.Tensor) else HOST_TILE)
    height, width = min(height, len(images)), min(width, len(texts))
    tallies: list[_HostTally] | list[_DeviceTally]
    if isinstance(images, torch.Tensor):
        buffer = images.new_empty(height * width)
        tallies = [_DeviceTally(judgement, images.device) for judgement in judgements]
        _walk(images, texts, (height, width), torch.mm, buffer, tallies, advance)
    else:
        room = np.empty(height * width, np.float32)
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            host = [_HostTally(judgement, pool, threads) for judgement in judgements]
            counts = [c for tally in host for c in (tally.image_counts, tally.text_counts)]
            done = saved.load(counts) if saved else 0
            advance(done)

            def advance_and_save(rows: int) -> None:
                nonlocal done
                done += rows
                if saved:
                    saved.save(counts, done)
                advance(rows)

            walk: Callable[..., None] = _walk
            bound = choose_bound(on_host(images), on_host(texts), judgements[0], leading)
            if bound is not None:
                walk = partial(_walk_bounded, bound)
            walk(images, texts, (height, width), np.matmul, room, host, advance_and_save, done)
            tallies = host
    for tally in tallies:
        tally.finish()


def _walk(
    images: Any,
    texts: Any,
    tile: tuple[int, int],
    multiply: Callable[..., Any],
    buffer: Any,
    tallies: Sequence["_HostTally | _DeviceTally"],
    advance: Callable[[int], None],
    start: int = 0,
) -> None:
    for rows in spans(len(images), tile[0], start):
        for columns in spans(len(texts), tile[1]):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            scores = buffer[: shape[0] * shape[1]].reshape(shape)
            multiply(images[rows], texts[columns].T, out=scores)
            for tally in tallies:
                if tally.judgement.asks(rows, columns):
                    tally.add(scores, rows, columns)
        advance(rows.stop - rows.start)


def _walk_bounded(
    bound: Bound,
    images: np.ndarray,
    texts: np.ndarray,
    tile: tuple[int, int],
    multiply: Callable[..., Any],
    buffer: np.ndarray,
    tallies: Sequence["_HostTally"],
    advance: Callable[[int], None],
    start: int = 0,
) -> None:
    """`_walk` with the same counts; only tiles that bounds leave unsettled are scored in full."""
    tried = failed = 0
    for rows in spans(len(images), tile[0], start):
        if failed * 2 > tried >= _TRIAL:
            _walk(images, texts, tile, multiply, buffer, tallies, advance, rows.start)
            return
        for columns in spans(len(texts), tile[1]):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            scores = buffer[: shape[0] * shape[1]].reshape(shape)
            asked = [tally for tally in tallies if tally.judgement.asks(rows, columns)]
            multiply(bound.images[rows], bound.texts[columns].T, out=scores)
            vectors = (images[rows], texts[columns])
            unsettled = [t for t in asked if not t.settle(scores, bound, vectors, rows, columns)]
            tried, failed = tried + 1, failed + bool(unsettled)
            if unsettled:
                multiply(vectors[0], vectors[1].T, out=scores)
                for tally in unsettled:
                    tally.add(scores, rows, columns)
        advance(rows.stop - rows.start)


class _HostTally:
    """Counts of one judgement on the CPU; threads share a tile by rows."""

    def __init__(self, judgement: Judgement, pool: ThreadPoolExecutor, threads: int) -> None:
        self.judgement, self.pool, self.threads = judgement, pool, threads
        self.bounds = judgement.bounds()
        self.image_counts = np.zeros((2, len(judgement.first)), np.uint32)
        self.text_counts = np.zeros((2, len(judgement.text_best)), np.uint32)

    def add(self, scores: np.ndarray, rows: slice, columns: slice) -> None:
        """Erase what is right from the tile and count the rest."""
        parts = list(spans(len(scores), max(-(-len(scores) // self.threads), _LEAST_SHARE)))
        # All threads write to the same texts' counts, so each has its own and they are summed here.
        counts = np.zeros((len(parts), 2, scores.shape[1]), np.uint32)

        def work(part: slice, counts: np.ndarray) -> None:
            images = slice(rows.start + part.start, rows.start + part.stop)
            self._count(scores[part], images, columns, counts)

        if len(parts) == 1:
            work(parts[0], counts[0])
        else:
            list(self.pool.map(work, parts, counts))
        self.text_counts[:, columns] += counts.sum(axis=0, dtype=np.uint32)

    def settle(
        self,
        upper: np.ndarray,
        bound: Bound,
        vectors: tuple[np.ndarray, np.ndarray],
        rows: slice,
        columns: slice,
    ) -> bool:
        """Count from upper bounds; False, with nothing counted, if the scores are needed."""
        parts = list(spans(len(upper), max(-(-len(upper) // self.threads), _LEAST_SHARE)))
        image_counts = np.zeros((2, len(upper)), np.uint32)
        text_counts = np.zeros((len(parts), 2, upper.shape[1]), np.uint32)
        image_low, image_high, text_low, text_high = self.bounds

        def work(part: slice, counts: np.ndarray) -> bool:
            own = slice(rows.start + part.start, rows.start + part.stop)
            right = self.judgement
            kernel.erase(upper[part], right.first[own], right.last[own], columns.start)
            few = upper[part].size // RARE
            scored, still_open = kernel.settle(
                *(upper[part], vectors[0][part], vectors[1]),
                *(bound.images[own, -1], bound.texts[columns, -1]),
                *(image_low[own], image_high[own], text_low[columns], text_high[columns]),
                *(bound.slack, bound.margin, few, 0),
                *(image_counts[0, part], image_counts[1, part], counts[0], counts[1]),
            )
            return still_open == 0 and scored <= few

        settled = all(list(self.pool.map(work, parts, text_counts)))
        if settled:
            self.image_counts[:, rows] += image_counts
            self.text_counts[:, columns] += text_counts.sum(axis=0, dtype=np.uint32)
        return settled

    def _count(
        self, scores: np.ndarray, images: slice, texts: slice, text_counts: np.ndarray
    ) -> None:
        right, counts = self.judgement, self.image_counts
        image_low, image_high, text_low, text_high = self.bounds
        kernel.erase(scores, right.first[images], right.last[images], texts.start)
        kernel.count(
            scores,
            *(image_low[images], image_high[images], text_low[texts], text_high[texts]),
            *(counts[0, images], counts[1, images], text_counts[0], text_counts[1]),
        )

    def finish(self) -> None:
        """Hand the counts over to the judgement."""
        self.judgement.image_reach, self.judgement.image_over = self.image_counts.astype(np.int64)
        self.judgement.text_reach, self.judgement.text_over = self.text_counts.astype(np.int64)


class _DeviceTally:
    """Counts of one judgement on a CUDA device (or any other that torch knows)."""

    def __init__(self, judgement: Judgement, device: torch.device) -> None:
        self.judgement = judgement
        self.bounds = [torch.from_numpy(bound).to(device) for bound in judgement.bounds()]
        self.first = torch.from_numpy(judgement.first).to(device)
        self.last = torch.from_numpy(judgement.last).to(device)
        images, texts = len(judgement.first), len(judgement.text_best)
        self.image_counts = torch.zeros((2, images), dtype=torch.int64, device=device)
        self.text_counts = torch.zeros((2, texts), dtype=torch.int64, device=device)

    def add(self, scores: torch.Tensor, rows: slice, columns: slice) -> None:
        """Erase what is right from the tile and count the rest."""
        self._erase(scores, rows, columns)
        image_low, image_high, text_low, text_high = self.bounds
        self.image_counts[0, rows] += (scores >= image_low[rows, None]).sum(1)
        self.image_counts[1, rows] += (scores > image_high[rows, None]).sum(1)
        self.text_counts[0, columns] += (scores >= text_low[columns]).sum(0)
        self.text_counts[1, columns] += (scores > text_high[columns]).sum(0)

    def _erase(self, scores: torch.Tensor, rows: slice, columns: slice) -> None:
        # The right texts of neighbouring images are neighbours too, so only a band is looked at.
        start = max(int(self.judgement.first[rows.start]), columns.start)
        stop = min(int(self.judgement.last[rows.stop - 1]), columns.stop)
        if start < stop:
            text = torch.arange(start, stop, device=scores.device)
            right = (text >= self.first[rows, None]) & (text < self.last[rows, None])
            band = scores[:, start - columns.start : stop - columns.start]
            band.masked_fill_(right, -torch.inf)

    def finish(self) -> None:
        """Hand the counts over to the judgement."""
        self.judgement.image_reach, self.judgement.image_over = on_host(self.image_counts)
        self.judgement.text_reach, self.judgement.text_over = on_host(self.text_counts)
