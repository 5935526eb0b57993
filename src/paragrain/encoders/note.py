"""What a checkpoint says of itself beside its model: which encoder opens it, how much it reads.

It stands in `config.json` under "paragrain", where plain `transformers` keeps it and ignores it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragrain.encoders.tokens import MIN_LENGTH
from paragrain.errors import ParagrainError
from paragrain.files import read_json, write_json
from paragrain.plugins import plugin_of

if TYPE_CHECKING:
    from paragrain.encoders.base import ImageTextEncoder

GROUP = "paragrain.encoders"
"""Entry points by which other packages add encoders."""

NOTE = "paragrain"


@dataclass(frozen=True)
class Note:
    """What a checkpoint says.

    Attributes:
        max_length: read of a text unless another is asked for; `None` if not said.
        encoder: the name under which its class is registered; `None` for one of paragrain's own.
        origin: where that class came from, in words.
    """

    max_length: int | None = None
    encoder: str | None = None
    origin: str = ""


def is_own(thing: object) -> bool:
    """Whether an object is of a class of this package, and no subclass made elsewhere."""
    return type(thing).__module__.partition(".")[0] == __name__.partition(".")[0]


def write_note(folder: Path, encoder: "ImageTextEncoder") -> None:
    """Put the note of an encoder into the `config.json` of its folder."""
    note: dict[str, Any] = {"max_length": encoder.max_length}
    kind = type(encoder)
    if not is_own(encoder):
        place = f"{kind.__module__}:{kind.__qualname__}"
        plugin = plugin_of(GROUP, kind)
        note["encoder"] = plugin.name if plugin else place
        note["from"] = plugin.origin if plugin else place
    path = folder / "config.json"
    write_json(path, {**read_json(path), NOTE: note})


def read_note(config: dict[str, Any], name: str) -> Note:
    """The note in the content of a `config.json`; an empty one where there is none.

    Raises:
        ParagrainError: it is damaged.
    """
    note = config.get(NOTE, {})
    try:
        tokens, encoder = note.get("max_length"), note.get("encoder")
        if tokens is not None and (type(tokens) is not int or tokens < MIN_LENGTH):
            raise ValueError(f"{tokens!r} tokens")
        if encoder is not None and not isinstance(encoder, str):
            raise ValueError(f"the encoder {encoder!r}")
        origin = "".join(c for c in str(note.get("from", "")) if c.isprintable())
        return Note(tokens, encoder, origin[:200])
    except (ValueError, AttributeError) as error:
        raise ParagrainError(
            f"what the config.json of {name} says under {NOTE!r} is damaged ({error}): "
            "fetch the checkpoint again"
        ) from error
