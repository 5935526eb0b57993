"""Habits of models: a list, a score or a paragraph that is always set in the same odd way."""

import pytest

from paragrain.annotation.calls import Reply
from paragrain.annotation.parsing import parse_paragraph, parse_score

from .replies import items_of, kind

SCENES = [
    "A brown dog runs across the lawn.",
    "Two cats sit on a red sofa.",
    "A man in a hat reads a book.",
    "The sun sets behind tall hills.",
    "Children play near a blue fountain.",
]
SINGLE = "'{t}'"
TALE = (
    "A brown dog runs across a green lawn. Behind it stands a white fence, and two children "
    "watch from the porch. The sky is clear."
)


def listed(template: str, marks: str = "1 2 3 4 5", between: str = "\n") -> str:
    pairs = zip(marks.split(), SCENES, strict=True)
    return between.join(template.format(n=mark, t=text) for mark, text in pairs)


@pytest.mark.parametrize(
    "text",
    [
        listed("{n}) {t}", "a b c d e"), listed("**{n}.** {t}", "A B C D E"),
        listed("({n}) {t}", "i ii iii iv v"), listed("{n}. {t}", "I II III IV V"),
        listed("{n}: {t}", "First Second Third Fourth Fifth"),
        listed("Caption {n}: {t}", "One Two Three Four Five"), listed("{n}、{t}", "一 二 三 四 五"),
        listed("{n} {t}", "¹ ² ³ ⁴ ⁵"), listed("{n}. {t}", "1 1 1 1 1"),
        listed("{n}. {t}", "0 1 2 3 4"), listed("{n}/5: {t}"), listed("{{{n}}} {t}"),
        listed("🔹 {t}"), listed("→ {t}"), listed("-{t}"), listed('"{t}"'), listed("{t}"),
        listed("{t}", between="\n\n"), f"Here are five captions:\n{listed('{t}')}\n\nEnjoy!",
        f"Sure, five captions follow.\n\n{listed('- {t}')}", f"<ol>{listed('<li>{t}</li>')}</ol>",
        listed("{n}. {t}", between="<br>"), listed("{n}. {t}", between="\\n"),
        listed('{{"caption": "{t}"}}'), f"[{listed(SINGLE, between=', ')}]",
        f'{{"captions": [{listed(chr(34) + "{t}" + chr(34), between=", ")},]}}',
        listed("{n}. **Title**\n   {t}"),
        listed("{n}. Playful\n   {t}").replace("Children", "Some"),
        listed("{n}. ({n} seen) {t}"), listed("{n}. {t} (a guess)"),
        listed("{n}. {t} **Focus: x**"),
        listed("{n}. Focus on colour: {t}"), listed("{n}. {t} #dogs #park"),
        listed("{n}. {t}\n   Focus: dogs"), listed("{n}. {t}\n   - Tone: calm"),
        f"{listed('{n}. {t}')}\n\nHuman: and the mood?",
    ],
)  # fmt: skip
def test_a_list_that_is_set_in_one_way_is_read(text: str) -> None:
    expected = [t.replace("Children", "Some") if "Some play" in text else t for t in SCENES]
    assert items_of(text).items == expected
    assert items_of(text).failure is None


@pytest.mark.parametrize(
    "text",
    [
        listed("{t}", between="\n").replace("The sun", "It"),  # sentences of one text
        f"Here you are.\n{listed('{t}')}".replace(f"\n{SCENES[-1]}", ""),  # four and a preamble
        listed("{n}) {t}", "a b d e f"), listed("{n}. {t}", "1 1 2 2 3"),
        listed("{n}) {t}", "a b c d e").replace("\ne)", "\nThen\ne)"),
        listed("{n}. Playful\n   {t}"),  # "Playful Children play" may be one sentence
        listed("{n}. {t} // wide"), listed("{n}. Style: calm. {t}"),
        f"[{listed(SINGLE, between=' ')}]",  # no commas: Python would join them
        f'["{SCENES[0]}\\\\n2. {SCENES[1]}"]',
    ],
)  # fmt: skip
def test_a_list_that_may_be_none_is_not_read(text: str) -> None:
    assert items_of(text).items == []


def test_too_few_of_them_are_no_list() -> None:
    assert items_of("A dog runs here.", count=1).items == []
    assert items_of("a) A dog runs.\nb) A cat sits.", count=2).items == []


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("A solid 7.", 7), ("Definitely a 9!", 9), ("(7)", 7), ("<score>7</score>", 7),
        ("It deserves an 8.", 8), ("I'd go with 8.", 8), ("8.0/10.0", 8), ("8:", 8),
        ("7 on a 10-point scale", 7), ("<rating>6</rating>\n<style>9</style>", 6),
        ("9 for style, faithfulness: 6", 6), ("Hallucinations: 2, score: 6", 6),
        ("9\n\n1. The dog is brown.\n2. So is the cat.", 9), ("9. Taken at 3:05.", 9),
    ],
)  # fmt: skip
def test_a_score_in_the_words_of_a_habit_is_read(text: str, score: int) -> None:
    assert parse_score(Reply(text)) == score


@pytest.mark.parametrize(
    "text",
    [
        "8. Oops, 6.", "8. Well, 6.", "Score: 8. On second thoughts, 6.", "Score: 8. Edit: 6",
        "Initial score: 8; after review: 6", "Score: 8, minus 1 for the hat, so 7",
        "Inaccuracy score: 2", "Error score: 2", "Hallucination score: 3", "9 for style.",
        "I give it 9 for fluency", '{"style_score": 9}', '{"error_count": 2}', "<style>9</style>",
    ],
)  # fmt: skip
def test_a_number_that_is_taken_back_or_of_something_else_is_no_score(text: str) -> None:
    assert kind(parse_score(Reply(text))) == "unreadable"


@pytest.mark.parametrize(
    "text",
    [
        f"A Quiet Morning. {TALE}", f"A QUIET MORNING. {TALE}", f"A Quiet Morning: {TALE}",
        f"A Quiet Morning - {TALE}", f"Playtime! {TALE}", f'"A Quiet Morning" {TALE}',
        f"Big Ben: {TALE}", f"> {TALE}", f"Paragraph 1: {TALE}", f"{TALE} (25 words)",
        f"As requested, here is one paragraph. {TALE}", f"{TALE}\n\n[End of description]",
        f"{TALE} The end.", f"{TALE}\n\nNote: The breed cannot be determined.", f"<p>{TALE}</p>",
        f"{TALE} #dog #lawn", f"{TALE}\n\n### Instruction:\nDescribe it.",
        f"{TALE}\n\nExplanation: I looked at the dog.", TALE.replace(". ", ".\\n"),
        f"A dog. It is big. Here's a refined version: {TALE}",
        *(f"{TALE} {closing}" for closing in (
            "There is no information about the owner.", "Further details are not discernible.",
            "The image does not provide details about the location.",
            "One can only guess where the ball came from.", "We can't see the dog's owner.",
        )),
    ],
)  # fmt: skip
def test_what_is_no_part_of_a_paragraph_is_taken_off(text: str) -> None:
    assert parse_paragraph(Reply(text)) == TALE


@pytest.mark.parametrize(
    "text",
    [
        f"{TALE}\n\nAlternatively: {TALE.replace('brown', 'tan')}",
        f"{TALE}\n\nOr:\n\n{TALE.replace('brown', 'tan')}",
        "Short version: A dog runs. Long version: A dog runs on the lawn.",
        f"{TALE} (I described the dog first, then the fence.)",
        " ".join(f"A dog runs on the lawn near tree {n}." for n in range(30)),
        "Objects: a dog. Attributes: brown. Relations: on the lawn. Scene: a garden by a house.",
    ],
)
def test_several_versions_thoughts_and_labels_are_no_paragraph(text: str) -> None:
    assert kind(parse_paragraph(Reply(text))) == "unreadable"


@pytest.mark.parametrize(
    "text",
    [
        "Mt. Fuji rises in the distance. A lake lies before it. Two boats float.",
        "In St. Mark's Square the pigeons gather. A child runs at them. Flags hang.",
        "STOP. The word stands in white on a red sign. Behind it a field of corn stretches.",
        'A sign says "Note: closed". A man walks past the shop. It rains.',
        "Sunday Market: vendors sell fruit under white tents. A boy points. Dogs nap nearby.",
        "The Eiffel Tower: iron lattice against the sky. A crowd gathers below. Flags wave.",
    ],
)
def test_names_and_signs_stay_in_a_paragraph(text: str) -> None:
    assert parse_paragraph(Reply(text)) == text
