"""Every importer meets the same damaged files: each is named with its reason, the rest comes in."""

import io
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.sources import (
    import_cc3m,
    import_coco,
    import_docci,
    import_flickr,
    import_folder,
    import_jsonl,
    import_karpathy,
    import_sharegpt4v,
    import_urban1k,
    import_webdataset,
)

Import = Callable[[dict[str, bytes], Path, Path], Any]


def encoded(kind: str, size: tuple[int, int] = (24, 24), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


@cache
def files() -> dict[str, bytes]:
    """Two sound pictures, and all that stops other programs."""
    jpeg = encoded("JPEG")
    huge = encoded("PNG", (15_000, 15_000), "1")
    assert len(huge) < 50_000
    return {
        "0007.jpg": jpeg,
        "bytes0.jpg": b"",
        "bytes3.jpg": jpeg[:3],
        "bytes50.jpg": jpeg[:50],
        "half.jpg": jpeg[: len(jpeg) // 2],
        "huge.png": huge,
        "page.jpg": b"<html>404</html>",
        "short.jpg": jpeg[:-2],
        "sound.png": encoded("PNG"),
    }


REASONS = {
    "bytes0": "an empty file",
    "bytes3": "truncated or damaged in its header",
    "bytes50": "truncated",
    "half": "truncated",
    "huge": "too many pixels (225,000,000; the limit is 100,000,000)",
    "page": "not an image of a known format",
    "short": "truncated",
}


def pictures(folder: Path, given: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in given.items():
        (folder / name).write_bytes(data)
    return folder


def text(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as made:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return path


def folder(given: dict[str, bytes], work: Path, out: Path) -> Any:
    return import_folder(pictures(work / "i", given), out, progress=False)


def coco(given: dict[str, bytes], work: Path, out: Path) -> Any:
    listed = [{"id": n, "file_name": name} for n, name in enumerate(given)]
    said = [{"id": n, "image_id": n, "caption": "a caption"} for n in range(len(given))]
    file = text(work / "c.json", json.dumps({"images": listed, "annotations": said}))
    return import_coco(pictures(work / "i", given), file, out, progress=False)


def karpathy(given: dict[str, bytes], work: Path, out: Path) -> Any:
    listed = [
        {"filename": name, "split": "test", "sentences": [{"raw": "a caption"}]} for name in given
    ]
    file = text(work / "d.json", json.dumps({"images": listed, "dataset": "flickr30k"}))
    return import_karpathy(file, pictures(work / "i", given), out, progress=False)


def flickr(given: dict[str, bytes], work: Path, out: Path) -> Any:
    file = text(work / "f.token.txt", *(f"{name}#0\ta caption" for name in given))
    return import_flickr(file, pictures(work / "i", given), out, progress=False)


def docci(given: dict[str, bytes], work: Path, out: Path) -> Any:
    rows = [
        {"example_id": name, "split": "train", "image_file": name, "description": "a text"}
        for name in given
    ]
    file = text(work / "d.jsonlines", *map(json.dumps, rows))
    return import_docci(file, pictures(work / "i", given), out, progress=False)


def jsonl(given: dict[str, bytes], work: Path, out: Path) -> Any:
    file = text(work / "d.jsonl", *(json.dumps({"image": n, "description": "x"}) for n in given))
    return import_jsonl(file, pictures(work / "i", given), out, progress=False)


def sharegpt4v(given: dict[str, bytes], work: Path, out: Path) -> Any:
    turns = [{"from": "human", "value": "<image>\nSay."}, {"from": "gpt", "value": "a text"}]
    rows = [{"id": name, "image": name, "conversations": turns} for name in given]
    file = text(work / "s.json", json.dumps(rows))
    return import_sharegpt4v(file, [pictures(work / "i", given)], out, progress=False)


def urban1k(given: dict[str, bytes], work: Path, out: Path) -> Any:
    pictures(work / "u" / "image", given)
    (work / "u" / "caption").mkdir()
    for name in given:
        text(work / "u" / "caption" / f"{Path(name).stem}.txt", "a text")
    return import_urban1k(work / "u", out, progress=False)


def webdataset(given: dict[str, bytes], work: Path, out: Path) -> Any:
    texts = {f"{Path(name).stem}.txt": b"a caption" for name in given}
    return import_webdataset(tar(work / "00000.tar", given | texts), out, progress=False)


def cc3m(given: dict[str, bytes], work: Path, out: Path) -> Any:
    """Images come as img2dataset stores them: by their address."""
    told = {
        f"{Path(name).stem}.json": json.dumps({"url": f"http://a.org/{name}"}).encode()
        for name in given
    }
    file = text(work / "t.tsv", *(f"a caption\thttp://a.org/{name}" for name in given))
    return import_cc3m(file, out, images=tar(work / "00000.tar", given | told), progress=False)


IMPORTERS: list[Import] = [
    *(folder, coco, karpathy, flickr, docci, jsonl, sharegpt4v, urban1k, webdataset, cc3m)
]


@pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.__name__)
def test_a_reason_for_each_file_and_the_run_goes_on(importer: Import, tmp_path: Path) -> None:
    report = importer(files(), tmp_path, tmp_path / "out")
    assert sum(report.splits.values()) == report.written == 2
    names = list(files())
    reasons = {}
    for where, reason in report.skipped:
        # COCO and CC3M number their images; all others name them.
        number = where.removeprefix("line ").lstrip("0") or "0"
        place = int(number) if number.isdigit() and importer in (coco, cc3m) else None
        stem = next((s for s in REASONS if s in where), None)
        reasons[stem if place is None else names[place].split(".")[0]] = reason
    assert reasons == REASONS
    collection = Collection.open(tmp_path / "out")
    assert len(list(collection.records())) == 2
    assert collection.problems == []
