"""The backend `scenes`: right where it should be right, and wrong as often as it is told to be."""

import asyncio
import random
import re
from collections import Counter
from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paragrain.annotation.calls import KINDS, Call, Kind, Reply, RequestFailed
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings, SceneErrors
from paragrain.annotation.simulator import ScenesBackend
from paragrain.collection import Record
from paragrain.sources.scenes import Scene, Thing, is_true, sample_scene
from paragrain.sources.scenes.language import falsified, paragraph
from paragrain.sources.scenes.truth import verdicts
from paragrain.words import sentences

PICTURE = PreparedImage(b"", 96, 96)
SEEDS = st.integers(0, 2**31 - 1)


def backend(**errors: float) -> ScenesBackend:
    return ScenesBackend(
        BackendSettings(backend="scenes", model="scenes", errors=SceneErrors(**errors))
    )


def ask(model: ScenesBackend, call: Call) -> Reply:
    return asyncio.run(model.ask(call, PICTURE))


def call_about(scene: Scene, kind: Kind, seed: int = 0, **more: object) -> Call:
    count = 5 if kind in ("captions", "negatives") else 0
    record = Record("7", graph=scene.to_json())
    return Call(kind, record, "Write.", **{"count": count, "seed": seed, **more})  # type: ignore[arg-type]


def items_of(reply: Reply) -> list[str]:
    return re.findall(r'^\**\d+[.)]\**\s+"?(.*?)"?$', reply.text or "", re.MULTILINE)


def number_in(reply: Reply) -> int | None:
    found = re.search(r"\d+", reply.text or "")
    return int(found[0]) if found else None


def candidates(scene: Scene, rng: random.Random) -> list[tuple[str, int]]:
    """A faultless paragraph, and those with one wrong fact and two; each with its exact score."""
    true = sentences(paragraph(scene, rng))
    wrong = [falsified(sentence, scene, rng) for sentence in true]
    return [
        (" ".join(true), 10),
        (" ".join([*true[:-1], wrong[-1]]), 5),
        (" ".join([*wrong[:2], *true[2:]]), 0),
    ]


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_without_errors_nothing_is_false_and_the_judge_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    scene, model = sample_scene(rng), backend()
    captions, negatives, told = (
        ask(model, call_about(scene, kind, seed)) for kind in ("captions", "negatives", "paragraph")
    )
    for reply, truth in ((captions, True), (negatives, False)):
        assert len(set(items_of(reply))) == 5
        assert [is_true(item, scene) for item in items_of(reply)] == [truth] * 5
    assert set(verdicts(told.text or "", scene)) == {True}
    assert 3 <= len(sentences(told.text or "")) <= 6
    for candidate, score in candidates(scene, rng):
        reply = ask(model, call_about(scene, "judge", seed, paragraph=candidate))
        assert number_in(reply) == score
        assert reply.finish == "stop"


def observed(errors: dict[str, float], calls: int) -> tuple[Counter[str], Counter[str]]:
    """How often each error was seen, and how often it could have been, over many calls."""
    rng = random.Random(11)
    seen: Counter[str] = Counter()
    chances: Counter[str] = Counter()

    def count(name: str, happened: int, of: int = 1) -> None:
        seen[name] += happened
        chances[name] += of

    async def ask_all() -> list[tuple[Call, Scene, int, Reply]]:
        model, asked = backend(**errors), []
        for number in range(calls):
            scene, kind, exact, more = sample_scene(rng), KINDS[number % 4], -1, {}
            if kind == "judge":
                more["paragraph"], exact = rng.choice(candidates(scene, rng)[:2])
            call = call_about(scene, kind, number, **more)
            asked.append((call, scene, exact, await model.ask(call, PICTURE)))
        return asked

    for call, scene, exact, reply in asyncio.run(ask_all()):
        text, items = reply.text or "", items_of(reply)
        cut = reply.finish == "length"
        refused = bool(re.match(r"I('m sorry, but| cannot assist|'m unable)", text))
        count("truncated", cut)
        if not cut:
            count("refusal", refused)
        if cut or refused:
            continue
        if call.kind == "paragraph":
            found = verdicts(text, scene)
            count("false_sentence", found.count(False), len(found))
        elif call.kind == "judge":
            score = number_in(reply)
            count("unclear", score is None)
            if score is not None and exact == 10:
                count("harsh", score <= 5)
                assert score == 10 or score <= 5
            elif score is not None:
                count("lenient", score >= 8)
                assert score == exact or score >= 8
        else:
            count("preamble", not re.match(r"\**1[.)]", text))
            count("short_list", len(items) < 5)
            count("repeat", len(set(items)) < len(items))
            name = "false_caption" if call.kind == "captions" else "true_negative"
            unwanted = [is_true(item, scene) is (call.kind == "negatives") for item in items]
            count(name, sum(unwanted), len(items))
    return seen, chances


@pytest.mark.parametrize("name", list(SceneErrors.model_fields))
def test_each_error_comes_as_often_as_asked_and_alone(name: str) -> None:
    rate = 0.3
    seen, chances = observed({name: rate}, 600)
    assert chances[name] >= 60
    tolerance = 3.5 * sqrt(rate * (1 - rate) / chances[name])
    assert seen[name] / chances[name] == pytest.approx(rate, abs=tolerance)
    others = {other: times for other, times in seen.items() if times and other != name}
    assert not others


def test_errors_come_together_each_at_its_own_rate() -> None:
    rates = {name: 0.1 + 0.02 * i for i, name in enumerate(SceneErrors.model_fields)}
    seen, chances = observed(rates, 1200)
    for name, rate in rates.items():
        tolerance = 3.5 * sqrt(rate * (1 - rate) / chances[name])
        assert seen[name] / chances[name] == pytest.approx(rate, abs=tolerance), name


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_a_false_sentence_differs_from_a_true_one_in_one_fact(seed: int) -> None:
    scene = sample_scene(random.Random(seed))
    call = call_about(scene, "paragraph", seed)
    true, false = (
        sentences(ask(backend(false_sentence=rate), call).text or "") for rate in (0.0, 1.0)
    )
    for right, wrong in zip(true, false, strict=True):
        assert is_true(right, scene) is True
        assert is_true(wrong, scene) is False
        a, b = right.split(), wrong.split()
        while a and b and a[0] == b[0]:
            a, b = a[1:], b[1:]
        while a and b and a[-1] == b[-1]:
            a, b = a[:-1], b[:-1]
        assert max(len(a), len(b)) <= 5  # "at the centre" for "in the upper left corner"


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(["captions", "negatives", "paragraph"]))
def test_a_cut_reply_ends_inside_a_word(seed: int, kind: Kind) -> None:
    call = call_about(sample_scene(random.Random(seed)), kind, seed)
    whole = ask(backend(), call).text or ""
    reply = ask(backend(truncated=1), call)
    part = reply.text or ""
    assert reply.finish == "length"
    assert whole.startswith(part)
    assert part[-1].isalpha()
    assert whole[len(part)].isalpha()
    assert len(part) > len(whole) / 4


def test_a_cut_judgement_has_no_score() -> None:
    rng = random.Random(0)
    for seed in range(50):
        scene = sample_scene(rng)
        call = call_about(scene, "judge", seed, paragraph=paragraph(scene, rng))
        reply = ask(backend(truncated=1), call)
        assert reply.finish == "length"
        assert number_in(reply) is None


def test_every_judge_that_errs_errs_as_described() -> None:
    rng = random.Random(1)
    lenient, harsh = set(), set()
    for seed in range(200):
        scene = sample_scene(rng)
        (true, _), (false, _), _ = candidates(scene, rng)
        model = backend(lenient=1, harsh=1)
        lenient.add(number_in(ask(model, call_about(scene, "judge", seed, paragraph=false))))
        harsh.add(number_in(ask(model, call_about(scene, "judge", seed, paragraph=true))))
    assert lenient == {8, 9, 10}
    assert harsh == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("candidate", ["A dog on a sofa.", "", None])
def test_what_cannot_be_read_counts_as_false(candidate: str | None) -> None:
    scene = sample_scene(random.Random(0))
    assert number_in(ask(backend(), call_about(scene, "judge", paragraph=candidate))) == 5


def test_any_number_of_items_and_none_that_the_prompt_shows() -> None:
    scene = sample_scene(random.Random(4))
    for kind in ("captions", "negatives"):
        call = call_about(scene, kind, count=20)  # type: ignore[arg-type]
        first = items_of(ask(backend(), call))
        assert len(set(first)) == 20
        known = replace(call, prompt="\n".join(f"- {text}" for text in first))
        again = items_of(ask(backend(), known))
        assert len(set(first) | set(again)) == 40


def test_no_text_comes_twice_in_a_long_list() -> None:
    rng = random.Random(10)
    for seed in range(60):
        reply = ask(backend(), call_about(sample_scene(rng), "captions", seed, count=20))
        assert len(set(items_of(reply))) == 20


def test_a_list_of_one() -> None:
    scene = sample_scene(random.Random(5))
    call = call_about(scene, "captions", count=1)
    assert len(items_of(ask(backend(), call))) == 1
    assert ask(backend(short_list=1), call).text == ""
    twice = items_of(ask(backend(repeat=1), call))
    assert len(twice) == 2
    assert len(set(twice)) == 1


def test_short_lists_have_any_smaller_number_of_items() -> None:
    rng = random.Random(6)
    calls = [call_about(sample_scene(rng), "captions", seed) for seed in range(60)]
    assert {len(items_of(ask(backend(short_list=1), call))) for call in calls} == {1, 2, 3, 4}


def test_a_reply_follows_from_the_call_alone() -> None:
    scene, other = (sample_scene(random.Random(seed)) for seed in (7, 8))
    call = call_about(scene, "paragraph", 3)
    text = ask(backend(), call).text
    assert ask(backend(), call).text == text
    changes = [
        {"seed": 4},
        {"candidate": 2},
        {"number": 2},
        {"record": Record("7", graph=other.to_json())},
    ]
    texts = {ask(backend(), replace(call, **change)).text for change in changes}  # type: ignore[arg-type]
    assert len(texts | {text}) == 5


def test_lists_come_in_several_styles() -> None:
    rng = random.Random(9)
    replies = [ask(backend(), call_about(sample_scene(rng), "captions", s)) for s in range(60)]
    starts = {re.match(r"\**1[.)]\** \"?", reply.text or "")[0] for reply in replies}  # type: ignore[index]
    assert starts == {"1. ", "1) ", "**1.** ", '1. "'}
    assert {"\n\n" in (reply.text or "") for reply in replies} == {True, False}


GOOD = Scene.to_json(sample_scene(random.Random(0)))
TWO = Scene("mint", tuple(Thing("star", "red", "large", "plain", cell) for cell in (0, 1)), 0)


@pytest.mark.parametrize(
    "graph",
    [
        None,
        "",
        "{",
        "[]",
        "7",
        '{"objects": [{"name": "dog"}], "relations": []}',
        '{"background": "mint", "look": 0, "things": [["star", "red"]]}',
        '{"background": "mint", "look": 0, "things": [["dog", "red", "large", "plain", 0]]}',
        '{"background": ["mint"], "look": 0, "things": []}',
        GOOD.replace('"things": [[', '"things": [["star", "red", "large", "plain", 9], ['),
        TWO.to_json(),
        TWO.to_json().replace("1]]", "0]]"),
    ],
)
def test_a_record_that_is_no_drawn_scene_fails_alone(graph: str | None) -> None:
    call = Call("captions", Record("no 7", graph=graph), "Write.", count=5)
    with pytest.raises(RequestFailed, match=r"no 7.*no graph of a drawn scene") as caught:
        ask(backend(), call)
    assert not caught.value.fatal


def test_what_the_caller_reads_off_it() -> None:
    model = ScenesBackend(BackendSettings(backend="scenes", model="scenes", max_concurrency=9))
    assert (model.max_concurrency, model.notes) == (9, [])
    asyncio.run(model.close())
