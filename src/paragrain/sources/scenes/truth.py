"""Is this sentence true of this scene? The grammar of the procedural world, read backwards.

A sentence makes claims: that certain things exist (with any of size, pattern, colour, shape and
place), that one thing stands in a relation to another, how many things there are, what the
background is. `read` finds the claims, `holds` checks one against a graph, `is_true` does both.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from paragrain.sources.scenes.graph import Scene, Thing
from paragrain.sources.scenes.lexicon import (
    BACKGROUNDS,
    COLOURS,
    NUMBERS,
    PATTERNS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZES,
)
from paragrain.words import sentences


@dataclass(frozen=True, slots=True)
class Spec:
    """A description of a thing; what is None is left open."""

    size: str | None = None
    pattern: str | None = None
    colour: str | None = None
    shape: str | None = None
    cell: int | None = None

    def fits(self, thing: Thing) -> bool:
        """Whether `thing` is as described."""
        return (
            (self.shape is None or self.shape == thing.shape)
            and (self.colour is None or self.colour == thing.colour)
            and (self.cell is None or self.cell == thing.cell)
            and (self.size is None or self.size == thing.size)
            and (self.pattern is None or self.pattern == thing.pattern)
        )


@dataclass(frozen=True, slots=True)
class Exists:
    """There is such a thing; with `count`, there are exactly so many."""

    spec: Spec
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Related:
    """There are two different things, `one` standing in `relation` to `other`."""

    one: Spec
    relation: str
    other: Spec


@dataclass(frozen=True, slots=True)
class Background:
    """The background is `name`."""

    name: str


Claim = Exists | Related | Background


def related(one: Thing, relation: str, other: Thing) -> bool:
    """Whether `one` is left of, right of, above or below `other`, by column or row of the grid."""
    if relation == "left of":
        return one.column < other.column
    if relation == "right of":
        return one.column > other.column
    if relation == "above":
        return one.row < other.row
    return one.row > other.row


def holds(claim: Claim, scene: Scene) -> bool:
    """Whether `claim` is true of `scene`."""
    if isinstance(claim, Background):
        return claim.name == scene.background
    if isinstance(claim, Exists):
        found = sum(claim.spec.fits(thing) for thing in scene.things)
        return found > 0 if claim.count is None else found == claim.count
    ones = [thing for thing in scene.things if claim.one.fits(thing)]
    others = [thing for thing in scene.things if claim.other.fits(thing)]
    return any(a is not b and related(a, claim.relation, b) for a in ones for b in others)


def all_hold(claims: Iterable[Claim], scene: Scene) -> bool:
    """Whether every one of `claims` is true of `scene`."""
    return all(holds(claim, scene) for claim in claims)


def is_true(sentence: str, scene: Scene) -> bool | None:
    """Whether `sentence` is true of `scene`; None if it claims nothing that can be read.

    Any text of the world's own styles can be read; so can whole paragraphs (true if every claim
    is). A word outside the lexicon gives None: what is not understood is not judged.

    >>> star = Thing("star", "red", "large", "plain", cell=0)
    >>> moon = Thing("crescent", "blue", "small", "dotted", cell=5)
    >>> scene = Scene("cream", (star, moon), look=0)
    >>> is_true("A large red star is to the left of a tiny azure moon.", scene)
    True
    >>> is_true("a blue star in the upper left corner", scene)
    False
    >>> is_true("A dog on a sofa.", scene) is None
    True
    """
    claims = read(sentence)
    return all_hold(claims, scene) if claims else None


def verdicts(text: str, scene: Scene) -> list[bool | None]:
    """`is_true` of each sentence of `text`; a text without sentences gives one None."""
    return [is_true(sentence, scene) for sentence in sentences(text) or [""]]


# Words that carry no claim. Anything else that is not in the lexicon makes a text unreadable.
FILLERS = frozenset(
    """a an the and of in on at is are there this here it we see you find with while
    sits lies stands rests appears fills shows showing features depicts set drawn
    picture image background backdrop canvas behind against whole""".split()
)
_NOUNS = frozenset("shape shapes thing things figure figures object objects".split())


def _vocabulary() -> dict[str, tuple[str, str | int]]:
    words: dict[str, tuple[str, str | int]] = {}
    for kind, table in (
        ("colour", COLOURS),
        ("shape", SHAPES),
        ("size", SIZES),
        ("pattern", PATTERNS),
        ("background", BACKGROUNDS),
        ("relation", RELATIONS),
    ):
        for value, names in table.items():
            for name in names:
                words[name] = (kind, value)
    for cell, names in enumerate(PLACES):
        for name in names:
            words[name] = ("place", cell)
    for number, name in enumerate(NUMBERS[2:], 2):
        words[name] = ("count", number)
    words.update(dict.fromkeys(_NOUNS, ("noun", "")))
    words["holds"] = ("holds", "")
    return words


_WORDS = _vocabulary()
# Longest first, so that "upper left corner" is read before "left".
_TOKEN = re.compile(
    "|".join([*(re.escape(w) for w in sorted(_WORDS, key=len, reverse=True) if " " in w)]).join(
        ("(?:", r")(?![a-z])|[a-z]+(?:-[a-z]+)*|[^\sa-z]")
    )
)


@lru_cache(maxsize=65536)
def read(text: str) -> tuple[Claim, ...]:
    """The claims that `text` makes, in order; empty if a word of it is not understood.

    Works word by word: a head noun closes a description, a place belongs to the description
    before it (or, before "holds", to the one after), a relation joins two descriptions.
    """
    claims: list[Claim] = []
    for sentence in sentences(text.lower()):
        found = _Sentence().read(_TOKEN.findall(sentence))
        if found is None:
            return ()
        claims += found
    return tuple(claims)


class _Sentence:
    """The reader's state within one sentence."""

    def __init__(self) -> None:
        self.specs: list[dict[str, str | int]] = []  # closed descriptions, in order
        self.counts: list[int | None] = []
        self.open: dict[str, str | int] = {}  # attributes of a description not closed yet
        self.count: int | None = None
        self.place: int | None = None  # a place before "holds", for the next description
        self.joins: list[tuple[int, str]] = []  # (index of the first description, relation)
        self.backgrounds: list[Claim] = []

    def read(self, tokens: list[str]) -> list[Claim] | None:
        for token in tokens:
            kind, value = _WORDS.get(token, ("", ""))
            if kind in ("colour", "size", "pattern"):
                self.open[kind] = value
            elif kind in ("shape", "noun"):
                self._close(value if kind == "shape" else None)
            elif kind == "count":
                self.count = int(value)
            elif kind == "place":
                self._put(int(value))
            elif kind == "holds":
                self._hold()
            elif kind == "relation" and self.specs:
                self.joins.append((len(self.specs) - 1, str(value)))
            elif kind == "background":
                self.backgrounds.append(Background(str(value)))
            elif token not in FILLERS and token[0].isalnum():
                return None
        return self._claims()

    def _close(self, shape: str | int | None) -> None:
        if shape is not None:
            self.open["shape"] = shape
        if self.place is not None:
            self.open["cell"], self.place = self.place, None
        self.specs.append(self.open)
        self.counts.append(self.count)
        self.open, self.count = {}, None

    def _put(self, cell: int) -> None:
        if self.specs and "cell" not in self.specs[-1]:
            self.specs[-1]["cell"] = cell
        else:
            self.place = cell

    def _hold(self) -> None:
        if self.place is None and self.specs:
            cell = self.specs[-1].pop("cell", None)
            self.place = None if cell is None else int(cell)

    def _claims(self) -> list[Claim]:
        specs = [Spec(**spec) for spec in self.specs]  # type: ignore[arg-type]
        claims = list(self.backgrounds)
        claims += [Exists(spec, count) for spec, count in zip(specs, self.counts, strict=True)]
        for index, relation in self.joins:
            if index + 1 < len(specs):
                claims.append(Related(specs[index], relation, specs[index + 1]))
        return claims
