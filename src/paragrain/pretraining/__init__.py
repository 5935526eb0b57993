"""Pre-training of small models from nothing; its first product is BLIP0."""

from paragrain.pretraining.config import PretrainConfig
from paragrain.pretraining.tiny import TinySize
from paragrain.pretraining.trainer import Pretrained, pretrain

__all__ = ["PretrainConfig", "Pretrained", "TinySize", "pretrain"]
