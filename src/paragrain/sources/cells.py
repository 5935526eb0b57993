"""What one value of a table or of JSON says: its texts, its number, or why it cannot be kept."""

import ast
import json
import re
from typing import Any

from paragrain.collection.fields import FIELDS, LIST_FIELDS, NESTED_FIELDS, normal
from paragrain.sources.names import is_valid

Values = dict[str, Any]
"""Some fields of a record, by name; only those that something is known for."""

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_STRING = re.compile(r"""[urbURB]?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.DOTALL)
_BETWEEN = re.compile(r"\s*[,;]\s*|\s+|$")
_BEGINS = re.compile(r"""\[\s*[urbURB]?["'{]""")
_LIST = r"(\[.*\]|\(.*\)|\{.*\})"
_WRAPPED = re.compile(
    rf"[A-Za-z_][\w.]*\(\s*{_LIST}(?:,\s*\w+=.*)?\s*\)"
    rf"|<\w+>\s*{_LIST}\s*Length: \d+, dtype: \w+",
    re.DOTALL,
)
"""A list as its type prints it: `array([...], dtype=object)`, `Index([...])`, `<StringArray>`."""

_NO_TEXTS = re.compile(r"\[\s*(?:(?:None|null|nan|NaN|NA|<NA>)[\s,]*)+\]")
"""A printed list of nothing."""


class NotTexts(Exception):
    """A value from which no texts can be taken with certainty; the message is the reason."""


def text_problem(text: Any) -> str | None:
    r"""Why something cannot be kept as a text, or `None` if it can.

    >>> text_problem("NA"), text_problem(" \n"), text_problem("\ud800"), text_problem(7)
    (None, 'an empty text', 'a text that is not valid Unicode', 'int where text should be')
    """
    if not isinstance(text, str):
        return f"{type(text).__name__} where text should be"
    if not text.strip():
        return "an empty text"
    return None if is_valid(text) else "a text that is not valid Unicode"


def texts_of(value: Any) -> list[Any]:
    """The texts that a value holds: a list's, also as Python, JSON or NumPy print it; or itself.

    Of a list of objects their `raw`, `text`, `caption` or `value`, as Karpathy's sentences.

    Raises:
        NotTexts: it looks like a printed list and cannot be read as one.

    >>> texts_of("['a dog', \\"a 'cat'\\"]"), texts_of("['a dog' 'a cat']"), texts_of('["a"]')
    (['a dog', "a 'cat'"], ['a dog', 'a cat'], ['a'])
    >>> texts_of("[Music] a band plays"), texts_of("[sic]"), texts_of([{"raw": "a dog"}])
    (['[Music] a band plays'], ['[sic]'], ['a dog'])
    """
    if isinstance(value, list | tuple):
        return [_inner(part) for part in value]
    if not isinstance(value, str):
        return [value]
    cell = value.strip()
    if found := _WRAPPED.fullmatch(cell):
        wrapped = found[1] or found[2]
        cell = wrapped if _BEGINS.match("[" + wrapped[1:]) else cell
    if _NO_TEXTS.fullmatch(cell):
        raise _unreadable(value)
    if cell[:1] in _BRACKETS and _is_enclosed(cell):
        return _printed(value, cell)
    if _BEGINS.match(cell):
        raise _unreadable(value)
    return [value]


def _unreadable(value: str) -> NotTexts:
    return NotTexts(f"what looks like a list cannot be read as one ({value[:60]!r})")


def _inner(part: Any) -> Any:
    if isinstance(part, dict):
        return next((part[k] for k in ("raw", "text", "caption", "value") if k in part), part)
    return part


def _is_enclosed(cell: str) -> bool:
    """Whether the bracket that it begins with closes at its end and not before."""
    opening, closing = cell[0], _BRACKETS[cell[0]]
    if not cell.endswith(closing):
        return False
    depth, at = 0, 0
    while at < len(cell):
        quoted = _STRING.match(cell, at) if cell[at - 1 : at] in (*"[({,; \n",) else None
        if quoted:
            at = quoted.end()
            continue
        depth += (cell[at] == opening) - (cell[at] == closing)
        at += 1
        if depth == 0:
            return at == len(cell)
    return True


def _printed(value: str, cell: str) -> list[Any]:
    """The texts of a printed list, the value itself if it is none."""
    if cell[0] == "[" and (texts := _evaluated(cell)) is not None:
        return texts
    inside = cell[1:-1].strip()
    found: list[Any] = []
    at = 0
    while at < len(inside) and (string := _STRING.match(inside, at)):
        if (between := _BETWEEN.match(inside, string.end())) is None:
            break
        found.append(_unquoted(string[0]))
        at = between.end()
    if at == len(inside) and None not in found and (found or cell[0] == "["):
        return found
    if cell[0] == "(" and not found:
        return [value]  # prose in brackets
    if cell[0] == "{" and not found and "," not in inside:
        return [value]
    if cell[0] == "[" and inside[:1] not in ("'", '"') and not re.search("[,;\n]", inside):
        return [value]  # a mark such as [Music]
    raise _unreadable(value)


def _evaluated(cell: str) -> list[Any] | None:
    """A list of texts or objects as JSON, or of objects as Python prints it; `None` if neither."""
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        if not re.match(r"\[\s*\{", cell):
            return None  # where there are strings, Python would join those of NumPy
        try:
            values = ast.literal_eval(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if not isinstance(values, list) or not all(isinstance(v, str | dict) for v in values):
        return None
    return [_inner(value) for value in values]


def _unquoted(string: str) -> str | None:
    try:
        text = ast.literal_eval(string)
    except (ValueError, SyntaxError):
        text = string.lstrip("urbURB")[1:-1] if "\\" not in string else None  # with a line break
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def take(values: Values, name: str, value: Any, problems: list[str]) -> None:
    """Put a value under the name of a record's field, or say in `problems` why not.

    Texts of a list field are added to those that are there.
    """
    if name == "paragraph_score":
        score = _score(value)
        if score is None:
            problems.append(f"paragraph_score is {value!r}, not a whole number from 0 to 10")
        else:
            values[name] = score
        return
    if name in NESTED_FIELDS:
        try:
            field = FIELDS[name]  # parts of a struct that are not ours are left out
            values[name] = field.checked(normal(value, field.type))
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(f"{error} in {name}")
        return
    if name in ("group", "split", "url"):
        texts = [str(value) if isinstance(value, int) and not isinstance(value, bool) else value]
    else:
        try:
            texts = texts_of(value)
        except NotTexts as reason:
            problems.append(f"{reason} in {name}")
            return
    good = []
    for text in texts:
        if problem := text_problem(text):
            problems.append(f"{problem} in {name}")
        else:
            good.append(text)
    if name in LIST_FIELDS:
        if good:
            values.setdefault(name, []).extend(good)
    elif len(good) > 1:
        problems.append(f"{len(good)} texts in {name}, which holds one")
    elif good and values.setdefault(name, good[0]) != good[0]:
        problems.append(f"another text for {name}, which holds one")


def _score(value: Any) -> int | None:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(score) if score in range(11) and not isinstance(value, bool) else None
