"""The loop for one image, driven by hand: what it asks next after each reply, and what it keeps."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from paragrain.annotation.calls import Call, Reply, RequestFailed
from paragrain.annotation.loop import Outcome, annotate_image, guide_of, wanted_kinds
from paragrain.annotation.settings import AnnotationSettings, BackendSettings
from paragrain.collection import Record

MODEL, JUDGE = BackendSettings(model="writer"), BackendSettings(model="judge")
SETTINGS = AnnotationSettings(generator=MODEL, judge=JUDGE)
LISTS = {
    "captions": ["A dog runs.", "A brown dog plays.", "A dog on grass.", "One dog outside.",
                 "A running dog."],
    "negatives": ["A cat runs.", "A black dog plays.", "A dog on sand.", "Two dogs outside.",
                  "A sleeping dog."],
}  # fmt: skip
PARAGRAPH = "A brown dog runs over green grass. It has a red collar. Trees stand behind it."


def numbered(items: list[str]) -> str:
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))


def good(call: Call) -> Reply:
    if call.kind == "judge":
        return Reply("9")
    if call.kind == "paragraph":
        return Reply(PARAGRAPH)
    return Reply(numbered(LISTS[call.kind][: call.count]))


def drive(
    answer: Callable[[Call, int], Any], record: Record | None = None, **changes: Any
) -> tuple[Outcome, list[Call]]:
    """Run the loop; `answer(call, n)` replies to the n-th call of its kind, None for `good`."""
    settings = SETTINGS.model_copy(update=changes)
    record = record or Record("7", captions=["dog, stock photo"])
    loop = annotate_image(record, "ab", settings, guide_of(record))
    calls: list[Call] = []
    reply = None
    try:
        while True:
            call = next(loop) if reply is None else loop.send(reply)
            calls.append(call)
            given = answer(call, sum(c.kind == call.kind for c in calls))
            reply = (
                good(call) if given is None else Reply(given) if isinstance(given, str) else given
            )
    except StopIteration as ended:
        return ended.value, calls


def only(kind: str, *replies: Any) -> Callable[[Call, int], Any]:
    """Give these replies to the calls of one kind, good ones to all others."""
    return lambda call, n: replies[n - 1] if call.kind == kind and n <= len(replies) else None


def test_a_smooth_run_takes_four_calls_with_the_limits_of_the_recipe() -> None:
    outcome, calls = drive(only("none"))
    assert [call.kind for call in calls] == ["captions", "negatives", "paragraph", "judge"]
    assert [call.max_tokens for call in calls] == [160, 200, 200, 16]
    assert [(call.temperature, call.top_p) for call in calls] == [(0.7, 0.9)] * 3 + [(0.0, 1.0)]
    assert "dog, stock photo" in calls[0].prompt
    assert outcome.failures == {}
    assert outcome.changes["generated"] == LISTS["captions"]
    assert outcome.changes["negatives"] == LISTS["negatives"]
    assert (outcome.changes["paragraph"], outcome.changes["paragraph_score"]) == (PARAGRAPH, 9)
    assert json.loads(outcome.changes["annotation"]) == {
        "captions": {"model": "writer", "prompts": "1", "requests": 1},
        "negatives": {"model": "writer", "prompts": "1", "requests": 1},
        "paragraph": {
            "model": "writer",
            "prompts": "1",
            "judge": "judge",
            "candidates": [{"text": PARAGRAPH, "score": 9, "requests": 1}],
            "kept": 1,
        },
    }


# --- lists


def test_three_of_five_ask_for_the_two_that_are_missing() -> None:
    outcome, calls = drive(
        only(
            "captions", numbered(LISTS["captions"][:3]), "1. A new one here.\n2. Another one here."
        )
    )
    assert outcome.changes["generated"] == [
        *LISTS["captions"][:3], "A new one here.", "Another one here.",
    ]  # fmt: skip
    assert (calls[1].count, calls[1].number) == (2, 2)
    assert "- A dog runs." in calls[1].prompt
    assert calls[1].seed != calls[0].seed


def test_seven_are_cut_to_five() -> None:
    seven = [*LISTS["captions"], "A sixth caption.", "A seventh caption."]
    outcome, calls = drive(only("captions", numbered(seven)))
    assert outcome.changes["generated"] == LISTS["captions"]
    assert len(calls) == 4


def test_repeats_are_dropped_and_asked_for_again() -> None:
    repeated = [*LISTS["captions"][:4], "a DOG runs"]
    outcome, calls = drive(only("captions", numbered(repeated), "1. A fifth dog caption."))
    assert outcome.changes["generated"] == [*LISTS["captions"][:4], "A fifth dog caption."]
    assert calls[1].count == 1


def test_a_caption_that_repeats_the_original_is_no_new_one() -> None:
    record = Record("7", captions=["A dog runs"])
    outcome, _ = drive(only("captions", None, "1. A fifth dog caption."), record)
    assert "A dog runs." not in outcome.changes["generated"]
    assert len(outcome.changes["generated"]) == 5


@pytest.mark.parametrize("wrong", ["a dog RUNS!", "A photo of a dog runs", "dog, stock photo."])
def test_a_hard_negative_that_equals_a_positive_is_rejected(wrong: str) -> None:
    mixed = [wrong, *LISTS["negatives"][:4]]
    outcome, calls = drive(only("negatives", numbered(mixed), "1. A sleeping horse."))
    assert outcome.changes["negatives"] == [*LISTS["negatives"][:4], "A sleeping horse."]
    assert len(calls) == 5


def test_a_hard_negative_that_says_that_it_is_wrong_is_rejected() -> None:
    mixed = ["A cat runs (incorrect: it is a dog).", *LISTS["negatives"][:4]]
    outcome, _ = drive(only("negatives", numbered(mixed), "1. A sleeping horse."))
    assert outcome.changes["negatives"] == [*LISTS["negatives"][:4], "A sleeping horse."]


def test_what_cannot_be_read_is_asked_three_times_and_never_stored() -> None:
    outcome, calls = drive(only("captions", "No list.", "Still no list.", "None at all."))
    assert [call.kind for call in calls].count("captions") == 3
    assert len({call.seed for call in calls}) == len(calls)
    assert "generated" not in outcome.changes
    assert outcome.failures["captions"].kind == "unreadable"
    assert outcome.changes["negatives"] == LISTS["negatives"]  # the others go on
    assert "captions" not in json.loads(outcome.changes["annotation"])


def test_a_list_cut_at_the_token_limit_gets_more_room_for_what_is_missing() -> None:
    cut = Reply(numbered(LISTS["captions"][:3]) + "\n4. One dog outs", "length")
    outcome, calls = drive(only("captions", cut, "1. One dog outside.\n2. A running dog."))
    assert outcome.changes["generated"] == LISTS["captions"]
    assert [call.max_tokens for call in calls[:2]] == [160, 320]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(Reply(None), "empty"), (Reply("", "no choices"), "empty"),
     (Reply("I'm sorry, but I can't help with that."), "refusal"),
     (Reply(None, "stop", "I cannot do that."), "refusal")],
)  # fmt: skip
def test_empty_replies_and_refusals_are_typed(reply: Reply, kind: str) -> None:
    outcome, _ = drive(only("captions", reply, reply, reply))
    assert outcome.failures["captions"].kind == kind


# --- paragraphs and scores


def texts(*scores: Any) -> Callable[[Call, int], Any]:
    """A different paragraph each time, with these scores."""

    def answer(call: Call, n: int) -> Any:
        if call.kind == "paragraph":
            return PARAGRAPH + f" This is number {n}."
        return scores[n - 1] if call.kind == "judge" else None

    return answer


def test_weak_paragraphs_are_written_again_until_one_is_above_the_threshold() -> None:
    outcome, calls = drive(texts("3", "5", "6"))
    assert outcome.changes["paragraph"].endswith("number 3.")
    assert outcome.changes["paragraph_score"] == outcome.score == 6
    assert outcome.candidates == 3
    assert [c.candidate for c in calls if c.kind == "paragraph"] == [1, 2, 3]
    assert len({c.seed for c in calls}) == len(calls)
    assert calls[3].paragraph == PARAGRAPH + " This is number 1."
    notes = json.loads(outcome.changes["annotation"])["paragraph"]
    assert [a["score"] for a in notes["candidates"]] == [3, 5, 6]
    assert notes["kept"] == 3


@pytest.mark.parametrize(
    ("scores", "best"), [(("2", "5", "3"), 2), (("4", "4", "4"), 1), (("0", "0", "1"), 3)]
)
def test_after_the_last_attempt_the_best_stays(scores: tuple[str, ...], best: int) -> None:
    outcome, _ = drive(texts(*scores))
    assert outcome.changes["paragraph"].endswith(f"number {best}.")
    assert outcome.failures == {}


def test_threshold_and_attempts_are_settings() -> None:
    assert drive(texts("6", "7", "8"), min_score=7)[0].score == 8
    assert drive(texts("3", "9"), num_candidates=1)[0].score == 3
    assert drive(texts("0"), min_score=-1)[0].candidates == 1


@pytest.mark.parametrize("bad", ["Rating: high", "I cannot evaluate this.", None, "11"])
def test_a_score_that_cannot_be_read_is_asked_again_and_never_becomes_zero(bad: Any) -> None:
    reply = Reply(bad)
    outcome, calls = drive(only("judge", reply, "9/10"))
    assert outcome.changes["paragraph_score"] == 9
    assert [c.temperature for c in calls if c.kind == "judge"] == [0.0, 0.7]
    outcome, calls = drive(lambda call, n: reply if call.kind == "judge" else None)
    assert outcome.changes["paragraph_score"] is None
    assert outcome.changes["paragraph"] == PARAGRAPH
    assert "judge" in outcome.failures
    assert [call.kind for call in calls].count(
        "judge"
    ) == 9  # each of three candidates, three times


def test_a_scored_paragraph_beats_an_unscored_one() -> None:
    high = Reply("high")
    outcome, _ = drive(texts(high, high, high, "2", high, high, high))
    assert outcome.changes["paragraph"].endswith("number 2.")
    assert outcome.score == 2
    assert outcome.failures == {}


def test_a_paragraph_cut_in_mid_word_is_asked_again_with_more_room() -> None:
    outcome, calls = drive(only("paragraph", Reply(PARAGRAPH[:-9], "length"), PARAGRAPH))
    assert outcome.changes["paragraph"] == PARAGRAPH
    assert [c.max_tokens for c in calls if c.kind == "paragraph"] == [200, 400]
    assert json.loads(outcome.changes["annotation"])["paragraph"]["candidates"][0]["requests"] == 2


def test_without_a_judge_the_first_paragraph_stays_unscored() -> None:
    outcome, calls = drive(only("none"), judge=None)
    assert [call.kind for call in calls] == ["captions", "negatives", "paragraph"]
    assert (outcome.changes["paragraph"], outcome.score) == (PARAGRAPH, None)
    assert outcome.failures == {}


# --- requests that fail


def test_a_request_that_fails_ends_its_kind_alone_and_is_named() -> None:
    outcome, calls = drive(only("captions", RequestFailed("500: out of memory")))
    assert str(outcome.failures["captions"]) == "request (500: out of memory)"
    assert [call.kind for call in calls] == ["captions", "negatives", "paragraph", "judge"]


def test_a_better_paragraph_that_could_not_be_asked_for_is_named_though_one_is_there() -> None:
    outcome, _ = drive(
        lambda call, n: {
            "judge": "3",
            "paragraph": RequestFailed("gone") if n == 2 else PARAGRAPH,
        }.get(call.kind)
    )
    assert (outcome.changes["paragraph"], outcome.score) == (PARAGRAPH, 3)
    assert outcome.failures["paragraph"].kind == "request"


# --- what is wanted


def test_texts_that_came_with_the_data_are_never_overwritten() -> None:
    record = Record("7", generated=["Somebody's own caption."], paragraph="Somebody's own text.")
    assert wanted_kinds(record, SETTINGS) == ("negatives",)
    outcome, calls = drive(only("none"), record)
    assert [call.kind for call in calls] == ["negatives"]
    assert set(outcome.changes) == {"negatives", "annotation"}
    everything = SETTINGS.model_copy(update={"replace": True})
    assert len(wanted_kinds(record, everything)) == 3


def test_texts_that_an_annotation_wrote_are_looked_at_again() -> None:
    notes = json.dumps({"captions": {"model": "other", "prompts": "1", "requests": 1}})
    record = Record("7", generated=["A dog."], annotation=notes, paragraph="Somebody's own text.")
    assert wanted_kinds(record, SETTINGS) == ("captions", "negatives")
    outcome, _ = drive(lambda call, n: RequestFailed("gone"), record)
    assert outcome.changes == {}  # what was paid for stays


def test_kinds_can_be_chosen() -> None:
    outcome, calls = drive(only("none"), texts=("negatives",))
    assert [call.kind for call in calls] == ["negatives"]
    assert outcome.asked == ("negatives",)


def test_the_same_replies_bring_the_same_outcome_and_the_same_seeds() -> None:
    first, second = (drive(texts("3", "5", "6")) for _ in range(2))
    assert first == second


def test_kinds_are_written_in_one_order_so_that_negatives_know_the_captions() -> None:
    outcome, calls = drive(only("none"), texts=("paragraph", "negatives", "captions"))
    assert [call.kind for call in calls] == ["captions", "negatives", "paragraph", "judge"]
    assert set(outcome.changes["generated"]).isdisjoint(outcome.changes["negatives"])


def test_new_captions_do_not_repeat_negatives_that_stay() -> None:
    record = Record("7", negatives=["a dog RUNS"])
    outcome, _ = drive(only("captions", None, "1. A fifth dog caption."), record)
    assert outcome.changes["generated"] == [*LISTS["captions"][1:], "A fifth dog caption."]


def test_an_image_that_gets_no_answer_is_left_at_once() -> None:
    gone = RequestFailed("busy", unanswered=True)
    outcome, calls = drive(only("captions", gone))
    assert len(calls) == 1
    assert str(outcome.failures["captions"]) == "unanswered (busy)"


def test_notes_of_other_tools_stay() -> None:
    record = Record("7", annotation='{"reviewed": true, "captions": 5, "x": "\\ud800"}')
    outcome, _ = drive(only("none"), record)
    outcome.changes["annotation"].encode()
    notes = json.loads(outcome.changes["annotation"])
    assert notes["reviewed"] is True
    assert notes["captions"]["model"] == "writer"
