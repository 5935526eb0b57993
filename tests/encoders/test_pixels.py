"""The fast way to pixels gives the numbers of the library's image processors, bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from paragrain.encoders import ClipEncoder, encode_images, pixels
from paragrain.encoders.pixels import Pixels
from paragrain.images import BadImage

PROCESSORS = {
    "CLIP": CLIPImageProcessorPil(),
    "CLIP, odd": CLIPImageProcessorPil(size={"shortest_edge": 47}, crop_size=31, resample=2),
    "CLIP, wide": CLIPImageProcessorPil(
        size={"shortest_edge": 40}, crop_size={"height": 24, "width": 40}, image_mean=0.5
    ),
    "CLIP, not cropped": CLIPImageProcessorPil(size={"shortest_edge": 33}, do_center_crop=False),
    "CLIP, not scaled": CLIPImageProcessorPil(size={"shortest_edge": 33}, do_rescale=False),
    "SigLIP": SiglipImageProcessorPil(size={"height": 40, "width": 30}),
    "BLIP": BlipImageProcessorPil(size={"height": 24, "width": 50}),
}
LIBRARY_ONLY = {
    "padded crop": CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size=41),
    "longest edge": CLIPImageProcessorPil(
        size={"shortest_edge": 20, "longest_edge": 30}, do_center_crop=False
    ),
    "not resized": CLIPImageProcessorPil(do_resize=False, crop_size=20),
    "padded": BlipImageProcessorPil(
        size={"height": 20, "width": 20}, do_pad=True, pad_size={"height": 25, "width": 22}
    ),
    "nothing at all": BlipImageProcessorPil(do_resize=False, do_rescale=False, do_normalize=False),
}


def picture(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width * 7919 + height).integers(0, 256, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


def same(processor: Any, image: Image.Image) -> None:
    theirs = processor(images=image, return_tensors="pt")["pixel_values"][0]
    ours = Pixels(processor)(image)
    assert ours.dtype == torch.float32
    assert ours.is_contiguous()
    assert torch.equal(ours, theirs.float())


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 130), height=st.integers(1, 130))
@example(1, 1)
@example(2, 2)
@example(1, 300)
@example(300, 1)
@example(224, 224)
@example(224, 337)
@example(501, 224)
@example(47, 47)
def test_bit_for_bit_at_any_size(name: str, width: int, height: int) -> None:
    processor = PROCESSORS[name]
    assert Pixels(processor)._values is not None  # the fast way, not the library's
    same(processor, picture(width, height))


def test_the_longest_shapes_too() -> None:
    for size in [(1, 1000), (1000, 1), (690, 15420)]:
        same(PROCESSORS["CLIP, odd"], picture(*size))


@pytest.mark.parametrize("name", LIBRARY_ONLY)
@pytest.mark.parametrize("size", [(50, 40), (9, 31)])
def test_what_the_fast_way_does_not_cover_is_left_to_the_library(
    name: str, size: tuple[int, int]
) -> None:
    same(LIBRARY_ONLY[name], picture(*size))


def test_a_processor_with_steps_of_its_own_is_left_to_the_library() -> None:
    class Inverted(CLIPImageProcessorPil):
        def rescale(self, image: np.ndarray, scale: float, **_: Any) -> np.ndarray:
            return 1 - super().rescale(image, scale)

    same(Inverted(), picture(60, 50))


def test_a_hair_of_a_picture_is_refused_before_it_takes_all_memory(
    clip: ClipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 x 1,000,000 pixels are few; with the shorter side at 224 they would be 50 billion."""
    monkeypatch.setattr(Image.Image, "resize", lambda *_, **__: pytest.fail("it was resized"))
    hair = Image.new("RGB", (1, 1_000_000))
    with pytest.raises(BadImage, match=r"too narrow \(1 x 1000000\): .* 1,024,000,000 pixels"):
        encode_images(clip, [hair])
    monkeypatch.setattr(pixels, "MAX_PIXELS", 32 * 64 - 1)
    with pytest.raises(BadImage, match="the limit is 2,047"):
        clip.pixels(Image.new("RGB", (3, 6)))
