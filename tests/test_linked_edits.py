"""Files of a collection that are edited in place: the old vector is never used."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.embeddings import embed, known_contents
from paragrain.embeddings import linked as room
from paragrain.encoders import ImageTextEncoder
from paragrain.images import content_hash


def png(seed: int) -> bytes:
    """Noise that no compressor shrinks, so that all are of one size."""
    noise = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "BMP")
    return buffer.getvalue()


@pytest.fixture
def linked(tmp_path: Path, paragrain: Callable) -> Collection:
    (tmp_path / "pictures").mkdir()
    for n in range(4):
        (tmp_path / "pictures" / f"{n}.bmp").write_bytes(png(n))
    done = paragrain("import", "folder", tmp_path / "pictures", tmp_path / "c", "--store", "paths")
    assert done.code == 0, done.err
    return Collection.open(tmp_path / "c")


def vector(collection: Collection, encoder: ImageTextEncoder, place: int) -> np.ndarray:
    found = embed(Collection.open(collection.folder), encoder, progress=False)
    assert len(found.ids) == 4
    return found.vectors[place]


def file_of(collection: Collection, place: int) -> Path:
    record = list(collection.records())[place]
    assert record.image.path is not None
    return collection.folder / record.image.path


def overwrite(file: Path, data: bytes) -> None:
    with file.open("r+b") as opened:  # in place: the same inode, and all links to it
        opened.truncate()
        opened.write(data)


def restored(file: Path) -> None:
    before = file.stat()
    overwrite(file, png(51))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def swapped(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(png(51))
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize(
    "edit",
    [lambda file: overwrite(file, png(51)), restored, swapped],
    ids=["in place", "with its time put back", "another file of that time"],
)
def test_an_edit_is_seen(linked: Collection, encoder: ImageTextEncoder, edit: Callable) -> None:
    old, other = vector(linked, encoder, 1), vector(linked, encoder, 2)
    edit(file_of(linked, 1))
    new = vector(linked, encoder, 1)
    assert float(old @ new) < 0.9999
    np.testing.assert_array_equal(vector(linked, encoder, 2), other)
    contents = list(known_contents(linked).values())
    assert contents[1] == content_hash(png(51))
    overwrite(file_of(linked, 1), png(1))
    np.testing.assert_allclose(vector(linked, encoder, 1), old, atol=1e-6)


def test_an_edit_between_import_and_the_first_embed_is_seen(
    linked: Collection, encoder: ImageTextEncoder
) -> None:
    overwrite(file_of(linked, 0), png(51))
    overwrite(file_of(linked, 1), png(51))
    first, second = (vector(linked, encoder, place) for place in (0, 1))
    np.testing.assert_array_equal(first, second)


def test_what_did_not_change_is_not_read_again(
    linked: Collection, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(linked, encoder, progress=False)

    def read(*_: object) -> None:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(room, "content_hash", read)
    assert embed(linked, encoder, progress=False).computed == 0
    file_of(linked, 3).unlink()  # a file that is gone is not another picture
    assert len(embed(linked, encoder, progress=False).ids) == 4


@pytest.mark.parametrize("content", ["", "[]", '{"a": 5}', '{"images/1.bmp": []}'])
def test_a_damaged_account_is_made_anew(
    linked: Collection, encoder: ImageTextEncoder, content: str
) -> None:
    embed(linked, encoder, progress=False)
    (linked.folder / "embeddings" / "files.json").write_text(content)
    assert embed(linked, encoder, progress=False).computed == 0


def test_a_collection_of_texts_alone_links_nothing(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    columns = {"id": ["a"], "captions": [["a dog"]]}
    for name, image in (("none", {}), ("no_path", {"image": [{"bytes": b"x"}]})):
        pq.write_table(pa.table({**columns, **image}), tmp_path / "records" / f"{name}.parquet")
    assert room.linked_paths(Collection.open(tmp_path)) == set()
