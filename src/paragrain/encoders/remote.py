"""Models whose code came with their checkpoint, run only by those who ask for it."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from paragrain.encoders.base import ImageTextEncoder, Output, check_output, unit
from paragrain.encoders.card import Story
from paragrain.encoders.weights import (
    PROCESSOR_FILES,
    effective_tensors,
    load_part,
    one_sentence,
    plain_settings,
)
from paragrain.errors import UsageError


def code_of(config: Mapping[str, Any]) -> str:
    """The class of its own that a checkpoint's configuration names, "" if it names none.

    >>> code_of({"auto_map": {"AutoModel": "org/code--modeling_clip.JinaCLIPModel"}})
    'org/code--modeling_clip.JinaCLIPModel'
    """
    named = config.get("auto_map")
    named = named if isinstance(named, dict) else {}
    return next((str(named[key]) for key in sorted(named) if key != "AutoConfig"), "")


class RemoteEncoder(ImageTextEncoder):
    """Any model with `get_image_features(pixel_values)` and `get_text_features(input_ids, ...)`.

    What its code does is not known here: it does not train, it is not saved, and its fingerprints
    are of all its weights, its configuration and the file of its class.
    """

    towers = ()
    remote_code = True

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        self.max_tokens = min(int(tokenizer.model_max_length), 8192)
        row = torch.tensor(self.token_ids([""]))
        with one_sentence(
            f"the code of {name} gives no text vectors",
            "use a model with get_text_features and get_image_features",
        ):
            features = self.eval().text_features(row, torch.ones_like(row))
        self.dim = features.shape[1]

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "RemoteEncoder":
        """Load a folder by its own code.

        Raises:
            ParagrainError: that code fails.
        """
        trusted = {"trust_remote_code": True}
        processor = load_part(
            AutoImageProcessor, folder, name, "image processor", PROCESSOR_FILES, **trusted
        )
        files = ("tokenizer.json", "vocab.txt", "vocab.json")
        tokenizer = load_part(AutoTokenizer, folder, name, "tokenizer", files, **trusted)
        with one_sentence(
            f"the code of {name} does not run here",
            "it may need other packages or another version of transformers",
        ):
            model = AutoModel.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, **trusted
            )
        return cls(model, processor, tokenizer, name)

    def image_features(self, pixels: torch.Tensor, output: Output = "pooled") -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of images."""
        check_output(self.name, output, self.image_outputs)
        return unit(_pooled(self.model.get_image_features(pixel_values=pixels)))

    def text_features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        output: Output = "pooled",
        mode: str | None = None,
    ) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of padded texts."""
        check_output(self.name, output, self.text_outputs)
        made = self.model.get_text_features(input_ids=input_ids, attention_mask=attention_mask)
        return unit(_pooled(made))

    def text_tensors(self) -> dict[str, torch.Tensor]:
        """All weights, since it is not known which are of the text tower."""
        return effective_tensors(self.model)

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """All weights, since it is not known which are of the image tower."""
        return effective_tensors(self.model)

    def text_settings(self) -> dict[str, Any]:
        """Configuration, and a hash of the file of the model's class."""
        file = sys.modules[type(self.model).__module__].__file__
        code = Path(file).read_bytes() if file else b""
        digest = hashlib.blake2b(code, digest_size=16).hexdigest()
        return {"config": plain_settings(self.model.config), "code": digest}

    def vision_settings(self) -> dict[str, Any]:
        """As of texts, and what the image processor says."""
        return {**self.text_settings(), "processor": plain_settings(self.image_processor)}

    def save(self, folder: Path | str, story: Story | None = None) -> None:
        """There is no checkpoint of it but its own.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.name} runs code of its own and is not saved: copy its folder")


def _pooled(output: Any) -> torch.Tensor:
    """The vectors among what a model gives."""
    vectors: torch.Tensor = getattr(output, "pooler_output", output)
    return vectors
