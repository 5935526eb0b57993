"""What every image-text encoder offers: features, what they depend on, what trains, what is saved.

An encoder is a Hugging Face model with an image tower and a text tower, its image processor and its
tokenizer. Four things are kept apart: how texts and images become features, which weights and
settings a feature depends on (its fingerprint), which weights train (`TrainSpec`), and how a
checkpoint is written. `family.FamilyEncoder` answers them for one Hugging Face model from a table
entry; `pair.PairEncoder` for two.
"""

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.utils import parametrize

from paragrain.encoders.card import Story, write_card
from paragrain.encoders.checkpoint import replacing_folder, write_model, write_note, write_tokenizer
from paragrain.encoders.pixels import Pixels
from paragrain.encoders.tokenization import (
    as_texts,
    plain_tokenizer,
    read_texts,
    tokenizer_content,
    valid_unicode,
)
from paragrain.encoders.tokens import TextOptions, Tokens, check_max_length, length_batches, pad
from paragrain.encoders.trained_on import TrainedOn
from paragrain.encoders.weights import fingerprint
from paragrain.errors import ParagrainError, UsageError
from paragrain.progress import progress_bar

__all__ = [
    "Adapter",
    "ImageTextEncoder",
    "ImageTower",
    "Output",
    "TextOptions",
    "Tokens",
    "TrainSpec",
    "encode_pixels",
    "encode_tokens",
    "evaluating",
    "length_batches",
    "pad",
]

DECODE_VERSION = 1
"""Raised whenever `images.decode` or `pixels` comes to give other pixels for the same file, so
that vectors cached before are not taken for new ones."""

_PREPROCESSING = (
    "do_resize size resample do_center_crop crop_size do_pad pad_size do_rescale rescale_factor "
    "do_normalize image_mean image_std"
).split()

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""Default of `rows * longest` in a batch of texts, by the kind of device."""

Output = Literal["pooled", "patches", "tokens", "dense"]
"""Kinds of features: one unit vector `[B, D]`, or states `[B, L, H]` of each patch or token."""

Adapter = Callable[[str, nn.Linear], nn.Module | None]
"""Asked for each linear layer of a tower that trains, by its name in the checkpoint: a module that
makes the layer's effective weight of its frozen one (`torch.nn.utils.parametrize`), whose
parameters train; `None` leaves the layer frozen."""


@dataclass(frozen=True)
class TrainSpec:
    """What trains of an encoder; all else is frozen, and shared with what it was copied from.

    Attributes:
        text, vision: the towers that train, each with its projection.
        heads: names of further parts, of those in the encoder's `heads`, such as `"matching"`.
        adapter: puts small trained modules beside the linear layers of those towers, whose own
            weights then stay frozen. Fingerprints and checkpoints hold the effective weights, so
            that what is saved is a plain checkpoint.
    """

    text: bool = True
    vision: bool = False
    heads: tuple[str, ...] = ()
    adapter: Adapter | None = None


class ImageTower(nn.Module, ABC):
    """Images as unit vectors.

    Attributes:
        dim: D, the width of the vectors.
        name: what results call it.
        image_processor: of `transformers`; `None` where no image is read.
        image_outputs: the kinds of features it gives, see `Output`.
        reads_images: whether `pixels` and `image_features` serve, and not stored vectors alone.
        trained_on: the images it has learned from, as far as they are known; saved with it.
    """

    dim: int
    name: str
    image_processor: Any = None
    image_outputs: tuple[Output, ...] = ("pooled",)
    reads_images: bool = True
    trained_on: TrainedOn | None = None
    _vision_fingerprint: str | None = None

    @abstractmethod
    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`. Safe to call from threads."""

    def image_batch(self, pixels: Sequence[torch.Tensor]) -> Any:
        """What `pixels` gave for each of B images as one batch, where the weights are."""
        return torch.stack(list(pixels)).to(next(self.parameters()).device)

    @abstractmethod
    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of images as `image_batch` gives them.

        Returns:
            Of "pooled" float32 unit vectors `[B, D]`; of "patches" the last hidden states
            `[B, P, H]`, in the precision of the tower.
        """

    @abstractmethod
    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """The weights that the image embedding depends on, by their names in the checkpoint."""

    @abstractmethod
    def vision_settings(self) -> dict[str, Any]:
        """What besides weights and preprocessing decides the image embedding."""

    def preprocessing(self) -> dict[str, Any]:
        """The settings of `pixels`, as plain values."""
        settings = self.image_processor.to_dict()
        return {key: settings.get(key) for key in _PREPROCESSING}

    @property
    def vision_fingerprint(self) -> str:
        """128-bit hex of everything that decides an image embedding, the same in every process.

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

    def parts(self) -> list[object]:
        """Itself, and whatever of other classes it consists of."""
        return [self]

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write what it consists of to a folder that is there."""


class ImageTextEncoder(ImageTower):
    """An image encoder and a text encoder whose unit vectors are compared by dot product.

    Args:
        model: the Hugging Face model, in float32.
        image_processor: its image processor, of the Pillow kind.
        tokenizer: its fast tokenizer.
        name: what results call it: a Hub name or a folder.

    Attributes:
        max_tokens: the most tokens of a text, special tokens included.
        pad_id: the id that fills short rows of a batch; how far never changes a vector.
        padded_to: tokens that a row costs at least, where shorter texts are filled up.
        default_max_length: `max_length` where the checkpoint says none.
        text_outputs: the kinds of features that it gives of texts, see `Output`.
        text_modes: ways to read a text that it knows besides lengths, such as FG-CLIP 2's.
        towers: of "text" and "vision", those that can train.
        heads: further parts that can train: a pattern of the names of their weights.
        pooled_token: which token of a text becomes its vector: the first, the end token, the last
            position; `None` where it is not one of them.
        remote_code: whether its model is code that came with the checkpoint.
    """

    max_tokens: int
    padded_to: int = 1
    default_max_length: int = 128
    text_outputs: tuple[Output, ...] = ("pooled",)
    text_modes: tuple[str, ...] = ()
    towers: tuple[str, ...] = ("text", "vision")
    heads: ClassVar[Mapping[str, str]] = {}
    pooled_token: Literal["first", "end", "last"] | None = None
    remote_code: bool = False

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

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: Path, name: str) -> "ImageTextEncoder":
        """Load from a local Hugging Face folder, in float32 on the CPU."""

    # --- Features -----------------------------------------------------------------------------

    @abstractmethod
    def text_features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        output: Output = "pooled",
        mode: str | None = None,
    ) -> torch.Tensor:
        """Features of padded texts `[B, L]`; differentiable.

        Args:
            input_ids, attention_mask: int64, as `tokens.pad` gives them.
            output: "pooled" for float32 unit vectors `[B, D]`; "tokens" for the last hidden states
                `[B, L, H]`, of which those that the mask leaves out mean nothing.
            mode: one of `text_modes`; by default that of `mode_of(self.max_length)`.
        """

    def mode_of(self, max_length: int) -> str | None:
        """The one of `text_modes` in which texts of that length are read if none is asked for."""
        return None

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`. Safe to call from threads."""
        return self._pixels(image)

    # --- What a feature depends on ------------------------------------------------------------

    @abstractmethod
    def text_tensors(self) -> dict[str, torch.Tensor]:
        """The weights that the text vector depends on, by their names in the checkpoint."""

    @abstractmethod
    def text_settings(self) -> dict[str, Any]:
        """What besides weights and tokenizer decides the text vector: heads, activation, ..."""

    @property
    def text_fingerprint(self) -> str:
        """128-bit hex of everything that decides a text's vector; computed when asked."""
        settings = {
            "text": self.text_settings(),
            "tokenizer": tokenizer_content(self.tokenizer),
        }
        return fingerprint(self.text_tensors(), settings)

    # --- What trains --------------------------------------------------------------------------

    def check_trainable(self, spec: TrainSpec) -> None:
        """Refuse what cannot train.

        Raises:
            UsageError: a tower that stays as it is, or a head that it has not.
        """
        for tower, wanted in (("text", spec.text), ("vision", spec.vision)):
            if wanted and tower not in self.towers:
                side = "image" if tower == "vision" else tower
                raise UsageError(
                    f"the {side} tower of {self.name} cannot be trained: train without it, or "
                    "start from a BLIP, CLIP or SigLIP"
                )
        unknown = [head for head in spec.heads if head not in self.heads]
        if unknown:
            raise UsageError(
                f"{self.name} has no head {unknown[0]!r}: choose from "
                f"{', '.join(self.heads) or 'none'}"
            )

    def trainable_copy(self, spec: TrainSpec = TrainSpec()) -> "ImageTextEncoder":
        """A copy for training: what trains is its own, in float32, and asks for gradients.

        All else is shared: the very same tensors, which ask for gradients no more.

        Raises:
            UsageError: see `check_trainable`.
        """
        self.check_trainable(spec)
        towers = {
            **(self.text_tensors() if spec.text else {}),
            **(self.vision_tensors() if spec.vision else {}),
        }
        trained = {} if spec.adapter else dict(towers)
        for head in spec.heads:
            trained |= {n: p for n, p in self._named_weights() if re.search(self.heads[head], n)}
        own = {id(tensor) for tensor in trained.values()}
        parts = (self.tokenizer, self._tokens_of, self.image_processor, self._pixels)
        every = (*self.parameters(), *self.buffers(), *parts)
        # deepcopy takes what is in the memo for already copied: these stay shared.
        memo: dict[int, Any] = {id(part): part for part in every if id(part) not in own}
        made = copy.deepcopy(self, memo).requires_grad_(False)
        for tensor in (memo[number] for number in own):
            tensor.data = tensor.data.float()
            tensor.requires_grad_(True)
        if spec.adapter is not None:
            made._adapt(spec.adapter, {id(tensor) for tensor in towers.values()})
        return made

    def _adapt(self, adapter: Adapter, towers: set[int]) -> None:
        for name, module in list(self.named_modules()):
            if isinstance(module, nn.Linear) and id(module.weight) in towers:
                made = adapter(name.removeprefix("model."), module)
                if made is not None:
                    parametrize.register_parametrization(module, "weight", made.to(self.device))

    def _named_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """The model's parameters by their names in the checkpoint."""
        return self.model.named_parameters()

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that ask for gradients: the text tower's, the image tower's, then others.

        By their names in the checkpoint, those of adapters by their names in the model; tied
        parameters under their first name only.
        """
        named = {**self.text_tensors(), **self.vision_tensors(), **dict(self._named_weights())}
        found: dict[int, tuple[str, nn.Parameter]] = {}
        for name, tensor in named.items():
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                found.setdefault(id(tensor), (name, tensor))
        return dict(found.values())

    # --- Texts --------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read where no other number is asked for.

        It is what the checkpoint says, such as the largest length that it was trained with; else
        what is usual for its family. A model that fills every text up always reads all it can.

        Raises:
            UsageError: set to what the encoder cannot read.
        """
        read = min(self._max_length or self.default_max_length, self.max_tokens)
        return max(read, self.padded_to)

    @max_length.setter
    def max_length(self, max_length: int) -> None:
        check_max_length(max_length, self.max_tokens, self.name)
        self._max_length = max_length

    def token_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each whole text with its special tokens. Safe to call from threads."""
        valid = [valid_unicode(text) for text in as_texts(texts)]
        return [encoding.ids for encoding in self._tokens_of.encode_batch_fast(valid)]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end in `text` of each of its tokens, equal where one stands for nothing."""
        return list(self._tokens_of.encode(valid_unicode(text)).offsets)

    def unread(self, text: str, kept: int) -> str:
        """The end of `text` that is not read when `kept` tokens of it are, "" if all is read."""
        spans = self.token_spans(text)  # the last of the kept is the end token
        return text[spans[kept - 2][1] :].strip() if kept < len(spans) else ""

    def tokenize(self, texts: Iterable[str], max_length: int, **options: Any) -> Tokens:
        """Token ids of `texts`, truncated to `max_length` tokens with their end tokens kept.

        Args:
            texts: any number, or a single one; see `as_texts`. A text of nothing but white space
                is its special tokens alone, as is an empty one. What names a special token, such
                as `[SEP]`, is text.
            max_length: special tokens included.
            options: those of `TextOptions`: normalise, truncation, prompt, lower_case, mode.

        Raises:
            UsageError: the encoder cannot read the length, there is no such option, or a text is no
                string.
        """
        chosen = TextOptions(**options)
        if chosen.mode is not None and chosen.mode not in self.text_modes:
            raise UsageError(
                f"{self.name} reads texts in no mode {chosen.mode!r}: choose from "
                f"{', '.join(self.text_modes) or 'none'}"
            )
        check_max_length(max_length, self.max_tokens, self.name)
        ids, levels, words_dropped = read_texts(self._tokens_of, as_texts(texts), chosen)
        return Tokens.from_ids(
            ids,
            max_length=max_length,
            limit=self.max_tokens,
            encoder=self.name,
            options=chosen,
            words_dropped=words_dropped,
            levels=levels,
        )

    def __repr__(self) -> str:
        """Its name and sizes; `.model` shows the layers."""
        return (
            f"<{type(self).__name__} {self.name}: {self.dim}-wide vectors, "
            f"{self.max_length} of up to {self.max_tokens} tokens>"
        )

    # --- What is saved ------------------------------------------------------------------------

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


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors `[B, D]` as float32 of unit length.

    >>> unit(torch.tensor([[3.0, 4.0]], dtype=torch.float16))
    tensor([[0.6000, 0.8000]])
    """
    return nn.functional.normalize(vectors.float(), dim=-1)


def check_output(name: str, output: str, outputs: Sequence[str]) -> None:
    """Refuse a kind of features that an encoder does not give.

    Raises:
        UsageError: it is none of `outputs`.
    """
    if output not in outputs:
        raise UsageError(f"{name} gives no {output!r} features: choose from {', '.join(outputs)}")


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
    mode = tokens.options.mode or encoder.mode_of(tokens.max_length)
    read = encoder.text_features if mode is None else partial(encoder.text_features, mode=mode)
    batch_tokens = batch_tokens or BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])
    vectors = torch.empty((len(first), encoder.dim), dtype=torch.float32, device=device)
    with (
        evaluating(encoder),
        progress_bar("encoding texts", len(first), unit="texts", show=progress) as advance,
    ):
        for batch in length_batches(costs, batch_tokens):
            rows = [tokens.row(index) for index in first[batch]]
            input_ids, mask = (part.to(device) for part in pad(rows, encoder.pad_id))
            vectors[torch.from_numpy(batch).to(device)] = read(input_ids, mask)
            advance(len(batch))
    return _finite(vectors, encoder, "text")[inverse]


def encode_pixels(encoder: ImageTextEncoder, pixels: Sequence[torch.Tensor]) -> np.ndarray:
    """Unit vectors float32 `[N, D]` of one batch of images that `pixels` has preprocessed.

    Raises:
        ParagrainError: a vector is not finite.
    """
    with evaluating(encoder):
        vectors = encoder.image_features(encoder.image_batch(pixels))
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
