"""What a model's reply says: list items, a paragraph or a score, or why that is not certain.

Nothing here guesses. An item that may be cut, joined to its neighbour or followed by a remark is
left out; a list of which it is unclear where it begins and ends is left out whole. So is a list
on a single line, since an item may itself hold "2.".
"""

import re
from dataclasses import dataclass
from typing import Any

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing.cleaning import (
    BULLET,
    ENDS_SENTENCE,
    SIGN_OFF,
    answer,
    blemish,
    count_words,
    find_json,
    holds_refusal,
    lines_of,
    mentions_refusal,
    opens_as_refusal,
    split_number,
    tidy,
    unquoted,
)
from paragrain.annotation.parsing.folding import (
    clean_item,
    fold,
    mentions_caption,
    without_farewell,
)
from paragrain.words import SENTENCE_END

MOST_WORDS = 400
"""Words of a paragraph."""

# A line under an item that explains it, and is no part of it.
_REMARK = re.compile(
    r"\s*(?:[-*+•]\s+)?[(\[*_]{0,3}(?:explanation|reason|rationale|note|why|correction"
    r"|(?:incorrect|wrong|changed|altered|original|actual) (?:detail|element|aspect|part)s?)"
    r"[*_]{0,3}\s?:",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Items:
    """What could be read of a list.

    Attributes:
        items: distinct clean texts in the order of the reply, each read with certainty.
        failure: why there is nothing, or why the rest is missing; None if the reply was read whole.
    """

    items: list[str]
    failure: Failure | None


@dataclass
class _Entry:
    """An item as it stands in the reply; `problem` says why it cannot be used."""

    text: str
    problem: str = ""


@dataclass
class _Listing:
    """The items of a list; `closed` if something after the last one shows that it is whole."""

    entries: list[_Entry]
    closed: bool


def parse_items(reply: Reply, count: int) -> Items:
    """The items of a numbered, bulleted or JSON list.

    Args:
        reply: the reply.
        count: how many were asked for; only a list of so many bullets may be a single one.

    >>> parse_items(Reply('Sure!\\n\\n1. "A dog."\\n2) **3 cats**\\n\\nAnything else?'), 5).items
    ['A dog.', '3 cats']
    >>> str(parse_items(Reply("1. A dog runs.\\n3. A cat sits."), 5).failure)
    'unreadable (the numbers are 1, 3)'
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return Items([], text)
    cut = reply.finish == "length"
    listing = _read_list(text, count, cut)
    if isinstance(listing, Failure):
        return Items([], Failure("refusal") if opens_as_refusal(text) else listing)
    entries = _without_own_numbers(listing.entries)
    cut = cut and not listing.closed
    items: dict[str, str] = {}
    problems: list[Failure] = []
    for entry in entries[:-1] if cut else entries:
        item, problem = ("", entry.problem) if entry.problem else clean_item(entry.text)
        if problem:
            problems.append(Failure("unreadable", problem))
        elif opens_as_refusal(item):
            problems.append(Failure("refusal"))
        else:
            items.setdefault(fold(item), item)
    failure = problems[0] if problems else None
    return Items([*items.values()], Failure("cut", "the last item") if cut else failure)


def _read_list(text: str, count: int, cut: bool) -> _Listing | Failure:
    found = find_json(text, cut)
    if isinstance(found, Failure):
        return found
    if found is not None:
        return _json_list(*found)
    lines = lines_of(text)
    marks = _number_marks(lines)
    if not marks:
        return _bulleted(lines, count) or Failure(
            "cut" if cut else "unreadable", "no numbered list"
        )
    numbers = [number for _, number, _ in marks]
    if numbers != list(range(1, len(marks) + 1)):
        shown = ", ".join(map(str, numbers[:8]))
        return Failure("unreadable", f"the numbers are {shown}")
    lines, closed = _without_sign_off(lines, marks[-1][0])
    numbered = {index for index, _, _ in marks}
    for index, line in enumerate(lines):
        bullet = index not in numbered and BULLET.match(line)
        if bullet and (index < marks[0][0] or not line[0].isspace()) and not _REMARK.match(line):
            return Failure("unreadable", "two lists")
    return _Listing(_entries(lines, [(index, rest) for index, _, rest in marks]), closed)


def _without_own_numbers(entries: list[_Entry]) -> list[_Entry]:
    """Items that each begin with their own number once more, without it."""
    split = [split_number(entry.text) for entry in entries]
    own = [found[1] for number, found in enumerate(split, 1) if found and found[0] == number]
    if len(own) < max(2, len(entries)):
        return entries
    return [_Entry(text, entry.problem) for text, entry in zip(own, entries, strict=True)]


def _json_list(before: str, value: Any, after: str) -> _Listing | Failure:
    """A list of strings, or an object whose only value is one."""
    lines = [line for line in lines_of(after) if line]
    if (lines and not SIGN_OFF.match(lines[0])) or _number_marks(lines_of(before)):
        return Failure("unreadable", "text around the JSON")
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0][1]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return Failure("unreadable", "JSON that is no list of strings")
    problem = "a line break in an item"
    entries = [_Entry(item, problem if "\n" in item.strip() else "") for item in value]
    return _Listing(entries, True) if entries else Failure("unreadable", "an empty list")


def _bulleted(lines: list[str], count: int) -> _Listing | Failure | None:
    """A list whose every line is a bullet; None if there are no bullets."""
    bullets = [(index, found) for index, line in enumerate(lines) if (found := BULLET.match(line))]
    if not bullets:
        return None
    first, last = bullets[0][0], bullets[-1][0]
    lead = [line for line in lines[:first] if line]
    if lead and not (lead[-1].rstrip("*_ ").endswith((":", "：")) or lead[-1].startswith("#")):
        return Failure("unreadable", "bullets without a heading")
    lines, closed = _without_sign_off(lines, last)
    between = set(range(first, last)) - {index for index, _ in bullets}
    if any(lines[index] for index in between) or len({found["mark"] for _, found in bullets}) > 1:
        return Failure("unreadable", "bullets of several kinds or with text between them")
    if len(bullets) < 2 and len(bullets) != count:
        return Failure("unreadable", "a single bullet")
    return _Listing(_entries(lines, [(index, found["rest"]) for index, found in bullets]), closed)


def _number_marks(lines: list[str]) -> list[tuple[int, int, str]]:
    """The lines that start with a list number: index, number, the text behind it."""
    marks = []
    for index, line in enumerate(lines):
        if found := split_number(line):
            marks.append((index, *found))
    return marks


def _without_sign_off(lines: list[str], last: int) -> tuple[list[str], bool]:
    """The lines up to a sign-off after line `last`, and whether there is one.

    Right below a line without a full stop, where others have one, it may be that line's end.
    """
    stops = [bool(ENDS_SENTENCE.search(line.rstrip("*_`"))) for line in lines[: last + 1]]
    start = last + 2 if any(stops) and not stops[-1] else last + 1
    for index in range(start, len(lines)):
        if SIGN_OFF.match(lines[index]):
            return lines[:index], True
    return lines, False


def _entries(lines: list[str], marks: list[tuple[int, str]]) -> list[_Entry]:
    """One entry for each mark (index of its line, text behind it), with what stands below it."""
    width = max(len(line) for line in lines[marks[0][0] :])
    ends = [index for index, _ in marks[1:]] + [len(lines)]
    entries = []
    for number, ((index, rest), end) in enumerate(zip(marks, ends, strict=True), 1):
        below, length = lines[index + 1 : end], len(lines[index])
        if not rest:  # the text stands on the next line
            below = below[next((i for i, line in enumerate(below) if line), len(below)) :]
            rest, below = (below[0].strip(), below[1:]) if below else ("", [])
            length = len(rest)
        entry = _Entry(rest, "" if rest else f"item {number} is empty")
        first = next((line for line in below if line), "")
        explained = _REMARK.match(first) and ENDS_SENTENCE.search(rest.rstrip("*_`"))
        if first and not explained:
            joined = _unwrapped(rest, length, below, width)
            entry = _Entry(joined) if joined else _Entry("", f"text below item {number}")
        entries.append(entry)
    following = re.compile(rf"(?<![\w.])[(\[]?{len(marks) + 1}\s?[.):\]](?=\s|[^\W\d])")
    if following.search(entries[-1].text):
        entries[-1] = _Entry("", "several items on one line")
    return entries


def _unwrapped(rest: str, length: int, below: list[str], width: int) -> str | None:
    """The item joined from its lines, or None if they need not be one sentence.

    They are one for certain if they are wrapped as a program wraps: no line had room for the first
    word of the next, each next one goes on in lower case, and the sentence ends where they end.
    """
    lines = [line for line in below if line]
    if width < 40 or below[: len(lines)] != lines:  # or an empty line in between
        return None
    joined = rest
    for line in lines:
        words = line.split()
        if ENDS_SENTENCE.search(joined) or not words[0][0].islower() or words[0].endswith(":"):
            return None
        if length + 1 + len(words[0]) <= width:
            return None
        joined, length = f"{joined} {line.strip()}", len(line)
    return joined if ENDS_SENTENCE.search(joined) else None


_PREAMBLE = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok)(?: thing)?[!.,]\s*)?"
    r"(?:(?:here(?:['’]s| is| are)|below is|this is) [^.:\n]{0,80}(?:paragraph|description)"
    r"[^.:\n]{0,80}[.:]\s*|i(?:['’]d| would) be (?:happy|glad) to [^.!\n]{0,80}[.!]\s*)?"
    r"(?:(?:paragraph|description|answer|response|assistant)\s?:\s*)?",
    re.IGNORECASE,
)
_TITLE = re.compile(r"#{1,6}\s.*|(\*\*|__)[^*_.!?]{1,80}\1:?")


def parse_paragraph(reply: Reply) -> str | Failure:
    """The paragraph of a reply, on one line.

    >>> parse_paragraph(Reply("Sure! Here is the description:\\n\\n**A dog** runs. It is red."))
    'A dog runs. It is red.'
    >>> str(parse_paragraph(Reply("A dog runs. It is", "length")))
    'cut'
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    cut = reply.finish == "length"
    found = find_json(text, cut)
    if isinstance(found, Failure):
        return found
    if found is not None:
        value = found[1][0][1] if isinstance(found[1], tuple) and len(found[1]) == 1 else None
        if not isinstance(value, str):
            return Failure("unreadable", "JSON that is no single text")
        text = value
    if holds_refusal(text):
        return Failure("refusal")
    lines = [line for line in lines_of(text) if line and not _TITLE.fullmatch(line.strip())]
    if any(split_number(line) or BULLET.match(line) for line in lines):
        return Failure("unreadable", "a list")
    if len(lines) > 1 and lines[0].rstrip("*_ ").endswith((":", "：")):
        del lines[0]
    lines, _ = _without_sign_off(lines, 0)
    return _checked_paragraph(" ".join(lines), cut)


def _checked_paragraph(text: str, cut: bool) -> str | Failure:
    if len(text) > 20 * MOST_WORDS:
        return Failure("unreadable", f"{len(text):,} characters")
    text = tidy(text)
    text = without_farewell(text[_PREAMBLE.match(text).end() :])  # type: ignore[union-attr]
    if cut or not ENDS_SENTENCE.search(text) or re.search(r"(?:\.\.|…)\W*$", text):
        return Failure("cut")
    plain = unquoted(text)
    words = count_words(text)
    if plain is None or (problem := blemish(plain)):
        return Failure("unreadable", "quotes that do not pair" if plain is None else problem)
    if words > MOST_WORDS or (words < 20 and len(SENTENCE_END.findall(plain)) < 2):
        return Failure("unreadable", f"{words} words")
    if mentions_caption(plain):
        return Failure("unreadable", "mentions the caption")
    return plain


_N = r"(?<![\w.,/+−–-])(?P<n>\d{1,9}(?:\.\d{1,9}|,\d{1,2})?)"
_ALONE = r"(?!\s?[/−–—-]\s?\d|[\w%+½¼¾⁄]|[.,]\d)"
_SCALE = re.compile(r"(?<![\d.,])[01]\s?(?:-|–|—|to|and|through|\.\.)\s?10(?![\d/]|[.,]\d)")
_STATED = (
    # "9/10", "9 out of 10"
    re.compile(rf"{_N}\s?\(?(?:/|out of)\s?10(?![\d/%]|[.,]\d)", re.IGNORECASE),
    # "Score: 9", "I would rate it an 8 because"
    re.compile(
        r"\b(?:scored?|rating|rated?|grade|answer|verdict|give|assign|say|faithfulness|accuracy)\b"
        r"(?:[\s:=()–—-]|\b(?:it|this|that|the|description|paragraph|image|text|an?|as|at|of|is"
        r"|would|be|was|to|my|with|i|final|overall|faithfulness|accuracy|for|score|rating|solid)\b){0,40}?"
        rf"{_N}{_ALONE}(?=\s*(?:$|[.,;:!()\n。—–-]|(?:because|since|as|for|due|given|on|overall"
        r"|points?)\b|(?-i:[A-Z])))",
        re.IGNORECASE,
    ),
    # on a line of its own
    re.compile(rf"^[ \t]*{_N}{_ALONE}[ \t]*[.!。]?[ \t]*$", re.MULTILINE),
    # "9, because", "9. The description"; but "1. The description" may begin a list
    re.compile(rf"\A\s*(?!1\.){_N}{_ALONE}(?=[.,;!。](?!\s*\d))"),
    # "9: The description", where no other number tells that it explains the scale
    re.compile(rf"\A\s*(?!1\b){_N}{_ALONE}(?=\s?[:)]\s\D*\Z|\s[-–—]\s\D*\Z)"),
)
_PAIR = re.compile(
    r"\d(?:\s?/\s?10)?[ \t,;]*(?:[-–—]|\b(?:to|or|and|maybe|perhaps|possibly)\b)[ \t,]*"
    r"(?:(?:maybe|perhaps|possibly|even|an?) )?\d",
    re.IGNORECASE,
)
_WORDS = "zero one two three four five six seven eight nine ten".split()


def parse_score(reply: Reply) -> int | Failure:
    """The one whole number from 0 to 10 that a reply states; numbers in passing do not count.

    >>> parse_score(Reply("There are 2 dogs, so 9/10"))
    9
    >>> [str(parse_score(Reply(text))) for text in ("Score: 7 or 8/10", "8.5")]
    ['unreadable (several numbers)', 'unreadable (8.5 is no whole number)']
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    cut = reply.finish == "length"
    found = find_json(text, cut)
    if isinstance(found, tuple):
        value = _json_score(found[1])
        if value is None:
            return Failure("unreadable", "JSON without a score")
        text, cut = value, False
    if opens_as_refusal(text) or holds_refusal(text):
        return Failure("refusal")
    plain = _SCALE.sub("", re.sub(r"\\boxed\b|[*_`$\"\[\]{}]", "", text))
    score = _stated(plain, cut)
    unstated = isinstance(score, Failure) and score.kind != "cut"
    if (score == 0 or unstated) and mentions_refusal(text):
        return Failure("refusal")
    return score


def _json_score(value: Any) -> str | None:
    """The score in JSON as text: the only value, or the one under "score" or "rating"."""
    if isinstance(value, tuple):
        values = [v for k, v in value if len(value) == 1 or k.lower() in ("score", "rating")]
        value = values[0] if len(values) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return str(value)


def _stated(text: str, cut: bool) -> int | Failure:
    word = re.sub(r"[\W_]+", " ", text).strip().lower()
    if word in _WORDS:
        return _WORDS.index(word)
    found = [match for pattern in _STATED for match in pattern.finditer(text)]
    if not found:
        return Failure("cut" if cut else "unreadable", "no score")
    if cut and any(re.fullmatch(r"[.,/]?", text[match.end() :]) for match in found):
        return Failure("cut", "the number may go on")
    pairs = [pair.span() for pair in _PAIR.finditer(text)]
    numbers = {float(match["n"].replace(",", ".")) for match in found}
    in_pair = any(a < m.end("n") and m.start("n") < b for a, b in pairs for m in found)
    if in_pair or len(numbers) > 1:
        return Failure("unreadable", "several numbers")
    number = numbers.pop()
    if number > 10:
        return Failure("unreadable", f"{number:g} is not within 0 to 10")
    if not number.is_integer():
        return Failure("unreadable", f"{number:g} is no whole number")
    return int(number)
