"""SigLIP as an image-text encoder: `transformers.SiglipModel`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast, SiglipModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.checks import check_end_token, check_pixels, check_vocabulary
from paragrain.encoders.reading import lower_case
from paragrain.encoders.saving import write_tokenizer
from paragrain.encoders.weights import load_model, load_part
from paragrain.errors import ParagrainError
from paragrain.files import read_json


class SiglipEncoder(ImageTextEncoder):
    """SigLIP: attention-pooled image and the last position of the text, of unit length.

    Equals `get_image_features` and `get_text_features` of `SiglipModel`, normalised, when texts
    are padded as the model was trained: always to all of its positions (64), without a mask.
    Attention looks both ways, so the fill is part of what the model reads, and the vector is that
    of the last position, most often a fill. Here every text is filled up in that way, whatever
    batch it comes in; hence the rest of a batch never changes its vector, and a short text costs
    as much as a long one.

    The tokenizer is read from `tokenizer.json`, which drops punctuation where the checkpoint wants
    that, and lower-cases: where the file does not, since the tokenizer's class does (SigLIP 2),
    that is added, unless its configuration says `do_lower_case: false`. SigLIP 2 checkpoints of
    fixed resolution are of this class (`model_type` siglip); those of free resolution (siglip2) are
    not. SigLIP: arXiv 2303.15343.
    """

    model: SiglipModel

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        text, vision = model.config.text_config, model.config.vision_config
        self.dim = int(text.projection_size)
        self.max_tokens = int(min(text.max_position_embeddings, tokenizer.model_max_length))
        self.padded_to = self.max_tokens
        if not vision.vision_use_head or vision.hidden_size != self.dim:
            raise ParagrainError(
                f"{name} gives no image embeddings beside its text vectors of {self.dim} numbers: "
                "use a SigLIP checkpoint with both towers and the vision head"
            )
        if tokenizer.pad_token_id is None:
            raise ParagrainError(
                f"the tokenizer of {name} names no pad token, which SigLIP reads as text: "
                "use the tokenizer that came with the checkpoint"
            )
        check_vocabulary(self, text.vocab_size)
        check_end_token(self)
        check_pixels(self, vision.image_size)

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "SiglipEncoder":
        """Load a folder that holds a SiglipModel; see `loading.load_encoder`."""
        # The Pillow processor by name, as for BLIP: torchvision's gives other pixels.
        image_processor = load_part(
            SiglipImageProcessorPil,
            folder,
            name,
            "image processor",
            ("preprocessor_config.json", "processor_config.json"),
        )
        tokenizer = load_part(_Tokenizer, folder, name, "tokenizer", ("tokenizer.json",))
        return cls(load_model(SiglipModel, folder, name), image_processor, tokenizer, name)

    def write_parts(self, folder: Path) -> None:
        """Write its parts, the tokenizer under a class that adds nothing to its file."""
        super().write_parts(folder)
        write_tokenizer(
            folder,
            self.tokenizer,
            self.max_length,
            padding_side=self.tokenizer.padding_side,
            tokenizer_class="PreTrainedTokenizerFast",
        )

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of images `[B, 3, H, W]` as `pixels` makes them."""
        pooled = self.model.vision_model(pixel_values=pixels).pooler_output
        return nn.functional.normalize(pooled.float(), dim=-1)

    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors float32 `[B, D]` of padded texts `[B, L]`; differentiable."""
        filled = input_ids.masked_fill(attention_mask == 0, self.pad_id)
        room = self.max_tokens - filled.shape[1]
        filled = nn.functional.pad(filled, (0, room), value=self.pad_id)
        if self.tokenizer.padding_side == "left":  # turn each row until its text ends it
            places = torch.arange(self.max_tokens, device=filled.device)
            filled = filled.gather(1, (places + attention_mask.sum(1)[:, None]) % self.max_tokens)
        pooled = self.model.text_model(input_ids=filled).pooler_output
        return nn.functional.normalize(pooled.float(), dim=-1)

    def text_parameters(self) -> dict[str, nn.Parameter]:
        """The text model, its head included."""
        return dict(self.model.text_model.named_parameters(prefix="text_model"))

    def vision_tensors(self) -> dict[str, torch.Tensor]:
        """The vision model, its head included."""
        return dict(self.model.vision_model.named_parameters(prefix="vision_model"))

    def text_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant and fill of the text model."""
        config = self.model.config.text_config
        settings = {key: getattr(config, key) for key in _SETTINGS}
        settings |= {"pad_id": self.pad_id, "padded_to": self.padded_to}
        left = {"padding_side": "left"} if self.tokenizer.padding_side == "left" else {}
        return settings | left

    def vision_settings(self) -> dict[str, Any]:
        """Attention heads, activation, normalisation constant and sizes of the vision model."""
        config = self.model.config.vision_config
        return {key: getattr(config, key) for key in (*_SETTINGS, "image_size", "patch_size")}


class _Tokenizer:
    """The fast tokenizer of a folder, with what its class does and its `tokenizer.json` does not.

    The class that SigLIP's configurations name needs sentencepiece, and its `tokenizer.json` says
    all. SigLIP 2 has Gemma's, whose class knows on which side texts are filled up.
    """

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> Any:
        path = folder / "tokenizer_config.json"
        says = dict(read_json(path)) if path.is_file() else {}
        gemma = str(says.get("tokenizer_class")).startswith(("Siglip2", "Gemma"))
        kind = AutoTokenizer if gemma else PreTrainedTokenizerFast
        tokenizer = kind.from_pretrained(folder, **options)
        if says.get("do_lower_case", True):
            lower_case(tokenizer)
        return tokenizer


_SETTINGS = ("num_attention_heads", "hidden_act", "layer_norm_eps")
