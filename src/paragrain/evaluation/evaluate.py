"""Measure an encoder on a collection: recall, and recall as a function of the token budget."""

from collections.abc import Sequence

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.tokens import check_budget, normalise_text
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import Benchmark, default_split
from paragrain.evaluation.results import Result, describe


def evaluate(
    collection: Collection,
    encoder: ImageTextEncoder,
    *,
    texts: str = "paragraph",
    tokens: int = 128,
    split: str | None = None,
    normalise: str = "none",
    show: bool = True,
) -> Result:
    """Rank all images and all texts of a split against each other, exactly, in both directions.

    Args:
        collection: its images are embedded once and cached beside it.
        encoder: from `load_encoder`, or a run's `.encoder`.
        texts: the field of the texts: paragraph, captions, description or generated. Every text
            asks for its image; an image is answered by the best of its texts.
        tokens: token budget, special tokens included; what is cut is counted in the result.
        split: by default `test` if there is such a split, else the whole collection; "all" asks
            for the whole collection.
        normalise: "none" or "blip-original"; see `paragrain.encoders.tokens.normalise_text`.
        show: whether to show progress.

    Raises:
        UsageError: an unknown split or field, or a budget that the encoder cannot read.
        ParagrainError: no image has such a text, or a vector is not finite.
    """
    return sweep(
        collection,
        encoder,
        [tokens],
        texts=texts,
        split=split,
        normalise=normalise,
        show=show,
    )[0]


def sweep(
    collection: Collection,
    encoder: ImageTextEncoder,
    budgets: Sequence[int],
    *,
    texts: str = "paragraph",
    split: str | None = None,
    normalise: str = "none",
    show: bool = True,
) -> list[Result]:
    """`evaluate` at several token budgets, from one tokenisation; results in the order of budgets.

    At a budget that cuts nothing the result is that of the uncut texts, bit for bit.
    """
    if not budgets:
        raise UsageError("no token budget is given: name one or more")
    for budget in budgets:  # before the images are embedded, which may take hours
        check_budget(budget, encoder.max_tokens, encoder.name)
    normalise_text("", normalise)
    split = None if split == "all" else split or default_split(collection)
    benchmark = Benchmark.load(collection, encoder, texts, split=split, show=show)
    return sweep_benchmark(benchmark, collection, encoder, budgets, normalise=normalise, show=show)


def sweep_benchmark(
    benchmark: Benchmark,
    collection: Collection,
    encoder: ImageTextEncoder,
    budgets: Sequence[int],
    *,
    normalise: str = "none",
    show: bool = False,
) -> list[Result]:
    """`sweep` over a benchmark that is loaded already, so that several encoders share it."""
    whole = benchmark.tokenize(encoder, budgets[0], normalise)
    results = []
    for budget in budgets:
        tokens = whole.at(budget)
        scores = benchmark.score(encoder, tokens, show=show)
        results.append(describe(benchmark, collection, encoder, tokens, scores))
    return results
