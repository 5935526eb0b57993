"""Images that a file lists with their texts: found below a folder, joined, written."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions, write_collection
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.photo import merged, photo_item
from paragrain.sources.texts import Texts, Values, shown, text_problem


def record_id(value: Any) -> str | None:
    """An id, or another short name, as a string; `None` if it is none.

    >>> record_id(7), record_id("007"), record_id(7.0), record_id(True), record_id(" ")
    ('7', '007', '7', None, None)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers with a gap in it, once it was in pandas
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return text if text.strip() and shown(text) == text else None


@dataclass
class Listing:
    """Images that a file lists, with what it says about them; they are looked for in the end.

    An image may be listed under several names, the most telling first. The file is the first of
    them that is a path below the folder; else the only file anywhere below the folder that is
    called so, or whose name without extension is so if the name has no image's extension.

    Attributes:
        path: the file that lists the images.
        images: the folder that they are in.
        names: names of every id.
        values: further fields of the record of every id.
        problems: (id or place, reason) of what had to be left out.
        notes: what else is worth knowing.
    """

    path: Path
    images: Path
    names: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.images.is_dir():
            raise UsageError(f"there is no folder {self.images}: check the path of the images")

    def add(self, where: str, id: str | None, names: Sequence[Any], values: Values) -> None:
        """Take an image in, or say in `problems` why not; `where` stands for a missing id."""
        if problem := next((p for name in names if (p := _name_problem(name))), None):
            self.problems.append((id or where, problem))
        elif id is None:
            self.problems.append((where, "it has no id"))
        elif id in self.names:
            self.problems.append((id, "this id came before; the later one is left out"))
        else:
            self.names[id] = list(names)
            self.values[id] = values

    def kept(self, where: str, texts: Iterable[Any]) -> list[str]:
        """The texts that can be kept; the others become problems."""
        good = []
        for text in texts:
            if problem := text_problem(text):
                self.problems.append((where, problem))
            else:
                good.append(text)
        return good

    def write(
        self,
        out: Path,
        *,
        name: str,
        source: str,
        field: str,
        texts: Path | Sequence[Path] | None,
        **options: Unpack[WriteOptions],
    ) -> ImportReport:
        """Find the images, join further texts, and write the collection.

        Args:
            out: the collection's folder.
            name: of the data set.
            source: the kind of source.
            field: the field whose lack is noted.
            texts: tables of further texts.
            options: see `WriteOptions`.

        Raises:
            UsageError: no image is listed, or `texts` cannot be used.
            ParagrainError: none of the images is there.
        """
        tables = Texts(texts)
        if not self.names:
            first = "".join(f" ({where}: {reason})" for where, reason in self.problems[:1])
            raise UsageError(f"{self.path} lists no images that can be used{first}: check the file")
        files = self._files()
        if not files:
            raise ParagrainError(
                f"none of the {len(self.names):,} images listed in {self.path} is in "
                f"{self.images}: check the folder"
            )
        if absent := len(self.names) - len(files):
            self.notes.append(f"{absent:,} of the {len(self.names):,} listed images are missing")
        if bare := sum(not self.values[id].get(field) for id in files):
            self.notes.append(f"{bare:,} images have no {field}")
        joined = tables.join(files, root=self.images.resolve().name)
        return write_collection(
            out,
            [
                photo_item(
                    id,
                    self.images / file,
                    file,
                    merged({"source": name, **self.values[id]}, joined.get(id, {})),
                )
                for id, file in files.items()
            ],
            name=name,
            source=source,
            problems=self.problems + tables.problems,
            notes=self.notes + tables.notes,
            **options,
        )

    def _files(self) -> dict[str, str]:
        """Path below the folder of every image that is there; the others become problems."""
        files: dict[str, str] = {}
        for id, names in self.names.items():
            found = self._find(names)
            if len(found) == 1:
                files[id] = found[0]
            elif found:
                fits = ", ".join(found[:3])
                self.problems.append((id, f"{names[0]} fits {len(found)} files: {fits}"))
            else:
                self.problems.append((id, f"its file is missing: {names[0]}"))
        return files

    def _find(self, names: list[str]) -> list[str]:
        for name in names:
            if os.path.isfile(self.images / name):  # noqa: PTH113  (`Path.is_file` may raise)
                return [PurePosixPath(name).as_posix()]
        for name in names:
            for key in (name, PurePosixPath(name).name):
                if found := self._places.get(unicodedata.normalize("NFC", key)):
                    return found
        return []

    @cached_property
    def _places(self) -> dict[str, list[str]]:
        """Images below the folder by path and by name, with and without extension."""
        places: dict[str, list[str]] = defaultdict(list)
        for folder, _, files in os.walk(self.images):
            for file in files:
                path = (Path(folder) / file).relative_to(self.images)
                if path.suffix.lower() in IMAGE_SUFFIXES and shown(file) == file:
                    spellings = (path, path.with_suffix(""), Path(file), Path(path.stem))
                    for key in dict.fromkeys(spelling.as_posix() for spelling in spellings):
                        places[unicodedata.normalize("NFC", key)].append(path.as_posix())
        return {key: sorted(paths) for key, paths in places.items()}


def _name_problem(name: Any) -> str | None:
    if not isinstance(name, str) or not name.strip():
        return "it names no image file"
    if shown(name) != name or "\0" in name:
        return "its file name is not valid"
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return "its file name leaves the folder of the images"
    return None
