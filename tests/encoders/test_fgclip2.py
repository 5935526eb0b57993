"""FG-CLIP 2 against its published forward pass, written out; against the code itself by hand.

github.com/360CVGroup/FG-CLIP, `fgclip2/model/strcs`, with what transformers 5 has lost put back:
texts of all modes and pooled images agreed to 3e-7, dense features to 3e-6.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from transformers import Siglip2Tokenizer
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from paragrain.encoders import FgClip2Encoder, encode_images, encode_texts, load_encoder
from paragrain.encoders.fgclip2 import FgClip2Config, FgClip2Model
from paragrain.errors import ParagrainError, UsageError

TEXTS = ["A RED Bus", "bus red! " * 6, "", "red bus " * 70]
SIZES = [(100, 60), (300, 500), (640, 480), (33, 900), (20, 20)]


@pytest.fixture(scope="module")
def folder(gemma_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny random weights under the published names, with the published kind of tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "fgclip2"
    pieces = gemma_tokenizer(folder, {"tokenizer_class": "GemmaTokenizer", "padding_side": "right"})
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4}  # fmt: skip
    more = {"keep_len": 20, "longtext_len": 196, "bos_token_id": 2, "eos_token_id": 1}
    torch.manual_seed(0)
    config = FgClip2Config(
        text_config={**tower, "vocab_size": pieces, **more},
        vision_config={**tower, "num_patches": 16, "patch_size": 16},
    )
    model = FgClip2Model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    content["auto_map"] = {"AutoModelForCausalLM": "modeling_fgclip2.Fgclip2Model"}
    (folder / "config.json").write_text(json.dumps(content))
    Siglip2ImageProcessorPil().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> FgClip2Encoder:
    encoder = load_encoder(folder, "cpu")
    assert type(encoder) is FgClip2Encoder
    return encoder


def published_text(model: FgClip2Model, ids: torch.Tensor, walk_type: str) -> np.ndarray:
    """`get_text_features(input_ids, walk_type=...)`, normalised."""
    embeddings = model.text_model.embeddings
    hidden = embeddings.token_embedding(ids)
    if walk_type == "long":
        first = (torch.arange(196) < 20)[:, None]
        hidden = hidden + embeddings.position_embedding_ori.weight * first
        hidden = hidden + embeddings.position_embedding_res.weight * ~first
    else:
        hidden = hidden + embeddings.position_embedding.weight[: ids.shape[1]]
    for layer in model.text_model.encoder.layers:
        hidden = layer(hidden, attention_mask=None)
    pooled = model.text_model.final_layer_norm(hidden)[:, -1]
    heads = {"short": model.text_model.head, "long": model.longtext_head, "box": model.boxtext_head}
    return F.normalize(heads[walk_type](pooled), dim=-1).detach().numpy()


@pytest.mark.parametrize(("mode", "length"), [("short", 64), ("long", 196), ("box", 64)])
def test_texts_equal_the_published_walk(
    mode: str, length: int, encoder: FgClip2Encoder, folder: Path
) -> None:
    tokenizer = Siglip2Tokenizer.from_pretrained(folder, padding_side="right")
    lower = [text.lower() for text in TEXTS]
    ids = tokenizer(lower, padding="max_length", max_length=length, truncation=True,
                    return_tensors="pt")["input_ids"]  # fmt: skip
    theirs = published_text(encoder.model, ids, mode)
    named = {"mode": mode} if mode == "box" else {}  # the length alone says short or long
    ours = encode_texts(encoder, TEXTS, max_length=length, **named)
    np.testing.assert_allclose(ours.vectors, theirs, atol=1e-5)
    assert np.abs(theirs @ theirs.T)[0, 1:].max() < 0.999
    for text, vector in zip(TEXTS, ours.vectors, strict=True):
        alone = encode_texts(encoder, text, max_length=length, **named).vectors[0]
        np.testing.assert_allclose(alone, vector, atol=1e-5)


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in SIZES]


def budget(picture: Image.Image) -> int:
    """`determine_max_value` of the published README."""
    own = (picture.width // 16) * (picture.height // 16)
    bounds = ((784, 1024), (576, 784), (256, 576), (128, 256))
    return next((value for bound, value in bounds if own > bound), 128)


def test_images_equal_the_published_ones_whatever_is_beside_them(encoder: FgClip2Encoder) -> None:
    processor = Siglip2ImageProcessorPil()
    together = encode_images(encoder, pictures())
    batch = encoder.image_batch([encoder.pixels(picture) for picture in pictures()])
    with torch.inference_mode():
        dense, patches = (encoder.image_features(batch, kind) for kind in ("dense", "patches"))
    for place, picture in enumerate(pictures()):
        made = processor(images=picture, max_num_patches=budget(picture), return_tensors="pt")
        with torch.inference_mode():
            output = encoder.model.vision_model(**made)
            own = int(made["spatial_shapes"].prod())
            states = output.last_hidden_state[:, :own]
            head = encoder.model.dense_feature_head
            hidden = head.attention(states, states, states)[0]
            theirs = hidden + head.mlp(head.layernorm(hidden))
        np.testing.assert_allclose(together[place], F.normalize(output.pooler_output)[0], atol=1e-5)
        torch.testing.assert_close(patches[place, :own], states[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(dense[place, :own], theirs[0], atol=1e-4, rtol=1e-4)
        assert not dense[place, own:].any()


def test_lengths_and_modes_that_it_has_not(encoder: FgClip2Encoder) -> None:
    assert (encoder.max_tokens, encoder.max_length, encoder.text_modes) == (
        *(196, 196), ("short", "long", "box"),
    )  # fmt: skip
    with pytest.raises(UsageError, match="reads texts in no mode 'wide': choose from short, long"):
        encode_texts(encoder, "a", mode="wide")
    with pytest.raises(UsageError, match="reads 64 tokens in its mode 'box'"):
        encode_texts(encoder, TEXTS, max_length=196, mode="box")
    with pytest.raises(UsageError, match="gives no 'tokens' features: choose from pooled, patches"):
        encoder.image_features([], "tokens")


def test_it_is_saved_and_trains(encoder: FgClip2Encoder, tmp_path: Path) -> None:
    encoder.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out", "cpu")
    assert type(again) is FgClip2Encoder
    assert again.text_fingerprint == encoder.text_fingerprint
    assert again.vision_fingerprint == encoder.vision_fingerprint
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pg.load_encoder" in card
    assert "library_name: paragrain" in card
    copy = encoder.trainable_copy().train()
    ids = torch.tensor([copy.tokenize(TEXTS, 196).ids[0]])
    copy.text_features(ids, torch.ones_like(ids)).sum().backward()
    touched = {name for name, p in copy.trained_parameters().items() if p.grad is not None}
    assert {"longtext_head.weight", "text_model.embeddings.position_embedding_res.weight"} < touched
    assert not any(name.startswith("vision_model") for name in touched)


def test_patches_of_another_size_are_refused(encoder: FgClip2Encoder) -> None:
    processor = Siglip2ImageProcessorPil(patch_size=14)
    with pytest.raises(ParagrainError, match="patches of 14 pixels but its image tower reads 16"):
        FgClip2Encoder(encoder.model, processor, encoder.tokenizer, "mixed")
