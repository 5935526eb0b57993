"""What models leave in a text that is no part of it: notes on it, loops, echoes of the question."""

import re

_COUNT = (
    r"(?:(?:approx(?:imately|\.)?|about|around|exactly|total:?|~|≈|ca\.?)\s*)?\d{1,3}[ -]?"
    r"(?:words?|char(?:acter)?s?|tokens?|letters?|syllables?)"
    r"(?:\s(?:long|in total|total|captions?|sentences?))?"
    r"|(?:word|character|token)\s?count\s*[:=]?\s*\d{1,3}"
    r"|(?:length|words?)\s*[:=]\s*\d{1,3}(?:\swords?)?|\d{1,3}w"
)
_TOPIC = (
    r"(?:focus(?:ed|es|ing)?|emphas[ie]s|emphasi[sz](?:es|ing|ed)|highlight(?:s|ing|ed)?|attention"
    r"|style|tone|mood|perspective|view(?:point)?|point of view|pov|angle|aspects?|theme|category"
    r"|type|variation|approach|wording|details?|elements?|subjects?|topics?|level of detail|length)"
)
_LABEL = (
    rf"(?:(?:the|main|primary|visual|key|different|more)\s)?{_TOPIC}"
    r"(?:\s*[:=–—-]|\s(?:on|upon)\b)[^()\[\]{}]{0,100}"
    r"|(?:highlighting|emphasi[sz]ing|focusing|focus(?:ed)? on|stressing)\b[^()\[\]{}]{0,100}"
)
_NOTE = rf"(?:{_COUNT})(?:\s*[,;:|–—-]\s*[^()\[\]{{}}]{{0,100}})?|(?:{_LABEL})"
_BEHIND = re.compile(
    rf"\s*[-–—|•·]*\s*[(\[{{]\s*(?:{_NOTE})\s*[)\]}}]\s*(?P<stop>[.!?。]?)\s*$"
    rf"|(?:(?<=[.!?。\"”])\s*|\s+)[-–—|•·]\s*(?:{_COUNT})\.?\s*$|(?<=[.!?。\"”])\s*(?:{_COUNT})\.?\s*$",
    re.IGNORECASE,
)
_UNBRACKETED = re.compile(
    rf"(?<=[.!?。\"”])\s+(?:{_LABEL})\.?\s*$|(?<=[.!?。\"”])(?:\s+\#\w+)+\s*$|(?:\s+\#\w+){{2,}}\s*$",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"^[(\[{{]\s*(?:{_NOTE})\s*[)\]}}]\s*[.:–—-]?\s*"
    r"|^(?:focus(?:ed|es|ing)?|emphasis|attention)\s(?:up)?on\s[^.:]{1,40}:\s+(?=[\"“A-Z])"
    r"|^(?:highlighting|emphasi[sz]ing)\s[^.:]{1,40}:\s+(?=[\"“A-Z])",
    re.IGNORECASE,
)
_COMMON_BEFORE = re.compile(r"^\s*[*_]{0,2}[(\[][^()\[\]]{1,60}[)\]][*_]{0,2}\s*[:–—-]?\s*(?=\S)")
_COMMON_BEHIND = re.compile(
    r"\s*[*_]{0,2}[(\[][^()\[\]]{1,80}[)\]][*_]{0,2}\s*(?P<stop>[.!?。]?)\s*$"
)
_NOTE_STAYS = re.compile(
    rf"[(\[{{]\s*[^\W\d][\w ]{{0,24}}:\s[^()\[\]{{}}]*[)\]}}]\W*$"
    rf"|^[(\[{{]\s*[^\W\d][\w ]{{0,24}}:\s[^()\[\]{{}}]*[)\]}}]"
    rf"|[.!?。)\]]\s*(?:{_TOPIC})\s*:|^(?:{_TOPIC})\s*:\s|[.!?。]\s(?://|\|)\s|[(\[]\s*(?:{_COUNT})\s*[)\]]",
    re.IGNORECASE,
)
_LONGEST_PERIOD = 15
_COPIES = 4  # in a row, of the same few words
_SHINGLE = 7
_LEAST_COMMON = 3  # items of a list that are all marked alike
_WORD = re.compile(r"\w+")


def without_notes(text: str) -> str:
    """An item without a count of its words or a label of its focus, before or behind it.

    >>> without_notes("Two birds sit on a wire. (8 words)")
    'Two birds sit on a wire.'
    >>> without_notes("(focus: birds) Two birds sit on a wire (on the left).")
    'Two birds sit on a wire (on the left).'
    """
    for _ in range(2):
        text = _UNBRACKETED.sub("", _BEFORE.sub("", text))
        found = _BEHIND.search(text)
        if found is None:
            break
        text = text[: found.start()].rstrip()
        stop = found["stop"] or ""
        text += "" if text.endswith((".", "!", "?", "。")) else stop
    return text


def without_common_notes(texts: list[str]) -> list[str]:
    """The items of a list without what stands in brackets before, or behind, every one of them.

    >>> without_common_notes(["(Size) Two birds", "(Colour) A red bird", "(Place) A bird (left)"])
    ['Two birds', 'A red bird', 'A bird (left)']
    """
    if len(texts) < _LEAST_COMMON:
        return texts
    if all(map(_COMMON_BEFORE.match, texts)):
        texts = [_COMMON_BEFORE.sub("", text) for text in texts]
    behind = [_COMMON_BEHIND.search(text) for text in texts]
    if all(found and found.start() for found in behind):
        cut = [text[: found.start()] for text, found in zip(texts, behind, strict=True) if found]
        stops = [found["stop"] or "" for found in behind if found]
        texts = [t + ("" if t.endswith(s or ".") else s) for t, s in zip(cut, stops, strict=True)]
    return texts


def keeps_note(text: str) -> bool:
    """Whether a note is left that could not be taken off for certain.

    >>> keeps_note("Two birds (season: winter)"), keeps_note("Two birds (in winter) at 7:30")
    (True, False)
    """
    return _NOTE_STAYS.search(text) is not None


def loops(text: str) -> bool:
    """Whether the same few words come four times in a row.

    >>> loops("A dog and a cat and a cat and a cat and a cat."), loops("A dog and a cat.")
    (True, False)
    """
    words = _WORD.findall(text.lower())
    for period in range(1, _LONGEST_PERIOD + 1):
        run = 0
        for earlier, later in zip(words, words[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run >= max(4, (_COPIES - 1) * period):
                return True
    return False


def echoes(text: str, wording: str) -> bool:
    """Whether a text repeats seven words in a row of the question that it answers.

    >>> question = "Describe it in one paragraph of three to six sentences."
    >>> echoes("Sure, I describe it in one paragraph of three sentences.", question)
    True
    """
    if not wording:
        return False
    said = _shingles(text)
    return any(not said.isdisjoint(_shingles(line)) for line in wording.splitlines())


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return {tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1)}
