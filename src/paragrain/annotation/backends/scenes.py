"""A model that knows the truth: answers from a drawn scene's graph, with errors at chosen rates.

The loop, the parser and the judge can so be measured against what is in the picture (see
`annotation.truth`). Nothing here looks at the pixels.
"""

import random
from collections.abc import Callable, Iterator

from paragrain.annotation.calls import Call, Picture, Reply, RequestFailed
from paragrain.annotation.settings import BackendSettings, SceneErrors
from paragrain.sources.scenes import Scene, scene_of
from paragrain.sources.scenes.graph import MAX_THINGS, MIN_THINGS
from paragrain.sources.scenes.language import falsified, hard_negatives, paragraph, short_captions
from paragrain.sources.scenes.truth import verdicts
from paragrain.words import sentences

_LIST_STYLES = ("{n}. {text}", "{n}) {text}", "**{n}.** {text}", '{n}. "{text}"')
_LIST_GAPS = ("\n", "\n", "\n\n")
_PREAMBLES = (
    "Sure! Here is what you asked for:",
    "Here are the captions for this image:",
    "Certainly. I looked at the image closely and wrote the following:",
)
_SIGN_OFFS = (
    "Let me know if you would like any changes!",
    "I hope this helps. Feel free to ask for more.",
)
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "I'm unable to describe this image.",
)
_SCORES = ("{score}", "{score}", "{score}/10", "Score: {score}", "Rating: {score}/10")
_UNCLEAR = ("Rating: high", "I cannot evaluate this.", "The description is mostly accurate.")
_WORDY = "I compared the description with the image, shape by shape and colour by colour. "


class ScenesBackend:
    """Answers calls about drawn scenes; every reply follows from the call alone.

    Attributes:
        model: "scenes", and the rates.
        in_flight: as in the settings; an answer takes no time.
        notes: always empty.
    """

    def __init__(self, settings: BackendSettings) -> None:
        self.model = settings.name
        self.in_flight = settings.in_flight
        self.trouble = ""
        self.notes: list[str] = []
        self._errors = settings.errors

    async def ask(self, call: Call, picture: Picture) -> Reply:
        """Answer one call.

        Raises:
            RequestFailed: the record has no graph of a drawn scene.
        """
        scene, errors = _scene(call), self._errors
        rng = random.Random(
            f"{call.seed} {call.kind} {call.attempt} {call.number} {call.record.graph}"
        )
        refused, cut = rng.random() < errors.refusal, rng.random() < errors.cut
        if refused:
            text = rng.choice(_REFUSALS)
        elif call.kind == "judge":
            text = _verdict(call, scene, rng, errors)
            text = _WORDY + text if cut else text
        elif call.kind == "paragraph":
            text = _paragraph(scene, rng, errors)
        else:
            text = _list(_items(call, scene, rng, errors), rng, errors)
        return Reply(_cut(text, rng), finish="length") if cut else Reply(text)

    async def close(self) -> None:
        """Nothing is open."""


def _scene(call: Call) -> Scene:
    scene = scene_of(call.record)
    if scene is None or not MIN_THINGS <= len(scene.things) <= MAX_THINGS:
        raise RequestFailed(
            f"record {call.record.id!r} has no graph of a drawn scene, and the backend `scenes` "
            "answers from nothing else: choose another backend"
        )
    return scene


# --- lists


def _items(call: Call, scene: Scene, rng: random.Random, errors: SceneErrors) -> list[str]:
    """As many texts as are asked for, none of them one that the prompt shows."""
    right = _endless(short_captions, scene, rng)
    wrong = _endless(hard_negatives, scene, rng)
    if call.kind == "captions":
        usual, slip, share = right, wrong, errors.false_caption
    else:
        usual, slip, share = wrong, right, errors.true_negative
    items: list[str] = []
    for _ in range(call.count):
        texts = slip if rng.random() < share else usual
        items.append(next(text for text in texts if text not in items and text not in call.prompt))
    return items


def _endless(
    write: Callable[[Scene, random.Random], list[str]], scene: Scene, rng: random.Random
) -> Iterator[str]:
    """Texts of one kind without end, five by five, which have a focus each."""
    while True:
        yield from write(scene, rng)


def _list(items: list[str], rng: random.Random, errors: SceneErrors) -> str:
    """The items as a numbered list, with what goes wrong with lists."""
    if rng.random() < errors.short_list:
        items = items[: rng.randrange(min(1, len(items) - 1), len(items))]
    if rng.random() < errors.repeat and items:
        items = _with_one_twice(items, rng)
    style, gap = rng.choice(_LIST_STYLES), rng.choice(_LIST_GAPS)
    text = gap.join(style.format(n=n, text=item) for n, item in enumerate(items, 1))
    if rng.random() < errors.preamble:
        text = "\n\n".join([rng.choice(_PREAMBLES), text, rng.choice(_SIGN_OFFS)])
    return text


def _with_one_twice(items: list[str], rng: random.Random) -> list[str]:
    """One item takes the place of another; a single one is told again."""
    if len(items) == 1:
        return items * 2
    kept, lost = rng.sample(range(len(items)), 2)
    return [items[kept] if i == lost else item for i, item in enumerate(items)]


# --- paragraphs and scores


def _paragraph(scene: Scene, rng: random.Random, errors: SceneErrors) -> str:
    """A paragraph in the training style; each of its sentences may have one fact wrong."""
    return " ".join(
        falsified(sentence, scene, rng) if rng.random() < errors.false_sentence else sentence
        for sentence in sentences(paragraph(scene, rng))
    )


def _verdict(call: Call, scene: Scene, rng: random.Random, errors: SceneErrors) -> str:
    """The score of a paragraph: 10, less 5 for each sentence that is not known to be true."""
    wrong = sum(verdict is not True for verdict in verdicts(call.candidate or "", scene))
    score = max(0, 10 - 5 * wrong)
    erring = rng.random()
    if wrong and erring < errors.lenient:
        score = rng.randint(8, 10)
    elif not wrong and erring < errors.harsh:
        score = rng.randint(0, 5)
    if rng.random() < errors.unclear:
        return rng.choice(_UNCLEAR)
    return rng.choice(_SCORES).format(score=score)


def _cut(text: str, rng: random.Random) -> str:
    """The beginning of a text, at least a third of it, up to the middle of a word."""
    places = [
        at
        for at in range(max(1, len(text) // 3), len(text))
        if text[at - 1].isalpha() and text[at].isalpha()
    ]
    return text[: rng.choice(places)] if places else text
