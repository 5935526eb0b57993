"""Image-text encoders over Hugging Face models: loading, encoding under a length, saving."""

from paragrain.encoders.base import (
    ImageTextEncoder,
    TextOptions,
    Tokens,
    TrainSpec,
    encode_tokens,
)
from paragrain.encoders.blip import BlipEncoder
from paragrain.encoders.choosing import encoder_for, use
from paragrain.encoders.clip import ClipEncoder
from paragrain.encoders.encoding import TextVectors, encode_images, encode_texts
from paragrain.encoders.family import Family, FamilyEncoder
from paragrain.encoders.fgclip2 import FgClip2Encoder
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.longclip import stretch
from paragrain.encoders.pair import PairEncoder
from paragrain.encoders.registry import register_encoder
from paragrain.encoders.roundtrip import check_returns
from paragrain.encoders.siglip import SiglipEncoder

__all__ = [
    "BlipEncoder",
    "ClipEncoder",
    "Family",
    "FamilyEncoder",
    "FgClip2Encoder",
    "ImageTextEncoder",
    "PairEncoder",
    "SiglipEncoder",
    "TextOptions",
    "TextVectors",
    "Tokens",
    "TrainSpec",
    "check_returns",
    "encode_images",
    "encode_texts",
    "encode_tokens",
    "encoder_for",
    "load_encoder",
    "register_encoder",
    "stretch",
    "use",
]
