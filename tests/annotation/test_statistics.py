"""What the texts of a collection are like: counted by hand, drawn, and written to a page."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.annotation.measures import lengths as lengths_module
from paragrain.annotation.measures.agreement import agreement
from paragrain.annotation.measures.lengths import TextLengths, text_lengths
from paragrain.annotation.measures.page import confusion, token_lengths, write_stats_page
from paragrain.annotation.measures.statistics import annotation_statistics, mean
from paragrain.collection import Record
from paragrain.encoders import ImageTextEncoder

EVIL = "<script>alert('x')</script> $x$"


def annotated(id: str, **kinds: Any) -> Record:
    return Record(id, annotation=json.dumps(kinds))


def made(tries: int = 1, model: str = "m", prompts: str = "1") -> dict[str, Any]:
    return {"model": model, "prompts": prompts, "requests": tries}


def paragraph(*scores: int | None, kept: int, tries: int = 1, **rest: Any) -> dict[str, Any]:
    attempts = [{"text": "A dog.", "score": score, "requests": tries} for score in scores]
    return {
        "model": "m", "prompts": "1", "judge": "j", "candidates": attempts, "kept": kept, **rest,
    }  # fmt: skip


# --- Lengths ----------------------------------------------------------------------------------


def first_five(values: dict[str, Any]) -> list[float]:
    """Mean, 5th percentile, median, 95th percentile, longest."""
    return [values[name] for name in ("mean", "p5", "median", "p95", "max")]


def test_words_and_tokens_by_hand(encoder: ImageTextEncoder) -> None:
    records = [
        Record("a", captions=["a red circle", "a  star\n"], paragraph="red " * 126),
        Record("b", captions=["a", " \n"], negatives=["a blue star"], paragraph="red " * 127),
    ]
    found = text_lengths(iter(records), encoder)
    kinds = found.as_dict()["kinds"]
    captions = kinds["captions"]
    assert (captions["texts"], captions["empty"]) == (3, 1)
    assert first_five(captions["words"]) == pytest.approx((2, 1.1, 2, 2.9, 3))
    # A start and an end token.
    assert first_five(captions["tokens"]) == pytest.approx((4, 3.1, 4, 4.9, 5))
    # 126 words and two special tokens are 128: not longer than 128.
    assert found.longer("paragraph") == {77: 2, 128: 1, 248: 0, 512: 0}
    assert kinds["paragraph"]["share_longer_than"]["128"] == 0.5
    description = kinds["description"]
    assert (description["texts"], description["words"]) == (0, None)
    assert description["share_longer_than"]["77"] is None
    json.dumps(found.as_dict(), allow_nan=False)
    words, tokens = found.tables()
    assert [row[:3] for row in words.rows] == [
        ("captions", 3, 2), ("paragraph", 2, 126.5), ("negatives", 1, 3),
    ]  # fmt: skip
    assert all(len(row) == len(table.header) for table in (words, tokens) for row in table.rows)
    assert tokens.rows[1][-4:] == (100, 50, 0, 0)


def test_texts_beyond_what_the_encoder_reads_are_counted_whole(encoder: ImageTextEncoder) -> None:
    found = text_lengths([Record("a", description="red " * 700)], encoder)
    assert max(found.tokens["description"]) == 702 > encoder.max_tokens


def test_batches_change_nothing_and_no_text_is_kept(
    encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream() -> Iterator[Record]:
        for n in range(100):
            yield Record(str(n), captions=["red"] * (n % 3), generated=["a star " * (n % 7)])

    whole = text_lengths(stream(), encoder)
    monkeypatch.setattr(lengths_module, "_BATCH", 7)
    assert text_lengths(stream(), encoder) == whole
    assert len(whole.tokens["captions"]) == 99
    assert whole.empty["generated"] == 15


# --- How the texts were made ------------------------------------------------------------------


def test_every_count_by_hand() -> None:
    records = [
        annotated("a", captions=made(1), negatives=made(3), paragraph=paragraph(8, kept=1)),
        annotated("b", captions=made(2), paragraph=paragraph(4, 3, 9, kept=3, tries=2)),
        annotated("c", captions=made(1, model="n"), paragraph=paragraph(5, 5, kept=1)),
        annotated("d", paragraph=paragraph(None, 7, kept=2, judge=None)),
        Record("e"),
    ]
    found = annotation_statistics(iter(records))
    assert (found.records, found.malformed) == (5, [])
    assert found.annotated == {"captions": 3, "negatives": 1, "paragraph": 4}
    assert found.made["captions", "m", "1", None] == 2
    assert found.made["paragraph", "m", "1", "j"] == 3
    assert (found.first[8], found.first[None], mean(found.first)) == (1, 1, (8 + 4 + 5) / 3)
    assert (found.kept[9], found.kept[None]) == (1, 0)
    assert mean(found.kept) == (8 + 9 + 5 + 7) / 4
    assert found.candidates == {1: 1, 2: 2, 3: 1}
    # b gained 5, c nothing; nobody knows what d gained.
    assert found.gains == {5: 1, 0: 1}
    assert found.requests["paragraph"] == {1: 5, 2: 3}
    assert found.requests["negatives"] == {3: 1}
    tables = {table.title: table for table in found.tables()}
    assert tables["Made by"].rows[0] == ("captions", "m", "1", None, 2)
    assert tables["Candidates"].rows == [(1, 1), (2, 2), (3, 1)]
    assert tables["Requests"].rows[0] == ("captions", 4 / 3, pytest.approx(100 / 3), 2)
    assert tables["Scores"].rows[-1] == ("none", 1, 0)
    assert all(len(row) == len(table.header) for table in tables.values() for row in table.rows)
    saved = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert saved["candidates"] == {"1": 1, "2": 2, "3": 1}
    shares = ("share_regenerated", "compared", "share_gained", "mean_gain")
    assert [saved[name] for name in shares] == [3 / 4, 2, 0.5, 2.5]
    assert saved["first_scores"]["counts"] == [0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0]
    assert saved["made"][0] == {
        "kind": "captions", "model": "m", "prompts": "1", "judge": None, "records": 2,
    }  # fmt: skip


def test_nothing_annotated_gives_no_share_and_no_error() -> None:
    found = annotation_statistics([Record("a", captions=["x"])])
    saved = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert saved["share_regenerated"] is saved["share_gained"] is saved["mean_gain"] is None
    assert saved["kept_scores"]["mean"] is None
    assert not any(table.rows for table in found.tables())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"captions": {"model"', "no JSON"),
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1, 2]", "dictionary"),
        (json.dumps({"captions": {"model": "m", "prompts": "1"}}), "captions.requests"),
        (json.dumps({"captions": made(tries=True)}), "captions.requests"),
        (json.dumps({"paragraph": paragraph(kept=1)}), "paragraph.candidates"),
        (json.dumps({"paragraph": paragraph(3, kept=2)}), "keeps candidate 2 of 1"),
        (json.dumps({"paragraph": paragraph(3, kept=0)}), "paragraph.kept"),
        (json.dumps({"paragraph": paragraph(11, kept=1)}), "paragraph.candidates.0.score"),
        ('{"negatives": {"model": "m", "prompts": "1", "requests": 1e999}}', "negatives.requests"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named_and_left_out(text: str, reason: str) -> None:
    records = [Record("bad", annotation=text), annotated("good", captions=made())]
    found = annotation_statistics(records)
    [(id, why)] = found.malformed
    assert id == "bad"
    assert reason in why
    assert found.annotated == {"captions": 1, "negatives": 0, "paragraph": 0}
    assert found.tables()[-1].rows == [("bad", why)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "captions paragraph model prompts requests judge candidates score kept".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.text() | JSON.map(json.dumps))
@settings(deadline=None, max_examples=50)
def test_no_annotation_whatever_raises(text: str) -> None:
    found = annotation_statistics([Record("a", annotation=text)])
    assert len(found.malformed) + any(found.annotated.values()) <= 1
    json.dumps(found.as_dict(), allow_nan=False)


# --- Plots and page ---------------------------------------------------------------------------


@pytest.fixture
def measured(encoder: ImageTextEncoder) -> TextLengths:
    records = [
        Record(str(n), captions=["red star"], paragraph="a blue star. " * (10 + n))
        for n in range(20)
    ]
    return text_lengths(records, encoder)


def test_labels_of_the_budgets_and_curves_do_not_overlap(measured: TextLengths) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawing = token_lengths(measured)
    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    [axes] = drawing.axes
    [above] = axes.child_axes
    texts = [*above.get_xticklabels(), above.xaxis.label]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    assert [text.get_text() for text in texts[:-1]] == ["77", "128", "248", "512"]
    for place, box in enumerate(boxes):
        assert box.y0 > axes.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:place])
    [legend] = drawing.legends
    assert [text.get_text() for text in legend.get_texts()] == ["captions (20)", "paragraph (20)"]


def test_a_curve_is_the_share_that_fits(measured: TextLengths) -> None:
    line = token_lengths(measured).axes[0].lines[1]
    tokens, shares = np.asarray(line.get_data(), dtype=float)
    middle = np.median(measured.tokens["paragraph"])
    assert shares[tokens.searchsorted(middle)] == 50
    assert (tokens[0], shares[0]) == (4 * 10 + 2, 0)


def test_the_heat_map_says_each_count_where_it_belongs() -> None:
    axes = confusion(agreement([3, 3, 10], [4, 4, 0]), "j", "k").axes[0]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (4, 3): "2", (0, 10): "1",
    }  # fmt: skip
    assert axes.get_xlabel() == "score by k"


def test_the_page_stands_alone_and_nothing_in_it_runs(
    tmp_path: Path, measured: TextLengths
) -> None:
    records = [
        annotated("a", captions=made(model=EVIL), paragraph=paragraph(3, 8, kept=2, judge=EVIL)),
        Record(EVIL, annotation="{"),
    ]
    found = agreement([1, 5, None], [1, 6, 4])
    statistics = annotation_statistics(records)
    page = write_stats_page(tmp_path / "stats", EVIL, measured, statistics, found, (EVIL, EVIL))
    html = page.read_text("utf-8")
    assert "<script" not in html
    assert "src=" not in html
    assert html.count("<svg") == 4
    names = ["agreement.png", "candidates.png", "index.html", "scores.png", "token_lengths.png"]
    assert sorted(path.name for path in page.parent.iterdir()) == names
    assert (page.parent / "scores.png").read_bytes().startswith(b"\x89PNG")
    # A collection that is not annotated (any more) has no scores to show.
    write_stats_page(page.parent, "plain", measured, annotation_statistics([]))
    left = sorted(path.name for path in page.parent.iterdir())
    assert left == ["index.html", "token_lengths.png"]


def test_a_collection_without_texts_still_has_its_page(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    nothing = text_lengths([Record("a")], encoder)
    page = write_stats_page(tmp_path, "empty", nothing, annotation_statistics([Record("a")]))
    assert "1 records; annotated: 0 with captions" in page.read_text("utf-8")
