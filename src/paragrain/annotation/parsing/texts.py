"""What a text shows of itself: notes on it, loops and echoes, equality with another, untruth."""

import re
import unicodedata

from paragrain.annotation.parsing.replies import (
    blemish,
    count_words,
    first_quotation,
    tidy,
    unquoted,
)

# --- what is no part of a text --------------------------------------------------------------------

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


# --- items and sentences --------------------------------------------------------------------------

_COMPARED = 2000  # characters; sorting long runs of combining marks would take quadratic time
_ARTICLES = frozenset("a an the".split())
_OPENINGS = [
    tuple(opening.split())
    for opening in (
        "photo of|photograph of|image of|picture of|photo shows|photograph shows|image shows"
        "|picture shows|this is|there is|there are|theres|this image of|this photo of"
        "|this picture of|this image shows|this photo shows|this picture shows"
    ).split("|")
]
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
        starts = (len(o) for o in _OPENINGS if tuple(words[: len(o)]) == o)
        shorter = words[next(starts, len(words)) :]
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
