"""Recall on a validation split between epochs, to choose the best weights.

It is the evaluation of `paragrain.evaluation`, on the split and fields that the settings name.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, Tokens
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import Benchmark, fields_with_texts
from paragrain.retrieval import scores_from_ranks
from paragrain.training.config import TrainConfig
from paragrain.training.images import embed_anew


@dataclass(frozen=True, eq=False)
class Validation:
    """The images of the validation split and their texts, tokenised once, field by field."""

    collection: Collection
    benchmarks: dict[str, tuple[Benchmark, Tokens]]
    batch_tokens: int

    @classmethod
    def load(
        cls,
        collection: Collection,
        encoder: ImageTextEncoder,
        config: TrainConfig,
        *,
        progress: bool,
    ) -> "Validation | None":
        """Read the validation split; `None` if there is none, or no texts in it.

        Raises:
            UsageError: a split or a field was asked for by name and is not there.
        """
        split, default = config.validation_split, TrainConfig().validation_split
        if split is None:
            return None
        if split == default and (split == config.split or split not in collection.splits):
            return None
        if split not in collection.splits:
            raise UsageError(
                f"{collection.folder} has no split {split!r} to validate on: use one of "
                f"{', '.join(collection.splits)}"
            )
        fields = config.validation_texts or ("paragraph", "captions")
        present = fields_with_texts(collection, split, fields)
        if config.validation_texts is None:
            present = present[:1]
        elif len(present) < len(fields):
            absent = next(field for field in fields if field not in present)
            raise UsageError(
                f"the split {split!r} of {collection.folder} has no text in {absent!r}: "
                "name other fields in validation_texts"
            )
        benchmarks = {}
        for field in present:
            benchmark = Benchmark.load(collection, encoder, field, split=split, progress=progress)
            max_length = config.max_length.of(field, encoder.max_tokens)
            benchmarks[field] = (benchmark, benchmark.tokenize(encoder, max_length))
        return cls(collection, benchmarks, config.micro_batch_tokens) if benchmarks else None

    @property
    def failed(self) -> list[tuple[str, str]]:
        """(id, reason) of the images that could not be used."""
        return list(
            {pair for benchmark, _ in self.benchmarks.values() for pair in benchmark.failed}
        )

    @property
    def contents(self) -> dict[str, str]:
        """Id and content hash of each image."""
        benchmark, _ = next(iter(self.benchmarks.values()))
        return dict(zip(benchmark.ids, benchmark.contents, strict=True))

    def measure(self, encoder: ImageTextEncoder) -> dict[str, Any]:
        """Recall of each field, with intervals, and `score`: the mean R@1 of all, in percent.

        Where vision has trained since the start, the images are embedded anew.
        """
        fields: dict[str, Any] = {}
        firsts: list[float] = []
        vision = encoder.vision_fingerprint
        anew: np.ndarray | None = None
        for field, (benchmark, tokens) in self.benchmarks.items():
            if vision != benchmark.vision_fingerprint:
                if anew is None:  # all fields have the same images: those of the split
                    anew = embed_anew(self.collection, encoder, benchmark.split, benchmark.ids)
                # Ranks on the way are kept beside cached vectors, of which these are none.
                benchmark = replace(benchmark, images=anew, vision_fingerprint=vision, cache=None)
            queries = benchmark.rank(encoder, tokens, batch_tokens=self.batch_tokens)
            scores = scores_from_ranks(queries.ranks)
            fields[field] = {**scores.as_dict(), "intervals": queries.intervals()}
            strict = scores.strict
            firsts += [strict.image_to_text.recall[1], strict.text_to_image.recall[1]]
        return {"score": float(np.mean(firsts)), "fields": fields}
