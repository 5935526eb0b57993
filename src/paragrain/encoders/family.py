"""A family of models with two towers in one Hugging Face model: what is known of it, as data."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import nn

from paragrain.encoders.base import ImageTextEncoder, Output, check_output, unit
from paragrain.encoders.weights import (
    PROCESSOR_FILES,
    effective_tensors,
    load_part,
    make_model,
    read_weights,
    without_prefix,
)
from paragrain.errors import ParagrainError

TEXT_SETTINGS = ("num_attention_heads", "hidden_act", "layer_norm_eps")
VISION_SETTINGS = (*TEXT_SETTINGS, "image_size", "patch_size")


@dataclass(frozen=True)
class Family:
    """What is known of the models of one `model_type`.

    Attributes:
        model_type: in their `config.json`.
        model: their class of `transformers`.
        image_processor: its class, of the Pillow kind and by name: Hugging Face would take
            torchvision's where that is installed, whose resizing gives other pixels.
        tokenizer, tokenizer_files: what loads the tokenizer, and the files of which one is needed.
        text, vision: how the names of the weights begin that the two vectors depend on.
        text_unused: part of the names of those among the text tower's that no vector depends on.
        text_settings, vision_settings: keys of the two configurations that decide a vector too.
        text_usage, image_usage: lines that make vectors with plain `transformers`, for model cards.
        usage_note: what to know about them.
        padding: how plain `transformers` has to pad.
    """

    model_type: str
    model: Any
    image_processor: Any
    tokenizer: Any
    tokenizer_files: Sequence[str]
    text: tuple[str, ...]
    vision: tuple[str, ...]
    text_unused: str = "\\0"
    text_settings: tuple[str, ...] = TEXT_SETTINGS
    vision_settings: tuple[str, ...] = VISION_SETTINGS
    text_usage: str = ""
    image_usage: str = ""
    usage_note: str = ""
    padding: str = "True"


class FamilyEncoder(ImageTextEncoder):
    """An encoder over one model that holds both towers; a subclass says how they make features."""

    family: ClassVar[Family]
    image_outputs: tuple[Output, ...] = ("pooled", "patches")
    text_outputs: tuple[Output, ...] = ("pooled", "tokens")

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "FamilyEncoder":
        """Load a folder that holds a model of the family; see `loading.load_encoder`."""
        family = cls.family
        processor = load_part(
            family.image_processor, folder, name, "image processor", PROCESSOR_FILES
        )
        tokenizer = load_part(family.tokenizer, folder, name, "tokenizer", family.tokenizer_files)
        state = without_prefix(read_weights(folder, name))
        return cls(make_model(family.model, folder, state, name), processor, tokenizer, name)

    @abstractmethod
    def image_states(self, pixels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, P, H]` of images, and their vectors `[B, D]` of any length."""

    @abstractmethod
    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, mode: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, L, H]` of texts, and their vectors `[B, D]` of any length."""

    @property
    def text_tower(self) -> nn.Module:
        """The module that holds the text tower's layers."""
        return self.model.get_submodule(self.family.text[0].partition(".")[0])

    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of images; see `ImageTextEncoder.image_features`."""
        check_output(self.name, output, self.image_outputs)
        states, vectors = self.image_states(pixels)
        return unit(vectors) if output == "pooled" else states

    def text_features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        output: Output = "pooled",
        mode: str | None = None,
    ) -> torch.Tensor:
        """Features of padded texts; see `ImageTextEncoder.text_features`."""
        check_output(self.name, output, self.text_outputs)
        states, vectors = self.text_states(input_ids, attention_mask, mode)
        return unit(vectors) if output == "pooled" else states

    def text_tensors(self) -> dict[str, torch.Tensor]:
        """The text tower and its projection, without what no vector depends on."""
        unused = self.family.text_unused
        tensors = self._tensors(self.family.text)
        return {name: tensor for name, tensor in tensors.items() if unused not in name}

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """The image tower and its projection."""
        return self._tensors(self.family.vision)

    def _tensors(self, beginnings: tuple[str, ...]) -> dict[str, torch.Tensor]:
        tensors = effective_tensors(self.model)
        return {name: tensor for name, tensor in tensors.items() if name.startswith(beginnings)}

    def text_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant, ... of the text tower."""
        config = self.model.config.text_config
        return {key: getattr(config, key) for key in self.family.text_settings}

    def vision_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant, sizes, ... of the image tower."""
        config = self.model.config.vision_config
        return {key: getattr(config, key) for key in self.family.vision_settings}

    # --- Whether the parts of a checkpoint belong together ------------------------------------

    def check_vocabulary(self) -> None:
        """Refuse a tokenizer that knows more tokens than the text tower has rows for.

        Raises:
            ParagrainError: some of its ids would lie outside the table.
        """
        words, entries = len(self.tokenizer), self.model.config.text_config.vocab_size
        if words > entries:
            raise ParagrainError(
                f"the tokenizer of {self.name} has {words:,} entries but its text tower only "
                f"{entries:,}: use the tokenizer that came with the checkpoint"
            )

    def check_end_token(self) -> None:
        """Refuse a tokenizer that does not close a text with its end token.

        Raises:
            ParagrainError: even an empty text has another last token.
        """
        if self.token_ids([""])[0][-1:] != [self.tokenizer.eos_token_id]:
            raise ParagrainError(
                f"the tokenizer of {self.name} does not close a text with its end token "
                f"{self.tokenizer.eos_token}: use the tokenizer that came with the checkpoint"
            )

    def check_pixels(self) -> None:
        """Refuse an image processor that does not make images of the size that the tower reads.

        Raises:
            ParagrainError: an image comes out in another size.
        """
        size = self.model.config.vision_config.image_size
        _, height, width = self.pixels(Image.new("RGB", (size + 3, size + 2))).shape
        if (height, width) != (size, size):
            raise ParagrainError(
                f"the image processor of {self.name} makes {height} x {width} images but its "
                f"image tower reads {size} x {size}: correct the sizes in its preprocessor "
                "configuration"
            )
