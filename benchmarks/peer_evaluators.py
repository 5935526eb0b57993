"""One evaluator on saved vectors, in whichever environment holds it: recall, seconds, memory.

    python benchmarks/peer_evaluators.py NAME FOLDER ...     # what peer_recall.py calls

A folder holds images.npy `[N, D]`, texts.npy `[M, D]` image by image, and owners.npy `[M]`, the
image row of each text. Prints a JSON list. Needs nothing but NumPy, torch and the evaluator.
"""

import argparse
import ast
import importlib.util
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

KS = (1, 5, 10)
WAYS = ("image_to_text", "text_to_image")
BATCH = 64  # of images, the default of CLIP_benchmark's command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--open-clip-metrics", type=Path)
    options = parser.parse_args()
    print(json.dumps(work(options.name, options.folders, options)))


def work(name: str, folders: list[Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Recall (a share of one, by K as a string) of saved cases, seconds, peak memory."""
    evaluate = evaluator(name, options)
    evaluate(np.eye(64, dtype=np.float32), np.eye(64, dtype=np.float32), np.arange(64))
    found = []
    for folder in folders:
        case = tuple(np.load(folder / f"{part}.npy") for part in ("images", "texts", "owners"))
        before = reset_peak_mb()
        started = time.perf_counter()
        said = evaluate(*case)
        seconds = time.perf_counter() - started
        found.append({**said, "seconds": seconds, "peak_mb": status_mb("VmHWM") - before})
    return found


def reset_peak_mb() -> float:
    """Forget the peak so far; returns the memory that is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_mb("VmRSS")


def status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def evaluator(name: str, options: argparse.Namespace) -> Callable[..., dict[str, Any]]:
    """A function of a case. Imports are here since each environment holds its own alone."""
    if name == "paragrain":
        from paragrain.runtime import tune

        tune()  # as the command line does
    import torch

    torch.set_num_threads(options.threads)
    if name == "paragrain":
        return ours
    if name == "CLIP_benchmark":
        return clip_benchmark
    if name == "sentence-transformers":
        return sentence_transformers
    return open_clip(options.open_clip_metrics)


def ours(images: np.ndarray, texts: np.ndarray, owners: np.ndarray) -> dict[str, Any]:
    from paragrain.retrieval import retrieval_scores

    scores = retrieval_scores(images, texts, owners, ks=KS).strict
    return {
        way: {str(k): value / 100 for k, value in getattr(scores, way).recall.items()}
        for way in WAYS
    }


def clip_benchmark(images: np.ndarray, texts: np.ndarray, owners: np.ndarray) -> dict[str, Any]:
    """Its `evaluate`, with vectors in place of images and row numbers in place of texts."""
    import torch
    from clip_benchmark.metrics import zeroshot_retrieval

    pictures, lines = torch.from_numpy(images), torch.from_numpy(texts)
    edges = np.searchsorted(owners, np.arange(len(images) + 1))
    own = [list(range(a, b)) for a, b in pairwise(edges)]
    spans = [slice(start, start + BATCH) for start in range(0, len(images), BATCH)]

    class Model:
        encode_image = staticmethod(lambda batch: batch)
        encode_text = staticmethod(lambda rows: lines[rows])

    zeroshot_retrieval.tqdm = lambda batches: batches
    found = zeroshot_retrieval.evaluate(
        Model, [(pictures[span], own[span]) for span in spans],
        lambda rows: torch.tensor(rows, dtype=torch.int64), "cpu", amp=False,
        recall_k_list=list(KS),
    )  # fmt: skip
    return {
        way: {str(k): found[f"{key}_retrieval_recall@{k}"] for k in KS}
        for way, key in zip(WAYS, ("text", "image"), strict=True)
    }


def sentence_transformers(
    images: np.ndarray, texts: np.ndarray, owners: np.ndarray
) -> dict[str, Any]:
    """Its evaluator in both directions, at its default chunk, asked for nothing beyond top 10."""
    import torch
    from sentence_transformers.util import cos_sim

    try:
        from sentence_transformers.sentence_transformer import evaluation
    except ImportError:  # before version 6
        from sentence_transformers import evaluation

    vectors = {"i": torch.from_numpy(images), "t": torch.from_numpy(texts)}

    class Model:
        @staticmethod
        def encode_query(names: list[str], **_: Any) -> torch.Tensor:
            return vectors[names[0][0]][torch.tensor([int(name[1:]) for name in names])]

        encode_document = encode_query

    names = {side: [f"{side}{row}" for row in range(len(own))] for side, own in vectors.items()}
    texts_of: dict[str, set[str]] = {}
    for row, owner in enumerate(owners.tolist()):
        texts_of.setdefault(f"i{owner}", set()).add(f"t{row}")
    image_of = {f"t{row}": {f"i{owner}"} for row, owner in enumerate(owners.tolist())}
    result: dict[str, Any] = {"share": {}}
    for way, (queries, gallery), right in zip(
        WAYS, (("i", "t"), ("t", "i")), (texts_of, image_of), strict=True
    ):
        asked = evaluation.InformationRetrievalEvaluator(
            {name: name for name in names[queries]},
            {name: name for name in names[gallery]},
            right,
            accuracy_at_k=list(KS),
            precision_recall_at_k=list(KS),
            mrr_at_k=[max(KS)],
            ndcg_at_k=[max(KS)],
            map_at_k=[max(KS)],
            score_functions={"cosine": cos_sim},
        )
        found = asked.compute_all_metrics(Model)["cosine"]
        result[way] = {str(k): float(found["accuracy@k"][k]) for k in KS}
        if way == WAYS[0]:
            result["share"][way] = {str(k): float(found["recall@k"][k]) for k in KS}
    return result


def open_clip(metrics: Path | None) -> Callable[..., dict[str, Any]]:
    """`get_clip_metrics` of the installed package, or out of the given file."""
    import torch

    if metrics is None:
        spec = importlib.util.find_spec("open_clip_train")
        assert spec
        assert spec.submodule_search_locations
        file = Path(spec.submodule_search_locations[0]) / "train.py"
        wanted: list[ast.stmt] = [
            node
            for node in ast.parse(file.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name == "get_clip_metrics"
        ]
        space: dict[str, Any] = {"torch": torch, "np": np}
        exec(compile(ast.Module(wanted, []), str(file), "exec"), space)
    else:
        space = {}
        exec(compile(metrics.read_text("utf-8"), str(metrics), "exec"), space)

    def evaluate(images: np.ndarray, texts: np.ndarray, owners: np.ndarray) -> dict[str, Any]:
        found = space["get_clip_metrics"](torch.from_numpy(images), torch.from_numpy(texts), 1.0)
        return {way: {str(k): float(found[f"{way}_R@{k}"]) for k in KS} for way in WAYS}

    return evaluate


if __name__ == "__main__":
    main()
