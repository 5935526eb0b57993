"""Examples in which one model is right and another is wrong, chosen by a rule and not by hand.

The rule, on the strict ranks of all seeds: a query counts for model A if A ranks its right answer
first in every seed, though it lost every tie, while B ranks it below the K-th place in every seed,
though it won every tie. Of these queries at most one of each group of images is taken (the first
in the order of the benchmark), and of what is left the first few in the order of a hash of the
image's id, which nobody can steer. The same rule with A and B exchanged is shown beside it, with
the number of queries of each kind, so that a page can be weighed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from paragrain import pages
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, encode_texts
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Benchmark, QueryRanks
from paragrain.evaluation.stored import DIRECTIONS
from paragrain.images import media_type
from paragrain.retrieval import top_k
from paragrain.study.analyses.pairs import check_vision

K = 5
"""Right is rank 1; wrong is a rank beyond this."""

EXAMPLES = 5


@dataclass(frozen=True)
class Counts:
    """Queries by what both models do with them, over all seeds; they add up to `queries`.

    Attributes:
        first, second: only the first model is right and the other wrong, or the reverse.
        both: each is right in every seed.
        neither: each is wrong in every seed.
        rest: all others, on which seeds differ or ranks lie between 2 and K.
        queries: all.
    """

    first: int
    second: int
    both: int
    neither: int
    rest: int
    queries: int


@dataclass(frozen=True)
class Example:
    """One query.

    Attributes:
        id: of its image.
        text: the query; "" where the image itself asks.
        winner_ranks, loser_ranks: rank of the right answer in each seed, ties halved.
        winner_top, loser_top: what the models of the first seed find, best first: ids of images,
            or texts.
        right: the right answers: the id of the image, or all its texts.
    """

    id: str
    text: str
    winner_ranks: list[float]
    loser_ranks: list[float]
    winner_top: list[str]
    loser_top: list[str]
    right: list[str]


@dataclass(frozen=True)
class Qualitative:
    """Examples both ways.

    Attributes:
        first, second: names of the models.
        direction: "text_to_image" or "image_to_text".
        first_wins, second_wins: examples for each model.
        counts: of all queries.
        k, tokens: as in `qualitative`.
    """

    first: str
    second: str
    direction: str
    first_wins: list[Example]
    second_wins: list[Example]
    counts: Counts
    k: int
    tokens: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @property
    def rule(self) -> str:
        """How the examples were chosen, in a sentence."""
        return (
            "A query counts for a model if it ranks the right answer first in every seed while the "
            f"other ranks it below place {self.k} in every seed. Of these, one of each group of "
            "images is taken, and the first in the order of a hash of the image's id are shown."
        )


def kinds(
    first: Sequence[QueryRanks], second: Sequence[QueryRanks], direction: str, *, k: int = K
) -> tuple[np.ndarray, np.ndarray, Counts]:
    """Which queries count for each model: two bool [Q], and the counts of all kinds.

    Args:
        first, second: stored ranks of each model on one benchmark, one for each seed.
        direction: "text_to_image" or "image_to_text".
        k: beyond this rank a model is wrong.

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
    right, wrong = [], []
    for side in (first, second):
        ranks = [one.direction(direction) for one in side]
        right.append(np.all([one.worst == 1 for one in ranks], axis=0))
        wrong.append(np.all([1 + one.greater > k for one in ranks], axis=0))
    wins = right[0] & wrong[1], right[1] & wrong[0]
    both, neither = right[0] & right[1], wrong[0] & wrong[1]
    told = [int(kind.sum()) for kind in (*wins, both, neither)]
    total = len(right[0])
    counts = Counts(told[0], told[1], told[2], told[3], total - sum(told), total)
    return wins[0], wins[1], counts


def chosen(ids: Sequence[str], groups: np.ndarray, wins: np.ndarray, examples: int) -> list[int]:
    """The queries to show: one of each group, in the order of a hash of the image's id.

    Args:
        ids: of the image of each query [Q].
        groups: [Q] of the image of each query.
        wins: bool [Q], the queries that fulfil the rule.
        examples: at most so many.

    >>> groups, wins = np.array([0, 0, 1, 2]), np.array([True, True, True, False])
    >>> sorted(chosen(["a", "a", "b", "c"], groups, wins, 9))
    [0, 2]
    """
    rows = np.flatnonzero(wins)
    _, first = np.unique(groups[rows], return_index=True)
    order = sorted(rows[first].tolist(), key=lambda row: (_hash(ids[row]), row))
    return order[:examples]


def _hash(id: str) -> bytes:
    return blake2b(id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def qualitative(
    benchmark: Benchmark,
    ranks: Mapping[str, Sequence[QueryRanks]],
    encoders: Mapping[str, ImageTextEncoder],
    *,
    tokens: int,
    direction: str = "text_to_image",
    k: int = K,
    examples: int = EXAMPLES,
) -> Qualitative:
    """Choose examples by the module's rule and find what both models answer.

    Args:
        benchmark: what the ranks are of.
        ranks: of two models, by name, one for each seed.
        encoders: of the same two names, the model of the first seed, which answers.
        tokens: the budget that the ranks were made with.
        direction: "text_to_image" or "image_to_text".
        k: right is rank 1, wrong a rank beyond this; and so many answers are shown.
        examples: at most so many for each model.

    Raises:
        UsageError: not two models, ranks of other queries, or another vision side.
    """
    if len(ranks) != 2 or set(ranks) != set(encoders):
        raise UsageError("examples are chosen between two models: give ranks and encoders of both")
    names = list(ranks)
    first, second = (ranks[name] for name in names)
    wins_first, wins_second, counts = kinds(first, second, direction, k=k)
    same = first[0].ids == benchmark.ids
    if not same or not np.array_equal(first[0].text_image, benchmark.text_image):
        raise UsageError("the ranks are of another benchmark: evaluate both models on this one")
    for encoder in encoders.values():
        check_vision(benchmark, encoder)
    answer = _Answers(benchmark, direction, tokens, k)
    found = []
    for wins, (winner, loser) in (
        (wins_first, names),
        (wins_second, names[::-1]),
    ):
        rows = chosen(answer.ids, first[0].units(direction), wins, examples)
        tops = [answer.top(encoders[name], rows) for name in (winner, loser)]
        found.append(
            [
                Example(
                    answer.ids[row],
                    answer.text(row),
                    _of_seeds(ranks[winner], direction, row),
                    _of_seeds(ranks[loser], direction, row),
                    tops[0][place],
                    tops[1][place],
                    answer.right(row),
                )
                for place, row in enumerate(rows)
            ]
        )
    return Qualitative(names[0], names[1], direction, found[0], found[1], counts, k, tokens)


def _of_seeds(ranks: Sequence[QueryRanks], direction: str, row: int) -> list[float]:
    return [round(float(one.direction(direction).expected[row]), 1) for one in ranks]


class _Answers:
    """Queries of one direction and what a model answers them."""

    def __init__(self, benchmark: Benchmark, direction: str, tokens: int, k: int) -> None:
        self.benchmark, self.tokens, self.k = benchmark, tokens, k
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
                encoder, [benchmark.texts[row] for row in rows], tokens=self.tokens
            ).vectors
            best, _ = top_k(asked, benchmark.images, self.k)
            return [[benchmark.ids[image] for image in own] for own in best.tolist()]
        offered = encode_texts(encoder, benchmark.texts, tokens=self.tokens).vectors
        asked = benchmark.images[[self.rows[row] for row in rows]]
        best, _ = top_k(asked, offered, self.k)
        return [[benchmark.texts[text] for text in own] for own in best.tolist()]


# --- The page ---------------------------------------------------------------------------------


def qualitative_html(found: Qualitative, collection: Collection) -> str:
    """The examples both ways with counts and the rule: HTML for `pages.page`, all escaped.

    Pictures come from the collection; one that cannot be read is told by its id.
    """
    counts = found.counts
    others = "pictures" if found.direction == "text_to_image" else "texts"
    rows = [
        [f"only {found.first} right", counts.first],
        [f"only {found.second} right", counts.second],
        ["both right", counts.both],
        ["both wrong", counts.neither],
        ["anything else", counts.rest],
        ["all", counts.queries],
    ]
    parts = [
        pages.paragraph(f"{found.rule} The best {found.k} {others} of each are shown, of the "
                        "models of the first seed; what is right is marked in green."),
        pages.table(["queries", "number"], rows, f"Right: rank 1 in every seed. Wrong: below rank "
                    f"{found.k} in every seed. Texts read up to {found.tokens} tokens."),
    ]  # fmt: skip
    for winner, loser, examples in (
        (found.first, found.second, found.first_wins),
        (found.second, found.first, found.second_wins),
    ):
        parts.append(f"<h3>{pages.text(f'{winner} is right, {loser} is wrong')}</h3>")
        if not examples:
            parts.append(pages.paragraph("There is no such query."))
        parts += [_example(found, one, winner, loser, collection) for one in examples]
    return "\n".join(parts)


def _example(
    found: Qualitative, example: Example, winner: str, loser: str, collection: Collection
) -> str:
    """One query with the answers of both models."""
    sides = (
        (winner, example.winner_ranks, example.winner_top),
        (loser, example.loser_ranks, example.loser_top),
    )
    if found.direction == "text_to_image":
        parts = [f"<blockquote>{pages.text(example.text)}</blockquote>"]
        for name, ranks, top in sides:
            pictures = "".join(_picture(collection, id, id in example.right) for id in top)
            parts.append(f"<div class=row>{_who(name, ranks)}{pictures}</div>")
        return "".join(parts)
    parts = [f"<div class=heat>{_picture(collection, example.id, False)}</div>"]
    for name, ranks, top in sides:
        items = "".join(_item(text, text in example.right) for text in top)
        parts.append(f"{_who(name, ranks)}<ol class=answers>{items}</ol>")
    return "".join(parts)


def _item(text: str, is_right: bool) -> str:
    return f"<li{' class=right' if is_right else ''}>{pages.text(text)}</li>"


def _who(name: str, ranks: Sequence[float]) -> str:
    told = ", ".join(f"{rank:g}" for rank in ranks)
    return f"<b>{pages.text(name)}, rank {'by seed ' if len(ranks) > 1 else ''}{told}</b>"


def _picture(collection: Collection, id: str, is_right: bool) -> str:
    """A picture of the collection; its id where it has gone or cannot be read."""
    try:
        data = collection.image_bytes(collection.get([id])[id])
        return pages.picture(data, media_type(data), id, right=is_right)
    except ParagrainError:
        return f"<span>{pages.text(id)}</span>"
