"""A folder of pictures, with texts in a table or in a `.txt` file beside each picture."""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Unpack

from paragrain.collection import ImportReport, WriteOptions, write_collection
from paragrain.collection.fields import TEXT_FIELDS
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import IMAGE_SUFFIXES, UNREADABLE
from paragrain.sources.cells import Values, text_problem
from paragrain.sources.names import folded, normal, shown
from paragrain.sources.photo import merged, photo_item, said
from paragrain.sources.registry import importer
from paragrain.sources.tables import CELL_SUFFIXES, JSON_SUFFIXES, read_text
from paragrain.sources.texts import Texts
from paragrain.sources.walking import walk

SIDECARS = (".json", ".caption", ".text", ".xmp")
"""Extensions of files beside pictures in which texts are found, and which are not read here."""

TXT_FIELDS = ("captions", "description", "paragraph")


@importer("folder")
def import_folder(
    folder: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    txt_field: str = "captions",
    split: str | None = None,
    name: str | None = None,
    all: bool = False,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring a folder of pictures, with all folders in it, into a collection.

    - The id of a picture is its path below `folder` with "/" between the parts and its extension,
      exactly as the file system has it; so equal names in different folders, and names that
      differ only in extension or case, are different pictures.
    - The file `x.txt` (or `x.jpg.txt`) belongs to the picture `x.jpg` beside it: every line that is
      not blank is a caption, or with another `txt_field` the whole file is that one text. A `.txt`
      without a picture, or with several, is named among the skipped.
    - `texts` adds the rows of a table; see `read_texts` and `TextTable.join`.
    - Left out and counted in a note, unless `all`: what is hidden or left behind by devices and
      programs (thumbnails, trash, snapshots; see `walking`). The collection itself, if it lies in
      the folder, and files that are no pictures are left out.
    - Linked folders are followed; a folder that can be reached in several ways is taken once.
    - Named among the skipped: pictures that cannot be read, links to a folder that holds this one,
      names that are not valid Unicode.

    A second run brings the collection up to date, as `write_collection` says.

    Args:
        folder: where the pictures are.
        out: the collection's folder.
        texts: `.csv`, `.tsv` or `.jsonl` files; see `Texts`.
        txt_field: what the `.txt` files hold: "captions", "description" or "paragraph".
        split: of all pictures for which `texts` does not say another.
        name: of the data set; by default the folder's.
        all: take what devices and programs leave, and what is hidden, too.
        options: see `WriteOptions`.

    Raises:
        UsageError: `folder` is no folder, or `out` is the same one, or `texts` cannot be used.
        UsageError: there are no pictures.
    """
    if txt_field not in TXT_FIELDS:
        raise UsageError(
            f"the .txt files cannot be {txt_field!r}: choose from {', '.join(TXT_FIELDS)}"
        )
    tables = Texts(texts)
    found = _find(folder, out, all)
    if not found.images:
        raise UsageError(f"there are no images in {folder}: check the path")
    beside = _texts_beside(folder, found, txt_field)
    paths = {path: path for path in found.images}
    joined = tables.join(paths, root=folder)
    name = name or folder.resolve().name
    items, bare = [], 0
    for path in found.images:
        own = merged(said(split=split, source=name), beside.get(path, {}))
        values = merged(own, joined.get(path, {}))
        items.append(photo_item(path, folder / path, path, values))
        bare += not any(values.get(text) for text in TEXT_FIELDS)
    if bare:
        found.notes.append(f"{len(items) - bare:,} of {len(items):,} with texts in these sources")
    return write_collection(
        out,
        items,
        name=name,
        source="folder",
        problems=found.problems + tables.problems,
        notes=found.notes + tables.notes,
        **options,
    )


@dataclass
class _Found:
    """Relative paths of what is in a folder, sorted, and what could not be taken."""

    images: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _find(folder: Path, out: Path, everything: bool) -> _Found:
    if folder.is_dir() and out.resolve() == folder.resolve():
        raise UsageError(f"{out} is the folder of the pictures itself: write to another one")
    walked = walk(folder, own=out, everything=everything)
    found = _Found(problems=walked.problems, notes=walked.notes(": --all takes the pictures"))
    others: Counter[str] = Counter()
    for path in walked.files:
        if not _sort_in(found, folder, path):
            others[PurePosixPath(path).suffix.lower()] += 1
    if meant := [path for path in walked.files if _is_table(path)]:
        names = ", ".join(map(shown, meant[:3]))
        found.notes.append(f"tables beside the pictures are not read: {names} (--texts takes them)")
    if sidecars := sum(others[suffix] for suffix in SIDECARS):
        kinds = ", ".join(f"{suffix} {others[suffix]:,}" for suffix in SIDECARS if others[suffix])
        found.notes.append(f"{sidecars:,} files that may hold texts are not read ({kinds})")
    return found


def _is_table(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in CELL_SUFFIXES + JSON_SUFFIXES


def _sort_in(found: _Found, folder: Path, path: str) -> bool:
    """Put a file where it belongs; whether it belongs anywhere."""
    file, suffix = folder / path, PurePosixPath(path).suffix.lower()
    if suffix == ".txt":
        found.texts.append(path)
    elif suffix in UNREADABLE:
        found.problems.append((shown(path), UNREADABLE[suffix]))
    elif suffix in IMAGE_SUFFIXES:
        if shown(path) != path:
            found.problems.append((shown(path), "its name is not valid Unicode: rename it"))
        elif not os.path.isfile(file):  # noqa: PTH113  (`Path.is_file` may raise)
            reason = "a broken link" if file.is_symlink() else "not a file that can be read"
            found.problems.append((path, reason))
        else:
            found.images.append(path)
    else:
        return False
    return True


def _texts_beside(folder: Path, found: _Found, txt_field: str) -> dict[str, Values]:
    """What the `.txt` files say about the pictures beside them; the rest becomes problems."""
    by_name: dict[str, list[str]] = defaultdict(list)
    by_form: dict[str, list[str]] = defaultdict(list)
    for image in found.images:
        for name in (image, str(PurePosixPath(image).with_suffix(""))):
            by_name[name].append(image)
            for form in {normal(name), folded(name)}:
                by_form[form].append(image)
    beside: dict[str, Values] = {}
    for path in found.texts:
        name = path[: -len(".txt")]
        images = by_name.get(name) or by_form.get(normal(name)) or by_form.get(folded(name)) or []
        if len(images) != 1:
            fits = f"it fits {len(images)} images: {', '.join(images[:3])}"
            reason = fits if images else "there is no image beside it"
        elif images[0] in beside:
            reason = f"another .txt file belongs to {images[0]} already"
        else:
            try:
                beside[images[0]] = _txt_values(read_text(folder / path), txt_field)
                continue
            except ParagrainError as error:
                reason = str(error)
            except (OSError, UnicodeDecodeError) as error:
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        found.problems.append((f"texts: {shown(path)}", reason))
    return beside


def _txt_values(text: str, txt_field: str) -> Values:
    if problem := text_problem(text):
        raise ParagrainError(problem)
    if txt_field != "captions":
        return {txt_field: text.rstrip("\r\n")}
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return {"captions": [line for line in lines if line.strip()]}
