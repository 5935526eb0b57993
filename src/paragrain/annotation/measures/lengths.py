"""Lengths of a collection's texts, in words and in tokens, against what encoders can read."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain.collection import Record
from paragrain.collection.fields import FIELDS, TEXT_FIELDS
from paragrain.progress import progress_bar
from paragrain.tables import Cell, Table

if TYPE_CHECKING:
    from paragrain.encoders import ImageTextEncoder

MAX_LENGTHS = (77, 128, 248, 512)
"""What CLIP reads, what paragraphs are truncated to here, what Long-CLIP and BLIP read."""

_BATCH = 4096
"""Texts that are tokenised together."""


def share(part: float, whole: int) -> float | None:
    """`part / whole`; None where there is no whole."""
    return part / whole if whole else None


def distribution(lengths: Sequence[int] | np.ndarray) -> dict[str, Any] | None:
    """Mean, 5th percentile, median, 95th percentile and maximum, then percentiles 0 to 100.

    Percentiles are interpolated between neighbours. None if there are no lengths.

    >>> distribution([1, 2, 4, 9])["median"]
    3.0
    """
    if not len(lengths):
        return None
    values = np.asarray(lengths)
    percentiles = np.percentile(values, np.arange(101)).tolist()
    return {
        "mean": float(values.mean()),
        "p5": percentiles[5],
        "median": percentiles[50],
        "p95": percentiles[95],
        "max": int(values.max()),
        "percentiles": percentiles,
    }


@dataclass
class TextLengths:
    """Lengths of all texts of a collection, by the names of `TEXT_FIELDS`.

    Attributes:
        encoder: name of the encoder whose tokenizer counted.
        words: for each text, its parts between white space; int32.
        tokens: for each text, all its tokens, special tokens included; int32.
        empty: how many texts of nothing but white space were left out.
    """

    encoder: str
    words: dict[str, "array[int]"]
    tokens: dict[str, "array[int]"]
    empty: Counter[str] = field(default_factory=Counter)

    def longer(self, name: str) -> dict[int, int]:
        """For each of `MAX_LENGTHS`, how many texts have more tokens and would be truncated."""
        tokens = np.asarray(self.tokens[name])
        return {limit: int((tokens > limit).sum()) for limit in MAX_LENGTHS}

    def shares_longer(self, name: str) -> dict[int, float | None]:
        """The same as shares from 0 to 1; None without texts."""
        number = len(self.tokens[name])
        return {limit: share(count, number) for limit, count in self.longer(name).items()}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kinds = {
            name: {
                "texts": len(words),
                "empty": self.empty[name],
                "words": distribution(words),
                "tokens": distribution(self.tokens[name]),
                "share_longer_than": {str(k): v for k, v in self.shares_longer(name).items()},
            }
            for name, words in self.words.items()
        }
        return {"encoder": self.encoder, "kinds": kinds}

    def tables(self) -> list[Table]:
        """Words and tokens of each kind that has texts."""
        header = ("texts", "number", "mean", "5th percentile", "median", "95th percentile")
        rows: dict[str, list[Sequence[Cell]]] = {"words": [], "tokens": []}
        for name, kind in self.as_dict()["kinds"].items():
            if kind["texts"]:
                shares = [100 * share for share in kind["share_longer_than"].values()]
                for unit, more in (("words", []), ("tokens", shares)):
                    *row, _ = kind[unit].values()
                    rows[unit].append((name, kind["texts"], *row, *more))
        longer = (f"over {limit}, %" for limit in MAX_LENGTHS)
        title = f"Tokens of {self.encoder}, special tokens included"
        return [
            Table("Words", (*header, "longest"), rows["words"]),
            Table(title, (*header, "longest", *longer), rows["tokens"]),
        ]


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
    names = sorted(TEXT_FIELDS, key=lambda name: FIELDS[name].negative)  # what is true comes first
    words, tokens = ({name: array("i") for name in names} for _ in range(2))
    lengths = TextLengths(encoder.name, words, tokens)
    batches: dict[str, list[str]] = {name: [] for name in names}

    def tokenize(name: str) -> None:
        counts = encoder.tokenize(batches[name], encoder.max_tokens).lengths
        tokens[name].frombytes(counts.tobytes())
        batches[name].clear()

    with progress_bar("measuring texts", total, unit="records", show=progress) as advance:
        for record in records:
            for name, batch in batches.items():
                for text in record.texts(name):
                    if number := len(text.split()):
                        words[name].append(number)
                        batch.append(text)
                    else:
                        lengths.empty[name] += 1
                    if len(batch) == _BATCH:
                        tokenize(name)
            advance()
    for name in names:
        tokenize(name)
    return lengths
