"""The settings of a training run, with the paper's values as defaults."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    create_model,
    model_validator,
)

from paragrain.collection.fields import FIELDS, TEXT_FIELDS
from paragrain.errors import UsageError
from paragrain.training.recipes import first_problem

Length = Annotated[int, Field(ge=3)]
"""Tokens that are read of a text: the start and end tokens and at least one between."""


Beta = Annotated[float, Field(ge=0, lt=1)]


def _one_or_more(names: Any) -> Any:
    """A single name counts as a list of one."""
    return (names,) if isinstance(names, str) else names


_defaults: dict[str, Any] = {name: (Length, FIELDS[name].max_length) for name in TEXT_FIELDS}
_PerField: Any = create_model("_PerField", **_defaults)


class MaxLengths(_PerField):
    """How many tokens of a text are read, special tokens included, for each field of texts.

    The defaults are those of the table of record fields.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def of(self, field: str, limit: int) -> int:
        """The maximum length of a field, at most what the encoder can read."""
        return min(int(getattr(self, field)), limit)


class Stage(BaseModel):
    """A part of a run with its own warm-up and cosine, and perhaps its own mix of losses.

    Attributes:
        steps: how many.
        weights: what each of the recipe's losses counts for here, by name; one that is not named
            does not count. As the recipe has them if not given.
        final_rate: what part of the learning rate the cosine falls to.
        decay_after_warmup: whether the cosine begins with the stage or after its warm-up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    steps: PositiveInt
    weights: dict[str, NonNegativeFloat] | None = None
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    decay_after_warmup: bool = True


class TrainConfig(BaseModel):
    """Settings of `paragrain.training.train`.

    The paper gives: AdamW, learning rate 1e-5, 256 images a batch, temperature 0.07, cosine after
    500 warm-up steps, 10 epochs, captions truncated at 77 tokens and paragraphs at 128. The
    weight decay is that of BLIP's fine-tuning; gradients are not clipped unless asked for.

    Attributes:
        seed: of the data order, the random selections and dropout.
        split: the split to train on.
        epochs: how often each image is seen.
        max_steps: ends the run, and its cosine, earlier.
        stages: parts of the run with their own warm-up, cosine and mix of losses, in place of
            `epochs` and `max_steps`.
        batch_size: images a step, over all processes together.
        drop_last: whether images that do not fill a batch are left out of the epoch.
        block: so many records that follow each other always come in one batch.
        train_vision: the image tower and its projection train too, from the images themselves,
            with the same optimiser and schedule; otherwise the image embeddings stay.
        learning_rate: the highest, after the warm-up.
        vision_learning_rate: that of the image tower where it trains; the same if not given. A
            rate at which a text encoder learns new texts may be one at which an image tower
            forgets what it knew.
        warmup_steps: at most a tenth of the run, or of each stage, is used.
        weight_decay: none on norms, biases, embeddings and tokens that are learned (class token).
        betas: of AdamW.
        fused: whether AdamW takes its step in one kernel; faster, and rounded otherwise.
        clip_norm: largest norm of the gradient.
        temperature: of the contrastive loss, fixed; below 0.01 it acts as 0.01.
        max_length: of a text, by field; more than the encoder can read acts as its limit.
        precision: of the forward pass; `auto` is bf16 on CUDA and fp32 elsewhere. Weights, loss
            and optimiser are fp32 always.
        micro_batch_tokens: most tokens of a forward pass, padding included; an image that is
            trained from counts its patches.
        grad_cache_threshold: a step with more tokens runs each pass twice, so that no more
            activations are held than those of one pass; lower it where memory runs out. With None
            none does.
        validation_split: used if the collection has it; None for no validation.
        validation_texts: fields to measure recall on; by default the paragraph if there are
            any, else the captions.
        log_every: steps between two lines of `metrics.jsonl`.
        save_steps: also save for resume every so many steps; it always does after an epoch.
        save_minutes: also save for resume this often.
        checkpoint_dtype: of the weights in `checkpoint/`; half of their size, or as they trained.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    seed: NonNegativeInt = 0
    split: str = "train"
    epochs: PositiveInt = 10
    max_steps: PositiveInt | None = None
    stages: tuple[Stage, ...] = ()
    batch_size: Annotated[int, Field(ge=2)] = 256
    drop_last: bool = False
    block: PositiveInt = 1
    train_vision: bool = False

    learning_rate: PositiveFloat = 1e-5
    vision_learning_rate: PositiveFloat | None = None
    warmup_steps: NonNegativeInt = 500
    weight_decay: NonNegativeFloat = 0.05
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    fused: bool = False
    clip_norm: PositiveFloat | None = None
    temperature: PositiveFloat = 0.07
    max_length: MaxLengths = MaxLengths()

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    micro_batch_tokens: PositiveInt = 4096
    grad_cache_threshold: PositiveInt | None = 16384

    validation_split: str | None = "val"
    validation_texts: Annotated[tuple[str, ...] | None, BeforeValidator(_one_or_more)] = None

    log_every: PositiveInt = 1
    save_steps: PositiveInt | None = None
    save_minutes: PositiveFloat = 10.0
    checkpoint_dtype: Literal["float32", "float16"] = "float32"

    @model_validator(mode="after")
    def _no_rate_without_effect(self) -> Self:
        if self.vision_learning_rate is not None and not self.train_vision:
            raise ValueError("vision_learning_rate is of no use without train_vision")
        return self

    def settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return self.model_dump(mode="json")


def make_config(base: TrainConfig | None, changes: dict[str, Any]) -> TrainConfig:
    """The settings of `base` (or the defaults) with some changed.

    Raises:
        UsageError: a setting does not exist, or its value is out of range.

    >>> make_config(None, {"epochs": 2, "max_length": {"paragraph": 60}}).max_length.paragraph
    60
    """
    settings = (base or TrainConfig()).settings()
    if isinstance(changes.get("max_length"), dict):
        changes = {**changes, "max_length": {**settings["max_length"], **changes["max_length"]}}
    try:
        return TrainConfig.model_validate({**settings, **changes})
    except ValidationError as error:
        raise UsageError(f"these training settings do not work: {first_problem(error)}") from None
