"""CLIP as an image-text encoder: `transformers.CLIPModel`, of any number of positions."""

from typing import Any

import torch
from transformers import AutoTokenizer, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from paragrain.encoders.family import TEXT_SETTINGS, Family, FamilyEncoder
from paragrain.errors import ParagrainError

OLD_END = 2
"""`eos_token_id` in the configurations of old checkpoints, whatever their end token is; the
library then takes the highest id of a text for its end."""


class ClipEncoder(FamilyEncoder):
    """CLIP: [CLS] of the image and the end token of the text, projected, then of unit length.

    Equals `get_image_features` and `get_text_features` of `CLIPModel`, normalised. `max_tokens`
    is what the checkpoint has positions for: 77 for OpenAI's, 248 for a converted Long-CLIP.
    `pixels` gives the very numbers of the library's Pillow image processor, which resizes the
    shortest edge and crops the centre. Unlike OpenAI's code, the library's tokenizer repairs no
    broken Unicode (ftfy) and resolves no HTML entities. CLIP: arXiv 2103.00020.
    """

    model: CLIPModel
    family = Family(
        model_type="clip",
        model=CLIPModel,
        image_processor=CLIPImageProcessorPil,
        tokenizer=AutoTokenizer,
        tokenizer_files=("tokenizer.json", "vocab.json"),
        text=("text_model.", "text_projection."),
        vision=("vision_model.", "visual_projection."),
        text_settings=(*TEXT_SETTINGS, "eos_token_id"),
        text_usage=(
            "states = model.text_model(words.input_ids).pooler_output\n"
            "    vectors = model.text_projection(states)"
        ),
        image_usage=(
            "states = model.vision_model(pixels).pooler_output\n"
            "    vectors = model.visual_projection(states)"
        ),
    )
    pooled_token = "end"

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        text = model.config.text_config
        self.dim = int(model.config.projection_dim)
        self.max_tokens = int(text.max_position_embeddings)
        # Not what its tokenizer says: conversions of Long-CLIP keep the 77 of CLIP there.
        self.default_max_length = self.max_tokens
        self.check_vocabulary()
        self.check_end_token()
        end, known = tokenizer.eos_token_id, text.eos_token_id
        found = max(tokenizer.get_vocab().values()) if known == OLD_END else known
        if found != end:  # all texts would be one vector
            raise ParagrainError(
                f"the text model of {name} looks for an end token of id {found} but its "
                f"tokenizer writes {end}: correct eos_token_id in its config.json"
            )
        self.check_pixels()

    def image_states(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches behind [CLS]; vectors."""
        output = self.model.vision_model(pixel_values=pixels)
        return output.last_hidden_state, self.model.visual_projection(output.pooler_output)

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, mode: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens; vectors.

        The model gets no mask: attention looks back only, so the end token never sees what fills
        its row, and without one the faster attention kernels are used.
        """
        output = self.model.text_model(input_ids=input_ids)
        return output.last_hidden_state, self.model.text_projection(output.pooler_output)
