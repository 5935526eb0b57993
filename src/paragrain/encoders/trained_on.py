"""What a model has learned from, kept with its weights wherever they are copied.

`trained_on.json` lies in a checkpoint's folder: the data sets by name, and a hash of the content of
each image, so that the same picture is known again under another id and in another collection.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from typing import Any, Literal

import numpy as np

from paragrain.collection import Collection
from paragrain.encoders.weights import one_sentence
from paragrain.files import read_json, write_json

FILE = "trained_on.json"

Use = Literal["trained", "validated"]
USES: tuple[Use, ...] = ("trained", "validated")
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class TrainedOn:
    """The images that decided a model's weights.

    Attributes:
        sets: what is said of each data set: `use` ("trained", or "validated" where the best step
            was chosen on it), `name`, `fingerprint`, `split`, `images`, `vision` (whether the image
            side learned too).
        keys: uint64, rising, for each use: hashes of what `key` was given.
    """

    sets: list[dict[str, Any]]
    keys: dict[Use, np.ndarray]

    @classmethod
    def of(cls, use: Use, about: dict[str, Any], keys: Iterable[str]) -> "TrainedOn":
        """One use of one data set, told by `about` and the keys of its images.

        >>> seen = TrainedOn.of("trained", {"name": "photos"}, [content_key("af31"), "other"])
        >>> seen.has("trained", [content_key("af31"), content_key("be02")])
        array([ True, False])
        >>> (seen | seen).sets
        [{'use': 'trained', 'name': 'photos'}]
        """
        return cls([{"use": use, **about}], {use: np.unique(_hashes(keys))})

    def __or__(self, other: "TrainedOn") -> "TrainedOn":
        """Both together, what is in both once."""
        sets = self.sets + [entry for entry in other.sets if entry not in self.sets]
        keys = {use: np.union1d(self._keys(use), other._keys(use)) for use in USES}
        return TrainedOn(sets, keys)

    def __repr__(self) -> str:
        """The data sets, without the hashes."""
        return f"TrainedOn({self.sets})"

    def has(self, use: Use, keys: Sequence[str]) -> np.ndarray:
        """bool `[N]`, whether each key was there in that use."""
        return np.isin(_hashes(keys), self._keys(use))

    def of_vision(self) -> "TrainedOn | None":
        """Itself if any of it changed the image tower, else None."""
        return self if any(entry.get("vision") for entry in self.sets) else None

    def save_pretrained(self, folder: Path) -> None:
        """Write the file into a folder, as the parts of a checkpoint do."""
        blocks = {use: base64.b64encode(self._keys(use).tobytes()).decode() for use in USES}
        write_json(Path(folder) / FILE, {"format": _FORMAT, "sets": self.sets, **blocks})

    def _keys(self, use: Use) -> np.ndarray:
        return self.keys.get(use, np.zeros(0, np.uint64))


def used_images(
    use: Use,
    collection: Collection,
    split: str | None,
    contents: Mapping[str, str],
    *,
    vision: bool,
) -> TrainedOn:
    """One use of images of a collection.

    Args:
        use: what they were used for.
        collection, split: where they are from.
        contents: id and content hash of each.
        vision: whether the image tower learned from them.
    """
    about = {
        "name": collection.name,
        "fingerprint": collection.fingerprint,
        "split": split or "all",
        "images": len(contents),
        "vision": vision,
    }
    keys = [id_key(collection.name, id) for id in contents]
    keys += [content_key(content) for content in contents.values()]
    records = collection.records(split, fields=("group",))
    groups = {record.group for record in records if record.group and record.id in contents}
    keys += [
        group_key(record.content)
        for record in (collection.records(fields=("group", "content")) if groups else ())
        if record.group in groups and record.content is not None
    ]
    return TrainedOn.of(use, about, keys)


def content_key(content: str) -> str:
    """The key of an image by the hash of its bytes."""
    return f"content {content}"


def group_key(content: str) -> str:
    """The key of an image that is in one group with one that was used."""
    return f"group {content}"


def id_key(name: str, id: str) -> str:
    """The key of the id of an image in a data set of that name."""
    return f"id {name} {id}"


def together(known: Iterable[TrainedOn | None]) -> TrainedOn | None:
    """All of what is known as one; None if nothing is."""
    there = [one for one in known if one is not None]
    return reduce(or_, there) if there else None


def read_trained_on(folder: Path) -> TrainedOn | None:
    """What the model in a folder has learned from; None if that is not known.

    Asked too is the folder around it, where that is the run or the checkpoint that it is a part of.

    Raises:
        ParagrainError: the file is damaged.
    """
    around = folder.resolve().parent
    part = any((around / name).is_file() for name in ("run.yaml", "config.json"))
    for path in (folder / FILE, *([around / FILE] if part else [])):
        if path.is_file():
            return _read(path)
    return None


def _read(path: Path) -> TrainedOn:
    with one_sentence(f"{path}, which tells what the model was trained on, cannot be read"):
        content = read_json(path)
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        blocks = {use: base64.b64decode(content[use], validate=True) for use in USES}
        keys = {use: np.frombuffer(block, "<u8") for use, block in blocks.items()}
        sets = [
            {**entry, "use": str(entry["use"]), "name": str(entry["name"])}
            for entry in content["sets"]
        ]
        return TrainedOn(sets, keys)


def _hashes(keys: Iterable[str]) -> np.ndarray:
    digests = [blake2b(key.encode("utf-8", "replace"), digest_size=8).digest() for key in keys]
    return np.frombuffer(b"".join(digests), "<u8")
