"""Lists in every shape come back as what they state with certainty, or as a typed failure."""

import json

import pytest

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing import (
    Items,
    parse_items,
    parse_paragraph,
    parse_score,
)

from .replies import FIVE, LIST, items_of, kind

# --- lists that have to come back whole -----------------------------------------------------------


@pytest.mark.parametrize(
    "mark",
    [
        "{n}. {t}", "{n}) {t}", "({n}) {t}", "[{n}] {t}", "{n}: {t}", "{n} - {t}", "{n}.) {t}",
        "**{n}.** {t}", "**{n}**. {t}", "**{n})** {t}", "*{n}.* {t}", "__{n}.__ {t}", "{n}\\. {t}",
        "#{n} {t}", "#{n}: {t}", "Caption {n}: {t}", "**Caption {n}:** {t}", "**Caption {n}**: {t}",
        "Caption #{n} - {t}", "- {n}. {t}", "* **{n}.** {t}", "### {n}. {t}", "### {n}.\n{t}",
        "### Caption {n}\n\n{t}", "**Caption {n}**\n{t}",
        "{n}.\n   {t}", "  {n}. {t}", "> {n}. {t}",
        "{n}. **Detail:** {t}", "{n}. *Detail*: {t}", "{n}. Caption: {t}", "{n}. Caption {n}: {t}",
        "{n}. **{t}**", "**{n}. {t}**", "{n}. *{t}*", "{n}. _{t}_", "{n}. `{t}`", "{n}. ***{t}***",
        "{n}. {n}. {t}", "{n}、{t}", "{n}） {t}", "- {t}", "* {t}", "• {t}", "•{t}", "– {t}",
        '{n}. "{t}"', "{n}. “{t}”", "{n}. «{t}»", "{n}. „{t}“", "{n}. 「{t}」", '{n}. **"{t}"**',
        '{n}. "**{t}**"', '{n}. "{t}",', "{n}.  {t}  ", "Incorrect Caption {n}: {t}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_every_list_style(mark: str, between: str) -> None:
    # On a line of its own, or behind a bullet, "2. FC Köln" is itself an item of a list.
    bare = "\n" in mark or "{n}" not in mark
    five = [text.replace("2. FC", "FC") for text in FIVE] if bare else FIVE
    text = between.join(mark.format(n=n, t=t) for n, t in enumerate(five, 1))
    assert items_of(text) == Items(five, None)
    assert items_of(f"Sure! Here are five captions:\n{text}\n\nAnything else?") == Items(five, None)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"captions": FIVE}),
        json.dumps(FIVE, ensure_ascii=False, indent=2),
        f"```json\n{json.dumps({'captions': FIVE}, indent=1)}\n```",
        f"Sure!\n\n```\n{json.dumps(FIVE)}\n```\n\nLet me know if you need more.",
        f"```json{json.dumps(FIVE)}```",
        json.dumps([f"{n}. {text}" for n, text in enumerate(FIVE, 1)]),
        f"```\n{LIST}\n```",
        LIST.replace("\n", "\r\n"),
        f"Sure!\n\n---\n\n{LIST}\n\n---\n\nLet me know if you need more!",
        f"{LIST}\nI hope these captions help!",
        f"{LIST}\n\nNote: I varied the focus.\nTell me if that is right.",
        f"{LIST}\n\nThese captions all differ.\n- in wording\n- in focus",
        f"I'm sorry, but I can't be sure of the breed.\n\n{LIST}",
        f"<think>\n1. a dog?\n2. no\n</think>\n\n{LIST}",
        f"1. a dog?\n2. no\n</think>\n{LIST}",
        f"<thinking>hm</thinking><reasoning>1. x y</reasoning>{LIST}",
        f"◁think▷1. a b◁/think▷{LIST}",
        f"<|channel|>analysis<|message|>1. Hm<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{LIST}<|return|>",
        f"analysis1. We need captionsassistantfinal{LIST}",
        f"<|im_start|>assistant\n{LIST}<|im_end|>",
        f"{LIST}</s><|im_start|>user\n1. Now do this",
        f"<answer>{LIST}</answer>",
        f"\ufeff{LIST}\n\n\n",
    ],
)
def test_every_wrapping(text: str) -> None:
    assert items_of(text) == Items(FIVE, None)


def test_fewer_more_and_repeated_items_come_as_they_are() -> None:
    assert items_of("1. A dog runs.\n2. A cat sits.").items == ["A dog runs.", "A cat sits."]
    seven = [f"A dog with {n} spots." for n in range(2, 9)]
    assert items_of("\n".join(f"{n}) {t}" for n, t in enumerate(seven, 1))).items == seven
    repeated = '1. A dog runs.\n2. A cat sits.\n3. "a photo of the dog, runs"'
    assert items_of(repeated) == Items(["A dog runs.", "A cat sits."], None)


def test_a_single_bullet_only_if_one_was_asked_for() -> None:
    assert items_of("- A dog runs.", count=1).items == ["A dog runs."]
    assert kind(items_of("- A dog runs.", count=2).failure) == "unreadable"


def test_remarks_below_items_are_left_out() -> None:
    text = (
        "1. A cat sits.\n   Explanation: it was a dog.\n2. **A bus waits.**\n   - *Note:* was red"
    )
    assert items_of(text) == Items(["A cat sits.", "A bus waits."], None)


WRAPPED = (
    "1. A brown dog with a red ball runs over the\n   green lawn behind a white house.\n"
    "2. A cat sits on the wall of the garden."
)


def test_a_wrapped_item_is_joined_only_where_the_wrap_is_plain() -> None:
    first = "A brown dog with a red ball runs over the green lawn behind a white house."
    whole = Items([first, "A cat sits on the wall of the garden."], None)
    assert items_of(WRAPPED) == whole
    assert items_of(WRAPPED.replace("   green", "green")) == whole
    for change in [("   green", "Green"), ("house.", "house"), ("the\n", "big.\n")]:
        left = items_of(WRAPPED.replace(*change))
        assert left.items == ["A cat sits on the wall of the garden."]
        assert left.failure == Failure("unreadable", "text below item 1")
    # Were the lines this wide, "green" would stand on the first.
    wide = items_of(WRAPPED.replace("wall", "crumbling old wall").replace("   green", "green"))
    assert wide.items == ["A cat sits on the crumbling old wall of the garden."]


# --- lists that are not certain -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "items"),
    [
        # One item is in doubt, the others are not.
        ("1. A dog runs.\n2. A cat sits.\n\nThe image shows a farm.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits\non a wall", ["A dog runs."]),
        ("1. A dog runs.\n2. A sign says\nLet me know if you do.", ["A dog runs."]),
        ("1. A dog runs\n   - brown\n   - fast\n2. A cat sits.", ["A cat sits."]),
        ("1. A dog runs.\n2. [caption]", ["A dog runs."]),
        ("1. A dog runs.\n2. ...", ["A dog runs."]),
        ("1. A dog runs.\n2. N/A", ["A dog runs."]),
        ("1. A dog runs.\n2. Caption 3", ["A dog runs."]),
        ("1. A dog runs.\n2. Your caption here", ["A dog runs."]),
        ("1. A dog runs.\n2.", ["A dog runs."]),
        ("1. A dog runs.\n2. Dog.", ["A dog runs."]),
        ("1. A dog runs.\n2. " + "very " * 81 + "long.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits. Let me know if you need more!", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits. (It was a dog.)", ["A dog runs."]),
        ("1. A dog runs.\n2. \"A cat sits\" (it was a dog)", ["A dog runs."]),
        ("1. A dog runs.\n2. \"A cat sits.\" This was a dog.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits. Explanation: it was a dog.", ["A dog runs."]),
        ("1. A dog runs.\n2. **Calm Cat** - A cat sits.", ["A dog runs."]),
        ("1. A dog runs.\n2. \"A cat sits.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits.\"", ["A dog runs."]),
        ("1. A dog runs.\n2. **A cat sits.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat (black", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits on...", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat, a mouse,", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits on a \ufffd.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat <b>sits</b>.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits with 3. A cow eats.", ["A dog runs."]),
        # Where the list begins or ends is in doubt.
        ("1. A dog runs 2. A cat sits 3. A cow eats", []),
        ("1. A dog runs. 2. A cat sits", []),
        ("Sure 1. A dog runs.\n2. A cat sits.", []),
        ("1. A dog runs.\n3. A cat sits.", []),
        ("0. A dog runs.\n1. A cat sits.", []),
        ("1. A dog runs.\n1. A cat sits.", []),
        ("1. A dog runs.\n2. A cat sits.\n\nFinal:\n1. A dog sits.\n2. A cat runs.", []),
        ("1. A dog runs.\n2. A cat sits.\n\nFinal:\n- A dog sits.\n- A cat runs.", []),
        ("- a dog\n- a cat\n\n1. A dog runs.\n2. A cat sits.", []),
        ("- A dog runs.\n  - It is brown.\n- A cat sits.", []),
        ("- A dog runs.\n* A cat sits.", []),
        ("- A dog runs.\n- A cat sits.\nLet me know if you want:\n- More detail", []),
        ("The image shows a dog.\n- brown fur\n- long tail", []),
        ("a) A dog runs.\nb) A cat sits.", []),
        ("A dog runs.\nA cat sits.", []),
        ("| 1 | A dog runs. |", []),
        ('"1. A dog runs.\n2. A cat sits."', []),
        ('{"captions": ["A dog runs.", "A cat', []),
        ('{"captions": ["A dog runs."], "captions": ["A cat sits."]}', []),
        ('{"captions": ["A dog runs."], "note": "x"}', []),
        ('{"captions": "A dog runs."}', []),
        ('["A dog runs.", 7]', []),
        ('{"captions": []}', []),
        ('1. A dog runs.\n\n["A cat sits."]', []),
        ('["A dog runs."]\n["A cat sits."]', []),
        ("<think>1. A dog runs.\n2. A cat sits.", []),
        ("1. A dog runs.\n2. A cat sits.\n<think>Better:</think>\n1. A dog sits.", []),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_left_out(text: str, items: list[str]) -> None:
    found = items_of(text)
    assert found.items == items
    assert kind(found.failure) == "unreadable"


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1. A dog runs.\n2. A cat si", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits.", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits.\n\nI ho", ["A dog runs."]),
        ("1. A dog runs.\n2. A cat sits.\n3.", ["A dog runs.", "A cat sits."]),
        ("- A dog runs.\n- A cat si", ["A dog runs."]),
        ("1. A dog ru", []),
        ("Sure! Here are", []),
        ('{"captions": ["A dog runs.", "A cat', []),
        ("<think>A dog or a", []),
        ("<think>A dog.</think>", []),
        ("<|channel|>analysis<|message|>We need", []),
    ],
)
def test_a_reply_at_the_token_limit_loses_its_last_item(text: str, items: list[str]) -> None:
    found = items_of(text, "length")
    assert found.items == items
    assert kind(found.failure) == "truncated"


def test_a_sign_off_shows_that_the_last_item_is_whole() -> None:
    assert items_of(LIST + "\n\nLet me know if you", "length") == Items(FIVE, None)
    assert items_of(json.dumps(FIVE) + "\n\n\n", "length") == Items(FIVE, None)


REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I can’t assist.",
    "I cannot help with this request.",
    "As an AI language model, I do not see images.",
    "Sorry, I am not able to describe people.",
    "Unfortunately, I cannot see the image.",
    "**I apologize**, but no.",
    "抱歉，我无法描述这张图片。",
]


@pytest.mark.parametrize(
    "parse", [lambda r: parse_items(r, 5).failure, parse_paragraph, parse_score]
)
def test_refusals_and_empty_replies(parse) -> None:
    for text in REFUSALS:
        assert kind(parse(Reply(text))) == "refusal", text
    assert kind(parse(Reply(None, refusal="I can't."))) == "refusal"
    assert kind(parse(Reply("1. A dog", "content_filter"))) == "refusal"
    for empty in [Reply(None), Reply(" \n"), Reply(None, "no choices"), Reply("<|im_end|>")]:
        assert kind(parse(empty)) == "empty"
    assert kind(parse(Reply("<think>Hm</think>"))) == "empty"
    assert kind(parse(Reply("<think>Hm"))) == "unreadable"
    assert kind(parse(Reply("<think>Hm", "length"))) == "truncated"


def test_an_item_that_declines_is_no_item() -> None:
    found = items_of("1. A dog runs.\n2. I'm sorry, I cannot write more.")
    assert found == Items(["A dog runs."], Failure("refusal"))
