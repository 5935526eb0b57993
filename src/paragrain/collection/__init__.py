"""A data set on disk: `Record` is its row, `Collection` reads it, `write_collection` writes it."""

from paragrain.collection.fields import SCHEMA, TEXT_FIELDS, ImageRef, Record
from paragrain.collection.image_files import Store
from paragrain.collection.reading import Collection
from paragrain.collection.reports import ImportReport, Skipped, WriteOptions
from paragrain.collection.shards import writing_alone
from paragrain.collection.updating import update_records
from paragrain.collection.writing import BadRecord, Item, write_collection

__all__ = [
    "SCHEMA",
    "TEXT_FIELDS",
    "BadRecord",
    "Collection",
    "ImageRef",
    "ImportReport",
    "Item",
    "Record",
    "Skipped",
    "Store",
    "WriteOptions",
    "update_records",
    "write_collection",
    "writing_alone",
]
