import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPModel, CLIPTokenizerFast

from paragrain.encoders import (
    BlipEncoder,
    ClipEncoder,
    encode_images,
    encode_texts,
    load_encoder,
    stretch,
)
from paragrain.encoders.longclip import MERGES, clip_state, stretched
from paragrain.errors import ParagrainError, UsageError

SHORT = ["a red star", "", "star red red red star"]
LONG = ["and to the right of a red star " * 20, "a star " * 30]
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def longclip_state(model: CLIPModel) -> dict[str, torch.Tensor]:
    """The weights of a CLIPModel as Long-CLIP's code names and splits them, fully spelled out."""
    theirs, result = model.state_dict(), {}

    def layers(tower: str, prefix: str) -> None:
        for number in range(2):
            old, new = f"{tower}.encoder.layers.{number}", f"{prefix}.{number}"
            for kind in ("weight", "bias"):
                parts = [theirs[f"{old}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
                result[f"{new}.attn.in_proj_{kind}"] = torch.cat(parts)
                result[f"{new}.attn.out_proj.{kind}"] = theirs[f"{old}.self_attn.out_proj.{kind}"]
                result[f"{new}.ln_1.{kind}"] = theirs[f"{old}.layer_norm1.{kind}"]
                result[f"{new}.ln_2.{kind}"] = theirs[f"{old}.layer_norm2.{kind}"]
                result[f"{new}.mlp.c_fc.{kind}"] = theirs[f"{old}.mlp.fc1.{kind}"]
                result[f"{new}.mlp.c_proj.{kind}"] = theirs[f"{old}.mlp.fc2.{kind}"]

    layers("text_model", "transformer.resblocks")
    layers("vision_model", "visual.transformer.resblocks")
    for kind in ("weight", "bias"):
        result[f"ln_final.{kind}"] = theirs[f"text_model.final_layer_norm.{kind}"]
        result[f"visual.ln_pre.{kind}"] = theirs[f"vision_model.pre_layrnorm.{kind}"]
        result[f"visual.ln_post.{kind}"] = theirs[f"vision_model.post_layernorm.{kind}"]
    vision, text = "vision_model.embeddings", "text_model.embeddings"
    result["visual.class_embedding"] = theirs[f"{vision}.class_embedding"]
    result["visual.conv1.weight"] = theirs[f"{vision}.patch_embedding.weight"]
    result["visual.positional_embedding"] = theirs[f"{vision}.position_embedding.weight"]
    result["visual.proj"] = theirs["visual_projection.weight"].T
    result["token_embedding.weight"] = theirs[f"{text}.token_embedding.weight"]
    result["text_projection"] = theirs["text_projection.weight"].T
    result["logit_scale"] = theirs["logit_scale"]
    table = theirs[f"{text}.position_embedding.weight"]
    frozen, trained = torch.full_like(table, 9.0), torch.full_like(table, -9.0)
    frozen[:20], trained[20:] = table[:20], table[20:]  # what the masks hide is never read
    result["positional_embedding"], result["positional_embedding_res"] = frozen, trained
    return {name: tensor.clone() for name, tensor in result.items()}


@pytest.fixture(scope="module")
def long_folder(clip_maker: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip_maker(tmp_path_factory.mktemp("models") / "long", positions=248)


@pytest.fixture
def original(long_folder: Path, tmp_path: Path) -> Path:
    """`longclip-B.pt` with a tokenizer beside it."""
    torch.save(longclip_state(CLIPModel.from_pretrained(long_folder)), tmp_path / "longclip-B.pt")
    for name in TOKENIZER:
        (tmp_path / name).write_bytes((long_folder / name).read_bytes())
    return tmp_path / "longclip-B.pt"


def own_text_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    model = CLIPModel.from_pretrained(folder)
    tokenizer = CLIPTokenizerFast.from_pretrained(folder)
    inputs = tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape[1] == 248
    with torch.no_grad():
        vectors = model.get_text_features(**inputs).pooler_output
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def test_a_converted_folder_reads_248_tokens(long_folder: Path) -> None:
    encoder = load_encoder(long_folder, "cpu")
    assert encoder.max_tokens == 248
    ours = encode_texts(encoder, SHORT + LONG, max_length=248)
    np.testing.assert_allclose(ours.vectors, own_text_vectors(long_folder, SHORT + LONG), atol=1e-5)


def test_an_original_file_gives_the_vectors_of_the_same_model(
    original: Path, long_folder: Path, tmp_path: Path
) -> None:
    encoder = load_encoder(original, "cpu")
    assert (encoder.dim, encoder.max_tokens, encoder.name) == (16, 248, str(original))
    vectors = encode_texts(encoder, SHORT + LONG, max_length=248).vectors
    np.testing.assert_allclose(vectors, own_text_vectors(long_folder, SHORT + LONG), atol=1e-5)
    image = Image.fromarray(np.arange(60 * 41 * 3, dtype=np.uint32).astype(np.uint8)
                            .reshape(60, 41, 3))  # fmt: skip
    same = load_encoder(long_folder, "cpu")
    np.testing.assert_allclose(
        encode_images(encoder, [image]), encode_images(same, [image]), atol=1e-5
    )
    encoder.save(tmp_path / "saved")
    before = load_file(long_folder / "model.safetensors")
    after = load_file(tmp_path / "saved" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    np.testing.assert_allclose(own_text_vectors(tmp_path / "saved", LONG), vectors[3:], atol=1e-5)


def test_half_precision_and_wrapped_names_load(original: Path) -> None:
    whole = load_encoder(original, "cpu")
    state = torch.load(original, weights_only=True)
    torch.save({f"module.{name}": tensor.half() for name, tensor in state.items()}, original)
    encoder = load_encoder(original, "cpu")
    assert encoder.model.dtype == torch.float32
    cosines = (encode_texts(encoder, LONG, max_length=248).vectors
               * encode_texts(whole, LONG, max_length=248).vectors).sum(axis=1)  # fmt: skip
    assert cosines.min() > 0.999


@pytest.mark.parametrize("layout", ["himo.pt", "himo.safetensors", "debias_vitb_3e.pt"])
def test_himo_and_debias_clip_open(layout: str, original: Path, tmp_path: Path) -> None:
    """Plain weights, or open_clip's names beside the state of the training that saved them.

    HiMo-CLIP's and Long-CLIP's own code gave the same vectors to 1e-7, tried by hand.
    """
    whole = load_encoder(original, "cpu")
    state = torch.load(original, weights_only=True)
    path = tmp_path / layout
    if layout.startswith("debias"):
        named = {
            key if key.startswith(("visual.", "logit_scale")) else f"text.{key}": tensor
            for key, tensor in state.items()
        }
        optimizer = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-6}]}
        torch.save({"epoch": 3, "name": "d", "state_dict": named, "optimizer": optimizer}, path)
    elif path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, path)
    encoder = load_encoder(path, "cpu")
    assert encoder.max_length == 248
    assert encoder.text_fingerprint == whole.text_fingerprint
    assert encoder.vision_fingerprint == whole.vision_fingerprint


def test_a_file_of_77_positions_loads(random_clip: Path, clip: ClipEncoder, tmp_path: Path) -> None:
    state = longclip_state(CLIPModel.from_pretrained(random_clip))
    del state["positional_embedding_res"]
    state["positional_embedding"] = clip.model.text_model.embeddings.position_embedding.weight
    state["context_length"] = torch.tensor(77)
    torch.save(state, tmp_path / "clip.pt")
    for name in TOKENIZER:
        (tmp_path / name).write_bytes((random_clip / name).read_bytes())
    encoder = load_encoder(tmp_path / "clip.pt", "cpu")
    assert encoder.max_tokens == 77
    texts = SHORT + LONG
    np.testing.assert_allclose(
        encode_texts(encoder, texts, max_length=77).vectors,
        encode_texts(clip, texts, max_length=77).vectors,
        atol=1e-5,
    )


def test_the_tokenizer_of_the_original_code_will_do(original: Path, clip: ClipEncoder) -> None:
    """The gzipped list of merges: a header, the merges, and more of them than are used."""
    merges = json.loads((original.parent / "tokenizer.json").read_text())["model"]["merges"]
    lines = ["header", *(" ".join(pair) for pair in merges), "q q", "w w", ""]
    (original.parent / MERGES).write_bytes(gzip.compress("\n".join(lines).encode()))
    for name in TOKENIZER:
        (original.parent / name).unlink()
    encoder = load_encoder(original, "cpu")
    assert encoder.tokenizer.get_vocab() == clip.tokenizer.get_vocab()
    assert encoder.token_ids(SHORT + LONG) == clip.token_ids(SHORT + LONG)
    (original.parent / MERGES).write_bytes(b"no gzip")
    with pytest.raises(ParagrainError, match=r"tokenizer of .* cannot be read from .*fetch it"):
        load_encoder(original)
    (original.parent / MERGES).unlink()
    with pytest.raises(ParagrainError, match=r"lacks its tokenizer: put .*vocab\.json or bpe_"):
        load_encoder(original)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_files_that_are_no_longclip(original: Path, tmp_path: Path) -> None:
    state = torch.load(original, weights_only=True)
    torch.save({**state, "queue": torch.zeros(2)}, original)
    with pytest.raises(ParagrainError, match=r"1 unexpected: queue"):
        load_encoder(original)
    for content in ({"a": torch.zeros(2)}, {"visual.conv1.weight": torch.zeros(2)}):
        torch.save(content, original)
        with pytest.raises(ParagrainError, match="does not hold the weights of a Long-CLIP"):
            load_encoder(original)
    for content in ({"model": {"a": torch.zeros(2)}}, [1], {"a": Path("a")}):
        torch.save(content, original)
        with pytest.raises(ParagrainError, match=r"longclip-B\.pt cannot be read"):
            load_encoder(original)
    original.write_bytes(pickle.dumps(print))
    with pytest.raises(ParagrainError, match=r"longclip-B\.pt cannot be read"):
        load_encoder(original)


def test_names_that_are_not_known_stay() -> None:
    assert list(clip_state({"queue": torch.zeros(2)})) == ["queue"]


# --- Stretching -------------------------------------------------------------------------------


def test_the_table_is_stretched_as_longclip_does() -> None:
    """The loop of `load_from_clip`, by hand."""
    old = torch.randn(77, 3, generator=torch.Generator().manual_seed(0))
    new = torch.full((248, 3), torch.nan)
    new[:20] = old[:20]
    for row in range(20, 76):
        for part in range(4):
            new[20 + 4 * (row - 20) + part] = ((4 - part) * old[row] + part * old[row + 1]) / 4
    for part in range(4):
        new[244 + part] = old[76] + part * (old[76] - old[75]) / 4
    torch.testing.assert_close(stretched(old, 248), new, atol=1e-6, rtol=0)
    assert torch.equal(stretched(old, 248)[20::4], old[20:])


def test_any_clip_takes_248_tokens(clip: ClipEncoder, random_clip: Path, tmp_path: Path) -> None:
    encoder = load_encoder(f"{random_clip}@248", "cpu")
    assert (encoder.max_tokens, encoder.name) == (248, f"{random_clip}@248")
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    twenty = ["star " * 18, *SHORT]
    assert max(encoder.tokenize(twenty, 248).lengths) == 20
    before = encode_texts(clip, twenty, max_length=77).vectors
    assert np.array_equal(encode_texts(encoder, twenty, max_length=248).vectors, before)
    assert encode_texts(encoder, LONG, max_length=248).tokens.texts_truncated == 1
    assert encoder.vision_fingerprint == clip.vision_fingerprint
    assert encoder.text_fingerprint != clip.text_fingerprint

    encoder.save(tmp_path / "saved")
    again = load_encoder(tmp_path / "saved", "cpu")
    assert again.text_fingerprint == encoder.text_fingerprint
    assert again.max_tokens == 248
    np.testing.assert_allclose(
        own_text_vectors(tmp_path / "saved", LONG),
        encode_texts(encoder, LONG, max_length=248).vectors,
        atol=1e-5,
    )


def test_stretching_leaves_the_encoder_as_it_was(clip: ClipEncoder) -> None:
    before = clip.text_fingerprint
    longer = stretch(clip, 100, keep=10)
    assert clip.text_fingerprint == before
    assert (clip.max_tokens, clip.tokenizer.model_max_length) == (77, 77)
    assert clip.model.config.text_config.max_position_embeddings == 77
    assert longer.max_tokens == 100
    own = {id(p) for p in longer.parameters()} - {id(p) for p in clip.parameters()}
    assert len(own) == 1  # the table; all else is shared


def test_a_stretched_clip_trains(clip: ClipEncoder) -> None:
    copy = stretch(clip).trainable_copy()
    table = copy.text_tensors()["text_model.embeddings.position_embedding.weight"]
    ids = torch.tensor([copy.tokenize(LONG, 248).ids[0]])
    copy.text_features(ids, torch.ones_like(ids)).sum().backward()
    assert table.grad is not None
    assert (table.grad.abs().sum(dim=1) > 0).sum() == ids.shape[1]


def test_what_cannot_be_stretched(
    clip: ClipEncoder, blip: BlipEncoder, random_siglip: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="only a CLIP can"):
        stretch(blip)
    with pytest.raises(UsageError, match="only a CLIP can"):
        load_encoder(f"{random_siglip}@248")
    with pytest.raises(UsageError, match="reads 77 tokens already"):
        stretch(clip, 77)
    for keep in (-1, 76):
        with pytest.raises(UsageError, match="choose from 0 to 75"):
            stretch(clip, 248, keep=keep)
    folder = tmp_path / "mine@248"
    clip.save(folder)
    assert load_encoder(folder, "cpu").max_tokens == 77  # a folder of that name comes first
