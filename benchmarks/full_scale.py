"""Exact ranks at the full size of COCO train2017, in one go: time, memory, resume.

    python benchmarks/full_scale.py                          # 118,287 x 591,753 x 256, minutes
    python benchmarks/full_scale.py --images 20000 --texts 100000

Random unit vectors stand for the embeddings. The bare tiled product of the same shapes is measured
in the same process, on a share of the images before and after, as the measure of what the machine
can do. Peak memory is that of the whole process above what the vectors themselves take. A run that
is stopped goes on with `--resume FILE`.
"""

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=118_287)
    parser.add_argument("--texts", type=int, default=591_753)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--share", type=float, default=0.1, help="of the product, each time")
    parser.add_argument("--resume", type=Path, help="file that keeps the counts on the way")
    return parser.parse_args()


def unit(rows: int, width: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
    for start in range(0, rows, 10_000):  # in place: a second copy would be the peak
        part = vectors[start : start + 10_000]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = arguments()
    from paragrain.runtime import tune

    tune()
    import torch
    from rich.console import Console
    from rich.table import Table

    from paragrain.retrieval import exact_ranks
    from paragrain.retrieval.recall import scores_from_ranks
    from paragrain.retrieval.tiles import HOST_TILE, spans

    torch.set_num_threads(options.threads)
    images, texts = unit(options.images, options.width, 0), unit(options.texts, options.width, 1)
    owners = np.sort(np.arange(options.texts) % options.images)
    small = exact_ranks(images[:512], texts[:2048], np.arange(2048) // 4)  # compiles the kernel
    del small
    before = peak_mb()

    def product(share: float) -> float:
        """Seconds of the bare product of all images and texts, from a share of the images."""
        rows = max(HOST_TILE[0], int(options.images * share))
        buffer = np.empty(HOST_TILE[0] * HOST_TILE[1], np.float32)
        started = time.perf_counter()
        for row in spans(min(rows, options.images), HOST_TILE[0]):
            for column in spans(options.texts, HOST_TILE[1]):
                shape = (row.stop - row.start, column.stop - column.start)
                out = buffer[: shape[0] * shape[1]].reshape(shape)
                np.matmul(images[row], texts[column].T, out=out)
        return (time.perf_counter() - started) * options.images / min(rows, options.images)

    first = product(options.share)
    started = time.perf_counter()
    ranks = exact_ranks(images, texts, owners, resume=options.resume, progress=True)
    ours = time.perf_counter() - started
    peak = peak_mb()
    bare = (first + product(options.share)) / 2
    scores = scores_from_ranks(ranks).strict

    vectors = (images.nbytes + texts.nbytes) / 2**20
    table = Table("", "", title=f"{options.images:,} images x {options.texts:,} texts")
    table.add_row("exact ranks, both directions", f"{ours:,.1f} s")
    table.add_row("the bare tiled product", f"{bare:,.1f} s")
    table.add_row("ratio", f"{ours / bare:.2f}")
    table.add_row("vectors", f"{vectors:,.0f} MB")
    table.add_row("peak above the state before", f"{peak - before:,.0f} MB")
    table.add_row("R@10 image to text (random)", f"{scores.image_to_text.recall[10]:.4f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
