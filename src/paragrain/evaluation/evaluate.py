"""Measure an encoder on a collection: recall, and recall as a function of the maximum length."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, Tokens
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.tokens import check_max_length, check_truncation, normalise_text
from paragrain.errors import UsageError
from paragrain.evaluation.benchmark import Benchmark, default_split
from paragrain.evaluation.protocols import Protocol, load_protocol
from paragrain.evaluation.results import Result, describe
from paragrain.evaluation.seen import with_trained_on
from paragrain.retrieval import scores_from_ranks

TEXTS, NORMALISE, TRUNCATION = "paragraph", "none", "tokens"


def evaluate(
    collection: Collection | str | PathLike[str],
    encoder: ImageTextEncoder | str | PathLike[str],
    *,
    texts: str | None = None,
    max_length: int | None = None,
    split: str | None = None,
    normalise: str | None = None,
    truncation: str | None = None,
    protocol: str | None = None,
    progress: bool = True,
) -> Result:
    """Rank all images and all texts of a split against each other, exactly, in both directions.

    Args:
        collection: its images are embedded once and cached beside it; or its folder.
        encoder: from `load_encoder`, or what that takes: a name, a checkpoint, a run or its folder.
        texts: the field of the texts: paragraph (the default), captions, description or generated.
            Every text asks for its image; an image is answered by the best of its texts.
        max_length: of a text, special tokens included; what is cut is counted in the result. By
            default the protocol's, as far as the encoder can read so many, or without a protocol
            the encoder's own, `.max_length`.
        split: by default `test` if there is such a split, else the whole collection; "all" asks
            for the whole collection.
        normalise: "none" (the default) or "blip-original"; see
            `paragrain.encoders.tokens.normalise_text`.
        truncation: what a text that is too long is cut to: as many "tokens" (the default),
            whole "words" or whole "sentences" as fit into the maximum length; see
            `paragrain.encoders.Tokens`.
        protocol: the name of a protocol such as "docci-all", which says all of the above and the
            sizes to expect. Whatever is given nevertheless overrides it, and the result says so.
        progress: whether to show progress.

    Raises:
        UsageError: an unknown split, field or protocol, or a length that the encoder cannot read.
        ParagrainError: no image has such a text, or a vector is not finite.
    """
    return sweep(
        collection,
        encoder,
        None if max_length is None else [max_length],
        texts=texts,
        split=split,
        normalise=normalise,
        truncation=truncation,
        protocol=protocol,
        progress=progress,
    )[0]


def sweep(
    collection: Collection | str | PathLike[str],
    encoder: ImageTextEncoder | str | PathLike[str],
    max_lengths: int | Iterable[int] | None = None,
    *,
    texts: str | None = None,
    split: str | None = None,
    normalise: str | None = None,
    truncation: str | None = None,
    protocol: str | None = None,
    progress: bool = True,
) -> list[Result]:
    """`evaluate` at several lengths, from one tokenisation; results in the order of lengths.

    At a length that cuts nothing the result is that of the uncut texts, bit for bit. A number is a
    single length. Without lengths it is the protocol's, as far as the encoder can read so many, or
    the encoder's own.
    """
    rules = load_protocol(protocol) if protocol else None
    collection, encoder = Collection.open(collection), load_encoder(encoder)
    if max_lengths is None:
        max_lengths = [default_max_length(encoder, rules)]
    max_lengths = list(max_lengths) if isinstance(max_lengths, Iterable) else [max_lengths]
    if not max_lengths:
        raise UsageError("no maximum length is given: name one or more")
    for max_length in max_lengths:  # before the images are embedded, which may take hours
        check_max_length(max_length, encoder.max_tokens, encoder.name)
    normalise = normalise or (rules.normalise if rules else NORMALISE)
    normalise_text("", normalise)
    truncation = truncation or (rules.truncation if rules else TRUNCATION)
    check_truncation(truncation)
    benchmark = load_benchmark(
        collection, encoder, texts=texts, split=split, protocol=protocol, progress=progress
    )
    ways = {"normalise": normalise, "truncation": truncation}
    return sweep_benchmark(
        benchmark, collection, encoder, max_lengths, protocol=rules, progress=progress, **ways
    )


def evaluate_models(
    collection: Collection | str | PathLike[str],
    models: Sequence[ImageTextEncoder | str | PathLike[str]],
    max_lengths: Sequence[int] | None = None,
    *,
    device: str | None = None,
    **what: Any,
) -> list[Result]:
    """`sweep` for several models, all of which are opened before anything is computed.

    Args:
        collection, max_lengths: as in `sweep`.
        models: encoders, or what `load_encoder` takes.
        device: of the models that are opened here.
        **what: further arguments of `sweep`.

    Returns:
        the results of the first model in the order of the lengths, then those of the second, ...

    Raises:
        UsageError: a model is named twice; or as `sweep`.
    """
    collection = Collection.open(collection)
    encoders = [load_encoder(model, device) for model in models]
    names = [encoder.name for encoder in encoders]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{twice} is named twice: name each model once")
    for encoder in encoders:
        for max_length in max_lengths or ():
            check_max_length(max_length, encoder.max_tokens, encoder.name)
    return [
        result for encoder in encoders for result in sweep(collection, encoder, max_lengths, **what)
    ]


def default_max_length(encoder: ImageTextEncoder, protocol: Protocol | None = None) -> int:
    """The length where none is given: the protocol's, as far as it can be read, or the model's."""
    return min(protocol.max_length, encoder.max_tokens) if protocol else encoder.max_length


def load_benchmark(
    collection: Collection,
    encoder: ImageTextEncoder,
    *,
    texts: str | None = None,
    split: str | None = None,
    protocol: str | None = None,
    progress: bool = False,
) -> Benchmark:
    """What `evaluate` would rank, given the same."""
    rules = load_protocol(protocol) if protocol else None
    split = split_of(collection, split, protocol)
    return Benchmark.load(
        collection,
        encoder,
        texts or (rules.texts if rules else TEXTS),
        split=split,
        ids=rules.ids(collection, split) if rules else None,
        one_to_one=rules is not None and rules.one_to_one,
        progress=progress,
    )


def split_of(collection: Collection, split: str | None, protocol: str | None) -> str | None:
    """The split that `evaluate` would take, given the same; None for the whole collection."""
    rules = load_protocol(protocol) if protocol else None
    split = split or (rules.split if rules else default_split(collection))
    return None if split == "all" else split


def sweep_benchmark(
    benchmark: Benchmark,
    collection: Collection,
    encoder: ImageTextEncoder,
    max_lengths: Sequence[int],
    *,
    normalise: str = NORMALISE,
    truncation: str = TRUNCATION,
    protocol: Protocol | None = None,
    progress: bool = False,
) -> list[Result]:
    """`sweep` over a benchmark that is loaded already, so that several encoders share it."""
    whole = benchmark.tokenize(encoder, max_lengths[0], normalise, truncation)
    results = []
    for max_length in max_lengths:
        tokens = whole.at(max_length)
        queries = benchmark.rank(encoder, tokens, progress=progress)
        scores = scores_from_ranks(queries.ranks)
        said = _said(protocol, benchmark, tokens)
        result = describe(benchmark, collection, encoder, tokens, scores, queries, said)
        results.append(with_trained_on(result, benchmark, collection, encoder))
    return results


def _said(protocol: Protocol | None, benchmark: Benchmark, tokens: Tokens) -> dict[str, Any]:
    """What a result says about its protocol: its name, what was changed, the sizes."""
    if protocol is None:
        return {"name": "custom"}
    used = {
        "split": benchmark.split or "all",
        "texts": benchmark.text_field,
        "max_length": tokens.max_length,
        "normalise": tokens.options.normalise,
        "truncation": tokens.options.truncation,
    }
    return {
        "name": protocol.name,
        "source": protocol.source,
        "one_to_one": protocol.one_to_one,
        "changed": [name for name, value in used.items() if value != getattr(protocol, name)],
        "sample": protocol.sample and protocol.sample.model_dump(mode="json"),
        "sizes": protocol.account(len(benchmark.ids), len(benchmark.texts)),
    }
