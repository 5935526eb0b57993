"""Any pair: one model's image embeddings, another's texts, and a fresh projection between them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from paragrain.encoders.base import ImageTextEncoder, ImageTower, Output, check_output, unit
from paragrain.encoders.registry import PAIR, read_config
from paragrain.encoders.sentence import SENTENCES, SentenceEncoder
from paragrain.encoders.vision import saved_vision
from paragrain.encoders.weights import effective_tensors
from paragrain.errors import ParagrainError
from paragrain.files import read_json, write_json


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

    model: "_Parts"
    towers = ("text",)
    text_outputs = ("pooled", "tokens")

    def __init__(
        self,
        vision: ImageTower,
        text: SentenceEncoder,
        name: str,
        projection: nn.Linear | None = None,
    ) -> None:
        parts = _Parts(vision, text, projection or fresh_projection(text.width, vision.dim))
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
        shutil.copy(folder / "text" / SENTENCES, folder / SENTENCES)
        config = {
            "model_type": PAIR,
            "dim": self.dim,
            "max_tokens": self.max_tokens,
            "vision": {"folder": "vision"} if self.reads_images else self.vision_settings(),
        }
        write_json(folder / "config.json", config)


class _Parts(nn.Module):
    """What a pair consists of; the image tower is frozen, and always in evaluation mode."""

    def __init__(self, vision: ImageTower, text: SentenceEncoder, projection: nn.Linear) -> None:
        super().__init__()
        self.vision = vision
        self.text = text
        self.projection = projection

    def train(self, mode: bool = True) -> "_Parts":
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
