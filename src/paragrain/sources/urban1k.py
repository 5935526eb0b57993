"""Urban1k: a folder of images and a folder of texts with the same names."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.errors import UsageError
from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.cells import Values, text_problem
from paragrain.sources.finding import Finder
from paragrain.sources.listing import Listing
from paragrain.sources.names import shown, stem
from paragrain.sources.registry import importer
from paragrain.sources.tables import read_text
from paragrain.sources.walking import Walk, dropping


@importer("urban1k")
def import_urban1k(
    folder: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring Urban1k into a collection: `image/ID.jpg` and `caption/ID.txt`, one to one.

    The text of a file becomes the description, without the line ends at its close; the split is
    "test". An image without a text is named and stays, since it makes the search no easier; a
    text without an image is named and left out.

    Args:
        folder: the one with `image` and `caption` in it.
        out: the collection's folder.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        options: see `WriteOptions`.

    Raises:
        UsageError: `folder` is not in this layout, or has no images.
    """
    captions = folder / "caption"
    if not (folder / "image").is_dir() or not captions.is_dir():
        raise UsageError(f"{folder} is not in Urban1k's layout: it needs folders image and caption")
    listing = Listing(folder / "image", folder / "image")
    left_out: Counter[str] = Counter()
    unused = {stem(name): name for name in _names(captions, listing, [".txt"], left_out)}
    names = _names(listing.images, listing, IMAGE_SUFFIXES, left_out)
    own = {stem(name): unused.pop(stem(name)) for name in names if stem(name) in unused}
    finder = Finder({name: name for name in unused})
    for name in names:
        id = stem(name)
        values: Values = {"split": "test"}
        if id not in own and len(found := finder.find(id)) == 1 and found[0] in unused:
            own[id] = unused.pop(found[0])
        if id in listing.names:
            problem = None  # `add` says that this id came before
        elif id in own:
            values["description"], problem = _text(captions / own[id])
        else:
            problem = f"there is no caption/{id}.txt; the image stays without a text"
        if problem:
            listing.problems.append((id, problem))
            values.pop("description", None)
        listing.add(name, id, [name], values)
    listing.problems += [
        (f"caption/{name}", "there is no image of this name") for name in unused.values()
    ]
    listing.notes += Walk(left_out=left_out).notes()
    return listing.write(
        out,
        name="urban1k",
        source="urban1k",
        field="description",
        texts=texts,
        **options,
    )


def _names(
    folder: Path,
    listing: Listing,
    suffixes: frozenset[str] | list[str],
    left_out: Counter[str],
) -> list[str]:
    """Files in a folder with these extensions, sorted; others become problems.

    What devices and programs leave is counted in `left_out`.
    """
    names = []
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  (names, not paths)
        where = shown(f"{folder.name}/{name}")
        if left_by := dropping(f"{name}/" if (folder / name).is_dir() else name):
            left_out[left_by] += name != ".DS_Store"
            continue
        if PurePosixPath(name).suffix.lower() not in suffixes:
            listing.problems.append((where, "not a file of the kind that belongs here"))
        elif shown(name) != name:
            listing.problems.append((where, "its name is not valid Unicode: rename it"))
        else:
            names.append(name)
    return names


def _text(path: Path) -> tuple[str, str | None]:
    """The text of a file, and what is wrong with it."""
    try:
        text = read_text(path).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        return "", f"its text cannot be read: {getattr(error, 'strerror', None) or error}"
    return text, text_problem(text)
