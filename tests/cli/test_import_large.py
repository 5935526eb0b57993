"""The importers of large sets from the command line, each on a miniature of its layout."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from paragrain.collection import Collection

Cli = Callable[..., Any]


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (30, 30), colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_webdataset(paragrain: Cli, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00000.tar", "w") as tar:
        for name, data in [("22.05.png", png("red")), ("22.05.txt", b"a red square"),
                           ("7.txt", b"nothing to see")]:  # fmt: skip
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    done = paragrain("import", "webdataset", tmp_path / "00000.tar", tmp_path / "out", "--json")
    assert done.code == 3
    assert done.json["splits"] == {"train": 1}
    assert "7" in done.json["skipped"][0][0]
    (record,) = Collection.open(tmp_path / "out").records()
    assert (record.id, record.captions) == ("00000/22.05", ["a red square"])


def test_cc3m(paragrain: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a dog\thttp://a/1.jpg\na cat\thttp://a/2.jpg\n")
    done = paragrain("import", "cc3m", tmp_path / "t.tsv", tmp_path / "out", "--json")
    assert (done.code, done.json["splits"]) == (0, {"train": 2})
    assert [r.url for r in Collection.open(tmp_path / "out").records()][1] == "http://a/2.jpg"


def test_sharegpt4v(paragrain: Cli, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    entries = []
    for number in range(3):
        (tmp_path / "images" / f"{number}.png").write_bytes(png("blue"))
        turns = [{"from": "human", "value": "<image>\nDescribe."},
                 {"from": "gpt", "value": f"Picture {number} is blue. <image>"}]  # fmt: skip
        entries.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    entries[2]["image"] = "absent.png"
    (tmp_path / "s.json").write_text(json.dumps(entries))
    done = paragrain(
        "import", "sharegpt4v", tmp_path / "s.json", "--images", tmp_path / "images",
        "--hold-out", 1, tmp_path / "out", "--json",
    )  # fmt: skip
    assert (done.code, done.json["splits"]) == (3, {"test": 1, "train": 1})
    assert "absent.png" in done.json["skipped"][0][0]
    first = next(iter(Collection.open(tmp_path / "out").records()))
    assert (first.split, first.description) == ("test", "Picture 0 is blue.")
