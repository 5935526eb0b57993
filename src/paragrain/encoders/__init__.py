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
from paragrain.encoders.choosing import encoder_for, use
from paragrain.encoders.clip import ClipEncoder
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.longclip import stretch
from paragrain.encoders.pair import PairEncoder
from paragrain.encoders.siglip import SiglipEncoder

__all__ = [
    "BlipEncoder",
    "ClipEncoder",
    "ImageTextEncoder",
    "PairEncoder",
    "SiglipEncoder",
    "TextVectors",
    "Tokens",
    "encode_images",
    "encode_texts",
    "encode_tokens",
    "encoder_for",
    "load_encoder",
    "stretch",
    "use",
]
