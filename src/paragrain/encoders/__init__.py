"""Image-text encoders over Hugging Face models: loading, encoding under a token budget, saving."""

from paragrain.encoders.base import (
    ImageTextEncoder,
    TextVectors,
    Tokens,
    encode_images,
    encode_texts,
    encode_tokens,
)
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.loading import load_encoder

__all__ = [
    "BlipEncoder",
    "ImageTextEncoder",
    "TextVectors",
    "Tokens",
    "encode_images",
    "encode_texts",
    "encode_tokens",
    "load_encoder",
]
