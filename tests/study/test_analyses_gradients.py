"""Saliency and positions: gradients against finite differences, words against tokens."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from paragrain import plots
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.encoders.base import pad
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Benchmark
from paragrain.images import decode
from paragrain.pages import page
from paragrain.study.analyses.positions import (
    MEASURES,
    can_attend,
    draw_positions,
    positions,
    summarise,
)
from paragrain.study.analyses.saliency import (
    Saliency,
    input_embeddings,
    saliency,
    saliency_blocks,
    watched,
)
from paragrain.study.serialization import from_plain, to_plain

TEXT = "A red star, <b>and</b> blue circles above the square."
KINDS = ("blip", "clip", "siglip")


def _makers() -> Any:
    path = Path(__file__).parents[1] / "encoders" / "conftest.py"
    spec = importlib.util.spec_from_file_location("encoder_makers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def encoders(
    encoder: ImageTextEncoder, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ImageTextEncoder]:
    folder, makers = tmp_path_factory.mktemp("kinds"), _makers()
    return {
        "blip": encoder,
        "clip": load_encoder(makers.make_clip(folder / "clip"), "cpu"),
        "siglip": load_encoder(makers.make_siglip(folder / "siglip"), "cpu"),
    }


@pytest.fixture(scope="module")
def long(world: Collection, encoder: ImageTextEncoder) -> Benchmark:
    return Benchmark.load(world, encoder, "paragraph", split="test", progress=False)


def picture() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(
    encoders: dict[str, ImageTextEncoder], kind: str
) -> None:
    encoder = encoders[kind]
    ids, mask = pad([encoder.tokenize(["a red star"], 20).row(0)], encoder.pad_id)
    target = torch.nn.functional.normalize(torch.ones(encoder.dim), dim=0)
    with watched(encoder) as leaves:
        cosine = (encoder.text_features(ids, mask) * target).sum()
        (gradient,) = torch.autograd.grad(cosine, leaves)
    token, step = 2, 0.002
    direction = gradient[0, token] / gradient[0, token].norm()

    def moved(by: float) -> float:
        def shift(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            output[0, token] += by * direction
            return output

        handle = input_embeddings(encoder).register_forward_hook(shift)
        with torch.no_grad():
            value = float((encoder.text_features(ids, mask) * target).sum())
        handle.remove()
        return value

    slope = (moved(step) - moved(-step)) / (2 * step)
    assert slope == pytest.approx(float(gradient[0, token].norm()), rel=0.05)


def test_a_masked_token_has_no_mass_and_the_encoder_stays_as_it_was(
    encoder: ImageTextEncoder,
) -> None:
    encoder.train()
    try:
        rows = [encoder.tokenize([text], 20).row(0) for text in ("a red star", "a")]
        ids, mask = pad(rows, encoder.pad_id)
        with watched(encoder) as leaves:
            (gradient,) = torch.autograd.grad(encoder.text_features(ids, mask).sum(), leaves)
        assert gradient[1, mask[1] == 0].abs().max() == 0
        assert gradient[1, mask[1] == 1].norm(dim=-1).min() > 0
        assert encoder.training
        assert not input_embeddings(encoder)._forward_hooks
        assert all(p.grad is None for p in encoder.parameters())
    finally:
        encoder.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_words_and_patches(encoders: dict[str, ImageTextEncoder], kind: str) -> None:
    encoder = encoders[kind]
    found = saliency(encoder, picture(), TEXT, max_length=min(encoder.max_tokens, 77), id="7")
    words = [TEXT[word.start : word.end] for word in found.words]
    assert words == TEXT.split()
    read = [word.share for word in found.words if word.share is not None]
    assert len(read) >= 8
    assert sum(read) + sum(found.special.values()) == pytest.approx(1)
    assert min(read) > 0
    assert found.patches.shape == (4, 4)
    assert found.patches.sum() == pytest.approx(1)
    assert (found.special.get("fill", 0) > 0) == (kind == "siglip")
    json.dumps(to_plain(found), allow_nan=False)


def test_the_picture_is_what_the_encoder_sees(encoder: ImageTextEncoder) -> None:
    found = saliency(encoder, picture(), TEXT, max_length=64)
    assert np.array_equal(np.asarray(decode(found.picture)), np.asarray(picture()))
    plain = json.loads(json.dumps(to_plain(found)))
    assert to_plain(from_plain(Saliency, plain)) == plain


def test_patch_saliency_agrees_with_finite_differences(encoder: ImageTextEncoder) -> None:
    found = saliency(encoder, picture(), TEXT, max_length=64)
    text = torch.from_numpy(_text_vector(encoder))
    pixels = encoder.pixels(picture())[None]
    lengths = []
    for row, column in np.ndindex(2, 2):  # of four corners of the grid, by random directions
        place = (slice(None), slice(24 * row, 24 * row + 8), slice(24 * column, 24 * column + 8))
        slopes = []
        for seed in range(60):
            step = torch.zeros_like(pixels[0])
            noise = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(seed))
            step[place] = 0.02 * noise
            with torch.no_grad():
                up, down = (
                    float((encoder.image_features(pixels + sign * step) * text).sum())
                    for sign in (1, -1)
                )
            slopes.append((up - down) / 0.04)
        lengths.append(np.sqrt(np.mean(np.square(slopes))))  # E (g . n)^2 = |g|^2
    corners = found.patches[::3, ::3].ravel()
    assert np.array(lengths) / sum(lengths) == pytest.approx(corners / corners.sum(), rel=0.35)


def _text_vector(encoder: ImageTextEncoder) -> np.ndarray:
    from paragrain.encoders import encode_texts

    return encode_texts(encoder, [TEXT], max_length=64).vectors


def test_words_behind_the_budget_have_no_share(encoder: ImageTextEncoder) -> None:
    found = saliency(encoder, picture(), TEXT, max_length=6)
    assert [word.share is None for word in found.words] == [False] * 3 + [True] * 6
    html = page("t", saliency_blocks({"<C5>": found}))
    assert "<s>square.</s>" in html
    assert "&lt;C5&gt;" in html
    assert "<b>and</b>" not in html
    assert html.count("<img") == 2


def test_a_text_without_words_is_refused(encoder: ImageTextEncoder) -> None:
    with pytest.raises(UsageError, match="without words"):
        saliency(encoder, picture(), " ", max_length=20)


# --- Positions --------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", KINDS)
def test_shares_by_place_add_up(
    world: Collection, encoders: dict[str, ImageTextEncoder], kind: str, measure: str
) -> None:
    encoder = encoders[kind]
    benchmark = Benchmark.load(world, encoder, "paragraph", split="test", progress=False)
    tokens = min(encoder.max_tokens, 128)
    found = positions(benchmark, encoder, max_length=tokens, measure=measure, size=9, resamples=50)
    assert sum(one.value for one in found.by_tenth) == pytest.approx(1)
    assert found.reach[0] == found.texts == 9
    assert found.reach == sorted(found.reach, reverse=True)
    assert 0 < found.special.value < 1
    assert 0.2 < found.mean_place.value < 0.8
    json.dumps(to_plain(found), allow_nan=False)
    again = positions(benchmark, encoder, max_length=tokens, measure=measure, size=9, resamples=50)
    assert to_plain(again) == to_plain(found)
    assert encoder.text_fingerprint  # the tower is left as it was: no hook, the same kernels
    tower = encoder.model.text_encoder if kind == "blip" else encoder.model.text_model
    assert not any(module._forward_hooks for module in tower.modules())


def test_attention_equals_what_the_model_itself_reports(
    encoders: dict[str, ImageTextEncoder],
) -> None:
    from paragrain.study.analyses import positions as module

    encoder = encoders["clip"]
    rows = [encoder.tokenize([text], 40).row(0) for text in ("a red star", "a")]
    ids, mask = pad(rows, encoder.pad_id)
    before = encoder.model.text_model.config._attn_implementation
    ours = module._attentions(encoder, ids, mask, torch.zeros(0))
    assert encoder.model.text_model.config._attn_implementation == before
    encoder.model.text_model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            layers = encoder.model.text_model(input_ids=ids, output_attentions=True).attentions
    finally:
        encoder.model.text_model.set_attn_implementation(before)
    theirs = torch.stack(layers).mean((0, 2))  # [B, asking, L]
    ends = mask.sum(1) - 1
    assert ours[0] == pytest.approx(theirs[0, ends[0]].numpy(), abs=1e-6)
    assert ours[1] == pytest.approx(theirs[1, ends[1]].numpy(), abs=1e-6)
    assert ours.sum(1) == pytest.approx(1)


def test_mass_behind_a_place_is_what_a_budget_would_not_read() -> None:
    # 100 tokens, 98 words of which those at positions 1 to 58 are read with a maximum length of 60.
    words = np.array([False, *[True] * 98, False])
    even = np.ones(100)
    late = np.where(np.arange(100) == 59, 1.0, 0.0)
    early = np.where(np.arange(100) == 58, 1.0, 0.0)
    for weights, behind in ((even, 40 / 98), (late, 1), (early, 0)):
        found = summarise([weights], [words], measure="gradient", max_length=128, resamples=5)
        assert found.behind.value == pytest.approx(behind)
        assert found.behind_even.value == pytest.approx(40 / 98)
    found = summarise([even], [words], measure="gradient", max_length=128, resamples=5)
    assert [one.value for one in found.by_position] == pytest.approx([1] * 13)
    assert [one.value for one in found.by_tenth] == pytest.approx([0.1] * 10)
    assert found.mean_place.value == pytest.approx(0.5)
    assert found.special.value == pytest.approx(0.02)


def test_positions_are_drawn_for_several_models(long: Benchmark, encoder: ImageTextEncoder) -> None:
    found = positions(long, encoder, max_length=64, size=6, resamples=20)
    drawn = plots.svg(
        draw_positions({"C1": found, "C5": found}, plots.families({"C1": "c1", "C5": "c5"}))
    )
    for told in ("C1", "C5", "position of the token", "share of gradient, %"):
        assert told in drawn


def test_what_cannot_be_weighed_is_refused(
    long: Benchmark, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="unknown measure 'heat'"):
        positions(long, encoder, max_length=64, measure="heat")
    assert can_attend(encoder) == ""
    monkeypatch.setattr(type(encoder), "pooled_token", None)
    with pytest.raises(ParagrainError, match="use the gradient"):
        positions(long, encoder, max_length=64, measure="attention", size=4)
