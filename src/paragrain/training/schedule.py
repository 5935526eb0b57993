"""What each step sees and how fast it learns: pure functions of the settings and its number."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paragrain.training.config import Stage, TrainConfig


@dataclass(frozen=True)
class Schedule:
    """Which images each step sees: every image once an epoch, in an order of (seed, epoch).

    The last batch of an epoch may be short; one of a single image, which has nothing to contrast
    with, joins the batch before it. A set smaller than a batch is one batch. With `drop_last` all
    batches are full, and the images left over wait for the next epoch's order.

    With `block` above 1, so many images that follow each other always come together.

    >>> config = TrainConfig(batch_size=2, epochs=3)
    >>> schedule = Schedule(images=5, config=config)
    >>> schedule.steps_per_epoch, schedule.steps
    (2, 6)
    >>> [len(schedule.rows(step)) for step in range(2)]
    [2, 3]
    """

    images: int
    config: TrainConfig

    @property
    def _blocks(self) -> tuple[int, int]:
        """Blocks of images, and how many of them make a batch."""
        blocks = self.images // self.config.block
        return blocks, min(max(1, self.config.batch_size // self.config.block), blocks)

    @property
    def steps_per_epoch(self) -> int:
        """Batches that an epoch is divided into."""
        blocks, batch = self._blocks
        full, rest = divmod(blocks, batch)
        return full + (not self.config.drop_last and rest * self.config.block > 1)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        if self.config.stages:
            return sum(stage.steps for stage in self.config.stages)
        steps = self.config.epochs * self.steps_per_epoch
        return min(steps, self.config.max_steps or steps)

    def shown(self) -> np.ndarray:
        """The images that any step sees, int64, rising: all, unless some are left over.

        >>> config = TrainConfig(batch_size=2, epochs=3, max_steps=1)
        >>> len(Schedule(images=5, config=config).shown())
        2
        """
        steps = range(
            self.steps if self.config.drop_last else min(self.steps, self.steps_per_epoch)
        )
        return np.unique(np.concatenate([self.rows(step) for step in steps]))

    def epoch(self, step: int) -> int:
        """The epoch, from 0, that a step belongs to."""
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Whether a step is the last of its epoch or of the run."""
        return (step + 1) % self.steps_per_epoch == 0 or step + 1 == self.steps

    def rows(self, step: int) -> np.ndarray:
        """The images of a step, int64."""
        blocks, batch = self._blocks
        order = _order(blocks, self.config.seed, self.epoch(step))
        place = step % self.steps_per_epoch
        last = place == self.steps_per_epoch - 1 and not self.config.drop_last
        chosen = order[place * batch : None if last else (place + 1) * batch]
        size = self.config.block
        return (chosen[:, None] * size + np.arange(size)).ravel()

    def stage(self, step: int) -> tuple[Stage, int]:
        """The stage that a step belongs to, and which of its steps it is, from 0.

        A run without stages is one.
        """
        for stage in self.config.stages:
            if step < stage.steps:
                return stage, step
            step -= stage.steps
        return Stage(steps=self.steps), step

    def learning_rate(self, step: int) -> float:
        """That of a step: a straight warm-up, then a cosine down to zero, anew in each stage.

        >>> config = TrainConfig(learning_rate=1.0, warmup_steps=2, max_steps=20)
        >>> schedule = Schedule(images=1000, config=config)
        >>> [round(schedule.learning_rate(step), 3) for step in (0, 1, 2, 11)]
        [0.5, 1.0, 1.0, 0.5]
        """
        stage, at = self.stage(step)
        warmup = warmup_steps(stage.steps, self.config)
        begins = warmup if stage.decay_after_warmup else 0
        turned = math.pi * max(0, at - begins) / (stage.steps - begins)
        cosine = (1 + math.cos(turned)) / 2
        rate = self.config.learning_rate * (stage.final_rate + (1 - stage.final_rate) * cosine)
        return rate * (at + 1) / warmup if at < warmup else rate


def warmup_steps(steps: int, config: TrainConfig) -> int:
    """Warm-up steps of so many steps: those asked for, but at most a tenth.

    >>> warmup_steps(20_000, TrainConfig()), warmup_steps(80, TrainConfig())
    (500, 8)
    """
    return min(config.warmup_steps, steps // 10)


@lru_cache(maxsize=2)
def _order(blocks: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, int64 `[blocks]`."""
    return np.random.default_rng([seed, epoch]).permutation(blocks)
