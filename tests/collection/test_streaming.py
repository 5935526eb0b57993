"""Millions of items: read twice, never gathered, and synchronised as a list of them would be."""

import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paragrain.collection import Collection, ImportReport, Item, Record, write_collection
from paragrain.collection.identities import Identities
from paragrain.errors import ParagrainError

Files = Callable[[Path], dict[str, bytes]]
Write = Callable[..., ImportReport]


def texts(count: int, stamp: str = "1") -> Iterator[Item]:
    """Items without images."""
    for n in range(count):
        yield Item(f"i{n}", stamp, lambda n=n: Record(f"i{n}", captions=[f"caption {n}"]))


def test_a_function_an_iterator_and_a_list_make_the_same(
    tmp_path: Path, write: Write, files: Files
) -> None:
    calls = []

    def begin() -> Iterator[Item]:
        calls.append("called")
        return texts(7)

    forms = {"function": begin, "iterator": texts(7), "list": list(texts(7))}
    for name, form in forms.items():
        assert write(tmp_path / name, form, shard_rows=3).written == 7
    assert files(tmp_path / "function") == files(tmp_path / "iterator") == files(tmp_path / "list")
    assert len(calls) == 2
    assert write(tmp_path / "function", begin, shard_rows=3).kept == 7
    assert len(calls) == 3  # where nothing is missing it is not read again


def test_problems_and_notes_may_come_while_the_source_is_read(tmp_path: Path) -> None:
    problems: list[tuple[str, str]] = []
    notes: list[str] = []

    def begin() -> Iterator[Item]:
        problems.append(("line 1", "no caption"))
        yield from texts(2)
        yield Item("", "1", lambda: Record(""))
        yield Item("i0", "2", lambda: Record("i0"))
        yield Item("bad", "1", lambda: Record("bad", captions=["\ud800"]))
        notes.append("read to the end")

    report = write_collection(
        tmp_path / "c", begin, name="t", source="t", problems=problems, notes=notes, progress=False
    )
    assert [id for id, _ in report.skipped] == ["line 1", "", "i0", "bad"]
    assert report.notes == ["read to the end"]
    assert len(problems) == 2  # the second reading's is not the report's


@pytest.mark.parametrize("after", [[("i0", "1"), ("other", "1")], [("i0", "1")], "longer"])
def test_a_source_that_changes_meanwhile_stops_the_import(
    tmp_path: Path, write: Write, after: list[tuple[str, str]] | str
) -> None:
    calls = []

    def begin() -> Iterator[Item]:
        calls.append("called")
        if len(calls) == 1:
            yield from texts(2)
        elif after == "longer":
            yield from texts(3)
        else:
            yield from (Item(id, stamp, lambda id=id: Record(id)) for id, stamp in after)

    with pytest.raises(ParagrainError, match="changed while it was imported"):
        write(tmp_path / "c", begin, shard_rows=1)
    assert write(tmp_path / "c", list(texts(2)), shard_rows=1).splits == {"train": 2}
    assert Collection.open(tmp_path / "c").problems == []


def test_items_are_let_go_of_once_they_are_made(tmp_path: Path, write: Write) -> None:
    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def begin() -> Iterator[Item]:
        nonlocal alive, most
        for item in texts(1000):
            alive += 1
            most = max(most, alive)
            weakref.finalize(item, gone)
            yield item

    write(tmp_path / "c", begin, shard_rows=100)
    assert most < 50


def test_an_id_and_a_stamp_take_few_bytes() -> None:
    count = 100_000
    tracemalloc.start()
    wanted = Identities((f"a/rather/long/path/{n}.jpg", "0" * 32 + str(n)) for n in range(count))
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert wanted.missing.all()
    assert kept < 70 * count
    assert peak < 120 * count


PAIRS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "é", "\udcff", "ab"]), st.text("12")))


@given(PAIRS, PAIRS)
def test_what_is_wanted_is_what_a_dictionary_says(
    pairs: list[tuple[str, str]], asked: list[tuple[str, str]]
) -> None:
    wanted = Identities(pairs)
    first: dict[str, int] = {}
    for place, (id, _) in enumerate(pairs):
        first.setdefault(id, place)
    expected = [first[id] == place and id != "" for place, (id, _) in enumerate(pairs)]
    assert wanted.first.tolist() == wanted.missing.tolist() == expected
    places = wanted.places(id for id, _ in asked)
    assert places.tolist() == [first.get(id, -1) for id, _ in asked]
    same = wanted.same_stamps(places, (stamp for _, stamp in asked))
    assert same.tolist() == [id in first and pairs[first[id]][1] == stamp for id, stamp in asked]
    for place, (id, stamp) in enumerate(pairs):
        assert wanted.holds(place, id, stamp)
        assert not wanted.holds(place, id, stamp + "1")
    assert not wanted.holds(len(pairs), "a", "1")
    assert np.array_equal(wanted.first, Identities(iter(pairs)).first)


VERSIONS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("12"), min_size=1)


@given(st.lists(VERSIONS, min_size=2, max_size=3))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_version_after_any_other_ends_in_what_it_says(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("sync") / "c"
    there: dict[str, str] = {}
    for version in versions:
        version = {**version, "always": "1"}

        def begin(version: dict[str, str] = version) -> Iterator[Item]:
            for id, stamp in version.items():
                yield Item(id, stamp, lambda id=id, stamp=stamp: Record(id, captions=[stamp]))

        report = write_collection(folder, begin, name="t", source="t", shard_rows=2, progress=False)
        records = list(Collection.open(folder).records())
        assert {r.id: r.captions for r in records} == {id: [s] for id, s in version.items()}
        assert len(records) == len(version) == sum(report.splits.values())
        assert report.kept == len(there.items() & version.items())
        assert report.written == len(version) - report.kept
        assert report.removed == len(there.keys() - version.keys())
        there = version
