"""COCO: a folder of images and a JSON file that lists them with their captions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.errors import UsageError
from paragrain.files import read_json
from paragrain.sources.cells import text_problem
from paragrain.sources.listing import Listing, record_id
from paragrain.sources.names import shown
from paragrain.sources.photo import said
from paragrain.sources.registry import importer


@importer("coco")
def import_coco(
    images: Path,
    captions: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    split: str | None = None,
    name: str = "coco",
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring a data set in COCO's layout into a collection.

    `captions` is JSON like `captions_val2017.json`: `images` with `id` and `file_name`, and
    `annotations` with `image_id` and `caption`. Ids are kept as strings ("397133"), captions to
    the last character and in the order of the file. An image without captions stays. Images
    whose file is missing, annotations of images that are not listed, and empty captions are
    named among the skipped. An annotation's `image_id` may be written in another way (`7`, `7.0`,
    `"0007"`) if only one id is that number.

    Args:
        images: the folder that `file_name` starts from.
        captions: the JSON file.
        out: the collection's folder.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        split: of all images for which `texts` does not say another.
        name: of the data set.
        options: see `WriteOptions`.

    Raises:
        UsageError: one of the paths does not hold what it should.
        ParagrainError: none of the images is there.
    """
    listing = Listing(captions, images)
    listed, annotations = _read(captions)
    for place, entry in enumerate(listed, 1):
        entry = entry if isinstance(entry, dict) else {}
        id, where = record_id(entry.get("id")), f"image {place} of the list"
        listing.add(where, id, [entry.get("file_name")], said(split=split, url=_url(entry)))
    for place, annotation in enumerate(annotations, 1):
        _add_caption(listing, place, annotation if isinstance(annotation, dict) else {})
    return listing.write(out, name=name, source="coco", field="captions", texts=texts, **options)


def _read(path: Path) -> tuple[list[Any], list[Any]]:
    try:
        content = read_json(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    content = content if isinstance(content, dict) else {}
    listed, annotations = content.get("images"), content.get("annotations")
    if not isinstance(listed, list) or not isinstance(annotations, list):
        raise UsageError(f"{path} is not in COCO's layout: it needs lists `images`, `annotations`")
    if annotations and not any(isinstance(a, dict) and "caption" in a for a in annotations):
        raise UsageError(f"{path} has annotations but no captions: use the captions_*.json file")
    return listed, annotations


def _url(entry: dict[str, Any]) -> str | None:
    """Where the image was found: its page at Flickr rather than COCO's copy."""
    urls = (entry.get(key) for key in ("flickr_url", "coco_url"))
    return next((url for url in urls if text_problem(url) is None), None)


def _add_caption(listing: Listing, place: int, annotation: dict[str, Any]) -> None:
    where = shown(f"annotation {annotation.get('id', f'{place} of the list')}")
    caption = annotation.get("caption")
    id, problem = listing.id_of(annotation.get("image_id"))
    if id is None:
        listing.problems.append((where, problem))
    elif reason := text_problem(caption):
        listing.problems.append((where, f"{reason} as a caption of image {id}"))
    elif captions := listing.kept(where, [caption]):
        listing.values[id].setdefault("captions", []).extend(captions)
