"""Records in another order, and captions that several images carry."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection, Item, write_collection
from paragrain.encoders import ImageTextEncoder
from paragrain.evaluation import Result, compare, evaluate, load_result
from paragrain.stats import Estimate


@pytest.fixture(scope="module")
def both(
    world: Collection, encoder: ImageTextEncoder, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Result]:
    """One result, and that of the same records in another order."""
    records = list(world.records("test", images=True))
    for n, record in enumerate(records):
        record.group = f"pair {n // 3}" if n % 5 else None
        record.captions = [record.captions[0], "A star.", *record.captions[1:]][: 1 + n % 4]
    results = []
    for name, order in (("one", range(20)), ("other", np.random.default_rng(3).permutation(20))):
        folder = tmp_path_factory.mktemp(name) / name
        for record in records:
            record.source = name  # as lists of two names have it, which is no other benchmark
        items = [Item(records[n].id, "", lambda n=n: records[n], trusted=True) for n in order]
        write_collection(folder, items, name="w", source="test", progress=False)
        result = evaluate(folder, encoder, texts="captions", max_length=40, progress=False)
        results.append(result)
    return results[0], results[1]


def test_another_order_of_the_records_changes_no_digit(both: tuple[Result, Result]) -> None:
    one, other = both
    assert one.queries.ids != other.queries.ids
    assert one.scores == other.scores
    assert one.intervals == other.intervals
    assert one.about["collection"]["contents"] == other.about["collection"]["contents"]


def test_results_in_another_order_are_compared(
    both: tuple[Result, Result], tmp_path: Path, paragrain: Callable
) -> None:
    one, other = both
    found = compare(one, other)
    assert {row.difference for row in found.rows} == {Estimate(0, 0, 0, p=1)}
    assert all(row.sign_test is None or row.sign_test.p == 1 for row in found.rows)
    for name, result in (("a", one), ("b", other)):
        result.save(tmp_path / f"{name}.json")
    assert compare([tmp_path / "a.json"], tmp_path / "b.json").rows == found.rows
    assert load_result(tmp_path / "b.json").queries.ids == other.queries.ids
    done = paragrain("compare", tmp_path / "a.json", tmp_path / "b.json")
    assert done.code == 0, done.err


def test_equal_texts_are_each_others_right_answers_leniently(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path, paragrain: Callable
) -> None:
    records = list(world.records("test", images=True))[:6]
    for n, record in enumerate(records):
        record.captions, record.group = [("A  Star.", "a star. ")[n % 2]], None
    records[5].captions = ["a star"]  # without its full stop: other words
    items = [Item(r.id, "", lambda r=r: r, trusted=True) for r in records]
    write_collection(tmp_path / "c", items, name="c", source="test", progress=False)
    result = evaluate(tmp_path / "c", encoder, texts="captions", max_length=40, progress=False)
    assert result.scores.shared_texts == 5
    lenient, strict = result.scores.lenient, result.scores.strict
    hits, _ = result.queries.hits("text_to_image", 1, "lenient")
    np.testing.assert_array_equal(hits[:5] == hits[0], True)  # all five ask for the same
    assert strict.text_to_image.recall[1] <= 34
    assert lenient.text_to_image.recall[5] == 100
    assert lenient.image_to_text.recall[5] == 100
    result.save(tmp_path / "r.json")
    back = load_result(tmp_path / "r.json").queries
    assert back.ranks.shared_texts == 5
    assert back.intervals() == result.intervals
    done = paragrain("evaluate", tmp_path / "c", "--texts", "captions", "--model", encoder.name)
    assert "5 texts stand under several images; with any of them right" in done.out
