"""What an audit found, in numbers, as tables and as a page with pictures."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.files import replacing, write_json, write_text
from paragrain.images import BadImage, decode
from paragrain.pages import Block, Gallery, Heading, Picture, Text, page
from paragrain.tables import Table

REASONS = {
    "id": "the same id",
    "url": "the same URL",
    "bytes": "identical files",
    "pixels": "identical pixels in different files",
    "near": "near duplicates: they look the same",
    "embedding": "embeddings at a cosine above the threshold",
    "text": "a text in common, but for case and punctuation",
    "near text": "nearly the same text",
}
"""Every reason, with what it means. A pair has one of bytes, pixels, near and embedding, the
strongest; the others come beside."""

IMAGE_REASONS = ("id", "url", "bytes", "pixels", "near", "embedding")
"""The reasons that tell of images."""

NOT_FOUND = (
    "Not found: copies that are mirrored or turned, negatives, cropped or framed by more than about"
    " 5 % at an edge, with an inscription over more than a seventh of the picture; of pictures that"
    " are partly plain (drawings, products on white) cropped, framed and written-on ones; two flat"
    " pictures, unless their pixels are equal; and pictures that differ in so little that JPEG"
    " artefacts are larger count as copies. Texts of fewer than 8 words are found when they are"
    " equal, not when they are nearly so."
)
"""What the audit does not see, for every report."""

SHOWN = 200
_THUMBNAIL = (200, 200)


@dataclass(frozen=True, slots=True)
class Finding:
    """One pair.

    Attributes:
        train: id in TRAIN; within one collection, the earlier one.
        evaluation: id in EVAL.
        reason: one of `REASONS`.
        closeness: 1 where something is equal; for `near`, 1 minus the difference of the two tiny
            copies in grey (root mean square, 1 is white against black); for `embedding` the
            cosine; for `near text` the Jaccard index of the shingles.
    """

    train: str
    evaluation: str
    reason: str
    closeness: float


@dataclass(eq=False, repr=False)
class AuditReport:
    """What EVAL shares with TRAIN, or one collection with itself.

    Attributes:
        findings: sorted by reason, from the closest, then by the order of the collections.
        totals: pairs of each reason, those too that are not listed (see `record_pairs.PARTNERS`).
        train, evaluation: name, folder, split and number of records of either side.
        flat: ids of pictures of one colour or nearly so, of either side.
        refused: pairs with near hashes that the closer look told apart.
        failed: (collection, id, reason) of images that cannot be used.
        settings: thresholds, and the encoder if there was one.
        within: whether one collection, or split, was compared with itself.
    """

    findings: list[Finding]
    totals: dict[str, int]
    train: dict[str, Any]
    evaluation: dict[str, Any]
    flat: tuple[list[str], list[str]]
    refused: int
    failed: list[tuple[str, str, str]]
    settings: dict[str, Any]
    within: bool
    not_found: str = NOT_FOUND
    _sources: tuple[Collection, Collection] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """What was compared, and the pairs found by reason."""
        sides = f"{self.train['name']} and {self.evaluation['name']}"
        pairs = ", ".join(
            f"{count:,} by {reason}" for reason, count in self.totals.items() if count
        )
        return f"<audit of {sides}: {pairs or 'no'} pairs>"

    def overlapping(self, reasons: Iterable[str] = IMAGE_REASONS) -> frozenset[str]:
        """Ids of EVAL (within one collection, of either side) that some finding names."""
        wanted = set(reasons)
        own = {f.evaluation for f in self.findings if f.reason in wanted}
        if self.within:
            own |= {f.train for f in self.findings if f.reason in wanted}
        return frozenset(own)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each reason: all pairs, those that are listed, and the records of EVAL in them."""
        listed = Counter(finding.reason for finding in self.findings)
        return {
            reason: {
                "pairs": self.totals.get(reason, 0),
                "listed": listed[reason],
                "records": len(self.overlapping([reason])),
            }
            for reason in REASONS
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "train": self.train,
            "evaluation": self.evaluation,
            "within": self.within,
            "overlapping": len(self.overlapping()),
            "counts": self.counts(),
            "flat": {"train": len(self.flat[0]), "evaluation": len(self.flat[1])},
            "refused": self.refused,
            "failed": [list(item) for item in self.failed],
            "settings": self.settings,
            "not_found": self.not_found,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def write(self, folder: Path) -> None:
        """Write `audit.json`, `findings.csv` and `audit.html`, which shows up to 200 pairs."""
        write_json(folder / "audit.json", {**self.as_dict(), "flat_ids": list(self.flat)})
        with (
            replacing(folder / "findings.csv") as temporary,
            temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(["train", "evaluation", "reason", "closeness"])
            for f in self.findings:
                writer.writerow([f.train, f.evaluation, f.reason, f"{f.closeness:.4f}"])
        write_text(folder / "audit.html", self.page())

    def page(self, shown: int = SHOWN) -> str:
        """An HTML page: the counts, and pictures of up to `shown` pairs, of every reason some."""
        rows = [
            (REASONS[reason], count["pairs"], count["listed"], count["records"])
            for reason, count in self.counts().items()
        ]
        head = ["what", "pairs", "listed", "records of EVAL"]
        notes = [
            f"{len(self.overlapping()):,} of {self.evaluation['records']:,} records of "
            f"{self.evaluation['name']} share an image with {self.train['name']}.",
            f"{len(self.flat[0]):,} and {len(self.flat[1]):,} pictures are flat and were compared "
            f"by their pixels only. {self.refused:,} pairs have near hashes and were told apart by "
            f"the closer look. {len(self.failed):,} images cannot be used.",
            self.not_found,
        ]
        broken = [f"{where}, {id}: {reason}" for where, id, reason in self.failed[:SHOWN]]
        return page(
            f"What {self.evaluation['name']} shares with {self.train['name']}",
            [
                Table("A record is listed with at most 10 others, or somewhat more.", head, rows),
                *map(Text, notes),
                *(Text(line, dim=True) for line in broken),
                *self._shown(shown),
            ],
        )

    def _shown(self, count: int) -> Iterator[Block]:
        if self._sources is None:
            return
        by_reason = {reason: [f for f in self.findings if f.reason == reason] for reason in REASONS}
        present = [reason for reason, found in by_reason.items() if found]
        for reason in present:
            yield Heading(REASONS[reason].capitalize())
            for finding in _evenly(by_reason[reason], count // len(present)):
                yield self._pair(finding)

    def _pair(self, finding: Finding) -> Gallery:
        assert self._sources is not None
        sides = zip(self._sources, (finding.train, finding.evaluation), strict=True)
        title = f"{finding.train} and {finding.evaluation}: {finding.reason}"
        title += f", {finding.closeness:.3f}"
        return Gallery([_picture(collection, id) for collection, id in sides], title, large=True)


def _evenly(findings: list[Finding], count: int) -> list[Finding]:
    """Up to `count` of them, the first and then at even steps: the closest and the doubtful."""
    step = max(1, -(-len(findings) // max(count, 1)))
    return findings[::step]


def _picture(collection: Collection, id: str) -> Picture:
    record = collection.get([id])[id]
    texts = [text[:200] for text in record.captions[:1]]
    try:
        image = decode(collection.image_bytes(record))
    except BadImage as error:
        return Picture(None, error.reason, texts)
    image.thumbnail(_THUMBNAIL)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return Picture(buffer.getvalue(), id, texts)
