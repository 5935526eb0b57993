"""The items of a list, however it is set, or why they cannot be told with certainty.

An item that may be truncated, joined to its neighbour or followed by a remark is left out; a list
of which it is unclear where it begins and ends is left out whole. Numbers that rise from 1 without
a gap or a second reading show where items begin, wherever they stand.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Any

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing.replies import (
    BULLET,
    ENDS_SENTENCE,
    SIGN_OFF,
    answer,
    broken_lines,
    count_words,
    find_json,
    first_quotation,
    lines_of,
    opens_as_refusal,
    split_number,
)
from paragrain.annotation.parsing.texts import clean_item, echoes, fold, without_common_notes

# A line under an item that explains it, and is no part of it.
_REMARK = re.compile(
    r"\s*(?:[-*+•]\s+)?[(\[*_]{0,3}(?:explanation|reason|rationale|note|why|correction|translation"
    r"|focus(?:es)?|emphasis|highlights?|style|tone|mood|perspective|theme|type|category|word count"
    r"|length|key (?:detail|element)s?|difference|change|error|mistake"
    r"|(?:incorrect|wrong|changed|altered|original|actual) (?:detail|element|aspect|part)s?)"
    r"[*_]{0,3}\s?:",
    re.IGNORECASE,
)

_LONGEST_TITLE = 5  # words
_BOLD = re.compile(r"(\*\*|__)[^*_]+\1\s?:?|(\*\*|__)[^*_]+:\2")
_OPENS_SENTENCE = re.compile(
    r"[\"“*_]{0,3}(?:A|An|The|This|There|These|It|Two|Three|Four|Five|Several|Some|Many|In|On|At)\s"
)

# Digits in circles, in brackets, with a full stop, on keys; 1 to 20.
_SPECIAL_DIGITS = "\uff11-\uff19\u2460-\u249b\u24f5-\u24fe\u2776-\u2793\u3220-\u3229\u3280-\u3289"
_KEYCAP = "\ufe0f?\u20e3"
_SPECIAL_MARK = re.compile(
    rf"^(?P<before>\W*)(?:(?P<special>[{_SPECIAL_DIGITS}])(?!\d)|(?P<key>[1-9]){_KEYCAP})"
    r"\s*(?:[.:)、．：）]|[-–—](?=\s))?\s*"
)
_INSIDE = re.compile(
    rf"(?:(?<=[\s;,|>])|^|(?<=[.!?。！？；，\"”’»*_]))"
    rf"(?:\*\*|__)?(?:\((?P<a>\d{{1,2}})\)|(?P<b>\d{{1,2}})(?P<mark>\.\)|[.):、．）：])"
    rf"|(?P<special>[{_SPECIAL_DIGITS}])(?![\d.):、．）：])|(?P<key>[1-9]){_KEYCAP})"
    r"(?=(?:\*\*|__)?\s*(?:[^\W\d]|[\"“'‘«*_「(]|$)|\s+\d)",
    re.MULTILINE,
)
_SEPARATED = re.compile(r"\s*(?:[;；,，|]\s*(?:and\s*)?)?$")
_STANDS_ALONE = re.compile(r"^[\s>*_#|•+\"“-]*(?:[^\W\d]{1,20}[.°º]?\s?#?)?\s*$")
_IN_QUOTES = re.compile(r"^\s*[\"“](?=\d{1,2}[.)])(.*)[\"”],?\s*$")


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
    wrapped: bool = False


@dataclass
class _Listing:
    """The items of a list; `closed` if something after the last one shows that it is whole."""

    entries: list[_Entry]
    closed: bool


def parse_items(reply: Reply, count: int, wording: str = "") -> Items:
    """The items of a numbered, bulleted or JSON list.

    Args:
        reply: the reply.
        count: how many were asked for; only a list of so many bullets may be a single one.
        wording: of the question, which an item may not repeat.

    >>> parse_items(Reply('Sure!\\n\\n1. "A dog."\\n2) **3 cats**\\n\\nAnything else?'), 5).items
    ['A dog.', '3 cats']
    >>> parse_items(Reply("① A dog runs. ② A cat sits. ③ A bird sings."), 3).items
    ['A dog runs.', 'A cat sits.', 'A bird sings.']
    >>> str(parse_items(Reply("1. A dog runs.\\n3. A cat sits."), 5).failure)
    'unreadable (the numbers are 1, 3)'
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return Items([], text)
    truncated = reply.ending == "truncated"
    listing = _read_list(text, count, truncated)
    if isinstance(listing, Failure):
        return Items([], Failure("refusal") if opens_as_refusal(text) else listing)
    entries = _without_own_numbers(listing.entries)
    texts = without_common_notes([entry.text for entry in entries])
    entries = [replace(entry, text=text) for entry, text in zip(entries, texts, strict=True)]
    in_doubt = not listing.closed and (
        truncated or (reply.ending == "unsaid" and not _ends(entries[-1].text))
    )
    items: dict[str, str] = {}
    problems: list[Failure] = []
    for entry in entries[:-1] if in_doubt else entries:
        item, problem = ("", entry.problem) if entry.problem else clean_item(entry.text)
        if problem:
            problems.append(Failure("unreadable", problem))
        elif opens_as_refusal(item):
            problems.append(Failure("refusal"))
        elif echoes(item, wording):
            problems.append(Failure("unreadable", "the question said again"))
        else:
            items.setdefault(fold(item), item)
    failure = problems[0] if problems else None
    return Items([*items.values()], Failure("truncated", "the last item") if in_doubt else failure)


def _ends(text: str) -> bool:
    return ENDS_SENTENCE.search(text.rstrip("*_` ")) is not None


def _read_list(text: str, count: int, truncated: bool) -> _Listing | Failure:
    found = find_json(text, truncated)
    if isinstance(found, Failure):
        return found
    if found is not None:
        return _json_list(*found)
    text = broken_lines(text)
    lines = [_SPECIAL_MARK.sub(_plainly, line) for line in lines_of(_spread_out(text, count))]
    if all(_IN_QUOTES.match(line) for line in lines if line):
        lines = [_IN_QUOTES.sub(r"\1", line) for line in lines]
    if not _number_marks(lines):
        lines = numbered(lines, count)
    marks = _number_marks(lines)
    if not marks:
        lines = lines if any(map(BULLET.match, lines)) else bulleted(lines, count)
        none = Failure("truncated" if truncated else "unreadable", "no numbered list")
        return _bulleted(lines, count) or none
    numbers = [number for _, number, _ in marks]
    whole = len(marks) == count >= LEAST  # as Markdown counts, or from 0
    if numbers != list(range(1, len(marks) + 1)) and not (
        whole and numbers in ([1] * count, list(range(count)))
    ):
        shown = ", ".join(map(str, numbers[:8]))
        return Failure("unreadable", f"the numbers are {shown}")
    lines, closed = _without_sign_off(lines, marks[-1][0])
    marked = {index for index, _, _ in marks}
    for index, line in enumerate(lines):
        bullet = index not in marked and BULLET.match(line)
        if bullet and (index < marks[0][0] or not line[0].isspace()) and not _REMARK.match(line):
            return Failure("unreadable", "two lists")
    return _Listing(_entries(lines, [(index, rest) for index, _, rest in marks]), closed)


# --- where numbers stand --------------------------------------------------------------------------


def _spread_out(text: str, count: int) -> str:
    """Each item on a line of its own, where rising numbers within lines show where they begin.

    Every number that could be a mark has to be one: all of one style, 1, 2, 3 and so on, once each.
    They are at least three, or as many as were asked for; and each comes behind the end of a
    sentence, or else none does.
    """
    marks = list(_INSIDE.finditer(text))
    styles = {_style(mark) for mark in marks}
    if [_number(mark) for mark in marks] != list(range(1, len(marks) + 1)) or len(styles) != 1:
        return text
    starts = [text.rfind("\n", 0, mark.start()) + 1 for mark in marks]
    befores = [text[start : mark.start()] for start, mark in zip(starts, marks, strict=True)]
    inside = [not _STANDS_ALONE.match(before) for before in befores]
    if not any(inside) or (inside[0] and not _ends_part(befores[0], ":：")):
        return text
    ended = {
        _ends_part(before, ";；,，|")
        for before, within in zip(befores[1:], inside[1:], strict=True)
        if within
    }
    least = min(3, count) if True in ended else count
    if len(ended) > 1 or (ended and len(marks) < least):
        return text
    for mark, within in zip(reversed(marks), reversed(inside), strict=True):
        if within:
            before = _SEPARATED.sub("", text[: mark.start()])
            text = f"{before}\n{text[mark.start() :]}"
    return text


def _ends_part(before: str, also: str) -> bool:
    """Whether a sentence, or a part of an enumeration, ends here."""
    plain = re.sub(r"\band$", "", before.rstrip()).rstrip("*_` ")
    return plain.endswith(tuple(also)) or ENDS_SENTENCE.search(plain) is not None


def _style(mark: re.Match[str]) -> str:
    return mark["mark"] or next(name for name in ("a", "special", "key") if mark[name])


def _number(mark: re.Match[str]) -> int:
    groups = mark.groupdict()
    found = next(groups[name] for name in ("a", "b", "special", "key") if groups.get(name))
    return int(unicodedata.numeric(found)) if len(found) == 1 else int(found)


def _plainly(mark: re.Match[str]) -> str:
    """`① ` as `(1) `."""
    return f"{mark['before']}({int(unicodedata.numeric(mark['special'] or mark['key']))}) "


def _number_marks(lines: list[str]) -> list[tuple[int, int, str]]:
    """The lines that start with a list number: index, number, the text behind it."""
    marks = []
    for index, line in enumerate(lines):
        if found := split_number(line):
            marks.append((index, *found))
    return marks


def _without_own_numbers(entries: list[_Entry]) -> list[_Entry]:
    """Items that each begin with their own number once more, without it."""
    split = [split_number(entry.text) for entry in entries]
    own = [found[1] for number, found in enumerate(split, 1) if found and found[0] == number]
    if len(own) < max(2, len(entries)):
        return entries
    return [_Entry(text, entry.problem) for text, entry in zip(own, entries, strict=True)]


# --- other lists ----------------------------------------------------------------------------------


def _json_list(before: str, value: Any, after: str) -> _Listing | Failure:
    """A list of strings, or of objects with one each, or an object of either."""
    lines = [line for line in lines_of(after) if line]
    if (lines and not SIGN_OFF.match(lines[0])) or _number_marks(lines_of(before)):
        return Failure("unreadable", "text around the JSON")
    value = _json_items(value)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return Failure("unreadable", "JSON that is no list of strings")
    problem = "a line break in an item"
    entries = [_Entry(item, problem if "\n" in item.strip() else "") for item in value]
    return _Listing(entries, True) if entries else Failure("unreadable", "an empty list")


def _json_items(value: Any) -> Any:
    """The items of JSON, whose objects are tuples of pairs.

    >>> _json_items((("captions", ((("1", "A dog"), ("2", "A cat")))),))
    ['A dog', 'A cat']
    """
    if isinstance(value, tuple) and len(value) == 1 and not isinstance(value[0][1], str):
        value = value[0][1]
    if isinstance(value, tuple):
        numbers = [re.search(r"\d+$", str(key)) for key, _ in value]
        rising = [int(found[0]) for found in numbers if found] == list(range(1, len(value) + 1))
        return [text for _, text in value] if rising else None
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value):
        texts = [[text for _, text in item if isinstance(text, str)] for item in value]
        return [only[0] for only in texts] if all(len(only) == 1 for only in texts) else None
    return value


def _bulleted(lines: list[str], count: int) -> _Listing | Failure | None:
    """A list whose every line is a bullet; None if there are no bullets."""
    bullets = [(index, found) for index, line in enumerate(lines) if (found := BULLET.match(line))]
    if not bullets:
        return None
    first, last = bullets[0][0], bullets[-1][0]
    lead = [line for line in lines[:first] if line]
    headed = not lead or lead[-1].rstrip("*_ ").endswith((":", "：")) or lead[-1].startswith("#")
    if not headed and not (len(lead) == 1 and len(bullets) == count >= LEAST):
        return Failure("unreadable", "bullets without a heading")
    lines, closed = _without_sign_off(lines, last)
    between = set(range(first, last)) - {index for index, _ in bullets}
    stray = any(lines[index] and not lines[index][0].isspace() for index in between)
    if stray or len({found["mark"] for _, found in bullets}) > 1:
        return Failure("unreadable", "bullets of several kinds or with text between them")
    if len(bullets) < 2 and len(bullets) != count:
        return Failure("unreadable", "a single bullet")
    return _Listing(_entries(lines, [(index, found["rest"]) for index, found in bullets]), closed)


def _without_sign_off(lines: list[str], last: int) -> tuple[list[str], bool]:
    """The lines up to a sign-off after line `last`, and whether there is one.

    Right below a line without a full stop, where others have one, it may be that line's end.
    """
    stops = [_ends(line) for line in lines[: last + 1]]
    start = last + 2 if any(stops) and not stops[-1] else last + 1
    for index in range(start, len(lines)):
        if SIGN_OFF.match(lines[index]):
            return lines[:index], True
    return lines, False


# --- items ----------------------------------------------------------------------------------------


def _entries(lines: list[str], marks: list[tuple[int, str]]) -> list[_Entry]:
    """One entry for each mark (index of its line, text behind it), with what stands below it."""
    width = max(len(line) for line in lines[marks[0][0] :])
    ends = [index for index, _ in marks[1:]] + [len(lines)]
    titled = _titled(lines, marks, ends)
    entries = []
    for number, ((index, rest), end) in enumerate(zip(marks, ends, strict=True), 1):
        below, length = lines[index + 1 : end], len(lines[index])
        indent = length - len(lines[index].lstrip())
        if not rest or titled:  # the text stands on the next line
            below = below[next((i for i, line in enumerate(below) if line), len(below)) :]
            rest, below = (below[0].strip(), below[1:]) if below else ("", [])
            length = len(rest)
        entry = _Entry(rest, "" if rest else f"item {number} is empty")
        first = next((line for line in below if line), "")
        explained = _REMARK.match(first) and _ends(rest)
        if first and not explained:
            joined = _indented(rest, indent, below) or _unwrapped(rest, length, below, width)
            problem = "" if joined else f"text below item {number}"
            entry = _Entry(joined or "", problem, wrapped=True)
        entries.append(entry)
    stops = any(_ends(entry.text) for entry in entries)
    unclear = next((entry.problem for entry in entries if entry.wrapped and entry.problem), "")
    for number, entry in enumerate(entries, 1):
        if entry.wrapped and unclear:  # all lists are set in one way
            entry.problem = entry.problem or unclear
        if entry.wrapped and stops and not _ends(entry.text):
            entry.problem = entry.problem or f"text below item {number}"
    following = re.compile(rf"(?<![\w.])[(\[]?{len(marks) + 1}\s?[.):\]](?=\s|[^\W\d])")
    if following.search(entries[-1].text):
        entries[-1] = _Entry("", "several items on one line")
    return entries


def _titled(lines: list[str], marks: list[tuple[int, str]], ends: list[int]) -> bool:
    """Whether each item is a short title with one whole sentence below it."""
    for (index, rest), end in zip(marks, ends, strict=True):
        below = [line.strip() for line in lines[index + 1 : end] if line]
        title, bold = rest.strip("*_: "), _BOLD.fullmatch(rest.strip()) is not None
        if not title or _ends(title) or len(title.split()) > _LONGEST_TITLE or len(below) != 1:
            return False
        opens = _OPENS_SENTENCE.match(below[0]) or (bold and below[0][0].isupper())
        if not opens or not _ends(below[0]) or _REMARK.match(below[0]):
            return False
    return True


def _indented(rest: str, indent: int, below: list[str]) -> str | None:
    """The item joined from its lines, if those below are set in and no line ends a sentence but
    the last; or None.
    """
    lines = [line for line in below if line]
    if below[: len(lines)] != lines:
        return None
    joined = rest
    if lines and _BOLD.fullmatch(rest.strip()):
        return None
    for line in lines:
        set_in = len(line) - len(line.lstrip()) > indent
        label = line.split()[0].endswith(":")
        opens = _OPENS_SENTENCE.match(line.strip())  # below a title, say
        if not set_in or _ends(joined) or label or opens or BULLET.match(line):
            return None
        joined = f"{joined} {line.strip()}"
    return joined


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


# --- unusual marks --------------------------------------------------------------------------------
# Lists whose items are marked in unusual ways are rewritten with `1. ` or `- ` before each item.
# All need as many items as were asked for, in one style, with nothing between them but lines that
# are set in: with fewer, or with text between, another reading is possible.

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
