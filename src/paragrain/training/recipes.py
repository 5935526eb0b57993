"""Recipes: the mix of texts that supervises an image, and the losses, as data (C1-C10, your own).

A recipe names fields of a record and how many texts to select from each:

```yaml
c3:
  positives: [{from: captions, select: first}, {from: generated, select: random}]
```

Its `loss` is `contrastive` unless it says otherwise, whose form follows from the texts: negatives
make it hard-negative, several positives multi-positive, one positive InfoNCE
(`paragrain.training.objectives.contrastive`).

For ablations and controls a selection also takes a `share` of the images only, or gives its texts
joined to one (`join`) or in another `order`.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from paragrain.collection import TEXT_FIELDS
from paragrain.errors import UsageError

Order = Literal["sentences", "words"]

_FIELD = (
    TEXT_FIELDS.__contains__,
    f"which is no text field; use {', '.join(TEXT_FIELDS[:-1])} or {TEXT_FIELDS[-1]}",
)
# `True` is an integer to Python, and not to whoever wrote it.
_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "source": _FIELD,
    "max_length": _FIELD,
    "select": (
        lambda value: value in ("first", "random", "all") or (type(value) is int and value >= 1),
        "use first, random, all, or a number from 1",
    ),
    "share": (
        lambda value: type(value) in (int, float) and 0 < value <= 1,
        "use a number above 0 and up to 1",
    ),
    "join": (lambda value: type(value) is bool, "use true or false"),
    "order": (lambda value: value in ("sentences", "words"), "use sentences or words"),
}
"""What may stand in each setting of a selection, and how that is told."""


class Selection(BaseModel):
    """Some texts of one field, for all images or a part of them, as they are or changed.

    Attributes:
        source: the field, in YAML `from`.
        select: `first`, `random` (one, anew each epoch), `all`, or the first n.
        share: of the images that get these texts, above 0 to 1; see `shares`.
        join: put all that was selected into one text; each ends in a full stop.
        order: `sentences` or `words`: that order is random, anew each epoch; see
            `sampling.scrambled`.
        max_length: the field whose maximum length truncates these texts, if not their own. With
            `join` it has to be said, since captions in a row are as long as a paragraph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: str = Field(alias="from")
    select: Literal["first", "random", "all"] | int = "all"
    share: float = 1.0
    join: bool = False
    order: Order | None = None
    max_length: str | None = None

    @field_validator(*_ALLOWED, mode="before")
    @classmethod
    def _allowed(cls, value: Any, info: ValidationInfo) -> Any:
        allowed, words = _ALLOWED[info.field_name or ""]
        if not allowed(value):
            separator = ", " if words.startswith("which") else "; "
            raise ValueError(f"is {value!r}{separator}{words}")
        return value

    @model_validator(mode="after")
    def _says_its_length(self) -> "Selection":
        if self.join and self.max_length is None:
            raise ValueError(
                "joins texts, and has to say at whose maximum length the long text is cut: "
                "add max_length: paragraph"
            )
        return self

    def texts_per_image(self) -> int | None:
        """The most texts that this selects for one image; `None` if the data decide."""
        if self.join or self.select in ("first", "random"):
            return 1
        if self.source in ("paragraph", "description"):
            return 1
        return None if self.select == "all" else int(self.select)

    def shares(self, id: str) -> bool:
        """Whether the record of this id is in the share of the images that get these texts.

        A hash of the id alone decides, so a smaller share lies within a larger one, and a share is
        the same images in every recipe, seed and epoch, whatever else the collection holds. Not
        of the group: a share says for how many images texts were written, and each of two near
        duplicates costs its own. The share is met on average: of 1,000 images, 25 % are 223 to 277
        in 95 of 100 collections.
        """
        return pseudo_random(f"share/{id}") < self.share * 2**64


class Recipe(BaseModel):
    """What supervises each image: positive texts, perhaps negative ones, and the losses.

    Attributes:
        name, title, note: how it is told.
        positives, negatives: where its texts come from.
        sample: so many of an image's positives, drawn anew in each step; all if not given.
        losses: in YAML `loss`: the options of each loss by its name, of which `weight` is what it
            counts for in their sum. There, a name, a list of names or a weight by name will do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = Field(pattern=r"^[^/\\]+$")
    title: str = ""
    note: str = ""
    positives: tuple[Selection, ...] = Field(min_length=1)
    negatives: tuple[Selection, ...] = ()
    sample: int | None = Field(None, ge=1)
    losses: dict[str, dict[str, Any]] = Field({"contrastive": {}}, alias="loss", min_length=1)

    @field_validator("positives")
    @classmethod
    def _right_texts(cls, selections: tuple[Selection, ...]) -> tuple[Selection, ...]:
        if any(selection.source == "negatives" for selection in selections):
            raise ValueError("hold texts from the field negatives, which are wrong on purpose")
        return selections

    @field_validator("losses", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """A name, a list of them, or a weight or options by name, as options by name."""
        names = [value] if isinstance(value, str) else value
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            names = dict.fromkeys(names)
        if not isinstance(names, dict):
            raise ValueError(f"is {value!r}; use a name, a list of names, or a weight by name")
        return {
            name: {"weight": options} if isinstance(options, int | float) else options or {}
            for name, options in names.items()
        }

    @field_validator("losses")
    @classmethod
    def _weights(cls, losses: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, options in losses.items():
            weight = options.get("weight", 1.0)
            if type(weight) not in (int, float) or not 0 <= weight < float("inf"):
                raise ValueError(f"gives {name} the weight {weight!r}; use a number from 0")
        return losses

    @property
    def weights(self) -> dict[str, float]:
        """What each loss counts for in their sum."""
        return {name: float(options.get("weight", 1)) for name, options in self.losses.items()}

    @property
    def selections(self) -> tuple[Selection, ...]:
        """Those of the positives, then those of the negatives."""
        return (*self.positives, *self.negatives)

    @property
    def fields(self) -> tuple[str, ...]:
        """The record fields that it reads, each once."""
        return tuple(dict.fromkeys(selection.source for selection in self.selections))

    @property
    def max_lengths(self) -> tuple[str, ...]:
        """The fields whose maximum lengths truncate its texts, each once."""
        return tuple(dict.fromkeys(s.max_length or s.source for s in self.selections))

    @property
    def loss(self) -> str:
        """Its losses in words; the contrastive one by the form that the texts make of it.

        >>> load_recipe("c7").loss
        'hard-negative'
        >>> Recipe(name="x", positives=({"from": "captions"},), loss={"contrastive": 0.5}).loss
        '0.5 x multi-positive'
        """
        texts = [selection.texts_per_image() for selection in self.positives]
        form = "InfoNCE" if texts == [1] else "multi-positive"
        form = "hard-negative" if self.negatives else form
        return " + ".join(
            ("" if weight == 1 else f"{weight:g} x ") + (form if name == "contrastive" else name)
            for name, weight in self.weights.items()
        )

    def content(self) -> dict[str, Any]:
        """The recipe as plain data, as its file has it; what is as usual is left out."""
        name = {"name": self.name, "title": self.title, "note": self.note}
        return name | self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


@lru_cache(maxsize=1)
def _shipped() -> dict[str, dict[str, Any]]:
    text = (resources.files("paragrain.training") / "recipes.yaml").read_text("utf-8")
    recipes: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return recipes


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package, `c1` to `c10`."""
    return list(_shipped())


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
    known = ", ".join(recipe_names())
    if not isinstance(recipe, str | Path):
        raise UsageError(
            f"a recipe is a Recipe, its name or its file, not {type(recipe).__name__}: "
            f"use one of {known}"
        )
    if isinstance(recipe, str) and recipe.lower() in recipe_names():
        name = recipe.lower()
        return Recipe.model_validate({"name": name, **_shipped()[name]})
    path = Path(recipe)
    if not path.is_file():
        raise UsageError(
            f"there is no recipe {str(recipe)!r}: use one of {known}, or the path of a file"
        )
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


def pseudo_random(key: str) -> int:
    """A number from 0 to 2^64 - 1 that looks random and depends on `key` alone."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
