"""A planted leak, all the way: the score that it buys shows in the shared images alone."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from paragrain.auditing import audit_of, marks
from paragrain.collection import Collection, ImageRef, Record
from paragrain.encoders import load_encoder
from paragrain.evaluation import Result, evaluate, with_parts
from paragrain.sources.scenes.language import alt_text
from paragrain.sources.scenes.render import png
from paragrain.sources.scenes.world import scenes_of
from paragrain.training import train

IMAGES, TRAINED = 160, 48
SHARED = IMAGES // 10
OVERFIT = {
    "recipe": "c1", "learning_rate": 2e-3, "max_steps": 16, "epochs": 999, "batch_size": 32,
    "warmup_steps": 5, "grad_cache_threshold": 65536, "seed": 0,
}  # fmt: skip


def told(split: str, count: int, seen: set[str]) -> list[tuple[bytes, str]]:
    """Pictures with alternative texts that say little, none of them in `seen`."""
    rng, pairs = random.Random(split), []
    for _, scene in scenes_of(split, count, 5, family=1):
        text = alt_text(scene, rng)
        while text in seen:
            text = f"{alt_text(scene, rng)}, {rng.randint(2, 99)}"
        seen.add(text)
        pairs.append((png(scene), text))
    return pairs


def recall(result: Result, part: str) -> float:
    """Mean R@1 of both directions."""
    scores = result.about["audited"]["parts"][part]["scores"]["strict"]
    return float(np.mean([scores[way]["R@1"] for way in ("image_to_text", "text_to_image")]))


def test_a_leak_lifts_the_score_of_the_overlapping_part_only(
    collect: Callable[[Path, list[Record]], Collection],
    worsened: Callable[[bytes, random.Random], bytes],
    tmp_path: Path,
) -> None:
    """A tenth of the images copied, re-encoded, resized, renamed, their texts copied."""
    torch.set_num_threads(1)
    rng = random.Random(0)
    seen: set[str] = set()
    own = told("test", IMAGES, seen)
    chosen = rng.sample(range(IMAGES), SHARED)
    data = collect(
        tmp_path / "eval",
        [Record(f"e{n}", ImageRef(i), captions=[t]) for n, (i, t) in enumerate(own)],
    )
    clean = [
        Record(f"t{n}", ImageRef(i), captions=[t], split="train")
        for n, (i, t) in enumerate(told("train", TRAINED + SHARED, seen))
    ]
    copies = [
        Record(f"c{n}", ImageRef(worsened(own[n][0], rng)), captions=[own[n][1]], split="train")
        for n in chosen
    ]
    sets = {"clean": clean, "leaked": [*clean[:TRAINED], *copies]}
    encoder = load_encoder("blip0", "cpu")
    results = {}
    for name, records in sets.items():
        collection = collect(tmp_path / name, records)
        run = train(collection, encoder, out=tmp_path / "runs" / name, progress=False, **OVERFIT)
        results[name] = evaluate(data, run.encoder, texts="captions", max_length=77, progress=False)
    report = audit_of(tmp_path / "leaked", data, progress=False)
    marked = marks(report)
    assert marked["near"] | marked["text"] | marked["pixels"] == {f"e{n}" for n in chosen}
    clean_, leaked = (with_parts(results[name], marked, report.train) for name in sets)
    assert leaked.about["audited"]["parts"]["overlapping"]["images"] == SHARED
    gains = {p: recall(leaked, p) - recall(clean_, p) for p in ("all", "overlapping", "disjoint")}
    print(gains)
    assert gains["overlapping"] > 25
    assert abs(gains["disjoint"]) < 7
    assert gains["all"] > 1
