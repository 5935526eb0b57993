"""The searches are exact: they find what comparing everything with everything finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.auditing.near_duplicates import near_hashes
from paragrain.auditing.shared_strings import (
    FoldedTexts,
    fold,
    hash_shingles,
    near_texts,
    normalise_url,
)
from paragrain.files import digest


@pytest.mark.parametrize("radius", [0, 3, 7])
def test_near_hashes_equal_brute_force(radius: int) -> None:
    rng = np.random.default_rng(radius)
    centres = rng.integers(0, 2**64, 30, dtype=np.uint64)
    flips = [
        np.bitwise_or.reduce(np.uint64(1) << rng.choice(64, n, replace=False).astype(np.uint64))
        for n in rng.integers(1, 12, 400)
    ]
    hashes = rng.choice(centres, 400) ^ np.array(flips, np.uint64)
    table, queries = hashes[:300], hashes[300:]
    apart = np.bitwise_count(table[:, None] ^ queries)
    pairs, bits = near_hashes(table, queries, radius)
    np.testing.assert_array_equal(pairs, np.argwhere(apart <= radius))
    np.testing.assert_array_equal(bits, apart[apart <= radius])
    own = np.bitwise_count(table[:, None] ^ table) <= radius
    mine, _ = near_hashes(table, None, radius)
    assert {frozenset(p) for p in mine.tolist()} == {
        frozenset(p) for p in np.argwhere(np.triu(own, 1)).tolist()
    }
    assert len(mine) == np.triu(own, 1).sum()


def read(texts: list[str]) -> FoldedTexts:
    shingles = [hash_shingles(text) for text in texts]
    sizes = np.array([len(own) for own in shingles])
    digests = np.array([digest(text) for text in texts], "V16")
    return FoldedTexts(digests, np.arange(len(texts)), np.concatenate(shingles), sizes)


def overlap(one: str, other: str) -> float:
    sets = [
        {tuple(words[n : n + 3]) for n in range(len(words) - 2)}
        for words in (one.split(), other.split())
    ]
    return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1]))


sentences = st.lists(st.sampled_from("abcd"), min_size=3, max_size=9).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(sentences, min_size=1, max_size=9), st.lists(sentences, min_size=1, max_size=9))
def test_near_texts_equal_brute_force(left: list[str], right: list[str]) -> None:
    expected = {
        (n, m): overlap(one, other)
        for n, one in enumerate(left)
        for m, other in enumerate(right)
        if one != other and overlap(one, other) >= 0.5
    }
    found = near_texts(read(left), read(right), 0.5)
    assert {tuple(row) for row in found.rows.tolist()} == set(expected)
    for row, closeness in zip(found.rows.tolist(), found.closeness, strict=True):
        assert closeness == pytest.approx(expected[tuple(row)])
    within = near_texts(read(left), None, 0.5)
    assert {tuple(row) for row in within.rows.tolist()} == {
        (n, m)
        for n, one in enumerate(left)
        for m, other in enumerate(left)
        if n < m and one != other and overlap(one, other) >= 0.5
    }


def test_addresses_that_lead_to_the_same_place() -> None:
    same = [
        "https://Example.ORG/A%20b/",
        "http://example.org:80/A b",
        "https://example.org:443/A%20b?utm_campaign=x&fbclid=1#frag",
        "http://example.org./%41%20b",
    ]
    assert len({normalise_url(url) for url in same}) == 1
    other = [
        "http://example.org/a%20b",
        "http://example.org:81/A%20b",
        "http://example.org/A%2520b",
    ]
    assert len({normalise_url(url) for url in [same[0], *other]}) == 4
    assert [normalise_url(url) for url in ("", "x.jpg", "http://[", "http://a:b/", "//")] == [
        None
    ] * 5


@given(st.text(max_size=30))
def test_normalising_twice_changes_nothing(path: str) -> None:
    once = normalise_url("http://a.org/" + path)
    assert once is None or normalise_url("http://" + once) == once


def test_folding() -> None:
    assert fold("Straße, «NAÏVE»_x") == "strasse naïve x"
    assert fold("...") == ""
