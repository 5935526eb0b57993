"""Images as files of a collection: hard links to the source's, which cost no room."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Literal

import pyarrow.parquet as pq

from paragrain.collection.reading import inside, null_images
from paragrain.images import BadImage, content_hash

Store = Literal["bytes", "paths"]
"""Where a collection keeps its images: in its Parquet files, or as files beside them."""

IMAGES = "images"
"""The folder for them, below that of the collection."""

LINKED = " path"
"""The end of the stamps of records whose images an import put there."""

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class Links:
    """Puts images into a collection's folder; several threads may use it.

    Attributes:
        copied: images that could not be linked, as between two file systems, and were copied.
    """

    def __init__(self, folder: Path):
        """Put them below `folder`, that of the collection."""
        self.copied = 0
        self._folder = folder
        self._lock = Lock()

    def put(self, id: str, file: Path, path: str, data: bytes) -> str:
        """Have the image of a record in the collection's folder; its path from there.

        Args:
            id: of the record.
            file: where the image lies.
            path: where it is to be below `IMAGES`.
            data: what is in the file.

        Raises:
            BadImage: `path` leads out of the folder.
            OSError: it can be neither linked nor copied.
        """
        kept = f"{IMAGES}/{path}"
        target = inside(self._folder, kept)
        if not target.is_relative_to((self._folder / IMAGES).resolve()):
            raise BadImage("its path leaves the collection's folder of images")
        target.parent.mkdir(parents=True, exist_ok=True)
        name = content_hash(id.encode("utf-8", "surrogatepass"))  # of any length and in any thread
        temporary = self._folder / IMAGES / f".{name}.tmp"
        temporary.unlink(missing_ok=True)  # a killed run's
        try:
            self._fill(temporary, file, data)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)  # it stays if both are links to one file already
        return kept

    def _fill(self, temporary: Path, file: Path, data: bytes) -> None:
        try:
            os.link(file.resolve(), temporary)  # of a symbolic link, what it leads to
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            temporary.write_bytes(data)
            with self._lock:
                self.copied += 1


def linked(file: Path) -> set[str]:
    """The paths of a Parquet file's images whose bytes are not in it."""
    paths: set[str | None] = set()
    with pq.ParquetFile(file) as parquet:
        for index in range(parquet.num_row_groups):
            nulls, size = null_images(parquet.metadata, index)
            if nulls == 0:
                continue
            columns = ["image.path"] if nulls == size else ["image"]
            table = parquet.read_row_group(index, columns=columns)
            if "image" in table.column_names:  # another tool's file may have none, or no paths
                images = filter(None, table["image"].to_pylist())
                paths |= {i.get("path") for i in images if i.get("bytes") is None}
    return {path for path in paths if path}


def paths_of(file: Path) -> list[str | None]:
    """The path of the image of each row of a Parquet file."""
    with pq.ParquetFile(file) as parquet:
        images = parquet.read(columns=["image.path"])["image"].to_pylist()
    return [image and image["path"] for image in images]


def let_go(folder: Path, paths: set[str], files: Iterable[Path]) -> None:
    """Delete images that an import put into a collection, but not those of some record.

    Args:
        folder: of the collection.
        paths: of the images.
        files: the collection's Parquet files.
    """
    if not paths:
        return
    kept = set().union(*(paths & linked(file) for file in files))
    for path in paths - kept:
        try:
            inside(folder, path).unlink(missing_ok=True)
        except (BadImage, OSError):  # what cannot be deleted is in nobody's way
            continue
