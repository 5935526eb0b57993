"""The lines of a checkpoint's card give our vectors, at our own length, in plain libraries."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from transformers import AutoProcessor

from paragrain.collection import Collection
from paragrain.encoders import (
    ImageTextEncoder,
    encode_images,
    encode_texts,
    load_encoder,
    stretch,
)
from paragrain.encoders.loading import MODELS
from paragrain.encoders.sentence import Dense
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import evaluate, sweep
from paragrain.searching import search
from paragrain.training import train

LONG = "a red star above the blue circle and left of the green square " * 30
TEXTS = ["a red star", LONG, "a </s> b [SEP] c <|endoftext|> d", "", " \n", "A RED Circle!"]


def card_blocks(folder: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)


def follow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> dict[str, np.ndarray]:
    """Run the lines of a card in its folder, with other texts and a picture of our own."""
    monkeypatch.chdir(folder)
    Image.effect_mandelbrot((70, 50), (-2, -1, 1, 1), 9).convert("RGB").save("photo.jpg")
    found = {}
    for block in card_blocks(folder):
        lines = [
            f"texts = {texts!r}" if line.startswith("texts = ") else line
            for line in block.splitlines()
        ]
        names: dict[str, object] = {}
        exec(compile("\n".join(lines), "card", "exec"), names)
        found |= {k: v.detach().numpy() for k, v in names.items() if k.endswith("_vectors")}
    return found


def make(kind: str, request: pytest.FixtureRequest) -> ImageTextEncoder:
    if kind == "longclip":
        return stretch(request.getfixturevalue("clip"), 120)
    if kind == "deep pair":
        import torch

        encoder = load_encoder(request.getfixturevalue("pair").name, "cpu")
        torch.manual_seed(3)
        encoder.model.text.dense.append(
            Dense(torch.nn.Linear(32, 32), "torch.nn.modules.activation.Tanh")
        )
        encoder.model.text.pooling = "cls"
        return encoder
    return request.getfixturevalue(kind)


@pytest.mark.parametrize("kind", ["blip", "clip", "longclip", "siglip", "pair", "deep pair"])
def test_the_lines_of_the_card_give_our_vectors(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    encoder = make(kind, request)
    encoder.save(folder)
    # Pieces of Unigram match "</s>" in plain libraries whatever they are told.
    texts = [text for text in TEXTS if kind != "siglip" or "</s>" not in text]
    found = follow(folder, monkeypatch, texts)
    ours = load_encoder(folder, "cpu")
    for one in (encoder, ours):
        np.testing.assert_allclose(
            found["text_vectors"], encode_texts(one, texts).vectors, atol=1e-5
        )
    if "pair" not in kind:
        image = encode_images(ours, folder / "photo.jpg")
        np.testing.assert_allclose(found["image_vectors"], image, atol=1e-5)


def test_the_lines_of_the_card_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(MODELS / "blip0", tmp_path / "blip0"))
    found = follow(folder, monkeypatch, TEXTS)
    ours = load_encoder("blip0", "cpu")
    np.testing.assert_allclose(found["text_vectors"], encode_texts(ours, TEXTS).vectors, atol=1e-5)
    image = encode_images(ours, folder / "photo.jpg")
    np.testing.assert_allclose(found["image_vectors"], image, atol=1e-5)
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"


def test_a_card_can_be_read_by_the_hub(
    pair: ImageTextEncoder, blip: ImageTextEncoder, tmp_path: Path
) -> None:
    for encoder, library in ((blip, "transformers"), (pair, "sentence-transformers")):
        encoder.save(tmp_path / library)
        card = ModelCard.load(tmp_path / library / "README.md")
        assert card.data.library_name == library
        assert card.data.license == "other"
        assert re.fullmatch(r"[a-z-]+", card.data.license_name)
        assert yaml.safe_load((tmp_path / library / "README.md").read_text().split("---")[1])


def test_the_card_of_a_run_tells_the_run(
    world: Collection, blip: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it was trained to read is what it reads, here and in plain libraries."""
    run = train(
        world, blip, recipe="c5", out=tmp_path / "run", epochs=1, batch_size=16,
        learning_rate=1e-3, max_length={"captions": 20, "paragraph": 40}, progress=False,
    )  # fmt: skip
    folder = run.folder / "checkpoint"
    text = (folder / "README.md").read_text("utf-8")
    for part in ("`c5`", "multi-positive", "| learning_rate | 0.001 |", "paragraph 40", world.name):
        assert part in text
    assert re.search(r"\| paragraph \| text to image \| \d+\.\d \[\d+\.\d, \d+\.\d\]", text)
    assert str(tmp_path) not in text
    assert str(Path(blip.name).parent) not in text
    assert run.encoder.max_length == 40
    assert blip.max_length == 128
    found = follow(folder, monkeypatch, [LONG, "a star"])["text_vectors"]
    np.testing.assert_allclose(
        found, encode_texts(run.encoder, [LONG, "a star"]).vectors, atol=1e-5
    )


def test_a_pair_opens_from_its_root(pair: ImageTextEncoder, tmp_path: Path) -> None:
    """As sentence-transformers reads it, each module of modules.json in its folder.

    That the library gives our vectors was checked by hand (version 6.2).
    """
    pair.save(tmp_path / "out")
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [module["path"] for module in modules] == [
        "text", "text/1_Pooling", "text/2_Dense", "text/3_Normalize"
    ]  # fmt: skip
    tokenizer = json.loads((tmp_path / "out/text/tokenizer_config.json").read_text())
    assert "processor_class" not in tokenizer  # else the library looks for pictures' settings
    for module in modules[:3]:
        assert list((tmp_path / "out" / module["path"]).glob("*config.json"))
    # As it opens the first module; a tokenizer that came with a BLIP would ask for pictures.
    assert pair.tokenizer._processor_class == "BlipProcessor"
    assert isinstance(AutoProcessor.from_pretrained(tmp_path / "out/text"), type(pair.tokenizer))
    text = load_encoder(f"{tmp_path / 'out/vision'}+{tmp_path / 'out'}", "cpu")
    assert text.max_length == pair.max_length


def test_a_module_that_leads_out_of_its_folder_is_refused(
    vit: Path, pair: ImageTextEncoder, tmp_path: Path
) -> None:
    pair.save(tmp_path / "out")
    path = tmp_path / "out" / "text" / "modules.json"
    whole = path.read_text()
    for outside in ("../vision", "/etc", "1_Pooling/../../vision"):
        path.write_text(whole.replace("1_Pooling", outside))
        with pytest.raises(ParagrainError, match="leads out of the folder"):
            load_encoder(tmp_path / "out")


MAX_LENGTHS: dict[str, int] = {"blip": 128, "clip": 77, "siglip": 64, "pair": 128}


@pytest.mark.parametrize("kind", MAX_LENGTHS)
def test_one_max_length_everywhere(
    kind: str, request: pytest.FixtureRequest, world: Collection, tmp_path: Path
) -> None:
    encoder = request.getfixturevalue(kind)
    max_length = MAX_LENGTHS[kind]
    assert encoder.max_length == max_length
    assert encode_texts(encoder, LONG).tokens.max_length == max_length
    assert search(world, encoder, LONG, progress=False).max_length == max_length
    assert evaluate(world, encoder, progress=False).about["protocol"]["max_length"] == max_length
    assert (
        sweep(world, encoder, None, progress=False)[0].about["protocol"]["max_length"] == max_length
    )
    encoder.save(tmp_path / "out")
    assert load_encoder(tmp_path / "out").max_length == max_length
    settings = next((tmp_path / "out").rglob("tokenizer_config.json"))
    assert json.loads(settings.read_text())["model_max_length"] == max_length


def test_the_max_length_that_a_folder_names(
    text_maker: Callable, vit: Path, random_blip: Path, tmp_path: Path
) -> None:
    folder = text_maker(tmp_path / "text", random_blip)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 50}')
    assert load_encoder(f"{vit}+{folder}").max_length == 50
    encoder = load_encoder(random_blip)
    encoder.max_length = 300
    encoder.save(tmp_path / "out")
    assert load_encoder(tmp_path / "out").max_length == 300
    for max_length in (2, 513):
        with pytest.raises(UsageError):
            encoder.max_length = max_length
