"""Texts changed for the controls of a study: joined to one, or in another order."""

import random
import re
from collections.abc import Sequence
from typing import Literal

from paragrain.words import SENTENCE_END, sentences, word_spans

Order = Literal["sentences", "words"]

_BODY_AND_END = re.compile(r"(.*?)(\s*[.!?…。！？｡।؟۔]*[\"'”’»)\]」』]*)", re.DOTALL)


def joined(texts: Sequence[str]) -> str:
    """Texts in a row as one; each gets a full stop unless it ends in one, "!" or "?".

    >>> joined(["a red star", "Is it red?", " two stars. "])
    'a red star. Is it red? two stars.'
    """
    return " ".join(_ended(text.strip()) for text in texts)


def scrambled(text: str, order: Order, rng: random.Random) -> str:
    """A text with its sentences, or with the words within each sentence, in random order.

    Sentences and words are those of `paragrain.words`, put in a row with single spaces.
    `sentences` shuffles whole sentences; a last one without a full stop gets one, so that none
    runs into the next. `words` leaves the sentences where they are; a comma or an opening quote
    goes with the word that it touches, and the marks that end the sentence stay at its end.
    Which words there are, how many and in what case does not change.

    >>> rng = random.Random(1)
    >>> scrambled("A red star. A blue, big moon! It is far", "sentences", rng)
    'A blue, big moon! It is far. A red star.'
    >>> scrambled("A red star. A blue, big moon!", "words", rng)
    'star A red. A big blue, moon!'
    """
    parts = sentences(text)
    if order == "words":
        return " ".join(_words_scrambled(part, rng) for part in parts)
    if len(parts) > 1:
        parts[-1] = _ended(parts[-1])
    rng.shuffle(parts)
    return " ".join(parts)


def _ended(text: str) -> str:
    """A text with a full stop, unless it ends like a sentence."""
    ends = [found.end() for found in SENTENCE_END.finditer(text)]
    return text if ends and ends[-1] == len(text) else text + "."


def _words_scrambled(sentence: str, rng: random.Random) -> str:
    body, end = _BODY_AND_END.fullmatch(sentence).groups()  # type: ignore[union-attr]
    words = [body[start:stop] for start, stop in word_spans(body)]
    rng.shuffle(words)
    return " ".join(words) + end
