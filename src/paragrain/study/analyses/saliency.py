"""Which parts of a picture and which words of a text their cosine hangs on.

Saliency is the length of the gradient of the cosine (Simonyan et al., arXiv 1312.6034): over the
pixels of a patch, as the image encoder gets them; and over the vector of a token, as the text
encoder looks it up. It tells how much the cosine would move if that part moved a little in the
worst direction, not whether the part speaks for or against the match. Shares sum to 1 over the
picture, and over all tokens of the text, special ones included.
"""

import base64
import io
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from paragrain import pages
from paragrain.encoders.base import ImageTextEncoder, pad
from paragrain.errors import UsageError
from paragrain.images import decode
from paragrain.study.analyses.gradients import watched
from paragrain.study.analyses.pairs import rounded
from paragrain.words import word_spans

SQUARE = 16
"""Side in pixels of a patch where an image encoder does not cut pictures into patches."""

_SHOWN = 240  # pixels across, of a picture on a page
_HEAT = (213, 94, 0)
_MOST = 0.7  # opacity of the most salient part: the ink can be read on it, light and dark
_TOP = 5


@dataclass(frozen=True)
class Word:
    """A word of a text: where it stands, and its share; None if it lies behind the length."""

    start: int
    end: int
    share: float | None


@dataclass(frozen=True, eq=False)
class Saliency:
    """What the cosine of one image and one text hangs on.

    Attributes:
        id: of the image.
        text: the whole text.
        tokens: the maximum length it was read with.
        cosine: of the pair.
        picture: uint8 [H, W, 3], what the image encoder sees.
        patches: float64 [rows, columns], shares that sum to 1.
        words: in order; a word of several word pieces has their sum.
        special: share of each token that stands for no word, by its name; "fill" for what the
            encoder fills short texts up with, if it reads that.
    """

    id: str
    text: str
    max_length: int
    cosine: float
    picture: np.ndarray
    patches: np.ndarray
    words: list[Word]
    special: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data; the picture as a PNG file in base64."""
        file = io.BytesIO()
        Image.fromarray(self.picture).save(file, "PNG")
        words = [[word.start, word.end, word.share] for word in self.words]
        picture = base64.b64encode(file.getvalue()).decode()
        return rounded({**vars(self), "picture": picture, "words": words})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Saliency":
        """What `as_dict` gave."""
        own = {
            "picture": np.asarray(decode(base64.b64decode(plain["picture"]))),
            "patches": np.array(plain["patches"], float),
            "words": [Word(*word) for word in plain["words"]],
        }
        return cls(**{**plain, **own})


def saliency(
    encoder: ImageTextEncoder, image: Image.Image, text: str, *, max_length: int, id: str = ""
) -> Saliency:
    """Differentiate the cosine of an image and a text.

    Args:
        encoder: any, with an image side that is there; it stays as it is.
        image: upright RGB, as `images.decode` gives it.
        text: is read up to `tokens` tokens.
        tokens: the maximum length.
        id: of the image, for the page.

    Raises:
        UsageError: the text has no words, or the maximum length is none.
        ParagrainError: the encoder does not tell where it looks tokens up.
    """
    if not text.strip():
        raise UsageError("a text without words has no salient words: choose another pair")
    row = encoder.tokenize([text], max_length).row(0)
    ids, mask = (part.to(encoder.device) for part in pad([row], encoder.pad_id))
    with watched(encoder) as leaves:
        pixels = encoder.pixels(image)[None].to(encoder.device).requires_grad_()
        cosine = (encoder.image_features(pixels) * encoder.text_features(ids, mask)).sum()
        to_pixels, to_tokens = torch.autograd.grad(cosine, [pixels, leaves[0]])
    by_token = to_tokens[0].norm(dim=-1).double().cpu().numpy()
    words, special = _by_word(encoder, text, row, _shares(by_token))
    patches = _shares(_by_patch(to_pixels[0].detach().double().cpu().numpy(), _side(encoder)))
    seen = _seen(encoder, pixels[0].detach().cpu().numpy())
    return Saliency(id, text, max_length, float(cosine.detach()), seen, patches, words, special)


def _shares(lengths: np.ndarray) -> np.ndarray:
    """Lengths as shares of their sum; all equal where nothing matters at all."""
    total = lengths.sum()
    shares: np.ndarray = lengths / total if total > 0 else np.full_like(lengths, 1 / lengths.size)
    return shares


def _by_patch(gradient: np.ndarray, side: int) -> np.ndarray:
    """Length [rows, columns] of a gradient [3, H, W] within each square of `side` pixels.

    What is left over at the right and at the bottom belongs to no patch.

    >>> gradient = np.zeros((3, 2, 4))
    >>> gradient[:, 0, 0], gradient[0, 1, 3] = (0, 3, 4), 2
    >>> _by_patch(gradient, 2)
    array([[5., 2.]])
    """
    _, height, width = gradient.shape
    rows, columns = height // side, width // side
    squares = gradient[:, : rows * side, : columns * side].reshape(3, rows, side, columns, side)
    lengths: np.ndarray = np.sqrt((squares**2).sum((0, 2, 4)))
    return lengths


def _side(encoder: ImageTextEncoder) -> int:
    """Side in pixels of the patches that the image encoder cuts a picture into."""
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:
            side = module.kernel_size[0]
            return side if module.stride[0] == side else SQUARE
    return SQUARE


def _seen(encoder: ImageTextEncoder, pixels: np.ndarray) -> np.ndarray:
    """uint8 [H, W, 3]: preprocessed pixels [3, H, W] as a picture again."""
    settings = encoder.preprocessing()
    if settings["do_normalize"]:
        mean, deviation = (
            np.asarray(settings[name]).reshape(-1, 1, 1) for name in ("image_mean", "image_std")
        )
        pixels = pixels * deviation + mean
    picture: np.ndarray = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    return picture


def _by_word(
    encoder: ImageTextEncoder, text: str, row: np.ndarray, shares: np.ndarray
) -> tuple[list[Word], dict[str, float]]:
    """Shares [L] of the tokens of a row, and of what fills it up, joined to words."""
    spans = encoder.token_spans(text)
    if len(spans) > len(row):
        spans = [*spans[: len(row) - 1], spans[-1]]  # as `Tokens.row` cuts
    words = word_spans(text)
    ends = [end for _, end in words]
    own = np.zeros(len(words))
    special: dict[str, float] = {}
    names = encoder.tokenizer.convert_ids_to_tokens(row.tolist())
    for (start, end), name, share in zip(spans, names, shares.tolist(), strict=False):
        if start == end:
            special[name] = special.get(name, 0.0) + share
        else:  # by its last letter: a word piece may begin with the space before it
            own[min(bisect_right(ends, end - 1), len(words) - 1)] += share
    if len(shares) > len(row):
        special["fill"] = float(shares[len(row) :].sum())
    last = max((end for start, end in spans if end > start), default=0)
    return [
        Word(start, end, float(share) if start < last else None)
        for (start, end), share in zip(words, own, strict=True)
    ], special


# --- The page ---------------------------------------------------------------------------------


def saliency_html(found: Mapping[str, Saliency]) -> str:
    """One pair as several models see it: the picture, heat maps, and the text with shaded words.

    Args:
        found: by model; all of the same image and text.

    Returns:
        HTML for `pages.page`, everything escaped.
    """
    first = next(iter(found.values()))
    plain = Image.fromarray(first.picture)
    parts = [_picture(_enlarged(plain), first.id, "the picture, as it is seen")]
    for name, one in found.items():
        told = f"{name}, cosine {one.cosine:.3f}"
        parts.append(_picture(_heated(one), f"where {name} looks", told))
    texts = "".join(_shaded(name, one) for name, one in found.items())
    return f"<div class=heat>{''.join(parts)}</div><div class=shaded>{texts}</div>"


def _shaded(name: str, found: Saliency) -> str:
    """A text whose words are the darker the larger their share, and the largest in numbers."""
    most = max((word.share or 0.0 for word in found.words), default=0.0) or 1.0
    pieces, last = [], 0
    for word in found.words:
        pieces.append(pages.text(found.text[last : word.start]))
        inside = pages.text(found.text[word.start : word.end])
        if word.share is None:
            pieces.append(f"<s>{inside}</s>")
        else:
            red, green, blue = _HEAT
            shade = f"rgba({red},{green},{blue},{_MOST * word.share / most:.2f})"
            title = f"{100 * word.share:.1f} %"
            pieces.append(f"<mark style='background:{shade}' title='{title}'>{inside}</mark>")
        last = word.end
    ranked = sorted((w for w in found.words if w.share), key=lambda w: -(w.share or 0.0))
    told = [f"{found.text[w.start : w.end]} {100 * (w.share or 0):.1f} %" for w in ranked[:_TOP]]
    rest = [f"{token} {100 * share:.1f} %" for token, share in found.special.items()]
    unread = f" Struck out: not read, with a maximum length of {found.max_length} tokens."
    note = f"Most: {', '.join(told)}. Tokens that are no words: {', '.join(rest) or 'none'}."
    note += unread if any(word.share is None for word in found.words) else ""
    return f"<p><b>{pages.text(name)}</b> {''.join(pieces)}</p>{pages.paragraph(note, dim=True)}"


def _picture(image: Image.Image, alt: str, caption: str) -> str:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=85)
    shown = pages.picture(data.getvalue(), "image/jpeg", alt)
    return f"<figure>{shown}<figcaption>{pages.text(caption)}</figcaption></figure>"


def _enlarged(image: Image.Image) -> Image.Image:
    """A small picture made large enough to be looked at."""
    height = round(_SHOWN * image.height / image.width)
    return image.resize((_SHOWN, height), Image.Resampling.LANCZOS)


def _heated(found: Saliency) -> Image.Image:
    """The picture in pale grey, its patches in vermilion by their share."""
    grey = _enlarged(Image.fromarray(found.picture)).convert("L").convert("RGB")
    pale = np.asarray(grey, np.float64) * 0.6 + 255 * 0.4
    strength = found.patches / max(found.patches.max(), 1e-12)
    rows, columns = found.patches.shape
    # The patches cover what they cover: a remainder at the edges belongs to none.
    height, width = pale.shape[:2]
    side_y, side_x = (
        np.minimum(np.arange(size) * parts // size, parts - 1)
        for size, parts in ((height, rows), (width, columns))
    )
    alpha = (_MOST + 0.15) * strength[side_y][:, side_x, None]
    mixed = (1 - alpha) * pale + alpha * np.array(_HEAT)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))
