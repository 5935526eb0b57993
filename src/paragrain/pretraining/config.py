"""The settings of pre-training; the defaults made the first of BLIP0's two sittings."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paragrain.errors import UsageError
from paragrain.pretraining.tiny import TinySize
from paragrain.training.supervision import first_problem


class PretrainConfig(BaseModel):
    """Settings of `paragrain.pretraining.pretrain`.

    The contrast follows BLIP: AdamW with weight decay 0.05 and a learned temperature that starts
    at 0.07 and stays in [0.01, 0.5], so that the scale is at most 100; it has no momentum copies.
    The rest is this project's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0)
    dense_steps: int = Field(1200, ge=0, description="steps of dense prediction of the scene graph")
    contrast_steps: int = Field(2400, ge=1, description="steps of image-text contrast")
    batch_size: int = Field(128, ge=2)
    texts_per_image: int = Field(2, ge=1, description="texts drawn anew for each image and step")
    learning_rate: float = Field(1e-3, gt=0)
    warmup_steps: int = Field(100, ge=0, description="of each of the two stages")
    weight_decay: float = Field(0.05, ge=0)
    clip_norm: float = Field(1.0, gt=0)
    graph_weight: float = Field(
        0.1, ge=0, description="weight of the graph prediction beside the contrast"
    )
    start: str | None = Field(
        None, description="go on from this checkpoint, with its size and vocabulary"
    )
    block: int = Field(
        1, ge=1, description="so many records that follow each other stay in one batch, as twins do"
    )
    size: TinySize = TinySize()
    save_minutes: float = Field(5.0, gt=0, description="how often state for resume is saved")


def make_pretrain_config(changes: dict[str, Any]) -> PretrainConfig:
    """The default settings with some changed.

    Raises:
        UsageError: a setting does not exist, or its value is out of range.
    """
    try:
        return PretrainConfig.model_validate(changes)
    except ValidationError as error:
        raise UsageError(f"these settings do not work: {first_problem(error)}") from None
