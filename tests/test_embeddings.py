import io
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from paragrain import embeddings as module
from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.embeddings import embed
from paragrain.encoders import ImageTextEncoder, encode_images, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import content_hash, decode


@pytest.fixture(scope="module")
def loaded(random_blip: Path) -> ImageTextEncoder:
    return load_encoder(random_blip, device="cpu")


@pytest.fixture
def encoder(loaded: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch) -> ImageTextEncoder:
    """The encoder, with the number of images of each forward pass in `.seen`."""
    seen: list[int] = []
    features = loaded.image_features

    def counted(pixels: torch.Tensor) -> torch.Tensor:
        seen.append(len(pixels))
        return features(pixels)

    monkeypatch.setattr(loaded, "image_features", counted)
    monkeypatch.setattr(loaded, "seen", seen, raising=False)
    return loaded


def picture(number: int) -> bytes:
    values = np.random.default_rng(number).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(values).save(data, "PNG")
    return data.getvalue()


Rows = Iterable[tuple[str, int | bytes, str]]


def collect(folder: Path, rows: Rows) -> Collection:
    """Write (or bring up to date) a collection of (id, picture number or bytes, split)."""

    def item(id: str, what: int | bytes, split: str) -> Item:
        data = picture(what) if isinstance(what, int) else what
        record = Record(id, ImageRef(bytes=data), split)
        return Item(id, f"{content_hash(data)} {split}", lambda: record)

    write_collection(folder, [item(*row) for row in rows], name="n", source="s", progress=False)
    return Collection.open(folder)


def ten(folder: Path) -> Collection:
    return collect(folder, [(f"i{n}", n, "train" if n < 7 else "test") for n in range(10)])


def expected(encoder: ImageTextEncoder, numbers: Sequence[int]) -> np.ndarray:
    return encode_images(encoder, [decode(picture(n)) for n in numbers])


def cache_files(collection: Collection) -> list[str]:
    (folder,) = (collection.folder / "embeddings").iterdir()
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_vectors_in_the_order_of_the_collection(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    made = embed(ten(tmp_path), encoder, batch_size=4)
    assert made.ids == [f"i{n}" for n in range(10)]
    assert made.vectors.dtype == np.float32
    assert (made.computed, made.reused, made.failed) == (10, 0, [])
    assert made.fingerprint == encoder.vision_fingerprint
    assert encoder.seen == [4, 4, 2]
    np.testing.assert_allclose(made.vectors, expected(encoder, range(10)), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-6)


def test_the_cache_is_plain_files_as_described(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    made = embed(ten(tmp_path), encoder, batch_size=4)
    assert made.cache == tmp_path / "embeddings" / encoder.vision_fingerprint
    assert cache_files(Collection.open(tmp_path)) == ["ids.json", "manifest.json", "vectors.npy"]
    np.testing.assert_array_equal(np.load(made.cache / "vectors.npy"), made.vectors)
    ids = json.loads((made.cache / "ids.json").read_text())
    assert ids == [content_hash(picture(n)) for n in range(10)]
    manifest = json.loads((made.cache / "manifest.json").read_text())
    assert (manifest["rows"], manifest["dim"]) == (10, encoder.dim)


def test_a_second_run_computes_and_writes_nothing(
    encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    first = embed(ten(tmp_path), encoder)
    assert first.cache is not None
    times = {path: path.stat().st_mtime_ns for path in first.cache.rglob("*.*")}
    encoder.seen.clear()
    again = embed(Collection.open(tmp_path), encoder)
    assert (again.computed, again.reused, encoder.seen) == (0, 10, [])
    np.testing.assert_array_equal(again.vectors, first.vectors)
    assert {path: path.stat().st_mtime_ns for path in first.cache.rglob("*.*")} == times


def test_a_new_text_side_reuses_everything(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    first = embed(ten(tmp_path / "c"), encoder)
    trained = encoder.trainable_copy()
    with torch.no_grad():
        for parameter in trained.text_tensors().values():
            parameter.add_(0.1)
    trained.save(tmp_path / "trained")
    again = embed(Collection.open(tmp_path / "c"), load_encoder(tmp_path / "trained"))
    assert (again.computed, again.reused) == (0, 10)
    np.testing.assert_array_equal(again.vectors, first.vectors)


def test_another_vision_side_has_a_cache_of_its_own(
    encoder: ImageTextEncoder, tmp_path: Path, random_blip: Path
) -> None:
    embed(ten(tmp_path), encoder)
    other = load_encoder(random_blip, device="cpu")
    with torch.no_grad():
        other.model.vision_proj.bias.add_(1)
    made = embed(Collection.open(tmp_path), other)
    assert made.computed == 10
    assert len(list((tmp_path / "embeddings").iterdir())) == 2


@pytest.mark.parametrize("count", [10, 40])  # fetched in one stream, or one by one
def test_only_what_changed_is_computed(
    encoder: ImageTextEncoder, tmp_path: Path, count: int
) -> None:
    rows = [(f"i{n}", n, "train") for n in range(count)]
    embed(collect(tmp_path, rows), encoder)
    encoder.seen.clear()
    changed = [rows[0], ("i1", 901, "train"), *rows[3:], ("new", 902, "train")]  # i2 is gone
    collection = collect(tmp_path, changed)
    made = embed(collection, encoder)
    assert (made.computed, made.reused, encoder.seen) == (2, count - 2, [2])
    assert made.ids == collection.ids()
    assert set(made.ids) == {id for id, _, _ in changed}
    at = made.ids.index
    assert made.cache is not None
    np.testing.assert_allclose(
        made.vectors[[at("i1"), at("new"), at("i3")]], expected(encoder, [901, 902, 3]), atol=1e-5
    )
    kept = json.loads((made.cache / "ids.json").read_text())
    assert len(kept) == count
    assert content_hash(picture(1)) not in kept
    assert content_hash(picture(2)) not in kept


def test_equal_images_are_embedded_once(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    made = embed(collect(tmp_path, [("a", 1, "x"), ("b", 2, "x"), ("c", 1, "y")]), encoder)
    assert (made.computed, made.reused, encoder.seen) == (2, 1, [2])
    np.testing.assert_array_equal(made.vectors[0], made.vectors[2])
    encoder.seen.clear()
    more = [("a", 1, "x"), ("b", 2, "x"), ("c", 1, "y"), ("d", 2, "y")]
    assert embed(collect(tmp_path, more), encoder).computed == 0


def test_splits_share_one_cache(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    collection = ten(tmp_path)
    test = embed(collection, encoder, split="test")
    assert (test.ids, test.computed) == (["i7", "i8", "i9"], 3)
    train = embed(collection, encoder, split="train")
    assert train.computed == 7
    whole = embed(collection, encoder)
    assert (whole.computed, whole.reused) == (0, 10)
    np.testing.assert_array_equal(whole.vectors, np.concatenate([train.vectors, test.vectors]))
    with pytest.raises(UsageError, match="train, test"):
        embed(collection, encoder, split="val")


def test_some_ids_alone_and_what_is_cached_of_others_stays(
    encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    # Hashes that are not those of the images, so that the records do not tell what to keep.
    rows = [(f"i{n}", picture(n), None) for n in range(4)]
    collection = Collection.open(foreign(tmp_path, rows, content=[f"{n:032x}" for n in range(4)]))
    first = embed(collection, encoder, ids={"i3", "i1", "of another collection"})
    assert (first.ids, first.computed, encoder.seen) == (["i1", "i3"], 2, [2])
    other = embed(collection, encoder, ids=frozenset({"i2"}))
    assert (other.ids, other.computed) == (["i2"], 1)
    np.testing.assert_allclose(other.vectors, expected(encoder, [2]), atol=1e-5)
    assert embed(collection, encoder, ids=set()).ids == []
    whole = embed(collection, encoder)
    assert (whole.computed, whole.reused) == (1, 3)


def test_bad_images_are_named_and_the_run_goes_on(
    encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    folder = foreign(
        tmp_path,
        [
            ("good", picture(1), None),
            ("half", picture(2)[:300], None),
            ("none", None, None),
            ("text", b"not an image at all", None),
            ("outside", None, "../secret.png"),
            ("absent", None, "images/absent.png"),
            ("file", None, "images/there.png"),
        ],
    )
    (folder / "images").mkdir()
    (folder / "images" / "there.png").write_bytes(picture(3))
    (tmp_path / "secret.png").write_bytes(picture(4))
    made = embed(Collection.open(folder), encoder, batch_size=2)
    assert made.ids == ["good", "file"]
    np.testing.assert_allclose(made.vectors, expected(encoder, [1, 3]), atol=1e-5)
    failed = dict(made.failed)
    assert list(failed) == ["half", "none", "text", "absent"]
    assert "truncated" in failed["half"]
    assert all(failed.values())
    again = embed(Collection.open(folder), encoder)
    assert (again.ids, again.computed, again.failed) == (made.ids, 0, made.failed)


def foreign(
    tmp_path: Path, rows: list[tuple[str, bytes | None, str | None]], **columns: list
) -> Path:
    """A collection that another tool wrote: no content hashes, no manifests."""
    folder = tmp_path / "foreign"
    (folder / "records").mkdir(parents=True)
    image = [{"bytes": data, "path": path} for _, data, path in rows]
    table = pa.table({"id": [id for id, _, _ in rows], "image": image, **columns})
    pq.write_table(table, folder / "records" / "part-00000.parquet")
    return folder


def test_a_foreign_collection_is_hashed(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    rows = [(f"i{n}", picture(n), None) for n in (1, 2, 1, 3)]
    rows = [(f"{n}", data, path) for n, (_, data, path) in enumerate(rows)]
    # A column that happens to be called `content` must not be taken for hashes.
    folder = foreign(tmp_path, rows, content=["same text"] * 4)
    first = embed(Collection.open(folder), encoder)
    assert (first.computed, first.reused) == (3, 1)
    np.testing.assert_allclose(first.vectors, expected(encoder, [1, 2, 1, 3]), atol=1e-5)
    encoder.seen.clear()
    again = embed(Collection.open(folder), encoder)
    assert (again.computed, encoder.seen) == (0, [])
    np.testing.assert_array_equal(again.vectors, first.vectors)


def test_a_false_hash_never_gives_a_false_vector(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    folder = foreign(
        tmp_path, [("a", picture(1), None), ("b", picture(2), None)], content=["0" * 32] * 2
    )
    for _ in range(2):
        made = embed(Collection.open(folder), encoder)
        np.testing.assert_allclose(made.vectors, expected(encoder, [1, 2]), atol=1e-5)
    assert made.computed == 0


def test_a_folder_that_cannot_be_written(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    collection = ten(tmp_path)
    (tmp_path / "embeddings").write_text("a file is in the way")
    made = embed(collection, encoder)
    assert made.cache is None
    assert made.computed == 10
    np.testing.assert_allclose(made.vectors, expected(encoder, range(10)), atol=1e-5)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_is_read(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    first = embed(ten(tmp_path), encoder)
    assert first.cache is not None
    (first.cache / "parts").chmod(0o500)
    again = embed(Collection.open(tmp_path), encoder)
    assert (again.computed, again.cache) == (0, None)


def test_a_full_disk_is_one_sentence(
    encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(ParagrainError, match=r"cannot be written .*No space left .*make room"):
        embed(ten(tmp_path), encoder)


def test_vectors_that_are_not_finite_stop_the_run(
    encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = encoder.image_features
    monkeypatch.setattr(
        encoder, "image_features", lambda p: features(p).index_fill(0, torch.tensor([1]), torch.nan)
    )
    with pytest.raises(ParagrainError, match="1 of 10 image embeddings that are not finite"):
        embed(ten(tmp_path), encoder)
    monkeypatch.setattr(encoder, "image_features", features)
    assert embed(Collection.open(tmp_path), encoder).computed == 10


# --- Interruptions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda cache: (cache / "manifest.json").unlink(),
        lambda cache: (cache / "vectors.npy").write_bytes(b"\x93NUMPY half a file"),
        lambda cache: (cache / "ids.json").write_text('["x"]'),
        lambda cache: np.save(cache / "vectors.npy", np.ones((10, 16), np.float32)),
        lambda cache: (cache / "manifest.json").write_text("[]"),
    ],
)
def test_files_that_do_not_agree_are_not_believed(
    encoder: ImageTextEncoder, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    first = embed(ten(tmp_path), encoder)
    assert first.cache is not None
    damage(first.cache)
    again = embed(Collection.open(tmp_path), encoder)
    assert again.computed == 10
    np.testing.assert_array_equal(again.vectors, first.vectors)
    assert embed(Collection.open(tmp_path), encoder).computed == 0


@pytest.mark.parametrize("file", ["ids.json", "vectors.npy", "manifest.json"])
def test_a_kill_while_tidying_loses_nothing(
    encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The process ends just before one of the three files is replaced."""
    embed(collect(tmp_path, [(f"i{n}", n, "train") for n in range(5)]), encoder)
    real = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if Path(target).name == file:
            raise KeyboardInterrupt
        return real(self, target)

    collection = ten(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            embed(collection, encoder)
    again = embed(Collection.open(tmp_path), encoder)
    assert (again.computed, again.reused) == (0, 10)
    np.testing.assert_allclose(again.vectors, expected(encoder, range(10)), atol=1e-5)
    assert cache_files(collection) == ["ids.json", "manifest.json", "vectors.npy"]


def test_damaged_parts_are_computed_again(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    parts = tmp_path / "embeddings" / encoder.vision_fingerprint / "parts"
    collection = ten(tmp_path)
    parts.mkdir(parents=True)
    (parts / "a.npz").write_bytes(b"PK\x03\x04 half")
    (parts / "b.npz").write_bytes(b"")
    np.savez(parts / "c.npz", ids=np.array(["0" * 32]), vectors=np.ones((1, 3), np.float32))
    np.savez(
        parts / "d.npz", ids=np.array([{}], dtype=object), vectors=np.ones((1, 16), np.float32)
    )
    assert embed(collection, encoder).computed == 10
    assert list(parts.iterdir()) == []


def start(collection: Path, encoder: ImageTextEncoder, pause: float) -> BaseProcess:
    """Embed in a process of its own, two images every `pause` seconds."""
    features = encoder.image_features

    def slow(pixels: torch.Tensor) -> torch.Tensor:
        time.sleep(pause)
        return features(pixels)

    def run() -> None:
        torch.set_num_threads(1)  # what OpenMP had begun did not come along
        encoder.image_features = slow  # type: ignore[method-assign]
        embed(Collection.open(collection), encoder, batch_size=2, progress=False)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process


def wait_for_parts(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.glob("embeddings/*/parts/*.npz"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_killed_run_continues_and_two_at_once_do_no_harm(
    encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    numbers = list(range(40))
    collect(tmp_path, [(f"i{n}", n, "train") for n in numbers])
    encoder.vision_fingerprint  # noqa: B018  (known to the processes too)
    run = start(tmp_path, encoder, 0.1)
    wait_for_parts(tmp_path, 3)
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    run.join()
    kept = 2 * len(list(tmp_path.glob("embeddings/*/parts/*.npz")))
    assert 6 <= kept < 40

    run = start(tmp_path, encoder, 0.1)
    wait_for_parts(tmp_path, kept // 2 + 1)  # it works now, and so do we
    ours = embed(Collection.open(tmp_path), encoder, batch_size=3)
    run.join(60)
    assert run.exitcode == 0
    assert ours.computed < 40 - kept
    np.testing.assert_allclose(ours.vectors, expected(encoder, numbers), atol=1e-5)
    again = embed(Collection.open(tmp_path), encoder)
    assert (again.computed, again.reused) == (0, 40)
    np.testing.assert_allclose(again.vectors, ours.vectors, atol=1e-6)
    assert cache_files(Collection.open(tmp_path)) == ["ids.json", "manifest.json", "vectors.npy"]


# --- Work ahead -------------------------------------------------------------------------------


def test_working_ahead_keeps_the_order_and_stays_bounded() -> None:
    taken = 0

    def items() -> Iterable[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    ahead = module.ahead(lambda n: n * n, items(), 8)
    assert [next(ahead) for _ in range(5)] == [0, 1, 4, 9, 16]
    assert taken <= 5 + 8 + 16
    ahead.close()
    assert list(module.ahead(lambda n: -n, range(100), 4)) == [-n for n in range(100)]


def test_an_error_of_a_thread_reaches_the_caller(
    encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(image: Image.Image) -> torch.Tensor:
        raise MemoryError

    monkeypatch.setattr(encoder, "pixels", broken)
    with pytest.raises(MemoryError):
        embed(ten(tmp_path), encoder)


def test_the_shared_photographs(encoder: ImageTextEncoder, tmp_path: Path, shared: Path) -> None:
    paths = sorted((shared / "photos" / "images").glob("*.jpg"))[:12]
    items = [
        Item(
            path.name,
            path.name,
            lambda path=path: Record(path.name, ImageRef(bytes=path.read_bytes())),
        )
        for path in paths
    ]
    write_collection(tmp_path, items, name="photos", source="COCO", progress=False)
    made = embed(Collection.open(tmp_path), encoder)
    direct = encode_images(encoder, [decode(path) for path in paths])
    assert made.ids == [path.name for path in paths]
    np.testing.assert_allclose(made.vectors, direct, atol=1e-5)
