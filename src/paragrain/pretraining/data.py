"""What pre-training reads, all of it in memory: small pictures, short texts, scene graphs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from paragrain.collection import Collection
from paragrain.errors import ParagrainError
from paragrain.images import BadImage, content_hash, decode
from paragrain.progress import progress_bar
from paragrain.sources.scenes.graph import Scene

SHORT_FIELDS = ("captions", "generated")
"""Pre-training sees these alone, so that long text stays new to the model."""


@dataclass(frozen=True)
class PretrainData:
    """N pictures in memory.

    Attributes:
        pixels: uint8 `[N, side, side, 3]`.
        ids, contents: the id of each picture's record, and the hash of its bytes.
        texts: the short texts of each picture, at least one.
        scenes: the scene graph of each picture; empty if any picture lacks one.
        failed: (id, reason) of the records that could not be used.
    """

    pixels: np.ndarray
    ids: list[str]
    contents: list[str]
    texts: list[list[str]]
    scenes: list[Scene]
    failed: list[tuple[str, str]]

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.texts)


def load_data(
    collection: Collection, split: str, side: int, *, progress: bool = True
) -> PretrainData:
    """Decode the pictures of a split at `side` x `side` px, with their short texts and graphs.

    Raises:
        ParagrainError: fewer than two records can be used.
    """
    pixels: list[np.ndarray] = []
    ids: list[str] = []
    contents: list[str] = []
    texts: list[list[str]] = []
    graphs: list[str | None] = []
    failed: list[tuple[str, str]] = []
    fields = (*SHORT_FIELDS, "graph")
    total = collection.splits.get(split)
    with progress_bar("reading pictures", total, unit="pictures", show=progress) as advance:
        for record in collection.records(split, images=True, fields=fields):
            advance()
            own = [text for field in SHORT_FIELDS for text in record.texts(field) if text.strip()]
            if not own:
                failed.append((record.id, "no short text"))
                continue
            try:
                data = collection.image_bytes(record)
                image = decode(data)
            except BadImage as error:
                failed.append((record.id, error.reason))
                continue
            if image.size != (side, side):
                image = image.resize((side, side), Image.Resampling.BICUBIC)
            pixels.append(np.asarray(image))
            ids.append(record.id)
            contents.append(content_hash(data))
            texts.append(own)
            graphs.append(record.graph)
    if len(texts) < 2:
        raise ParagrainError(
            f"{collection.place(split)} has {len(texts)} pictures with short "
            "texts: pre-training needs two or more"
        )
    scenes = [Scene.from_json(graph) for graph in graphs if graph is not None]
    complete = len(scenes) == len(texts)
    scenes = scenes if complete else []
    return PretrainData(np.stack(pixels), ids, contents, texts, scenes, failed)


def normalised(pixels: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 `[B, H, W, 3]` as float32 `[B, 3, H, W]`, each channel less its mean, over its std."""
    channels = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div_(255)
    of_channel = (1, 3, 1, 1)
    return channels.sub_(torch.tensor(mean).view(of_channel)).div_(
        torch.tensor(std).view(of_channel)
    )


def batch_of(step: int, images: int, batch_size: int, seed: int, block: int = 1) -> np.ndarray:
    """Rows of the batch of a step: each picture once an epoch, in an order from seed and epoch.

    The few that do not fill a batch at the end of an epoch are left to the next epochs' orders.
    With `block` above 1, so many rows that follow each other always come together.
    """
    blocks = images // block
    a_batch = min(max(1, batch_size // block), blocks)
    steps = blocks // a_batch
    order = np.random.default_rng([seed, step // steps]).permutation(blocks)
    chosen = order[step % steps * a_batch :][:a_batch]
    return (chosen[:, None] * block + np.arange(block)).ravel()


def draw_texts(
    texts: Sequence[Sequence[int]], step: int, count: int, seed: int
) -> list[tuple[int, int]]:
    """(place in `texts`, text) of up to `count` different texts of each entry, by seed and step."""
    rng = random.Random(f"texts {seed} {step}")
    return [
        (place, text)
        for place, own in enumerate(texts)
        for text in rng.sample(list(own), min(count, len(own)))
    ]
