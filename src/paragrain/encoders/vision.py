"""The image tower of a pair: a vision model, that of another encoder, or stored embeddings."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from transformers import AutoImageProcessor

from paragrain.encoders.base import ImageTextEncoder, Output
from paragrain.encoders.checkpoint import write_model
from paragrain.encoders.family import check_output, unit
from paragrain.encoders.pixels import Pixels
from paragrain.encoders.registry import encoder_class, open_folder, read_config
from paragrain.encoders.trained_on import TrainedOn
from paragrain.encoders.weights import (
    PROCESSOR_FILES,
    first_line,
    load_bare,
    load_part,
    plain_settings,
)
from paragrain.errors import ParagrainError
from paragrain.files import read_json
from paragrain.images import BadImage

_FIRST_TOKEN = ("cls_token", "class_embedding")


class ImageTower(nn.Module, ABC):
    """Images as unit vectors, by weights that never change.

    It is always in evaluation mode, and copies of an encoder share it.

    Attributes:
        dim: D, the width of the vectors.
        image_processor: of `transformers`; `None` where no image is read.
        outputs: the kinds of features it gives.
        reads_images: whether there is a model that makes vectors of images.
        trained_on: the images that the tower itself has learned from, where that is known.
    """

    dim: int
    image_processor: Any = None
    outputs: tuple[Output, ...] = ("pooled",)
    reads_images: bool = True
    trained_on: TrainedOn | None = None

    def train(self, mode: bool = True) -> "ImageTower":
        """Stay in evaluation mode."""
        return super().train(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ImageTower":
        """The same, since it is frozen."""
        return self

    @abstractmethod
    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`."""

    @abstractmethod
    def forward(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of a batch of images; see `ImageTextEncoder.image_features`."""

    def image_batch(self, pixels: Sequence[torch.Tensor]) -> Any:
        """What `pixels` gave for each image as one batch, where the weights are."""
        return torch.stack(list(pixels)).to(next(self.parameters()).device)

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights that the vectors depend on."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What besides the weights decides the vectors."""

    @property
    def own_fingerprint(self) -> str | None:
        """The fingerprint under which its vectors are known already, if they are."""
        return None

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what it consists of to `folder`, if it consists of anything."""

    def note(self) -> dict[str, Any]:
        """What the configuration of a checkpoint says about it."""
        return {"folder": "vision"}


class ModelTower(ImageTower):
    """Any Hugging Face vision model, pooled as it is meant to be.

    `pooler_output` of the model where it has one whose weights are in the checkpoint, or that has
    none (DINOv2: [CLS]; CLIPVisionModel: [CLS], normalised; ConvNeXt: the mean over places,
    normalised; ViT pre-trained with a pooler: that). Otherwise the last hidden state: of [CLS] if
    the model has such a token (a ViT out of an image classifier), else the mean over all places.

    Args:
        model: in float32, as `auto.load_bare` gives it.
        image_processor: of the Pillow kind.
        name: what the user calls it.
    """

    outputs = ("pooled", "patches")

    def __init__(self, model: Any, image_processor: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.image_processor = image_processor
        self._pixels = Pixels(image_processor)
        self.pooling = self._probe(name)
        self.eval()

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "ModelTower":
        """Load from a local Hugging Face folder, in float32 on the CPU."""
        image_processor = load_part(
            _PillowProcessor, folder, name, "image processor", PROCESSOR_FILES
        )
        return cls(load_bare(folder, name), image_processor, name)

    def _probe(self, name: str) -> str:
        """Try two pictures: find the pooling and the width, refuse what is no vision model."""
        pictures = [Image.new("RGB", size, "red") for size in ((40, 30), (30, 45))]
        try:
            pixels = torch.stack([self.pixels(picture) for picture in pictures])
            self.model.eval()
            with torch.inference_mode():
                outputs = [self.model(pixel_values=pixels) for _ in range(2)]
            states = [output.last_hidden_state for output in outputs]
        except Exception as error:
            raise ParagrainError(
                f"{name} cannot be used as a vision model ({first_line(error)}): use one that "
                "makes hidden states of pictures alone, with an image processor that gives all "
                "pictures one size"
            ) from error
        if not torch.equal(*states):
            raise ParagrainError(
                f"{name} gives another vector each time, since it hides parts of a picture at "
                "random: use a model that sees all of it"
            )
        pooled = getattr(outputs[0], "pooler_output", None)
        names = [key for key, _ in self.model.named_parameters()]
        pooling = "pooler"
        if pooled is None:
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

    def forward(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of a batch of images; see `ImageTextEncoder.image_features`."""
        check_output("this image tower", output, self.outputs)
        made = self.model(pixel_values=pixels)
        return unit(self._pool(made, self.pooling)) if output == "pooled" else patches(made)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All weights of the model, and statistics such as those of batch normalisation."""
        return self.model.state_dict(keep_vars=True)

    def settings(self) -> dict[str, Any]:
        """The model's configuration, that of its image processor, and the pooling."""
        return {
            "model": plain_settings(self.model.config),
            "processor": plain_settings(self.image_processor),
            "pooling": self.pooling,
        }

    def save(self, folder: Path) -> None:
        """Write a complete Hugging Face folder."""
        write_model(folder, self.model)
        self.image_processor.save_pretrained(folder)


class EncoderTower(ImageTower):
    """The image tower of another encoder: its vectors are the same, and so is their cache."""

    def __init__(self, encoder: ImageTextEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.dim = encoder.dim
        self.image_processor = encoder.image_processor
        self.outputs = encoder.image_outputs
        self.reads_images = encoder.reads_images
        known = encoder.trained_on
        self.trained_on = None if known is None else known.of_vision()
        self.eval()

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`. Safe to call from threads."""
        return self.encoder.pixels(image)

    def image_batch(self, pixels: Sequence[torch.Tensor]) -> Any:
        """What `pixels` gave for each image as one batch, as the encoder wants it."""
        return self.encoder.image_batch(pixels)

    def forward(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of a batch of images, as the encoder gives them."""
        more = () if output == "pooled" else (output,)
        return self.encoder.image_features(pixels, *more)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The vision weights of the encoder."""
        return self.encoder.vision_tensors()

    def settings(self) -> dict[str, Any]:
        """Those of the encoder."""
        return self.encoder.vision_settings()

    @property
    def own_fingerprint(self) -> str:
        """That of the encoder's image tower."""
        return self.encoder.vision_fingerprint

    def save(self, folder: Path) -> None:
        """Write the whole encoder."""
        self.encoder.write(folder)


class PrecomputedEmbeddings(ImageTower):
    """Image embeddings that were made elsewhere and stored beside collections under a name.

    Name and width are all that tells one space of vectors from another: vectors that are given to
    two collections under one name have to come from one model. See `paragrain.embeddings.given`.

    Args:
        name: of the space.
        dim: its width.

    >>> PrecomputedEmbeddings("dinov2-large", 1024).own_fingerprint
    'e76eaa4120e586000f64bce95c27864d'
    """

    reads_images = False

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        self.name = name
        self.dim = dim

    @property
    def own_fingerprint(self) -> str:
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

    def forward(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """There is no model that could read images.

        Raises:
            ParagrainError: always.
        """
        raise ParagrainError(
            f"the image embeddings {self.name} were given, so no model can make more: store "
            "them with paragrain embed --vectors"
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """None."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Name and width."""
        return self.note()

    def save(self, folder: Path) -> None:
        """Write nothing: the checkpoint's configuration says all."""

    def note(self) -> dict[str, Any]:
        """What the configuration of a checkpoint says about it."""
        return {"given": self.name, "dim": self.dim}


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
    try:
        note = read_json(folder / "config.json")["vision"]
        if "given" in note:
            return PrecomputedEmbeddings(str(note["given"]), int(note["dim"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParagrainError(
            f"the image tower of {name} cannot be found ({first_line(error)}): "
            "fetch the checkpoint again"
        ) from error
    folder, name = folder / "vision", f"the image tower of {name}"
    kind = encoder_class(read_config(folder, name), name)
    if kind is None:
        return ModelTower.from_folder(folder, name)
    return EncoderTower(open_folder(kind, folder, name))


class _PillowProcessor:
    """The Pillow kind of whatever image processor a folder names: torchvision's resizing gives
    other pixels, so other vectors."""

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> Any:
        return AutoImageProcessor.from_pretrained(folder, backend="pil", **options)
