"""Which model a collection is used with: one asked for, one it remembers, or BLIP0 for scenes."""

import os
import shlex

import torch

from paragrain.collection import Collection, writing_alone
from paragrain.collection.reading import known_info
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.loading import SHIPPED, lasting_name, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import write_json

Model = str | os.PathLike[str] | ImageTextEncoder

GOOD_ONES = (
    "Salesforce/blip-itm-base-coco (0.9 GB, BSD-3-Clause, reads 512 tokens), "
    "openai/clip-vit-base-patch16 (0.6 GB, MIT, 77 tokens, or 248 with @248 behind its name) and "
    "google/siglip2-base-patch16-224 (1.5 GB, Apache-2.0, 64 tokens)"
)
"""Models for photographs: size of the float32 weights, licence, and how much text they read."""


def use(
    collection: str | os.PathLike[str] | Collection,
    model: Model | None,
    *,
    trust_remote_code: bool = False,
) -> ImageTextEncoder | None:
    """Have a collection remember its model, for all verbs that are not told of another.

    It is kept in `collection.json`, a local folder by its absolute path, and stays there whatever
    is imported later.

    Args:
        collection: or its folder.
        model, trust_remote_code: as for `load_encoder`, which has to open it; None to forget the
            one it remembers.

    Returns:
        The encoder, opened; None if there is none to remember.

    Raises:
        ParagrainError: the model cannot be opened, or somebody writes to the collection.
    """
    source = Collection.open(collection)
    encoder = None
    if model is not None:
        encoder = load_encoder(model, trust_remote_code=trust_remote_code)
    with writing_alone(source.folder):
        info = known_info(source.folder)
        info.pop("model", None)
        if encoder is not None:
            info["model"] = lasting_name(encoder.name)
        write_json(source.folder / "collection.json", info)
    source.info.clear()
    source.info.update(info)
    return encoder


def encoder_for(
    collection: Collection,
    model: Model | None = None,
    device: str | torch.device | None = None,
    *,
    trust_remote_code: bool = False,
) -> ImageTextEncoder:
    """The encoder that a verb uses on a collection.

    Args:
        collection: what it is used on.
        model: the one that was asked for, if any was; else the one that the collection remembers,
            or else BLIP0, which knows drawn scenes alone, if the collection holds nothing else.
        device, trust_remote_code: as for `load_encoder`.

    Raises:
        UsageError: a model has to be named; the sentence names some.
        ParagrainError: it cannot be opened.
    """
    if model is not None:
        return load_encoder(model, device, trust_remote_code=trust_remote_code)
    place = shlex.quote(str(collection.folder))
    if collection.model is not None:
        try:
            return load_encoder(collection.model, device, trust_remote_code=trust_remote_code)
        except ParagrainError as error:
            kind = UsageError if isinstance(error, UsageError) else ParagrainError
            raise kind(
                f"{error} (it is the model that {place} remembers; `paragrain use MODEL {place}` "
                "names another)"
            ) from error
    if not holds_scenes_alone(collection):
        raise UsageError(
            f"{place} holds other pictures than drawn scenes, which are all that {SHIPPED[0]} "
            f"knows: name a model by --model, or once for all by `paragrain use MODEL {place}`, "
            f"such as {GOOD_ONES}"
        )
    return load_encoder(SHIPPED[0], device)


def holds_scenes_alone(collection: Collection) -> bool:
    """Whether each record is one of `paragrain import scenes`."""
    return all(
        record.source == "scenes" and record.graph is not None
        for record in collection.records(fields=("source", "graph"))
    )
