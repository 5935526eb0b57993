"""Small collections and settings for whole runs."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from paragrain.annotation import AnnotationReport, AnnotationSettings, BackendSettings, annotate
from paragrain.annotation.pictures import prepare
from paragrain.annotation.settings import ImageRule
from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.sources import import_folder


def make_photos(folder: Path, count: int) -> Path:
    """A collection of pictures of noise with one caption each, made from `folder/images`."""
    images = folder / "images"
    images.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(images / f"{number:02d}.png")
        (images / f"{number:02d}.txt").write_text(f"picture of noise number {number}")
    import_folder(images, folder / "photos", progress=False)
    return folder / "photos"


def world_items(count: int) -> list[Item]:
    """Records of pictures of noise, for a collection of many Parquet files."""

    def item(number: int) -> Item:
        def make() -> Record:
            pixels = np.random.default_rng(number).integers(0, 255, (30, 30, 3), np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG")
            return Record(f"{number:03d}", ImageRef(buffer.getvalue()), captions=[f"no. {number}"])

        return Item(f"{number:03d}", "1", make)

    return [item(number) for number in range(count)]


def make_world(folder: Path, *, files: int, rows: int) -> Path:
    """A collection of `files` Parquet files with `rows` pictures each."""
    place = folder / "world"
    items = world_items(files * rows)
    write_collection(place, items, name="w", source="w", shard_rows=rows, progress=False)
    assert len(Collection.open(place).files()) == files
    return place


def settings_for(stub: Any, **changes: Any) -> AnnotationSettings:
    """Two models on the stub, four requests at once for each, short retries."""
    model = BackendSettings(
        model="writer", endpoint=stub.url, max_concurrency=4, retry_timeout=0.3, timeout=5
    )
    judge = model.model_copy(update={"model": "judge"})
    return AnnotationSettings(**{"generator": model, "judge": judge, **changes})


def run(folder: Path, settings: AnnotationSettings, **options: Any) -> AnnotationReport:
    """Annotate a collection from its folder."""
    return annotate(Collection.open(folder), settings, progress=False, **options)


def sha_of(folder: Path, identity: str) -> str:
    """How the server knows an image: by the hash of what it is sent."""
    collection = Collection.open(folder)
    data = collection.image_bytes(collection.get([identity])[identity])
    return hashlib.sha256(prepare(data, ImageRule()).data).hexdigest()


def judged(score: int) -> dict[str, Any]:
    """A rule for the stub: the judge always gives this score."""
    return {"match": {"kind": "judge"}, "do": {"text": str(score)}}
