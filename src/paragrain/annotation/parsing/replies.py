"""From a raw reply to its answer: without reasoning, special tokens, quotes and markdown."""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from paragrain.annotation.calls import Failure, Reply
from paragrain.words import UNSPACED

LONGEST_ANSWER = 20_000
"""Characters; more than any answer has. It bounds the time that the patterns below can take."""

ENDS_SENTENCE = re.compile(r"[.!?…。！？｡।؟۔][\"'”’»›)\]」』]*$")

_REASONING = re.compile(
    r"<(/?)(?:think|thinking|thought|reasoning|reflection|analysis|scratchpad)>"
    r"|◁(/?)think▷|\[(/?)THINK\]",
    re.IGNORECASE,
)
_SPECIAL = re.compile(
    r"<\|[^<>|\n]{1,40}\|>|<｜[^<>｜\n]{1,40}｜>|</?s>|</?(?:bos|eos|pad|unk)>"
    r"|<(?:start|end)_of_turn>|</?(?:answer|output|response|result|final|captions?)>",
    re.IGNORECASE,
)
_OPENING = re.compile(rf"(?:\s|\ufeff|(?:{_SPECIAL.pattern})(?:assistant\b)?)+", re.IGNORECASE)
# What follows one of these is another turn of the conversation, no part of the answer.
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|im_start|eot_id|end|eos|return|start|user|end_of_text|endoftext|end_of_turn"
    r"|start_header_id)\|>|<｜end▁of▁sentence｜>|</s>|<eos>|<(?:start|end)_of_turn>"
    r"|(?<=\n)[ \t]*(?:\#{2,}[ \t]*(?:instruction|input|human|user|question)\b|(?:human|user)\s?:)",
    re.IGNORECASE,
)
_DECLINES = (
    r"(?:i(?:'m| am) (?:so |very |really |deeply )?(?:sorry|afraid)\b|i (?:sincerely )?apologi[sz]e"
    r"|(?:my )?apologies\b|sorry(?:,| but\b| i\b)|unfortunately,? i\b"
    r"|i (?:can't|cannot|can not|couldn't|could not|won't|will not|don't see|do not see"
    r"|don't have|do not have|must decline|have to decline|am (?:unable|not able))\b"
    r"|i'm (?:unable|not able|not comfortable)\b|as an? (?:ai\b|artificial intelligence"
    r"|(?:large |vision[- ]|multimodal )*language model)"
    r"|there(?:'s| is| was) no (?:image|picture|photo) (?:provided|attached|given|here|in your)"
    r"|no (?:image|picture|photo) (?:is |was |has been )?(?:provided|attached|given|uploaded)"
    r"|it (?:seems|appears|looks like) (?:that )?(?:there is no|no) (?:image|picture|photo)\b"
    r"|(?:很|非常)?抱歉|对不起|我无法|申し訳|すみません|죄송|lo siento|no puedo |je suis désolée?\b"
    r"|désolée?\b|es tut mir leid|leider kann ich|mi dispiace|desculpe)"
)
_OPENS_AS_REFUSAL = re.compile(rf"[\W_]*{_DECLINES}")
_HOLDS_REFUSAL = re.compile(rf"(?:^|\n|[.!?。！？]\s)[*_> ]{{0,9}}{_DECLINES}")
_MENTIONS_REFUSAL = re.compile(
    rf"(?<!\w){_DECLINES}|\b(?:unable|impossible|not (?:able|possible)|cannot|can't|no image)\b"
)
_JSON = re.compile(
    r"^[ \t]*(?:`{3,}\w*[ \t]*)?(?=\{\s*(?:\"|\Z)|\[\s*(?:[\"\]{]|\Z))", re.MULTILINE
)
_FENCE = re.compile(r"(?:`{3,}|~{3,})\s*[\w+-]*")
_EMPHASIS = (
    re.compile(r"(\*{2,3})(?=[^\s*])([^*]+?)(?<=\S)\1"),
    re.compile(r"(?<!\w)(__)(?=[^\s_])([^_]+?)(?<=\S)__(?!\w)"),
    re.compile(r"(?<![\w*])(\*)(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"),
    re.compile(r"(?<!\w)(_)(?=[^\s_])([^_]+?)(?<=\S)_(?!\w)"),
    re.compile(r"(?<!`)(`{1,3})(?!`)([^`]+)\1"),
)
_ESCAPE = re.compile(r"\\([*_#.\"'`()\[\]-])")
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd-\uffff]")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,80}>|\]\(|\*\*|__|```|\\[nrt](?![a-z])")
_HTML_ITEM = re.compile(r"<li>\s*", re.IGNORECASE)
_HTML_LINE = re.compile(r"<br\s*/?>|</?(?:p|ol|ul|div)>|</li>", re.IGNORECASE)
_SPELLED_BREAK = re.compile(r"(?:\\r)?\\n(?![a-z])")

_NUMBER_MARK = re.compile(
    r"""(?:>\s*)?(?:[-*+•]\s+)?(?:\#{1,6}\s+)?
    (?P<open>\*\*|__|\*)?
    (?:(?:(?:hard|incorrect|wrong|false|positive|correct)\s)?
       (?P<word>captions?|items?|negatives?|sentences?|descriptions?|options?|examples?)\s\#?)?
    (?: [(\[](?P<a>\d{1,3})[)\]](?P<a_shut>\*\*|__|\*)?[.:]?
      | \#(?P<b>\d{1,3})(?P<b_shut>\*\*|__|\*)?(?:[.:)]|\s[-–—](?=\s))?(?!\w)
      | (?P<c>\d{1,3})(?P<c_shut>\*\*|__|\*)?(?:\s?\\?[.)]|\.\)|\s?:|[、．）：]|\s?[-–—](?=\s))
      | (?P<d>\d{1,3})(?=(?:\*\*|__|\*)?\s*$)
    )
    (?P<shut>\*\*|__|\*)?(?:\s+|$|(?=[^\W\d]|["“'‘«*_「])|(?<=[、．）：])(?=\d))""",
    re.VERBOSE | re.IGNORECASE,
)
BULLET = re.compile(r"(?P<mark>\s*(?:[-*+–—‣▪◦●·]\s+|•\s*))(?P<rest>.*)")
SIGN_OFF = re.compile(
    r"\s*[*_(\[]{0,3}(?:(?:please )?let me know|please (?:note|feel)|i hope|feel free"
    r"|hope (?:this|these|that)|would you like|do you (?:want|need)|(?:is there )?anything else"
    r"|if you(?:['’]d| would| need| want| have)|note(?:s?:| that)|enjoy|happy to|word count"
    r"|(?:these|all|each)(?: of)?(?: these| the)?(?: \w+)? (?:caption|sentence|description)s?"
    r"|the (?:above )?(?:captions|sentences|descriptions) (?:above|are|were|vary|differ|all)"
    r"|i can (?:also|provide|write|generate)|i(?:['’]d| would) be happy|thanks|thank you"
    r"|best regards)(?!\w)",
    re.IGNORECASE,
)
"""A line that ends a reply, behind the answer."""


def answer(reply: Reply) -> str | Failure:
    """The part of a reply that answers, with \\n as its only line break; not stripped.

    >>> answer(Reply("<think>A dog? Yes.</think>9<|im_end|>"))
    '9'
    >>> str(answer(Reply(None)))
    'empty (no content)'
    """
    if reply.refusal and reply.refusal.strip():
        return Failure("refusal", _short(reply.refusal))
    ending = reply.ending
    if reply.finish == "no choices":
        return Failure("empty", "no choices")
    if ending == "filtered":
        return Failure("refusal", f"the server ended it with {_short(str(reply.finish))!r}")
    if ending == "broken":
        return Failure("unended", f"the server ended it with {_short(str(reply.finish))!r}")
    truncated = ending == "truncated"
    if reply.text is None or not reply.text.strip():
        return _without_answer("no content", truncated)
    text, finished = _without_reasoning(reply.text.replace("\r\n", "\n").replace("\r", "\n"))
    if not finished:
        return _without_answer("reasoning without an answer", truncated, "unreadable")
    if opening := _OPENING.match(text):
        text = text[opening.end() :]
    if end := _TURN_ENDS.search(text):
        text = text[: end.start()]
    if len(text) > LONGEST_ANSWER:
        return Failure("unreadable", f"{len(text):,} characters")
    text = _HTML_LINE.sub("\n", _HTML_ITEM.sub("\n- ", _SPECIAL.sub("\n", text)))
    if not text.strip():
        return _without_answer("nothing but reasoning or special tokens", truncated)
    return text


def _without_answer(
    detail: str, truncated: bool, otherwise: Literal["empty", "unreadable"] = "empty"
) -> Failure:
    """Nothing of an answer: it was truncated before it began, or there is none."""
    return Failure("truncated" if truncated else otherwise, detail, thinking=truncated)


def opens_as_refusal(text: str) -> bool:
    """Whether the first thing said is that it will not be done.

    >>> opens_as_refusal("I’m sorry, but I can’t help."), opens_as_refusal("I see a dog.")
    (True, False)
    """
    return _OPENS_AS_REFUSAL.match(_lower(text[:400])) is not None


def holds_refusal(text: str) -> bool:
    """Whether any sentence, outside quotes, opens as a refusal."""
    return _HOLDS_REFUSAL.search(_lower(text)) is not None


def mentions_refusal(text: str) -> bool:
    """Whether any part of a text sounds like a refusal."""
    return _MENTIONS_REFUSAL.search(_lower(text)) is not None


def find_json(text: str, truncated: bool) -> tuple[str, Any, str] | Failure | None:
    """The text before a JSON array or object that starts a line, its value, the text after it.

    An object comes as a tuple of its (key, value) pairs, so that a repeated key is seen. A failure
    if there is JSON that does not end; None if there is none.
    """
    found = _JSON.search(text)
    if found is None:
        literal = _literal(text)
        return None if literal is None else ("", literal, "")
    try:
        value, end = json.JSONDecoder(object_pairs_hook=tuple).raw_decode(text, found.end())
    except (ValueError, RecursionError):
        if (literal := _literal(text)) is not None:
            return "", literal, ""
        return Failure(
            "truncated" if truncated else "unreadable", "JSON that does not end or is broken"
        )
    after = text[end:].lstrip("`")
    if after.lstrip(", \n").startswith("{") and (literal := _literal(text)) is not None:
        return "", literal, ""
    return text[: found.start()], value, after


def _literal(text: str) -> Any:
    """JSON with single quotes or a comma too many, as Python reads it, or one object a line."""
    lines = [
        line.strip().rstrip(",") for line in text.split("\n") if not _FENCE.fullmatch(line.strip())
    ]
    lines = [line for line in lines if line]
    if len(lines) > 1 and all(re.fullmatch(r"\{.*\},?", line) for line in lines):
        lines = [line.rstrip(",") for line in lines]
        lines = ["[", ",".join(lines), "]"]
    plain = " ".join(lines)
    if not re.fullmatch(r"[\[{].*[\"'].*[\]}]", plain) or re.search(r"[\"']\s*[\"']", plain):
        return None  # strings side by side would be joined
    try:
        return _pairs(ast.literal_eval(plain))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((str(key), _pairs(own)) for key, own in value.items())
    return [_pairs(own) for own in value] if isinstance(value, list) else value


def broken_lines(text: str) -> str:
    """Text that is no JSON, with line breaks where they are spelled out.

    >>> broken_lines(r"1. A dog\\n2. A cat in C:\\new")
    '1. A dog\\n2. A cat in C:\\\\new'
    """
    return _SPELLED_BREAK.sub("\n", text)


def lines_of(text: str) -> list[str]:
    """The lines without code fences; rules such as `---` come as empty lines."""
    lines = [line.rstrip() for line in text.split("\n") if not _FENCE.fullmatch(line.strip())]
    return ["" if is_rule(line) else line for line in lines]


def is_rule(line: str) -> bool:
    """Whether a line is a horizontal rule."""
    marks = "".join(line.split())
    return len(marks) >= 3 and marks[0] in "-*_=" and not marks.strip(marks[0])


def split_number(line: str) -> tuple[int, str] | None:
    """`**1. A dog**` to 1 and `**A dog**`; None if no list number stands first."""
    found = _NUMBER_MARK.match(stripped := line.strip())
    if found is None or (found["d"] and not found["word"]):
        return None
    groups = found.groupdict()
    number = int(next(groups[name] for name in "abcd" if groups[name]))
    shut = found["a_shut"] or found["b_shut"] or found["c_shut"]
    rest = stripped[found.end() :]
    if found["open"] and not shut and not found["shut"]:
        rest = found["open"] + rest  # the emphasis spans number and text
    elif found["shut"] and (shut or not found["open"]):
        rest = found["shut"] + rest  # the emphasis begins with the text
    return number, rest


def tidy(text: str) -> str:
    """On one line, without markdown emphasis and escapes, with single spaces.

    >>> tidy("**A *red*  dog**, `new`")
    'A red dog, new'
    """
    text = re.sub(r"[ \t\n]+", " ", text).strip().strip("\u200b\u2060\ufeff").strip()
    for pattern in _EMPHASIS * 2:  # twice, for emphasis within emphasis
        text = pattern.sub(r"\2", text)
    return _ESCAPE.sub(r"\1", text).strip()


def blemish(text: str) -> str:
    """What of a tidied text is not plain text; empty if nothing is."""
    if _NO_TEXT.search(text):
        return "control or broken characters"
    return "markup" if _MARKUP.search(text) else ""


def count_words(text: str) -> int:
    """Words; in scripts without spaces, two characters count as one.

    >>> count_words("A dog - 2 cats!"), count_words("一只狗在跑")
    (4, 3)
    """
    unspaced = len(UNSPACED.findall(text))
    spaced = [w for w in UNSPACED.sub(" ", text).split() if any(c.isalnum() for c in w)]
    return len(spaced) + (unspaced + 1) // 2


_CLOSED_BY = {"„": "“”", "‚": "‘’"}
_CLOSED_BY |= {pair[0]: pair[1] for pair in "\"\" '' “” ‘’ «» »« ‹› 「」 『』".split()}
_QUOTES = set("".join([*_CLOSED_BY, *_CLOSED_BY.values()]))
_BOTH_WAYS = "\"'»"
_APOSTROPHES = ("'", "’")


def first_quotation(text: str) -> tuple[bool, int]:
    """Whether the quotes of a text pair, and where the one that opens it closes (else -1).

    Straight quotes open before a word and close after one, so that quotes within quotes pair;
    apostrophes and inch marks are let pass.

    >>> first_quotation('"A sign reads "STOP" in red."'), first_quotation('"STOP" beside "GO"')
    ((True, 28), (True, 5))
    >>> first_quotation('"A 5" pipe"')[0]
    False
    """
    if _QUOTES.isdisjoint(text):
        return True, -1
    stack: list[tuple[str, int]] = []
    stray: dict[str, int] = {}
    closed, just_opened, last = -1, False, len(text) - 1
    for i, char in enumerate(text):
        before, after = text[i - 1 : i] if i else "", text[i + 1 : i + 2]
        if char not in _QUOTES or (char in _APOSTROPHES and before.isalnum() and after.isalnum()):
            just_opened = False
            continue
        at = _closes(stack, char)
        free = just_opened or not before.strip() or before in "([{-–—/"
        opens = char in _CLOSED_BY and bool(after.strip())
        if opens and (free if char in _BOTH_WAYS else at < 0):
            stack.append((_CLOSED_BY[char], i))
            just_opened = True
            continue
        just_opened = False
        if at >= 0 and before.strip():
            closed = i if stack[at][1] == 0 else closed
            del stack[at:]
        else:
            stray[char] = stray.get(char, 0) + 1
            measure = before.isdigit() if char == '"' else before.isalnum()
            if i == last and stray[char] % 2 and not (char in "\"'’" and measure):
                return False, -1
    if text and any(char in stray for char in text[0] + _CLOSED_BY.get(text[0], "")):
        return False, -1  # one of them may have ended the quotation that opens the text
    for closer, i in stack:
        if closer not in _APOSTROPHES or (i == 0 and not text[1:2].isdigit()):
            return False, -1
    return True, closed


def unquoted(text: str) -> str | None:
    """Without quotes around the whole text; None if its quotes do not pair.

    >>> unquoted('"A sign reads "STOP"."'), unquoted('"STOP" beside "GO"')
    ('A sign reads "STOP".', '"STOP" beside "GO"')
    """
    for _ in range(3):
        paired, closed = first_quotation(text)
        if not paired:
            return None
        end = text[closed + 1 :] if closed >= 0 else None
        if end is None or end not in ("", ",", ";", "."):
            return text
        inner = text[1:closed].strip()
        text = inner + "." if end == "." and not ENDS_SENTENCE.search(inner) else inner
    return text


def _closes(stack: Sequence[tuple[str, int]], char: str) -> int:
    """Which open quotation `char` would close, or -1; only apostrophes may stand in between."""
    for at in range(len(stack) - 1, -1, -1):
        if char in stack[at][0]:
            return at
        if stack[at][0] not in _APOSTROPHES:
            break
    return -1


def _without_reasoning(text: str) -> tuple[str, bool]:
    """The text outside reasoning tags, and whether the reasoning ended.

    Models that are served with the opening tag in their template send only the closing one:
    everything before it is reasoning.
    """
    if "<|channel|>" in text:
        _, found, text = text.rpartition("<|channel|>final")
        _, started, text = text.partition("<|message|>")
        return text, bool(found and started)
    if text.lstrip().startswith("analysis") and "assistantfinal" in text:
        return text.rpartition("assistantfinal")[2], True  # the same, special tokens left out
    kept: list[str] = []
    position, inside = 0, False
    for tag in _REASONING.finditer(text):
        if any(tag.groups()):
            kept = kept if inside else []
            inside = False
        else:
            kept += [] if inside else [text[position : tag.start()]]
            inside = True
        position = tag.end()
    return "\n".join([*kept, text[position:]]), not inside


def _lower(text: str) -> str:
    return text.lower().replace("’", "'").replace("ʼ", "'")


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 100 else words[:97] + "..."
