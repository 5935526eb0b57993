"""Which parts of a picture and which words of a text their cosine hangs on.

Saliency is the length of the gradient of the cosine (Simonyan et al., arXiv 1312.6034): over the
pixels of a patch, as the image encoder gets them; and over the vector of a token, as the text
encoder looks it up. It tells how much the cosine would move if that part moved a little in the
worst direction, not whether the part speaks for or against the match. Shares sum to 1 over the
picture, and over all tokens of the text, special ones included.
"""

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import PreTrainedModel

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, pad
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import decode
from paragrain.pages import Block, Gallery, Heading, OnPage, Picture, Shaded, Text
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.plan import Study
from paragrain.words import word_spans

SQUARE = 16
"""Side in pixels of a patch where an image encoder does not cut pictures into patches."""

_SHOWN = 240  # pixels across, of a picture on a page
_HEAT = (213, 94, 0)
_MOST = 0.7  # opacity of the most salient part: the ink can be read on it, light and dark
_TOP = 5


@dataclass(frozen=True)
class Word:
    """A word of a text: where it stands, and its share; None if it is behind the length."""

    start: int
    end: int
    share: float | None


@dataclass(frozen=True, eq=False)
class Saliency:
    """What the cosine of one image and one text hangs on.

    Attributes:
        id: of the image.
        text: the whole text.
        max_length: that it was read with.
        cosine: of the pair.
        picture: PNG file of what the image encoder sees.
        patches: float64 [rows, columns], shares that sum to 1.
        words: in order; a word of several word pieces has their sum.
        special: share of each token that stands for no word, by its name; "fill" for what the
            encoder fills short texts up with, if it reads that.
    """

    id: str
    text: str
    max_length: int
    cosine: float
    picture: bytes
    patches: np.ndarray
    words: list[Word]
    special: dict[str, float]


def input_embeddings(encoder: ImageTextEncoder) -> nn.Embedding:
    """The table in which the text side of an encoder looks its token ids up.

    Raises:
        ParagrainError: no model inside says which table that is.
    """
    parts = [getattr(encoder, "text", None), encoder.model]
    for module in (module for part in parts if part is not None for module in part.modules()):
        if not isinstance(module, PreTrainedModel):
            continue
        try:
            found = module.get_input_embeddings()
        except NotImplementedError:
            continue
        if isinstance(found, nn.Embedding):
            return found
    raise ParagrainError(
        f"{encoder.name} does not say where its text encoder looks tokens up, so nothing can be "
        "told of single tokens: use a Hugging Face text encoder"
    )


@contextmanager
def watched(encoder: ImageTextEncoder) -> Iterator[list[torch.Tensor]]:
    """Gradients on and dropout off while the block runs; yields the token vectors it looks up.

    Each call of `text_features` adds one tensor [B, L, H] to the list, of which gradients can be
    asked; L counts what the encoder fills texts up with. Weights get no gradients of this.
    """
    leaves: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1].clone()  # some models add to it in place

    handle = input_embeddings(encoder).register_forward_hook(keep)
    training = encoder.training
    encoder.eval()
    try:
        with torch.enable_grad():
            yield leaves
    finally:
        handle.remove()
        encoder.train(training)


def saliency(
    encoder: ImageTextEncoder, image: Image.Image, text: str, *, max_length: int, id: str = ""
) -> Saliency:
    """Differentiate the cosine of an image and a text.

    Args:
        encoder: any, with an image side that is there; it stays as it is.
        image: upright RGB, as `images.decode` gives it.
        text: is read up to `max_length` tokens.
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


def _seen(encoder: ImageTextEncoder, pixels: np.ndarray) -> bytes:
    """Preprocessed pixels [3, H, W] as a picture again, a PNG file."""
    settings = encoder.preprocessing()
    if settings["do_normalize"]:
        mean, deviation = (
            np.asarray(settings[name]).reshape(-1, 1, 1) for name in ("image_mean", "image_std")
        )
        pixels = pixels * deviation + mean
    whole = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    return _file(Image.fromarray(whole), "PNG")


def _file(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, quality=85)
    return file.getvalue()


def read_spans(encoder: ImageTextEncoder, text: str, row: np.ndarray) -> list[tuple[int, int]]:
    """Start and end in `text` of each token of its row, which may be truncated to its end token."""
    spans = encoder.token_spans(text)
    return spans if len(spans) <= len(row) else [*spans[: len(row) - 1], spans[-1]]


def _by_word(
    encoder: ImageTextEncoder, text: str, row: np.ndarray, shares: np.ndarray
) -> tuple[list[Word], dict[str, float]]:
    """Shares [L] of the tokens of a row, and of what fills it up, joined to words."""
    spans = read_spans(encoder, text, row)
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


# --- In a study -------------------------------------------------------------------------------


def saliency_blocks(found: Mapping[str, Saliency]) -> Iterator[Block]:
    """One pair as several models see it: the picture, heat maps, and the text with shaded words.

    Args:
        found: by the title of the model; all of the same image and text.
    """
    first = next(iter(found.values()))
    plain = _enlarged(first)
    pictures = [Picture(_file(plain, "JPEG"), first.id, ["the picture, as it is seen"])]
    for name, one in found.items():
        told = f"{name}, cosine {one.cosine:.3f}"
        pictures.append(Picture(_file(_heated(one), "JPEG"), f"where {name} looks", [told]))
    yield Gallery(pictures, large=True)
    for name, one in found.items():
        yield Shaded(name, _parts(one), _HEAT)
        yield Text(_in_numbers(one), dim=True)


def _parts(found: Saliency) -> list[tuple[str, float | None, str]]:
    """The text in parts, its words the darker the larger their share."""
    most = max((word.share or 0.0 for word in found.words), default=0.0) or 1.0
    parts: list[tuple[str, float | None, str]] = []
    last = 0
    for word in found.words:
        parts.append((found.text[last : word.start], 0.0, ""))
        inside, share = found.text[word.start : word.end], word.share
        strength = None if share is None else _MOST * share / most
        parts.append((inside, strength, "" if share is None else f"{100 * share:.1f} %"))
        last = word.end
    return parts


def _in_numbers(found: Saliency) -> str:
    ranked = sorted((w for w in found.words if w.share), key=lambda w: -(w.share or 0.0))
    words = [f"{found.text[w.start : w.end]} {100 * (w.share or 0):.1f} %" for w in ranked[:_TOP]]
    rest = [f"{token} {100 * share:.1f} %" for token, share in found.special.items()]
    note = f"Most: {', '.join(words)}. Tokens that are no words: {', '.join(rest) or 'none'}."
    if any(word.share is None for word in found.words):
        note += f" Struck out: not read, with a maximum length of {found.max_length} tokens."
    return note


def _enlarged(found: Saliency) -> Image.Image:
    """A small picture made large enough to be looked at."""
    image = decode(found.picture)
    height = round(_SHOWN * image.height / image.width)
    return image.resize((_SHOWN, height), Image.Resampling.LANCZOS)


def _heated(found: Saliency) -> Image.Image:
    """The picture in pale grey, its patches in vermilion by their share."""
    grey = _enlarged(found).convert("L").convert("RGB")
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


def _compute(context: AnalysisContext) -> dict[str, Saliency]:
    names = context.models()
    collection = context.collections[
        context.study.file.benchmarks[context.spec.benchmark].collection
    ]
    first = context.benchmark(names[0])
    row = int(np.random.default_rng(0).choice(np.unique(first.text_image)))
    text = first.texts[int(np.flatnonzero(first.text_image == row)[0])]
    record = collection.get([first.ids[row]])[first.ids[row]]
    image = decode(collection.image_bytes(record))
    return {
        name: saliency(
            context.encoder(name), image, text, max_length=context.max_length(name), id=record.id
        )
        for name in names
    }


def _blocks(
    study: Study, found: Mapping[str, Saliency], collection: Collection | None
) -> Iterator[Block]:
    yield Heading("What a pair's cosine hangs on", 3, folded=True)
    yield Text("One pair, drawn with seed 0: the gradient of its cosine by patch and by word.")
    by_title = {study.title(name): one for name, one in found.items()}
    instead = "The picture of this part is on the page `index.html`."
    yield OnPage(list(saliency_blocks(by_title)), instead)


ANALYSIS = Analysis(Saliency, _compute, _blocks)
