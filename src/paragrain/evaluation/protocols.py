"""What a published number was measured on, as data: `protocols.yaml`, checked when read."""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paragrain.collection import Collection
from paragrain.collection.fields import POSITIVE_FIELDS
from paragrain.errors import ParagrainError, UsageError
from paragrain.plugins import registered

GROUP = "paragrain.protocols"
"""The entry points of packages that add protocols."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Size(_Data):
    """Images and texts that a data set is known to have, and `of` which release."""

    images: int
    texts: int
    of: str


class Part(_Data):
    """So many images of those in whose id `match` occurs."""

    match: str = Field(min_length=1)
    images: int = Field(ge=1)


class Sample(_Data):
    """A seeded draw from a split: so many images of each part.

    Of each part, the images with the smallest BLAKE2b hash (8 bytes) of "SEED ID" are taken. So the
    draw depends on the seed and the ids alone, not on their order, and where some images are
    missing, all others stay in the sample.
    """

    seed: int
    parts: tuple[Part, ...] = Field(min_length=1)

    def draw(self, ids: Sequence[str]) -> list[str]:
        """Those of `ids` that are in the sample, in the order given; fewer where there are fewer.

        >>> ids = [f"{part}/{number}.jpg" for part in ("coco", "sam") for number in range(9)]
        >>> sample = Sample(seed=0, parts=[Part(match="coco/", images=3)])
        >>> sample.draw(ids)
        ['coco/3.jpg', 'coco/5.jpg', 'coco/7.jpg']
        >>> sample.draw(ids[::-1]) == sample.draw(ids)[::-1]
        True
        """
        taken: set[str] = set()
        for part in self.parts:
            own = (id for id in ids if part.match in id and id not in taken)
            taken.update(sorted(own, key=self._lot)[: part.images])
        return [id for id in ids if id in taken]

    def _lot(self, id: str) -> tuple[bytes, str]:
        return blake2b(f"{self.seed} {id}".encode(), digest_size=8).digest(), id


class Protocol(_Data):
    """Everything that a number depends on besides data and model; see `protocols.yaml`."""

    name: str
    title: str
    split: str
    texts: Literal[POSITIVE_FIELDS]  # type: ignore[valid-type]
    one_to_one: bool
    max_length: int
    normalise: Literal["none", "blip-original"] = "none"
    truncation: Literal["tokens", "words", "sentences"] = "tokens"
    sample: Sample | None = None
    expected: tuple[Size, ...] = Field(min_length=1)
    source: str

    def ids(self, collection: Collection, split: str | None) -> list[str] | None:
        """The ids of the sample in a collection; `None` if the protocol takes all.

        Raises:
            ParagrainError: the collection holds none of the sample.
        """
        if self.sample is None:
            return None
        drawn = self.sample.draw(collection.ids(split))
        if not drawn:
            wanted = " or ".join(part.match for part in self.sample.parts)
            raise ParagrainError(
                f"no image of {collection.place(split)} belongs to the sample of {self.name}, "
                f"which is drawn from images with {wanted} in their id: import them from there"
            )
        return drawn

    def account(self, images: int, texts: int) -> dict[str, Any]:
        """What a result says about the sizes that it found: expected or not, and in which case.

        >>> said = load_protocol("flickr30k-full").account(31014, 155070)
        >>> said["as_expected"], said["of"]
        (True, 'dataset_flickr30k.json (Karpathy and Li 2015)')
        """
        sizes = [size.model_dump() for size in self.expected]
        fits = [size for size in self.expected if (size.images, size.texts) == (images, texts)]
        return {
            "expected": sizes,
            "found": {"images": images, "texts": texts},
            "as_expected": bool(fits),
            **({"of": fits[0].of} if fits else {}),
        }


@cache
def protocols() -> dict[str, Protocol]:
    """The protocols that come with the package, by name."""
    file = resources.files("paragrain.evaluation") / "protocols.yaml"
    content = yaml.safe_load(file.read_text("utf-8"))
    return {name: Protocol(name=name, **values) for name, values in content.items()}


def load_protocol(name: str) -> Protocol:
    """The protocol of that name: of this package, or of another that registers it.

    An entry point of the group `paragrain.protocols` is a `Protocol`, or its settings as a
    dictionary, which then bears the entry point's name.

    Raises:
        UsageError: there is none.
        ParagrainError: what another package registers is no protocol.
    """
    if name in protocols():
        return protocols()[name]
    others = registered(GROUP)
    if name not in others:
        raise UsageError(
            f"there is no protocol {name!r}: use one of {', '.join([*protocols(), *others])}"
        )
    found = others[name].load()
    try:
        return found if isinstance(found, Protocol) else Protocol(**{**dict(found), "name": name})
    except (ValidationError, TypeError, ValueError) as error:
        problem = " ".join(str(error).split())[:200]
        raise ParagrainError(
            f"the protocol {name} of {others[name].origin} does not work ({problem}): mend it there"
        ) from None
