"""Any pair: one model's image embeddings, another's texts, and a fresh projection between them."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from transformers import AutoImageProcessor

from paragrain.encoders.base import ImageTextEncoder, ImageTower, Output, check_output, unit
from paragrain.encoders.checkpoint import (
    PROCESSOR_FILES,
    effective_tensors,
    load_base_model,
    load_part,
    one_sentence,
    plain_settings,
    write_model,
)
from paragrain.encoders.pixels import Pixels
from paragrain.encoders.registry import PAIR, encoder_class, open_folder, read_config
from paragrain.encoders.sentence import SENTENCE_CONFIG, SentenceEncoder
from paragrain.errors import ParagrainError
from paragrain.files import read_json, write_json
from paragrain.images import BadImage

_FIRST_TOKEN = ("cls_token", "class_embedding")


class ModelTower(ImageTower):
    """Any Hugging Face vision model, pooled as it is meant to be.

    `pooler_output` of the model where it has one whose weights are in the checkpoint, or that has
    none (DINOv2: [CLS]; CLIPVisionModel: [CLS], normalised; ConvNeXt: the mean over places,
    normalised; ViT pre-trained with a pooler: that). Otherwise the last hidden state: of [CLS] if
    the model has such a token (a ViT out of an image classifier), else the mean over all places.

    Args:
        model: in float32, as `weights.load_base_model` gives it.
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
        return cls(load_base_model(folder, name), processor, name)

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
        """Raise BadImage, since there is no model."""
        raise BadImage(
            f"no vector of it is stored as {self.name} ({self.dim} wide): "
            "store one with paragrain embed --vectors"
        )

    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Raise ParagrainError, since there is no model."""
        raise ParagrainError(
            f"the image embeddings {self.name} are stored ones, so no model can make more: store "
            "them with paragrain embed --vectors"
        )

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """None."""
        return {}

    def vision_settings(self) -> dict[str, Any]:
        """Name and width."""
        return {"precomputed": self.name, "dim": self.dim}

    def write(self, folder: Path) -> None:
        """Write nothing: the checkpoint's configuration says all."""


def patches(output: Any) -> torch.Tensor:
    """The last hidden states of a vision model as `[B, P, H]`.

    Those of a convolutional model are `[B, H, rows, columns]`.
    """
    hidden: torch.Tensor = output.last_hidden_state
    return hidden if hidden.ndim == 3 else hidden.flatten(2).transpose(1, 2)


def saved_vision(folder: Path, name: str) -> ImageTower:
    """The image tower of a saved pair."""
    with one_sentence(f"the image tower of {name} cannot be found"):
        note = read_json(folder / "config.json")["vision"]
        if "precomputed" in note:
            return PrecomputedEmbeddings(str(note["precomputed"]), int(note["dim"]))
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


class PairEncoder(ImageTextEncoder):
    """Image embeddings of one model or from anywhere, and a text encoder projected to their width.

    The image embeddings are the image tower's own, of unit length. A text is pooled as its encoder
    does, projected without bias to their width, and brought to unit length. Both sides may never
    have met, so a fresh pair scores at chance until it is trained; the projection then wants a
    higher rate than the paper's 1e-5.

    A checkpoint is a folder that sentence-transformers opens, for these very text vectors:
    `modules.json` and `config.json`, `text/` (also a complete folder of sentence-transformers) and
    `vision/` (a Hugging Face folder), unless the image embeddings are stored ones.

    Args:
        vision: the image tower, of another encoder too, which stays as it is.
        text: the text tower.
        name: what results call it.
        projection: from the text's width to the image's; a fresh one if not given, the same
            every time: normal numbers of variance 1 / width, which keep the angles between texts
            as they were, nearly.
    """

    model: "_PairModules"
    towers = ("text",)
    text_outputs = ("pooled", "tokens")

    def __init__(
        self,
        vision: ImageTower,
        text: SentenceEncoder,
        name: str,
        projection: nn.Linear | None = None,
    ) -> None:
        parts = _PairModules(vision, text, projection or fresh_projection(text.width, vision.dim))
        super().__init__(parts, vision.image_processor, text.tokenizer, name)
        self.dim = vision.dim
        self.image_outputs = vision.image_outputs
        self.reads_images = vision.reads_images
        self.max_tokens = text.max_tokens
        self.default_max_length = text.default_max_length

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "PairEncoder":
        """Load a saved pair; see `loading.load_encoder`."""
        limit = read_config(folder, name).get("max_tokens")  # its tokenizer may not tell it
        if type(limit) is not int or limit < 1:
            raise ParagrainError(
                f"the config.json of {name} does not tell its max_tokens: "
                "fetch the checkpoint again"
            )
        text = SentenceEncoder.from_folder(folder / "text", f"the text tower of {name}", limit)
        vision = saved_vision(folder, name)
        last = text.layers[-1].linear if text.layers else None
        if last is None or last.bias is not None or last.out_features != vision.dim:
            raise ParagrainError(
                f"the text tower of {name} does not end in a projection to the {vision.dim} "
                "numbers of its image embeddings: fetch the checkpoint again"
            )
        text.dense = text.dense[:-1]
        text.width = last.in_features
        return cls(vision, text, name, last)

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """Preprocess one upright RGB image: float32 `[3, H, W]`. Safe to call from threads.

        Raises:
            BadImage: the image embeddings are stored ones, and this image has none.
        """
        return self.model.vision.pixels(image)

    def image_batch(self, pixels: Sequence[torch.Tensor]) -> Any:
        """What `pixels` gave for each image as one batch, as the image tower wants it."""
        return self.model.vision.image_batch(pixels)

    def image_features(self, pixels: Any, output: Output = "pooled") -> torch.Tensor:
        """Features of images, as the image tower gives them."""
        more = () if output == "pooled" else (output,)
        return self.model.vision.image_features(pixels, *more)

    def text_features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        output: Output = "pooled",
        mode: str | None = None,
    ) -> torch.Tensor:
        """Features of padded texts; see `ImageTextEncoder.text_features`."""
        check_output(self.name, output, self.text_outputs)
        if output == "tokens":
            return self.model.text.states(input_ids, attention_mask)
        return unit(self.model.projection(self.model.text(input_ids, attention_mask)))

    def text_tensors(self) -> dict[str, torch.Tensor]:
        """Text encoder, dense layers behind its pooling if there are any, and projection."""
        return {
            name: tensor
            for name, tensor in effective_tensors(self.model).items()
            if name.startswith(("text.", "projection."))
            and not name.startswith("text.model.pooler.")  # the model's own, which is not used
        }

    def text_settings(self) -> dict[str, Any]:
        """Configuration of the text encoder, pooling and activations."""
        return self.model.text.settings()

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """The weights of the image tower; none if its embeddings are stored."""
        return self.model.vision.vision_tensors()

    def vision_settings(self) -> dict[str, Any]:
        """What besides weights decides the image embedding."""
        return self.model.vision.vision_settings()

    @property
    def vision_fingerprint(self) -> str:
        """That of the image tower: another encoder's cached embeddings serve."""
        return self.model.vision.vision_fingerprint

    def parts(self) -> list[object]:
        """Itself and what it consists of."""
        return [self, self.model.text, *self.model.vision.parts()]

    def write_parts(self, folder: Path) -> None:
        """Write the folder that the class describes."""
        for part in ("text", "vision"):
            (folder / part).mkdir()
        self.model.text.save(folder / "text", self.model.projection, self.max_length)
        self.model.vision.write(folder / "vision")
        modules = read_json(folder / "text" / "modules.json")
        inner = [{**module, "path": str(Path("text", module["path"]))} for module in modules]
        write_json(folder / "modules.json", inner)
        shutil.copy(folder / "text" / SENTENCE_CONFIG, folder / SENTENCE_CONFIG)
        config = {
            "model_type": PAIR,
            "dim": self.dim,
            "max_tokens": self.max_tokens,
            "vision": {"folder": "vision"} if self.reads_images else self.vision_settings(),
        }
        write_json(folder / "config.json", config)


class _PairModules(nn.Module):
    """What a pair consists of; the image tower is frozen, and always in evaluation mode."""

    def __init__(self, vision: ImageTower, text: SentenceEncoder, projection: nn.Linear) -> None:
        super().__init__()
        self.vision = vision
        self.text = text
        self.projection = projection

    def train(self, mode: bool = True) -> "_PairModules":
        super().train(mode)
        self.vision.eval()
        return self


def fresh_projection(width: int, dim: int) -> nn.Linear:
    """A random projection without bias from `width` to `dim` numbers, the same every time.

    >>> fresh_projection(2, 3).weight.shape
    torch.Size([3, 2])
    """
    projection = nn.Linear(width, dim, bias=False)
    weight = torch.randn(dim, width, generator=torch.Generator().manual_seed(0))
    projection.weight.data = weight / width**0.5
    return projection
