"""The paragraph of a reply, or why there is none.

Taken off: a preamble, a title that stands apart, a draft before the final version, an offer of
further help, a closing remark on what cannot be told. Refused: what then is no paragraph, such as
one sentence again and again, the question said again, a title in one line with the text.
"""

import re

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing.replies import (
    BULLET,
    ENDS_SENTENCE,
    SIGN_OFF,
    answer,
    blemish,
    broken_lines,
    count_words,
    find_json,
    holds_refusal,
    lines_of,
    split_number,
    tidy,
    unquoted,
)
from paragrain.annotation.parsing.texts import (
    echoes,
    fold,
    loops,
    mentions_caption,
    without_farewell,
    without_notes,
)
from paragrain.words import SENTENCE_END, sentences

MOST_WORDS = 400
"""Words of a paragraph."""

_LONGEST_TITLE = 12  # words

_PREAMBLE = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok)(?: thing)?[!.,]\s*)?"
    r"(?:as requested,?\s*)?"
    r"(?:(?:here(?:['’]s| is| are)|below is|this is) [^.:\n]{0,80}(?:paragraph|description)"
    r"[^.:\n]{0,80}[.:]\s*|i(?:['’]d| would) be (?:happy|glad) to [^.!\n]{0,80}[.!]\s*)?"
    r"(?:(?:paragraph|description|answer|response|assistant)(?:\s\d)?\s?:\s*)?",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"#{1,6}\s.*|(\*\*|__)[^*_.!?]{1,80}\1:?|[*_]{0,2}title[*_]{0,2}\s?:[^.!?]*[.!?]?", re.I
)
_BOLD_TITLE = re.compile(r"\s*(\*\*|__)([^*_\n]{1,80}?)[:.]?\1[:.]?\s+(?=[A-Z\"“*_])")
_NAME = r"(?:[A-Z][\w'’-]*|of|in|on|at|and|the|a|an|by|with|to|for)"
_HEADING = rf"[A-Z][\w'’-]*(?:\s{_NAME}){{0,9}}?"
_OPENING = r"(?:The|A|An|This|There|In|On|It|At|Two|Three)\s[a-z]"
_GLUED = re.compile(rf"{_HEADING}\s[A-Z][\w'’-]*\s{_OPENING}|{_HEADING}\s{_OPENING}")
# "A Quiet Morning: A dog runs.", "A QUIET MORNING. A dog runs.", '"A Quiet Morning" A dog runs.'
_SET_OFF = re.compile(
    rf"{_HEADING}(?:\s?:|\s[–—|-])\s+(?=[A-Z][\w'’-]*,?\s[\w'’-])"
    # not behind "St." and the like
    rf"|(?:{_HEADING}\s{_NAME}(?<=\w{{4}})[.!]|[A-Z]\w+!|[\"“]{_HEADING}[\"”])\s+"
    rf"(?!It\s|This\s)(?={_OPENING})"
)
_VERSION = re.compile(
    r"(?:^|\n|(?<=[.!?\"”*])\s)[ \t*_#(\[]{0,6}"
    r"(?:(?P<final>(?:here(?:['’]s| is) )?(?:my |the |an? )?"
    r"(?:final|revised|refined|improved|polished|edited|corrected|better)"
    r"(?: (?:draft|version|paragraph|description|answer|text|output))?|revision|rewrite)"
    r"|(?:my |the )?(?:first |rough |initial |second |third )?(?:draft|attempt|outline|thoughts?"
    r"|reasoning|observations?|analysis|plan|option|version|critique|notes?)"
    r"(?: (?:\d|one|two|a|b))?"
    r"|initial (?:description|paragraph)|(?:short|long)(?:er)? (?:version|description)|or"
    r"|alternative(?:ly)?|another (?:option|version|description)|self-check|explanation)"
    r"[ \t]?\d?[*_)\]]{0,3}\s?[:：][*_]{0,3}",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"(?<=[.!?\"”*)])\s+[(\[*_]*(?:please )?(?:note|explanation|self-check|reasoning)[*_]*\s?:"
    r"(?!.*[\"”]\s).*",
    re.IGNORECASE | re.DOTALL,
)
_THE_END = re.compile(
    r"(?<=[.!?\"”])\s+(?:[\[(]?(?:the )?end(?: of (?:the )?\w+)?[\])]?\.?|\#{2,})\s*$",
    re.IGNORECASE,
)
_CANNOT_TELL = re.compile(
    r"\b(?:can(?:not|'t|\snot)|could(?:n't|\snot)|(?:not|im)\s?possible to|unable to|difficult to"
    r"|hard to|no way to)\s+(?:be\s+)?(?:\w+ly\s+)?(?:ma(?:k|d)e out|discern|determin|tell|told"
    r"|identif|sa(?:y|id)\b|know"
    r"|confirm|ascertain|verif|establish|specif|infer|deduc)"
    r"|\b(?:un|not )(?:clear|known|certain|specified|sure) (?:from|in|whether|what|who|where|based)"
    r"|\bremains? (?:unclear|unknown|uncertain)\b"
    r"|\b(?:is|are|was|were)(?: not |n't | un)(?:specified|stated|known|clear|identifiable)\b"
    r"|\bno (?:further|additional|other) (?:details|info)|\bno information (?:about|on|regarding)"
    r"|\b(?:further|finer|other|additional|more) details (?:are|is|remain)\b"
    r"|\b(?:does not|doesn't|do not|don't) (?:provide|give|offer|contain|include|reveal)"
    r" (?:\w+ ){0,2}(?:details?|information|indication|clues?|context)"
    r"|\bcan only (?:be )?(?:guess|speculate|imagine|assume)"
    r"|\b(?:we|one|you|i) (?:cannot|can't|do not|don't) (?:see|tell|know)\b"
    r"|\bwithout (?:further|more|additional) (?:context|information|details)"
    r"|\bnot (?:visible|shown|provided|given|discernible) (?:in|from|by) the "
    r"(?:image|photo|picture)",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"[A-Z]\w*:\s")
_ALOUD = re.compile(
    r"\b(?:the user (?:wants|asks|asked|provided)|we (?:need|have) to (?:write|describe)"
    r"|let me (?:write|describe|draft|think|start|look|count|check|see)|i (?:need|have) to "
    r"(?:write|describe)|i(?:'ll| will| should) (?:write|describe|start|now)"
    r"|i (?:have )?(?:described|focused|tried|chose|chosen|avoided|kept))\b"
    r"|^(?:okay|ok|hmm)[,.] (?:so|let|i|the user)\b",
    re.IGNORECASE,
)


def parse_paragraph(reply: Reply, wording: str = "") -> str | Failure:
    """The paragraph of a reply, on one line.

    Args:
        reply: the reply.
        wording: of the question, which the paragraph may not repeat.

    >>> parse_paragraph(Reply("Sure! Here is the description:\\n\\n**A dog** runs. It is red."))
    'A dog runs. It is red.'
    >>> parse_paragraph(Reply("Draft: A dog. It is big.\\n\\nFinal: A dog runs. It is red."))
    'A dog runs. It is red.'
    >>> str(parse_paragraph(Reply("A dog runs. It is", "length")))
    'truncated'
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    truncated = reply.ending == "truncated"
    found = find_json(text, truncated)
    if isinstance(found, Failure):
        return found
    if found is not None:
        value = found[1][0][1] if isinstance(found[1], tuple) and len(found[1]) == 1 else None
        if not isinstance(value, str):
            return Failure("unreadable", "JSON that is no single text")
        text = value
    text = _last_version(_without_note(broken_lines(text)))
    if isinstance(text, Failure):
        return Failure("truncated") if truncated else text
    if holds_refusal(text):
        return Failure("refusal")
    lines = _without_title([line.removeprefix("> ") for line in lines_of(text)])
    if any(split_number(line) or BULLET.match(line) for line in lines):
        return Failure("unreadable", "a list")
    if len(lines) > 1 and lines[0].rstrip("*_ ").endswith((":", "：")):
        del lines[0]
    return _checked(" ".join(_without_sign_off(lines)), truncated, wording)


def _last_version(text: str) -> str | Failure:
    """What stands behind "Final:" where there are drafts before it; the text, where there are none.

    Several versions of which none is the final one are none.
    """
    versions = list(_VERSION.finditer(text))
    if not versions:
        return text
    if versions[-1]["final"] and sum(bool(version["final"]) for version in versions) == 1:
        return text[versions[-1].end() :]
    return Failure("unreadable", "drafts, or several versions")


def _without_title(lines: list[str]) -> list[str]:
    """The lines with text, without a title that stands on a line of its own."""
    first = next((i for i, line in enumerate(lines) if line), len(lines))
    apart = lines[first + 1 : first + 2] == [""]
    kept = [line for line in lines[first:] if line and not _TITLE.fullmatch(line.strip())]
    if len(kept) < 2 or kept[0] != lines[first]:
        return kept
    title, text = kept[0].strip(), kept[1].lstrip('"“*_ ')
    words = title.split()
    named = all(word[0].isupper() or len(word) < 5 for word in words)
    sentence = ENDS_SENTENCE.search(title.rstrip("*_")) and not (apart and named)
    if sentence or title.endswith((":", ",", ";", "-", "：", "，")):
        return kept
    if len(words) <= _LONGEST_TITLE and text[:1].isupper() and (apart or named):
        return kept[1:]
    return kept


def _without_sign_off(lines: list[str]) -> list[str]:
    """The lines up to one behind the first that ends a reply."""
    for index in range(1, len(lines)):
        if SIGN_OFF.match(lines[index]):
            return lines[:index]
    return lines


def _checked(text: str, truncated: bool, wording: str) -> str | Failure:
    if len(text) > 20 * MOST_WORDS:
        return Failure("unreadable", f"{len(text):,} characters")
    text = _BOLD_TITLE.sub("", text, count=1) if _bold_title(text) else text
    text = tidy(text)
    text = without_farewell(text[_PREAMBLE.match(text).end() :])  # type: ignore[union-attr]
    text = _THE_END.sub("", without_notes(_without_heading(text)))
    if truncated or not ENDS_SENTENCE.search(text) or re.search(r"(?:\.\.|…)\W*$", text):
        return Failure("truncated")
    plain = unquoted(text)
    if plain is None or (problem := blemish(plain)):
        return Failure("unreadable", "quotes that do not pair" if plain is None else problem)
    plain = _without_cannot_tell(plain)
    words = count_words(plain)
    if words > MOST_WORDS or (words < 20 and len(SENTENCE_END.findall(plain)) < 2):
        return Failure("unreadable", f"{words} words")
    if mentions_caption(plain):
        return Failure("unreadable", "mentions the caption")
    if problem := _no_paragraph(plain, wording):
        return Failure("unreadable", problem)
    return plain


def _without_heading(text: str) -> str:
    """Without a title, in Title Case, that a colon, a dash, quotes or a full stop set off.

    >>> _without_heading("A Quiet Morning. A dog runs across the lawn. It is red.")
    'A dog runs across the lawn. It is red.'
    >>> _without_heading("A red dog: A dog runs across the lawn. It is red.")[:10]
    'A red dog:'
    """
    found = _SET_OFF.match(text)
    if found is None or len(sentences(text[found.end() :])) < 2:
        return text
    return text[found.end() :]


def _without_note(text: str) -> str:
    """Without a closing note on the text, behind at least two sentences."""
    found = _NOTE.search(text)
    return text[: found.start()] if found and len(sentences(text[: found.start()])) > 1 else text


def _bold_title(text: str) -> bool:
    """Whether a text opens with a title in bold letters, and not with the words of a sentence."""
    found = _BOLD_TITLE.match(text)
    return found is not None and not ENDS_SENTENCE.search(found[2])


def _without_cannot_tell(text: str) -> str:
    """Without closing sentences on what cannot be told from the picture.

    >>> _without_cannot_tell("A dog runs. It is red. Its age cannot be determined.")
    'A dog runs. It is red.'
    """
    parts = sentences(text)
    while len(parts) > 2 and _CANNOT_TELL.search(parts[-1].replace("’", "'")):
        text = text[: text.rindex(parts.pop())].rstrip()
    return text


def _no_paragraph(text: str, wording: str) -> str:
    """Why a text that reads well is no description all the same; empty if it may be one."""
    folded = [re.sub(r"\d+", "0", fold(sentence)) for sentence in sentences(text)]
    said = [sentence for sentence in folded if sentence]
    repeats = len(said) - len(set(said))
    if 3 * repeats > len(said) or any(said.count(one) > 2 for one in set(said)) or loops(text):
        return "the same words again and again"
    if echoes(text, wording):
        return "the question said again"
    if sum(bool(_LABELLED.match(sentence)) for sentence in sentences(text)) > 2:
        return "a list of labels"
    if _ALOUD.search(text):
        return "thoughts on how to describe"
    return "a title in one line with the text" if _GLUED.match(text) else ""
