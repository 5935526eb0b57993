"""Images that a file lists with their texts: found below a folder, joined, written."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions, write_collection
from paragrain.errors import UsageError
from paragrain.sources.cells import NotTexts, Values, text_problem, texts_of
from paragrain.sources.finding import Below, name_problem
from paragrain.sources.names import folded, is_elsewhere, is_end, number, shown
from paragrain.sources.photo import merged, photo_item
from paragrain.sources.texts import Texts


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

    An image may be listed under several names, the most telling first; see `Below` and `Finder`
    for how its file is found. A file that was found by the end of a name, though the folders in
    front of it are not there, belongs to nobody if another name fits it too.

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
        if problem := next((p for name in names if (p := name_problem(name))), None):
            self.problems.append((id or where, problem))
        elif id is None:
            self.problems.append((where, "it has no id"))
        elif id in self.names:
            self.problems.append((id, "this id came before; the later one is left out"))
        else:
            self.names[id] = list(names)
            self.values[id] = values

    def id_of(self, value: Any) -> tuple[str | None, str]:
        """The id that a value means, however its number is written, or `None` and why not."""
        id = record_id(value)
        if id is None:
            return None, "its image (none) is not listed"
        if id in self.names:
            return id, ""
        same = self._numbers.get(number(id) or "", [])
        if len(same) == 1:
            return same[0], ""
        return (
            None,
            f"its image {id} fits {len(same)} ids" if same else f"its image {id} is not listed",
        )

    @cached_property
    def _numbers(self) -> dict[str, list[str]]:
        numbers: dict[str, list[str]] = defaultdict(list)
        for id in self.names:
            numbers[number(id) or id].append(id)
        return numbers

    def kept(self, where: str, texts: Iterable[Any]) -> list[str]:
        """The texts that can be kept, also those of printed lists; the others become problems."""
        good = []
        for value in texts:
            try:
                found = texts_of(value)
            except NotTexts as reason:
                self.problems.append((where, str(reason)))
                continue
            for text in found:
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
            UsageError: none of the images is there.
        """
        tables = Texts(texts)
        if not self.names:
            first = "".join(f" ({where}: {reason})" for where, reason in self.problems[:1])
            raise UsageError(f"{self.path} lists no images that can be used{first}: check the file")
        files = self._files()
        if not files:
            raise UsageError(
                f"none of the {len(self.names):,} images listed in {self.path} is in "
                f"{self.images}: check the folder"
            )
        if absent := len(self.names) - len(files):
            self.notes.append(f"{absent:,} of the {len(self.names):,} listed images are missing")
        if bare := sum(not self.values[id].get(field) for id in files):
            self.notes.append(f"{bare:,} images have no {field}")
        joined = tables.join(files, root=self.images)
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
        below = Below(self.images)
        for id, names in self.names.items():
            found = next((found for name in names if (found := below.find(name))), [])
            if len(found) == 1:
                files[id] = found[0]
            elif found:
                fits = ", ".join(found[:3])
                self.problems.append((id, f"{names[0]} fits {len(found)} files: {fits}"))
            elif is_elsewhere(names[0]):
                self.problems.append((id, "its file name leaves the folder of the images"))
            else:
                self.problems.append((id, f"its file is missing: {names[0]}"))
        self._tell_apart(files)
        self.notes += below.notes()
        return files

    def _tell_apart(self, files: dict[str, str]) -> None:
        """Take away files that were found by the end of a name, if another name fits them too."""
        claims: dict[str, set[str]] = defaultdict(set)
        for id, file in files.items():
            claims[file].add(folded(self.names[id][0]))
        for id, file in list(files.items()):
            name = self.names[id][0]
            if len(claims[file]) > 1 and not is_end(name, file):
                reason = f"its file is missing: {name} ({file} is that of another name)"
                self.problems.append((id, reason))
                del files[id]
