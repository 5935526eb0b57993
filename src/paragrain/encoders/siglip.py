"""SigLIP as an image-text encoder: `transformers.SiglipModel`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast, SiglipModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from paragrain.encoders.checkpoint import write_tokenizer
from paragrain.encoders.family import Family, FamilyEncoder
from paragrain.encoders.tokenization import lower_case
from paragrain.errors import ParagrainError
from paragrain.files import read_json


class SiglipTokenizer:
    """The fast tokenizer of a folder, with what its class does and its `tokenizer.json` does not.

    The class that SigLIP's configurations name needs sentencepiece, and its `tokenizer.json` says
    all. SigLIP 2 has Gemma's, whose class lower-cases, and knows on which side texts are filled up.
    """

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> Any:
        """Load it; lower-casing, unless the folder says otherwise."""
        path = folder / "tokenizer_config.json"
        says = dict(read_json(path)) if path.is_file() else {}
        gemma = str(says.get("tokenizer_class")).startswith(("Siglip2", "Gemma"))
        tokenizer = (AutoTokenizer if gemma else PreTrainedTokenizerFast).from_pretrained(
            folder, **options
        )
        if says.get("do_lower_case", True):
            lower_case(tokenizer)
        return tokenizer


class SiglipEncoder(FamilyEncoder):
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
    family = Family(
        model_type="siglip",
        model=SiglipModel,
        image_processor=SiglipImageProcessorPil,
        tokenizer=SiglipTokenizer,
        tokenizer_files=("tokenizer.json",),
        text=("text_model.",),
        vision=("vision_model.",),
        text_usage="vectors = model.text_model(words.input_ids).pooler_output",
        image_usage="vectors = model.vision_model(pixels).pooler_output",
        padding='"max_length"',
    )
    pooled_token = "last"

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
        self.check_vocabulary()
        self.check_end_token()
        self.check_pixels()

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

    def image_states(self, pixels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches; vectors."""
        output = self.model.vision_model(pixel_values=pixels)
        return output.last_hidden_state, output.pooler_output

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, mode: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, without what fills them up; vectors."""
        output = self.model.text_model(self.filled(input_ids, attention_mask, self.max_tokens))
        return self.unfilled(output.last_hidden_state, attention_mask), output.pooler_output

    def filled(self, ids: torch.Tensor, mask: torch.Tensor, length: int) -> torch.Tensor:
        """Texts `[B, L]` filled up to `[B, length]` on the side that the tokenizer fills."""
        filled = ids.masked_fill(mask == 0, self.pad_id)
        filled = nn.functional.pad(filled, (0, length - filled.shape[1]), value=self.pad_id)
        places = torch.arange(length, device=ids.device)
        return filled.gather(1, (places + self._shift(mask)) % length)

    def unfilled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States `[B, length, H]` of filled texts as those of their tokens `[B, L, H]`."""
        places = torch.arange(mask.shape[1], device=mask.device)
        places = (places - self._shift(mask)) % states.shape[1]
        return states.gather(1, places[..., None].expand(-1, -1, states.shape[2]))

    def _shift(self, mask: torch.Tensor) -> torch.Tensor:
        """How far each text `[B, 1]` is turned, so that on the left-hand side its end ends it."""
        left = self.tokenizer.padding_side == "left"
        return mask.sum(1)[:, None] if left else torch.zeros_like(mask[:, :1])

    def text_settings(self) -> dict[str, Any]:
        """Those of the family, and how texts are filled up."""
        settings = super().text_settings()
        settings |= {"pad_id": self.pad_id, "padded_to": self.padded_to}
        left = {"padding_side": "left"} if self.tokenizer.padding_side == "left" else {}
        return settings | left
