"""All statistics of a collection's texts at once: `annotate stats`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragrain.annotation.measures.agreement import Agreement, agreement
from paragrain.annotation.measures.lengths import Table, TextLengths, text_lengths
from paragrain.annotation.measures.plots import write_stats_page
from paragrain.annotation.measures.samples import samples
from paragrain.annotation.measures.statistics import AnnotationStatistics, annotation_statistics
from paragrain.collection import Collection
from paragrain.collection.fields import TEXT_FIELDS
from paragrain.errors import ParagrainError
from paragrain.files import read_json

if TYPE_CHECKING:
    from paragrain.encoders import ImageTextEncoder


@dataclass(frozen=True)
class Overview:
    """What the texts of a collection are like.

    Attributes:
        lengths: of all texts, in words and tokens.
        annotation: who wrote them, and how they were scored.
        agreement: of the latest third judge that `check` asked, if any.
        judges: names of the judges that are compared there.
        page: a page with tables and plots; the plots lie beside it as PNG files.
    """

    lengths: TextLengths
    annotation: AnnotationStatistics
    agreement: Agreement | None
    judges: tuple[str, str]
    page: Path

    def tables(self) -> list[Table]:
        """All that was found, as tables."""
        tables = self.lengths.tables() + [t for t in self.annotation.tables() if t.rows]
        return tables + ([self.agreement.table()] if self.agreement else [])

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "lengths": self.lengths.as_dict(),
            "annotation": self.annotation.as_dict(),
            "agreement": self.agreement and self.agreement.as_dict(),
            "judges": list(self.judges),
            "page": str(self.page),
        }


def overview(
    collection: Collection,
    encoder: "ImageTextEncoder",
    *,
    split: str | None = None,
    progress: bool = True,
) -> Overview:
    """Measure the texts of a collection, and write a page with plots into `annotation/stats`.

    Args:
        collection: annotated or not.
        encoder: its tokenizer counts the tokens.
        split: of this split only.
        progress: whether to show progress.
    """
    total = len(collection.ids(split))
    records = collection.records(split, fields=TEXT_FIELDS)
    lengths = text_lengths(records, encoder, total=total, progress=progress)
    made = annotation_statistics(collection.records(split, fields=["annotation"]))
    found, judges = _latest_check(collection.folder / "annotation")
    folder = collection.folder / "annotation" / "stats"
    name = collection.folder.resolve().name
    shown = samples(collection, split)
    page = write_stats_page(folder, name, lengths, made, found, judges, shown)
    return Overview(lengths, made, found, judges, page)


def _latest_check(folder: Path) -> tuple[Agreement | None, tuple[str, str]]:
    """What the latest `check` found, and the names of the judges."""
    files = sorted(folder.glob("check-*.json"), key=lambda path: path.stat().st_mtime)
    if not files:
        return None, ("", "")
    try:
        value = read_json(files[-1])
        _, first, second = zip(*value["rows"], strict=True)
        judges = (", ".join(value["first_judges"]) or "the judge", value["judge"])
        return agreement(first, second, seed=value["seed"]), judges
    except (ValueError, KeyError, TypeError) as error:
        raise ParagrainError(
            f"{files[-1]} cannot be read ({error}): delete it, or run `annotate check` again"
        ) from error
