"""Which texts supervise an image in an epoch: selected, joined or scrambled as the recipe says."""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from paragrain.collection import Record
from paragrain.training.recipes import Order, Recipe, Selection, pseudo_random
from paragrain.words import SENTENCE_END, sentences, word_spans

_BODY_AND_END = re.compile(r"(.*?)(\s*[.!?…。！？｡।؟۔]*[\"'”’»)\]」』]*)", re.DOTALL)


class Text(NamedTuple):
    """One text, and the field whose maximum length truncates it: mostly the one it came from."""

    field: str
    text: str


class Texts(NamedTuple):
    """The texts that supervise one image in one epoch."""

    positives: list[Text]
    negatives: list[Text]


def draw(record: Record, recipe: Recipe, *, seed: int, epoch: int) -> Texts:
    """Draw the texts that supervise an image in one epoch.

    Random selections and orders depend on the seed, the epoch and the record's id alone: not on the
    order, the batch or the process. Empty texts do not count. A record that lacks some texts
    gives fewer. A negative that says the same as one of the positives is dropped.

    >>> from paragrain.training.recipes import load_recipe
    >>> record = Record(id="1", captions=["a cat", "a pet"], negatives=["A  cat", "a dog"])
    >>> texts = draw(record, load_recipe("c7"), seed=0, epoch=0)
    >>> texts.positives, texts.negatives
    ([Text(field='captions', text='a cat')], [Text(field='negatives', text='a dog')])
    """
    key, wrong_key = _keys(seed, epoch)
    positives, wrong = selected(record, recipe, seed=seed, epoch=epoch)
    return Texts(
        _perturbed(record, recipe.positives, positives, key),
        _perturbed(record, recipe.negatives, wrong, wrong_key),
    )


def selected(
    record: Record, recipe: Recipe, *, seed: int, epoch: int
) -> tuple[list[list[str]], list[list[str]]]:
    """The texts of each selection of positives, and of negatives, as the record has them."""
    key, wrong_key = _keys(seed, epoch)
    positives = _select(record, recipe.positives, key)
    right = {_folded(text) for texts in positives for text in texts}
    wrong = [
        [text for text in texts if _folded(text) not in right]
        for texts in _select(record, recipe.negatives, wrong_key)
    ]
    return positives, wrong


def _keys(seed: int, epoch: int) -> tuple[str, str]:
    """What the random selections of positives and of negatives depend on."""
    return f"{seed}/{epoch}", f"{seed}/{epoch}/negatives"


def _select(record: Record, selections: Sequence[Selection], key: str) -> list[list[str]]:
    chosen: list[list[str]] = []
    for position, selection in enumerate(selections):
        texts = [text for text in record.texts(selection.source) if text.strip()]
        if not selection.shares(record.id):
            texts = []
        elif selection.select == "random" and texts:
            texts = [texts[pseudo_random(f"{key}/{position}/{record.id}") % len(texts)]]
        elif selection.select == "first":
            texts = texts[:1]
        elif isinstance(selection.select, int):
            texts = texts[: selection.select]
        chosen.append(texts)
    return chosen


def _perturbed(
    record: Record, selections: Sequence[Selection], selected: list[list[str]], key: str
) -> list[Text]:
    """All selected texts, joined and reordered as each selection says."""
    perturbed: list[Text] = []
    for position, (selection, texts) in enumerate(zip(selections, selected, strict=True)):
        if selection.join and texts:
            texts = [joined(texts)]
        if selection.order is not None:
            rng = random.Random(pseudo_random(f"{key}/{position}/order/{record.id}"))
            texts = [scrambled(text, selection.order, rng) for text in texts]
        perturbed += [Text(selection.max_length or selection.source, text) for text in texts]
    return perturbed


def _folded(text: str) -> str:
    """A text without case, punctuation and spacing, to see whether two say the same."""
    return " ".join(re.findall(r"\w+", text.casefold()))


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
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text if ends and ends[-1] == len(text) else text + "."


def _words_scrambled(sentence: str, rng: random.Random) -> str:
    body, end = _BODY_AND_END.fullmatch(sentence).groups()  # type: ignore[union-attr]
    words = [body[start:stop] for start, stop in word_spans(body)]
    rng.shuffle(words)
    return " ".join(words) + end
