"""A measurement and everything that says what it is of, as one file."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, Tokens
from paragrain.evaluation.benchmark import Benchmark
from paragrain.files import write_json
from paragrain.retrieval import RetrievalScores


@dataclass(frozen=True)
class Result:
    """Scores of one encoder on one benchmark at one token budget.

    Attributes:
        scores: recall and ranks, both directions, strict and lenient.
        about: what was measured: data, split, encoder, tokenizer, budget, cuts, code version.
    """

    scores: RetrievalScores
    about: dict[str, Any]

    @property
    def image_to_text(self) -> dict[int, float]:
        """Strict Recall@K in percent, by K."""
        return self.scores.strict.image_to_text.recall

    @property
    def text_to_image(self) -> dict[int, float]:
        """Strict Recall@K in percent, by K."""
        return self.scores.strict.text_to_image.recall

    def as_dict(self) -> dict[str, Any]:
        """The content of a result file."""
        return {**self.about, "scores": self.scores.as_dict()}

    def save(self, path: Path) -> None:
        """Write the result file."""
        write_json(path, self.as_dict())


def describe(
    benchmark: Benchmark,
    collection: Collection,
    encoder: ImageTextEncoder,
    tokens: Tokens,
    scores: RetrievalScores,
) -> Result:
    """Put scores and what they are of together."""
    about = {
        "collection": {
            "name": collection.name,
            "fingerprint": collection.fingerprint,
            "split": benchmark.split or "all",
        },
        "encoder": {
            "name": encoder.name,
            "vision_fingerprint": encoder.vision_fingerprint,
            "text_fingerprint": encoder.text_fingerprint,
            "tokenizer": type(encoder.tokenizer).__name__,
        },
        "protocol": {
            "name": "custom",
            "text_field": benchmark.text_field,
            **tokens.summary(),
        },
        "images_failed": [list(failure) for failure in benchmark.failed],
        "empty_texts_left_out": benchmark.empty_texts,
        "seed": None,  # exact ranks over all texts: nothing is drawn
        "code_version": version("paragrain"),
    }
    return Result(scores, about)
