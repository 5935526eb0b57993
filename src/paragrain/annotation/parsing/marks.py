"""Lists whose items are marked in unusual ways, rewritten so that `1. ` or `- ` stands before each.

All of these need as many items as were asked for, in one style, with nothing between them but
lines that are set in: with fewer, or with text between, another reading is possible.
"""

import re
import unicodedata

from paragrain.annotation.parsing.cleaning import (
    ENDS_SENTENCE,
    SIGN_OFF,
    count_words,
    first_quotation,
    opens_as_refusal,
)

LEAST = 3
"""Items that a list needs at least if nothing but their number tells that it is one."""

_BARE_MARK = re.compile(
    r"^\s*(?:[-*+•>|]\s+|[>|]|\#{1,6}\s*)?(?:\*\*|__|`|<|\{)?(?P<word>[^\W\d]{1,20}[.°º]?\s?\#?)?\s*(?P<number>\d{1,2})"
    r"(?:st|nd|rd|th|º|°)?(?:\s?/\s?\d{1,2}(?!\d)|\sof\s\d{1,2}(?!\d))?"
    r"(?P<mark>(?:\s?[^\w\s\"“‘«「'/]){0,3})(?!(?<=[.,:])\d)\s*(?P<rest>.*)$"
)
_FAMILIES = [
    {token: number for number, token in enumerate(tokens.split(), 1)}
    for tokens in (
        "a b c d e f g h i j",
        "i ii iii iv v vi vii viii ix x",
        "one two three four five six seven eight nine ten",
        "first second third fourth fifth sixth seventh eighth ninth tenth",
        "一 二 三 四 五 六 七 八 九 十",
        "¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹",
    )
]
_TOKEN = re.compile(
    r"^(?P<before>[\s>*_#•(\[-]*(?:(?:caption|item|option|sentence|example|negative|description|第)"
    r"\s*)?)(?P<token>[^\W\d_]{1,7}|[¹²³⁴-⁹])(?P<mark>[.)\]:、．）：]|\s[-–—](?=\s)|(?<=[¹²³⁴-⁹])\s?)",
    re.IGNORECASE,
)
_SYMBOL = re.compile(
    r"^\s*(?P<symbol>[^\w\s\"'“”‘’«»„「『(\[{#>|*+•–-]\ufe0f?|-(?=[^\W\d]))\s*(?P<rest>\S.*)$"
)
_ABOUT = re.compile(
    r"^(?:it|he|she|they|its|their|his|her|these|those|here|sure|certainly|of course|okay|note"
    r"|absolutely|below|the (?:image|photo|picture|scene|caption)s?)\b"
    r"|\b(?:captions?|sentences?|descriptions?)\b",
    re.IGNORECASE,
)


def numbered(lines: list[str], count: int) -> list[str]:
    """Lines with another kind of number, such as `1 A dog` or `b) A cat`, as `1. ` or `2) `.

    Where nothing but a space, or not even that, stands behind the number, it may be part of the
    sentence, unless that goes on with a capital.

    >>> numbered(["a) A dog", "b) A cat", "c) A bird"], 3)
    ['1) A dog', '2) A cat', '3) A bird']
    >>> numbered(["1 A dog", "2 A cat"], 2), numbered(["1 dog", "2 cats"], 2)
    (['1. A dog', '2. A cat'], ['1 dog', '2 cats'])
    """
    found = {i: mark for i, line in enumerate(lines) if (mark := _BARE_MARK.match(line))}
    if not _rise([int(mark["number"]) for mark in found.values()], count):
        return _enumerated(lines, count)
    styles = {((mark["word"] or "").lower(), mark["mark"].strip()) for mark in found.values()}
    alone = not any(mark["rest"] for mark in found.values())  # the texts stand below
    lower = any(not mark["mark"].strip() and mark["rest"][:1].islower() for mark in found.values())
    if len(styles) > 1 or (not alone and _stray(lines, found)) or lower:
        return lines
    plain = list(lines)
    for index, mark in found.items():
        rest = mark["rest"]
        if "|" in mark["mark"]:
            rest = rest.rstrip().removesuffix("|").rstrip()
        plain[index] = f"{mark['number']}. {rest}"
    return plain


def _enumerated(lines: list[str], count: int) -> list[str]:
    """Letters, Roman numerals and numbers in words as digits."""
    found = {i: mark for i, line in enumerate(lines) if (mark := _TOKEN.match(line))}
    for family in _FAMILIES:
        own = {i: mark for i, mark in found.items() if mark["token"].lower() in family}
        numbers = [family[mark["token"].lower()] for mark in own.values()]
        if count < LEAST or not _rise(numbers, count) or _stray(lines, own):
            continue
        if len({mark["mark"] for mark in own.values()}) > 1:
            continue
        plain = list(lines)
        for index, mark in own.items():
            number = family[mark["token"].lower()]
            bare = ". " if not mark["mark"].strip() else ""
            start, end = mark.span("token")
            plain[index] = f"{lines[index][:start]}{number}{bare}{lines[index][end:]}"
        return plain
    return lines


def bulleted(lines: list[str], count: int) -> list[str]:
    """Lines behind one and the same symbol, or of nothing but a quotation or a sentence, as `- `.

    Bare sentences have to be the whole reply, but for a first line that ends in a colon and for a
    sign-off; none may open like the next sentence of a text, or speak of captions.

    >>> bulleted(["✅ A dog", "✅ A cat", "✅ A bird"], 3)
    ['- A dog', '- A cat', '- A bird']
    >>> bulleted(["A dog runs.", "A cat sits here.", "A bird sings."], 3)[0]
    '- A dog runs.'
    >>> bulleted(["A dog runs.", "It is brown.", "A cat sits."], 3)[0]
    'A dog runs.'
    """
    if count < LEAST:
        return lines
    found = {i: mark for i, line in enumerate(lines) if (mark := _SYMBOL.match(line))}
    symbols = {mark["symbol"] for mark in found.values()}
    if len(found) == count and len(symbols) == 1 and not _stray(lines, found):
        return [f"- {found[i]['rest']}" if i in found else line for i, line in enumerate(lines)]
    texts = [i for i, line in enumerate(lines) if line.strip()]
    if len(texts) > count and lines[texts[0]].rstrip("*_ ").endswith((":", "：")):
        texts = texts[1:]
    signed = next((n for n, i in enumerate(texts) if SIGN_OFF.match(lines[i])), len(texts))
    texts = texts[:signed]
    if len(texts) != count or not (
        all(_quotation(lines[i]) for i in texts) or all(_sentence(lines[i]) for i in texts)
    ):
        return lines
    return [f"- {line.strip()}" if i in texts else line for i, line in enumerate(lines)]


def _quotation(line: str) -> bool:
    """Whether a line is a quotation and nothing else."""
    text = line.strip().rstrip(",;")
    return len(text) > 1 and first_quotation(text) == (True, len(text) - 1)


def _sentence(line: str) -> bool:
    """Whether a line is a sentence that can stand alone."""
    text = line.strip("*_ ")
    begins = (
        text[:1].isupper() or text[:1].isdigit() or unicodedata.category(text[:1] or " ") == "Lo"
    )
    return (
        begins
        and not line[:1].isspace()
        and ENDS_SENTENCE.search(text) is not None
        and count_words(text) >= LEAST
        and _ABOUT.search(text) is None
        and not opens_as_refusal(text)
    )


def _rise(numbers: list[int], count: int) -> bool:
    return bool(numbers) and numbers == list(range(1, count + 1))


def _stray(lines: list[str], marked: dict[int, re.Match[str]]) -> bool:
    """Whether text that is not set in stands between marked lines."""
    between = set(range(min(marked), max(marked))) - set(marked)
    return any(lines[i] and not lines[i][0].isspace() for i in between)
