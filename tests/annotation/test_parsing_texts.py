"""Paragraphs and scores of every shape, and sentences that say the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing import (
    fold,
    gives_itself_away,
    parse_paragraph,
    parse_score,
)

from .replies import TALE, examples, kind

# --- paragraphs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        TALE,
        f"Here is a paragraph describing the image:\n\n{TALE}",
        f"Sure! Here's a detailed description of the image: {TALE}",
        f"Certainly! {TALE}",
        f"Description: {TALE}",
        f"**Description:** {TALE}",
        f"# Description\n\n{TALE}",
        f"**The Image**\n{TALE}",
        f'"{TALE}"',
        f"Here you go:\n“{TALE}”",
        f"**{TALE}**",
        TALE.replace("brown", "**brown**"),
        TALE.replace(". It", ".\n\nIt"),
        TALE.replace(" runs", "\nruns"),
        f"{TALE}\n\nLet me know if you need anything else!",
        f"{TALE} Let me know if you need anything else!",
        f"{TALE}\n\n(Word count: 14)",
        f"<think>1. dog\n2. lawn</think>\n{TALE}<|im_end|>",
        f"```\n{TALE}\n```",
        json.dumps({"paragraph": TALE}),
        f"```json\n{json.dumps({'paragraph': TALE})}\n```",
    ],
)
def test_paragraph(text: str) -> None:
    assert parse_paragraph(Reply(text)) == TALE


@pytest.mark.parametrize(
    "text",
    [
        "一只棕色的狗在草地上跑。它叼着一个红球。",
        'A sign reads "STOP." A man says, "Who is it?"',
        "A cartoon shows a man. A caption below it reads 'Help.'",
        "A cartoon with a caption below reading 'Help' hangs here. The caption is in red.",
        '2 dogs run (one is brown). A 5" pipe lies there (it is new.)',
        "There's a dog's bowl; the dogs' beds are red. Nobody looks.",
    ],
)
def test_paragraphs_that_stay_as_they_are(text: str) -> None:
    assert parse_paragraph(Reply(text)) == text


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [
        (TALE, "length", "truncated"),
        (TALE + " It is", "stop", "truncated"),
        (TALE + "..", "stop", "truncated"),
        ('{"paragraph": "A dog', "length", "truncated"),
        ('{"paragraph": "A dog', "stop", "unreadable"),
        ('{"a": "A dog runs.", "b": "It is red."}', "stop", "unreadable"),
        ("1. A dog runs.\n2. It is red.", "stop", "unreadable"),
        ("Here:\n- A dog runs.\n- It is red.", "stop", "unreadable"),
        ("A dog runs.", "stop", "unreadable"),
        ("A dog runs. " * 200, "stop", "unreadable"),
        ('"A dog runs. It is red.', "stop", "unreadable"),
        (TALE + " I'm sorry, but I can't name the people.", "stop", "refusal"),
        ("A dog runs. It is \ufffd red.", "stop", "unreadable"),
    ],
)
def test_paragraphs_that_are_none(text: str, finish: str, expected: str) -> None:
    assert kind(parse_paragraph(Reply(text, finish))) == expected


@pytest.mark.parametrize(
    "words",
    [
        "The caption says that it is old.",
        "As described in the caption, it is old.",
        "As described, it is old.",
        "It matches the provided text.",
        "The given caption is wrong.",
        "The original caption mentions a cat.",
        "It is red, unlike the caption.",
        "The caption matches the image.",
        "It is old, as the text provided says.",
        "In line with the caption, it is old.",
    ],
)
def test_paragraphs_do_not_speak_of_the_caption(words: str) -> None:
    assert parse_paragraph(Reply(f"{TALE} {words}")) == Failure(
        "unreadable", "mentions the caption"
    )


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "9", "9/10",
        "9 / 10", "9 out of 10", "Score: 9", "**9**", "Rating: 9.", "I would rate it 9",
        "I'd give it a 9.", "9.0", "9.", " 9\n", '{"score": 9}', '{"score": "9/10"}', "[[9]]",
        '{"score": 9.0, "reason": "2 dogs"}', '```json\n{"score": 9}\n```', "nine", "Nine.",
        "**Nine**",
        "**Score:** 9/10", "Score: **9**", "Rating:\n\n9", "Score (0-10): 9", "My rating is 9.",
        "I would rate the faithfulness of this description as 9 out of 10.", "$\\boxed{9}$",
        "There are 2 dogs, so 9/10", "9\n\nThe 2 dogs are there.", "9. The 2 dogs are there.",
        "9, because it is right", "9 - It is right.", "9: It is right.", "It is right.\n\n9",
        "Score: 9 because 2 dogs are there", "On a scale of 0 to 10, I would rate it 9.",
        "<think>8 or 7?</think>9", "Score: 9 (out of 10)", "9/10. Score: 9", "<answer>9</answer>",
        "Score: 9\nThere are 2 or 3 dogs.", "9<|eot_id|>",
    ],
)  # fmt: skip
def test_score_nine(text: str) -> None:
    assert parse_score(Reply(text)) == 9


@given(
    st.integers(0, 10),
    st.sampled_from(
        ["{n}", "{n}/10", "{n} out of 10", "Score: {n}", "**{n}**", "Rating: {n}.", "{n}.0",
         "({n}/10)",
         "I would rate it {n}", '{{"score": {n}}}', "It is fine, so I give it a {n}.",
         "Score = {n}",
         "{n}\n\nThe 2 dogs are there", "<think>4?</think>\n{n}", "Answer: {n}/10 for 2 dogs."]
    ),
)  # fmt: skip
@examples(100)
def test_any_score_in_any_style(number: int, style: str) -> None:
    assert parse_score(Reply(style.format(n=number))) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rating: high", "unreadable"),
        ("I cannot evaluate this", "refusal"),
        ("Unable to evaluate.", "refusal"),
        ("0. I'm sorry, but I can't see the image.", "refusal"),
        ("Score: 0, as there is no image", "refusal"),
        ("0/10, I am unable to view it", "refusal"),
        ("8.5", "unreadable"),
        ("8,5", "unreadable"), ("8.5/10", "unreadable"), ("8½", "unreadable"),
        ("11", "unreadable"), ("-3", "unreadable"), ("Score: -3", "unreadable"),
        ("90/100", "unreadable"), ("Score: 90/100", "unreadable"), ("Score: 4/5", "unreadable"),
        ("90%", "unreadable"), ("1,000", "unreadable"), ("between 7 and 8", "unreadable"),
        ("7 or 8", "unreadable"), ("7-8", "unreadable"), ("7 - 8/10", "unreadable"),
        ("7 or 8/10", "unreadable"), ("Score: 7 to 8", "unreadable"), ("7, maybe 8", "unreadable"),
        ("Score: 7, maybe 8", "unreadable"), ("0 to 10", "unreadable"), ("0-10", "unreadable"),
        ("10 means accurate", "unreadable"), ("0: wrong, 10: accurate", "unreadable"),
        ("Score: 7. Score: 8.", "unreadable"), ("7/10 ... 8/10", "unreadable"),
        ("7\n8", "unreadable"),
        ("The description mentions 2 dogs", "unreadable"), ("2 dogs are there", "unreadable"),
        ("1. The description is right.", "unreadable"), ("I'd say 2 dogs are there", "unreadable"),
        ("9/10/2024", "unreadable"), ('{"score": true}', "unreadable"),
        ('{"score": null}', "unreadable"),
        ('{"score": 7, "rating": 8}', "unreadable"), ('{"score": 70}', "unreadable"),
        ('{"score": [7]}', "unreadable"), ("2, 3 or 4 dogs", "unreadable"),
    ],
)  # fmt: skip
def test_no_score(text: str, expected: str) -> None:
    assert kind(parse_score(Reply(text))) == expected


def test_a_score_that_is_no_whole_number_is_named() -> None:
    assert str(parse_score(Reply("8.5/10"))) == "unreadable (8.5 is no whole number)"
    assert str(parse_score(Reply("Score: 11"))) == "unreadable (11 is not within 0 to 10)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9\n\nThe description is", 9),
        ("9. The description mentions 2", 9),
        ("Score: 9\n\nThere are 2", 9),
        ('{"score": 7, "reas', 7),
        ("1\n\nThe", 1),
        ("1", "truncated"),
        ("9", "truncated"),
        ("9.", "truncated"),
        ("9/1", "truncated"),
        ("9/10", "truncated"),
        ("Score: 1", "truncated"),
        ('{"score": 1', "truncated"),
        ("The description mentions 2", "truncated"),
        ("The description is", "truncated"),
    ],
)
def test_a_score_at_the_token_limit(text: str, expected: object) -> None:
    assert kind(parse_score(Reply(text, "length"))) == expected


# --- equal and treacherous sentences --------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "A red dog's ball.", "a RED dog’s ball", "The red dogs ball!", '"A red dog\'s ball"',
        "A photo of a red dog's ball.",
        "An image of the red dog's ball", "This is a red dog's ball.",
        "There is a  red dog's\nball", "This is a photo of a red dog's ball",
        "ａ ｒｅｄ dog's ball…",
    ],
)  # fmt: skip
def test_sentences_that_fold_alike(text: str) -> None:
    assert fold(text) == "red dogs ball"


def test_sentences_that_differ_do_not_fold_alike() -> None:
    texts = [
        "A red dog.",
        "A red cat.",
        "Two red dogs.",
        "一只狗。",
        "一只猫。",
        "1.5 m",
        "15 m",
        "🐶 it",
        "it",
    ]
    assert len({fold(text) for text in texts}) == len(texts)
    assert fold("A photo of") == fold("a photo of.") != ""


@pytest.mark.parametrize(
    ("negative", "gives"),
    [
        ("A cat on a sofa (incorrect)", True),
        ("A cat on a sofa [wrong animal]", True),
        ("A cat, which should be a dog", True),
        ("A cat instead of the actual dog", True),
        ("A cat, in the original image a dog", True),
        ("Wrong: A cat on a sofa", True),
        ("Incorrect object: a cat", True),
        ("Colour change: a blue car", True),
        ("A dog → a cat", True),
        ("A cat that is not shown in the image", True),
        ("A cat on a sofa", False),
        ("A wrong way sign - beside a road", False),
        ("A man uses a box instead of a table", False),
        ("An original painting of a real horse (in oil)", False),
        ("A statue, not a real dog, on the wrong side", False),
    ],
)
def test_negatives_that_give_themselves_away(negative: str, gives: bool) -> None:
    assert gives_itself_away(negative) is gives
