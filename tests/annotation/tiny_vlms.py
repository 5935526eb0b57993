"""Builders of tiny vision-language models of random weights, in folders as a Hub name gives them.

Their texts are noise. Tokens are bytes, so that any prompt can be read and any noise written.
"""

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: "
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A chat template in which IMAGE stands for the image token."""

_TEXT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.6,
}


def make_tiny_llava(folder: Path) -> Path:
    """Save a LLaVA of one CLIP layer and two Llama layers: 64-pixel images are 16 tokens."""
    import torch
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokenizer = _tokenizer("<image>")
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=64,
            patch_size=16,
            projection_dim=16,
            initializer_range=0.6,
        ),
        text_config=LlamaConfig(**_TEXT, **_ids(tokenizer), vocab_size=len(tokenizer)),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
        vision_feature_layer=-1,
    )
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config)
    model.generation_config.do_sample = True  # else servers take no notice of a temperature
    model.save_pretrained(folder)
    side = {"height": 64, "width": 64}
    LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 64}, crop_size=side),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    ).save_pretrained(folder)
    return folder


def make_tiny_mllama(folder: Path) -> Path:
    """Save a Llama-3.2-Vision of three layers, one of them cross-attention to up to four tiles."""
    import torch
    from transformers import MllamaConfig, MllamaForConditionalGeneration, MllamaProcessor
    from transformers.models.mllama.configuration_mllama import (
        MllamaTextConfig,
        MllamaVisionConfig,
    )
    from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil

    tokenizer = _tokenizer("<|image|>")
    words = tokenizer.convert_tokens_to_ids("<|image|>")  # the last: it is read, never written
    config = MllamaConfig(
        vision_config=MllamaVisionConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_global_layers=1,
            attention_heads=2,
            vision_output_dim=32,
            image_size=32,
            patch_size=8,
            intermediate_layers_indices=[1],
            initializer_range=0.6,
        ),
        text_config=MllamaTextConfig(
            **{**_TEXT, "num_hidden_layers": 3},
            **_ids(tokenizer),
            vocab_size=words,
            cross_attention_layers=[1],
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        ),
        image_token_index=words,
    )
    torch.manual_seed(0)
    model = MllamaForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if "gate" in name and weight.numel() == 1:
            torch.nn.init.constant_(weight, 1.0)  # zero at first: the image would change nothing
    model.save_pretrained(folder)
    MllamaProcessor(
        MllamaImageProcessorPil(size={"height": 32, "width": 32}, max_image_tiles=4),
        tokenizer,
        chat_template=TEMPLATE.replace("IMAGE", "<|image|>"),
    ).save_pretrained(folder)
    return folder


def make_tiny_qwen2_vl(folder: Path) -> Path:
    """Save a Qwen2-VL of one vision block and two text layers, with the files that the Hub has.

    Its processor, which the files name, opens with torchvision only; this does not need it.
    """
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    tokenizer = _tokenizer(*names)
    image, video, start, end = tokenizer.convert_tokens_to_ids(list(names))
    config = Qwen2VLConfig(
        vision_config={
            "depth": 1,
            "embed_dim": 16,
            "hidden_size": 16,
            "num_heads": 2,
            "patch_size": 14,
            "initializer_range": 0.6,
        },
        text_config={
            **_TEXT,
            **_ids(tokenizer),
            "vocab_size": len(tokenizer),
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]},
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    torch.manual_seed(0)
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=112 * 112).save_pretrained(folder)
    tokenizer.chat_template = TEMPLATE.replace(
        "IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"
    )
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(*extra: str) -> Any:
    """One token for each byte, those of a chat, and `extra`."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {token: index for index, token in enumerate([*special, *letters, *extra])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=list(extra),
    )


def _ids(tokenizer: Any) -> dict[str, int]:
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
