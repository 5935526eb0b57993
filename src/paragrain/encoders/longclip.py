"""Weights under OpenAI's names, of 248 positions or 77, as a CLIP; and any CLIP made as long.

Long-CLIP (arXiv 2403.15378, github.com/beichenzbc/Long-CLIP) is CLIP with more text positions. It
keeps the first 20, which CLIP has trained well, and stretches the others by 4. HiMo-CLIP (arXiv
2511.06653, github.com/UnicomAI/HiMo-CLIP) and DeBias-CLIP (arXiv 2602.22419,
github.com/TRAILab/DeBias-CLIP) train the same model in other ways.
"""

import copy
import gzip
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.clip import ClipEncoder
from paragrain.encoders.weights import (
    load_part,
    make_model,
    one_sentence,
    read_weights,
    without_prefix,
)
from paragrain.errors import UsageError

KEPT = 20
"""Positions that Long-CLIP leaves as CLIP has trained them."""

MERGES = "bpe_simple_vocab_16e6.txt.gz"
"""CLIP's vocabulary as its original code, Long-CLIP's and open_clip's ship it."""

_HEAD_WIDTH = 64  # of every CLIP by OpenAI: heads = width / 64

_BEGINNINGS = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.": "vision_model.embeddings.patch_embedding.",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.proj": "visual_projection.weight",
    "visual.ln_pre.": "vision_model.pre_layrnorm.",
    "visual.ln_post.": "vision_model.post_layernorm.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
    "token_embedding.": "text_model.embeddings.token_embedding.",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "text_projection": "text_projection.weight",
    "transformer.resblocks.": "text_model.encoder.layers.",
    "ln_final.": "text_model.final_layer_norm.",
}
_TRANSPOSED = ("visual.proj", "text_projection")
_INNER = {
    ".ln_1.": ".layer_norm1.",
    ".ln_2.": ".layer_norm2.",
    ".attn.": ".self_attn.",
    ".mlp.c_fc.": ".mlp.fc1.",
    ".mlp.c_proj.": ".mlp.fc2.",
}
_SETTINGS = ("input_resolution", "context_length", "vocab_size")  # numbers among the weights


def is_weight_file(path: Path) -> bool:
    """Whether it is a file of weights alone, and no part of a Hugging Face folder."""
    alone = path.suffix == ".pt" or not (path.parent / "config.json").is_file()
    return alone and path.suffix in (".pt", ".pth", ".bin", ".safetensors") and path.is_file()


def load_longclip(path: Path, name: str) -> ClipEncoder:
    """Open a file of Long-CLIP's layout such as `longclip-B.pt`, read with `weights_only`.

    Sizes follow from the shapes of the weights, images are prepared as CLIP does, and the tokenizer
    is read from beside the file: `tokenizer.json`, or `vocab.json` and `merges.txt` (those of
    openai/clip-vit-base-patch16 will do), or `bpe_simple_vocab_16e6.txt.gz` out of Long-CLIP's own
    folder `model`. Files of HiMo-CLIP, of DeBias-CLIP (open_clip's names, under `state_dict` beside
    the state of its training) and of OpenAI (77 positions) open too. DeBias-CLIP's own loader puts
    the first table of positions in the place of the trained second; here the second is read, which
    differs by at most 0.001.

    Raises:
        ParagrainError: the file is none of these, or the tokenizer is absent.
    """
    state = without_prefix(read_weights(path, name))
    state = {key.removeprefix("text."): tensor for key, tensor in state.items()}
    with one_sentence(
        f"{name} does not hold the weights of a Long-CLIP",
        "use an original file such as longclip-B.pt, or a folder in the Hugging Face layout",
    ):
        config = _config(state)
    text, size = config.text_config, config.vision_config.image_size
    tokenizer = _tokenizer_beside(path, name, text.vocab_size)
    tokenizer.model_max_length = text.max_position_embeddings
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": size}, crop_size={"height": size, "width": size}
    )
    return ClipEncoder(
        make_model(CLIPModel, config, clip_state(state), name), processor, tokenizer, name
    )


def clip_state(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights under OpenAI's names as weights under the names of `CLIPModel`.

    Where a second table of positions is there, `positional_embedding_res`, the first 20 rows
    come from the first table, which Long-CLIP keeps frozen, and the others from the second: its
    `encode_text` masks them so. Names that are not known stay as they are.

    >>> list(clip_state({"transformer.resblocks.0.ln_1.bias": torch.zeros(2)}))
    ['text_model.encoder.layers.0.layer_norm1.bias']
    """
    state = {name: tensor for name, tensor in state.items() if name not in _SETTINGS}
    trained = state.pop("positional_embedding_res", None)
    if trained is not None:
        frozen = state["positional_embedding"]
        state["positional_embedding"] = torch.cat([frozen[:KEPT], trained[KEPT:]])
    result = {}
    for name, tensor in state.items():
        old = next((old for old in _BEGINNINGS if name.startswith(old)), "")
        new = _BEGINNINGS.get(old, "") + name.removeprefix(old)
        for old, inner in _INNER.items():
            new = new.replace(old, inner)
        if ".in_proj_" in new:
            for part, third in zip("qkv", tensor.chunk(3), strict=True):
                result[new.replace(".in_proj_", f".{part}_proj.")] = third.clone()
        else:
            result[new] = tensor.T.contiguous() if name in _TRANSPOSED else tensor
    return result


def _config(state: dict[str, torch.Tensor]) -> CLIPConfig:
    """The sizes of a model, from the shapes of its weights under OpenAI's names."""

    def tower(prefix: str, width: int) -> dict[str, Any]:
        layers = sum(n.startswith(prefix) and n.endswith(".ln_1.weight") for n in state)
        return {
            "hidden_size": width,
            "intermediate_size": state[f"{prefix}0.mlp.c_fc.weight"].shape[0],
            "num_hidden_layers": layers,
            "num_attention_heads": max(1, width // _HEAD_WIDTH),
            "hidden_act": "quick_gelu",
        }

    width, _, patch, _ = state["visual.conv1.weight"].shape
    grid = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    entries, text_width = state["token_embedding.weight"].shape
    dim = state["text_projection"].shape[1]
    return CLIPConfig(
        projection_dim=dim,
        vision_config={
            **tower("visual.transformer.resblocks.", width),
            "projection_dim": dim,
            "image_size": patch * grid,
            "patch_size": patch,
        },
        text_config={
            **tower("transformer.resblocks.", text_width),
            "projection_dim": dim,
            "vocab_size": entries,
            "bos_token_id": entries - 2,
            "eos_token_id": entries - 1,
            "pad_token_id": entries - 1,
            "max_position_embeddings": state["positional_embedding"].shape[0],
        },
    )


def _tokenizer_beside(path: Path, name: str, entries: int) -> Any:
    """CLIP's tokenizer from the folder of a `.pt` file."""
    files = ("tokenizer.json", "vocab.json", MERGES)
    merges = path.parent / MERGES
    if merges.is_file() and not any((path.parent / file).is_file() for file in files[:2]):
        with one_sentence(
            f"the tokenizer of {name} cannot be read from {merges}", "fetch it again"
        ):
            return clip_tokenizer(merges, entries)
    return load_part(CLIPTokenizer, path.parent, name, "tokenizer", files)


def clip_tokenizer(merges: Path, entries: int = 49_408) -> CLIPTokenizer:
    """CLIP's tokenizer from the list of merges that the original code ships, gzipped.

    The vocabulary of `entries` is: 256 bytes, 256 bytes that end a word, the merges in their
    order, and the start and end tokens (`simple_tokenizer.py` in github.com/openai/CLIP).
    """
    letters = list(bytes_to_unicode().values())
    with gzip.open(merges, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[1 : entries - 2 * len(letters) - 1]
    pairs = [tuple(line.split()) for line in lines]
    tokens = [*letters, *(letter + "</w>" for letter in letters), *map("".join, pairs)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={token: index for index, token in enumerate(tokens)}, merges=pairs)


def stretch(encoder: ImageTextEncoder, positions: int = 248, keep: int = KEPT) -> ClipEncoder:
    """A CLIP that reads texts of `positions` tokens; everything else is shared with `encoder`.

    See `stretched` for the rule. Texts of at most `keep` tokens get the same vectors as before.
    The name becomes `NAME@POSITIONS`, by which `load_encoder` makes it again.

    Raises:
        UsageError: it is no CLIP, it has that many positions already, or `keep` leaves fewer
            than two to stretch.
    """
    if type(encoder) is not ClipEncoder:  # a subclass may read its texts in another way
        raise UsageError(f"{encoder.name} cannot be stretched: only a CLIP can")
    if positions <= encoder.max_tokens:
        raise UsageError(
            f"{encoder.name} reads {encoder.max_tokens} tokens already: "
            "stretch it to more, or leave it as it is"
        )
    if not 0 <= keep <= encoder.max_tokens - 2:
        raise UsageError(f"{keep} positions to keep: choose from 0 to {encoder.max_tokens - 2}")
    # deepcopy takes what is in the memo for already copied: all tensors stay shared.
    tensors = [*encoder.model.parameters(), *encoder.model.buffers()]
    model = copy.deepcopy(encoder.model, {id(tensor): tensor for tensor in tensors})
    embeddings = model.text_model.embeddings
    old = embeddings.position_embedding.weight
    table = stretched(old.detach(), positions, keep)
    embeddings.position_embedding = nn.Embedding.from_pretrained(
        table, freeze=not old.requires_grad
    )
    embeddings.position_ids = torch.arange(positions, device=old.device)[None]
    for config in (model.config.text_config, model.text_model.config):
        config.max_position_embeddings = positions
    tokenizer = copy.deepcopy(encoder.tokenizer)
    tokenizer.model_max_length = positions
    name = f"{encoder.name}@{positions}" + ("" if keep == KEPT else f", the first {keep} kept")
    long = ClipEncoder(model, encoder.image_processor, tokenizer, name)
    long.trained_on = encoder.trained_on
    return long.train(encoder.training)


def stretched(table: torch.Tensor, positions: int, keep: int = KEPT) -> torch.Tensor:
    """Stretch a table of positions `[L, H]` to `[positions, H]` as Long-CLIP does.

    The first `keep` rows stay. Row `keep + f*i + k` lies k/f of the way from row `keep + i` to
    the next, f being how many new rows there are for each old one: 4 from 77 to 248. Beyond the
    last old row the last step goes on (`load_from_clip` in Long-CLIP's `longclip.py`).

    >>> stretched(torch.tensor([[5.0], [0.0], [4.0]]), 5, keep=1).flatten().tolist()
    [5.0, 0.0, 2.0, 4.0, 6.0]
    """
    length = len(table)
    rows = torch.arange(positions - keep, dtype=torch.float64, device=table.device)
    places = rows * (length - keep) / (positions - keep) + keep
    before = places.long().clamp(max=length - 2)
    share = (places - before)[:, None]
    exact = table.double()
    new = exact[before] + share * (exact[before + 1] - exact[before])
    return torch.cat([table[:keep], new.to(table.dtype)])
