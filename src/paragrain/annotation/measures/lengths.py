"""Lengths of a collection's texts, in words and in tokens, against what encoders can read."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain.collection import Record
from paragrain.collection.fields import TEXT_FIELDS
from paragrain.progress import progress_bar
from paragrain.tables import Cell, Table

if TYPE_CHECKING:
    from paragrain.encoders import ImageTextEncoder

MAX_LENGTHS = (77, 128, 248, 512)
"""What CLIP reads, what paragraphs are truncated to here, what Long-CLIP and BLIP read."""

_BATCH = 4096
"""Texts that wait to be tokenised together."""


def share(part: float, whole: int) -> float | None:
    """`part / whole`; None where there is no whole."""
    return part / whole if whole else None


@dataclass(frozen=True)
class Spread:
    """How a length is spread over texts: its mean, and its 0th to 100th percentiles.

    >>> Spread.of(np.array([1, 2, 4, 9])).as_dict()["median"]
    3.0
    """

    mean: float
    percentiles: tuple[float, ...]

    @classmethod
    def of(cls, lengths: np.ndarray) -> "Spread":
        """The spread of one or more lengths; percentiles are interpolated between neighbours."""
        percentiles = np.percentile(lengths, np.arange(101))
        return cls(float(lengths.mean()), tuple(float(value) for value in percentiles))

    @property
    def row(self) -> tuple[float, float, float, float, int]:
        """Mean, 5th percentile, median, 95th percentile, longest."""
        low, middle, high = (self.percentiles[percent] for percent in (5, 50, 95))
        return self.mean, low, middle, high, int(self.percentiles[100])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("mean", "p5", "median", "p95", "max")
        row = dict(zip(names, self.row, strict=True))
        return {**row, "percentiles": list(self.percentiles)}


@dataclass(frozen=True)
class KindLengths:
    """Lengths of the texts of one kind.

    Attributes:
        texts: how many there are, those of nothing but white space left out.
        empty: how many were left out.
        words: spread of the parts between white space; None if there are no texts.
        tokens: spread of all tokens, special tokens included; None if there are no texts.
        longer: for each of `MAX_LENGTHS`, the texts with more tokens, which lose some of them.
    """

    texts: int
    empty: int
    words: Spread | None
    tokens: Spread | None
    longer: dict[int, int]

    def share_longer(self, max_length: int) -> float | None:
        """Share from 0 to 1 of the texts with more tokens; None without texts."""
        return share(self.longer[max_length], self.texts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "texts": self.texts,
            "empty": self.empty,
            "words": self.words and self.words.as_dict(),
            "tokens": self.tokens and self.tokens.as_dict(),
            "share_longer_than": {str(limit): self.share_longer(limit) for limit in self.longer},
        }


@dataclass(frozen=True)
class TextLengths:
    """Lengths of all texts, by the names of `TEXT_FIELDS`, in tokens of an encoder's tokenizer."""

    encoder: str
    kinds: dict[str, KindLengths]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kinds = {name: kind.as_dict() for name, kind in self.kinds.items()}
        return {"encoder": self.encoder, "kinds": kinds}

    def tables(self) -> list[Table]:
        """Words and tokens of each kind that has texts."""
        header = ("texts", "number", "mean", "5th percentile", "median", "95th percentile")
        words: list[Sequence[Cell]] = []
        tokens: list[Sequence[Cell]] = []
        for name, kind in self.kinds.items():
            if kind.words and kind.tokens:
                words.append((name, kind.texts, *kind.words.row))
                shares = (100 * (kind.share_longer(limit) or 0) for limit in MAX_LENGTHS)
                tokens.append((name, kind.texts, *kind.tokens.row, *shares))
        longer = (f"over {limit}, %" for limit in MAX_LENGTHS)
        title = f"Tokens of {self.encoder}, special tokens included"
        return [
            Table("Words", (*header, "longest"), words),
            Table(title, (*header, "longest", *longer), tokens),
        ]


class _Lengths:
    """Words and tokens of texts that come one by one; only the numbers are kept."""

    def __init__(self, encoder: "ImageTextEncoder") -> None:
        self.encoder = encoder
        self.words, self.tokens = array("i"), array("i")
        self.waiting: list[str] = []
        self.empty = 0

    def add(self, text: str) -> None:
        words = len(text.split())
        if not words:
            self.empty += 1
            return
        self.words.append(words)
        self.waiting.append(text)
        if len(self.waiting) == _BATCH:
            self.count()

    def count(self) -> None:
        """Tokenise what waits."""
        tokens = self.encoder.tokenize(self.waiting, self.encoder.max_tokens)
        self.tokens.frombytes(tokens.lengths.tobytes())
        self.waiting.clear()

    def done(self) -> KindLengths:
        self.count()
        words = np.frombuffer(self.words, dtype=np.int32)
        tokens = np.frombuffer(self.tokens, dtype=np.int32)
        longer = {limit: int((tokens > limit).sum()) for limit in MAX_LENGTHS}
        if not len(words):
            return KindLengths(0, self.empty, None, None, longer)
        return KindLengths(len(words), self.empty, Spread.of(words), Spread.of(tokens), longer)


def text_lengths(
    records: Iterable[Record],
    encoder: "ImageTextEncoder",
    *,
    total: int | None = None,
    progress: bool = False,
) -> TextLengths:
    """Measure all texts in words and in tokens, before any is truncated.

    Tokens are counted as the encoder counts them against its max_length: start and end token
    included. Only eight bytes a text are kept, so any number of records can be streamed.

    Args:
        records: such as `collection.records(fields=TEXT_FIELDS)`.
        encoder: whose tokenizer counts; its weights do nothing.
        total: number of records, for the time left.
        progress: whether to show progress.
    """
    lengths = {kind: _Lengths(encoder) for kind in TEXT_FIELDS}
    with progress_bar("measuring texts", total, unit="records", show=progress) as advance:
        for record in records:
            for kind, own in lengths.items():
                for text in record.texts(kind):
                    own.add(text)
            advance()
    return TextLengths(encoder.name, {kind: own.done() for kind, own in lengths.items()})
