"""FG-CLIP 2 as an image-text encoder: pictures of any shape, texts of 196 tokens, box captions.

Its own code needs older versions of `transformers`; its model is SigLIP 2 of free resolution with
more text positions and three heads, so here it is that class of the library with these added.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import nn
from transformers import Siglip2Config, Siglip2Model
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.siglip2.modeling_siglip2 import Siglip2MultiheadAttentionPoolingHead

from paragrain.encoders.family import TEXT_SETTINGS, Family
from paragrain.encoders.longclip import KEPT
from paragrain.encoders.siglip import SiglipEncoder, SiglipTokenizer
from paragrain.errors import ParagrainError, UsageError

BUDGETS = (128, 256, 576, 784, 1024)
"""Numbers of patches that a picture may be resized to; it gets the first that holds its own."""


class FgClip2Config(Siglip2Config):
    """Configuration of FG-CLIP 2; `text_config` has `keep_len` and `longtext_len` as well."""

    model_type = "fgclip2"


class FgClip2Model(Siglip2Model):
    """The weights of FG-CLIP 2 under their published names."""

    config_class = FgClip2Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width, long = config.text_config.hidden_size, long_length(config)
        embeddings = self.text_model.embeddings
        embeddings.position_embedding_res = nn.Embedding(long, width)
        embeddings.position_embedding_ori = nn.Embedding(long, width)
        self.longtext_head = nn.Linear(width, width)
        self.boxtext_head = nn.Linear(width, width)
        self.dense_feature_head = Siglip2MultiheadAttentionPoolingHead(config.vision_config)
        self.post_init()

    def text_outputs(self, input_ids: torch.Tensor, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states `[B, L, H]` and vectors `[B, H]` of filled texts in a mode."""
        tower, table = self.text_model, self.text_model.embeddings.position_embedding.weight
        if mode == "long":
            keep = getattr(self.config.text_config, "keep_len", KEPT)
            first = tower.embeddings.position_embedding_ori.weight[:keep]
            table = torch.cat([first, tower.embeddings.position_embedding_res.weight[keep:]])
        hidden = tower.embeddings.token_embedding(input_ids) + table[: input_ids.shape[1]]
        hidden = tower.encoder(inputs_embeds=hidden, attention_mask=None).last_hidden_state
        states = tower.final_layer_norm(hidden)
        heads = {
            "short": tower.head,
            "long": self.longtext_head,
            "box": self.boxtext_head,
        }
        return states, heads[mode](states[:, -1])

    def dense(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Features `[B, P, H]` of patches in the space of box captions."""
        head = self.dense_feature_head
        hidden = head.attention(states, states, states, key_padding_mask=mask == 0)[0]
        return hidden + head.mlp(head.layernorm(hidden))


def long_length(config: Any) -> int:
    """Positions of a long text: 196 as published."""
    return int(getattr(config.text_config, "longtext_len", 196))


class FgClip2Encoder(SiglipEncoder):
    """FG-CLIP 2 (arXiv 2510.10921): SigLIP 2 with long texts, box captions and dense features.

    Equals the published `get_image_features` and `get_text_features(..., walk_type=mode)`,
    normalised. Texts are lower-cased and filled up, to 64 tokens in the modes "short" and "box" and
    to 196 in "long"; without a word about it, a text is read as "short" where at most 64 tokens of
    it are asked for, and as "long" where more are. A picture keeps its shape and is resized to at
    most as many patches as the first of `BUDGETS` that holds it. The output "dense" is the
    published `get_image_dense_feature`: a vector of each patch, to be compared with box captions;
    rows beyond a picture's patches are zero.
    """

    model: FgClip2Model
    family = Family(
        model_type="fgclip2",
        model=FgClip2Model,
        image_processor=Siglip2ImageProcessorPil,
        tokenizer=SiglipTokenizer,
        tokenizer_files=("tokenizer.json",),
        text=("text_model.", "longtext_head.", "boxtext_head."),
        vision=("vision_model.",),
        vision_settings=(*TEXT_SETTINGS, "num_patches", "patch_size"),
    )
    image_outputs = ("pooled", "patches", "dense")
    text_modes = ("short", "long", "box")
    heads: ClassVar = {"dense": r"^dense_feature_head\."}

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any, name: str) -> None:
        super().__init__(model, image_processor, tokenizer, name)
        self.padded_to = self.max_tokens  # 64
        self.max_tokens = self.default_max_length = long_length(model.config)

    def check_pixels(self) -> None:
        """Refuse an image processor that makes patches of another size than the tower reads.

        Raises:
            ParagrainError: it does.
        """
        wanted = self.model.config.vision_config.patch_size
        if self.image_processor.patch_size != wanted:
            raise ParagrainError(
                f"the image processor of {self.name} makes patches of "
                f"{self.image_processor.patch_size} pixels but its image tower reads {wanted}: "
                "correct patch_size in its preprocessor configuration"
            )

    def preprocessing(self) -> dict[str, Any]:
        """The settings of `pixels`, as plain values."""
        return super().preprocessing() | {"budgets": list(BUDGETS)}

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """One upright RGB image, resized to whole patches: float32 `[3, H, W]`."""
        size = self.image_processor.patch_size
        own = (image.width // size) * (image.height // size)
        budget = next((budget for budget in BUDGETS if own <= budget), BUDGETS[-1])
        made = self.image_processor(images=image, max_num_patches=budget, return_tensors="pt")
        rows, columns = made["spatial_shapes"][0].tolist()
        patches = made["pixel_values"][0][: rows * columns].float()
        squares = patches.view(rows, columns, size, size, 3)
        return squares.permute(4, 0, 2, 1, 3).reshape(3, rows * size, columns * size)

    def image_batch(self, pixels: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What `pixels` gave for each of B images, each of its own shape."""
        return [one.to(self.device) for one in pixels]

    def image_states(self, pixels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches, zero beyond those of a picture; vectors."""
        states, vectors, mask = self._image_outputs(pixels)
        return states * mask[..., None], vectors

    def _image_outputs(
        self, pixels: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size = self.model.config.vision_config.patch_size
        grids = [one.unfold(1, size, size).unfold(2, size, size) for one in pixels]
        patches = [grid.permute(1, 2, 3, 4, 0).flatten(0, 1).flatten(1) for grid in grids]
        values = nn.utils.rnn.pad_sequence(patches, batch_first=True)  # [B, P, size * size * 3]
        shapes = torch.tensor([grid.shape[1:3] for grid in grids], device=values.device)
        places = torch.arange(values.shape[1], device=values.device)
        mask = (places < shapes.prod(1, keepdim=True)).long()  # [B, P]
        output = self.model.vision_model(
            pixel_values=values, pixel_attention_mask=mask, spatial_shapes=shapes
        )
        return output.last_hidden_state, output.pooler_output, mask

    def image_features(self, pixels: Any, output: Any = "pooled") -> torch.Tensor:
        """Features of images; see the class for "dense"."""
        if output != "dense":
            return super().image_features(pixels, output)
        states, _, mask = self._image_outputs(pixels)
        return self.model.dense(states, mask) * mask[..., None]

    def mode_of(self, max_length: int) -> str:
        """The mode in which texts of that length are read if none is asked for."""
        return "short" if max_length <= self.padded_to else "long"

    def text_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, mode: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, without what fills them up; vectors."""
        mode = mode or self.mode_of(max(self.max_length, input_ids.shape[1]))
        length = self.max_tokens if mode == "long" else self.padded_to
        if input_ids.shape[1] > length:
            raise UsageError(
                f"{self.name} reads {length} tokens in its mode {mode!r}: ask for {length} or fewer"
            )
        filled = self.filled(input_ids, attention_mask, length)
        states, vectors = self.model.text_outputs(filled, mode)
        return self.unfilled(states, attention_mask), vectors
