"""The data of a run, and the order in which it comes: a pure function of seed and step."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paragrain.collection import Collection, Record
from paragrain.embeddings import Embeddings
from paragrain.errors import ParagrainError
from paragrain.evaluation.benchmark import groups_of
from paragrain.training.found import Found, check_found, count_found
from paragrain.training.supervision import Recipe, Text, draw


@dataclass(frozen=True, eq=False)
class Batch:
    """B images and the N texts that supervise them, positives and negatives mixed.

    Attributes:
        images: float32 `[B, D]`, the frozen embeddings; those of the start where vision trains.
        groups: int64 `[B]`, the same number for images that show the same thing.
        texts: N texts with the fields whose maximum lengths cut them, image by image.
        text_image: int64 `[N]`, the row of the image of each text.
        negative: bool `[N]`, whether the text is wrong on purpose.
    """

    images: np.ndarray
    groups: np.ndarray
    texts: list[Text]
    text_image: np.ndarray
    negative: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class TrainingSet:
    """Records that have texts for a recipe, with their image embeddings.

    Attributes:
        records: N records without image bytes.
        vectors: float32 `[N, D]`.
        groups: int64 `[N]`.
        recipe: what picks the texts.
        seed: what the random picks depend on, with epoch and id.
        report: how many records are used, and how many are not and why.
        found: what each pick of the recipe finds, of the images that have a vector.
    """

    records: list[Record]
    vectors: np.ndarray
    groups: np.ndarray
    recipe: Recipe
    seed: int
    report: dict[str, int]
    found: list[Found]

    def __repr__(self) -> str:
        """How many there are."""
        return f"<TrainingSet of {len(self.records):,} images for {self.recipe.name}>"

    @classmethod
    def load(
        cls, collection: Collection, images: Embeddings, recipe: Recipe, *, split: str, seed: int
    ) -> "TrainingSet":
        """Read the texts of a split and join them with the image embeddings by id.

        Raises:
            UsageError: no image has a text for one of the recipe's picks.
            ParagrainError: fewer than two images are left, so that there is nothing to contrast.
        """
        row_of = {id: row for row, id in enumerate(images.ids)}
        usable, records, rows = [], [], []
        report: Counter[str] = Counter()
        for record in collection.records(split, fields=(*recipe.fields, "group")):
            texts = draw(record, recipe, seed=seed, epoch=0)
            report["images"] += 1
            if record.id in row_of:
                usable.append(record)
            if not any(pick.shares(record.id) for pick in recipe.positives):
                report["left out: in no share of the recipe"] += 1
            elif not texts.positives:
                report["left out: no positive text"] += 1
            elif record.id not in row_of:
                report["left out: no image embedding"] += 1
            else:
                report["used"] += 1
                report["pairs"] += len(texts.positives)
                if recipe.negatives and not texts.negatives:
                    report["used without a negative"] += 1
                records.append(record)
                rows.append(row_of[record.id])
        if len(records) < 2:
            raise ParagrainError(
                f"{collection.place(split)} has {len(records)} of "
                f"{report['images']} images with a vector and a text for the recipe "
                f"{recipe.name} (fields: {', '.join(recipe.fields)}), and contrast needs at least "
                "two: add texts or use another recipe"
            )
        found = count_found(usable, recipe)
        check_found(found, recipe, collection, split)
        groups = groups_of(records, [images.contents[row] for row in rows])
        if (groups == groups[0]).all():
            raise ParagrainError(
                f"all {len(records)} images of {collection.place(split)} show the "
                "same thing (one group, or equal bytes), so that there is nothing to contrast"
            )
        return cls(records, images.vectors[rows], groups, recipe, seed, dict(report), found)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.records)

    def batch(self, rows: Sequence[int] | np.ndarray, epoch: int) -> Batch:
        """The batch of some images, with the texts that are theirs in this epoch."""
        texts: list[Text] = []
        text_image: list[int] = []
        negative: list[bool] = []
        for place, row in enumerate(rows):
            own = draw(self.records[row], self.recipe, seed=self.seed, epoch=epoch)
            texts += own.positives + own.negatives
            text_image += [place] * (len(own.positives) + len(own.negatives))
            negative += [False] * len(own.positives) + [True] * len(own.negatives)
        return Batch(
            self.vectors[rows], self.groups[rows], texts, np.array(text_image), np.array(negative)
        )


@dataclass(frozen=True)
class Schedule:
    """Which images each step sees: every image once an epoch, in an order of (seed, epoch).

    The last batch of an epoch may be short; one of a single image, which has nothing to contrast
    with, joins the batch before it. A set smaller than a batch is one batch.

    >>> schedule = Schedule(images=5, batch_size=2, epochs=3, max_steps=None, seed=0)
    >>> schedule.steps_per_epoch, schedule.steps
    (2, 6)
    >>> [len(schedule.rows(step)) for step in range(2)]
    [2, 3]
    """

    images: int
    batch_size: int
    epochs: int
    max_steps: int | None
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches that an epoch is cut into."""
        full, rest = divmod(self.images, self.batch_size)
        return max(1, full + (rest > 1))

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        steps = self.epochs * self.steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def shown(self) -> np.ndarray:
        """The images that any step sees, int64, rising: all, unless it ends within an epoch.

        >>> len(Schedule(images=5, batch_size=2, epochs=3, max_steps=1, seed=0).shown())
        2
        """
        first = min(self.steps, self.steps_per_epoch)
        return np.unique(np.concatenate([self.rows(step) for step in range(first)]))

    def epoch(self, step: int) -> int:
        """The epoch, from 0, that a step belongs to."""
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Whether a step is the last of its epoch or of the run."""
        return (step + 1) % self.steps_per_epoch == 0 or step + 1 == self.steps

    def rows(self, step: int) -> np.ndarray:
        """The images of a step, int64."""
        order = _order(self.images, self.seed, self.epoch(step))
        place = step % self.steps_per_epoch
        last = place == self.steps_per_epoch - 1
        start = place * self.batch_size
        return order[start:] if last else order[start : start + self.batch_size]


@lru_cache(maxsize=2)
def _order(images: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, int64 `[images]`."""
    return np.random.default_rng([seed, epoch]).permutation(images)
