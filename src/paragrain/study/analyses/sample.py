"""A sample of matched pairs as embeddings, and means with intervals: what analyses begin with."""

from dataclasses import dataclass

import numpy as np

from paragrain.encoders import ImageTextEncoder, encode_texts
from paragrain.errors import UsageError
from paragrain.evaluation import Benchmark
from paragrain.stats import RESAMPLES, Estimate


@dataclass(frozen=True, eq=False)
class EmbeddedPairs:
    """N images with one text each.

    Attributes:
        ids: of the images, in the order of the benchmark.
        images, texts: float32 [N, D] unit vectors; row by row they belong together.
        written: the N texts.
        max_length: that the texts were read with.
    """

    ids: list[str]
    images: np.ndarray
    texts: np.ndarray
    written: list[str]
    max_length: int


def draw_rows(benchmark: Benchmark, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [N] of images drawn without replacement, in order, and of one text of each.

    Images without texts are never drawn; of several texts each is as likely. With `size` at least
    the number of images, all are taken.

    Raises:
        UsageError: fewer than two images are asked for or have texts.
    """
    rng = np.random.default_rng([seed, 0])
    images = np.unique(benchmark.text_image)
    if min(size, len(images)) < 2:
        raise UsageError(
            f"a sample of {min(size, len(images))} images says nothing: draw 2 or more, from a "
            "benchmark that has them"
        )
    if size < len(images):
        images = np.sort(rng.choice(images, size, replace=False))
    # A random order of all texts; the first of each image in it is its text.
    order = rng.permutation(len(benchmark.text_image))
    _, first = np.unique(benchmark.text_image[order], return_index=True)
    text_of = dict(zip(np.unique(benchmark.text_image).tolist(), order[first], strict=True))
    return images, np.array([text_of[row] for row in images.tolist()])


def draw_pairs(
    benchmark: Benchmark,
    encoder: ImageTextEncoder,
    *,
    max_length: int,
    size: int = 500,
    seed: int = 0,
) -> EmbeddedPairs:
    """Draw `size` images of a benchmark with one text each, and encode the texts.

    The same seed draws the same pairs for every encoder.

    Raises:
        UsageError: as `draw_rows`, or the encoder has another image tower than the benchmark, or
            cannot read so many tokens.
    """
    check_images(benchmark, encoder)
    images, texts = draw_rows(benchmark, size, seed)
    written = [benchmark.texts[row] for row in texts]
    vectors = encode_texts(encoder, written, max_length=max_length, progress=False).vectors
    ids = [benchmark.ids[row] for row in images]
    return EmbeddedPairs(ids, benchmark.images[images], vectors, written, max_length)


def check_images(benchmark: Benchmark, encoder: ImageTextEncoder) -> None:
    """Refuse an encoder whose text embeddings do not belong to the benchmark's image embeddings.

    Raises:
        UsageError: it has another image tower.
    """
    if encoder.vision_fingerprint != benchmark.vision_fingerprint:
        raise UsageError(
            f"{encoder.name} has another image tower than the embeddings of this benchmark: "
            "load the benchmark with it"
        )


def image_draws(images: int, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """float64 [R, N]: how often each of N images is in each of R draws of N with replacement."""
    rng = np.random.default_rng([seed, 1])
    return rng.multinomial(images, np.full(images, 1 / images), size=resamples).astype(np.float64)


def mean_over_images(
    values: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Estimate]:
    """Mean of each column of `values` [N, C] over N images, with bootstrap intervals.

    NaN stands for an image that has no such number. A column of nothing else is not defined.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    draws = image_draws(len(values), resamples=resamples, seed=seed)
    with np.errstate(invalid="ignore"):
        means = filled.sum(0) / known.sum(0)
        drawn = (draws @ filled) / (draws @ known)
    return [Estimate.from_draws(mean, own) for mean, own in zip(means, drawn.T, strict=True)]
