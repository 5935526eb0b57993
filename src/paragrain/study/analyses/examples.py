"""Examples of what two models answer, chosen by a rule and in true proportion, not by hand.

The rule, on the strict ranks of all seeds: a query counts for the model that ranks its right answer
first in more of the seeds (a tie counts by chance, as in recall). Of the places on the page each
model gets the share that it has of these queries, rounded, but at least one if it has any; they are
filled in the order of a hash of the image's id, which nobody can steer, with at most one query of
each group of images. Where no query tells the models apart, queries that both find and that both
miss are shown in their proportion instead. The numbers of all kinds stand beside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, encode_texts
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Benchmark, QueryRanks
from paragrain.evaluation.query_ranks import DIRECTIONS
from paragrain.files import digest
from paragrain.images import media_type
from paragrain.pages import Block, Gallery, Heading, Listing, OnPage, Picture, Text
from paragrain.retrieval import top_k
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.analyses.sample import check_images
from paragrain.study.plan import DIRECTION_TITLES, Study
from paragrain.tables import Table

K = 5
"""So many answers of each model are shown."""

EXAMPLES = 6

KINDS = ("first", "second", "both", "neither", "alike")


@dataclass(frozen=True)
class Counts:
    """Queries by what both models do with them, over all seeds; they add up to `queries`.

    Attributes:
        first, second: that model finds it in more seeds than the other.
        both: each finds it in every seed.
        neither: none finds it in any.
        alike: each finds it in some seeds, equally many.
        queries: all.
    """

    first: int
    second: int
    both: int
    neither: int
    alike: int
    queries: int


@dataclass(frozen=True)
class Example:
    """One query.

    Attributes:
        kind: one of `KINDS`.
        id: of its image.
        text: the query; "" where the image itself asks.
        ranks: for each of the two models, the rank of the right answer in each seed, ties halved.
        tops: for each, what the model of the first seed finds, best first: ids of images, or texts.
        right: the right answers: the id of the image, or all its texts.
    """

    kind: str
    id: str
    text: str
    ranks: list[list[float]]
    tops: list[list[str]]
    right: list[str]


@dataclass(frozen=True)
class Examples:
    """Examples in true proportion.

    Attributes:
        first, second: names of the models.
        direction: "text_to_image" or "image_to_text".
        seeds: of each model.
        examples: those that are shown, by kind.
        counts: of all queries.
        k, max_length: as in `choose_examples`.
    """

    first: str
    second: str
    direction: str
    seeds: list[int]
    examples: list[Example]
    counts: Counts
    k: int
    max_length: int

    @property
    def rule(self) -> str:
        """How the examples were chosen, and in which proportion."""
        first, second, counts = self.first, self.second, self.counts
        more = "in more seeds than the other" if max(self.seeds) > 1 else "and the other does not"
        told = (
            f"A query counts for a model that ranks the right answer first {more}: of "
            f"{counts.queries:,} queries {counts.first:,} count for {first} and {counts.second:,} "
            f"for {second}. "
        )
        shown = [sum(e.kind == kind for e in self.examples) for kind in KINDS]
        if not counts.first and not counts.second:
            return told + (
                "None tells them apart, so queries are shown that both find, that none finds and "
                "that both find in as many seeds, in their proportion"
                f" ({shown[2]}, {shown[3]} and {shown[4]}), by a hash of the image's id."
            )
        absent = [n for n, c in ((first, counts.first), (second, counts.second)) if not c]
        if absent:
            told += f"No query counts for {absent[0]}, so that none of that kind can be shown. "
        return told + (
            f"Shown are {shown[0]} and {shown[1]}, the nearest to that proportion (at least one "
            "of each kind that there is), by a hash of the image's id, one of each group of images."
        )


def kinds(
    first: Sequence[QueryRanks], second: Sequence[QueryRanks], direction: str
) -> tuple[dict[str, np.ndarray], Counts]:
    """Which queries are of which kind: a bool [Q] for each of `KINDS`, and their counts.

    Args:
        first, second: stored ranks of each model on one benchmark, one for each seed.
        direction: "text_to_image" or "image_to_text".

    Raises:
        UsageError: a model has no ranks, or they are not of the same queries.
    """
    if direction not in DIRECTIONS:
        raise UsageError(f"unknown direction {direction!r}: choose from {', '.join(DIRECTIONS)}")
    if not first or not second:
        raise UsageError("there is nothing to choose from: give the ranks of both models")
    for other in (*first, *second):
        same = other.ids == first[0].ids
        if not same or not np.array_equal(other.text_image, first[0].text_image):
            raise UsageError(
                "the ranks are of other images or texts, so their queries are no pairs: evaluate "
                "both models on the same benchmark"
            )
    one, other = (
        np.mean([ranks.hits(direction, 1)[0] for ranks in side], axis=0) for side in (first, second)
    )
    near = np.isclose(one, other, rtol=0, atol=1e-9)
    both, neither = near & (one > 1 - 1e-9), near & (one < 1e-9)
    found = {
        "first": ~near & (one > other),
        "second": ~near & (one < other),
        "both": both,
        "neither": neither,
        "alike": near & ~both & ~neither,
    }
    told = {name: int(rows.sum()) for name, rows in found.items()}
    return found, Counts(**told, queries=len(one))


def shares(counts: Sequence[int], places: int) -> list[int]:
    """`places` shared out in the proportion of `counts`, at least one to each that is not 0.

    >>> shares([210, 102], 6), shares([0, 7], 6), shares([990, 1], 6), shares([1, 1], 6)
    ([4, 2], [0, 6], [5, 1], [1, 1])
    """
    total = sum(counts)
    if not total:
        return [0] * len(counts)
    exact = [places * count / total for count in counts]
    given = [max(int(part), int(count > 0)) for part, count in zip(exact, counts, strict=True)]
    while sum(given) > places:  # those that were lifted to one are paid by the largest
        given[given.index(max(given))] -= 1
    by_rest = sorted(range(len(counts)), key=lambda i: int(exact[i]) - exact[i])
    for i in by_rest[: places - sum(given)]:
        given[i] += 1
    return [min(one, count) for one, count in zip(given, counts, strict=True)]


def chosen(ids: Sequence[str], groups: np.ndarray, wanted: np.ndarray, examples: int) -> list[int]:
    """The queries to show: one of each group, in the order of a hash of the image's id.

    Args:
        ids: of the image of each query [Q].
        groups: [Q] of the image of each query.
        wanted: bool [Q], the queries of the kind.
        examples: at most so many.

    >>> groups, wanted = np.array([0, 0, 1, 2]), np.array([True, True, True, False])
    >>> sorted(chosen(["a", "a", "b", "c"], groups, wanted, 9))
    [0, 2]
    """
    rows = np.flatnonzero(wanted)
    _, first = np.unique(groups[rows], return_index=True)
    order = sorted(rows[first].tolist(), key=lambda row: (digest(ids[row]), row))
    return order[:examples]


def choose_examples(
    benchmark: Benchmark,
    ranks: Mapping[str, Sequence[QueryRanks]],
    encoders: Mapping[str, ImageTextEncoder],
    *,
    max_length: int,
    direction: str = "text_to_image",
    k: int = K,
    examples: int = EXAMPLES,
) -> Examples:
    """Choose examples by the module's rule and find what both models answer.

    Args:
        benchmark: what the ranks are of.
        ranks: of two models, by name, one for each seed.
        encoders: of the same two names, the model of the first seed, which answers.
        max_length: that the ranks were made with.
        direction: "text_to_image" or "image_to_text".
        k: so many answers are shown.
        examples: at most so many.

    Raises:
        UsageError: not two models, ranks of other queries, or another image tower.
    """
    if len(ranks) != 2 or set(ranks) != set(encoders):
        raise UsageError("examples are chosen between two models: give ranks and encoders of both")
    names = list(ranks)
    sides = [ranks[name] for name in names]
    rows_of, counts = kinds(sides[0], sides[1], direction)
    same = sides[0][0].ids == benchmark.ids
    if not same or not np.array_equal(sides[0][0].text_image, benchmark.text_image):
        raise UsageError("the ranks are of another benchmark: evaluate both models on this one")
    for encoder in encoders.values():
        check_images(benchmark, encoder)
    told = KINDS[:2] if counts.first or counts.second else KINDS[2:]
    answer = _Answers(benchmark, direction, max_length, k)
    units = sides[0][0].units(direction)
    rows, of_kind = [], []
    for kind, places in zip(
        told, shares([getattr(counts, kind) for kind in told], examples), strict=True
    ):
        own = chosen(answer.ids, units, rows_of[kind], places)
        rows += own
        of_kind += [kind] * len(own)
    tops = [answer.top(encoders[name], rows) for name in names]
    found = [
        Example(
            kind,
            answer.ids[row],
            answer.text(row),
            [_of_seeds(side, direction, row) for side in sides],
            [top[place] for top in tops],
            answer.right(row),
        )
        for place, (kind, row) in enumerate(zip(of_kind, rows, strict=True))
    ]
    seeds = [len(side) for side in sides]
    return Examples(names[0], names[1], direction, seeds, found, counts, k, max_length)


def _of_seeds(ranks: Sequence[QueryRanks], direction: str, row: int) -> list[float]:
    return [round(float(one.direction(direction).expected[row]), 1) for one in ranks]


class _Answers:
    """Queries of one direction and what a model answers them."""

    def __init__(self, benchmark: Benchmark, direction: str, max_length: int, k: int) -> None:
        self.benchmark, self.max_length, self.k = benchmark, max_length, k
        self.asks_in_words = direction == "text_to_image"
        images = benchmark.text_image if self.asks_in_words else np.unique(benchmark.text_image)
        self.rows = images.tolist()
        self.ids = [benchmark.ids[row] for row in self.rows]

    def text(self, row: int) -> str:
        return self.benchmark.texts[row] if self.asks_in_words else ""

    def right(self, row: int) -> list[str]:
        if self.asks_in_words:
            return [self.ids[row]]
        own = np.flatnonzero(self.benchmark.text_image == self.rows[row])
        return [self.benchmark.texts[text] for text in own.tolist()]

    def top(self, encoder: ImageTextEncoder, rows: list[int]) -> list[list[str]]:
        """The best `k` answers of each query."""
        if not rows:
            return []
        benchmark = self.benchmark
        if self.asks_in_words:
            asked = encode_texts(
                encoder, [benchmark.texts[row] for row in rows], max_length=self.max_length
            ).vectors
            best, _ = top_k(asked, benchmark.images, self.k)
            return [[benchmark.ids[image] for image in own] for own in best.tolist()]
        offered = encode_texts(encoder, benchmark.texts, max_length=self.max_length).vectors
        asked = benchmark.images[[self.rows[row] for row in rows]]
        best, _ = top_k(asked, offered, self.k)
        return [[benchmark.texts[text] for text in own] for own in best.tolist()]


# --- In a study -------------------------------------------------------------------------------


def examples_blocks(found: Examples, collection: Collection | None) -> Iterator[Block]:
    """The rule, the counts and the examples.

    Pictures come from the collection; where there is none, or one cannot be read, ids stand for
    them.
    """
    counts = found.counts
    others = "pictures" if found.direction == "text_to_image" else "texts"
    what = {
        "first": f"{found.first} finds it in more seeds",
        "second": f"{found.second} finds it in more seeds",
        "both": "both find it in every seed",
        "neither": "none finds it in any seed",
        "alike": "both find it in as many seeds",
    }
    if max(found.seeds) == 1:
        what |= {"first": f"only {found.first} finds it", "second": f"only {found.second} finds it",
                 "both": "both find it", "neither": "none finds it",
                 "alike": "both by half, in a tie"}  # fmt: skip
    shown = {kind: [one for one in found.examples if one.kind == kind] for kind in KINDS}
    all_queries = max(counts.queries, 1)
    rows = [
        (words, getattr(counts, kind), getattr(counts, kind) / all_queries, len(shown[kind]))
        for kind, words in what.items()
    ]
    rows.append(("all", counts.queries, 1.0, len(found.examples)))
    seeds = " The answers are those of the models of the first seed." * (max(found.seeds) > 1)
    yield Text(found.rule)
    yield Table(
        f"To find: to rank the right answer first. Texts are read up to {found.max_length} tokens. "
        f"The best {found.k} {others} of each model; what is right is framed in green.{seeds}",
        ["queries", "number", "share", "shown here"],
        rows,
        {2: ".1%"},
    )
    for kind, words in what.items():
        if shown[kind]:
            yield Heading(words[0].upper() + words[1:], 4)
        for example in shown[kind]:
            yield from _example(found, example, collection)


def _example(found: Examples, example: Example, collection: Collection | None) -> Iterator[Block]:
    """One query with the answers of both models."""
    in_words = found.direction == "text_to_image"
    if in_words:
        yield Text(example.text, quote=True)
    else:
        yield Gallery([_picture(collection, example.id)], large=True)
    sides = zip((found.first, found.second), example.ranks, example.tops, strict=True)
    for name, ranks, top in sides:
        by = "by seed " if len(ranks) > 1 else ""
        title = f"{name}, rank {by}{', '.join(f'{rank:g}' for rank in ranks)}"
        if in_words:
            pictures = [_picture(collection, id, correct=id in example.right) for id in top]
            yield Gallery(pictures, title)
        else:
            yield Listing(title, top, ordered=True, correct=example.right)


def _picture(collection: Collection | None, id: str, *, correct: bool = False) -> Picture:
    """A picture of the collection; none where it has gone or cannot be read."""
    try:
        if collection is not None:
            data = collection.image_bytes(collection.get([id])[id])
            return Picture(data, id, correct=correct, media_type=media_type(data))
    except ParagrainError:
        pass
    return Picture(None, id, correct=correct)


def _compute(context: AnalysisContext) -> dict[str, Examples]:
    both = context.spec.right, context.spec.wrong
    if not all(context.done(name) for name in both):
        return {}
    title = context.study.title
    return {
        direction: choose_examples(
            context.benchmark(both[0]),
            {title(name): context.ranks(name) for name in both},
            {title(name): context.encoder(name) for name in both},
            max_length=context.max_length(both[0]),
            direction=direction,
        )
        for direction in DIRECTIONS[::-1]
    }


def _blocks(
    study: Study, found: Mapping[str, Examples], collection: Collection | None
) -> Iterator[Block]:
    for direction, one in found.items():
        folded = direction == "image_to_text"
        yield Heading(f"What two of them answer, {DIRECTION_TITLES[direction]}", 3, folded=folded)
        blocks = list(examples_blocks(one, collection))
        yield OnPage(blocks, f"{one.rule} The pictures are on the page `index.html`.")


ANALYSIS = Analysis(Examples, _compute, _blocks)
