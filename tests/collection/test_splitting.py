"""Shares for validation and test: stable, and with copies of an image on one side."""

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from paragrain.collection import Collection, ImageRef, ImportReport, Item, Record
from paragrain.collection.splits import Shares, moved
from paragrain.errors import UsageError

Write = Callable[..., ImportReport]


def png(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (colour % 256, colour // 256, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def photo(id: str, colour: int, split: str | None = None, group: str | None = None) -> Item:
    values: dict[str, Any] = {"group": group, **({} if split is None else {"split": split})}
    stamp = json.dumps([colour, values])
    make = lambda: Record(id, ImageRef(png(colour), id), **values)  # noqa: E731
    return Item(id, stamp, make, says_split=split is not None)


def photos(count: int, **fields: Any) -> list[Item]:
    return [photo(f"p{n}", n, **fields) for n in range(count)]


def splits(folder: Path) -> dict[str, str]:
    return {record.id: record.split for record in Collection.open(folder).records()}


def test_shares_are_as_asked_and_new_images_move_no_old_one(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    report = write(folder, photos(300), val=0.1, test=0.2)
    assert 15 <= report.splits["val"] <= 45
    assert 35 <= report.splits["test"] <= 85
    before = splits(folder)
    assert Counter(before.values()) == report.splits
    report = write(folder, photos(500))  # the shares are remembered
    after = splits(folder)
    assert {id: after[id] for id in before} == before
    assert 0.05 < report.splits["val"] / 500 < 0.16
    assert Counter(after.values()) == report.splits == Collection.open(folder).info["splits"]


def test_a_split_that_somebody_says_is_never_changed(tmp_path: Path, write: Write) -> None:
    entries = [*photos(40, split="train"), photo("x", 99, split="mine")]
    assert write(tmp_path / "c", entries, val=0.4, test=0.4).splits == {"train": 40, "mine": 1}


def test_copies_by_bytes_and_by_group_are_on_one_side(tmp_path: Path, write: Write) -> None:
    """Through any number of steps: a and b share bytes, b and c a group, c and d bytes again."""
    entries = []
    for n in range(60):
        entries += [photo(f"a{n}", 2 * n), photo(f"b{n}", 2 * n, group=f"g{n}")]
        entries += [photo(f"c{n}", 2 * n + 1, group=f"g{n}"), photo(f"d{n}", 2 * n + 1)]
    write(tmp_path / "c", entries, val=0.3, test=0.3, shard_rows=50)
    found = splits(tmp_path / "c")
    families = [{found[f"{letter}{n}"] for letter in "abcd"} for n in range(60)]
    assert all(len(family) == 1 for family in families)
    assert {"train", "val", "test"} == set().union(*families)


def test_a_copy_joins_the_side_of_what_it_copies(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    tests = [photo(f"t{n}", n, split="test") for n in range(20)]
    write(folder, tests, val=0.1)
    copies = [photo(f"u{n}", n) for n in range(20)]
    assert write(folder, [*tests, *copies]).splits == {"test": 40}


def test_a_copy_with_other_metadata_is_on_the_side_of_its_picture(
    tmp_path: Path, write: Write
) -> None:
    def noted(n: int) -> Item:
        data = png(n)
        end = data.rindex(b"\0\0\0\0IEND")
        note = b"tEXtComment\0mine"
        chunk = (len(note) - 4).to_bytes(4, "big") + note + zlib.crc32(note).to_bytes(4, "big")
        changed = data[:end] + chunk + data[end:]
        make = lambda: Record(f"u{n}", ImageRef(changed, f"u{n}"))  # noqa: E731
        return Item(f"u{n}", str(n), make, says_split=False)

    tests = [photo(f"t{n}", n, split="test") for n in range(10)]
    report = write(tmp_path / "c", [*tests, *map(noted, range(10))], val=0.1)
    assert report.splits == {"test": 20}


@pytest.mark.parametrize("shares", [{"val": 0.3, "test": 0.3}, {}])
def test_a_picture_that_was_edited_stays_on_its_side(
    tmp_path: Path, write: Write, shares: dict[str, float]
) -> None:
    folder = tmp_path / "c"
    write(folder, photos(60) if shares else photos(60, split="test"), **shares)
    before = splits(folder)
    write(folder, [photo(f"p{n}", 1000 + n) for n in range(59)] + photos(60)[59:])
    assert splits(folder) == before


def test_shares_that_come_later_divide_what_is_in_train(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "c"
    assert write(folder, photos(100)).splits == {"train": 100}
    report = write(folder, photos(100), val=0.2, test=0.2)
    assert (report.written, report.kept) == (0, 100)
    assert set(report.splits) == {"train", "val", "test"}
    before = splits(folder)
    assert write(folder, photos(100), val=0.2, test=0.2).splits == report.splits
    write(folder, photos(100), val=0.5, test=0.2)
    after = splits(folder)
    assert all(after[id] == split for id, split in before.items() if split != "train")
    assert Collection.open(folder).problems == []
    assert write(folder, photos(100)).kept == 100  # the manifests know of the moves


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0), (1.0, 0), (0.5, 0.5), (0, 7)])
def test_what_is_no_share_is_refused_before_anything_is_written(
    tmp_path: Path, write: Write, val: float, test: float
) -> None:
    with pytest.raises(UsageError, match=r"--val|--test"):
        write(tmp_path / "c", photos(2), val=val, test=test)
    assert not (tmp_path / "c").exists()


ROWS = st.lists(st.tuples(st.sampled_from(["", "g", "h", "i"]), st.sampled_from("0123456")))


class Rows:
    """As much of a collection as `moved` reads."""

    folder = Path("no-such-folder")

    def __init__(self, rows: list[tuple[str, str]], shares: Shares):
        self._rows = rows

    def records(self, fields: Any) -> list[Record]:
        return [Record(str(n), group=g or None, content=c) for n, (g, c) in enumerate(self._rows)]


@given(ROWS)
def test_after_the_moves_no_tie_crosses_a_split(rows: list[tuple[str, str]]) -> None:
    shares = Shares(0.3, 0.3)
    collection: Any = Rows(rows, shares)
    new = moved(collection, shares, lambda id, split: True)
    by_tie: dict[str, set[str]] = {}
    for n, (group, content) in enumerate(rows):
        for tie in ([f"g{group}"] if group else []) + [f"c{content}"]:
            by_tie.setdefault(tie, set()).add(new.get(str(n), "train"))
    assert all(len(found) == 1 for found in by_tie.values())
