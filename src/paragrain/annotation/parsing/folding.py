"""What a text shows of itself: that it equals another, is no whole sentence, or is wrong."""

import re
import unicodedata

from paragrain.annotation.parsing.cleaning import (
    blemish,
    count_words,
    first_quotation,
    tidy,
    unquoted,
)
from paragrain.annotation.parsing.leftovers import keeps_note, loops, without_notes

_COMPARED = 2000  # characters; sorting long runs of combining marks would take quadratic time
_ARTICLES = frozenset("a an the".split())
_OPENINGS = tuple(
    tuple(opening.split())
    for opening in (
        "photo of",
        "photograph of",
        "image of",
        "picture of",
        "photo shows",
        "photograph shows",
        "image shows",
        "picture shows",
        "this is",
        "there is",
        "there are",
        "theres",
        "this image of",
        "this photo of",
        "this picture of",
        "this image shows",
        "this photo shows",
        "this picture shows",
    )
)
_FIRST_WORDS = {opening[0] for opening in _OPENINGS}

_WRONG = r"(?:wrong|incorrect|false|inaccurate|mistaken|erroneous)"
_PICTURE = r"(?:image|caption|photo|photograph|picture|scene|description|version)"
_GIVES_AWAY = re.compile(
    rf"""
    [(\[]\s*(?:{_WRONG}|not\ (?:correct|accurate|true)|errors?|mistakes?|changed|actually|actual
        |original(?:ly)?|correct(?:ion|ed)?|should|instead|hard\ negative)\b
    | \bshould\ (?:actually\ |really\ |instead\ )?(?:be|have\ been)\b
    | \b(?:instead\ of|rather\ than)\ the\ (?:actual|original|real|correct|true)\b
    | \b(?:original|actual|given|provided|{_WRONG})\ {_PICTURE}\b
    | ^(?:{_WRONG}|hard\ negative|negative|error|mistake|changed?)
        (?:(?:\ \w+){{0,2}}\s*:|\ ?[-–—]\s)
    | ^(?:\w+\ ){{1,3}}(?:change|changed|swap|swapped|error|mismatch)\s*:
    | \b(?:is|are|was|were)\ actually\b
    | \bunlike\ (?:in\ )?(?:the|this)\ {_PICTURE}\b
    | \bnot\ (?:shown|visible|present|seen|depicted|pictured)\ in\ (?:the|this)\ {_PICTURE}\b
    | [-=]>|→
    """,
    re.VERBOSE,
)


_TOLD = r"(?:described|mentioned|stated|suggested|noted|implied|claimed|indicated|given|captioned)"
_PROMPT_CAPTION = re.compile(
    rf"""
    \b(?:given|provided|original|accompanying|supplied|input|your|user['’]s)\ (?:\w+\ )?captions?\b
    | \b(?:the|your)\ (?:given|provided|supplied|input)\ (?:text|description|prompt)\b
    | \b(?:captions?|text|description|prompt)\ (?:provided|given|supplied)\b
    | \bas\ {_TOLD}\b(?!\ by\ the\ (?:sign|label|poster|clock))
    | \b{_TOLD}\ (?:in|by)\ the\ (?:\w+\ )?(?:caption|prompt|description)\b
    | \b(?:contrary\ to|unlike|according\ to|despite|based\ on)
        \ the\ (?:caption|prompt|description)\b
    | \bthe\ caption(?:['’]s|\ (?:says|states|mentions|describes|suggests|indicates|claims|implies
        |refers|provided|given|does|correctly|incorrectly|accurately))\b
    | \balt[- ]text\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CAPTION = re.compile(
    r"\bthe captions?\b(?! (?:below|above|beneath|under|at the|on the|on a|in the))", re.I
)
_PICTURED_CAPTION = re.compile(r"\b(?:an?|with|has|whose) (?:(?!the\b)\w+ ){0,2}captions?\b", re.I)

LONGEST_ITEM = 2000
"""Characters of an item, before it is cleaned; far more than `MOST_WORDS` take."""

MOST_WORDS = 80
"""Words of an item."""

_CAPTION_WORD = r"(?:captions?|items?|sentences?|descriptions?|negatives?|options?)"
_PLACEHOLDER = re.compile(
    rf"[\[<({{][^\[\]<>(){{}}]*[\]>)}}]|(?:n/?a|none|tbd|same as above|no caption)\W*"
    r"|(?:(?:your|insert|the|an?|first|second|third|fourth|fifth|another|hard|incorrect|correct"
    rf"|new)\s)*"
    rf"{_CAPTION_WORD}(?:\s(?:text|goes|here|#?\d+))*\W*",
    re.IGNORECASE,
)
_UNENDED = re.compile(r"(?:[,:;–—([-]|\.\.|…)[\"'”’»]?$")
_HALF_MARKED = re.compile(r"^[*_`|]|[*_`|]$")
# Behind a full stop, not behind "U.S.".
_REMARK = re.compile(
    r"(?<![\W_]\w)[.!?。！？][\"'”’»]*\s*(?:[(\[]|[-–—]+>?\s|=>|→)"
    r"|[.!?)\]。！？]\s*(?:explanation|reason|rationale|note|why|correction|original|actual)\s?:",
    re.IGNORECASE,
)
_FAREWELL = re.compile(
    r"(?<=[.!?。！？\"”)])\s+(?:(?:please )?let me know|i hope (?:this|these|that)"
    r"|hope (?:this|these)|feel free to|would you like (?:me|to)|do you (?:want|need) me"
    r"|if you(?:['’]d like| need| want| have any)|is there anything|i(?:['’]d| would) be happy)\b",
    re.IGNORECASE,
)
_BOLD_LABEL = re.compile(r"^\s*(\*\*|__|\*)(?!an? |the )([^\s*_][^*_:]{0,40})(?::\1|\1\s?:)\s+")
_PLAIN_LABEL = re.compile(
    r"^(?:(?:hard|incorrect|positive|correct|new)\s)?(?:caption|negative|sentence|description|item)"
    r"(?:\s#?\d{1,2})?\s?:\s+",
    re.IGNORECASE,
)
_RESIDUE = re.compile(r"^\s*[-–—•·]\s+|\s*\\+\s*$")  # a second mark; a line break of markdown
_TITLE_DASH = re.compile(r"^\s*(\*\*|__)[^*]{1,60}\1\s*[-–—]\s")


def clean_item(raw: str) -> tuple[str, str]:
    """An item without label, markdown and quotes, and why it cannot be used (else empty).

    >>> clean_item('**Caption 1:** "A *red* dog runs."'), clean_item("[caption 1]")
    (('A red dog runs.', ''), ('[caption 1]', 'a placeholder'))
    """
    if len(raw) > LONGEST_ITEM:
        return "", f"an item of {len(raw):,} characters"
    if _TITLE_DASH.match(raw):
        return "", "a title before the sentence"
    raw = _RESIDUE.sub("", _BOLD_LABEL.sub("", raw))
    text = unquoted(without_notes(_PLAIN_LABEL.sub("", tidy(raw))))
    if text is None:
        return "", "quotes that do not pair"
    text = without_notes(text)
    return text, _item_problem(text)


def _item_problem(text: str) -> str:
    """Why a tidied text cannot be a list item for certain; empty if it can."""
    words = count_words(text)
    if _PLACEHOLDER.fullmatch(text) or not any(char.isalnum() for char in text):
        return "a placeholder"
    if not 2 <= words <= MOST_WORDS:
        return f"an item of {words} words"
    if problem := blemish(text):
        return problem
    if _HALF_MARKED.search(text):
        return "markup"
    if _UNENDED.search(text) or any(text.count(a) > text.count(b) for a, b in ("()", "[]")):
        return "an item that does not end"
    closed = first_quotation(text)[1]
    behind = text[closed + 1 :].lstrip() if count_words(text[: closed + 1]) > 2 else ""
    if loops(text):
        return "the same words again and again"
    if keeps_note(text):
        return "a remark in the item"
    if _REMARK.search(text) or (behind and behind[0] != "," and not behind[0].islower()):
        return "a remark behind the sentence"
    return "a sign-off behind the sentence" if _FAREWELL.search(text) else ""


def without_farewell(text: str) -> str:
    """Without a "Let me know if ..." behind the last sentence."""
    found = _FAREWELL.search(text)
    return text[: found.start()] if found else text


def fold(text: str) -> str:
    """A key that is equal for sentences that differ only in trifles; of the first 2,000 characters.

    Trifles are case, width, punctuation, quotes, spaces, articles and openings such as "a photo
    of" or "there is".

    >>> fold("There is a RED dog, “asleep”!") == fold("the red dog asleep")
    True
    >>> fold("Two dogs") == fold("Three dogs")
    False
    """
    text = unicodedata.normalize("NFKC", text[:_COMPARED])
    text = unicodedata.normalize("NFKC", text.casefold())
    words = [word for word in text.translate(_KEPT).split() if word not in _ARTICLES]
    while words and words[0] in _FIRST_WORDS:
        shorter = next((words[len(o) :] for o in _OPENINGS if _starts(words, o)), [])
        if not shorter:
            break
        words = shorter
    return " ".join(words)


def gives_itself_away(negative: str) -> bool:
    """Whether a hard negative says that it is wrong; in doubt it does not.

    >>> gives_itself_away("A cat on a sofa (should be a dog)")
    True
    >>> gives_itself_away("A wrong way sign on a road")
    False
    """
    return _GIVES_AWAY.search(" ".join(negative.lower().split())) is not None


def mentions_caption(paragraph: str) -> bool:
    """Whether a paragraph speaks of the caption it was written from, not of one in the picture.

    >>> mentions_caption("The dog is red, unlike the caption says.")
    True
    >>> mentions_caption("A cartoon with a caption below. The caption reads 'Help'.")
    False
    """
    return _PROMPT_CAPTION.search(paragraph) is not None or (
        _CAPTION.search(paragraph) is not None and not _PICTURED_CAPTION.search(paragraph)
    )


class _Kept(dict[int, str]):
    """What `fold` makes of each character, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        kept = char
        if char in "'’ʼ‘" or category == "Cf":
            kept = ""
        elif category[0] in "PZ" or category in ("Sk", "Cc"):
            kept = " "
        self[code] = kept
        return kept


_KEPT = _Kept()


def _starts(words: list[str], opening: tuple[str, ...]) -> bool:
    return tuple(words[: len(opening)]) == opening
