"""A data set on disk: `Record` is its row, `Collection` reads it, `write_collection` writes it."""

from paragrain.collection.reading import Collection
from paragrain.collection.record import SCHEMA, TEXT_FIELDS, ImageRef, Record
from paragrain.collection.updating import update_records
from paragrain.collection.writing import BadRecord, ImportReport, Item, write_collection

__all__ = [
    "SCHEMA",
    "TEXT_FIELDS",
    "BadRecord",
    "Collection",
    "ImageRef",
    "ImportReport",
    "Item",
    "Record",
    "update_records",
    "write_collection",
]
