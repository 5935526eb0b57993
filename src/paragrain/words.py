"""Words and sentences of a text, by rules that fit in two patterns; and what people are told."""

import re

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""A letter of a script that is written without spaces (Thai, Lao, Burmese, Khmer, Chinese, ...)."""

SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s|$)|[。！？｡।؟۔]+[\"'”’»)\]」』]*")
"""Full stops, with the quotes and brackets that close behind them. No list of abbreviations: a
sentence ends after "e.g." too."""

_WORD = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\S)+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each word: what stands between white space, punctuation included.

    In scripts without spaces each letter is a word. Where a sentence ends, so does its last word.

    >>> text = "A well-known  star. 赤い"
    >>> [text[a:b] for a, b in word_spans(text)]
    ['A', 'well-known', 'star.', '赤', 'い']
    """
    return [
        found.span()
        for start, end in sentence_spans(text)
        for found in _WORD.finditer(text, start, end)
    ]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence, by `SENTENCE_END`; what is left at the end is one too.

    >>> text = 'It is 2.5 m. "A star!"  A ring'
    >>> [text[a:b] for a, b in sentence_spans(text)]
    ['It is 2.5 m.', '"A star!"', 'A ring']
    """
    spans, start = [], 0
    for end in [*(found.end() for found in SENTENCE_END.finditer(text)), len(text)]:
        part = text[start:end]
        ink = len(part.strip())
        if ink:
            first = start + len(part) - len(part.lstrip())
            spans.append((first, first + ink))
        start = end
    return spans


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with its full stop.

    >>> sentences("A red star. A blue moon!  A ring")
    ['A red star.', 'A blue moon!', 'A ring']
    """
    return [text[start:end] for start, end in sentence_spans(text)]


def printable(text: str) -> str:
    """A stranger's text for a terminal: what would move its cursor is spelled out.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(34), duration(300), duration(40_000)
    ('34 s', '5 min', '11.1 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} hours"


def counted(number: int, thing: str) -> str:
    """A number of things whose plural ends in s.

    >>> counted(1, "image"), counted(1200, "image")
    ('1 image', '1,200 images')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
