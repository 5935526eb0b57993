"""The image tower of a pair where it is no encoder's: a vision model, or stored embeddings."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor

from paragrain.encoders.base import ImageTower, Output, check_output, unit
from paragrain.encoders.checkpoint import write_model
from paragrain.encoders.pixels import Pixels
from paragrain.encoders.registry import encoder_class, open_folder, read_config
from paragrain.encoders.weights import (
    PROCESSOR_FILES,
    load_bare,
    load_part,
    one_sentence,
    plain_settings,
)
from paragrain.errors import ParagrainError
from paragrain.files import read_json
from paragrain.images import BadImage

_FIRST_TOKEN = ("cls_token", "class_embedding")


class ModelTower(ImageTower):
    """Any Hugging Face vision model, pooled as it is meant to be.

    `pooler_output` of the model where it has one whose weights are in the checkpoint, or that has
    none (DINOv2: [CLS]; CLIPVisionModel: [CLS], normalised; ConvNeXt: the mean over places,
    normalised; ViT pre-trained with a pooler: that). Otherwise the last hidden state: of [CLS] if
    the model has such a token (a ViT out of an image classifier), else the mean over all places.

    Args:
        model: in float32, as `weights.load_bare` gives it.
        image_processor: of the Pillow kind.
        name: what the user calls it.
    """

    image_outputs = ("pooled", "patches")

    def __init__(self, model: Any, image_processor: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name
        self.image_processor = image_processor
        self._pixels = Pixels(image_processor)
        self.pooling = self._probe()

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "ModelTower":
        """Load from a local Hugging Face folder, in float32 on the CPU."""
        processor = load_part(_PillowProcessor, folder, name, "image processor", PROCESSOR_FILES)
        return cls(load_bare(folder, name), processor, name)

    def _probe(self) -> str:
        """Try two pictures: find the pooling and the width, refuse what is no vision model."""
        pictures = [Image.new("RGB", size, "red") for size in ((40, 30), (30, 45))]
        with one_sentence(
            f"{self.name} cannot be used as a vision model",
            "use one that makes hidden states of pictures alone, with an image processor that "
            "gives all pictures one size",
        ):
            pixels = torch.stack([self.pixels(picture) for picture in pictures])
            self.eval()
            with torch.inference_mode():
                outputs = [self.model(pixel_values=pixels) for _ in range(2)]
            states = [output.last_hidden_state for output in outputs]
        if not torch.equal(*states):
            raise ParagrainError(
                f"{self.name} gives another vector each time, since it hides parts of a picture at "
                "random: use a model that sees all of it"
            )
        pooling = "pooler"
        if getattr(outputs[0], "pooler_output", None) is None:
            names = [key for key, _ in self.model.named_parameters()]
            pooling = "first" if any(key.endswith(_FIRST_TOKEN) for key in names) else "mean"
        self.dim = self._pool(outputs[0], pooling).shape[1]
        return pooling

    @staticmethod
    def _pool(output: Any, pooling: str) -> torch.Tensor:
        if pooling == "pooler":
            return output.pooler_output.flatten(1)
        return patches(output)[:, 0] if pooling == "first" else patches(output).mean(dim=1)

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`. Safe to call from threads."""
        return self._pixels(image)

    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of images; see `ImageTower.image_features`."""
        check_output(self.name, output, self.image_outputs)
        made = self.model(pixel_values=pixels)
        return unit(self._pool(made, self.pooling)) if output == "pooled" else patches(made)

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """All weights of the model, and statistics such as those of batch normalisation."""
        return self.model.state_dict(keep_vars=True)

    def vision_settings(self) -> dict[str, Any]:
        """The model's configuration, that of its image processor, and the pooling."""
        return {
            "model": plain_settings(self.model.config),
            "processor": plain_settings(self.image_processor),
            "pooling": self.pooling,
        }

    def write(self, folder: Path) -> None:
        """Write a complete Hugging Face folder."""
        write_model(folder, self.model)
        self.image_processor.save_pretrained(folder)


class PrecomputedEmbeddings(ImageTower):
    """Image embeddings that were made elsewhere and stored beside collections under a name.

    Name and width are all that tells one space of vectors from another: vectors that are stored for
    two collections under one name have to come from one model. See `paragrain.embeddings.given`.

    Args:
        name: of the space.
        dim: its width.

    >>> PrecomputedEmbeddings("dinov2-large", 1024).vision_fingerprint
    'e76eaa4120e586000f64bce95c27864d'
    """

    reads_images = False

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        self.name = name
        self.dim = dim

    @property
    def vision_fingerprint(self) -> str:
        """128-bit hex of name and width."""
        content = json.dumps({"given vectors": self.name, "dim": self.dim})
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """There is no model that could read an image.

        Raises:
            BadImage: always.
        """
        raise BadImage(
            f"no vector of it is stored as {self.name} ({self.dim} wide): "
            "store one with paragrain embed --vectors"
        )

    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """There is no model that could read images.

        Raises:
            ParagrainError: always.
        """
        raise ParagrainError(
            f"the image embeddings {self.name} are stored ones, so no model can make more: store "
            "them with paragrain embed --vectors"
        )

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """None."""
        return {}

    def vision_settings(self) -> dict[str, Any]:
        """Name and width."""
        return {"given": self.name, "dim": self.dim}

    def write(self, folder: Path) -> None:
        """Write nothing: the checkpoint's configuration says all."""


def patches(output: Any) -> torch.Tensor:
    """The last hidden states of a vision model as `[B, P, H]`.

    Those of a convolutional model are `[B, H, rows, columns]`.
    """
    hidden: torch.Tensor = output.last_hidden_state
    return hidden if hidden.ndim == 3 else hidden.flatten(2).transpose(1, 2)


def saved_vision(folder: Path, name: str) -> ImageTower:
    """The image tower of a saved pair.

    Raises:
        ParagrainError: its configuration is damaged, or its folder `vision` is.
    """
    with one_sentence(f"the image tower of {name} cannot be found"):
        note = read_json(folder / "config.json")["vision"]
        if "given" in note:
            return PrecomputedEmbeddings(str(note["given"]), int(note["dim"]))
    folder, name = folder / "vision", f"the image tower of {name}"
    encoder = encoder_class(read_config(folder, name), name)
    if encoder is None:
        return ModelTower.from_folder(folder, name)
    return open_folder(encoder, folder, name)


class _PillowProcessor:
    """The Pillow kind of whatever image processor a folder names: torchvision's resizing gives
    other pixels, so other vectors."""

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> Any:
        return AutoImageProcessor.from_pretrained(folder, backend="pil", **options)
