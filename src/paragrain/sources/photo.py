"""A photograph in a file and what is known about it, as an item for the collection's writer."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from paragrain.collection import ImageRef, Item, Record
from paragrain.collection.fields import LIST_FIELDS
from paragrain.images import content_hash
from paragrain.sources.cells import Values


def photo_item(id: str, file: Path, path: str, values: Values) -> Item:
    """An item that reads `file` when it is made.

    Its stamp comes from the file's size and time and from all that goes into the record.

    Args:
        id: of the record.
        file: where the photograph lies.
        path: the name under which the record keeps it.
        values: fields of the record other than `id` and `image`; without a split it is the default
            one, which nobody chose.
    """
    try:
        stat = file.stat()
        state = [stat.st_size, stat.st_mtime_ns]
    except OSError:  # making it will say what is wrong
        state = []
    stamp = content_hash(json.dumps([state, path, values], sort_keys=True).encode())
    make = partial(_record, id, file, path, values)
    return Item(id, stamp, make, file=file, says_split="split" in values)


def _record(id: str, file: Path, path: str, values: Values) -> Record:
    return Record(id, ImageRef(file.read_bytes(), path), **values)


def merged(values: Values, more: Values) -> Values:
    """Both together: lists one after the other, of single values the later one.

    >>> merged({"captions": ["a"], "split": "train"}, {"captions": ["b"], "split": "test"})
    {'captions': ['a', 'b'], 'split': 'test'}
    """
    lists = {name: values.get(name, []) + more.get(name, []) for name in LIST_FIELDS}
    return {**values, **more, **{name: texts for name, texts in lists.items() if texts}}


def said(**values: Any) -> Values:
    """Fields of a record without those of which nothing is said.

    >>> said(split=None, source="coco", captions=[])
    {'source': 'coco'}
    """
    return {name: value for name, value in values.items() if value not in (None, [])}
