"""How many tokens a recipe costs, so that runs can be planned to read equally many."""

from collections.abc import Iterable
from itertools import islice

from paragrain.collection import Collection, Record
from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import ParagrainError
from paragrain.training.config import TrainConfig
from paragrain.training.gradients import tokenize
from paragrain.training.recipes import Recipe
from paragrain.training.sampling import draw
from paragrain.training.schedule import Schedule

_TOGETHER = 1024
"""Records whose texts are tokenised together."""


def tokens_per_epoch(
    records: Iterable[Record], recipe: Recipe, encoder: ImageTextEncoder, config: TrainConfig
) -> float:
    """Mean tokens that an image costs in an epoch: those that are read of its texts.

    Special tokens count, and so do negatives; what a length cuts off and padding do not. It is
    what a run reports as `totals["tokens"]`, for each image that it saw. The texts are those of
    epoch 0: other epochs differ a little where the recipe selects at random. Images without a
    positive text are no part of a run, and left out of the mean.

    Args:
        records: `TrainingSet.records`, or `collection.records(config.split, fields=...)` with
            the fields of the recipe; they are streamed.
        recipe: what selects the texts.
        encoder: whose tokenizer counts; its weights do nothing.
        config: its maximum lengths and its seed.

    Raises:
        ParagrainError: no record has a text for the recipe.
    """
    images, tokens = _counted(records, recipe, encoder, config)
    return tokens / images


def steps_for_tokens(
    collection: Collection,
    encoder: ImageTextEncoder,
    recipe: Recipe,
    config: TrainConfig,
    like_recipe: Recipe,
    like_config: TrainConfig,
) -> int:
    """Steps after which a run has read about as many tokens as another whole run reads.

    `max_steps` of the run to plan; its `epochs` have to be enough for them. Its own `epochs` and
    `max_steps` say nothing here.

    Args:
        collection: that both are trained on.
        encoder: that both start from.
        recipe: of the run to plan.
        config: of the run to plan.
        like_recipe: of the run that sets the number.
        like_config: of the run that sets the number.

    Raises:
        ParagrainError: no record has a text for one of the recipes.
    """
    a_step, _ = _tokens_a_step(collection, encoder, recipe, config)
    like_a_step, like_steps = _tokens_a_step(collection, encoder, like_recipe, like_config)
    return max(1, round(like_a_step * like_steps / a_step))


def _tokens_a_step(
    collection: Collection, encoder: ImageTextEncoder, recipe: Recipe, config: TrainConfig
) -> tuple[float, int]:
    """Mean tokens of a step, and the steps of the whole run."""
    records = collection.records(config.split, fields=recipe.fields)
    images, tokens = _counted(records, recipe, encoder, config)
    schedule = Schedule(images, config)
    return tokens / schedule.steps_per_epoch, schedule.steps


def _counted(
    records: Iterable[Record], recipe: Recipe, encoder: ImageTextEncoder, config: TrainConfig
) -> tuple[int, int]:
    """Images that have a positive text, and the tokens of all their texts in epoch 0."""
    records = iter(records)
    images = tokens = 0
    while some := list(islice(records, _TOGETHER)):
        drawn = [draw(record, recipe, seed=config.seed, epoch=0) for record in some]
        taught = [own for own in drawn if own.positives]
        texts = [text for own in taught for text in (*own.positives, *own.negatives)]
        images += len(taught)
        tokens += sum(len(ids) for ids in tokenize(encoder, texts, config).ids)
    if not images:
        raise ParagrainError(
            f"no image has a text for the recipe {recipe.name} (fields: "
            f"{', '.join(recipe.fields)}): add texts or use another recipe"
        )
    return images, tokens
