"""`audit`: all comparisons of two collections, or of one with itself, in one report."""

from pathlib import Path
from typing import Any

import numpy as np

from paragrain.auditing.image_fingerprints import ImageFingerprints, image_fingerprints
from paragrain.auditing.near_duplicates import RADIUS, near_images
from paragrain.auditing.record_pairs import RecordPairs, closest, equal_pairs
from paragrain.auditing.report import REASONS, AuditReport, Finding
from paragrain.auditing.shared_strings import (
    equal_texts,
    near_texts,
    normalise_url,
    read_texts,
)
from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.loading import load_encoder
from paragrain.errors import UsageError
from paragrain.files import digest
from paragrain.retrieval import top_k

COSINE = 0.95
NEAR_TEXT = 0.6

_NEIGHBOURS = 10


def audit(
    train: str | Path | Collection,
    evaluation: str | Path | Collection | None = None,
    *,
    train_split: str | None = None,
    split: str | None = None,
    encoder: str | Path | ImageTextEncoder | None = None,
    cosine: float = COSINE,
    near_text: float = NEAR_TEXT,
    progress: bool = True,
) -> AuditReport:
    """Find what `evaluation` shares with `train`: ids, URLs, images and texts.

    Images are compared by their files' bytes, by their pixels once decoded, and by how they look
    (`near_images`); pictures of one colour by bytes and pixels only. What is computed of each
    image is kept beside its collection, so a second audit takes seconds.

    Args:
        train: what a model has learned from, or its folder.
        evaluation: what it is measured on; None for another split of `train`, or to compare it
            with itself.
        train_split, split: only these splits of `train` and of `evaluation`.
        encoder: compares image embeddings too, each image of EVAL with its 10 nearest; or its name.
        cosine: the least cosine of such a pair.
        near_text: the least Jaccard index of three-word shingles of nearly equal texts.
        progress: whether to show progress.

    Raises:
        UsageError: there is no such split, or a threshold is out of range.
    """
    for name, value in (("cosine", cosine), ("near_text", near_text)):
        if not 0 < value <= 1:
            raise UsageError(f"{name} must be above 0 and at most 1, not {value}")
    train = Collection.open(train)
    source = train if evaluation is None else Collection.open(evaluation)
    encoder = None if encoder is None else load_encoder(encoder)
    same = source.folder.resolve() == train.folder.resolve()
    within = same and train_split == split
    left = image_fingerprints(train, train_split, progress=progress)
    right = None if within else image_fingerprints(source, split, progress=progress)
    near, refused = near_images(left, right)
    found = {
        "bytes": _equal_images(left, right, "content"),
        "pixels": _equal_images(left, right, "pixels"),
        "near": near,
        "url": equal_pairs(_urls(train, train_split), None if within else _urls(source, split)),
    }
    texts = read_texts(train, _rows(left), train_split)
    others = None if right is None else read_texts(source, _rows(right), split)
    found["text"] = equal_texts(texts, others)
    found["near text"] = near_texts(texts, others, near_text)
    if right is not None and not same:
        found["id"] = equal_pairs(
            (_digests(left.ids), np.arange(len(left.ids))),
            (_digests(right.ids), np.arange(len(right.ids))),
        )
    if encoder is not None:
        found["embedding"] = _vectors(
            (train, train_split, left), (source, split, right), encoder, cosine, progress
        )
    sides = (left, left if right is None else right)
    findings, totals = _findings(found, sides, same)
    return AuditReport(
        findings,
        totals,
        _about(train, train_split, left),
        _about(source, split, sides[1]),
        (left.flat_ids, sides[1].flat_ids),
        refused,
        _failed(train, left) + ([] if right is None else _failed(source, right)),
        {
            "hash_radius": RADIUS,
            "near_text": near_text,
            **({} if encoder is None else {"cosine": cosine, "encoder": encoder.name}),
        },
        within,
        _sources=(train, source),
    )


def _equal_images(
    left: ImageFingerprints, right: ImageFingerprints | None, field: str
) -> RecordPairs:
    """Pairs of images whose fingerprints have the same `content`, or the same `pixels`."""
    other = None if right is None else (right.table[field], right.rows)
    return equal_pairs((left.table[field], left.rows), other)


def _urls(collection: Collection, split: str | None) -> tuple[np.ndarray, np.ndarray]:
    records = enumerate(collection.records(split, fields=("url",)))
    known = [(normalise_url(record.url), row) for row, record in records if record.url]
    told = [(url, row) for url, row in known if url]
    return _digests([url for url, _ in told]), np.array([row for _, row in told], np.int64)


def _digests(texts: list[str]) -> np.ndarray:
    """Texts of any length as keys of one."""
    return np.array([digest(text) for text in texts], "V16")


def _rows(prints: ImageFingerprints) -> dict[str, int]:
    return {id: row for row, id in enumerate(prints.ids)}


def _vectors(
    train: tuple[Collection, str | None, ImageFingerprints],
    other: tuple[Collection, str | None, ImageFingerprints | None],
    encoder: ImageTextEncoder,
    least: float,
    progress: bool,
) -> RecordPairs:
    """Pairs of images that are not flat and whose embeddings have a cosine of at least `least`."""
    sides = []
    for collection, split, prints in (train, other)[: 1 if other[2] is None else 2]:
        assert prints is not None
        embedded = embed(collection, encoder, split=split, progress=progress)
        flat = set(prints.flat_ids)
        kept = [n for n, id in enumerate(embedded.ids) if id not in flat]
        rows = _rows(prints)
        numbers = np.array([rows[embedded.ids[n]] for n in kept], np.int64)
        sides.append((numbers, embedded.vectors[kept]))
    (left, gallery), (right, queries) = sides[0], sides[-1]
    if not len(gallery) or not len(queries):
        return RecordPairs(np.zeros((0, 2), np.int64), np.zeros(0), 0)
    places, scores = top_k(queries, gallery, _NEIGHBOURS + (other[2] is None))
    query, rank = np.nonzero(scores >= least)
    pairs = np.stack([left[places[query, rank]], right[query]], axis=1)
    values = scores[query, rank].astype(np.float64)
    if other[2] is None:
        apart = pairs[:, 0] != pairs[:, 1]
        pairs, values = np.sort(pairs[apart], axis=1), values[apart]
    return closest(pairs, values)


def _findings(
    found: dict[str, RecordPairs], sides: tuple[ImageFingerprints, ImageFingerprints], same: bool
) -> tuple[list[Finding], dict[str, int]]:
    """All pairs as findings, of the reasons that tell of images' looks only the strongest."""
    weaker = {"pixels": ("bytes",), "near": ("bytes", "pixels")}
    weaker["embedding"] = ("bytes", "pixels", "near")
    keys = {reason: _keys(pairs.rows, len(sides[1].ids)) for reason, pairs in found.items()}
    findings: list[Finding] = []
    totals: dict[str, int] = {}
    for reason in (reason for reason in REASONS if reason in found):
        pairs = found[reason]
        known = [keys[stronger] for stronger in weaker.get(reason, ())]
        new = ~np.isin(keys[reason], np.concatenate([np.zeros(0, np.int64), *known]))
        own = _as_findings(pairs.rows[new], pairs.closeness[new], reason, sides, same)
        # What `bytes` counts is in the count of `pixels` too, listed or not.
        fewer = found["bytes"].total if reason == "pixels" else len(pairs.rows) - len(own)
        totals[reason] = max(pairs.total - fewer, len(own))
        findings += own
    return findings, totals


def _keys(rows: np.ndarray, width: int) -> np.ndarray:
    return rows[:, 0] * np.int64(width) + rows[:, 1]


def _as_findings(
    rows: np.ndarray,
    closeness: np.ndarray,
    reason: str,
    sides: tuple[ImageFingerprints, ImageFingerprints],
    same: bool,
) -> list[Finding]:
    order = np.lexsort((rows[:, 1], rows[:, 0], -closeness))
    seen: set[tuple[str, str]] = set()
    made: list[Finding] = []
    for (left, right), close in zip(rows[order].tolist(), closeness[order].tolist(), strict=True):
        one, other = sides[0].ids[left], sides[1].ids[right]
        if same:  # two splits of one collection, or all of it and a split, may hold the same pair
            if one == other or (other, one) in seen:
                continue
            seen.add((one, other))
        made.append(Finding(one, other, reason, round(close, 6)))
    return made


def _failed(collection: Collection, prints: ImageFingerprints) -> list[tuple[str, str, str]]:
    return [(collection.name, id, reason) for id, reason in prints.failed]


def _about(collection: Collection, split: str | None, prints: ImageFingerprints) -> dict[str, Any]:
    return {
        "name": collection.name,
        "split": split or "all",
        "fingerprint": collection.fingerprint,
        "records": len(prints.ids),
        "images": len(prints.rows),
    }
