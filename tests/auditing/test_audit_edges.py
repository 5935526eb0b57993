"""Sides with nothing to look at: without images, with broken ones alone; a folder with itself."""

import io
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paragrain.auditing import audit
from paragrain.collection import Collection, ImageRef, Record
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError

Collect = Callable[[Path, list[Record]], Collection]
SAID = ["one cat sits on a mat"]


def photo(seed: int) -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).resize((120, 90)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def sides(collect: Collect, tmp_path: Path) -> dict[str, Collection]:
    records = {
        "sound": [Record("a", ImageRef(photo(1)), captions=SAID), Record("b", ImageRef(photo(2)))],
        "broken": [Record("a", ImageRef(b""), captions=SAID), Record("c", ImageRef(photo(3)[:-2]))],
        "texts alone": [Record("t", ImageRef(), captions=SAID)],
        "copies": [Record("k", ImageRef(photo(2))), Record("broken", ImageRef(photo(1)[:-2]))],
    }  # fmt: skip
    return {name: collect(tmp_path / name, own) for name, own in records.items()}


@pytest.mark.parametrize("vectors", [False, True])
def test_any_side_may_lack_images_and_order_does_not_matter(
    sides: dict[str, Collection], encoder: ImageTextEncoder, tmp_path: Path, vectors: bool
) -> None:
    options: dict[str, Any] = {"encoder": encoder if vectors else None, "cosine": 0.999}
    found = {}
    for one, other in product(sides, sides):
        report = audit(sides[one], sides[other], progress=False, **options)
        report.write(tmp_path / "out")
        found[one, other] = {(f.train, f.evaluation, f.reason) for f in report.findings}
        failed = {(name, id) for name, id, _ in report.failed if name != "texts alone"}
        bad = {("broken", "a"), ("broken", "c"), ("copies", "broken")}
        assert failed == {(name, id) for name, id in bad if name in (one, other)}
    for (one, other), pairs in found.items():
        if one == other:
            assert pairs == set()
        else:
            assert found[other, one] == {(b, a, reason) for a, b, reason in pairs}
    assert found["sound", "broken"] == {("a", "a", "id"), ("a", "a", "text")}
    assert found["sound", "texts alone"] == {("a", "t", "text")}
    assert found["sound", "copies"] == {("b", "k", "bytes")}


def test_a_split_that_is_not_there(sides: dict[str, Collection]) -> None:
    with pytest.raises(UsageError, match="has no split 'test'"):
        audit(sides["sound"], sides["copies"], split="test", progress=False)


def test_the_command_names_broken_images_once_where_a_folder_meets_itself(
    sides: dict[str, Collection], paragrain: Callable[..., Any]
) -> None:
    folder = sides["broken"].folder
    for arguments in ((folder,), (folder, folder)):
        done = paragrain("audit", *arguments, "--json")
        assert done.code == 3
        assert done.json["within"]
        assert [item[1] for item in done.json["failed"]] == ["a", "c"]
