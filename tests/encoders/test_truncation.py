"""Texts cut to whole words or whole sentences, with the tokenizers of all kinds."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.encoders import ImageTextEncoder, encode_tokens, load_encoder
from paragrain.encoders.tokens import TRUNCATIONS, Tokens
from paragrain.errors import UsageError
from paragrain.words import sentence_spans, word_spans

TEXTS = [
    "A red star.  It is above; the circle's well-known 🙂 blue!\nTwo squares are left",
    "red " * 40 + ". star",
    "unbelievablyextraordinarilylongword star",
    "[SEP] <|endoftext|> </s> red star",
    "赤い星。 \u00a0青いA円。四角",
    "  star\t",
    "",
]
KINDS = ("random_blip", "random_clip", "random_siglip")


@pytest.fixture(params=KINDS)
def any_encoder(request: pytest.FixtureRequest) -> ImageTextEncoder:
    folder: Path = request.getfixturevalue(request.param)
    return load_encoder(folder, "cpu")


def kept_text(encoder: ImageTextEncoder, text: str, tokens: Tokens, index: int) -> str:
    """What is left of a text, read off the offsets of its tokens."""
    encoding = encoder._tokens_of.encode(text)
    kept = len(tokens.row(index)) - 1
    places = [p for p in range(kept) if not encoding.special_tokens_mask[p]]
    assert tokens.row(index).tolist() == [*encoding.ids[:kept], encoding.ids[-1]]
    return text[: encoding.offsets[places[-1]][1]] if places else ""


@pytest.mark.parametrize("cut", TRUNCATIONS)
def test_a_budget_that_holds_a_text_changes_nothing(
    any_encoder: ImageTextEncoder, cut: str
) -> None:
    limit = any_encoder.max_tokens
    texts = [text[:60] for text in TEXTS]
    plain = any_encoder.tokenize(texts, limit)
    other = any_encoder.tokenize(texts, limit, truncation=cut)
    assert np.array_equal(plain.flat, other.flat)
    assert np.array_equal(plain.offsets, other.offsets)
    assert other.texts_truncated == 0
    assert np.array_equal(encode_tokens(any_encoder, plain), encode_tokens(any_encoder, other))


def test_words_and_sentences_are_whole_and_as_many_as_fit(any_encoder: ImageTextEncoder) -> None:
    whole = {
        cut: any_encoder.tokenize(TEXTS, any_encoder.max_tokens, truncation=cut)
        for cut in TRUNCATIONS
    }
    for max_length in range(3, any_encoder.max_tokens + 1):
        plain, words, sentences = (whole[cut].at(max_length) for cut in TRUNCATIONS)
        assert (sentences.kept <= words.kept).all()
        assert (words.kept <= plain.kept).all()
        assert (plain.kept <= max_length).all()
        assert plain.texts_truncated == words.texts_truncated == sentences.texts_truncated
        for index, text in enumerate(TEXTS):
            if not plain.truncated[index]:
                continue
            ends = [0, *(end for _, end in word_spans(text))]
            encoding = any_encoder._tokens_of.encode(text)
            room = encoding.offsets[max_length - 1][0]  # a letter may be of several tokens
            kept = kept_text(any_encoder, text, words, index).rstrip()
            assert len(kept) == max(end for end in ends if end <= room), (max_length, text)
            stops = [end for _, end in sentence_spans(text) if end <= room]
            told = kept_text(any_encoder, text, sentences, index).rstrip()
            assert len(told) == (max(stops) if stops else len(kept)), (max_length, text)


def test_what_is_lost_is_counted_and_named(any_encoder: ImageTextEncoder) -> None:
    text = "red star blue circle. red"
    plain, words, sentences = (
        any_encoder.tokenize([text], 6, truncation=cut) for cut in TRUNCATIONS
    )
    assert words.tokens_lost >= plain.tokens_lost
    assert sentences.tokens_lost == words.tokens_lost  # the first sentence does not fit
    assert words.summary()["truncation"] == "words"
    assert words.summary()["share_truncated"] == 1.0
    assert words.at(20).options.truncation == "words"
    with pytest.raises(UsageError, match="truncated to 'lines': choose one of tokens,"):
        any_encoder.tokenize([text], 6, truncation="lines")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text('ab .!?\n。赤"', max_size=40), max_size=4), st.integers(3, 20))
def test_any_text_ends_where_a_word_ends(
    encoder: ImageTextEncoder, texts: list[str], max_length: int
) -> None:
    tokens = encoder.tokenize(texts, max_length, truncation="words")
    for index, text in enumerate(texts):
        kept = kept_text(encoder, text, tokens, index)
        assert kept.rstrip() == "" or len(kept.rstrip()) in {end for _, end in word_spans(text)}
        assert len(tokens.ids[index]) == tokens.kept[index] <= max_length


def test_sentences_cover_all_that_is_not_white_space() -> None:
    text = 'One. Two!  (Three?) "Four…" e.g. five 2.5 m. 六。七！」八'
    spans = sentence_spans(text)
    told = [text[start:end] for start, end in spans]
    assert told == [
        "One.",
        "Two!",
        "(Three?)",
        '"Four…"',
        "e.g.",
        "five 2.5 m.",
        "六。",
        "七！」",
        "八",
    ]
    assert re.sub(r"\s", "", "".join(told)) == re.sub(r"\s", "", text)
