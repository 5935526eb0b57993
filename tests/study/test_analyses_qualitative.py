"""Examples by the rule: ranks by hand, and a page of the procedural world."""

import json

import numpy as np
import pytest

from paragrain import pages
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.evaluation import Benchmark, QueryRanks
from paragrain.retrieval import DirectionRanks, Ranks, RanksPair
from paragrain.study.analyses.qualitative import (
    Counts,
    Qualitative,
    chosen,
    kinds,
    qualitative,
    qualitative_html,
)


def ranked(greater: list[int], tied: list[int] | None = None, ids: str = "abcdef") -> QueryRanks:
    """One text an image, ranked so both ways."""
    count = len(greater)
    own = np.ones(count, np.int64)
    ties = np.array(tied or [0] * count)
    side = DirectionRanks(np.array(greater), ties, own, 100)
    pair = RanksPair(side, side)
    rows = np.arange(count)
    return QueryRanks(list(ids[:count]), rows, rows, Ranks(pair, pair, rows, count, 0))


def test_a_win_needs_every_seed_and_ties_never_help() -> None:
    a = [ranked([0, 0, 0, 0, 9, 0]), ranked([0, 0, 1, 0, 9, 0], [0, 0, 0, 1, 0, 0])]
    b = [ranked([5, 4, 9, 9, 0, 0]), ranked([7, 9, 9, 9, 0, 0])]
    first, second, counts = kinds(a, b, "text_to_image", k=5)
    assert first.tolist() == [True, False, False, False, False, False]
    assert second.tolist() == [False, False, False, False, True, False]
    assert counts == Counts(first=1, second=1, both=1, neither=0, rest=3, queries=6)


def test_exchanging_the_models_exchanges_the_examples() -> None:
    a, b = [ranked([0, 9, 0, 9])], [ranked([9, 0, 0, 9])]
    one, other, counts = kinds(a, b, "image_to_text")
    back = kinds(b, a, "image_to_text")
    assert (back[0].tolist(), back[1].tolist()) == (other.tolist(), one.tolist())
    assert (counts.first, counts.second, counts.both, counts.neither) == (1, 1, 1, 1)


def test_the_order_depends_on_the_ids_alone() -> None:
    ids = [f"image {n}" for n in range(40)]
    wins, groups = np.ones(40, bool), np.arange(40)
    picked = [ids[row] for row in chosen(ids, groups, wins, 5)]
    turned = [ids[::-1][row] for row in chosen(ids[::-1], groups, wins, 5)]
    assert picked == turned
    assert picked != ids[:5]


def test_ranks_of_other_queries_are_refused() -> None:
    with pytest.raises(UsageError, match="same benchmark"):
        kinds([ranked([0])], [ranked([0], ids="z")], "text_to_image")
    with pytest.raises(UsageError, match="ranks of both models"):
        kinds([], [ranked([0])], "text_to_image")
    with pytest.raises(UsageError, match="unknown direction"):
        kinds([ranked([0])], [ranked([0])], "up")


@pytest.mark.parametrize("direction", ["text_to_image", "image_to_text"])
def test_a_page_shows_what_the_models_answer(
    world: Collection, encoder: ImageTextEncoder, direction: str
) -> None:
    benchmark = Benchmark.load(world, encoder, "paragraph", split="test", show=False)
    count = len(benchmark.ids)
    greater = [0] * 3 + [9] * (count - 3)
    ids = "".join("x" for _ in range(count))
    rows = [ranked(greater, ids=ids), ranked(greater[::-1], ids=ids)]
    ranks = {
        name: [QueryRanks(benchmark.ids, benchmark.groups, benchmark.text_image, one.ranks)]
        for name, one in zip(("<A>", "B"), rows, strict=True)
    }
    found = qualitative(
        benchmark, ranks, dict.fromkeys(ranks, encoder), tokens=64, direction=direction, k=5
    )
    assert isinstance(found, Qualitative)
    assert found.counts.first == found.counts.second == 3
    assert {one.id for one in found.first_wins} <= set(benchmark.ids[:3])
    assert all(len(one.winner_top) == 5 for one in found.first_wins + found.second_wins)
    example = found.first_wins[0]
    if direction == "text_to_image":
        assert example.text == benchmark.texts[benchmark.ids.index(example.id)]
        assert set(example.winner_top) <= set(benchmark.ids)
    else:
        assert set(example.winner_top) <= set(benchmark.texts)
    json.dumps(found.as_dict())
    page = pages.page("Examples", qualitative_html(found, world))
    shown = sum(len({one.id for one in wins}) for wins in (found.first_wins, found.second_wins))
    assert page.count("<img") == (shown * 10 if direction == "text_to_image" else shown)
    assert "<A>" not in page
    assert "&lt;A&gt; is right, B is wrong" in page
    assert "B is right, &lt;A&gt; is wrong" in page


def test_a_page_without_examples_says_so(world: Collection, encoder: ImageTextEncoder) -> None:
    benchmark = Benchmark.load(world, encoder, "paragraph", split="test", show=False)
    own = [benchmark.rank(encoder, benchmark.tokenize(encoder, 64))]
    found = qualitative(benchmark, {"A": own, "B": own}, {"A": encoder, "B": encoder}, tokens=64)
    assert found.counts.first == found.counts.second == 0
    assert qualitative_html(found, world).count("There is no such query.") == 2
