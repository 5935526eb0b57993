"""Exact ranks side by side with other projects' evaluators: the same recall? what time and memory?

    python -m venv ../peers                    # apart: some of it does not import beside our torch
    ../peers/bin/pip install torch sentence-transformers tqdm
    ../peers/bin/pip install --no-deps clip_benchmark open_clip_torch
    python benchmarks/peer_recall.py --peers ../peers/bin/python --photos ../shared/photos

All rank the same vectors, saved as .npy: scenes (and COCO photographs) as blip0 sees them. Each
peer runs its own code from end to end; a stand-in for the model hands out the saved vectors
(`peer_evaluators.py`).

Where definitions agree, the number of hits of each peer is held to ours, and the script fails if it
is not equal. Where wrong items tie with the right one (to 1e-6), ours gives the share of hits that
random order would, and a peer's must lie between the hits if all ties are lost and if all are won.
The definitions:

- paragrain: an image is found if any of its texts is in the top K; an image without texts asks
  nothing; ties in fair shares; percent.
- CLIP_benchmark: `text_retrieval_recall@K` is image to text and `image_retrieval_recall@K` text to
  image, any of several texts, as ours; but an image without texts counts as not found, ties fall
  as `torch.topk` lets them, and a K above the size of the gallery is an error.
- sentence-transformers: `accuracy@k` is ours, queries without answers left out; its `recall@k` is
  the share of an image's texts found, so with five texts recall@1 is at most 20 %. Ties are broken
  by the ids' alphabet, if they are equal to the last bit.
- open_clip: one text for each image, row by row; ties as `torch.argsort` lets them. Its `train.py`
  imports torchvision, so `get_clip_metrics` alone is taken out of it. `--open-clip-metrics` adds
  the tiled one of its repository (`src/open_clip_train/metrics.py`), in which the lower row wins
  a tie.

Time and memory are those of one evaluator alone in a fresh process, after a small warm-up and with
the vectors loaded: medians over rounds, in turns; memory is the peak above that state, from
/proc (Linux alone).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peer_evaluators import KS, WAYS

WIDTH = 256
NOISE = 4.0  # of the made-up texts: recall@1 near a half among thousands
ROUNDING = 1e-6  # of a count of hits, relative: one peer gives recall as a float32 mean
TILED = "open_clip, tiled"
PEERS = ("CLIP_benchmark", "sentence-transformers", "open_clip")

Case = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Images `[N, D]`, texts `[M, D]` image by image, and the image row of each text `[M]`."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=Path, help="interpreter of the peers' environment")
    parser.add_argument("--open-clip-metrics", type=Path, help="metrics.py of open_clip")
    parser.add_argument("--scenes", type=int, default=4000, help="of the world's training split")
    parser.add_argument("--photos", type=Path, help="folder with captions.json and images/")
    parser.add_argument("--sizes", nargs="*", default=["1000x1", "5000x5", "10000x1"],
                        help="images x texts of each, for time and memory")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    tiled = [TILED] if options.open_clip_metrics else []
    names = [] if options.peers is None else [*PEERS, *tiled]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for recall in recall_tables(dict(collections(options, place)), names, place, options):
            print(f"\n{recall}", flush=True)
        for size in options.sizes:
            images, each = map(int, size.split("x"))
            case = made_up(images, each)
            print(f"\n{cost_table(size, case, names, place / 'size', options)}", flush=True)


# --- What is ranked ---------------------------------------------------------------------------


def collections(options: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Case]]:
    """Embedded collections, and what becomes of them when vectors are equal or texts absent."""
    from paragrain.collection import Collection
    from paragrain.encoders import encode_tokens, load_encoder
    from paragrain.evaluation.benchmark import Benchmark
    from paragrain.sources import import_coco, import_scenes

    encoder = load_encoder("blip0", "cpu")

    def embedded(folder: Path, texts: str, split: str | None, one_to_one: bool = False) -> Case:
        own = Benchmark.load(Collection.open(folder), encoder, texts, split=split, progress=False,
                             one_to_one=one_to_one)  # fmt: skip
        vectors = encode_tokens(encoder, own.tokenize(encoder, 128))
        return own.images, vectors, own.text_image

    import_scenes(scratch / "scenes", size=options.scenes, seed=0, progress=False)
    captions = embedded(scratch / "scenes", "captions", "test")
    paragraphs = embedded(scratch / "scenes", "paragraph", "test")
    yield "scenes, captions", captions
    yield "scenes, paragraphs", paragraphs
    if options.photos:
        import_coco(options.photos / "images", options.photos / "captions.json",
                    scratch / "photos", progress=False)  # fmt: skip
        yield "photographs, captions", embedded(scratch / "photos", "captions", None)
        first = embedded(scratch / "photos", "captions", None, one_to_one=True)
        yield "photographs, first caption", first
    yield "scenes, captions, every tenth image without", without_some_texts(captions)
    yield "scenes, captions, a copy of each image behind", with_copies(captions, before=False)
    yield "scenes, captions, a copy of each image before", with_copies(captions, before=True)
    yield "scenes, paragraphs, a collapsed model", collapsed(len(paragraphs[0]))


def without_some_texts(case: Case) -> Case:
    images, texts, owners = case
    kept = owners % 10 != 0
    return images, texts[kept], owners[kept]


def with_copies(case: Case, *, before: bool) -> Case:
    """The same images once more, without texts, as if they were others."""
    images, texts, owners = case
    return np.concatenate([images, images]), texts, owners + (len(images) if before else 0)


def collapsed(count: int) -> Case:
    """All vectors equal."""
    one = np.repeat(unit(np.random.default_rng(0).standard_normal((1, WIDTH))), count, axis=0)
    return one, one, np.arange(count)


def made_up(images: int, each: int) -> Case:
    """Random unit vectors, and texts that lie near their images'."""
    random = np.random.default_rng(images)
    pictures = unit(random.standard_normal((images, WIDTH)))
    owners = np.repeat(np.arange(images), each)
    noise = random.standard_normal((len(owners), WIDTH)) * (NOISE / WIDTH**0.5)
    return pictures, unit(pictures[owners] + noise), owners


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def save(case: Case, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, part in zip(("images", "texts", "owners"), case, strict=True):
        np.save(folder / f"{name}.npy", part)


def fits(name: str, case: Case) -> bool:
    """Whether the evaluator takes such data: open_clip's wants one text for each image."""
    images, _, owners = case
    return not name.startswith("open_clip") or np.array_equal(owners, np.arange(len(images)))


# --- The tables -------------------------------------------------------------------------------


def recall_tables(
    cases: dict[str, Case], names: list[str], place: Path, options: argparse.Namespace
) -> Iterator[str]:
    """Recall of every case, each peer in one process for all that it takes."""
    folders = {title: place / f"case-{number}" for number, title in enumerate(cases)}
    for title, case in cases.items():
        save(case, folders[title])
    said: dict[str, dict[str, dict[str, Any]]] = {title: {} for title in cases}
    for name in names:
        own = [title for title, case in cases.items() if fits(name, case)]
        found = ask(name, [folders[title] for title in own], options)
        for title, one in zip(own, found, strict=True):
            said[title][name] = one
    for title, case in cases.items():
        yield recall_table(title, case, said[title])


def recall_table(title: str, case: Case, peers: dict[str, dict[str, Any]]) -> str:
    """Recall of all to the last digit.

    Raises:
        SystemExit: a peer's hits are not ours where they have to be.
    """
    from paragrain.retrieval import exact_ranks, hit_probability

    images, texts, owners = case
    ranks = exact_ranks(images, texts, owners).strict
    head = [f"{title}: {len(images):,} x {len(texts):,}", "queries", "hits", "ours, %"]
    rows = []
    for way in WAYS:
        own = getattr(ranks, way)
        for k in KS:
            sure, at_best = int((own.worst <= k).sum()), int((own.num_gt < k).sum())
            hits = f"{sure:,}" if sure == at_best else f"{sure:,} to {at_best:,}"
            row = [f"{way.replace('_', ' ')}, R@{k}", f"{len(own):,}", hits]
            row.append(f"{100 * hit_probability(own, k).mean():.6f}")
            for name, said in peers.items():
                asked = len(images) if counts_all(name) and way == WAYS[0] else len(own)
                row.append(f"{100 * said[way][str(k)]:.6f}")
                check(f"{title}: {name}, {row[0]}", said[way][str(k)] * asked, sure, at_best)
                if way in said.get("share", {}):
                    row[-1] += f" (recall@k {100 * said['share'][way][str(k)]:.2f})"
            rows.append(row)
    return table([*head, *peers], rows)


def counts_all(name: str) -> bool:
    """Whether images without texts are asked, and so are failures."""
    return name == "CLIP_benchmark"


def check(what: str, hits: float, sure: int, at_best: int) -> None:
    whole = round(hits)
    if abs(hits - whole) > ROUNDING * max(at_best, 1) or not sure <= whole <= at_best:
        sys.exit(f"{what}: {hits} hits, but ours are {sure} to {at_best}")


def cost_table(
    size: str, case: Case, names: list[str], folder: Path, options: argparse.Namespace
) -> str:
    """Seconds and memory of each, in turns; recall is compared too."""
    save(case, folder)
    everyone = ["paragrain", *(name for name in names if fits(name, case))]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in everyone}
    for number in range(1, options.rounds + 1):
        for name in everyone:
            runs[name] += ask(name, [folder], options)
            seconds = runs[name][-1]["seconds"]
            print(f"{size}, round {number}: {name} took {seconds:.2f} s", file=sys.stderr)
    said = {name: own[0] for name, own in runs.items() if name != "paragrain"}
    recall = recall_table(size, case, said)
    rows = []
    for name, own in runs.items():
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(own, runs["paragrain"], strict=True)]
        seconds = statistics.median(run["seconds"] for run in own)
        memory = statistics.median(run["peak_mb"] for run in own)
        rows.append([name, f"{seconds:.2f}", f"{statistics.median(ratios):.1f}", f"{memory:,.0f}"])
    return f"{recall}\n\n{table([size, 'seconds', 'x ours', 'peak above vectors, MB'], rows)}"


def table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


# --- One evaluator in a process of its own ----------------------------------------------------


def ask(name: str, folders: list[Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one evaluator in a fresh process of its own environment."""
    python = sys.executable if name == "paragrain" else options.peers
    script = Path(__file__).with_name("peer_evaluators.py")
    command = [python, script, name, *folders, "--threads", str(options.threads)]
    threads = ("OMP", "OPENBLAS", "MKL", "NUMBA")
    environment = {
        **os.environ,
        **{f"{library}_NUM_THREADS": str(options.threads) for library in threads},
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
    }
    if name == TILED:
        command += ["--open-clip-metrics", options.open_clip_metrics]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{name} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
