"""Pairs: any vision model or given vectors on one side, any text encoder on the other."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForMaskedLM,
    CLIPVisionConfig,
    CLIPVisionModel,
    ConvNextConfig,
    ConvNextModel,
    Dinov2Config,
    Dinov2Model,
    JinaEmbeddingsV3Model,
    RobertaModel,
    ViTConfig,
    ViTForImageClassification,
    ViTMAEConfig,
    ViTMAEModel,
    ViTModel,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import PairEncoder, encode_images, encode_texts, load_encoder
from paragrain.encoders.loading import lasting_name, pair_names
from paragrain.encoders.sentence import SentenceEncoder
from paragrain.errors import ParagrainError, UsageError

TEXTS = ["a red star", "", "a blue square left of a green circle " * 30, "Red Star"]
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "initializer_range": 0.2}  # fmt: skip
SMALL = {**TOWER, "image_size": 32, "patch_size": 8}
CONV = {"hidden_sizes": [8, 16, 16, 24], "depths": [1, 1, 1, 1], "initializer_range": 0.2}


def opened(name: str | Path) -> PairEncoder:
    encoder = load_encoder(str(name), "cpu")
    assert isinstance(encoder, PairEncoder)
    return encoder


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = [(32, 32), (90, 40), (33, 200)]
    return [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def dense(folder: Path, weight: torch.Tensor, activation: str, **config: Any) -> None:
    """A Dense module as sentence-transformers writes it."""
    folder.mkdir(parents=True)
    out, width = weight.shape
    config = {"in_features": width, "out_features": out, "bias": False,
              "activation_function": f"torch.nn.modules.{activation}", **config}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"linear.weight": weight}, folder / "model.safetensors")


def sentence_folder(text: Path, folder: Path, pooling: dict, *kinds: str, **settings: Any) -> Path:
    """The folder of a text encoder with the files of sentence-transformers added."""
    shutil.copytree(text, folder)
    names = ["Transformer", "Pooling", *kinds]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "",
         "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(names)
    ]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return folder


# --- The image side ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (ViTModel, ViTConfig(**SMALL)),
        (Dinov2Model, Dinov2Config(**SMALL)),
        (CLIPVisionModel, CLIPVisionConfig(**SMALL)),
        (ConvNextModel, ConvNextConfig(**CONV)),
    ],
)
def test_image_vectors_equal_the_librarys_pooled_output(
    vision_maker: Callable[..., Path], kind: Any, config: Any, text: Path, tmp_path: Path
) -> None:
    encoder = opened(f"{vision_maker(tmp_path / 'vision', kind, config)}+{text}")
    model = kind.from_pretrained(tmp_path / "vision").eval()
    pixels = ViTImageProcessorPil.from_pretrained(tmp_path / "vision")(
        images=pictures(), return_tensors="pt"
    )
    with torch.no_grad():
        theirs = unit(model(**pixels).pooler_output)
    ours = encode_images(encoder, pictures())
    assert ours.shape[1] == encoder.dim == theirs.shape[1]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours @ ours.T)[0, 1:].max() < 0.9999  # else anything would agree


def test_a_pooler_that_was_never_trained_is_not_used(
    vision_maker: Callable[..., Path], text: Path, tmp_path: Path
) -> None:
    config = ViTConfig(**SMALL, num_labels=3)
    encoder = opened(f"{vision_maker(tmp_path / 'v', ViTForImageClassification, config)}+{text}")
    model = ViTForImageClassification.from_pretrained(tmp_path / "v").eval()
    pixels = torch.stack([encoder.pixels(picture) for picture in pictures()])
    with torch.no_grad():
        first = model.vit(pixels).last_hidden_state[:, 0]
    np.testing.assert_allclose(encode_images(encoder, pictures()), unit(first), atol=1e-5)
    encoder.save(tmp_path / "saved")
    again = opened(tmp_path / "saved")
    assert again.vision_fingerprint == encoder.vision_fingerprint
    assert not [name for name in load_file(tmp_path / "saved/vision/model.safetensors")
                if "pooler" in name]  # fmt: skip


def test_the_image_side_of_another_encoder_shares_its_vectors(
    random_blip: Path, text: Path, world: Collection
) -> None:
    blip, encoder = load_encoder(random_blip, "cpu"), opened(f"{random_blip}+{text}")
    assert encoder.vision_fingerprint == blip.vision_fingerprint
    embed(world, blip, progress=False)
    assert embed(world, encoder, progress=False).computed == 0


def test_what_is_no_vision_model_is_refused(
    vision_maker: Callable[..., Path], text: Path, vit: Path, tmp_path: Path
) -> None:
    shutil.copytree(text, tmp_path / "words")
    shutil.copy(vit / "preprocessor_config.json", tmp_path / "words")
    with pytest.raises(ParagrainError, match="words cannot be used as a vision model"):
        load_encoder(f"{tmp_path / 'words'}+{text}")
    blind = vision_maker(tmp_path / "mae", ViTMAEModel, ViTMAEConfig(**SMALL))
    with pytest.raises(ParagrainError, match="hides parts of a picture at random"):
        load_encoder(f"{blind}+{text}")
    shutil.copytree(vit, tmp_path / "uneven")
    uneven = ViTImageProcessorPil(size={"shortest_edge": 32})
    uneven.save_pretrained(tmp_path / "uneven")
    with pytest.raises(ParagrainError, match="gives all pictures one size"):
        load_encoder(f"{tmp_path / 'uneven'}+{text}")


# --- The text side ----------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_text_vectors_equal_the_librarys_hidden_states_pooled(
    pooling: str, vit: Path, text: Path, tmp_path: Path
) -> None:
    old = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}[pooling]
    settings = {f"pooling_mode_{name}": name == old
                for name in ("mean_tokens", "cls_token", "max_tokens")}  # fmt: skip
    folder = sentence_folder(text, tmp_path / "s", settings, "Normalize", max_seq_length=9)
    encoder = opened(f"{vit}+{folder}")
    model, tokenizer = AutoModel.from_pretrained(text).eval(), AutoTokenizer.from_pretrained(text)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=200, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    theirs = []
    for states, mask in zip(hidden, inputs["attention_mask"], strict=True):
        own = states[mask.bool()]
        pooled = {"mean": own.mean(0), "cls": own[0], "max": own.max(0).values}[pooling]
        theirs.append(encoder.model.projection.weight @ pooled)
    for batch in (10_000, 1):  # all in one batch, each in its own
        ours = encode_texts(encoder, TEXTS, max_length=200, batch_tokens=batch)
        np.testing.assert_allclose(ours.vectors, unit(torch.stack(theirs)), atol=1e-5)
    assert (encoder.max_tokens, ours.tokens.texts_truncated) == (200, 1)


def test_dense_layers_and_lower_case_are_honoured(vit: Path, text: Path, tmp_path: Path) -> None:
    plain = SentenceEncoder.from_folder(text, "plain")
    folder = sentence_folder(
        text, tmp_path / "s", {"pooling_mode": "mean"}, "Dense", do_lower_case=True
    )
    weight = torch.randn(7, 32)
    dense(folder / "2_Dense", weight, "activation.Tanh")
    encoder = opened(f"{vit}+{folder}")
    row = torch.tensor(encoder.token_ids(["a star"]))
    ones = torch.ones_like(row)
    with torch.no_grad():
        expected = torch.tanh(plain(row, ones) @ weight.T)
        torch.testing.assert_close(encoder.model.text(row, ones), expected)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # a tokenizer that keeps capitals
        content = (folder / name).read_text()
        for setting in ('"lowercase": true', '"do_lower_case": true'):
            content = content.replace(setting, setting.replace("true", "false"))
        (folder / name).write_text(content)
    lower = opened(f"{vit}+{folder}")
    assert lower.token_ids(["Red STAR"]) == lower.token_ids(["red star"])
    for number, saved in enumerate((encoder, lower)):
        saved.save(tmp_path / f"saved{number}")
        assert opened(tmp_path / f"saved{number}").text_fingerprint == saved.text_fingerprint
    assert [p.name for p in sorted((tmp_path / "saved0/text").glob("*_Dense"))] == [
        "2_Dense", "3_Dense"
    ]  # fmt: skip


def test_what_is_not_supported_is_said_in_one_sentence(
    vit: Path, text: Path, tmp_path: Path
) -> None:
    mean = {"pooling_mode": "mean"}
    several = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}
    folders = {
        "consists of Transformer, Pooling, CNN": (mean, "CNN"),
        "pools its tokens by mean and max": (several,),
        "pools its tokens by lasttoken": ({"pooling_mode_lasttoken": True},),
    }
    for number, (reason, (pooling, *kinds)) in enumerate(folders.items()):
        folder = sentence_folder(text, tmp_path / str(number), pooling, *kinds)
        with pytest.raises(ParagrainError, match=reason) as error:
            load_encoder(f"{vit}+{folder}")
        assert "\n" not in str(error.value)
    for number, (activation, config) in enumerate(
        [("activation.Tanh", {"use_residual": True}), ("x.Evil", {}), ("linear.Identity", {"a": 1})]
    ):
        folder = sentence_folder(text, tmp_path / f"dense{number}", mean, "Dense")
        dense(folder / "2_Dense", torch.ones(5, 32), activation, **config)
        if number < 2:
            with pytest.raises(ParagrainError, match="of a kind that is not supported"):
                load_encoder(f"{vit}+{folder}")
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ParagrainError, match="2_Dense holds no weights"):
        load_encoder(f"{vit}+{folder}")
    shutil.copytree(vit, tmp_path / "seer")
    shutil.copy(text / "tokenizer.json", tmp_path / "seer")
    with pytest.raises(ParagrainError, match="cannot be used as a text encoder"):
        load_encoder(f"{vit}+{tmp_path / 'seer'}")


def test_positions_and_heads_of_other_architectures(
    text_maker: Callable[..., Path], vit: Path, random_blip: Path, tmp_path: Path
) -> None:
    """RoBERTa counts positions from behind its fill; a language model's head is left out."""
    roberta = text_maker(tmp_path / "roberta", random_blip, RobertaModel, pad_token_id=0)
    encoder = opened(f"{vit}+{roberta}")
    assert encoder.max_tokens == 199
    long = encode_texts(encoder, ["a star " * 300], max_length=199)
    assert np.isfinite(long.vectors).all()
    masked = text_maker(tmp_path / "mlm", random_blip, BertForMaskedLM)
    encoder = opened(f"{vit}+{masked}")
    bare = SentenceEncoder.from_folder(masked, "bare")
    theirs = BertForMaskedLM.from_pretrained(masked).eval().bert
    row = torch.tensor(encoder.token_ids(["a red star"]))
    with torch.no_grad():
        hidden = theirs(row).last_hidden_state.mean(1)
        torch.testing.assert_close(bare(row, torch.ones_like(row)), hidden)


def test_the_text_tower_of_jina_clip_opens_where_transformers_has_it(
    text_maker: Callable[..., Path], vit: Path, random_blip: Path, tmp_path: Path
) -> None:
    folder = text_maker(tmp_path / "jina", random_blip, JinaEmbeddingsV3Model, pad_token_id=0)
    encoder = opened(f"{vit}+{folder}")
    row = torch.tensor(encoder.token_ids(["a red star"]))
    with torch.no_grad():
        hidden = JinaEmbeddingsV3Model.from_pretrained(folder).eval()(row).last_hidden_state
        pooled = encoder.model.projection(hidden.mean(1))
    np.testing.assert_allclose(encode_texts(encoder, "a red star").vectors, unit(pooled), atol=1e-5)


# --- Names ------------------------------------------------------------------------------------


def test_names(vit: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus = Path(shutil.copytree(text, tmp_path / "c++"))
    folder = Path(shutil.copytree(vit, tmp_path / "a+b"))
    assert opened(f"{folder}+{plus}").dim == 32
    opened(f"{folder}+{plus}").save(tmp_path / "x+y")
    assert opened(tmp_path / "x+y").name == str(tmp_path / "x+y")
    monkeypatch.chdir(tmp_path)
    assert lasting_name("a+b+c++") == f"{folder}+{plus}"
    assert pair_names("org/vision+org/text") == ("org/vision", "org/text")
    for name in ("+", "+text", "vision+", "nowhere+at+all"):
        with pytest.raises(UsageError, match="is neither a folder nor a pair"):
            load_encoder(name)
    with pytest.raises(UsageError, match=r"there is no folder \./absent"):
        load_encoder(f"./absent+{text}")
    with pytest.raises(UsageError, match="write vectors:NAME:WIDTH"):
        load_encoder(f"vectors:mine+{text}")


def test_the_fresh_projection_is_the_same_every_time(vit: Path, text: Path) -> None:
    torch.manual_seed(5)
    first, second = opened(f"{vit}+{text}"), opened(f"{vit}+{text}")
    assert first.text_fingerprint == second.text_fingerprint
    ids, mask = torch.tensor([[2, 9, 3]]), torch.ones(1, 3, dtype=torch.int64)
    first.requires_grad_(True).text_features(ids, mask).sum().backward()
    touched = {id(p) for p in first.parameters() if p.grad is not None}
    assert touched == {id(p) for p in first.text_tensors().values()}
