"""Karpathy's splits of COCO, Flickr30k and Flickr8k: one JSON file with splits and captions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.errors import UsageError
from paragrain.files import read_json
from paragrain.sources.cells import Values
from paragrain.sources.listing import Listing, record_id
from paragrain.sources.names import base, stem
from paragrain.sources.registry import importer


@importer("karpathy")
def import_karpathy(
    file: Path,
    images: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring `dataset_coco.json`, `dataset_flickr30k.json` or `dataset_flickr8k.json` in.

    The id is `cocoid` as a string ("391895") where there is one, else the file's name without
    extension; captions are the sentences' `raw`, to the last character and in their order. Images
    are looked for as `filepath/filename` and as `filename` (see `Listing`); those without
    sentences stay. "restval" counts as "train", as in the papers that use these splits, and a
    note tells how many images that are.

    Args:
        file: the JSON file.
        images: the folder with the images, or with `val2014` and `train2014`.
        out: the collection's folder.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        options: see `WriteOptions`.

    Raises:
        UsageError: one of the paths does not hold what it should.
        ParagrainError: none of the images is there.
    """
    listing = Listing(file, images)
    name, entries = _read(file)
    restval = 0
    for number, entry in enumerate(entries, 1):
        where = f"image {number} of the list"
        restval += _add(listing, where, entry if isinstance(entry, dict) else {})
    if restval:
        listing.notes.append(f"{restval:,} images of the split restval count as train")
    return listing.write(
        out,
        name=name,
        source="karpathy",
        field="captions",
        texts=texts,
        **options,
    )


def _read(path: Path) -> tuple[str, list[Any]]:
    """The data set's name and its images."""
    try:
        content = read_json(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    content = content if isinstance(content, dict) else {}
    entries = content.get("images")
    if not isinstance(entries, list) or not any(
        isinstance(entry, dict) and "sentences" in entry for entry in entries
    ):
        raise UsageError(f"{path} is not in Karpathy's layout: its images need `sentences`")
    return record_id(content.get("dataset")) or "karpathy", entries


def _add(listing: Listing, where: str, entry: dict[str, Any]) -> bool:
    """Take one image in; whether it came in as a part of restval."""
    filename, filepath = entry.get("filename"), entry.get("filepath")
    names = [filename]
    if isinstance(filename, str) and isinstance(filepath, str) and filepath:
        names.insert(0, f"{filepath}/{filename}")
    id, split = record_id(entry.get("cocoid")), record_id(entry.get("split"))
    if id is None and isinstance(filename, str):
        id = record_id(stem(base(filename)))
    if split is None:
        listing.problems.append((id or where, "it has no valid split"))
        return False
    values: Values = {"split": "train" if split == "restval" else split}
    sentences = entry.get("sentences")
    sentences = sentences if isinstance(sentences, list) else []
    raw = [s.get("raw") if isinstance(s, dict) else s for s in sentences]
    if captions := listing.kept(id or where, raw):
        values["captions"] = captions
    before = len(listing.names)
    listing.add(where, id, names, values)
    return split == "restval" and len(listing.names) > before
