"""COCO: a folder of images and a JSON file that lists them with their captions."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions, write_collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json
from paragrain.sources.photo import merged, photo_item, said
from paragrain.sources.registry import importer
from paragrain.sources.texts import Texts, Values, shown, text_problem

Problems = list[tuple[str, str]]


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
    named among the skipped.

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
    if not images.is_dir():
        raise UsageError(f"there is no folder {images}: check the path of the images")
    tables = Texts(texts)
    problems: Problems = []
    listed, annotations = _read(captions)
    files, values = _images(listed, problems)
    _add_captions(annotations, values, problems)
    present = _present(images, files, problems)
    if not listed:
        raise UsageError(f"{captions} lists no images: check the file")
    if not present:
        raise ParagrainError(
            f"none of the {len(listed):,} images listed in {captions} is in {images}: "
            "check the folder"
        )
    notes = [f"{n:,} images have no captions"] if (n := _bare(present, values)) else []
    joined = tables.join(present, root=images.resolve().name)
    base = said(split=split, source=name)
    return write_collection(
        out,
        [
            photo_item(id, images / file, file, merged({**base, **values[id]}, joined.get(id, {})))
            for id, file in present.items()
        ],
        name=name,
        source="coco",
        problems=problems + tables.problems,
        notes=notes + tables.notes,
        **options,
    )


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


def _id(value: Any) -> str | None:
    """An id as a string, or `None` if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return text if text and shown(text) == text else None


def _images(listed: list[Any], problems: Problems) -> tuple[dict[str, str], dict[str, Values]]:
    """File and further values of every image id; file names that lead elsewhere are problems."""
    files: dict[str, str] = {}
    values: dict[str, Values] = {}
    for number, entry in enumerate(listed, 1):
        entry = entry if isinstance(entry, dict) else {}
        id, file = _id(entry.get("id")), entry.get("file_name")
        if id is None or not isinstance(file, str) or not file:
            problems.append((f"image {number} of the list", "it has no id or no file_name"))
        elif id in files:
            problems.append((id, "this id came before; the later one is left out"))
        elif shown(file) != file or "\0" in file:
            problems.append((id, "its file_name is not valid"))
        elif PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
            problems.append((id, "its file_name leaves the folder of the images"))
        else:
            files[id] = file
            values[id] = {"url": url} if (url := _url(entry)) else {}
    return files, values


def _url(entry: dict[str, Any]) -> str | None:
    """Where the image was found: its page at Flickr rather than COCO's copy."""
    urls = (entry.get(key) for key in ("flickr_url", "coco_url"))
    return next((url for url in urls if text_problem(url) is None), None)


def _add_captions(annotations: list[Any], values: dict[str, Values], problems: Problems) -> None:
    for number, annotation in enumerate(annotations, 1):
        annotation = annotation if isinstance(annotation, dict) else {}
        where = f"annotation {annotation.get('id', f'{number} of the list')}"
        id, caption = _id(annotation.get("image_id")), annotation.get("caption")
        if id is None or id not in values:
            problems.append((shown(where), f"its image {id or '(none)'} is not listed"))
        elif problem := text_problem(caption):
            problems.append((shown(where), f"{problem} as a caption of image {id}"))
        else:
            values[id].setdefault("captions", []).append(caption)


def _present(images: Path, files: dict[str, str], problems: Problems) -> dict[str, str]:
    is_file = os.path.isfile  # unlike `Path.is_file` it never raises, be the name ever so odd
    present = {id: file for id, file in files.items() if is_file(images / file)}
    problems += [
        (id, f"its file is missing: {file}") for id, file in files.items() if id not in present
    ]
    return present


def _bare(present: dict[str, str], values: dict[str, Values]) -> int:
    return sum("captions" not in values[id] for id in present)
