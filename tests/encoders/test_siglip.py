import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Siglip2Tokenizer, SiglipModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from paragrain.encoders import SiglipEncoder, encode_images, encode_texts, load_encoder
from paragrain.encoders.base import pad
from paragrain.errors import ParagrainError

TEXTS = ["a red star", "Star", "", "red red red", "a blue square on the left of a star " * 5]


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def test_vectors_equal_the_librarys_own_with_texts_padded_to_the_full(
    siglip: SiglipEncoder, random_siglip: Path
) -> None:
    model = SiglipModel.from_pretrained(random_siglip)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(random_siglip)
    inputs = tokenizer(TEXTS, padding="max_length", truncation=True, return_tensors="pt")
    assert list(inputs) == ["input_ids"]  # published checkpoints ask for no mask
    random = np.random.default_rng(0)
    sizes = [(32, 32), (90, 40), (3, 1)]
    images = [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    pixels = SiglipImageProcessorPil.from_pretrained(random_siglip)(images, return_tensors="pt")
    with torch.no_grad():
        theirs = model.get_text_features(**inputs).pooler_output
        theirs_images = model.get_image_features(**pixels).pooler_output
    ours = encode_texts(siglip, TEXTS, max_length=64)
    np.testing.assert_allclose(ours.vectors, unit(theirs), atol=1e-5)
    np.testing.assert_allclose(encode_images(siglip, images), unit(theirs_images), atol=1e-5)
    assert torch.equal(siglip.pixels(images[1]), pixels["pixel_values"][1])
    assert ours.tokens.texts_truncated == 1
    assert {row[-1] for row in ours.tokens.ids} == {tokenizer.eos_token_id}
    assert (siglip.dim, siglip.max_tokens) == (64, 64)

    # Padded to the longest of a batch alone, the library itself gives other vectors.
    short = tokenizer(TEXTS[:4], padding=True, return_tensors="pt")
    with torch.no_grad():
        other = unit(model.get_text_features(**short).pooler_output)
    assert (other * ours.vectors[:4]).sum(axis=1).min() < 0.99


def test_the_rest_of_a_batch_never_changes_a_vector(siglip: SiglipEncoder) -> None:
    together = encode_texts(siglip, TEXTS, max_length=64, batch_tokens=10_000).vectors
    for text, vector in zip(TEXTS, together, strict=True):
        alone = encode_texts(siglip, [text], max_length=64).vectors[0]
        np.testing.assert_allclose(alone, vector, atol=1e-5)
    ids, mask = pad(siglip.tokenize(TEXTS, 64).ids, siglip.pad_id)
    with torch.no_grad():  # whatever stands under the mask
        other = siglip.text_features(ids.masked_fill(mask == 0, 7), mask)
    np.testing.assert_allclose(other, together, atol=1e-5)


def test_batches_count_the_fill(siglip: SiglipEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    features = siglip.text_features

    def counted(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows.append(len(ids))
        return features(ids, mask)

    monkeypatch.setattr(siglip, "text_features", counted)
    texts = ["a" * count for count in range(1, 11)]
    encode_texts(siglip, texts, max_length=64, batch_tokens=4 * 64)
    assert rows == [4, 4, 2]


def test_text_tensors_are_exactly_those_that_the_text_vector_uses(random_siglip: Path) -> None:
    copy = load_encoder(random_siglip, "cpu").requires_grad_(True)
    names = dict(copy.model.named_parameters())
    ids, mask = pad(copy.tokenize(TEXTS, 64).ids, copy.pad_id)
    copy.text_features(ids, mask).sum().backward()
    assert {n for n, p in names.items() if p.grad is not None} == set(copy.text_tensors())
    copy.model.zero_grad()
    copy.image_features(torch.zeros(1, 3, 32, 32)).sum().backward()
    assert {n for n, p in names.items() if p.grad is not None} == set(copy.vision_tensors())


def test_a_folder_as_published_loads_without_sentencepiece(
    random_siglip: Path, siglip: SiglipEncoder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_siglip, tmp_path / "siglip"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "SiglipTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    encoder = load_encoder(folder, "cpu")
    assert encoder.text_fingerprint == siglip.text_fingerprint
    assert encoder.pad_id == 1
    (folder / "tokenizer.json").unlink()
    (folder / "spiece.model").write_bytes(b"x")
    with pytest.raises(ParagrainError, match=r"lacks its tokenizer: .* tokenizer\.json beside"):
        load_encoder(folder)


def test_parts_of_other_models_are_refused(siglip: SiglipEncoder, random_siglip: Path) -> None:
    processor = SiglipImageProcessorPil(size={"height": 48, "width": 48})
    with pytest.raises(ParagrainError, match="48 x 48 images but its image tower reads 32 x 32"):
        SiglipEncoder(siglip.model, processor, siglip.tokenizer, "mixed")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(random_siglip)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <unk>", special_tokens=[("<unk>", 0)]
    )
    with pytest.raises(ParagrainError, match="does not close a text with its end token </s>"):
        SiglipEncoder(siglip.model, siglip.image_processor, tokenizer, "mixed")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(random_siglip)
    tokenizer.pad_token = None
    with pytest.raises(ParagrainError, match="names no pad token"):
        SiglipEncoder(siglip.model, siglip.image_processor, tokenizer, "mixed")


def make_siglip2(
    gemma_tokenizer: Callable[..., int],
    folder: Path,
    source: Path,
    says: dict,
    *,
    lower: bool = False,
) -> Path:
    """A tiny SigLIP with Gemma's kind of tokenizer, whose file does not lower-case."""
    shutil.copytree(source, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    pieces = gemma_tokenizer(folder, says, lower=lower)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["vocab_size"] = pieces
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    table = "text_model.embeddings.token_embedding.weight"
    torch.manual_seed(5)
    weights[table] = torch.randn(pieces, weights[table].shape[1])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


RED_BUSES = ["A RED Bus", "  two  spaces ", "Red!", "", "ABC " * 40]


@pytest.mark.parametrize("side", ["left", "right", None])
@pytest.mark.parametrize("named", ["Siglip2Tokenizer", "GemmaTokenizer", "GemmaTokenizerFast"])
def test_siglip_2_reads_as_its_own_tokenizer_does(
    named: str,
    side: str | None,
    random_siglip: Path,
    gemma_tokenizer: Callable[..., int],
    tmp_path: Path,
) -> None:
    """Lower-casing is in that class, not in the file; and so is where texts are filled up."""
    says = {"tokenizer_class": named} | ({"padding_side": side} if side else {})
    folder = make_siglip2(gemma_tokenizer, tmp_path / "siglip2", random_siglip, says)
    theirs = Siglip2Tokenizer.from_pretrained(folder)
    ours = load_encoder(folder, "cpu")
    options = {"padding": "max_length", "truncation": True, "max_length": 64}
    ids = theirs(RED_BUSES, return_tensors="pt", **options)["input_ids"]
    assert ours.tokenize(RED_BUSES, 64).ids == theirs(
        RED_BUSES, truncation=True, max_length=64
    )["input_ids"]  # fmt: skip
    assert ours.token_ids("A RED Bus") == ours.token_ids("a red bus")
    model = SiglipModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = unit(model.text_model(input_ids=ids).pooler_output)
    np.testing.assert_allclose(encode_texts(ours, RED_BUSES).vectors, expected, atol=1e-5)
    ours.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out", "cpu")
    assert again.text_fingerprint == ours.text_fingerprint
    plain = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert torch.equal(plain(RED_BUSES, return_tensors="pt", **options)["input_ids"], ids)


@pytest.mark.parametrize("lower", [True, False])
def test_lower_casing_is_added_once_and_can_be_refused(
    lower: bool,
    random_siglip: Path,
    gemma_tokenizer: Callable[..., int],
    tmp_path: Path,
) -> None:
    folder = make_siglip2(gemma_tokenizer, tmp_path / "a", random_siglip, {}, lower=lower)
    assert load_encoder(folder).token_ids("RED") == load_encoder(folder).token_ids("red")
    kept = make_siglip2(
        gemma_tokenizer, tmp_path / "b", random_siglip, {"do_lower_case": False}, lower=lower
    )
    encoder = load_encoder(kept)
    assert (encoder.token_ids("RED") == encoder.token_ids("red")) is lower
