"""The score that a judge's reply states, or why it states none for certain.

A number counts where the reply says that it is the score: not where it is denied, put under a
condition or given to something else than faithfulness, and not where it counts things. Of a score
and its correction, the correction counts.
"""

import re
import unicodedata
from typing import Any

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing.replies import (
    answer,
    find_json,
    holds_refusal,
    mentions_refusal,
    opens_as_refusal,
)

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x2044: "/", 0x2215: "/"}
_SPECIAL_DIGIT = re.compile("[\u2460-\u2469\u2776-\u277f\u2780-\u2793]")
_FAITHFUL = (
    r"\b(?:faithful(?:ness)?|accura(?:cy|te)|overall|fidelity|correct(?:ness)?|factual\w*)\b"
)
_OTHER = re.compile(
    r"\b(?:style|fluency|grammar|length|clarity|readability|creativity|detail(?:s|edness)?|language"
    r"|completeness|coverage|coherence|relevance|confidence|certainty|wording|writing|vividness"
    r"|tone|structure|conciseness|aesthetics?|originality|richness|errors?|mistakes?|omissions?"
    r"|hallucinations?|fabrications?|contradictions?|max(?:imum)?"
    r"|(?:in|un|mis)(?:accura|faithful|correct|fidel|represent)\w*)\b",
    re.IGNORECASE,
)
_N = r"(?<![\w.,/+−–-])(?P<n>\d{1,9}(?:\.\d{1,9}|,\d{1,2})?)"
_ALONE = r"(?!\s?[/−–—-]\s?\d|(?![分点점])[\w%+½¼¾⁄]|[.,]\d)"
_GOES_ON = (
    r"(?:because|since|as|for|due|given|on|overall|points?|stars?|in|with|is my|is what|and"
    r"|but|although|though|while)\b"
)
_END = rf"(?=\s*(?:$|[.,;:!()\n。—–-]|{_GOES_ON}|分|点|점|(?-i:[A-Z])))"
_SCALE = re.compile(
    r"(?<![\d.,])[01]\s?(?:-|–|—|to|and|through|\.\.|bis|à|a)\s?10(?![\d/]|[.,]\d)", re.IGNORECASE
)
_FILLER = (
    r"(?:[\s:=()–—-]|\b(?:it|this|that|the|description|paragraph|image|text|an?|as|at|of|is"
    rf"|would|be|was|to|my|with|i|final|overall|{_FAITHFUL}|for|score|rating|solid|firm|strong|scale)\b){{0,40}}?"
)
_STATED = (
    # "9/10", "9 out of 10"
    re.compile(
        rf"{_N}\s?\(?(?:/|out of|von|sur|de)\s?10(?:\.0)?(?![\d/%]|[.,]\d)\)?"
        rf"(?=\s*(?:$|[^\w\s]|{_GOES_ON}|(?-i:[A-Z])))",
        re.IGNORECASE,
    ),
    # "Score: 9", "I would rate it an 8 because", "On a scale from 0 to 10: 4"
    re.compile(
        r"(?:\b(?:scored?|rating|rated?|grade|answer|verdict|give|assign|say|scale|note|punkte"
        r"|deserves|merits|earns|gets|go (?:with|for)"
        rf"|bewertung|{_FAITHFUL})\b|评分|得分|分数|評価|スコア|점수)"
        rf"{_FILLER}{_N}(?:\s(?:of|out of)\s10\b|{_ALONE}){_END}",
        re.IGNORECASE,
    ),
    # "On a scale from 0 to 10, this is a 4"
    re.compile(
        r"\bscale\b[\s:,]*(?:(?:it|this|that|the|description|paragraph|is|would|be|i|give|rate|an?|as"
        rf"|at|my|score|rating|it's|i'd|say)\b[\s:,]*){{0,8}}{_N}{_ALONE}{_END}",
        re.IGNORECASE,
    ),
    # on a line of its own
    re.compile(rf"^[ \t]*\(?{_N}{_ALONE}\)?[ \t]*[.!。:]?[ \t]*$", re.MULTILINE),
    # "A solid 7." and nothing else
    re.compile(
        r"\A\W*(?:(?:an?|the|solid|strong|firm|clear|definitely|clearly|easily|certainly|it's|is|this)"
        rf"\s+){{1,4}}{_N}{_ALONE}\s*[.!]*\s*\Z",
        re.IGNORECASE,
    ),
    # "9, because", "9 (not perfect)", "9. The text"; but "1. The text" may begin a list
    re.compile(
        rf"\A\s*(?!1\.){_N}{_ALONE}(?=[.,;!。](?!\s*\d)|\s*\(\D|\s*points?\W*\Z"
        r"|\s+(?:because|since|as|for|due to|given|but|although|though)\b)",
        re.IGNORECASE,
    ),
    # "9: The description", where no other number tells that it explains the scale
    re.compile(rf"\A\s*(?!1\b){_N}{_ALONE}(?=\s?[:)]\s\D*\Z|\s[-–—]\s\D*\Z)"),
    re.compile(
        rf"\A\s*{_N}{_ALONE}(?=\s*(?:on (?:a|the) (?:10[- ]point )?scale|分|点|점))", re.IGNORECASE
    ),
)
_CORRECTED = re.compile(
    r"(?:\b(?:sorry|no|wait|actually|correction|rather|i mean|make (?:it|that)|scratch that"
    r"|on (?:second thought|reflection)|(?:change|correct|lower|raise|revise) (?:it|that|this"
    r"|my (?:score|rating)|the score)|corrected|revised|final)\b[\s,:;.…—–-]*"
    r"(?:(?:it|that|this|the|my|final|score|rating|should|be|is|it's|that's|i|would|give|say|mean"
    r"|make|an?|to|no|wait|sorry|actually|rather|answer)\b[\s,:;.…—–-]*){0,8}|→|->)\s*"
    rf"{_N}(?:\s?(?:/|out of)\s?10)?{_ALONE}(?=\s*(?:$|[.,;:!)\n。—–-]))",
    re.IGNORECASE,
)
# What in the same clause before a number takes it back.
_DENIED = re.compile(
    r"\b(?:not|never|hardly|barely|almost|nearly|hesitat\w*|tempted|refuse|decline|instead of"
    r"|rather than|short of|(?:less|more|lower|higher|better|worse|fewer|greater) than|under|below"
    r"|above|over|at (?:least|most)|up to|no (?:score|rating)|un(?:clear|known|sure|certain)"
    r"|previous|was going|wanted|worth)\b|n't\b",
    re.IGNORECASE,
)
# What in the same sentence makes it a thought.
_IF = re.compile(
    r"\b(?:if|unless|were|but for|had it|otherwise|(?:could|might|may|can|should) (?:be|get|have|"
    r"score|deserve|earn|reach)|would have|would (?:deserve|need|require|earn|reach|get|take))\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\A[\s)]*(?:would|is|seems|was|were|may be|might be)(?: be)?\s*(?:n't|not|too|far|wrong|out)\b"
    r"|\A\s*\?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[,;:.!?()\n。—–]|\s-\s|\b(?:so|but|and|because|since|therefore|hence|thus|though|although)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?;。](?=\s|$)|\n")
_PAIR = re.compile(
    r"\d(?:\s?/\s?10)?[ \t,;]*(?:[-–—]|\b(?:to|or|and|maybe|perhaps|possibly)\b)[ \t,]*"
    r"(?:(?:maybe|perhaps|possibly|even|an?) )?\d",
    re.IGNORECASE,
)
_TAG = re.compile(r"<(?:(score|rating|grade|faithfulness)|/\w+)>", re.IGNORECASE)
# A number that says nothing but itself, such as "6" in "8. On second thoughts, 6."; the "1." of a
# list and the minutes of a time are none.
_BARE = re.compile(rf"(?<!\d:)(?!(?<=\n)\d{{1,2}}[.)]\s){_N}{_ALONE}(?=\s*(?:$|[.!;\n)]))")
_MOST_NUMBERS = 100  # that may be scores; each is looked at with all the text before it
_WORDS = "zero one two three four five six seven eight nine ten".split()


def parse_score(reply: Reply) -> int | Failure:
    """The one whole number from 0 to 10 that a reply states; numbers in passing do not count.

    >>> parse_score(Reply("There are 2 dogs, so 9/10")), parse_score(Reply("7. Sorry, 5."))
    (9, 5)
    >>> [str(parse_score(Reply(text))) for text in ("Score: 7 or 8/10", "8.5", "Not an 8.")]
    ['unreadable (several numbers)', 'unreadable (8.5 is no whole number)', 'unreadable (no score)']
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    truncated = reply.ending == "truncated"
    found = find_json(text, truncated)
    if isinstance(found, tuple):
        value = _json_score(found[1])
        if value is None:
            return Failure("unreadable", "JSON without a score")
        text, truncated = value, False
    text = _plain_digits(text)
    if opens_as_refusal(text) or holds_refusal(_CORRECTED.sub("", text)):
        return Failure("refusal")
    plain = _SCALE.sub("scale", re.sub(r"\\boxed\b|[*_`$\"\[\]{}]", "", text))
    score = _stated(plain, truncated, reply.ending == "unsaid" and not isinstance(found, tuple))
    unstated = isinstance(score, Failure) and score.kind != "truncated"
    if (score == 0 or unstated) and mentions_refusal(text):
        return Failure("refusal")
    return score


def _plain_digits(text: str) -> str:
    """Full-width and circled digits, and those on keys, as plain ones; `<score>7` as `score: 7`."""
    text = text.translate(_FULL_WIDTH).replace("\ufe0f", "").replace("\u20e3", "")
    text = text.replace("\U0001f51f", "10").replace("’", "'")
    text = _TAG.sub(lambda found: f"{found[1]}: " if found[1] else "\n", text)
    return _SPECIAL_DIGIT.sub(lambda found: str(int(unicodedata.numeric(found[0]))), text)


def _json_score(value: Any) -> str | None:
    """The score in JSON as text: the only value, or the one under "score" or "rating"."""
    if isinstance(value, tuple):
        alone = len(value) == 1 and not _OTHER.search(value[0][0].replace("_", " "))
        names = ("score", "rating", "faithfulness", "faithfulness_score")
        values = [v for k, v in value if alone or k.lower() in names]
        value = values[0] if len(values) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return str(value)


def _stated(text: str, truncated: bool, unsaid: bool) -> int | Failure:
    word = re.sub(r"[\W_]+", " ", text).strip().lower()
    if word in _WORDS:
        return _WORDS.index(word)
    found = [match for pattern in _STATED for match in pattern.finditer(text)]
    if len(found) > _MOST_NUMBERS:
        return Failure("unreadable", "several numbers")
    found = [match for match in found if _counts(match, text)]
    corrections = [m for m in _CORRECTED.finditer(text) if _counts(m, text, corrected=True)]
    if corrections and (found or re.match(r"\s*\d", text)):
        found = [max(corrections, key=lambda match: match.start("n"))]
    if not found:
        return Failure("truncated" if truncated else "unreadable", "no score")
    if any(_may_go_on(match, text, truncated, unsaid) for match in found):
        return Failure("truncated", "the number may go on")
    pairs = [pair.span() for pair in _PAIR.finditer(text)]
    numbers = {float(match["n"].replace(",", ".")) for match in found}
    if not corrections:
        numbers |= _revisions(text, max(match.end("n") for match in found), numbers)
    in_pair = any(a < m.end("n") and m.start("n") < b for a, b in pairs for m in found)
    if in_pair or len(numbers) > 1:
        return Failure("unreadable", "several numbers")
    number = numbers.pop()
    if number > 10:
        return Failure("unreadable", f"{number:g} is not within 0 to 10")
    if not number.is_integer():
        return Failure("unreadable", f"{number:g} is no whole number")
    return int(number)


def _revisions(text: str, start: int, stated: set[float]) -> set[float]:
    """Numbers behind a score that may take its place, though no word says so."""
    found = set[float]()
    for match in _BARE.finditer(text, start):
        begins = max((m.end() for m in _CLAUSE.finditer(text, 0, match.start("n"))), default=0)
        alone = len(text[begins : match.start("n")].split()) < 2
        number = float(match["n"].replace(",", "."))
        if alone and number <= 10 and number not in stated and _counts(match, text):
            found.add(number)
    return found


def _may_go_on(match: re.Match[str], text: str, truncated: bool, unsaid: bool) -> bool:
    """Whether a number at the end of a reply may lack its last digits, as 1 of 10 does."""
    at_end = re.fullmatch(r"[.,/]?", text[match.end() :]) is not None
    return at_end and (truncated or (unsaid and match["n"] == "1"))


def _counts(match: re.Match[str], text: str, *, corrected: bool = False) -> bool:
    """Whether the words around a number let it stand: no denial, no condition, no other matter.

    What "should be" is a thought, or else a correction.
    """
    start, end = match.span("n")
    sentence = max((m.end() for m in _SENTENCE.finditer(text, 0, start)), default=0)
    stop = _SENTENCE.search(text, end)
    behind = text[end : stop.start() if stop else len(text)]
    before = text[sentence:start]
    clause = before[max((m.end() for m in _CLAUSE.finditer(before)), default=0) :]
    behind = re.sub(r"^\s?\(?(?:/|out of)\s?10\)?", "", behind)
    if _DENIED.search(clause) or _TAKEN_BACK.search(behind):
        return False
    last_comma = before.rfind(",") + 1
    if (not corrected and _IF.search(before[last_comma:])) or re.match(
        r"[^,;:]*\b(?:if|unless)\b", behind, re.I
    ):
        return False
    if re.search(r"\bif\b[^,;]*,[^,;]*$", before, re.I):
        return False
    given_to = _criterion(before)
    if named := re.match(r"\s*(?:points? )?(?:for|in|on) (?:(?:its|the) )?(\w+)", behind, re.I):
        given_to = named[1]
    return _OTHER.search(given_to) is None or re.search(_FAITHFUL, given_to, re.I) is not None


def _criterion(before: str) -> str:
    """What a number is given to: the words before it, back to the number before that."""
    return re.split(r"\d|[,;.]", re.sub(r"[\s:,]+$", "", before))[-1]
