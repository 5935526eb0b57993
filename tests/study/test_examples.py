"""Examples by the rule: ranks by hand, and a page of the procedural world."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.evaluation import Benchmark, QueryRanks
from paragrain.pages import page
from paragrain.retrieval import DirectionRanks, Ranks, RanksPair
from paragrain.study.analyses.examples import (
    KINDS,
    Counts,
    Examples,
    choose_examples,
    chosen,
    examples_blocks,
    kinds,
    shares,
)
from paragrain.study.serialization import from_plain, to_plain


def ranked(greater: list[int], tied: list[int] | None = None, ids: str = "abcdef") -> QueryRanks:
    """One text an image, ranked so both ways."""
    count = len(greater)
    own = np.ones(count, np.int64)
    ties = np.array(tied or [0] * count)
    side = DirectionRanks(np.array(greater), ties, own, 100)
    pair = RanksPair(side, side)
    rows = np.arange(count)
    return QueryRanks(list(ids[:count]), rows, rows, Ranks(pair, pair, rows, count, 0))


def test_a_query_counts_for_the_model_that_finds_it_in_more_seeds() -> None:
    a = [ranked([0, 0, 0, 0, 9, 9]), ranked([0, 9, 1, 0, 9, 9], [0, 0, 0, 1, 0, 0])]
    b = [ranked([5, 4, 0, 9, 0, 1]), ranked([7, 0, 9, 9, 0, 9])]
    found, counts = kinds(a, b, "text_to_image")
    assert np.flatnonzero(found["first"]).tolist() == [0, 3]  # a tie counts by half
    assert np.flatnonzero(found["second"]).tolist() == [4]
    assert np.flatnonzero(found["alike"]).tolist() == [1, 2]
    assert counts == Counts(first=2, second=1, both=0, neither=1, alike=2, queries=6)


def test_exchanging_the_models_exchanges_the_kinds() -> None:
    a, b = [ranked([0, 9, 0, 9])], [ranked([9, 0, 0, 9])]
    found, counts = kinds(a, b, "image_to_text")
    back, _ = kinds(b, a, "image_to_text")
    assert found["first"].tolist() == back["second"].tolist()
    assert (counts.first, counts.second, counts.both, counts.neither) == (1, 1, 1, 1)


@given(st.lists(st.integers(0, 10**5), min_size=2, max_size=5), st.integers(5, 12))
def test_places_are_shared_out_in_proportion(counts: list[int], places: int) -> None:
    given_out = shares(counts, places)
    assert sum(given_out) <= places
    assert all((own > 0) == (count > 0) for own, count in zip(given_out, counts, strict=True))
    if min(counts) >= places:
        assert sum(given_out) == places
        lifted = sum(places * count < sum(counts) for count in counts)
        for own, count in zip(given_out, counts, strict=True):
            assert abs(own - places * count / sum(counts)) <= 1 + lifted


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
    benchmark = Benchmark.load(world, encoder, "paragraph", split="test", progress=False)
    count = len(benchmark.ids)
    greater = [0] * 3 + [9] * (count - 3)
    ids = "".join("x" for _ in range(count))
    rows = [ranked(greater, ids=ids), ranked(greater[::-1], ids=ids)]
    ranks = {
        name: [QueryRanks(benchmark.ids, benchmark.groups, benchmark.text_image, one.ranks)]
        for name, one in zip(("<A>", "B"), rows, strict=True)
    }
    found = choose_examples(
        benchmark, ranks, dict.fromkeys(ranks, encoder), max_length=64, direction=direction, k=5
    )
    assert isinstance(found, Examples)
    assert found.counts.first == found.counts.second == 3
    wins = {kind: [one for one in found.examples if one.kind == kind] for kind in KINDS}
    assert 0 < len(wins["first"]) == len(wins["second"]) <= 3
    assert {one.id for one in wins["first"]} <= set(benchmark.ids[:3])
    assert all([len(top) for top in one.tops] == [5, 5] for one in found.examples)
    example = wins["first"][0]
    if direction == "text_to_image":
        assert example.text == benchmark.texts[benchmark.ids.index(example.id)]
        assert set(example.tops[0]) <= set(benchmark.ids)
    else:
        assert set(example.tops[0]) <= set(benchmark.texts)
    assert from_plain(Examples, json.loads(json.dumps(to_plain(found)))) == found
    html = page("Examples", examples_blocks(found, world))
    shown = len(found.examples)
    assert html.count("<img") == (shown * 10 if direction == "text_to_image" else shown)
    assert "<A>" not in html
    assert "Only &lt;A&gt; finds it" in html
    assert "Only B finds it" in html
    assert "3 count for &lt;A&gt; and 3 for B" in html


def test_where_nothing_tells_two_models_apart_the_page_shows_what_there_is(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    benchmark = Benchmark.load(world, encoder, "paragraph", split="test", progress=False)
    own = [benchmark.rank(encoder, benchmark.tokenize(encoder, 64))]
    found = choose_examples(
        benchmark, {"A": own, "B": own}, {"A": encoder, "B": encoder}, max_length=64
    )
    assert found.counts.first == found.counts.second == 0
    html = page("t", examples_blocks(found, world))
    assert "There is no such query" not in html
    assert "None tells them apart" in html
    assert html.count("<blockquote>") == len(found.examples) > 0
    assert "<img" in html
    without = page("t", examples_blocks(found, None))
    assert "<img" not in without
    assert found.examples[0].id in without


def test_a_kind_that_is_absent_is_said_to_be() -> None:
    a, b = [ranked([0, 0, 0, 9])], [ranked([0, 9, 9, 9])]
    _, counts = kinds(a, b, "text_to_image")
    found = Examples("A", "B", "text_to_image", [1, 1], [], counts, 5, 64)
    assert "No query counts for B" in found.rule
    assert "2 count for A and 0 for B" in found.rule
