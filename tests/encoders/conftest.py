"""Tiny random encoders of each kind, opened once."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.encoders import (
    BlipEncoder,
    ClipEncoder,
    PairEncoder,
    SiglipEncoder,
    load_encoder,
)

TOWER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "initializer_range": 0.2,
    "initializer_factor": 4.0,
}

PAIRED = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
}


def merges() -> list[tuple[str, str]]:
    """The merges of a small byte-level vocabulary, in their order."""
    return [("r", "e"), ("re", "d</w>"), ("s", "t"), ("a", "r</w>"), ("st", "ar</w>")]


def clip_tokenizer() -> Any:
    from transformers import CLIPTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    tokens = [*letters, *(c + "</w>" for c in letters), *map("".join, merges())]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizerFast(vocab=vocabulary, merges=merges(), model_max_length=77)


def make_clip(folder: Path, *, old: bool = False, positions: int = 77, **vision: Any) -> Path:
    """Save a tiny CLIPModel of random weights; `old`: with `eos_token_id` 2, as OpenAI's."""
    import torch
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokenizer = clip_tokenizer()
    tokenizer.model_max_length = positions
    text = {
        **TOWER,
        "num_attention_heads": 1,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": positions,
        "bos_token_id": 0 if old else tokenizer.bos_token_id,
        "eos_token_id": 2 if old else tokenizer.eos_token_id,
        "pad_token_id": 1 if old else tokenizer.pad_token_id,
    }
    sizes = {"image_size": 32, "patch_size": 8, "num_attention_heads": 2, **vision}
    vision_config = {**TOWER, "hidden_size": 128, **sizes}
    config = CLIPConfig(text_config=text, vision_config=vision_config, projection_dim=16)
    torch.manual_seed(0)
    model = CLIPModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):  # made as zeros, which would hide a bias that is mislaid
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    side = {"shortest_edge": 32}
    CLIPImageProcessorPil(size=side, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def make_siglip(folder: Path) -> Path:
    """Save a tiny SiglipModel of random weights, with the tokenizer files of the published ones."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, SiglipConfig, SiglipModel
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    pieces = ["<unk>", "</s>", "\u2581", *"abcdefghijklmnopqrstuvwxyz", "\u2581red", "\u2581star"]
    scores = [(piece, -len(pieces) / (1 + len(piece))) for piece in pieces]
    backend = Tokenizer(models.Unigram(scores, unk_id=0))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="</s>",
        pad_token="</s>",
        unk_token="<unk>",
        model_max_length=64,
        model_input_names=["input_ids"],
    )
    common = {**TOWER, "num_attention_heads": 4}
    config = SiglipConfig(
        text_config={**common, "vocab_size": len(pieces), "max_position_embeddings": 64},
        vision_config={**common, "image_size": 32, "patch_size": 8},
    )
    torch.manual_seed(0)
    model = SiglipModel(config)
    with torch.no_grad():  # the library begins so small that all texts would look alike
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    SiglipImageProcessorPil(size=size).save_pretrained(folder)
    return folder


def make_text(folder: Path, blip: Path, kind: Any = None, **config: Any) -> Path:
    """A tiny text encoder of random weights with the word pieces of the tiny BLIP."""
    import torch
    from transformers import AutoTokenizer, BertModel

    kind = kind or BertModel
    tokenizer = AutoTokenizer.from_pretrained(blip)
    torch.manual_seed(1)
    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": 200, **PAIRED, **config}
    kind(kind.config_class(**settings)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_vision(folder: Path, kind: Any, config: Any) -> Path:
    """A tiny vision model of random weights with a Pillow image processor."""
    import torch
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    torch.manual_seed(2)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and scales too, which begin as 0 and 1
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def make_gemma_tokenizer(folder: Path, says: dict, *, lower: bool = False) -> int:
    """Write Gemma's kind of tokenizer, whose file does not lower-case; returns its entries."""
    import json
    import string

    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder.mkdir(exist_ok=True)
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581", *string.ascii_letters]
    pieces += [
        ".",
        "!",
        "<",
        ">",
        "/",
        "|",
        "re",
        "red",
        "\u2581b",
        "\u2581bu",
        "\u2581bus",
        "RE",
        "RED",
    ]
    merges = [("r", "e"), ("re", "d"), ("\u2581", "b"), ("\u2581b", "u"), ("\u2581bu", "s")]
    merges += [("R", "E"), ("RE", "D")]
    backend = Tokenizer(
        models.BPE({piece: place for place, piece in enumerate(pieces)}, merges, unk_token="<unk>")
    )
    steps: list = [normalizers.Replace(" ", "\u2581")]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps] if lower else steps)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    backend.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    backend.save(str(folder / "tokenizer.json"))
    marks = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk", "mask")}
    settings = {"model_max_length": 64, **marks, **says}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(pieces)


@pytest.fixture(scope="session")
def gemma_tokenizer() -> Callable[..., int]:
    """`make_gemma_tokenizer`."""
    return make_gemma_tokenizer


@pytest.fixture(scope="session")
def random_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny CLIP of random weights (16-wide vectors, 32 px, 77 positions)."""
    return make_clip(tmp_path_factory.mktemp("models") / "random-clip")


@pytest.fixture(scope="session")
def clip(random_clip: Path) -> ClipEncoder:
    encoder = load_encoder(random_clip, device="cpu")
    assert isinstance(encoder, ClipEncoder)
    return encoder


@pytest.fixture(scope="session")
def random_siglip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny SigLIP of random weights (64-wide vectors, 32 px, 64 positions)."""
    return make_siglip(tmp_path_factory.mktemp("models") / "random-siglip")


@pytest.fixture(scope="session")
def siglip(random_siglip: Path) -> SiglipEncoder:
    encoder = load_encoder(random_siglip, device="cpu")
    assert isinstance(encoder, SiglipEncoder)
    return encoder


@pytest.fixture(scope="session")
def clip_maker() -> Callable[..., Path]:
    """`make_clip`, for tests that want one of their own."""
    return make_clip


@pytest.fixture(scope="session")
def text(random_blip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT of random weights (32 wide, 200 positions)."""
    return make_text(tmp_path_factory.mktemp("models") / "text", random_blip)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny ViT of random weights (32 wide, 32 px)."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(**PAIRED, image_size=32, patch_size=8)
    return make_vision(tmp_path_factory.mktemp("models") / "vit", ViTModel, config)


@pytest.fixture(scope="session")
def pair(vit: Path, text: Path) -> PairEncoder:
    encoder = load_encoder(f"{vit}+{text}", "cpu")
    assert isinstance(encoder, PairEncoder)
    return encoder


@pytest.fixture(scope="session")
def text_maker() -> Callable[..., Path]:
    """`make_text`, for tests that want one of their own."""
    return make_text


@pytest.fixture(scope="session")
def vision_maker() -> Callable[..., Path]:
    """`make_vision`, likewise."""
    return make_vision


@pytest.fixture(scope="session")
def blip(random_blip: Path) -> BlipEncoder:
    encoder = load_encoder(random_blip, device="cpu")
    assert isinstance(encoder, BlipEncoder)
    return encoder


@pytest.fixture
def checkpoint(random_blip: Path, tmp_path: Path) -> Path:
    """A copy of the random BLIP's folder, to be damaged at will."""
    return Path(shutil.copytree(random_blip, tmp_path / "checkpoint"))


@pytest.fixture
def rewrite() -> Callable[[Path, Callable[[dict], dict]], None]:
    """Replace the weights of a folder by `change(weights)`."""
    from safetensors.torch import load_file, save_file

    def apply(folder: Path, change: Callable[[dict], dict]) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return apply
