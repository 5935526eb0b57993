"""Every kind of text that the study needs, written from a scene graph.

| kind | style | length |
|---|---|---|
| `alt_text` | web-like fragment, a quarter of them useless | 1-8 words |
| `short_captions` | one sentence, one to three objects, words of both styles; `reference` ones are worded apart | 5-20 words |
| `paragraph` | the training style: first words of the lexicon, most salient object first | 3-6 sentences |
| `description` | the held-out long style: second words, lowest row first, place before object | 3-6 sentences |
| `hard_negatives` | a short caption with one fact wrong, checked false against the graph | 5-20 words |

All take a `random.Random`, and nothing else decides what they write.
"""  # noqa: E501

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from paragrain.sources.scenes.graph import (
    CELLS,
    MAX_THINGS,
    MIN_THINGS,
    Scene,
    Thing,
    changed,
    reading_order,
)
from paragrain.sources.scenes.lexicon import (
    BACKGROUNDS,
    COLOURS,
    NUMBERS,
    OPPOSITE,
    PATTERNS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZES,
)
from paragrain.sources.scenes.truth import is_true, related

Pick = Callable[[tuple[str, str]], str]  # chooses one of the two words of a lexicon entry

TRAINING_STYLE: Pick = lambda names: names[0]  # noqa: E731
HELD_OUT_STYLE: Pick = lambda names: names[1]  # noqa: E731

_USELESS = (
    "img {n}", "untitled", "free wallpaper download", "photo {n}", "click to enlarge", "logo",
    "stock photo", "image result", "dsc {n}", "thumbnail", "home", "new arrivals {n}",
)  # fmt: skip


def alt_text(scene: Scene, rng: random.Random) -> str:
    """A web page's alternative text: a fragment on the most salient things, or nothing of use."""
    if rng.random() < 0.25:
        return rng.choice(_USELESS).format(n=rng.randint(2, 999))
    first, second = scene.things[:2]
    form = rng.randrange(4)
    if form == 0:
        return _bare(first, TRAINING_STYLE, size=False)
    if form == 1:
        background = BACKGROUNDS[scene.background][0]
        return f"{_bare(first, TRAINING_STYLE, size=False)} on {background}"
    if form == 2:
        one, two = (_bare(t, TRAINING_STYLE, size=False, pattern=False) for t in (first, second))
        return f"{one} and {two}"
    return f"{_bare(first, TRAINING_STYLE)} picture"


def short_captions(
    scene: Scene, rng: random.Random, *, reference: bool = False, count: int = 5
) -> list[str]:
    """`count` different true sentences of under twenty words, each with a focus of its own.

    Args:
        scene: what to write about.
        rng: source of every choice.
        reference: write in the words of the test references, which no training text uses.
        count: number of captions, at most six.
    """
    wording = 1 if reference else 0
    captions: list[str] = []
    for form in rng.sample(_FORMS, count):
        caption = form(scene, rng, wording, None)
        while caption in captions:
            caption = form(scene, rng, wording, None)
        captions.append(caption)
    return captions


def paragraph(scene: Scene, rng: random.Random) -> str:
    """Three to six sentences in the training style: all things, the most salient first."""
    things, pick = scene.things, TRAINING_STYLE
    number, background = NUMBERS[len(things)], BACKGROUNDS[scene.background][0]
    sentences = [
        rng.choice(
            (
                f"This picture shows {number} shapes on a {background} background.",
                f"There are {number} shapes in this picture, set on a {background} background.",
                f"On a {background} background we see {number} shapes.",
            )
        )
    ]
    verbs = rng.sample(("sits", "lies", "stands", "rests"), 4)
    for start in range(0, len(things), 2):
        verb = verbs[start // 2]
        parts = [
            f"{_a(_bare(thing, pick))} {verb} {_at(thing, pick)}"
            for thing in things[start : start + 2]
        ]
        sentences.append(_capital(rng.choice((", and ", ", while ")).join(parts)) + ".")
    if len(sentences) < 6:
        one, relation, two = _relation(scene, rng)
        sentences.append(
            f"The {_bare(one, pick, size=False, pattern=False)} is {RELATIONS[relation][0]} "
            f"the {_bare(two, pick, size=False, pattern=False)}."
        )
    return " ".join(sentences)


def falsified(sentence: str, scene: Scene, rng: random.Random) -> str:
    """A sentence of a `paragraph` with one fact changed, so that it is false.

    Raises:
        ValueError: no change of a single word or place makes it false.

    >>> scene = Scene("mint", (), look=0)
    >>> falsified("We see four shapes on a mint background.", scene, random.Random(0))
    'We see four shapes on a cream background.'
    """
    facts = list(_FACT.finditer(sentence))
    for fact in rng.sample(facts, len(facts)):
        others = next(names for names in _FACTS if fact.group() in names)
        for other in rng.sample(others, len(others)):
            # The article stays: no word that follows one in this style begins with a vowel.
            wrong = sentence[: fact.start()] + other + sentence[fact.end() :]
            if is_true(wrong, scene) is False:
                return wrong
    raise ValueError(f"no single change makes {sentence!r} false of its scene")


def description(scene: Scene, rng: random.Random) -> str:
    """Three to six sentences in the held-out style: lowest row first, place before object."""
    pick = HELD_OUT_STYLE
    background = BACKGROUNDS[scene.background][1]
    number = NUMBERS[len(scene.things)]
    sentences = [
        rng.choice(
            (
                f"{background} fills the whole canvas.",
                f"The canvas is {background}.",
                f"Behind the figures the backdrop is {background}.",
            )
        ).capitalize()
    ]
    ordered = [scene.things[i] for i in reading_order(scene)]
    for _, row in groupby(ordered, key=lambda thing: thing.row):
        parts = [f"the {PLACES[t.cell][1]} holds {_a(_bare(t, pick))}" for t in row]
        sentences.append(_capital("; ".join(parts)) + ".")
    one, relation, two = _relation(scene, rng)
    sentences.append(
        f"You find the {_bare(one, pick, size=False)} {RELATIONS[relation][1]} "
        f"the {_bare(two, pick, size=False)}."
    )
    sentences.append(f"There are {number} figures here.")
    return " ".join(sentences)


def hard_negatives(scene: Scene, rng: random.Random, count: int = 5) -> list[str]:
    """`count` captions like `short_captions`, each with one fact changed so that it is false."""
    negatives: list[str] = []
    while len(negatives) < count:
        caption = _one_fact_wrong(scene, rng)
        # A change may still leave the caption true, if another thing fits it: ask the graph.
        if caption not in negatives and is_true(caption, scene) is False:
            negatives.append(caption)
    return negatives


def _one_fact_wrong(scene: Scene, rng: random.Random) -> str:
    """A caption of a scene in which one fact is changed, in a form that may show it."""
    kind = rng.randrange(7)
    if kind == 0:
        other = rng.choice([name for name in BACKGROUNDS if name != scene.background])
        return rng.choice((_counted, _backed))(replace(scene, background=other), rng, 0, None)
    if kind == 1:  # a relation turned round
        one, relation, two = _relation(scene, rng)
        pick = _mixed(rng)
        wrong = pick(RELATIONS[OPPOSITE[relation]])
        return f"{_some(one, rng, pick)} {wrong} {_some(two, rng, pick)}"
    things = list(scene.things)
    index = rng.randrange(len(things))
    thing, forms = things[index], _FORMS
    if kind == 2:  # a place that stands empty
        free = sorted(set(range(CELLS)) - {t.cell for t in things})
        wrong_thing, forms = replace(thing, cell=rng.choice(free)), (_placed, _two_placed)
    else:
        name, values = _ATTRIBUTES[kind - 3]
        value = rng.choice([v for v in values if v != getattr(thing, name)])
        wrong_thing = changed(thing, name, value)
    things[index] = wrong_thing
    wrong_scene = replace(scene, things=tuple(things))
    return rng.choice(forms)(wrong_scene, rng, 0, wrong_thing)


_ATTRIBUTES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("colour", tuple(COLOURS)),
    ("shape", tuple(SHAPES)),
    ("size", tuple(SIZES)),
    ("pattern", tuple(PATTERNS)),
)


# --- forms of short captions. `wording` is 0 for training and 1 for reference words; `subject` is
# --- a thing that the sentence has to speak of, or None for any.


Form = Callable[[Scene, random.Random, int, Thing | None], str]


def _placed(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    (thing,), pick = _focus(scene, rng, 1, subject), _mixed(rng)
    text = f"{_some(thing, rng, pick)} {_at(thing, pick)}"
    return f"there is {text}" if wording else text


def _two_placed(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    one, two = _focus(scene, rng, 2, subject)
    pick = _mixed(rng)
    first = f"{_some(one, rng, pick, size=False)} {_at(one, pick)}"
    second = f"{_some(two, rng, pick, size=False)} {_at(two, pick)}"
    return f"{first} with {second}" if wording else f"{first} and {second}"


def _relative(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    one, relation, two = _relation(scene, rng, subject)
    pick = _mixed(rng)
    verb = "appears " if wording else ""
    words = f"{_some(one, rng, pick)} {verb}{pick(RELATIONS[relation])} {_some(two, rng, pick)}"
    return f"here {words}" if wording else words


def _counted(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    (thing,), pick = _focus(scene, rng, 1, subject), _mixed(rng)
    number, background = NUMBERS[len(scene.things)], pick(BACKGROUNDS[scene.background])
    if wording:
        return f"{background} backdrop with {number} objects and {_some(thing, rng, pick)}"
    return f"{number} shapes on {_a(background)} background with {_some(thing, rng, pick)}"


def _listed(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    pick = _mixed(rng)
    one, two, three = (_some(thing, rng, pick) for thing in _focus(scene, rng, 3, subject))
    return f"we see {one} with {two} and {three}" if wording else f"{one}, {two} and {three}"


def _backed(scene: Scene, rng: random.Random, wording: int, subject: Thing | None) -> str:
    one, two = _focus(scene, rng, 2, subject)
    pick = _mixed(rng)
    background = pick(BACKGROUNDS[scene.background])
    if wording:
        return f"drawn against {background} is {_some(one, rng, pick)} with {_some(two, rng, pick)}"
    return f"{_some(one, rng, pick)} and {_some(two, rng, pick)} on {background}"


_FORMS: tuple[Form, ...] = (_placed, _two_placed, _relative, _counted, _listed, _backed)


# --- pieces


def _mixed(rng: random.Random) -> Pick:
    """Either word, anew for each use: short captions know the words of both styles."""
    return lambda names: names[rng.random() < 0.5]


def _focus(scene: Scene, rng: random.Random, count: int, subject: Thing | None) -> Sequence[Thing]:
    """Different things to speak of; any of them, so that captions cover the scene between them."""
    if subject is None:
        return rng.sample(scene.things, count)
    others = [thing for thing in scene.things if thing is not subject]
    return [subject, *rng.sample(others, count - 1)]


def _relation(
    scene: Scene, rng: random.Random, subject: Thing | None = None
) -> tuple[Thing, str, Thing]:
    """Two things and a relation that holds between them (either one may come first)."""
    one, two = _focus(scene, rng, 2, subject)
    choices = [name for name in RELATIONS if related(one, name, two)]
    relation = rng.choice(choices)
    return (one, relation, two) if rng.random() < 0.5 else (two, OPPOSITE[relation], one)


def _bare(thing: Thing, pick: Pick, *, size: bool = True, pattern: bool = True) -> str:
    """`large striped red heart`, without an article."""
    words = [pick(COLOURS[thing.colour]), pick(SHAPES[thing.shape])]
    if pattern:
        words.insert(0, pick(PATTERNS[thing.pattern]))
    if size:
        words.insert(0, pick(SIZES[thing.size]))
    return " ".join(words)


def _some(thing: Thing, rng: random.Random, pick: Pick, *, size: bool = True) -> str:
    """`a striped red heart`, with size (where allowed) and pattern told or left out."""
    return _a(_bare(thing, pick, size=size and rng.random() < 0.5, pattern=rng.random() < 0.6))


def _at(thing: Thing, pick: Pick) -> str:
    """`in the upper left corner`."""
    name = pick(PLACES[thing.cell])
    return f"{'at' if name.endswith(('edge', ' centre')) else 'in'} the {name}"


# What the sentences of a paragraph state, in the words of the training style, kind by kind.
_FACTS: tuple[tuple[str, ...], ...] = (
    *(
        tuple(map(TRAINING_STYLE, table.values()))
        for table in (COLOURS, SHAPES, SIZES, PATTERNS, BACKGROUNDS, RELATIONS)
    ),
    tuple(_at(Thing("", "", "", "", cell), TRAINING_STYLE) for cell in range(CELLS)),
    NUMBERS[MIN_THINGS : MAX_THINGS + 1],
)
_FACT = re.compile(
    "|".join(re.escape(name) for names in _FACTS for name in names).join((r"\b(?:", r")\b"))
)


def _a(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
