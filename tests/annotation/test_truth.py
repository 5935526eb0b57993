"""Annotations against the graphs: hand counts, brute force, and the definition of the interval."""

import asyncio
import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.annotation.calls import Call
from paragrain.annotation.pictures import Picture
from paragrain.annotation.settings import BackendSettings, SceneErrors
from paragrain.annotation.simulator import (
    ScenesBackend,
    Share,
    candidates_of,
    judge_quality,
    judged_candidates,
    measure,
    quality_after,
    truth_tables,
)
from paragrain.collection import Record
from paragrain.sources.scenes import Scene, Thing
from paragrain.sources.scenes.world import scenes_of

GRAPH = Scene(
    "cream",
    (
        Thing("star", "red", "large", "plain", cell=0),
        Thing("crescent", "blue", "small", "dotted", cell=5),
    ),
    look=0,
).to_json()

TRUE, FALSE, UNREADABLE = "A red star.", "A green star.", "A dog on a sofa."


def record(identity: str = "1", graph: str | None = GRAPH, **texts: object) -> Record:
    return Record(identity, graph=graph, **texts)  # type: ignore[arg-type]


def written(*attempts: tuple[str, int | None], graph: str | None = GRAPH) -> Record:
    """A record whose paragraph took these attempts."""
    rows = [{"text": text, "score": score, "requests": 1} for text, score in attempts]
    notes = {"paragraph": {"model": "m", "candidates": rows, "kept": 1}}
    return record(graph=graph, annotation=json.dumps(notes))


# --- texts


def test_measure_equals_hand_counts() -> None:
    total, not_judged, truth = measure(
        iter(
            [
                record(
                    generated=["a red star", "two shapes on cream"],
                    negatives=["a green star", "a moon to the left of a star"],
                    paragraph=f"{TRUE} A dotted moon sits at the right edge.",
                ),
                record(
                    generated=["a red star", "a blue star", "a dog"],
                    negatives=["a red star", "a cat", "three shapes on cream"],
                    paragraph=f"{TRUE} {FALSE} {FALSE}",
                ),
                record(generated=["a huge star"], paragraph=f"{TRUE} {FALSE} {UNREADABLE}"),
                record(generated=["a blue star"]),
                record(negatives=["a blue star"]),
                record(paragraph=TRUE),
                record(captions=["a dog"]),  # nothing that an annotation wrote
                record(generated=["a red star"], graph=None),
                record(generated=["a red star"], graph='{"objects": []}'),
            ]
        )
    )
    assert (total, not_judged) == (9, 3)
    assert truth == {
        "captions that are false": Share(2, 6, 1),
        "hard negatives that are true": Share(1, 5, 1),
        "sentences that are false": Share(3, 8, 1),
        "faultless paragraphs": Share(2, 3, 1),
        "images with everything right": Share(3, 4, 2),
    }


@pytest.mark.parametrize(
    ("texts", "right"),
    [
        ({"generated": [TRUE, FALSE]}, 0),
        ({"negatives": [TRUE, FALSE]}, 0),
        ({"paragraph": f"{TRUE} {FALSE}"}, 0),
        ({"generated": [TRUE], "negatives": [FALSE], "paragraph": TRUE}, 1),
    ],
)
def test_one_wrong_text_makes_an_image_wrong(texts: dict[str, object], right: int) -> None:
    assert measure([record(**texts)])[2]["images with everything right"] == Share(right, 1)


def test_an_empty_paragraph_is_not_faultless() -> None:
    _, _, truth = measure([record(paragraph="")])
    assert truth["faultless paragraphs"] == Share(0, 0, 1)


def test_nothing_to_judge_is_none_and_valid_json() -> None:
    _, not_judged, truth = measure([record(generated=[TRUE], graph=None)])
    assert not_judged == 1
    shares = [share.estimate.as_dict() for share in truth.values()]
    assert shares == [{"value": None, "low": None, "high": None, "n": 0}] * 5
    json.dumps(shares, allow_nan=False)
    assert measure([])[0] == 0


def test_a_collection_annotated_at_known_rates_is_measured_at_those_rates() -> None:
    errors = SceneErrors(false_caption=0.2, true_negative=0.1, false_sentence=0.15)
    backend = ScenesBackend(BackendSettings(backend="scenes", model="scenes", errors=errors))

    async def annotated(identity: str, scene: Scene) -> Record:
        found = Record(identity, graph=scene.to_json())
        texts = {}
        for kind, count in (("captions", 5), ("negatives", 5), ("paragraph", 0)):
            call = Call(kind, found, "Write.", count=count)  # type: ignore[arg-type]
            texts[kind] = (await backend.ask(call, Picture(b"", 96, 96))).text or ""
        lists = [
            re.findall(r'^\**\d+[.)]\**\s+"?(.*?)"?$', texts[kind], re.MULTILINE)
            for kind in ("captions", "negatives")
        ]
        found.generated, found.negatives = lists
        found.paragraph = texts["paragraph"]
        return found

    async def all_of_them() -> list[Record]:
        return [await annotated(*pair) for pair in scenes_of("train", 200, 0)]

    _, _, truth = measure(asyncio.run(all_of_them()))
    for name, rate in (
        ("captions that are false", errors.false_caption),
        ("hard negatives that are true", errors.true_negative),
        ("sentences that are false", errors.false_sentence),
    ):
        estimate = truth[name].estimate
        assert estimate.low < rate < estimate.high
        assert truth[name].unreadable == 0
        assert name.startswith("sentences") or estimate.n == 1000


# --- the judge

PAIRS = st.lists(st.tuples(st.none() | st.integers(0, 10), st.booleans()), max_size=30)


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_precision_and_recall_equal_brute_force(pairs: Sequence[tuple[int | None, bool]]) -> None:
    result = judge_quality(pairs)
    assert list(result) == list(range(10))
    for threshold, (precision, recall) in result.items():
        hit = missed = alarm = 0
        for score, faultless in pairs:
            if score is None:
                continue
            flagged = score <= threshold
            hit += flagged and not faultless
            missed += not flagged and not faultless
            alarm += flagged and faultless
        assert precision == Share(hit, hit + alarm)
        assert recall == Share(hit, hit + missed)


def test_a_perfect_judge_and_one_that_knows_nothing() -> None:
    perfect = judge_quality([(10, True)] * 6 + [(5, False)] * 3 + [(0, False)])
    assert [recall.count for _, recall in perfect.values()] == [1] * 5 + [4] * 5
    assert all(precision.count == precision.n for precision, _ in perfect.values())
    blind = judge_quality([(7, True), (7, True), (7, False)], [6, 7])
    assert blind == {6: (Share(0, 0), Share(0, 1)), 7: (Share(1, 3), Share(1, 1))}


# --- attempts


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        "",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        '{"paragraph": null}',
        '{"paragraph": {"model": "m"}}',
        '{"paragraph": {"candidates": 3}}',
        '{"paragraph": {"candidates": ["A red star."]}}',
    ],
)
def test_no_attempts(annotation: str | None) -> None:
    assert candidates_of(record(annotation=annotation)) == []


def test_attempts_are_read_in_order_and_judged() -> None:
    found = written((FALSE, 3), (UNREADABLE, None), (TRUE, 9))
    assert candidates_of(found) == [(FALSE, 3), (UNREADABLE, None), (TRUE, 9)]
    (attempts,) = judged_candidates([found, record(paragraph=TRUE), written((TRUE, 1), graph=None)])
    assert [(a.score, a.faultless) for a in attempts] == [(3, False), (None, None), (9, True)]


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        ([(TRUE, 10)], "111"),  # stopped at once
        ([(FALSE, 8)], "000"),  # stopped at once by a lenient judge
        ([(FALSE, 5), (TRUE, 10)], "011"),
        ([(FALSE, 5), (FALSE, 0), (TRUE, 10)], "001"),
        ([(TRUE, 4), (FALSE, 4), (FALSE, 5)], "110"),  # of equals the first; then a better one
        ([(FALSE, None), (TRUE, 0), (FALSE, 0)], "011"),  # any score is better than none
        ([(TRUE, None), (FALSE, None)], "111"),
        ([(TRUE, 3), (UNREADABLE, 9)], "1--"),
        ([(FALSE, 7), (TRUE, 10)], "000"),  # of a run with a higher threshold: ours stops before
    ],
)
def test_what_would_have_been_kept(attempts: list[tuple[str, int | None]], kept: str) -> None:
    for k, expected in enumerate(kept, 1):
        of = int(expected != "-")
        images = judged_candidates([written(*attempts)])
        assert quality_after(images, k) == Share(of and int(expected), of, 1 - of), k


def test_the_threshold_decides_which_attempts_would_have_been_made() -> None:
    images = judged_candidates([written((FALSE, 5), (TRUE, 10)), written((TRUE, 10))])
    assert quality_after(images, 3, threshold=4) == Share(1, 2)
    assert quality_after(images, 3, threshold=5) == Share(2, 2)


# --- tables


def test_tables_hold_what_was_measured() -> None:
    records = [
        written((FALSE, 5), (TRUE, 10)),
        written((FALSE, 9)),
        record(generated=[TRUE, FALSE], paragraph=TRUE),
        record(graph=None),
    ]
    texts, judge, attempts = truth_tables(iter(records))
    for table in (texts, judge, attempts):
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert "nan" not in table.text()
    assert texts.title == "Texts of 1 scenes (3 of 4 records not judged)"
    assert texts.rows[0] == ("captions that are false", 1, 2, Share(1, 2).estimate, 0)
    assert texts.rows[1] == ("hard negatives that are true", 0, 0, Share(0, 0).estimate, 0)
    assert [row[0] for row in judge.rows] == list(range(10))
    assert judge.rows[4] == (4, 0, Share(0, 0).estimate, Share(0, 2).estimate)
    assert judge.text().splitlines()[7].split(maxsplit=3) == ["4", "0", "-", "0.0 % (0.0 to 65.8)"]
    assert judge.rows[5][:2] == (5, 1)
    assert [row[:3] for row in attempts.rows] == [(1, 0, 2), (2, 1, 2), (3, 1, 2)]


def test_without_attempts_there_is_one_table() -> None:
    assert len(truth_tables([record(generated=[TRUE])])) == 1
