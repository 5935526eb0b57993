import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paragrain.encoders.tokens import Tokens, length_batches, normalise_text, pad
from paragrain.errors import UsageError

CLS, SEP = 2, 3


def rows_of(lengths: list[int]) -> list[list[int]]:
    return [[CLS, *range(10, 8 + length), SEP] for length in lengths]


def test_a_cut_keeps_the_first_and_the_last_token_and_is_counted() -> None:
    rows = rows_of([2, 5, 9])
    tokens = Tokens.from_ids(rows, max_length=5, limit=512)
    assert list(tokens.ids) == [[2, 3], rows[1], [2, 10, 11, 12, 3]]
    assert tokens.lengths.tolist() == [2, 5, 9]
    assert tokens.kept.tolist() == [2, 5, 5]
    assert tokens.truncated.tolist() == [False, False, True]
    assert (tokens.texts_truncated, tokens.tokens_lost) == (1, 4)
    assert tokens.lengths.dtype == np.int32


def test_one_tokenisation_serves_every_max_length() -> None:
    rows = rows_of([4, 30, 11])
    tokens = Tokens.from_ids(rows, max_length=8, limit=40)
    for max_length in (3, 10, 20, 40):
        at = tokens.at(max_length)
        assert at.ids == Tokens.from_ids(rows, max_length=max_length, limit=40).ids
        assert at.max_length == max_length
    assert tokens.at(40).ids == rows
    with pytest.raises(UsageError, match="ask for 40 or fewer"):
        tokens.at(41)
    with pytest.raises(UsageError, match="ask for 3 or more"):
        tokens.at(2)


def test_rows_are_a_sequence() -> None:
    rows = rows_of([4, 3, 6])
    ids = Tokens.from_ids(rows, max_length=9, limit=9).ids
    assert len(ids) == 3
    assert ids[-1] == rows[2]
    assert ids[1:] == rows[1:]
    assert repr(ids) == repr(rows)
    with pytest.raises(IndexError):
        ids[3]


def test_no_texts_at_all() -> None:
    tokens = Tokens.from_ids([], max_length=5, limit=9)
    assert len(tokens) == 0
    assert tokens.summary()["longest_text"] == 0
    assert pad([], 0)[0].shape == (0, 0)
    assert length_batches([], 100) == []
    assert [part.tolist() for part in tokens.distinct()] == [[], []]


def test_distinct_looks_at_what_is_left_after_truncation() -> None:
    rows = [[2, 5, 6, 7, 3], [2, 5, 6, 8, 9, 3], [2, 5, 6, 7, 3]]
    first, inverse = Tokens.from_ids(rows, max_length=4, limit=9).distinct()
    assert (first.tolist(), inverse.tolist()) == ([0], [0, 0, 0])
    first, inverse = Tokens.from_ids(rows, max_length=9, limit=9).distinct()
    assert (first.tolist(), inverse.tolist()) == ([0, 1], [0, 1, 0])


def test_summary_is_plain_and_complete() -> None:
    summary = Tokens.from_ids(rows_of([2, 9]), max_length=5, limit=512).summary()
    assert summary == {
        "texts": 2,
        "max_length": 5,
        "tokens": 11,
        "tokens_lost": 4,
        "texts_truncated": 1,
        "share_truncated": 0.5,
        "truncation": "tokens",
        "longest_text": 9,
        "text_normalisation": "none",
        "words_dropped_by_normalisation": 0,
    }
    assert all(type(value) in (int, float, str) for value in summary.values())


@given(
    lengths=st.lists(st.integers(1, 600), max_size=200),
    max_tokens=st.integers(1, 5000),
    max_texts=st.integers(1, 50),
)
def test_batches_hold_each_text_once_and_stay_in_bounds(
    lengths: list[int], max_tokens: int, max_texts: int
) -> None:
    batches = length_batches(lengths, max_tokens, max_texts)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= max_tokens
        assert len(batch) <= max_texts


def test_padding_of_captions_is_almost_nothing() -> None:
    lengths = np.random.default_rng(0).integers(5, 40, 5000)
    batches = length_batches(lengths, 4096)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded / lengths.sum() < 1.05


def test_pad_gives_int64_and_a_mask() -> None:
    ids, mask = pad([np.array([2, 9, 3], dtype=np.int32), [2, 3]], pad_id=7)
    assert ids.tolist() == [[2, 9, 3], [2, 3, 7]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert ids.dtype == mask.dtype == torch.int64


@pytest.mark.parametrize(
    ("text", "expected", "lost"),
    [
        # What `pre_caption` of github.com/salesforce/BLIP gives for the same texts.
        ("A dog (brown), runs!  Fast.\n", "a dog brown , runs fast", 0),
        ("It's a well-known #1 *star*: see?", "it's a well-known 1 star see?", 0),
        ("", "", 0),
        (" ".join(f"W{i}" for i in range(33)), " ".join(f"w{i}" for i in range(30)), 3),
    ],
)
def test_the_original_blip_normalisation(text: str, expected: str, lost: int) -> None:
    assert normalise_text(text, "blip-original") == (expected, lost)


def test_an_unknown_normalisation_names_the_choices() -> None:
    with pytest.raises(UsageError, match="none, blip-original"):
        normalise_text("a", "lower")
