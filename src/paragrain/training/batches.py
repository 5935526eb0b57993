"""The data of a run, as batches of images and the texts that supervise them."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paragrain.collection import Collection, Record
from paragrain.errors import ParagrainError
from paragrain.evaluation.benchmark import groups_of
from paragrain.training.coverage import Coverage, check_coverage, count_coverage
from paragrain.training.recipes import Recipe
from paragrain.training.sampling import Text, draw


@dataclass(frozen=True, eq=False)
class Batch:
    """B images and the N texts that supervise them, positives and negatives mixed.

    Attributes:
        records: the B records, with the fields that the recipe and its losses read.
        groups: int64 `[B]`, the same number for images that show the same thing.
        texts: N texts with the fields whose maximum lengths truncate them, image by image.
        text_image: int64 `[N]`, the row of the image of each text.
        negative: bool `[N]`, whether the text is wrong on purpose.
        image_embeddings: float32 `[B, D]` of a frozen image tower; None where it trains.
    """

    records: Sequence[Record]
    groups: np.ndarray
    texts: list[Text]
    text_image: np.ndarray
    negative: np.ndarray
    image_embeddings: np.ndarray | None = None


@dataclass(frozen=True, eq=False, repr=False)
class TrainingSet:
    """Records that have texts for a recipe, with their frozen image embeddings, if any.

    Attributes:
        records: N records without image bytes.
        contents: the hash of the bytes of each image.
        groups: int64 `[N]`.
        recipe: what selects the texts.
        seed: what the random selections depend on, with epoch and id.
        report: how many records are used, and how many are not and why.
        coverage: what each selection of the recipe finds, of the images that can be used.
        embeddings: float32 `[N, D]`; None where the image tower trains.
    """

    records: list[Record]
    contents: list[str]
    groups: np.ndarray
    recipe: Recipe
    seed: int
    report: dict[str, int]
    coverage: list[Coverage]
    embeddings: np.ndarray | None

    def __repr__(self) -> str:
        """How many there are."""
        return f"<TrainingSet of {len(self.records):,} images for {self.recipe.name}>"

    @classmethod
    def load(
        cls,
        collection: Collection,
        contents: Mapping[str, str],
        recipe: Recipe,
        *,
        split: str,
        seed: int,
        embeddings: np.ndarray | None = None,
        fields: Sequence[str] = (),
    ) -> "TrainingSet":
        """Read the texts of a split and join them with the images by id.

        Args:
            collection, split: where the records are from.
            contents: id and content hash of each image that can be used.
            recipe, seed: see the class.
            embeddings: float32, a row for each of `contents`.
            fields: of the records, besides those of the recipe.

        Raises:
            UsageError: no image has a text for one of the recipe's selections.
            ParagrainError: fewer than two images are left, so that there is nothing to contrast.
        """
        row_of = {id: row for row, id in enumerate(contents)}
        usable, records = [], []
        report: Counter[str] = Counter()
        for record in collection.records(split, fields=(*recipe.fields, *fields, "group")):
            texts = draw(record, recipe, seed=seed, epoch=0)
            report["images"] += 1
            if record.id in row_of:
                usable.append(record)
            if not any(selection.shares(record.id) for selection in recipe.positives):
                report["left out: in no share of the recipe"] += 1
            elif not texts.positives:
                report["left out: no positive text"] += 1
            elif record.id not in row_of:
                report["left out: no image embedding"] += 1
            else:
                report["used"] += 1
                pairs = len(texts.positives)
                report["pairs"] += min(pairs, recipe.sample or pairs)
                if recipe.negatives and not texts.negatives:
                    report["used without a negative"] += 1
                records.append(record)
        if len(records) < 2:
            raise ParagrainError(
                f"{collection.place(split)} has {len(records)} of "
                f"{report['images']} images with an embedding and a text for the recipe "
                f"{recipe.name} (fields: {', '.join(recipe.fields)}), and contrast needs at least "
                "two: add texts or use another recipe"
            )
        coverage = count_coverage(usable, recipe)
        check_coverage(coverage, recipe, collection, split)
        hashes = [contents[record.id] for record in records]
        groups = groups_of(records, hashes)
        if (groups == groups[0]).all():
            raise ParagrainError(
                f"all {len(records)} images of {collection.place(split)} show the "
                "same thing (one group, or equal bytes), so that there is nothing to contrast"
            )
        if embeddings is not None:
            embeddings = embeddings[[row_of[record.id] for record in records]]
        return cls(records, hashes, groups, recipe, seed, dict(report), coverage, embeddings)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.records)

    def batch(self, rows: Sequence[int] | np.ndarray, *, step: int, epoch: int) -> Batch:
        """The batch of some images, with the texts that are theirs in this step and epoch."""
        texts: list[Text] = []
        text_image: list[int] = []
        negative: list[bool] = []
        rng = random.Random(f"texts {self.seed} {step}")
        for place, row in enumerate(rows):
            positives, negatives = draw(self.records[row], self.recipe, seed=self.seed, epoch=epoch)
            if self.recipe.sample is not None:
                positives = rng.sample(positives, min(self.recipe.sample, len(positives)))
            texts += positives + negatives
            text_image += [place] * (len(positives) + len(negatives))
            negative += [False] * len(positives) + [True] * len(negatives)
        return Batch(
            [self.records[row] for row in rows],
            self.groups[rows],
            texts,
            np.array(text_image),
            np.array(negative),
            None if self.embeddings is None else self.embeddings[rows],
        )
