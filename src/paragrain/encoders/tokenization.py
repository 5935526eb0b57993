"""How texts become token ids: every text is taken for text, also where it names special tokens."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from tokenizers import Tokenizer, normalizers

from paragrain.encoders.tokens import TextOptions, token_levels
from paragrain.errors import UsageError

TOKENIZE_BATCH = 4096
"""Texts handed to the tokenizer at a time: enough to keep its threads busy, little memory."""


def plain_tokenizer(tokenizer: Any) -> Tokenizer:
    """The Rust tokenizer inside `tokenizer`, of which no text can ask for a special token.

    A text may hold `[SEP]` or `</s>` in letters. Read as the token, it would end the text for the
    model. So the special tokens get names that no text has, in the added tokens and in the
    vocabulary, where the pieces of a sentence-piece model would find them; their ids stay. It
    neither truncates nor pads, and is safe in threads.

    Args:
        tokenizer: a fast tokenizer of `transformers`; it is not changed.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["truncation"] = content["padding"] = None
    special = {str(token) for token in tokenizer.all_special_tokens}
    special |= {token["content"] for token in content["added_tokens"] if token["special"]}
    # A sign such as "!", with which some CLIPs fill, is part of words: it stays in the vocabulary.
    hidden = {name: _unheard(name) for name in special if len(name) > 1}
    content["added_tokens"] = [
        {**token, "content": hidden.get(token["content"], token["content"])}
        for token in content["added_tokens"]
        if token["content"] in hidden or token["content"] not in special
    ]
    model = content["model"]
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {hidden.get(name, name): id for name, id in vocabulary.items()}
    elif vocabulary is not None:
        model["vocab"] = [[hidden.get(name, name), score] for name, score in vocabulary]
    if model.get("unk_token") in hidden:
        model["unk_token"] = hidden[model["unk_token"]]
    return Tokenizer.from_str(json.dumps(content))


def _unheard(name: str) -> str:
    """A name between two characters that Unicode keeps out of all texts."""
    return f"\ufdd0{name}\ufdd1"


def tokenizer_content(tokenizer: Any) -> dict[str, Any]:
    """What decides the ids of a tokenizer, as plain data: not how it truncated and padded last."""
    content = dict(json.loads(tokenizer.backend_tokenizer.to_str()))
    return {**content, "truncation": None, "padding": None}


def lower_case(tokenizer: Any) -> None:
    """Let the tokenizer itself lower-case, so that it tells right which text a token stands for."""
    backend = tokenizer.backend_tokenizer
    own = [] if backend.normalizer is None else [backend.normalizer]
    if not own or own[0].normalize_str("A") != "a":
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


def as_texts(texts: Any) -> Sequence[str]:
    """Texts as a sequence; a single string is one text.

    >>> as_texts("a dog"), as_texts(text for text in ("a", "b"))
    (['a dog'], ['a', 'b'])

    Raises:
        UsageError: they are no texts in an order, or one of them is no string.
    """
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping | Set) or not isinstance(texts, Iterable):
        raise UsageError(
            f"{type(texts).__name__} is no list of texts: give a string or a list of strings"
        )
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise UsageError(
                f"text {place} is {type(text).__name__}, not a string: leave out what has no text"
            )
    return found


def read_texts(
    tokenizer: Tokenizer, texts: Sequence[str], options: TextOptions
) -> tuple[list[list[int]], np.ndarray, int]:
    """Ids of whole texts, what each token begins, and how many words normalisation dropped.

    Args:
        tokenizer: as `plain_tokenizer` gives it.
        texts: any number.
        options: where it truncates to tokens, what tokens begin is not needed, and left empty.

    Returns:
        The ids; uint8 beside all of them (see `token_levels`); the words.
    """
    words_dropped = 0
    levels: list[np.ndarray] = [np.zeros(0, np.uint8)]
    ids: list[list[int]] = []
    for start in range(0, len(texts), TOKENIZE_BATCH):
        treated = [options.apply(valid_unicode(t)) for t in texts[start : start + TOKENIZE_BATCH]]
        words_dropped += sum(dropped for _, dropped in treated)
        batch = [text for text, _ in treated]
        if options.truncation == "tokens":
            ids += [found.ids for found in tokenizer.encode_batch_fast(batch)]
            continue
        for text, found in zip(batch, tokenizer.encode_batch(batch), strict=True):
            levels.append(token_levels(text, found.offsets, found.special_tokens_mask))
            ids.append(found.ids)
    return ids, np.concatenate(levels), words_dropped


def valid_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and UTF-8 cannot, by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
