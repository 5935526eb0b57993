"""Speed of exact ranks against the bare product of the same size, naive torch tiles, and faiss.

    python benchmarks/ranks.py --images 8192 --texts 40960 --width 256 --threads 2

Every contender runs once in each round, in turn, so that a busy machine slows all of them alike.
The table shows medians over the rounds, of the seconds and of the ratio to the bare product.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--texts", type=int, default=40960)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--groups", action="store_true", help="put all images in groups of two")
    return parser.parse_args()


def contenders(options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Everything to be timed; imports are here because they read the number of threads."""
    import numpy as np
    import torch

    from paragrain.retrieval import exact_ranks
    from paragrain.retrieval.tiles import HOST_TILE, spans

    torch.set_num_threads(options.threads)
    random = np.random.default_rng(0)

    def unit(rows: int) -> np.ndarray:
        vectors = random.standard_normal((rows, options.width), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    images, texts = unit(options.images), unit(options.texts)
    text_image = np.arange(options.texts) * options.images // options.texts
    groups = np.arange(options.images) // 2 if options.groups else None
    height, width = min(HOST_TILE[0], len(images)), min(HOST_TILE[1], len(texts))
    image_tensor, text_tensor = torch.from_numpy(images), torch.from_numpy(texts)

    def walk():
        for rows in spans(len(images), height):
            for columns in spans(len(texts), width):
                yield rows, columns, rows.stop - rows.start, columns.stop - columns.start

    def bare_numpy() -> None:
        buffer = np.empty(height * width, np.float32)
        for rows, columns, r, c in walk():
            scores = buffer[: r * c].reshape(r, c)
            np.matmul(images[rows], texts[columns].T, out=scores)

    def bare_torch() -> None:
        buffer = torch.empty(height * width)
        for rows, columns, r, c in walk():
            torch.mm(image_tensor[rows], text_tensor[columns].T, out=buffer[: r * c].view(r, c))

    def ours() -> object:
        return exact_ranks(images, texts, text_image, groups=groups)

    def naive_torch() -> object:
        """Count what beats the best own score, with torch's own operations on each tile."""
        owner = torch.from_numpy(text_image)
        text_best = (image_tensor[owner] * text_tensor).sum(1)
        image_best = torch.full((len(images),), -torch.inf)
        image_best = image_best.scatter_reduce(0, owner, text_best, "amax")
        image_greater = torch.zeros(len(images), dtype=torch.int64)
        text_greater = torch.zeros(len(texts), dtype=torch.int64)
        for rows, columns, _, _ in walk():
            scores = image_tensor[rows] @ text_tensor[columns].T
            image_greater[rows] += (scores > image_best[rows, None] + 1e-6).sum(1)
            text_greater[columns] += (scores > text_best[columns] + 1e-6).sum(0)
        return image_greater, text_greater

    found: dict[str, Callable[[], object]] = {
        "bare product, NumPy": bare_numpy,
        "bare product, torch": bare_torch,
        "paragrain, both directions": ours,
        "torch tiles, both directions": naive_torch,
    }
    try:
        import faiss
    except ImportError:
        print("faiss is not installed, so it is left out.")
        return found
    faiss.omp_set_num_threads(options.threads)

    def flat_index() -> object:
        """Top 10 of both directions; finds no rank beyond 10."""
        results = []
        for queries, gallery in ((images, texts), (texts, images)):
            index = faiss.IndexFlatIP(options.width)
            index.add(gallery)
            results.append(index.search(queries, min(10, len(gallery))))
        return results

    found["faiss IndexFlatIP, both directions, top 10"] = flat_index
    return found


def main() -> None:
    options = arguments()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    timed = contenders(options)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for round_number in range(options.rounds + 1):
        for name, run in timed.items():
            start = time.perf_counter()
            run()
            if round_number:  # the first round compiles and warms up
                times[name].append(time.perf_counter() - start)
    # The faster of the two bare products is the machine's own limit.
    bare = min(list(times)[:2], key=lambda name: statistics.median(times[name]))
    print(
        f"{options.images:,} images x {options.texts:,} texts x {options.width}, "
        f"{options.threads} threads, {options.rounds} rounds"
    )
    print(f"{'':44}{'seconds':>9}{'fastest':>9}{'x bare':>8}")
    for name, seconds in times.items():
        ratio = statistics.median(a / b for a, b in zip(seconds, times[bare], strict=True))
        print(f"{name:44}{statistics.median(seconds):9.2f}{min(seconds):9.2f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
