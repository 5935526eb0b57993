"""BLIP as an image-text encoder: contrast over `transformers.BlipForImageTextRetrieval`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.tokens import MIN_LENGTH
from paragrain.encoders.weights import load_model, load_part
from paragrain.errors import ParagrainError


class BlipEncoder(ImageTextEncoder):
    """BLIP's unimodal side: [CLS] of each tower, projected, then of unit length.

    Equals `model(..., use_itm_head=False).itm_score` as the dot product of the two vectors. The
    text encoder reads [CLS] at position 0 (not [ENC], which is for matching) and skips its
    cross-attention. BLIP: arXiv 2201.12086.
    """

    model: BlipForImageTextRetrieval

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        self.dim = int(model.config.image_text_hidden_size)
        self.max_tokens = int(model.config.text_config.max_position_embeddings)
        stated = int(tokenizer.model_max_length)
        self.default_max_length = min(self.default_max_length, max(stated, MIN_LENGTH))
        self._check_parts_match()

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "BlipEncoder":
        """Load a folder that holds BlipForImageTextRetrieval; see `loading.load_encoder`."""
        # The Pillow processor by name: Hugging Face would take torchvision's where that is
        # installed, and its resizing gives other pixels, so other vectors.
        image_processor = load_part(
            BlipImageProcessorPil,
            folder,
            name,
            "image processor",
            ("preprocessor_config.json", "processor_config.json"),
        )
        tokenizer = load_part(
            AutoTokenizer, folder, name, "tokenizer", ("tokenizer.json", "vocab.txt")
        )
        model = load_model(BlipForImageTextRetrieval, folder, name)
        return cls(model, image_processor, tokenizer, name)

    def _check_parts_match(self) -> None:
        """Refuse a tokenizer or an image processor that belongs to another model."""
        ends = [self.tokenizer.cls_token_id, self.tokenizer.sep_token_id]
        if self.token_ids([""])[0] != ends:
            raise ParagrainError(
                f"the tokenizer of {self.name} does not frame a text with [CLS] and [SEP]: "
                "use the tokenizer that came with the BLIP checkpoint"
            )
        words, entries = len(self.tokenizer), self.model.config.text_config.vocab_size
        if words > entries:
            raise ParagrainError(
                f"the tokenizer of {self.name} has {words:,} entries but its text encoder only "
                f"{entries:,}: use the tokenizer that came with the BLIP checkpoint"
            )
        size, wanted = self.image_processor.size, self.model.config.vision_config.image_size
        if not self.image_processor.do_resize or (size.height, size.width) != (wanted, wanted):
            raise ParagrainError(
                f"the image processor of {self.name} makes {size.height} x {size.width} images "
                f"but its vision model reads {wanted} x {wanted}: correct the size in its "
                "preprocessor configuration"
            )

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of images `[B, 3, H, W]` as `pixels` makes them."""
        return self.image_states(pixels)[1]

    def image_states(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, 1 + P, W]`, [CLS] first, and [CLS] projected to unit length."""
        states = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return states, _unit(self.model.vision_proj(states[:, 0]))

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, L, W]`, [CLS] first, and [CLS] projected to unit length."""
        states = self.model.text_encoder(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return states, _unit(self.model.text_proj(states[:, 0]))

    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of padded texts `[B, L]`; differentiable."""
        return _unit(self.model.text_proj(self._first_hidden(input_ids, attention_mask)))

    def _first_hidden(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """`text_encoder(...).last_hidden_state[:, 0]` `[B, H]`, and nothing else of that layer.

        In the last layer only [CLS] asks; all other tokens are merely looked at. Leaving their
        share of it out saves up to a third of the work of a three-layer encoder.
        """
        encoder = self.model.text_encoder
        hidden = encoder.embeddings(input_ids)  # [B, L, H]
        lowest = torch.finfo(hidden.dtype).min
        mask = torch.zeros_like(attention_mask, dtype=hidden.dtype)
        mask = mask.masked_fill(attention_mask == 0, lowest)[:, None, None, :]  # [B, 1, 1, L]
        *layers, last = encoder.encoder.layer
        for layer in layers:
            hidden = layer(hidden, attention_mask=mask)
        first = hidden[:, :1]
        # The layer's own self-attention, asked by one token: keys and values from all.
        context, _ = last.attention.self(
            first, encoder_hidden_states=hidden, encoder_attention_mask=mask
        )
        return last.feed_forward_chunk(last.attention.output(context, first))[:, 0]

    def text_parameters(self) -> dict[str, nn.Parameter]:
        """Text encoder and text projection, without cross-attention, which contrast skips."""
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name.startswith(("text_encoder.embeddings.", "text_encoder.encoder.", "text_proj."))
            and ".crossattention." not in name
        }

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """Vision transformer and vision projection."""
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name.startswith(("vision_model.", "vision_proj."))
        }

    def text_settings(self) -> dict[str, Any]:
        """Attention heads, activation and normalisation constant of the text encoder."""
        config = self.model.config.text_config
        return {key: getattr(config, key) for key in _TEXT_SETTINGS}

    def vision_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant and sizes of the vision model."""
        config = self.model.config.vision_config
        return {key: getattr(config, key) for key in _VISION_SETTINGS}


_TEXT_SETTINGS = ("num_attention_heads", "hidden_act", "layer_norm_eps")
_VISION_SETTINGS = (*_TEXT_SETTINGS, "image_size", "patch_size")


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return nn.functional.normalize(vectors.float(), dim=-1)
