"""Pictures to the numbers that a vision model reads: those of its image processor, made faster."""

from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.image_processing_backends import PilBackend

from paragrain.images import MAX_PIXELS, BadImage

_STEPS = (
    *("process_image", "convert_to_rgb", "preprocess", "_preprocess"),
    *("resize", "center_crop", "rescale", "normalize"),
)


class Pixels:
    """What an image processor makes of one upright RGB picture, at half its cost or less.

    The numbers are the very same. Pillow resizes and crops the picture itself, not a copy of a
    copy; after that, each of the 256 values of a channel becomes one number, which is looked up.
    A processor that pads, crops what was not resized, resizes by other rules than a fixed size or
    the shortest edge, or is not of the library's Pillow kind does its work itself.

    Args:
        processor: an image processor of `transformers`.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        resizes = getattr(processor, "do_resize", None)
        self._size = _plain(getattr(processor, "size", None)) if resizes else {}
        crops = getattr(processor, "do_center_crop", None)
        self._crop = _plain(getattr(processor, "crop_size", None)) if crops else {}
        self._values = self._looked_up() if self._is_covered(bool(crops)) else None

    def _is_covered(self, crops: bool) -> bool:
        processor = self._processor
        return (
            isinstance(processor, PilBackend)
            and all(getattr(type(processor), s) is getattr(PilBackend, s) for s in _STEPS)
            and not getattr(processor, "do_pad", None)
            and isinstance(processor.resample, int)
            and set(self._size) in ({"height", "width"}, {"shortest_edge"})
            and set(self._crop) == ({"height", "width"} if crops else set())
        )

    def _looked_up(self) -> np.ndarray:
        """What the processor makes of each byte of each channel: float32 `[3, 256]`."""
        ramp = Image.fromarray(np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2))
        made = self._processor(
            images=ramp, do_resize=False, do_center_crop=False, return_tensors="np"
        )
        return made["pixel_values"][0][:, 0].astype(np.float32)

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """Float32 `[3, H, W]` of an upright RGB picture. Safe to call from threads.

        Raises:
            BadImage: it is so narrow that its resized copy would have more than
                `images.MAX_PIXELS` pixels.
        """
        width, height = self._resized(image)
        if width * height > MAX_PIXELS:
            raise BadImage(
                f"too narrow ({image.width} x {image.height}): resized it would have "
                f"{width * height:,} pixels; the limit is {MAX_PIXELS:,}"
            )
        left, top, right, bottom = self._box(width, height)
        if self._values is None or min(left, top) < 0:
            made = self._processor(images=image, return_tensors="pt")["pixel_values"][0]
            return made if made.is_floating_point() else made.float()
        resized = image.resize((width, height), self._processor.resample)
        bytes_ = np.asarray(resized.crop((left, top, right, bottom)))
        planes = np.empty((3, bottom - top, right - left), np.float32)
        for channel, table in enumerate(self._values):
            # "clip" lets numpy write where it is told without looking twice; no byte is over 255.
            np.take(table, bytes_[..., channel], out=planes[channel], mode="clip")
        return torch.from_numpy(planes)

    def _resized(self, image: Image.Image) -> tuple[int, int]:
        """Width and height once resized; the picture's own where no rule is known."""
        if set(self._size) == {"shortest_edge"}:
            edge = self._size["shortest_edge"]
            short, long = sorted(image.size)
            longer = int(edge * long / short)
            return (edge, longer) if image.width <= image.height else (longer, edge)
        if set(self._size) == {"height", "width"}:
            return self._size["width"], self._size["height"]
        return image.size

    def _box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of the crop; below 0 where the picture is too small."""
        wide, high = self._crop.get("width", width), self._crop.get("height", height)
        left, top = (width - wide) // 2, (height - high) // 2
        return left, top, left + wide, top + high


def _plain(size: Any) -> dict[str, Any]:
    """The entries of a size that say something."""
    return {} if size is None else {name: value for name, value in dict(size).items() if value}
