"""Scene graphs: what is in a picture, exactly; scenes and near-twins drawn at random."""

import json
import random
from dataclasses import dataclass, replace

from paragrain.sources.scenes.lexicon import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES

GRID = 3
CELLS = GRID * GRID
MIN_THINGS, MAX_THINGS = 4, 8

_COLOURS, _SHAPES, _SIZES, _PATTERNS, _BACKGROUNDS = (
    tuple(table) for table in (COLOURS, SHAPES, SIZES, PATTERNS, BACKGROUNDS)
)


@dataclass(frozen=True, slots=True)
class Thing:
    """One object: its four attributes and the cell of the 3 x 3 grid that holds it."""

    shape: str
    colour: str
    size: str
    pattern: str
    cell: int  # 3 * row + column, from the upper left

    @property
    def row(self) -> int:
        """0 (top) to 2 (bottom)."""
        return self.cell // GRID

    @property
    def column(self) -> int:
        """0 (left) to 2 (right)."""
        return self.cell % GRID


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's whole truth.

    Attributes:
        background: one of the eight backgrounds.
        things: four to eight objects, at most one a cell, the most salient (largest) first.
        look: seed of what no text speaks of: exact placement inside the cells, slight shifts of
            tint. A near-twin shares it, so that two pictures differ in the one fact alone.
    """

    background: str
    things: tuple[Thing, ...]
    look: int

    def to_json(self) -> str:
        """The graph as one line of JSON."""
        things = [[t.shape, t.colour, t.size, t.pattern, t.cell] for t in self.things]
        return json.dumps({"background": self.background, "things": things, "look": self.look})

    @classmethod
    def from_json(cls, text: str) -> "Scene":
        """Read what `to_json` wrote.

        Raises:
            ValueError: `text` is anything else, such as a scene graph of another kind.

        >>> scene = sample_scene(random.Random(0))
        >>> Scene.from_json(scene.to_json()) == scene
        True
        """
        try:
            value = json.loads(text)
            things = tuple(Thing(*fields) for fields in value["things"])
            scene = cls(value["background"], things, value["look"])
            known = scene.background in BACKGROUNDS and all(map(_known, things))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError("this is not the graph of a drawn scene") from error
        if not known or len({thing.cell for thing in things}) < len(things):
            raise ValueError("this graph is of no scene that can be drawn")
        return scene


def sample_scene(rng: random.Random) -> Scene:
    """Draw a scene of four to eight objects in different cells of the grid."""
    count = rng.randint(MIN_THINGS, MAX_THINGS)
    choice = rng.choice
    things = [
        Thing(choice(_SHAPES), choice(_COLOURS), choice(_SIZES), choice(_PATTERNS), cell)
        for cell in rng.sample(range(CELLS), count)
    ]
    things.sort(key=lambda thing: -_SIZES.index(thing.size))
    return Scene(choice(_BACKGROUNDS), tuple(things), rng.getrandbits(32))


TWIN_KINDS = ("colour", "shape", "size", "pattern", "move", "swap")


def near_twin(scene: Scene, rng: random.Random) -> tuple[Scene, str]:
    """A scene that differs from `scene` in one fact, and the kind of that fact.

    One of `TWIN_KINDS`: an object's colour, shape, size or pattern is another, it stands in
    another cell, or two objects have changed places. The object is chosen among those that both
    long styles mention late (the first by salience, the second from the lowest row up), so that a
    text cut short cannot tell the two apart. The order of mention stays as it was.
    """
    things = list(scene.things)
    index = _told_late(scene, rng)
    thing = things[index]
    kind = rng.choice(TWIN_KINDS)
    if kind == "move":
        free = sorted(set(range(CELLS)) - {t.cell for t in things})
        things[index] = replace(thing, cell=rng.choice(free))
    elif kind == "swap":
        other = rng.choice([i for i in range(len(things)) if not _alike(things[i], thing)] or [-1])
        if other < 0:  # every object looks the same: there is nothing to swap
            return near_twin(scene, rng)
        things[index] = replace(thing, cell=things[other].cell)
        things[other] = replace(things[other], cell=thing.cell)
    else:
        values = {"colour": _COLOURS, "shape": _SHAPES, "size": _SIZES, "pattern": _PATTERNS}[kind]
        value = rng.choice([v for v in values if v != getattr(thing, kind)])
        things[index] = changed(thing, kind, value)
    return Scene(scene.background, tuple(things), scene.look), kind


def reading_order(scene: Scene) -> list[int]:
    """Indices of the things as the held-out style tells them: lowest row first, left to right."""
    return sorted(
        range(len(scene.things)),
        key=lambda i: (-scene.things[i].row, scene.things[i].column),
    )


def _told_late(scene: Scene, rng: random.Random) -> int:
    """Index of a thing that stands in the later half of both orders of mention."""
    count = len(scene.things)
    position = {thing: place for place, thing in enumerate(reading_order(scene))}
    late = [i for i in range(count // 2, count) if position[i] >= count // 2]
    return rng.choice(late) if late else max(range(count), key=lambda i: i + position[i])


def changed(thing: Thing, attribute: str, value: str) -> Thing:
    """A copy of `thing` with another shape, colour, size or pattern."""
    return replace(thing, **{attribute: value})  # type: ignore[arg-type]


def _known(thing: Thing) -> bool:
    """Whether the lexicon has a word for every attribute of `thing`."""
    return (
        thing.shape in SHAPES
        and thing.colour in COLOURS
        and thing.size in SIZES
        and thing.pattern in PATTERNS
        and thing.cell in range(CELLS)
    )


def _alike(one: Thing, other: Thing) -> bool:
    """Whether two things differ in nothing but their cell."""
    return replace(one, cell=0) == replace(other, cell=0)
