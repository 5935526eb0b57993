"""Whether what is trained will come back as itself."""

import tempfile
from pathlib import Path

import numpy as np

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.encoding import encode_texts
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.note import is_own
from paragrain.encoders.pair import PairEncoder
from paragrain.encoders.vision import EncoderVision
from paragrain.errors import ParagrainError, UsageError


def check_returns(encoder: ImageTextEncoder) -> None:
    """Refuse an encoder whose checkpoint would open as another one, before anything is trained.

    The classes of this package are known to return. Any other is saved and opened once.

    Raises:
        UsageError: it would not return as itself.
    """
    parts: list[object] = [encoder]
    if isinstance(encoder, PairEncoder):
        vision = encoder.model.vision
        parts += [encoder.model.text, vision]
        parts += [vision.encoder] if isinstance(vision, EncoderVision) else []
    foreign = [type(part).__name__ for part in parts if not is_own(part)]
    if not foreign:
        return
    try:
        with tempfile.TemporaryDirectory() as place:
            encoder.save(Path(place) / "checkpoint")
            again = load_encoder(Path(place) / "checkpoint", encoder.device)
            why = _difference(encoder, again)
    except ParagrainError as error:
        why = str(error)
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
    texts = ["a red bus", "two dogs on a wet beach, one of them with a stick in its mouth"]
    before, after = (encode_texts(one, texts).vectors for one in (encoder, again))
    if not np.allclose(before, after, atol=1e-4):
        return "its texts get other vectors"
    if encoder.text_fingerprint != again.text_fingerprint:
        return "its text side has other weights or settings"
    if encoder.vision_fingerprint != again.vision_fingerprint:
        return "its image side has other weights or settings"
    return ""
