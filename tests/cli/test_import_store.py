"""Every importer from the command line with images as files; what was skipped, by name."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection, reports
from paragrain.collection.shards import writing_alone

Cli = Callable[..., Any]


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(buffer, "PNG")
    return buffer.getvalue()


def miniature(kind: str, root: Path) -> list[object]:
    """The arguments of an import of one picture, in a miniature of the real layout."""
    images = root / "images"
    put(images / "7.png", png())
    turns = [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "A red square."}]
    sentences = [{"raw": "a red square"}]
    if kind == "urban1k":
        put(root / "urban/image/7.png", png())
        put(root / "urban/caption/7.txt", "A red square.")
    if kind in ("webdataset", "cc3m"):
        put(root / "files/00000/7.png", png())
        put(root / "files/00000/7.json", {"caption": "a red square", "url": "http://a/7"})
    made: dict[str, Callable[[], list[object]]] = {
        "folder": lambda: [images],
        "coco": lambda: ["--images", images, "--captions", put(root / "c.json", {
            "images": [{"id": 7, "file_name": "7.png"}],
            "annotations": [{"id": 1, "image_id": 7, "caption": "a red square"}]})],
        "karpathy": lambda: ["--images", images, "--dataset", put(root / "k.json", {
            "images": [{"filename": "7.png", "split": "train", "sentences": sentences}]})],
        "flickr": lambda: ["--images", images, "--captions",
                           put(root / "captions.txt", "image,caption\n7.png,a red square\n")],
        "docci": lambda: ["--images", images, "--jsonl", put(root / "d.jsonlines", {
            "example_id": "7", "split": "train", "image_file": "7.png", "description": "Red."})],
        "jsonl": lambda: [put(root / "j.jsonl", {"image": "7.png", "description": "Red."}),
                          "--images", images],
        "urban1k": lambda: [root / "urban"],
        "webdataset": lambda: [root / "files"],
        "cc3m": lambda: [put(root / "t.tsv", "a red square\thttp://a/7\n"),
                         "--images", root / "files"],
        "sharegpt4v": lambda: [put(root / "s.json", [{"image": "7.png", "conversations": turns}]),
                               "--images", images],
    }  # fmt: skip
    return made[kind]()


KINDS = ("folder", "coco", "karpathy", "flickr", "docci", "jsonl", "urban1k", "webdataset", "cc3m",
         "sharegpt4v")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_importer_keeps_bytes_or_paths_and_joins_texts(
    paragrain: Cli, tmp_path: Path, kind: str
) -> None:
    texts = "image_name,paragraph\n7.png,A square that is red.\n"
    if kind == "cc3m":
        texts = "id,paragraph\n000000000,A square that is red.\n"
    arguments = [*miniature(kind, tmp_path / "data"), "--texts", put(tmp_path / "t.csv", texts)]
    seen = []
    for store in ("bytes", "paths"):
        out = tmp_path / store
        done = paragrain("import", kind, *arguments, out, "--store", store, "--json")
        assert (done.code, done.json["written"], done.json["skipped"]) == (0, 1, []), done.err
        again = paragrain("import", kind, *arguments, out, "--store", store, "--json")
        assert (again.json["written"], again.json["kept"]) == (0, 1)
        (record,) = Collection.open(out).records()
        assert Collection.open(out).image_bytes(record) == png()
        assert record.paragraph == "A square that is red."
        path = out / str(record.image.path)
        assert path.is_file() == (store == "paths")
        assert store == "bytes" or path.stat().st_nlink == 2
        seen.append((record.id, record.content, record.captions, record.description))
    assert seen[0] == seen[1]


def test_what_is_skipped_is_counted_in_full_and_named_in_a_file(
    paragrain: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "KEPT", 15)
    entries = [{"image": f"{n}.png", "conversations": [{"from": "gpt", "value": "Red."}]}
               for n in range(30)]  # fmt: skip
    put(tmp_path / "i/3.png", png())
    file = put(tmp_path / "s.json", entries)
    out = tmp_path / "c"
    done = paragrain("import", "sharegpt4v", file, "--images", tmp_path / "i", out)
    assert done.code == 3
    assert "paragrain: 29 skipped:" in done.err
    assert f"and 19 more, named in {out / 'skipped.jsonl'}" in done.err
    names = [json.loads(line)["id"] for line in (out / "skipped.jsonl").read_text().splitlines()]
    assert names == [f"{n}.png" for n in range(30) if n != 3]
    told = paragrain("import", "sharegpt4v", file, "--images", tmp_path / "i", out, "--json").json
    assert (len(told["skipped"]), told["skipped_total"]) == (15, 29)


def test_a_second_import_at_once_is_one_sentence(paragrain: Cli, tmp_path: Path) -> None:
    put(tmp_path / "i/3.png", png())
    with writing_alone(tmp_path / "c"):
        done = paragrain("import", "folder", tmp_path / "i", tmp_path / "c")
    assert done.code == 1
    assert (
        done.err.strip()
        .splitlines()[-1]
        .startswith(f"paragrain: another import or annotation is writing to {tmp_path / 'c'}")
    )
    assert "Traceback" not in done.err


@pytest.mark.parametrize("store", ["bytes", "paths"])
def test_the_shared_photographs_as_a_folder_and_as_coco(
    paragrain: Cli, shared: Path, tmp_path: Path, store: str
) -> None:
    photos = shared / "photos"
    common = ("--store", store, "--json")
    folder = paragrain("import", "folder", photos / "images", tmp_path / "f", *common)
    coco = paragrain(
        "import", "coco", "--images", photos / "images", "--captions", photos / "captions.json",
        "--texts", photos / "paragraphs.jsonl", tmp_path / "c", *common,
    )  # fmt: skip
    assert (folder.code, folder.json["written"], coco.code, coco.json["written"]) == (0, 50, 0, 50)
    one, other = Collection.open(tmp_path / "f"), Collection.open(tmp_path / "c")
    hashes = [{r.content for r in c.records(fields=["content"])} for c in (one, other)]
    assert hashes[0] == hashes[1]
    assert all(record.captions and record.paragraph for record in other.records())
