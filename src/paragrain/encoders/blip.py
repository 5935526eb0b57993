"""BLIP as an image-text encoder: contrast over `transformers.BlipForImageTextRetrieval`."""

from typing import Any, ClassVar

import torch
from transformers import AutoTokenizer, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from paragrain.encoders.family import Family, FamilyEncoder
from paragrain.encoders.tokens import MIN_LENGTH
from paragrain.errors import ParagrainError


class BlipEncoder(FamilyEncoder):
    """BLIP's unimodal side: [CLS] of each tower, projected, then of unit length.

    Equals `model(..., use_itm_head=False).itm_score` as the dot product of the two vectors. The
    text tower reads [CLS] at position 0 (not [ENC], which is for matching) and skips its
    cross-attention. BLIP: arXiv 2201.12086.
    """

    model: BlipForImageTextRetrieval
    family = Family(
        model_type="blip",
        model=BlipForImageTextRetrieval,
        image_processor=BlipImageProcessorPil,
        tokenizer=AutoTokenizer,
        tokenizer_files=("tokenizer.json", "vocab.txt"),
        text=("text_encoder.embeddings.", "text_encoder.encoder.", "text_proj."),
        vision=("vision_model.", "vision_proj."),
        text_unused=".crossattention.",
        text_usage=(
            "states = model.text_encoder(words.input_ids, words.attention_mask).last_hidden_state\n"
            "    vectors = model.text_proj(states[:, 0])"
        ),
        image_usage=(
            "states = model.vision_model(pixels).last_hidden_state\n"
            "    vectors = model.vision_proj(states[:, 0])"
        ),
        usage_note=(
            "`AutoModel` would leave the trained text tower out and put an untrained one in its "
            "place; name the class. "
        ),
    )
    heads: ClassVar = {"matching": r"^itm_head\.|^text_encoder\..*\.crossattention\."}
    pooled_token = "first"

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        self.dim = int(model.config.image_text_hidden_size)
        self.max_tokens = int(model.config.text_config.max_position_embeddings)
        stated = int(tokenizer.model_max_length)
        self.default_max_length = min(self.default_max_length, max(stated, MIN_LENGTH))
        if self.token_ids([""])[0] != [tokenizer.cls_token_id, tokenizer.sep_token_id]:
            raise ParagrainError(
                f"the tokenizer of {name} does not frame a text with [CLS] and [SEP]: "
                "use the tokenizer that came with the BLIP checkpoint"
            )
        self.check_vocabulary()
        self.check_pixels()

    def image_states(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches behind [CLS], as the matching head's cross-attention reads them; vectors."""
        states = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return states, self.model.vision_proj(states[:, 0])

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, mode: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, [CLS] first; vectors."""
        states = self.model.text_encoder(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return states, self.model.text_proj(states[:, 0])
