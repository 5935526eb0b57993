"""Texts as token ids of at most `max_length`: options, what is truncated, batches without waste."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch

from paragrain.errors import UsageError
from paragrain.words import counted, sentence_spans, word_spans

NORMALISATIONS = ("none", "blip-original")
"""How a text may be treated before tokenising; see `normalise_text`."""

BLIP_WORDS = 30
"""Words that the original BLIP code keeps of a caption."""

TRUNCATIONS = ("tokens", "words", "sentences")
"""What a text is truncated to: as many tokens, words or sentences as fit, all of them whole."""

WORD, SENTENCE = 1, 2
"""Levels of a token: it begins a word, or a sentence and with it a word; 0 is neither."""

MIN_LENGTH = 3
"""The smallest token max_length: the start token, the end token and one token of text."""


def normalise_text(text: str, how: str) -> tuple[str, int]:
    """Treat one text before tokenising; returns it and the number of words that were dropped.

    `"none"` leaves it as it is. `"blip-original"` does what the code of the BLIP paper does
    (`pre_caption` in github.com/salesforce/BLIP) and Hugging Face does not: lower case, the
    signs `. ! " ( ) * # : ; ~` become spaces, runs of white space become one space, and only
    the first 30 words stay.

    >>> normalise_text("A dog (brown) runs!  Fast.", "blip-original")
    ('a dog brown runs fast', 0)
    >>> normalise_text("A dog (brown) runs!  Fast.", "none")
    ('A dog (brown) runs!  Fast.', 0)

    Raises:
        UsageError: `how` is not one of `NORMALISATIONS`.
    """
    if how == "none":
        return text, 0
    if how != "blip-original":
        raise UsageError(
            f"unknown text normalisation {how!r}: choose one of {', '.join(NORMALISATIONS)}"
        )
    text = re.sub(r"[.!\"()*#:;~]", " ", text.lower())
    text = re.sub(r"\s{2,}", " ", text).rstrip("\n").strip(" ")
    words = text.split(" ")
    return " ".join(words[:BLIP_WORDS]), max(0, len(words) - BLIP_WORDS)


@dataclass(frozen=True)
class TextOptions:
    """How texts are read, besides their length.

    Attributes:
        normalise: a treatment before tokenising, one of `NORMALISATIONS`; see `normalise_text`.
        truncation: one of `TRUNCATIONS`; see `Tokens`.
        prompt: what is put before each text, such as `"a photo of "`.
        lower_case: whether texts are lower-cased, whatever the tokenizer does.
        mode: one of the encoder's `text_modes`; by default the one that suits the length.

    >>> TextOptions(prompt="a photo of ", lower_case=True).apply("A Dog")
    ('a photo of a dog', 0)

    Raises:
        UsageError: an unknown treatment or truncation.
    """

    normalise: str = "none"
    truncation: str = "tokens"
    prompt: str = ""
    lower_case: bool = False
    mode: str | None = None

    def __post_init__(self) -> None:
        """Check the names."""
        normalise_text("", self.normalise)
        check_truncation(self.truncation)

    def apply(self, text: str) -> tuple[str, int]:
        """The text as it is tokenised, and the number of its words that were dropped."""
        text, dropped = normalise_text(text, self.normalise)
        text = self.prompt + text
        return text.lower() if self.lower_case else text, dropped

    def summary(self) -> dict[str, Any]:
        """What a result says of them: prompt, lower case and mode only where they are used."""
        usual = TextOptions()
        rare = {name: getattr(self, name) for name in ("prompt", "lower_case", "mode")}
        return {
            "truncation": self.truncation,
            "text_normalisation": self.normalise,
            **{name: value for name, value in rare.items() if value != getattr(usual, name)},
        }


def is_whole(number: Any) -> bool:
    """Whether it is an integer, of Python or numpy; `True` is none to whoever wrote it.

    >>> [is_whole(number) for number in (5, np.int64(5), 5.0, "5", True)]
    [True, True, False, False, False]
    """
    return isinstance(number, Integral) and not isinstance(number, bool)


def check_batch_size(batch_size: int) -> None:
    """Refuse a number of images that no batch can hold.

    Raises:
        UsageError: it is no whole number from 1.
    """
    if not is_whole(batch_size) or batch_size < 1:
        raise UsageError(f"a batch size is a whole number from 1, such as 64, not {batch_size!r}")


def check_max_length(max_length: int, limit: int, name: str) -> None:
    """Refuse a maximum length that the encoder called `name` cannot serve.

    Raises:
        UsageError: the maximum length is no whole number, below `MIN_LENGTH` or above `limit`.
    """
    if not is_whole(max_length):
        raise UsageError(f"max_length is a whole number such as 128, not {max_length!r}")
    if max_length < MIN_LENGTH:
        raise UsageError(
            f"a max_length of {max_length} leaves no room for text: ask for {MIN_LENGTH} or more"
        )
    if max_length > limit:
        raise UsageError(
            f"a max_length of {max_length} is more than {name} can read: ask for {limit} or fewer"
        )


def check_truncation(truncation: str) -> None:
    """Refuse what is not one of `TRUNCATIONS`.

    Raises:
        UsageError: it is none.
    """
    if truncation not in TRUNCATIONS:
        raise UsageError(
            f"texts cannot be truncated to {truncation!r}: choose one of {', '.join(TRUNCATIONS)}"
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """N texts as token ids, truncated to a maximum length with their end token kept.

    The ids of the whole texts are held too (4 bytes a token), so `at` gives another maximum length
    from the one tokenisation.

    Truncated to tokens, a text keeps as many as the length allows, and may end in mid-word. To
    words, it keeps the whole words that fit; a first word that does not fit leaves the text empty.
    To sentences, it keeps the whole sentences that fit; if the first does not, its whole words.
    What words and sentences are is said in `paragrain.words`.

    Attributes:
        flat: int32, the ids of all whole texts one after another.
        offsets: int64 `[N+1]`; text i is `flat[offsets[i]:offsets[i+1]]`.
        max_length: the most tokens a text keeps, special tokens included.
        limit: the most tokens that the encoder can read.
        encoder: name of the encoder whose tokenizer this was.
        options: how the texts were read.
        words_dropped: words that normalisation dropped, over all texts.
        levels: uint8, beside `flat`: what each token begins, `WORD`, `SENTENCE` or 0; only needed
            to truncate to words or sentences.

    >>> tokens = Tokens.from_ids([[101, 7, 8, 9, 102], [101, 102]], max_length=4, limit=512)
    >>> tokens.ids
    [[101, 7, 8, 102], [101, 102]]
    >>> tokens.lengths.tolist(), tokens.kept.tolist(), tokens.texts_truncated, tokens.tokens_lost
    ([5, 2], [4, 2], 1, 1)
    >>> tokens.at(5).ids[0]
    [101, 7, 8, 9, 102]

    Three words, the last of two tokens; the last begins a sentence.

    >>> levels = np.array([0, 2, 1, 2, 0, 0], dtype=np.uint8)
    >>> for how in TRUNCATIONS:
    ...     Tokens.from_ids([[101, 7, 8, 9, 10, 102]], max_length=5, limit=512, levels=levels,
    ...                     options=TextOptions(truncation=how)).ids[0]
    [101, 7, 8, 9, 102]
    [101, 7, 8, 102]
    [101, 7, 8, 102]
    """

    flat: np.ndarray
    offsets: np.ndarray
    max_length: int
    limit: int
    encoder: str = "this encoder"
    options: TextOptions = TextOptions()
    words_dropped: int = 0
    levels: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check the maximum length."""
        check_max_length(self.max_length, self.limit, self.encoder)

    @classmethod
    def from_ids(cls, ids: Iterable[Sequence[int]], *, max_length: int, **rest: Any) -> "Tokens":
        """Build from the id lists of whole texts, special tokens included; `rest`: attributes."""
        rows = [np.asarray(row, dtype=np.int32) for row in ids]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int32)
        return cls(flat, offsets, max_length, **rest)

    def at(self, max_length: int) -> "Tokens":
        """The same texts at another maximum length, without tokenising again."""
        return replace(self, max_length=max_length)

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        """How many texts, at which maximum length, and how many lost something to it."""
        texts = counted(len(self), "text")
        return (
            f"<Tokens of {texts}, at most {self.max_length} of each, "
            f"{self.texts_truncated:,} truncated>"
        )

    @property
    def ids(self) -> list[list[int]]:
        """The truncated id lists, made each time; `row` gives one of them."""
        return [self.row(index).tolist() for index in range(len(self))]

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 `[N]`: tokens of each whole text, special tokens included."""
        return np.diff(self.offsets).astype(np.int32)

    @cached_property
    def kept(self) -> np.ndarray:
        """int32 `[N]`: tokens that each text keeps."""
        if self.options.truncation == "tokens":
            return np.minimum(self.lengths, np.int32(self.max_length))
        kept, starts = self.lengths.copy(), self.offsets[:-1]
        long = np.flatnonzero(self.truncated)
        beyond = starts[long] + self.max_length - 1  # the first token that has no room
        stops = self._last(WORD)[beyond]
        if self.options.truncation == "sentences":
            sentence = self._last(SENTENCE)[beyond]
            one = sentence > self._first()[long]  # whether a whole sentence fits
            stops = np.where(one, sentence, stops)
        kept[long] = stops - starts[long] + 1
        return kept

    def _last(self, level: int) -> np.ndarray:
        """Where in `flat` the last token of that level or more is, up to and with each token."""
        assert self.levels is not None
        places = np.where(self.levels >= level, np.arange(len(self.flat)), 0)
        return np.maximum.accumulate(places)

    def _first(self) -> np.ndarray:
        """Where in `flat` the first sentence of each text begins, behind its start token."""
        assert self.levels is not None
        begins = np.flatnonzero(self.levels >= SENTENCE)
        return np.append(begins, len(self.flat))[np.searchsorted(begins, self.offsets[:-1])]

    @property
    def truncated(self) -> np.ndarray:
        """bool `[N]`: whether the text lost any token."""
        return self.lengths > self.max_length

    @property
    def texts_truncated(self) -> int:
        """Number of texts that lost any token."""
        return int(self.truncated.sum())

    @property
    def tokens_lost(self) -> int:
        """Tokens lost, over all texts."""
        return int((self.lengths - self.kept).sum(dtype=np.int64))

    def row(self, index: int) -> np.ndarray:
        """int32: the truncated ids of one text; the last is the text's own end token."""
        start, stop = self.offsets[index], self.offsets[index + 1]
        if stop - start <= self.max_length:
            return self.flat[start:stop]
        return np.append(self.flat[start : start + self.kept[index] - 1], self.flat[stop - 1])

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that differ in what they keep: `(first, inverse)`.

        `first` `[U]` are the indices of the first text of each kind, `inverse` `[N]` says for
        every text which of them it equals.

        >>> tokens = Tokens.from_ids([[1, 5, 2], [1, 2], [1, 5, 2]], max_length=3, limit=9)
        >>> [part.tolist() for part in tokens.distinct()]
        [[0, 1], [0, 1, 0]]
        """
        seen: dict[bytes, int] = {}
        inverse = np.empty(len(self), dtype=np.int64)
        first: list[int] = []
        for index in range(len(self)):
            place = seen.setdefault(self.row(index).tobytes(), len(first))
            if place == len(first):
                first.append(index)
            inverse[index] = place
        return np.asarray(first, dtype=np.int64), inverse

    def summary(self) -> dict[str, Any]:
        """What a result file says about its texts: the maximum length, and what it cost."""
        return {
            "texts": len(self),
            "max_length": self.max_length,
            "tokens": int(self.lengths.sum(dtype=np.int64)),
            "tokens_lost": self.tokens_lost,
            "texts_truncated": self.texts_truncated,
            "share_truncated": self.texts_truncated / max(len(self), 1),
            **self.options.summary(),
            "longest_text": int(self.lengths.max(initial=0)),
            "words_dropped_by_normalisation": self.words_dropped,
        }


def token_levels(
    text: str, offsets: Sequence[tuple[int, int]], special: Sequence[int]
) -> np.ndarray:
    """What each token of a text begins: uint8 `[L]` of `WORD`, `SENTENCE` or 0.

    Args:
        text: that was tokenised.
        offsets: L pairs, start and end in `text` of each token.
        special: L flags, 1 for what the tokenizer adds (start and end token).

    The fourth token stands for nothing but the space before its word.

    >>> offsets = [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6), (6, 9), (0, 0)]
    >>> token_levels("a b. c is", offsets, [0, 0, 0, 0, 0, 0, 1])
    array([2, 1, 0, 2, 0, 1, 0], dtype=uint8)
    """
    levels = np.zeros(len(offsets), dtype=np.uint8)
    own = np.flatnonzero(np.asarray(special) == 0)
    if not len(own):
        return levels
    starts, ends = np.asarray(offsets, dtype=np.int64)[own].T
    for level, spans in ((WORD, word_spans(text)), (SENTENCE, sentence_spans(text))):
        first, last = np.asarray(spans, dtype=np.int64).reshape(-1, 2).T
        begins_in = np.searchsorted(last, starts, side="right")
        # A token of white space alone ends in the word that it leads to.
        ends_in = np.maximum(np.searchsorted(first, ends, side="left") - 1, begins_in)
        levels[own[1:][begins_in[1:] > ends_in[:-1]]] = level
    levels[own[0]] = SENTENCE
    return levels


def pad(
    ids: Sequence[Sequence[int] | np.ndarray], pad_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad id lists to the longest of them: `(input_ids, attention_mask)`, int64 `[B, L]`.

    >>> pad([[101, 7, 102], [101, 102]], pad_id=0)
    (tensor([[101,   7, 102],
            [101, 102,   0]]), tensor([[1, 1, 1],
            [1, 1, 0]]))
    """
    longest = max((len(row) for row in ids), default=0)
    input_ids = np.full((len(ids), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(ids), longest), dtype=np.int64)
    for place, row in enumerate(ids):
        input_ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
    return torch.from_numpy(input_ids), torch.from_numpy(mask)


def length_batches(
    lengths: np.ndarray | Sequence[int], max_tokens: int, max_texts: int = 1024
) -> list[np.ndarray]:
    """Group texts of similar length, longest first, so that padding is almost nothing.

    Args:
        lengths: tokens of each text `[N]`.
        max_tokens: the most `rows * longest` of a batch; a text longer than this is a batch of
            its own.
        max_texts: the most rows of a batch.

    Returns:
        Index arrays (int64) that hold each of `0..N-1` once. Texts of equal length keep their
        order, so the batches are the same every time.

    >>> [batch.tolist() for batch in length_batches([3, 9, 3, 4], max_tokens=12)]
    [[1], [3, 0, 2]]
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        rows = max(1, min(max_texts, max_tokens // longest))
        batches.append(order[start : start + rows])
        start += rows
    return batches
