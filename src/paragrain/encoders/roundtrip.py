"""Whether what is trained will come back as itself."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.checkpoint import is_own
from paragrain.encoders.encoding import encode_images, encode_texts
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.weights import first_line
from paragrain.errors import ParagrainError, UsageError

LONG = 512
"""The longest text that is tried, in tokens: enough to be truncated at any usual maximum length."""

_SENTENCE = "Two dogs stand on a wet beach, and one of them has a stick in its mouth. "
_TEXTS = ("a red bus", _SENTENCE, _SENTENCE * 40)


def check_returns(encoder: ImageTextEncoder) -> None:
    """Refuse an encoder whose checkpoint would open as another one, before anything is trained.

    The classes of this package are known to return, unless one has a method of its own put in
    place of the class's. Any other is saved and opened once.

    Raises:
        UsageError: it would not return as itself.
    """
    parts = encoder.parts()
    foreign = [type(part).__name__ for part in parts if not is_own(part) or _is_patched(part)]
    if not foreign:
        return
    try:
        with tempfile.TemporaryDirectory() as place:
            encoder.save(Path(place) / "checkpoint")
            again = load_encoder(Path(place) / "checkpoint", encoder.device)
            why = _difference(encoder, again)
    except ParagrainError as error:
        why = str(error)
    except Exception as error:  # of the other package's code
        why = first_line(error)
    if why:
        raise UsageError(
            f"a checkpoint of {encoder.name} would not open as {foreign[0]} again ({why}): "
            "register the class with paragrain.register_encoder, and let it save and load all "
            "that decides its vectors"
        )


def _difference(encoder: ImageTextEncoder, again: ImageTextEncoder) -> str:
    """In what an encoder that was saved and opened differs, in words; "" if in nothing."""
    if type(encoder).__qualname__ != type(again).__qualname__:
        return f"it opens as {type(again).__name__}"
    tokens = min(encoder.max_tokens, again.max_tokens, LONG)
    before, after = (
        encode_texts(one, _TEXTS, max_length=tokens).vectors for one in (encoder, again)
    )
    if not np.allclose(before, after, atol=1e-4):
        return "its texts get other vectors"
    if encoder.reads_images:
        before, after = (encode_images(one, _picture()) for one in (encoder, again))
        if not np.allclose(before, after, atol=1e-4):
            return "its images get other vectors"
    if encoder.text_fingerprint != again.text_fingerprint:
        return "its text tower has other weights or settings"
    if encoder.vision_fingerprint != again.vision_fingerprint:
        return "its image tower has other weights or settings"
    return ""


def _is_patched(part: object) -> bool:
    """Whether an object holds something in the place of a method of its class."""
    return any(callable(getattr(type(part), name, None)) for name in vars(part))


def _picture() -> Image.Image:
    """A picture that is no mirror image of itself, and has no two regions alike."""
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
