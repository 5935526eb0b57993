"""Images as files of a collection: hard links to the source's, which cost no room."""

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Literal

import pyarrow.parquet as pq

from paragrain.collection.reading import inside, null_images, read_columns
from paragrain.files import digest
from paragrain.images import BadImage

Store = Literal["bytes", "paths"]
"""Where a collection keeps its images: in its Parquet files, or as files beside them."""

IMAGES = "images"
"""The folder for them, below that of the collection."""

LINKED = " path"
"""The end of the stamps of records whose images an import put there."""

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class ImageFiles:
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
        """Have a record's image at `path` below `IMAGES`; its path from the collection's folder.

        Raises:
            BadImage: `path` leads out of the folder.
            OSError: it can be neither linked nor copied.
        """
        kept = f"{IMAGES}/{path}"
        target = inside(self._folder, kept)
        if not target.is_relative_to((self._folder / IMAGES).resolve()):
            raise BadImage("its path leaves the collection's folder of images")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not its own name beside it: ids are of any length, and several may have one path.
        temporary = self._folder / IMAGES / f".{digest(id).hex()}.tmp"
        temporary.unlink(missing_ok=True)  # a killed run's
        try:
            try:
                os.link(file.resolve(), temporary)  # of a symbolic link, what it leads to
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                temporary.write_bytes(data)
                with self._lock:
                    self.copied += 1
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)  # it stays if both are links to one file already
        return kept


def linked(file: Path) -> set[str]:
    """The paths of a Parquet file's images whose bytes are not in it."""
    paths: set[str] = set()
    metadata = pq.read_metadata(file)
    for index in range(metadata.num_row_groups):
        nulls, size = null_images(metadata, index)
        if nulls != 0:
            columns = {"image.path"} if nulls == size else {"image"}
            images = read_columns(file, index, columns).get("image", [])
            paths |= {image.path for image in images if image.path and image.bytes is None}
    return paths


def delete_unused(folder: Path, paths: set[str], files: Iterable[Path]) -> None:
    """Delete images at some paths, but not those of a record in the collection's Parquet files."""
    used = set().union(*(paths & linked(file) for file in files)) if paths else set()
    for path in paths - used:
        with suppress(BadImage, OSError):  # what cannot be deleted is in nobody's way
            inside(folder, path).unlink(missing_ok=True)
