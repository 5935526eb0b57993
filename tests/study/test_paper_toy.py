"""The study `paper` with tiny models and miniatures of its data sets, from import to report."""

import io
import json
import runpy
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from paragrain.collection import Collection
from paragrain.files import read_json
from paragrain.sources import (
    import_cc3m,
    import_coco,
    import_docci,
    import_karpathy,
    import_sharegpt4v,
)
from paragrain.study.plan import Study, load_study, study_text
from paragrain.study.report import write_report
from paragrain.study.runner import run_study
from paragrain.study.scores import Column, read_scores

PAPER = "paper"
WORDS = "a the of on with red blue green square circle star left right above below".split()


def words(rng: np.random.Generator, count: int) -> str:
    return " ".join(rng.choice(WORDS, count)) + "."


def picture(rng: np.random.Generator) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def put_picture(path: Path, rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(rng))


def make_cc3m(folder: Path, rng: np.random.Generator, count: int = 32) -> None:
    """The table, img2dataset's tar, and a table of the generated texts."""
    source = folder / "cc3m-source"
    source.mkdir()
    urls = [f"https://example.org/{n}.jpg" for n in range(count)]
    lines = [f"{words(rng, 6)}\t{url}\n" for url in urls]
    (source / "train.tsv").write_text("".join(lines), "utf-8")
    with tarfile.open(source / "00000.tar", "w") as tar:
        for n, url in enumerate(urls):
            info = json.dumps({"url": url, "key": f"{n:09d}", "status": "success"}).encode()
            for suffix, data in (("png", picture(rng)), ("txt", b"alt"), ("json", info)):
                member = tarfile.TarInfo(f"{n:09d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    rows = [
        {
            "id": f"{n:09d}",
            "paragraph": " ".join(words(rng, 12) for _ in range(4)),
            "generated": [words(rng, 7 + k) for k in range(5)],
            "negatives": [words(rng, 7 + k) for k in range(5)],
        }
        for n in range(count)
    ]
    texts = source / "texts.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    report = import_cc3m(
        source / "train.tsv", folder / "cc3m", images=source, texts=texts, progress=False
    )
    assert (report.written, report.skipped) == (count, [])


def make_flickr30k(folder: Path, rng: np.random.Generator) -> None:
    images = []
    for n in range(12):
        name, split = f"{1000 + n}.jpg", ("train", "val", "test")[n % 3]
        put_picture(folder / "flickr30k-images" / name, rng)
        sentences = [{"raw": words(rng, 8 + k), "tokens": [], "sentid": k} for k in range(5)]
        images.append({"filename": name, "split": split, "sentences": sentences, "imgid": n})
    table = folder / "dataset_flickr30k.json"
    table.write_text(json.dumps({"dataset": "flickr30k", "images": images}))
    report = import_karpathy(
        table, folder / "flickr30k-images", folder / "flickr30k", progress=False
    )
    assert report.splits == {"train": 4, "val": 4, "test": 4}


def make_coco_karpathy(folder: Path, rng: np.random.Generator) -> None:
    images = []
    for n in range(12):
        filepath = ("train2014", "val2014")[n % 4 > 0]
        name, split = f"COCO_{filepath}_{n:012d}.jpg", ("train", "restval", "val", "test")[n % 4]
        put_picture(folder / "coco-images" / filepath / name, rng)
        sentences = [{"raw": words(rng, 8 + k), "tokens": [], "sentid": k} for k in range(5)]
        images.append({"filepath": filepath, "filename": name, "split": split, "cocoid": n,
                       "sentences": sentences})  # fmt: skip
    table = folder / "dataset_coco.json"
    table.write_text(json.dumps({"dataset": "coco", "images": images}))
    report = import_karpathy(
        table, folder / "coco-images", folder / "coco-karpathy", progress=False
    )
    assert report.splits == {"train": 6, "val": 3, "test": 3}


def make_coco(folder: Path, rng: np.random.Generator) -> None:
    names = [f"{n:012d}.jpg" for n in range(1, 13)]
    for name in names:
        put_picture(folder / "train2017" / name, rng)
    images = [{"id": n, "file_name": name} for n, name in enumerate(names, 1)]
    captions = [
        {"id": 10 * n + k, "image_id": n, "caption": words(rng, 8 + k)}
        for n in range(1, 13)
        for k in range(5)
    ]
    table = folder / "captions_train2017.json"
    table.write_text(json.dumps({"images": images, "annotations": captions}))
    report = import_coco(
        folder / "train2017", table, folder / "coco", split="train", progress=False
    )
    assert (report.written, report.skipped) == (12, [])


def make_sharegpt4v(folder: Path, rng: np.random.Generator) -> None:
    names = [f"coco/train2017/{n:012d}.jpg" for n in range(8)]
    names += [f"llava/llava_pretrain/images/00453/{n:09d}.jpg" for n in range(6)]
    names.append("sam/images/sa_1.jpg")
    entries = []
    for name in names:
        put_picture(folder / "data" / name, rng)
        said = " ".join(words(rng, 12) for _ in range(9))
        turns = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": said}]
        entries.append({"id": name, "image": name, "conversations": turns})
    (folder / "sharegpt4v.json").write_text(json.dumps(entries))
    report = import_sharegpt4v(
        folder / "sharegpt4v.json", [folder / "data"], folder / "sharegpt4v", progress=False
    )
    assert (report.written, report.skipped) == (15, [])


def make_docci(folder: Path, rng: np.random.Generator) -> None:
    rows = []
    for n in range(24):
        split = ("train", "test", "qual_dev", "qual_test")[n % 4]
        name = f"{split}_{n:05d}"
        put_picture(folder / "images" / f"{name}.jpg", rng)
        said = " ".join(words(rng, 12) for _ in range(11))
        rows.append({"example_id": name, "split": split, "image_file": f"{name}.jpg",
                     "description": said})  # fmt: skip
    table = folder / "docci_descriptions.jsonlines"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = import_docci(table, folder / "images", folder / "docci", progress=False)
    assert (report.written, report.skipped) == (24, [])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections, each brought in by its own importer."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    make_cc3m(folder, rng)
    make_flickr30k(folder, rng)
    make_coco(folder, rng)
    make_coco_karpathy(folder, rng)
    make_sharegpt4v(folder, rng)
    make_docci(folder, rng)
    return folder


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Long-CLIP in the file format of its authors, tokenizer files beside it."""
    import torch
    from transformers import CLIPModel

    encoders = Path(__file__).parents[1] / "encoders"
    folder = runpy.run_path(str(encoders / "conftest.py"))["make_clip"](
        tmp_path_factory.mktemp("models") / "long", positions=248
    )
    state = runpy.run_path(str(encoders / "test_longclip.py"))["longclip_state"]
    torch.save(state(CLIPModel.from_pretrained(folder)), folder / "longclip-B.pt")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    return folder / "longclip-B.pt"


def toy(data: Path, blip: Path, clip: Path, long_clip: Path, seeds: list[int]) -> dict[str, Any]:
    """The content of paper.yaml with tiny models, miniatures of the data, and two steps."""
    content = yaml.safe_load(study_text(PAPER))
    content["model"] = str(blip)
    models = {"CLIP-B-16": clip, "Long-CLIP-B": long_clip, "Long-CLIP-L": long_clip}
    for name, baseline in content["baselines"].items():
        baseline["model"] = str(models[name])
    for name, source in content["collections"].items():
        source["path"] = str(data / name)
    content["settings"] |= {"max_steps": 2, "batch_size": 8}
    content["seeds"] = seeds
    content["analyses"]["sample"] = 20
    return content


def cut(content: dict[str, Any], keep: set[str]) -> dict[str, Any]:
    """Only some recipes, baselines and cells, and what still makes sense with these."""

    def kept(names: list[str]) -> list[str]:
        return [name for name in names if name in keep]

    content["recipes"] = kept(content["recipes"])
    content["baselines"] = {n: b for n, b in content["baselines"].items() if n in keep}
    for curve in content["curves"].values():
        curve["cells"] = kept(curve["cells"])
    for group in content["groups"].values():
        group["cells"] = {n: c for n, c in group.get("cells", {}).items() if n in keep}
        group["with_cells"] = kept(group.get("with_cells", []))
        group["pairs"] = [pair for pair in group["pairs"] if set(pair) <= keep]
        group["x"] = {n: x for n, x in group.get("x", {}).items() if n in keep}
    content["groups"] = {n: g for n, g in content["groups"].items() if g["pairs"]}
    content["analyses"]["cells"] = kept(content["analyses"]["cells"])
    claims = []
    for claim in content["claims"]:
        above, rise, share = (claim.get(kind) for kind in ("above", "rise", "share"))
        if above and above["first"] in keep and kept(above["seconds"]):
            claims.append({**claim, "above": {**above, "seconds": kept(above["seconds"])}})
        elif rise and kept(rise["models"]):
            claims.append({**claim, "rise": {**rise, "models": kept(rise["models"])}})
        elif share and {share["base"], share["part"], share["whole"]} <= keep:
            claims.append(claim)
    content["claims"] = claims
    return content


def run_to_the_report(content: dict[str, Any], folder: Path) -> Study:
    path = folder / "paper.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    study = load_study(path)
    report = run_study(study, folder / "out", workers=1, device="cpu", progress=False)
    assert (report.failed, report.skipped) == ([], [])
    written = write_report(study, folder / "out", folder / "report", device="cpu", progress=False)
    assert written.missing == []
    assert len(written.claims) == len(content["claims"])
    assert "not measured" not in {word for claim, word in written.claims if "quarter" not in claim}
    for name in ("index.html", "report.md", "results.csv", "results.json"):
        assert (folder / "report" / name).stat().st_size > 1000
    return study


def check_measured(study: Study, out: Path) -> None:
    """Every benchmark, as the protocol of the paper takes it, of every model."""
    scores = read_scores(study, out)
    assert set(scores.recalls) == set(study.models)
    for name in study.models:
        assert len(scores.recalls[name]) == len(study.file.benchmarks) * 6
    lines = scores.curves["docci"]
    assert list(lines["BLIP"]["image_to_text"]) == [20, 40, 60, 80, 100, 128, 248, 512]
    assert list(lines["CLIP-B-16"]["image_to_text"]) == [20, 40, 60]
    assert list(lines["Long-CLIP-B"]["image_to_text"]) == [20, 40, 60, 80, 100, 128, 248]
    own = scores.recalls["BLIP"][Column("docci", "image_to_text")]
    assert lines["BLIP"]["image_to_text"][128].seeds == own.seeds
    files = [path for path in (out / "cells").rglob("*.json") if path.with_suffix(".npz").is_file()]
    said = {json.dumps(read_json(path)["protocol"]["name"]): read_json(path) for path in files}
    sizes = {name: one["protocol"]["sizes"]["found"] for name, one in said.items()}
    assert sizes == {
        '"flickr30k-full"': {"images": 12, "texts": 60},
        '"flickr30k-1k"': {"images": 4, "texts": 20},
        '"coco-train2017-full"': {"images": 12, "texts": 60},
        '"coco-5k"': {"images": 3, "texts": 15},
        '"sharegpt4v-80k"': {"images": 14, "texts": 14},  # no photograph of SAM
        '"sharegpt4v-80k-128"': {"images": 14, "texts": 14},
        '"docci-all"': {"images": 24, "texts": 24},
    }
    max_lengths = {
        (path.parent.name.split("-")[0], read_json(path)["protocol"]["name"]):
            read_json(path)["protocol"]["max_length"]
        for path in files
    }  # fmt: skip
    assert max_lengths["blip", "docci-all"] == 128
    assert max_lengths["blip", "coco-train2017-full"] == 77
    assert max_lengths["clip", "docci-all"] == 77
    assert max_lengths["long", "docci-all"] == 248
    assert max_lengths["long", "flickr30k-full"] == 77


KEEP = {"BLIP", "CLIP-B-16", "Long-CLIP-B", "c1", "c5", "c5-vision"}


def test_the_paper_at_toy_size_runs_to_its_report(
    data: Path, random_blip: Path, random_clip: Path, long_clip: Path, tmp_path: Path
) -> None:
    content = cut(toy(data, random_blip, random_clip, long_clip, [0]), KEEP)
    study = run_to_the_report(content, tmp_path)
    assert set(study.models) == KEEP
    check_measured(study, tmp_path / "out")
    assert {len(list((data / n / "embeddings").iterdir())) for n in ("coco", "docci")} == {3}


@pytest.mark.slow
def test_all_of_the_paper_at_toy_size(
    data: Path, random_blip: Path, random_clip: Path, long_clip: Path, tmp_path: Path
) -> None:
    study = run_to_the_report(toy(data, random_blip, random_clip, long_clip, [0, 1]), tmp_path)
    assert set(study.models) == set(load_study(PAPER).models)
    check_measured(study, tmp_path / "out")
    assert Collection.open(data / "cc3m").splits == {"train": 32}
