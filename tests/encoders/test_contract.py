"""Features on request, what trains, options of texts: the same for every family."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from transformers import AutoModel, BlipForImageTextRetrieval, CLIPModel

from paragrain.encoders import (
    ImageTextEncoder,
    TrainSpec,
    encode_images,
    encode_texts,
    load_encoder,
)
from paragrain.encoders.base import pad
from paragrain.errors import UsageError

KINDS = ["blip", "clip", "siglip", "pair"]
TEXTS = ["a red star", "star", "a blue square on the left of a star"]


@pytest.fixture(params=KINDS)
def encoder(request: pytest.FixtureRequest) -> ImageTextEncoder:
    return request.getfixturevalue(request.param)


def picture() -> Image.Image:
    return Image.effect_mandelbrot((70, 50), (-2, -1, 1, 1), 9).convert("RGB")


class LowRank(nn.Module):
    """W + B A, which begins as W."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.up @ self.down


# --- Features ---------------------------------------------------------------------------------


def test_patches_and_tokens_on_request(encoder: ImageTextEncoder) -> None:
    batch = encoder.image_batch([encoder.pixels(picture())])
    ids, mask = pad(encoder.tokenize(TEXTS, 40).ids, encoder.pad_id)
    with torch.inference_mode():
        patches = encoder.image_features(batch, "patches")
        tokens = encoder.text_features(ids, mask, "tokens")
    assert patches.ndim == tokens.ndim == 3
    assert patches.shape[0] == 1
    assert tokens.shape[:2] == ids.shape
    for call in (encoder.image_features, lambda *a: encoder.text_features(ids, *a)):
        with pytest.raises(UsageError, match="gives no 'maps' features: choose from pooled,"):
            call(mask, "maps")


def test_patches_are_what_cross_attention_reads(blip: ImageTextEncoder, random_blip: Path) -> None:
    model = BlipForImageTextRetrieval.from_pretrained(random_blip)
    batch = blip.image_batch([blip.pixels(picture())])
    ids, mask = pad(blip.tokenize(TEXTS, 40).ids, blip.pad_id)
    with torch.inference_mode():
        theirs = model.vision_model(batch).last_hidden_state
        torch.testing.assert_close(blip.image_features(batch, "patches"), theirs)
        first = model.text_proj(blip.text_features(ids, mask, "tokens")[:, 0])
        torch.testing.assert_close(nn.functional.normalize(first), blip.text_features(ids, mask))


def test_tokens_are_those_of_the_text_itself(clip: ImageTextEncoder, random_clip: Path) -> None:
    ids, mask = pad(clip.tokenize(TEXTS, 40).ids, clip.pad_id)
    with torch.inference_mode():
        theirs = CLIPModel.from_pretrained(random_clip).text_model(ids).last_hidden_state
        torch.testing.assert_close(clip.text_features(ids, mask, "tokens"), theirs)


# --- What trains ------------------------------------------------------------------------------


@pytest.mark.parametrize("vision", [False, True])
def test_what_trains_is_what_the_spec_says(encoder: ImageTextEncoder, vision: bool) -> None:
    spec = TrainSpec(vision=vision)
    if vision and "vision" not in encoder.towers:
        with pytest.raises(UsageError, match=r"the image tower of .* cannot be trained"):
            encoder.trainable_copy(spec)
        return
    copy = encoder.trainable_copy(spec)
    wanted = set(copy.text_tensors()) | (set(copy.vision_tensors()) if vision else set())
    assert set(copy.trained_parameters()) == wanted
    own = {id(p) for p in copy.parameters()} - {id(p) for p in encoder.parameters()}
    assert own == {id(p) for p in copy.trained_parameters().values()}  # all else is shared


def test_a_head_trains_by_its_name(blip: ImageTextEncoder) -> None:
    copy = blip.trainable_copy(TrainSpec(text=False, heads=("matching",)))
    names = set(copy.trained_parameters())
    assert "itm_head.weight" in names
    assert all("crossattention" in name or name.startswith("itm_head.") for name in names)
    with pytest.raises(UsageError, match="has no head 'captioning': choose from matching"):
        blip.trainable_copy(TrainSpec(heads=("captioning",)))


def test_an_adapter_trains_alone_and_is_folded_into_what_is_saved(
    encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    spec = TrainSpec(adapter=lambda name, linear: LowRank(linear, 2))
    copy = encoder.trainable_copy(spec)
    assert copy.text_fingerprint == encoder.text_fingerprint  # it begins as it was
    trained = copy.trained_parameters()
    assert trained
    assert all(".parametrizations.weight.0." in name for name in trained)
    before = encode_texts(encoder, TEXTS).vectors
    optimizer = torch.optim.SGD(trained.values(), lr=1.0)
    ids, mask = pad(copy.tokenize(TEXTS, 40).ids, copy.pad_id)
    copy.train().text_features(ids, mask)[:, 0].sum().backward()
    optimizer.step()
    after = encode_texts(copy, TEXTS).vectors
    assert np.abs(after - before).max() > 1e-4
    np.testing.assert_array_equal(encode_texts(encoder, TEXTS).vectors, before)
    assert set(copy.text_tensors()) == set(encoder.text_tensors())
    copy.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out", "cpu")
    assert again.text_fingerprint == copy.text_fingerprint != encoder.text_fingerprint
    assert again.vision_fingerprint == encoder.vision_fingerprint
    np.testing.assert_allclose(encode_texts(again, TEXTS).vectors, after, atol=1e-5)


def test_an_adapter_on_both_towers(clip: ImageTextEncoder, tmp_path: Path) -> None:
    def adapter(name: str, linear: nn.Linear) -> nn.Module | None:
        return LowRank(linear, 1) if name.endswith(("q_proj", "visual_projection")) else None

    copy = clip.trainable_copy(TrainSpec(vision=True, adapter=adapter))
    names = {name.partition(".parametrizations")[0] for name in copy.trained_parameters()}
    assert {"visual_projection", "vision_model.encoder.layers.0.self_attn.q_proj"} < names
    assert "text_projection" not in names
    with torch.no_grad():
        for parameter in copy.trained_parameters().values():
            parameter.add_(0.1)
    images = encode_images(copy, picture())
    assert copy.vision_fingerprint != clip.vision_fingerprint
    copy.save(tmp_path / "out")
    np.testing.assert_allclose(encode_images(tmp_path / "out", picture()), images, atol=1e-5)
    assert AutoModel.from_pretrained(tmp_path / "out").config.model_type == "clip"


# --- Options of texts -------------------------------------------------------------------------


def test_prompts_and_lower_case(blip: ImageTextEncoder, clip: ImageTextEncoder) -> None:
    for encoder in (blip, clip):
        told = encode_texts(encoder, "red STAR", prompt="A photo of a ", lower_case=True)
        plain = encode_texts(encoder, "a photo of a red star")
        np.testing.assert_array_equal(told.vectors, plain.vectors)
        summary = told.tokens.summary()
        assert summary.items() - plain.tokens.summary().items() == {
            ("prompt", "A photo of a "), ("lower_case", True)
        }  # fmt: skip
    with pytest.raises(TypeError, match="shout"):
        encode_texts(blip, "a", shout=True)
