"""Vectors from elsewhere: stored by id under a name, and everything that may be wrong with them."""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.embeddings import given, store_vectors
from paragrain.embeddings.cache import Cache
from paragrain.embeddings.given import read_ids
from paragrain.encoders.vision import PrecomputedEmbeddings
from paragrain.errors import UsageError
from paragrain.images import content_hash

IDS = ["007", "7", "a b", "été", "x"]


def picture(number: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 4), (number, 0, 0)).save(data, "PNG")
    return data.getvalue()


def collect(folder: Path, images: dict[str, int]) -> Collection:
    """A collection of one-coloured pictures."""

    def item(id: str, number: int) -> Item:
        data = picture(number)
        split = "test" if number < 2 else "train"
        return Item(id, content_hash(data), lambda: Record(id, ImageRef(bytes=data), split))

    items = [item(*pair) for pair in images.items()]
    write_collection(folder, items, name="n", source="s", progress=False)
    return Collection.open(folder)


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return collect(tmp_path / "photos", {id: number for number, id in enumerate(IDS)})


@pytest.fixture
def give(tmp_path: Path, collection: Collection) -> Callable[..., given.GivenReport]:
    def run(vectors: Any, ids: list, **options: Any) -> given.GivenReport:
        np.save(tmp_path / "dino.npy", np.asarray(vectors))
        (tmp_path / "ids.json").write_text(json.dumps(ids))
        files = tmp_path / "dino.npy", tmp_path / "ids.json"
        return store_vectors(collection, *files, progress=False, **options)

    return run


def random(rows: int, dim: int = 3) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, dim))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def stored(collection: Collection, name: str = "dino", dim: int = 3) -> dict[str, np.ndarray]:
    """The vectors on disk by record."""
    folder = collection.folder / "embeddings" / PrecomputedEmbeddings(name, dim).vision_fingerprint
    vectors = Cache.open(folder, dim).vectors
    records = collection.records(fields=("content",))
    return {r.id: vectors[str(r.content)] for r in records if r.content in vectors}


Give = Callable[..., given.GivenReport]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_rows_are_stored_by_id_at_unit_length(
    give: Give, collection: Collection, dtype: str
) -> None:
    vectors, order = (random(5) * 9).astype(dtype), [3, 0, 4, 2, 1]
    report = give(vectors, [IDS[n] for n in order])
    assert (report.space, report.stored, report.failed) == ("vectors:dino:3", 5, [])
    found = stored(collection)
    for row, number in enumerate(order):
        expected = unit(vectors.astype(np.float64))[row]
        np.testing.assert_allclose(found[IDS[number]], expected, atol=1e-6)
    names = sorted(path.name for path in report.folder.iterdir())
    assert names == ["ids.json", "manifest.json", "parts", "vectors.npy"]
    assert not list((report.folder / "parts").iterdir())
    assert np.load(report.folder / "vectors.npy").dtype == np.float32


def test_bad_rows_and_absentees_are_named_and_the_others_stored(
    give: Give, collection: Collection
) -> None:
    vectors = random(6)
    vectors[1] = 0
    vectors[2, 1] = np.nan
    vectors[3] = np.inf
    report = give(vectors, ["007", "7", "a b", "été", "of another", 8])
    assert (report.stored, report.refused, report.absent, report.without) == (1, 3, 2, 1)
    assert dict(report.failed) == {
        "7": "its vector is zero or not finite",
        "a b": "its vector is zero or not finite",
        "été": "its vector is zero or not finite",
        "of another": f"not in {collection.folder}",
        "8": f"not in {collection.folder}",
        "x": f"no row of {collection.folder.parent / 'ids.json'} names it",
    }
    assert list(stored(collection)) == ["007"]


def test_an_id_with_two_vectors_is_refused_and_with_one_twice_is_not(
    give: Give, collection: Collection
) -> None:
    vectors = random(4)
    vectors[2] = vectors[0] * 2
    report = give(vectors, ["007", "7", "007", "7"])
    assert report.stored == 1
    assert report.failed[0] == ("7", "rows 2 and 4 both name it and differ")
    assert list(stored(collection)) == ["007"]


def test_records_of_one_image_share_a_vector(tmp_path: Path) -> None:
    twins = collect(tmp_path / "twins", {"a": 1, "b": 1, "c": 3, "d": 3, "e": 3})
    vectors = random(4)
    vectors[1] = vectors[0]
    np.save(tmp_path / "v.npy", vectors)
    (tmp_path / "ids.txt").write_text("a\nb\nc\nd\n")
    report = store_vectors(twins, tmp_path / "v.npy", tmp_path / "ids.txt", progress=False)
    assert report.failed == [
        ("d", "its image is that of c, whose vector differs and is used for both")
    ]
    found = stored(twins, "v")
    assert list(found) == ["a", "b", "c", "d", "e"]
    np.testing.assert_array_equal(found["c"], found["e"])


def test_more_vectors_join_those_given_before(give: Give, collection: Collection) -> None:
    first, second = random(2), random(3)
    assert give(first, IDS[:2]).without == 3
    report = give(second, IDS[1:4])
    assert (report.stored, report.without) == (3, 1)
    found = stored(collection)
    np.testing.assert_allclose(
        [found[id] for id in IDS[:4]], unit(np.vstack([first[:1], second])), atol=1e-6
    )
    assert give(random(1, 4), IDS[:1]).stored == 1  # another width, another space
    assert give(first, IDS[:2], name="other").without == 3
    assert len(stored(collection)) == 4


def test_a_split_alone(give: Give, collection: Collection) -> None:
    report = give(random(3), IDS[:3], split="test")
    assert (report.stored, report.without) == (2, 0)
    assert report.failed == [("a b", f"not in the split 'test' of {collection.folder}")]


def test_a_kill_between_the_files_loses_only_what_can_be_given_again(
    give: Give, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(random(2), IDS[:2])
    before = stored(collection)
    monkeypatch.setattr(Cache, "put", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        give(random(3), IDS[2:])
    monkeypatch.undo()
    folder = collection.folder / "embeddings" / PrecomputedEmbeddings("dino", 3).vision_fingerprint
    (folder / "vectors.npy").write_bytes(b"torn")
    np.testing.assert_equal(stored(collection), before)
    assert give(random(3), IDS[2:]).without == 0


def test_blocks_are_all_of_the_file_that_is_read(
    give: Give, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "BLOCK", 2)
    unit_of, largest = given._unit, 0

    def watched(rows: np.ndarray) -> np.ndarray:
        nonlocal largest
        largest = max(largest, len(rows))
        return unit_of(rows)

    monkeypatch.setattr(given, "_unit", watched)
    assert give(random(5), IDS).stored == 5
    assert largest == 2
    np.testing.assert_allclose(list(stored(collection).values()), unit(random(5)), atol=1e-6)


# --- Files ------------------------------------------------------------------------------------


def test_ids_are_read_as_strings_from_every_kind_of_file(tmp_path: Path) -> None:
    ids = ["007", "a,b", "u\u2028v", " c"]
    quoted = ["007", '"a,b"', "u\u2028v", " c"]
    contents = {
        "i.txt": "\r\n".join(ids) + "\r\n",
        "i.json": json.dumps(ids),
        "i.csv": "n,id\n" + "\n".join(f"1,{id}" for id in quoted),
        "i.tsv": "id\n" + "\n".join(ids),
        "i.jsonl": "\n".join(json.dumps({"id": id}) for id in ids),
    }  # fmt: skip
    for name, text in contents.items():
        (tmp_path / name).write_bytes(text.encode())
        assert read_ids(tmp_path / name) == ids, name
    np.save(tmp_path / "i.npy", np.array(ids))
    assert read_ids(tmp_path / "i.npy") == ids


class Trap:
    """Unpickled, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(collection: Collection, tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "mark")], dtype=object)
    np.save(tmp_path / "trap.npy", trap, allow_pickle=True)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
    (tmp_path / "ids.txt").write_text("7")
    np.save(tmp_path / "v.npy", random(1))
    for name in ("trap.npy", "bare.npy"):
        with pytest.raises(UsageError, match=r"vectors in .* cannot be read"):
            store_vectors(collection, tmp_path / name, tmp_path / "ids.txt", progress=False)
        with pytest.raises(UsageError, match=r"ids in .* cannot be read"):
            store_vectors(collection, tmp_path / "v.npy", tmp_path / name, progress=False)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("i.xml", b"", "is no list of ids"),
        ("absent.txt", None, "No such file"),
        ("i.txt", b"\xff\xfe\x00", "cannot be read"),
        ("i.json", b'{"a": 1}', "JSON, but not a list"),
        ("i.json", b'["a", null]', "entry 2 is NoneType"),
        ("i.json", b"[true]", "entry 1 is bool"),
        ("i.csv", b"name\na\n", "has no column id: it has name"),
        ("i.csv", b"id,b\na\n", "line 2: it has 1 cells"),
        ("i.jsonl", b'{"id": 1.5}', "line 1 is float"),
        ("i.txt", b"a\nb\n", "holds 1 vectors but .* 2 ids"),
    ],
)
def test_ids_that_cannot_be_used(
    collection: Collection, tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    np.save(tmp_path / "v.npy", random(1))
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=reason) as error:
        store_vectors(collection, tmp_path / "v.npy", tmp_path / name, progress=False)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3), r"no table of vectors \(\(3,\)\)"),
        (np.zeros((1, 0)), "no table of vectors"),
        (np.ones((1, 3), int), "holds int64, not vectors"),
        (np.array([["a"]]), "holds <U1, not vectors"),
    ],
)
def test_arrays_that_are_no_vectors(give: Give, array: np.ndarray, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        give(array, ["7"])


def test_names_that_are_none(give: Give) -> None:
    for name in ("", "a/b", "../x", "a:b", "a+b"):
        with pytest.raises(UsageError, match="cannot name vectors"):
            give(random(1), ["7"], name=name)


# --- The command ------------------------------------------------------------------------------


def test_the_command(collection: Collection, tmp_path: Path, paragrain: Callable[..., Any]) -> None:
    np.save(tmp_path / "v.npy", random(5))
    (tmp_path / "ids.txt").write_text("\n".join([*IDS[:4], "zzz"]))
    args = ("embed", collection.folder, "--vectors", tmp_path / "v.npy", "--ids")
    done = paragrain(*args, tmp_path / "ids.txt", "--as", "dino", "--json")
    assert done.code == 3
    told = done.json
    assert (told["space"], told["images"], told["dim"], told["rows"]) == ("vectors:dino:3", 4, 3, 5)
    assert (told["refused"], told["not_in_collection"], told["without_vector"]) == (0, 1, 1)
    assert [id for id, _ in told["failed"]] == ["zzz", "x"]
    assert "zzz: not in" in done.err
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    done = paragrain(*args, tmp_path / "ids.txt")
    assert done.code == 0
    assert "--model vectors:v:3+TEXT" in done.out
    for wrong in (args[:4], (*args, tmp_path / "ids.txt", "--model", "blip0")):
        done = paragrain(*wrong)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_collection_that_tells_no_hashes(collection: Collection, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "foreign"
    (folder / "records").mkdir(parents=True)
    image = [{"bytes": picture(1), "path": None}, {"bytes": None, "path": "gone.png"}]
    pq.write_table(pa.table({"id": ["a", "b"], "image": image}), folder / "records" / "p.parquet")
    shutil.rmtree(folder / "embeddings", ignore_errors=True)
    np.save(tmp_path / "v.npy", random(2))
    (tmp_path / "ids.txt").write_text("a\nb")
    files = tmp_path / "v.npy", tmp_path / "ids.txt"
    report = store_vectors(Collection.open(folder), *files, progress=False)
    assert (report.stored, report.refused, report.without) == (1, 1, 0)
    assert report.failed[0][0] == "b"


def test_ids_that_are_written_otherwise_are_found(tmp_path: Path) -> None:
    photos = collect(tmp_path / "photos", {"000000000003": 1, "b/a.jpg": 2, "07": 3, "7": 4})
    np.save(tmp_path / "v.npy", random(4))
    (tmp_path / "ids.json").write_text('["3.0", "a.jpg", "07", "007"]')
    report = store_vectors(photos, tmp_path / "v.npy", tmp_path / "ids.json", progress=False)
    assert (report.stored, report.absent) == (3, 1)  # "007" could be either of two
    assert ("007", f"not in {photos.folder}") in report.failed
