"""CLIP as an image-text encoder: `transformers.CLIPModel`, of any number of positions."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.checks import check_end_token, check_pixels, check_vocabulary
from paragrain.encoders.weights import load_model, load_part
from paragrain.errors import ParagrainError

OLD_END = 2
"""`eos_token_id` in the configurations of old checkpoints, whatever their end token is; the
library then takes the highest id of a text for its end."""


class ClipEncoder(ImageTextEncoder):
    """CLIP: [CLS] of the image and the end token of the text, projected, then of unit length.

    Equals `get_image_features` and `get_text_features` of `CLIPModel`, normalised. `max_tokens`
    is what the checkpoint has positions for: 77 for OpenAI's, 248 for a converted Long-CLIP.
    `pixels` gives the very numbers of the library's Pillow image processor, which resizes the
    shortest edge and crops the centre. Unlike OpenAI's code, the library's tokenizer repairs no
    broken Unicode (ftfy) and resolves no HTML entities. CLIP: arXiv 2103.00020.
    """

    model: CLIPModel

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        self.dim = int(model.config.projection_dim)
        self.max_tokens = int(model.config.text_config.max_position_embeddings)
        # Not what its tokenizer says: conversions of Long-CLIP keep the 77 of CLIP there.
        self.default_max_length = self.max_tokens
        check_vocabulary(self, model.config.text_config.vocab_size)
        check_end_token(self)
        self._check_end_is_found()
        check_pixels(self, model.config.vision_config.image_size)

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "ClipEncoder":
        """Load a folder that holds a CLIPModel; see `loading.load_encoder`."""
        # The Pillow processor by name, as for BLIP: torchvision's gives other pixels.
        image_processor = load_part(
            CLIPImageProcessorPil,
            folder,
            name,
            "image processor",
            ("preprocessor_config.json", "processor_config.json"),
        )
        tokenizer = load_part(
            AutoTokenizer, folder, name, "tokenizer", ("tokenizer.json", "vocab.json")
        )
        return cls(load_model(CLIPModel, folder, name), image_processor, tokenizer, name)

    def _check_end_is_found(self) -> None:
        """Refuse an end token that the model would not find: all texts would be one vector."""
        end, known = self.tokenizer.eos_token_id, self.model.config.text_config.eos_token_id
        found = max(self.tokenizer.get_vocab().values()) if known == OLD_END else known
        if found != end:
            raise ParagrainError(
                f"the text model of {self.name} looks for an end token of id {found} but its "
                f"tokenizer writes {end}: correct eos_token_id in its config.json"
            )

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of images `[B, 3, H, W]` as `pixels` makes them."""
        pooled = self.model.vision_model(pixel_values=pixels).pooler_output
        return nn.functional.normalize(self.model.visual_projection(pooled).float(), dim=-1)

    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of padded texts `[B, L]`; differentiable."""
        # No mask: attention looks back only, so the end token never sees what fills its row, and
        # without one the faster attention kernels are used.
        pooled = self.model.text_model(input_ids=input_ids).pooler_output
        return nn.functional.normalize(self.model.text_projection(pooled).float(), dim=-1)

    def text_parameters(self) -> dict[str, nn.Parameter]:
        """Text model and text projection."""
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name.startswith(("text_model.", "text_projection."))
        }

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """Vision model and visual projection."""
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name.startswith(("vision_model.", "visual_projection."))
        }

    def text_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant and end token of the text model."""
        config = self.model.config.text_config
        return {key: getattr(config, key) for key in (*_SETTINGS, "eos_token_id")}

    def vision_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant and sizes of the vision model."""
        config = self.model.config.vision_config
        return {key: getattr(config, key) for key in (*_SETTINGS, "image_size", "patch_size")}


_SETTINGS = ("num_attention_heads", "hidden_act", "layer_norm_eps")
