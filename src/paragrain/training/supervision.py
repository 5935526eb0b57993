"""Which texts of a record teach: recipes as data (C1-C10 and your own), and the draw from them.

A recipe names fields of a record and how many texts to pick from each:

```yaml
c3:
  positives: [{from: captions, select: first}, {from: generated, select: random}]
```

The loss follows from the data: negatives make it hard-negative, several positives multi-positive,
one positive InfoNCE (`paragrain.training.losses`).

For ablations and controls a pick also takes a `share` of the images only, or gives its texts
joined to one (`join`) or in another `order`.
"""

import hashlib
import random
import re
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from paragrain.collection import TEXT_FIELDS, Record
from paragrain.errors import UsageError
from paragrain.training.rewriting import Order, joined, scrambled

_RECIPES = resources.files("paragrain.training") / "recipes"


class Pick(BaseModel):
    """Some texts of one field, for all images or a part of them, as they are or changed.

    Attributes:
        source: the field, in YAML `from`.
        select: `first`, `random` (one, anew each epoch), `all`, or the first n.
        share: of the images that get these texts, above 0 to 1; see `shares`.
        join: put all that was picked into one text; each ends in a full stop.
        order: `sentences` or `words`: that order is random, anew each epoch; see
            `rewriting.scrambled`.
        max_length: the field whose length cuts these texts, if not their own. With `join` it
            has to be said, since captions in a row are as long as a paragraph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: str = Field(alias="from")
    select: Literal["first", "random", "all"] | int = "all"
    share: float = 1.0
    join: bool = False
    order: Order | None = None
    max_length: str | None = None

    @field_validator("source", "max_length", mode="before")
    @classmethod
    def _known_field(cls, value: Any) -> Any:
        if value not in TEXT_FIELDS:
            raise ValueError(f"is {value!r}, which is no text field; use {_either(TEXT_FIELDS)}")
        return value

    @field_validator("select", mode="before")
    @classmethod
    def _known_pick(cls, value: Any) -> Any:
        # `True` is an integer to Python, and not to whoever wrote it.
        if value in ("first", "random", "all") or (type(value) is int and value >= 1):
            return value
        raise ValueError(f"is {value!r}; use first, random, all, or a number from 1")

    @field_validator("share", mode="before")
    @classmethod
    def _known_share(cls, value: Any) -> Any:
        if type(value) in (int, float) and 0 < value <= 1:
            return value
        raise ValueError(f"is {value!r}; use a number above 0 and up to 1")

    @field_validator("join", mode="before")
    @classmethod
    def _known_join(cls, value: Any) -> Any:
        if type(value) is bool:
            return value
        raise ValueError(f"is {value!r}; use true or false")

    @field_validator("order", mode="before")
    @classmethod
    def _known_order(cls, value: Any) -> Any:
        if value in ("sentences", "words"):
            return value
        raise ValueError(f"is {value!r}; use sentences or words")

    @model_validator(mode="after")
    def _says_its_budget(self) -> "Pick":
        if self.join and self.max_length is None:
            raise ValueError(
                "joins texts, and has to say at whose maximum length the long text is cut: "
                "add max_length: paragraph"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As older releases write it, where nothing new is asked for: their runs go on."""
        old = ("from", "source", "select")
        return {
            name: value
            for name, value in serialise(self).items()
            if name in old or value != type(self).model_fields[name].default
        }

    def texts_per_image(self) -> int | None:
        """The most texts that this picks for one image; `None` if the data decide."""
        if self.source in ("paragraph", "description") or self.select in ("first", "random"):
            return 1
        if self.join:
            return 1
        return None if self.select == "all" else int(self.select)

    def shares(self, id: str) -> bool:
        """Whether the record of this id is in the share of the images that get these texts.

        A hash of the id alone decides, so a smaller share lies within a larger one, and a share is
        the same images in every recipe, seed and epoch, whatever else the collection holds. Not
        of the group: a share says for how many images texts were written, and each of two twins
        costs its own. The share is met on average: of 1,000 images, 25 % are 223 to 277 in 95 of
        100 collections.
        """
        return _number(f"share/{id}") < self.share * 2**64


class Recipe(BaseModel):
    """What texts supervise each image: the positives, and perhaps the negatives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[^/\\]+$")
    title: str = ""
    note: str = ""
    positives: tuple[Pick, ...] = Field(min_length=1)
    negatives: tuple[Pick, ...] = ()

    @field_validator("positives")
    @classmethod
    def _right_texts(cls, picks: tuple[Pick, ...]) -> tuple[Pick, ...]:
        if any(pick.source == "negatives" for pick in picks):
            raise ValueError("hold texts from the field negatives, which are wrong on purpose")
        return picks

    @property
    def fields(self) -> tuple[str, ...]:
        """The record fields that it reads, each once."""
        return tuple(dict.fromkeys(pick.source for pick in (*self.positives, *self.negatives)))

    @property
    def max_lengths(self) -> tuple[str, ...]:
        """The fields whose maximum lengths cut its texts, each once."""
        picks = (*self.positives, *self.negatives)
        return tuple(dict.fromkeys(pick.max_length or pick.source for pick in picks))

    @property
    def loss(self) -> str:
        """Which loss the data make of it: `InfoNCE`, `multi-positive` or `hard-negative`."""
        if self.negatives:
            return "hard-negative"
        texts = [pick.texts_per_image() for pick in self.positives]
        return "InfoNCE" if texts == [1] else "multi-positive"

    def content(self) -> dict[str, Any]:
        """The recipe as plain data, as its file has it."""
        return self.model_dump(mode="json", by_alias=True)


class Text(NamedTuple):
    """One text, and the field whose maximum length cuts it: most often the one it came from."""

    field: str
    text: str


class Texts(NamedTuple):
    """The texts that supervise one image in one epoch."""

    positives: list[Text]
    negatives: list[Text]


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package, `c1` to `c10`."""
    names = (Path(file.name) for file in _RECIPES.iterdir())
    return sorted((n.stem for n in names if n.suffix == ".yaml"), key=lambda n: (len(n), n))


def load_recipe(recipe: str | Path | Recipe) -> Recipe:
    """Read a recipe by its name (`"c5"`) or from a YAML file; a `Recipe` is given back as it is.

    The file holds either the recipe itself, named by the file, or one recipe under its name.

    Raises:
        UsageError: there is no such recipe or file, or its content is not a recipe.

    >>> c3 = load_recipe("c3")
    >>> c3.loss, c3.fields
    ('multi-positive', ('captions', 'generated'))
    """
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str | Path):
        raise UsageError(
            f"a recipe is a Recipe, its name or its file, not {type(recipe).__name__}: "
            f"use one of {', '.join(recipe_names())}"
        )
    name = str(recipe)
    if isinstance(recipe, str) and name.lower() in recipe_names():
        return parse_recipe((_RECIPES / f"{name.lower()}.yaml").read_text("utf-8"), name.lower())
    path = Path(recipe)
    if not path.is_file():
        known = ", ".join(recipe_names())
        raise UsageError(f"there is no recipe {name!r}: use one of {known}, or the path of a file")
    try:
        return parse_recipe(path.read_text("utf-8"), path.stem, where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the recipe {path} cannot be read: {error}") from None


def parse_recipe(text: str, name: str, *, where: str | None = None) -> Recipe:
    """Make a recipe from YAML; `name` is used if the text does not name it.

    Raises:
        UsageError: the text is not YAML or not a recipe.
    """
    where = where or name
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise UsageError(f"the recipe {where} is not valid YAML: {problem}") from None
    if isinstance(content, dict) and len(content) == 1 and "positives" not in content:
        [(name, content)] = content.items()
    if not isinstance(content, dict):
        raise UsageError(f"the recipe {where} must hold `positives: [{{from: FIELD}}]`")
    try:
        return Recipe.model_validate({"name": str(name), **content})
    except ValidationError as error:
        raise UsageError(f"the recipe {where} is not valid: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """A problem that pydantic found, in words: where, and what is wrong."""
    # A misspelt name is told first: it is why another one is missing.
    problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"it has no setting {place!r}"
    return f"{place} {problem['msg'].removeprefix('Value error, ').rstrip('.')}".strip()


def draw(record: Record, recipe: Recipe, *, seed: int, epoch: int) -> Texts:
    """Pick the texts that supervise an image in one epoch.

    Random picks and orders depend on the seed, the epoch and the record's id alone: not on the
    order, the batch or the process. Empty texts do not count. A record that lacks some texts
    gives fewer. A negative that says the same as one of the positives is dropped.

    >>> record = Record(id="1", captions=["a cat", "a pet"], negatives=["A  cat", "a dog"])
    >>> texts = draw(record, load_recipe("c7"), seed=0, epoch=0)
    >>> texts.positives, texts.negatives
    ([Text(field='captions', text='a cat')], [Text(field='negatives', text='a dog')])
    """
    key, wrong_key = _keys(seed, epoch)
    positives, wrong = picked(record, recipe, seed=seed, epoch=epoch)
    return Texts(_changed(record, positives, key), _changed(record, wrong, wrong_key))


def picked(
    record: Record, recipe: Recipe, *, seed: int, epoch: int
) -> tuple[list[tuple[Pick, list[str]]], list[tuple[Pick, list[str]]]]:
    """The texts of each positive and each negative pick in an epoch, before they are changed."""
    key, wrong_key = _keys(seed, epoch)
    positives = _pick(record, recipe.positives, key)
    right = {_folded(text) for _, texts in positives for text in texts}
    wrong = [
        (pick, [text for text in texts if _folded(text) not in right])
        for pick, texts in _pick(record, recipe.negatives, wrong_key)
    ]
    return positives, wrong


def _keys(seed: int, epoch: int) -> tuple[str, str]:
    """What the random picks of positives and of negatives depend on."""
    return f"{seed}/{epoch}", f"{seed}/{epoch}/negatives"


def _pick(record: Record, picks: tuple[Pick, ...], key: str) -> list[tuple[Pick, list[str]]]:
    """The texts of each pick, as the record has them."""
    found: list[tuple[Pick, list[str]]] = []
    for position, pick in enumerate(picks):
        texts = [text for text in record.texts(pick.source) if text.strip()]
        if not pick.shares(record.id):
            texts = []
        elif pick.select == "random" and texts:
            texts = [texts[_number(f"{key}/{position}/{record.id}") % len(texts)]]
        elif pick.select == "first":
            texts = texts[:1]
        elif isinstance(pick.select, int):
            texts = texts[: pick.select]
        found.append((pick, texts))
    return found


def _changed(record: Record, picked: list[tuple[Pick, list[str]]], key: str) -> list[Text]:
    """The texts of all picks, joined and reordered as each of them says."""
    found: list[Text] = []
    for position, (pick, texts) in enumerate(picked):
        if pick.join and texts:
            texts = [joined(texts)]
        if pick.order is not None:
            rng = random.Random(_number(f"{key}/{position}/order/{record.id}"))
            texts = [scrambled(text, pick.order, rng) for text in texts]
        found += [Text(pick.max_length or pick.source, text) for text in texts]
    return found


def _number(key: str) -> int:
    """A number from 0 to 2^64 - 1 that looks random and depends on `key` alone."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def _folded(text: str) -> str:
    """A text without case, punctuation and spacing, to see whether two say the same."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _either(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
