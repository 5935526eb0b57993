"""What whoever imports can ask of the writing of a collection, whatever the source is."""

from collections.abc import Mapping
from typing import Any, TypedDict

from paragrain.collection.linking import Store


class WriteOptions(TypedDict, total=False):
    """Keyword arguments that every importer hands on to `write_collection`; all may be absent.

    Attributes:
        licence: of the data, as far as known; by default what the collection says already.
        store: "bytes" keeps the images in the Parquet files, "paths" as files of the folder; by
            default as the collection has them, and "bytes" for a new one.
        max_pixels: see `images.decode`.
        val: share of the images, from 0 to 1, that go into the split "val"; only images whose
            split no source says, and copies (by group, bytes or pixels) stay on one side. By
            default as in the import before, so that new images join them; none moves out of "val".
        test: the same for the split "test".
        verify: hash every image, and so see another picture under the same name, size and time.
        drop_texts: have each record hold the texts of this import's sources and no others, and
            forget the texts of images that are gone.
        remember: how to repeat this import: its kind and its arguments, as JSON can hold them.
        show: whether to show a progress bar.
    """

    licence: str | None
    store: Store | None
    max_pixels: int | None
    val: float | None
    test: float | None
    verify: bool
    drop_texts: bool
    remember: Mapping[str, Any] | None
    show: bool
