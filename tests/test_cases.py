"""Small inputs on which others have failed, taken the whole way through the command line."""

import json
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import ImageTextEncoder
from paragrain.evaluation import evaluate

Cli = Callable[..., Any]
ODD = "line\u2028separator, next\u0085line, 🙂👩‍👩‍👧, שלום עולם\u200f, <b onclick=alert(1)>tag</b>"


def put_image(path: Path, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).resize((80, 60)).save(path)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Five images in JSON lines: numbers and strings for ids, leading zeros, odd names, odd text"""
    ids = [7, "007", "0007", "1e3", "50% off #1"]
    rows = []
    for number, id in enumerate(ids):
        name = f"{id} {number}.jpg"
        put_image(tmp_path / "images" / name, number)
        rows.append({"example": id, "image": name, "description": f"{ODD} no. {number}"})
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "texts.jsonl").write_bytes("".join(line + "\n" for line in lines).encode())
    return tmp_path


IDS = ["7", "007", "0007", "1e3", "50% off #1"]


def test_ids_and_texts_come_through_everything_as_they_are(
    paragrain: Cli, listed: Path, random_blip: Path
) -> None:
    out = listed / "c"
    done = paragrain(
        "import", "jsonl", listed / "texts.jsonl", out, "--images", listed / "images",
        "--id-key", "example", "--json",
    )  # fmt: skip
    assert (done.code, done.json["splits"]) == (0, {"train": 5})
    records = list(Collection.open(out).records())
    assert [record.id for record in records] == IDS
    texts = [(record.description or "").encode() for record in records]
    assert texts == [f"{ODD} no. {n}".encode() for n in range(5)]

    model = ("--model", random_blip, "--json")
    assert paragrain("embed", out, *model).code == 0
    found = paragrain("search", out, "a star", "-k", 5, *model)
    assert sorted(hit["id"] for hit in found.json["hits"]) == sorted(IDS)
    scores = paragrain(
        "evaluate", out, "--split", "train", "--texts", "description", "--max-length", 64, *model
    )
    assert scores.code == 0
    # Ids that are equal as numbers are five images, not three.
    counts = scores.json["scores"]["counts"]
    assert (counts["images"], counts["texts"]) == (5, 5)

    twin = Path(shutil.copytree(out, listed / "twin"))
    told = paragrain("audit", out, twin, "--out", listed / "audit", "--json")
    assert {(f["train"], f["evaluation"]) for f in told.json["findings"]} >= {(i, i) for i in IDS}
    same = {(f["train"], f["evaluation"]) for f in told.json["findings"] if f["reason"] == "id"}
    assert same == {(id, id) for id in IDS}
    assert "<b onclick" not in (listed / "audit" / "audit.html").read_text("utf-8")


@pytest.mark.filterwarnings("ignore:.*fork")
def test_five_images_over_two_processes_are_counted_once_each(
    listed: Path, paragrain: Cli, encoder: ImageTextEncoder
) -> None:
    out = listed / "c"
    paragrain("import", "jsonl", listed / "texts.jsonl", out, "--images", listed / "images",
              "--id-key", "example")  # fmt: skip
    alone = Path(shutil.copytree(out, listed / "alone"))
    encoder.vision_fingerprint  # noqa: B018  (known to the processes too)
    context = multiprocessing.get_context("fork")
    begin, results = context.Barrier(2), context.SimpleQueue()

    def work() -> None:
        torch.set_num_threads(1)  # what OpenMP had begun did not come along
        begin.wait(60)
        options: dict[str, Any] = {"split": "train", "texts": "description", "progress": False}
        results.put(evaluate(Collection.open(out), encoder, **options).scores.as_dict())

    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    both = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    once = evaluate(
        Collection.open(alone), encoder, split="train", texts="description", progress=False
    )
    assert both == [once.scores.as_dict()] * 2
    assert (both[0]["counts"]["images"], both[0]["counts"]["texts"]) == (5, 5)
    done = embed(Collection.open(out), encoder, progress=False)
    assert (done.computed, done.reused, done.ids) == (0, 5, IDS)
    assert len(np.load(done.cache / "pooled.npy")) == 5


def test_a_page_is_never_run_whatever_a_name_says(
    paragrain: Cli, tmp_path: Path, random_blip: Path
) -> None:
    """The name of the folder is the collection's, and stands in each page."""
    evil = "<img src=x onerror=alert(1)>"
    for number, name in enumerate(["50% off #1.jpg", "a'b (c).jpg", f"{evil}.jpg"]):
        put_image(tmp_path / evil / name, number)
        (tmp_path / evil / name).with_suffix(".txt").write_text(f"{evil} number {number}")
    assert paragrain("import", "folder", tmp_path / evil, tmp_path / evil / "c").code == 0
    done = paragrain("audit", tmp_path / evil / "c", tmp_path / evil / "c", "--out", tmp_path / "a")
    assert done.code == 0
    page = (tmp_path / "a" / "audit.html").read_text("utf-8")
    assert "<img src=x" not in page
