"""What every image-text encoder offers, and how texts and images become unit vectors.

An encoder is a Hugging Face model with two towers, its image processor and its tokenizer. A
subclass says which parts of the model make the two vectors; the rest is here.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from paragrain.encoders.card import Story, write_card
from paragrain.encoders.note import write_note
from paragrain.encoders.pixels import Pixels
from paragrain.encoders.reading import (
    as_texts,
    plain_tokenizer,
    read_texts,
    tokenizer_content,
    valid_unicode,
)
from paragrain.encoders.saving import replacing_folder, write_model, write_tokenizer
from paragrain.encoders.tokens import (
    TokenRows,
    Tokens,
    check_max_length,
    length_batches,
    normalise_text,
    pad,
)
from paragrain.encoders.trained_on import TrainedOn
from paragrain.encoders.weights import fingerprint
from paragrain.errors import ParagrainError, UsageError
from paragrain.progress import progress_bar

__all__ = [
    "ImageTextEncoder",
    "TokenRows",
    "Tokens",
    "check_max_length",
    "encode_pixels",
    "encode_tokens",
    "evaluating",
    "length_batches",
    "normalise_text",
    "pad",
]

DECODE_VERSION = 1
"""Raised whenever `images.decode` or `pixels` comes to give other pixels for the same file, so
that vectors cached before are not taken for new ones."""

_PREPROCESSING = (
    *("do_resize", "size", "resample", "do_center_crop", "crop_size", "do_pad", "pad_size"),
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
)

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""Default of `rows * longest` in a batch of texts, by the kind of device."""


class ImageTextEncoder(nn.Module, ABC):
    """An image encoder and a text encoder whose unit vectors are compared by dot product.

    Args:
        model: the Hugging Face model, in float32.
        image_processor: its image processor, of the Pillow kind.
        tokenizer: its fast tokenizer.
        name: what results call it: a Hub name or a folder.

    Attributes:
        dim: D, the width of the vectors.
        max_tokens: the most tokens of a text, special tokens included.
        pad_id: the id that fills short rows of a batch; how far never changes a vector.
        padded_to: tokens that a row costs at least, where shorter texts are filled up.
        trained_on: the images it has learned from, as far as they are known; saved with it.
        default_max_length: `max_length` where the checkpoint says none.
    """

    dim: int
    max_tokens: int
    padded_to: int = 1
    trained_on: TrainedOn | None = None
    default_max_length: int = 128

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.image_processor = image_processor
        self.tokenizer = tokenizer
        self.name = name
        self._pixels = Pixels(image_processor)
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._tokens_of = plain_tokenizer(tokenizer)
        self._max_length: int | None = None
        self._vision_fingerprint: str | None = None

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: Path, name: str) -> "ImageTextEncoder":
        """Load from a local Hugging Face folder, in float32 on the CPU."""

    @abstractmethod
    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of images `[B, 3, H, W]` as `pixels` makes them."""

    @abstractmethod
    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of padded texts `[B, L]`; differentiable."""

    def image_states(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, P, W]` of images, and their `image_features`, from one pass.

        Raises:
            UsageError: this kind of encoder gives none.
        """
        raise UsageError(f"{self.name} gives no states of patches: start from a BLIP")

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, L, W]` of texts, and their `text_features`, from one pass.

        Raises:
            UsageError: this kind of encoder gives none.
        """
        raise UsageError(f"{self.name} gives no states of tokens: start from a BLIP")

    @abstractmethod
    def text_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that the text vector depends on, by their names in the checkpoint."""

    @abstractmethod
    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """The weights that the image embedding depends on, by their names in the checkpoint."""

    @abstractmethod
    def text_settings(self) -> dict[str, Any]:
        """What besides weights and tokenizer decides the text vector: heads, activation, ..."""

    @abstractmethod
    def vision_settings(self) -> dict[str, Any]:
        """What besides weights and preprocessing decides the image embedding."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read where no other number is asked for.

        It is what the checkpoint says, such as the largest length that it was trained with; else
        what is usual for its kind. A model that fills every text up always reads all it can.

        Raises:
            UsageError: set to what the encoder cannot read.
        """
        read = min(self._max_length or self.default_max_length, self.max_tokens)
        return max(read, self.padded_to)

    @max_length.setter
    def max_length(self, max_length: int) -> None:
        check_max_length(max_length, self.max_tokens, self.name)
        self._max_length = max_length

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The same as `text_features`, so that wrappers for several processes see the call."""
        return self.text_features(input_ids, attention_mask)

    def __repr__(self) -> str:
        """Its name and sizes; `.model` shows the layers."""
        return (
            f"<{type(self).__name__} {self.name}: {self.dim}-wide vectors, "
            f"{self.max_length} of up to {self.max_tokens} tokens>"
        )

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image as `Pixels` does: float32 `[3, H, W]`."""
        return self._pixels(image)

    def preprocessing(self) -> dict[str, Any]:
        """The settings of `pixels`, as plain values."""
        settings = self.image_processor.to_dict()
        return {key: settings.get(key) for key in _PREPROCESSING}

    def token_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Uncut ids of each text with its special tokens. Safe to call from threads."""
        valid = [valid_unicode(text) for text in as_texts(texts)]
        return [encoding.ids for encoding in self._tokens_of.encode_batch_fast(valid)]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end in `text` of each uncut token, equal where a token stands for nothing."""
        return list(self._tokens_of.encode(valid_unicode(text)).offsets)

    def unread(self, text: str, kept: int) -> str:
        """The end of `text` that is not read when `kept` tokens of it are, "" if all is read."""
        spans = self.token_spans(text)  # the last of the kept is the end token
        return text[spans[kept - 2][1] :].strip() if kept < len(spans) else ""

    def tokenize(
        self,
        texts: Iterable[str],
        max_length: int,
        *,
        normalise: str = "none",
        truncation: str = "tokens",
    ) -> Tokens:
        """Token ids of `texts`, cut to a maximum length of `tokens` with their end tokens kept.

        Args:
            texts: any number, or a single one; see `as_texts`. A text of nothing but white space
                is its special tokens alone, as is an empty one. What names a special token, such
                as `[SEP]`, is text.
            max_length: the maximum length, special tokens included.
            normalise: see `normalise_text`.
            truncation: to as many tokens, whole words or whole sentences as fit; see `Tokens`.

        Raises:
            UsageError: the encoder cannot read the length, there is no such truncation or
                treatment, or a text is no string.
        """
        check_max_length(max_length, self.max_tokens, self.name)
        ids, levels, words_dropped = read_texts(
            self._tokens_of, as_texts(texts), normalise, truncation
        )
        return Tokens.from_ids(
            ids,
            max_length=max_length,
            limit=self.max_tokens,
            encoder=self.name,
            normalise=normalise,
            words_dropped=words_dropped,
            truncation=truncation,
            levels=levels,
        )

    @property
    def vision_fingerprint(self) -> str:
        """128-bit hex of everything that decides an image's vector, the same in every process.

        Computed once, since the image tower is frozen; while any of it may change (its
        gradients are on), anew each time.
        """
        tensors = self.vision_tensors()
        changing = any(tensor.requires_grad for tensor in tensors.values())
        if self._vision_fingerprint is None or changing:
            settings = {
                "vision": self.vision_settings(),
                "preprocessing": self.preprocessing(),
                "decode_version": DECODE_VERSION,
            }
            self._vision_fingerprint = fingerprint(tensors, settings)
        return self._vision_fingerprint

    @property
    def text_fingerprint(self) -> str:
        """128-bit hex of everything that decides a text's vector; computed when asked."""
        settings = {
            "text": self.text_settings(),
            "tokenizer": tokenizer_content(self.tokenizer),
        }
        return fingerprint(self.text_parameters(), settings)

    def trainable_copy(self, *, vision: bool = False) -> "ImageTextEncoder":
        """A copy for training: what trains is its own, in float32, and asks for gradients.

        That is `text_parameters`, with `vision` also `vision_tensors`. All else is shared: the
        very same tensors (such as cross-attention), which ask for gradients no more.
        """
        trained = {**self.text_parameters(), **(self.vision_tensors() if vision else {})}
        own = {id(tensor) for tensor in trained.values()}
        parts = (self.tokenizer, self._tokens_of, self.image_processor, self._pixels)
        every = (*self.parameters(), *self.buffers(), *parts)
        # deepcopy takes what is in the memo for already copied: these stay shared.
        memo: dict[int, Any] = {id(part): part for part in every if id(part) not in own}
        twin = copy.deepcopy(self, memo).requires_grad_(False)
        for tensor in (memo[number] for number in own):
            tensor.data = tensor.data.float()
            tensor.requires_grad_(True)
        return twin

    def write_parts(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and processor to a folder that is there."""
        write_model(folder, self.model)
        write_tokenizer(folder, self.tokenizer, self.max_length)
        self.image_processor.save_pretrained(folder)

    def write(self, folder: Path) -> None:
        """Write its parts, and what opens them as this encoder."""
        self.write_parts(folder)
        write_note(folder, self)
        if self.trained_on is not None:
            self.trained_on.save_pretrained(folder)

    def save(self, folder: Path | str, story: Story | None = None) -> None:
        """Write a complete Hugging Face folder: weights, configuration, tokenizer, processor.

        The folder appears whole or not at all, in the place of an older one if there is one.
        Plain `transformers` opens it; its README.md has the lines that give these vectors. Weights
        are written as they are held: in float32.

        Args:
            folder: to be made or replaced.
            story: how the weights came to be, for the README.md.

        Raises:
            UsageError, ParagrainError: see `replacing_folder`.
        """
        with replacing_folder(Path(folder)) as temporary:
            self.write(temporary)
            write_card(temporary, self, story or Story())


@contextmanager
def evaluating(encoder: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients while the block runs; the mode is put back afterwards."""
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        encoder.train(training)


def encode_tokens(
    encoder: ImageTextEncoder,
    tokens: Tokens,
    *,
    batch_tokens: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """Unit vectors float32 `[N, D]` of tokenised texts, in their order.

    Texts are encoded in batches of similar length, and texts of the same tokens once.

    Args:
        encoder: on whichever device it is.
        tokens: from `encoder.tokenize`.
        batch_tokens: the most `rows * longest` of a batch; by default `BATCH_TOKENS`.
        progress: whether to show a progress bar.

    Raises:
        ParagrainError: a vector is not finite.
    """
    first, inverse = tokens.distinct()
    costs = np.maximum(tokens.kept[first], encoder.padded_to)
    device = encoder.device
    batch_tokens = batch_tokens or BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])
    vectors = torch.empty((len(first), encoder.dim), dtype=torch.float32, device=device)
    with (
        evaluating(encoder),
        progress_bar("encoding texts", len(first), unit="texts", show=progress) as advance,
    ):
        for batch in length_batches(costs, batch_tokens):
            rows = [tokens.row(index) for index in first[batch]]
            input_ids, mask = (part.to(device) for part in pad(rows, encoder.pad_id))
            vectors[torch.from_numpy(batch).to(device)] = encoder.text_features(input_ids, mask)
            advance(len(batch))
    return _finite(vectors, encoder, "text")[inverse]


def encode_pixels(encoder: ImageTextEncoder, pixels: Sequence[torch.Tensor]) -> np.ndarray:
    """Unit vectors float32 `[N, D]` of one batch of images that `pixels` has preprocessed.

    Raises:
        ParagrainError: a vector is not finite.
    """
    with evaluating(encoder):
        vectors = encoder.image_features(torch.stack(list(pixels)).to(encoder.device))
    return _finite(vectors, encoder, "image")


def _finite(vectors: torch.Tensor, encoder: ImageTextEncoder, kind: str) -> np.ndarray:
    """The vectors as numpy; NaN or infinity, which would spoil every ranking, is refused."""
    array = vectors.float().cpu().numpy()
    bad = int((~np.isfinite(array).all(axis=1)).sum())
    if bad:
        raise ParagrainError(
            f"{encoder.name} gave {bad} of {len(array)} {kind} vectors that are not finite: "
            "its weights are damaged or its training diverged, so use another checkpoint"
        )
    return array
