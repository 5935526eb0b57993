from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers.processors import TemplateProcessing
from transformers import AutoProcessor, BlipForImageTextRetrieval

from paragrain.encoders import BlipEncoder, encode_images, encode_texts, load_encoder
from paragrain.encoders.base import pad
from paragrain.errors import ParagrainError

TEXTS = [
    "a red circle",
    "A photograph of a star, above; below!",
    "",
    "the blue square on the left of a green circle and to the right of a star " * 3,
]


def test_vectors_equal_the_models_own_similarity(
    blip: BlipEncoder, random_blip: Path, shared: Path
) -> None:
    """Every number comes by another way: plain transformers, its processor, a real photograph."""
    model = BlipForImageTextRetrieval.from_pretrained(random_blip)
    processor = AutoProcessor.from_pretrained(random_blip)
    paths = sorted((shared / "photos" / "images").glob("*.jpg"))[:3]
    photos = [Image.open(path).convert("RGB") for path in paths]
    ours = encode_images(blip, photos) @ encode_texts(blip, TEXTS, max_length=512).vectors.T
    for row, photo in enumerate(photos):
        for column, text in enumerate(TEXTS):
            inputs = processor(images=photo, text=text, return_tensors="pt")
            with torch.no_grad():
                score = model(**inputs, use_itm_head=False).itm_score.item()
            assert ours[row, column] == pytest.approx(score, abs=1e-5)
    inputs = processor(images=photos, text=TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(**inputs, use_itm_head=False).itm_score.numpy()
    np.testing.assert_allclose(ours, scores, atol=1e-5)
    assert ours.std() > 1e-3  # else anything would agree


@pytest.mark.parametrize("size", [(32, 32), (1, 1), (7, 300), (500, 3), (640, 480)])
def test_pixels_equal_the_image_processors(
    blip: BlipEncoder, random_blip: Path, size: tuple[int, int]
) -> None:
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(values)
    processor = AutoProcessor.from_pretrained(random_blip).image_processor
    expected = processor(images=image, return_tensors="pt")["pixel_values"][0]
    made = blip.pixels(image)
    assert torch.equal(made, expected)
    assert made.dtype == torch.float32
    assert made.is_contiguous()


def test_pixels_follow_the_processors_settings(blip: BlipEncoder) -> None:
    processor = type(blip.image_processor)(
        size={"height": 32, "width": 32}, resample=2, do_normalize=False, rescale_factor=1 / 128
    )
    other = BlipEncoder(blip.model, processor, blip.tokenizer, "other")
    image = Image.fromarray(
        np.arange(60 * 50 * 3, dtype=np.uint32).astype(np.uint8).reshape(60, 50, 3)
    )
    expected = processor(images=image, return_tensors="pt")["pixel_values"][0]
    assert torch.equal(other.pixels(image), expected)


def test_text_tensors_are_exactly_those_that_contrast_uses(random_blip: Path) -> None:
    copy = load_encoder(random_blip, device="cpu").requires_grad_(True)
    ids, mask = pad(copy.tokenize(TEXTS, 64).ids, copy.pad_id)
    weights = torch.randn(len(TEXTS), copy.dim, generator=torch.Generator().manual_seed(0))
    (copy.text_features(ids, mask) * weights).sum().backward()
    touched = {
        name
        for name, parameter in copy.model.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().sum() > 0
    }
    assert touched == set(copy.text_tensors())
    names = " ".join(touched)
    assert "crossattention" not in names
    assert "itm_head" not in names


def test_vectors_stay_float32_of_unit_length_under_autocast(blip: BlipEncoder) -> None:
    ids, mask = pad(blip.tokenize(TEXTS, 64).ids, blip.pad_id)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        vectors = blip.text_features(ids, mask)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(TEXTS)))


def test_a_tokenizer_of_another_model_is_refused(random_blip: Path) -> None:
    encoder = load_encoder(random_blip, device="cpu")
    encoder.tokenizer.add_tokens(["one-more"])
    with pytest.raises(ParagrainError, match="has 120 entries but its text tower only 119"):
        BlipEncoder(encoder.model, encoder.image_processor, encoder.tokenizer, "mixed")
    encoder = load_encoder(random_blip, device="cpu")
    encoder.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$0 [SEP]", special_tokens=[("[SEP]", 3)]
    )
    with pytest.raises(ParagrainError, match=r"does not frame a text with \[CLS\] and \[SEP\]"):
        BlipEncoder(encoder.model, encoder.image_processor, encoder.tokenizer, "mixed")


def test_an_image_processor_of_another_size_is_refused(blip: BlipEncoder) -> None:
    processor = type(blip.image_processor)(size={"height": 384, "width": 384})
    with pytest.raises(ParagrainError, match="384 x 384 images but its image tower reads 32 x 32"):
        BlipEncoder(blip.model, processor, blip.tokenizer, "mixed")
