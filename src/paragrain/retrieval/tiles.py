"""One pass over all image-text scores in tiles: a product into a reused buffer, then counting.

Rows are images and columns texts. One tile serves both directions: its rows are counted for
image-to-text, its columns for text-to-image. On the CPU, NumPy's product and compiled counting; on
a CUDA device, torch. Nothing of the size images x texts ever exists.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from paragrain.retrieval import kernel
from paragrain.retrieval.saved_counts import SavedCounts
from paragrain.retrieval.vectors import Vectors, on_host

HOST_TILE = (1024, 4096)
DEVICE_TILE = (8192, 32768)
"""Images x texts in a tile: 16 MB of scores on the CPU, 1 GB on a CUDA device."""

_LEAST_SHARE = 64  # rows below which waking another thread costs more than it brings


@dataclass
class Targets:
    """What is right for whom, the scores to beat, and, after the pass, how many beat them.

    Attributes:
        first, last: [N] int64; texts first[i] to last[i] (exclusive) are right for image i and are
            never counted for or against anybody. Both never fall from one image to the next.
        image_best, text_best: [N] and [M] float32; best right score, or infinity for
            those who are not asked.
        images, texts: only the first so many images and texts are asked.
        tie: scores this close to the best are a tie.
        image_num_ge, text_num_ge: [N], [M] int64; how many scores tie with the best or beat it.
        image_num_gt, text_num_gt: [N], [M] int64; how many beat it.
    """

    first: np.ndarray
    last: np.ndarray
    image_best: np.ndarray
    text_best: np.ndarray
    images: int
    texts: int
    tie: float
    image_num_ge: np.ndarray = field(init=False)
    image_num_gt: np.ndarray = field(init=False)
    text_num_ge: np.ndarray = field(init=False)
    text_num_gt: np.ndarray = field(init=False)

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
    all_targets: Sequence[Targets],
    *,
    tile: tuple[int, int] | None,
    advance: Callable[[int], None],
    saved: SavedCounts | None = None,
) -> None:
    """Fill the counts of `all_targets`; each must hold every right pair of those before it.

    Args:
        images: [N, D] float32; texts: [M, D] float32; both on the same device.
        all_targets: strict before lenient: what one masks in a tile the next does not see.
        tile: images and texts in a tile; None for the device's own choice.
        advance: called with the number of images done.
        saved: keeps the counts on the way; for the CPU alone, a card is done in seconds.
    """
    height, width = tile or (DEVICE_TILE if isinstance(images, torch.Tensor) else HOST_TILE)
    height, width = min(height, len(images)), min(width, len(texts))
    counters: list[_HostCounter] | list[_DeviceCounter]
    if isinstance(images, torch.Tensor):
        buffer = images.new_empty(height * width)
        counters = [_DeviceCounter(targets, images.device) for targets in all_targets]
        _walk(images, texts, (height, width), torch.mm, buffer, counters, advance)
    else:
        room = np.empty(height * width, np.float32)
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            host = [_HostCounter(targets, pool, threads) for targets in all_targets]
            counts = [c for counter in host for c in (counter.image_counts, counter.text_counts)]
            done = saved.load(counts) if saved else 0
            advance(done)

            def advance_and_save(rows: int) -> None:
                nonlocal done
                done += rows
                if saved:
                    saved.save(counts, done)
                advance(rows)

            _walk(images, texts, (height, width), np.matmul, room, host, advance_and_save, done)
            counters = host
    for counter in counters:
        counter.finish()


def _walk(
    images: Any,
    texts: Any,
    tile: tuple[int, int],
    multiply: Callable[..., Any],
    buffer: Any,
    counters: Sequence["_HostCounter | _DeviceCounter"],
    advance: Callable[[int], None],
    start: int = 0,
) -> None:
    for rows in spans(len(images), tile[0], start):
        for columns in spans(len(texts), tile[1]):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            scores = buffer[: shape[0] * shape[1]].reshape(shape)
            multiply(images[rows], texts[columns].T, out=scores)
            for counter in counters:
                if counter.targets.asks(rows, columns):
                    counter.add(scores, rows, columns)
        advance(rows.stop - rows.start)


class _HostCounter:
    """Counts of one `Targets` on the CPU; threads share a tile by rows."""

    def __init__(self, targets: Targets, pool: ThreadPoolExecutor, threads: int) -> None:
        self.targets, self.pool, self.threads = targets, pool, threads
        self.bounds = targets.bounds()
        self.image_counts = np.zeros((2, len(targets.first)), np.uint32)
        self.text_counts = np.zeros((2, len(targets.text_best)), np.uint32)

    def add(self, scores: np.ndarray, rows: slice, columns: slice) -> None:
        """Mask what is right and count the rest."""
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

    def _count(
        self, scores: np.ndarray, images: slice, texts: slice, text_counts: np.ndarray
    ) -> None:
        right, counts = self.targets, self.image_counts
        image_low, image_high, text_low, text_high = self.bounds
        kernel.mask_positives(scores, right.first[images], right.last[images], texts.start)
        kernel.count(
            scores,
            *(image_low[images], image_high[images], text_low[texts], text_high[texts]),
            *(counts[0, images], counts[1, images], text_counts[0], text_counts[1]),
        )

    def finish(self) -> None:
        """Hand the counts over to the targets."""
        self.targets.image_num_ge, self.targets.image_num_gt = self.image_counts.astype(np.int64)
        self.targets.text_num_ge, self.targets.text_num_gt = self.text_counts.astype(np.int64)


class _DeviceCounter:
    """Counts of one `Targets` on a CUDA device (or any other that torch knows)."""

    def __init__(self, targets: Targets, device: torch.device) -> None:
        self.targets = targets
        self.bounds = [torch.from_numpy(bound).to(device) for bound in targets.bounds()]
        self.first = torch.from_numpy(targets.first).to(device)
        self.last = torch.from_numpy(targets.last).to(device)
        images, texts = len(targets.first), len(targets.text_best)
        self.image_counts = torch.zeros((2, images), dtype=torch.int64, device=device)
        self.text_counts = torch.zeros((2, texts), dtype=torch.int64, device=device)

    def add(self, scores: torch.Tensor, rows: slice, columns: slice) -> None:
        """Mask what is right and count the rest."""
        self._mask_positives(scores, rows, columns)
        image_low, image_high, text_low, text_high = self.bounds
        self.image_counts[0, rows] += (scores >= image_low[rows, None]).sum(1)
        self.image_counts[1, rows] += (scores > image_high[rows, None]).sum(1)
        self.text_counts[0, columns] += (scores >= text_low[columns]).sum(0)
        self.text_counts[1, columns] += (scores > text_high[columns]).sum(0)

    def _mask_positives(self, scores: torch.Tensor, rows: slice, columns: slice) -> None:
        # The right texts of neighbouring images are neighbours too, so only a band is looked at.
        start = max(int(self.targets.first[rows.start]), columns.start)
        stop = min(int(self.targets.last[rows.stop - 1]), columns.stop)
        if start < stop:
            text = torch.arange(start, stop, device=scores.device)
            right = (text >= self.first[rows, None]) & (text < self.last[rows, None])
            band = scores[:, start - columns.start : stop - columns.start]
            band.masked_fill_(right, -torch.inf)

    def finish(self) -> None:
        """Hand the counts over to the targets."""
        self.targets.image_num_ge, self.targets.image_num_gt = on_host(self.image_counts)
        self.targets.text_num_ge, self.targets.text_num_gt = on_host(self.text_counts)
