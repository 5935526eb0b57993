"""What was left out: any number of it, named to the last in a file and counted."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paragrain.collection import ImportReport, Item, Record, Skipped
from paragrain.collection import reports as module
from paragrain.images import BadImage

PAIRS = st.lists(st.tuples(st.text(max_size=3), st.sampled_from(["\udcff\n", "é\u2028", ""])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PAIRS, PAIRS, st.integers(0, 3))
def test_it_is_a_list_whatever_of_it_is_in_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
    kept: int,
) -> None:
    monkeypatch.setattr(module, "KEPT", kept)
    skipped = Skipped(tmp_path / "not" / "there" / "yet")
    skipped.extend(before)
    assert list(skipped) == list(skipped) == before
    skipped.extend(after)
    assert (list(skipped), len(skipped)) == (before + after, len(before + after))
    assert skipped.first == (before + after)[:kept]
    skipped.write(tmp_path / "names.jsonl")
    if before + after:
        lines = (tmp_path / "names.jsonl").read_text("ascii").splitlines()
        assert [tuple(json.loads(line).values()) for line in lines] == before + after
    assert {path.name for path in tmp_path.iterdir()} <= {"names.jsonl"}
    skipped.clear()
    assert (list(skipped), len(skipped), skipped.first) == ([], 0, [])
    skipped.extend(after)
    assert list(skipped) == after
    skipped.clear()
    skipped.write(tmp_path / "names.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_many_names_take_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    skipped = Skipped(tmp_path)
    skipped.extend((f"coco/train2017/{n:012d}.jpg", "its file is missing") for n in range(20_000))
    assert sum(1 for _ in skipped) == 20_000
    assert tracemalloc.get_traced_memory()[1] < 1.5e6
    tracemalloc.stop()


def test_an_import_counts_all_and_reports_the_first(
    tmp_path: Path, write: Callable[..., ImportReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 5)

    def bad(n: int) -> Item:
        def fail() -> None:
            raise BadImage(f"bad {n}")

        return Item(f"b{n}", "1", fail)  # type: ignore[arg-type]

    repeated = [Item("b0", "1", lambda: None)] * 3  # type: ignore[arg-type,return-value]
    good = Item("good", "1", lambda: Record("good"))
    entries = [good, *(bad(n) for n in range(10)), *repeated]
    report = write(tmp_path / "c", entries, problems=[("line 1", "odd"), ("line 2", "odd")])
    lines = (tmp_path / "c" / "skipped.jsonl").read_text().splitlines()
    names = [json.loads(line)["id"] for line in lines]
    assert names == ["line 1", "line 2", "b0", "b0", "b0", *(f"b{n}" for n in range(10))]
    assert [id for id, _ in report.skipped] == names[:5]
    assert report.skipped_total == 15
    assert json.loads((tmp_path / "c" / "collection.json").read_text())["skipped"] == 15
