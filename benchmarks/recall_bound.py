"""What bounds from a few leading dimensions save when ranking, and that they change no count.

    paragrain import scenes --size 100000 --seed 11 world
    python benchmarks/recall_bound.py --collection world --keep vectors     # hours, then minutes
    python benchmarks/recall_bound.py --random 20000

Vectors are those of the tiny BLIP that ships, on the split `train`; with `--keep` they lie as .npy
files in that folder, `images.npy`, `<field>.npy` and `<field>-owners.npy`, and are not made again;
with such files from another model, no collection is needed. Random unit vectors have no leading
dimensions, and show what trying costs. Every contender runs once in each round, in turn; times are
medians, of the wall clock and of the processor, which a busy machine distorts less.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from paragrain.retrieval import Ranks

LEADING = (8, 16, 24, 32, 48, 64, 96)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--collection", type=Path, help="to be embedded")
    parser.add_argument("--keep", type=Path, help="folder of the vectors, read if it has them")
    parser.add_argument("--field", default="paragraph", help="paragraph, captions or generated")
    parser.add_argument("--random", type=int, help="so many random images and texts instead")
    parser.add_argument("--limit", type=int, help="only the first so many images")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not (options.random or options.collection or options.keep):
        parser.error("name a --collection, a folder to --keep vectors in, or a number of --random")
    return options


def vectors(options: argparse.Namespace) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
    """Images, texts, and the row of the image of each text."""
    import numpy as np

    if options.random:
        sides = []
        for seed in (0, 1):
            side = np.random.default_rng(seed).standard_normal((options.random, 256), np.float32)
            sides.append(side / np.linalg.norm(side, axis=1, keepdims=True))
        return sides[0], sides[1], np.arange(options.random)
    names = ("images", options.field, f"{options.field}-owners")
    files = [options.keep / f"{name}.npy" for name in names] if options.keep else []
    if files and all(file.exists() for file in files):
        images, texts, owners = (np.load(file) for file in files)
        return images, texts, owners

    import paragrain as pg
    from paragrain.encoders.base import encode_tokens
    from paragrain.evaluation.benchmark import Benchmark

    encoder = pg.load_encoder("blip0")
    collection = pg.Collection.open(options.collection)
    benchmark = Benchmark.load(collection, encoder, options.field, split="train")
    tokens = benchmark.tokenize(encoder, min(128, encoder.max_tokens))
    found = (benchmark.images, encode_tokens(encoder, tokens, progress=True), benchmark.text_image)
    for file, array in zip(files, found, strict=bool(files)):
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, array)
    return found


def describe(images: "np.ndarray", texts: "np.ndarray", owners: "np.ndarray") -> None:
    """Effective dimension, and the share of pairs that bounds of each width rule out."""
    import numpy as np

    from paragrain.retrieval.bounded import Bound, principal_axes

    axes = principal_axes(images, texts)
    rows = np.linspace(0, len(images) - 1, min(len(images), 2000)).astype(int)
    both = np.concatenate([images[rows], texts[owners.searchsorted(rows)]]) @ axes
    energy = (both**2).mean(0)
    print(f"effective dimension {energy.sum() ** 2 / (energy**2).sum():.1f} of {len(energy)}")
    own = (images[owners] * texts).sum(1)
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, owners, own)
    image_low = np.where(np.isfinite(best), best, np.inf)[rows, None] - 1e-6
    columns = np.linspace(0, len(texts) - 1, min(len(texts), 8192)).astype(int)
    print(f"{'leading':>8}{'length² in them':>17}{'pairs ruled out':>17}")
    for d in (d for d in LEADING if d < len(axes)):
        bound = Bound.of(images[rows], texts[columns], axes[:, :d])
        upper = bound.images @ bound.texts.T + bound.slack
        out = (upper < image_low) & (upper < own[columns] - 1e-6)
        print(f"{d:8}{energy[:d].sum() / energy.sum():17.2%}{out.mean():17.3%}")


def differing(left: "Ranks", right: "Ranks") -> int:
    """How many counts of any query differ."""
    return sum(
        int((getattr(one, name) != getattr(other, name)).sum())
        for one, other in (
            (left.strict.image_to_text, right.strict.image_to_text),
            (left.strict.text_to_image, right.strict.text_to_image),
        )
        for name in ("greater", "tied", "own")
    )


def main() -> None:
    options = arguments()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    from paragrain.runtime import tune

    tune()
    import torch

    from paragrain.retrieval import exact_ranks, scores_from_ranks

    torch.set_num_threads(options.threads)
    images, texts, owners = vectors(options)
    if options.limit:
        images, kept = images[: options.limit], owners < options.limit
        texts, owners = texts[kept], owners[kept]
    print(f"{len(images):,} images x {len(texts):,} texts x {images.shape[1]}", flush=True)
    describe(images, texts, owners)

    contenders: dict[str, int | None] = {"every pair scored": 0, "bounds, by itself": None}
    for leading in (0, 4):  # compiles
        exact_ranks(images[:64], images[:64], range(64), leading=leading)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    reference = None
    for _ in range(options.rounds):
        for name, leading in contenders.items():
            wall, processor = time.perf_counter(), time.process_time()
            ranks = exact_ranks(images, texts, owners, leading=leading)
            times[name].append((time.perf_counter() - wall, time.process_time() - processor))
            reference = reference or ranks
            print(f"{name:20}{times[name][-1][0]:9.2f} s{times[name][-1][1]:9.2f} s processor, "
                  f"{differing(reference, ranks)} counts differ", flush=True)  # fmt: skip
    for clock, label in ((0, "wall clock"), (1, "processor")):
        full, bounds = ([run[clock] for run in times[name]] for name in contenders)
        ratio = statistics.median(a / b for a, b in zip(full, bounds, strict=True))
        print(f"bounds are {ratio:.2f} times faster by the {label}")
    assert reference is not None
    recall = scores_from_ranks(reference).strict.text_to_image.recall
    print("text to image:", ", ".join(f"R@{k} {value:.2f} %" for k, value in recall.items()))


if __name__ == "__main__":
    main()
