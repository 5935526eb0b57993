import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import CLIPModel, CLIPTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders import (
    ClipEncoder,
    ImageTextEncoder,
    encode_images,
    encode_texts,
    load_encoder,
)
from paragrain.encoders.base import pad
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import evaluate
from paragrain.training import train
from paragrain.training.optimizer import decays

TEXTS = [
    "a red star",
    "A photograph of a star, above; below! naïve 星",
    "",
    "red star",
    "the blue square on the left of a green circle",
    "and to the right of a star " * 20,
]


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = [(32, 32), (90, 40), (33, 200), (3, 1)]
    return [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


@pytest.mark.parametrize("old", [False, True], ids=["end token named", "eos_token_id 2"])
def test_vectors_equal_the_librarys_own(
    clip_maker: Callable[..., Path], tmp_path: Path, old: bool
) -> None:
    """Every number by another way: plain transformers, its processor, its tokenizer, padded."""
    folder = clip_maker(tmp_path / "clip", old=old)
    encoder = load_encoder(folder, "cpu")
    model = CLIPModel.from_pretrained(folder)
    processor = CLIPImageProcessorPil.from_pretrained(folder)
    tokenizer = CLIPTokenizerFast.from_pretrained(folder)
    images, inputs = pictures(), tokenizer(
        TEXTS, padding="max_length", truncation=True, max_length=77, return_tensors="pt"
    )  # fmt: skip
    with torch.no_grad():
        theirs = model.get_text_features(**inputs).pooler_output
        pixels = processor(images=images, return_tensors="pt")
        theirs_images = model.get_image_features(**pixels).pooler_output
    ours = encode_texts(encoder, TEXTS, max_length=77)
    np.testing.assert_allclose(ours.vectors, unit(theirs), atol=1e-5)
    np.testing.assert_allclose(encode_images(encoder, images), unit(theirs_images), atol=1e-5)
    assert ours.tokens.texts_truncated == 1
    assert {row[-1] for row in ours.tokens.ids} == {tokenizer.eos_token_id}
    assert np.abs(ours.vectors @ ours.vectors.T)[0, 1:].max() < 0.99  # else anything would agree


def test_sizes_follow_the_configuration(clip: ClipEncoder) -> None:
    assert (clip.dim, clip.max_tokens) == (16, 77)
    with pytest.raises(UsageError, match=r"248 is more than .* can read: ask for 77"):
        encode_texts(clip, ["a star"], max_length=248)


def test_pixels_equal_the_image_processors_exactly(clip: ClipEncoder, random_clip: Path) -> None:
    processor = CLIPImageProcessorPil.from_pretrained(random_clip)
    for image in pictures():
        expected = processor(images=image, return_tensors="pt")["pixel_values"][0]
        made = clip.pixels(image)
        assert torch.equal(made, expected)
        assert made.shape == (3, 32, 32)
        assert made.dtype == torch.float32


def test_pixels_by_hand(clip: ClipEncoder) -> None:
    """Shortest edge, bicubic, centre: without the library."""
    image = pictures()[1]  # 90 x 40
    resized = image.resize((72, 32), Image.Resampling.BICUBIC).crop((20, 0, 52, 32))
    values = np.asarray(resized).transpose(2, 0, 1) / 255
    mean = np.array([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    std = np.array([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    np.testing.assert_allclose(clip.pixels(image), (values - mean) / std, atol=1e-5)


def test_padding_never_changes_a_vector(clip: ClipEncoder) -> None:
    together = encode_texts(clip, TEXTS, max_length=77, batch_tokens=10_000).vectors
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(encode_texts(clip, [text], max_length=77).vectors[0], vector,
                                   atol=1e-5)  # fmt: skip
    ids, mask = pad(clip.tokenize(TEXTS, 77).ids, clip.pad_id)
    with torch.no_grad():
        other = clip.text_features(ids.masked_fill(mask == 0, 5), mask)
    np.testing.assert_allclose(other, together, atol=1e-5)


def test_what_a_cut_leaves_unread_is_told(clip: ClipEncoder) -> None:
    tokens = clip.tokenize(["Red star  and Red"], 4)
    assert tokens.tokens_lost == tokens.lengths[0] - 4
    assert clip.unread("Red star  and Red", 4) == "and Red"


def test_text_tensors_are_exactly_those_that_the_text_vector_uses(random_clip: Path) -> None:
    copy = load_encoder(random_clip, "cpu").requires_grad_(True)
    ids, mask = pad(copy.tokenize(TEXTS, 77).ids, copy.pad_id)
    copy.text_features(ids, mask).sum().backward()
    touched = {n for n, p in copy.model.named_parameters() if p.grad is not None}
    assert touched == set(copy.text_tensors())
    decayed = {n for n, p in copy.text_tensors().items() if decays(n, p)}
    assert "text_projection.weight" in decayed
    assert "text_model.encoder.layers.0.mlp.fc1.weight" in decayed
    assert not [n for n in decayed if "embedding" in n or "norm" in n or n.endswith("bias")]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_it_embeds_trains_evaluates_and_reloads(
    kind: str, world: Collection, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    encoder: ImageTextEncoder = request.getfixturevalue(kind)
    folder: Path = request.getfixturevalue(f"random_{kind}")
    images = embed(world, encoder, progress=False)
    assert images.vectors.shape == (len(world), encoder.dim)
    run = train(world, encoder, recipe="c5", out=tmp_path / "run", max_steps=1, batch_size=8,
                warmup_steps=0, learning_rate=1e-2, progress=False)  # fmt: skip
    assert np.isfinite(run.history[0]["loss"])
    assert run.encoder.vision_fingerprint == encoder.vision_fingerprint
    assert run.encoder.text_fingerprint != encoder.text_fingerprint
    again = embed(world, run.encoder, progress=False)
    assert again.computed == 0
    result = evaluate(world, run.encoder, texts="captions", max_length=60, progress=False)
    assert result.scores.images == 20
    before, after = (
        load_file(place / "model.safetensors") for place in (folder, run.folder / "checkpoint")
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert changed <= set(encoder.text_tensors())
    model, info = type(encoder.model).from_pretrained(
        run.folder / "checkpoint", output_loading_info=True
    )
    assert not any(info.values())
    assert all(torch.equal(model.state_dict()[name], after[name]) for name in after)


def test_the_older_layout_of_files_loads(random_clip: Path, clip: ClipEncoder,
                                         tmp_path: Path) -> None:  # fmt: skip
    """As in OpenAI's own folders: vocab.json and merges.txt, a bare size, a .bin file."""
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((random_clip / name).read_bytes())
    tokenizer = json.loads((random_clip / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(clip.tokenizer.get_vocab()))
    lines = [" ".join(pair) for pair in tokenizer["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n")
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    settings |= {"size": 32, "crop_size": 32, "feature_extractor_type": "CLIPFeatureExtractor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    state = load_file(random_clip / "model.safetensors")
    state["text_model.embeddings.position_ids"] = torch.arange(77)[None]
    torch.save(state, tmp_path / "pytorch_model.bin")
    other = load_encoder(tmp_path, "cpu")
    assert other.tokenize(TEXTS, 77).ids == clip.tokenize(TEXTS, 77).ids
    assert other.vision_fingerprint == clip.vision_fingerprint
    np.testing.assert_allclose(
        encode_texts(other, TEXTS, max_length=77).vectors,
        encode_texts(clip, TEXTS, max_length=77).vectors,
        atol=1e-6,
    )  # fmt: skip


def test_parts_of_other_models_are_refused(clip: ClipEncoder, random_clip: Path,
                                           clip_maker: Callable[..., Path],
                                           tmp_path: Path) -> None:  # fmt: skip
    processor = CLIPImageProcessorPil(crop_size={"height": 48, "width": 40})
    with pytest.raises(ParagrainError, match="makes 48 x 40 images but its image tower reads 32"):
        ClipEncoder(clip.model, processor, clip.tokenizer, "mixed")
    tokenizer = CLIPTokenizerFast.from_pretrained(random_clip)
    tokenizer.add_tokens(["one-more"])
    with pytest.raises(ParagrainError, match="has 520 entries but its text tower only 519"):
        ClipEncoder(clip.model, clip.image_processor, tokenizer, "mixed")
    folder = clip_maker(tmp_path / "clip")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 7
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParagrainError, match=r"looks for an end token of id 7 but .* writes 518"):
        load_encoder(folder)


def test_an_evaluation_without_a_max_length_takes_what_the_encoder_can_read(
    clip: ImageTextEncoder, world: Collection
) -> None:
    result = evaluate(world, clip, progress=False)
    assert result.about["protocol"]["max_length"] == 77
