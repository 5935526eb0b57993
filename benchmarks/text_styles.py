"""Where each kind of text of the same images lies: does an encoder tell them by their style?

    cells=runs/scenes/cells
    python benchmarks/text_styles.py runs/scenes/collections/world --models blip0 \
        $cells/c1-316d3eae/seed0/run/checkpoint $cells/c7-db0cdb29/seed0/run/checkpoint

For the first images of a split and the first text of each field: the mean cosine of a text with its
own image and with the others, and the length of the mean of all text vectors, which is 1 where all
texts lie in one direction and near 0 where they are spread. A model that tells hard negatives by
their style rather than by what they say has all texts of that style, true or false, in one
direction, far from all images. One line of Markdown for each model and field.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

import numpy as np

from paragrain import Collection, embed, load_encoder
from paragrain.collection import Record
from paragrain.encoders import encode_texts
from paragrain.errors import ParagrainError

FIELDS = ("captions", "generated", "negatives", "paragraph")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("collection", type=Path)
    parser.add_argument("--models", nargs="+", default=["blip0"])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--split", default="train")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    try:
        collection = Collection.open(options.collection)
        records = list(islice(filter(_whole, collection.records(options.split)), options.images))
        if len(records) < 2:
            sys.exit(f"error: {options.split} has no two images with texts in {', '.join(FIELDS)}")
        print("| model | text | own image | other images | length of the mean |")
        print("|---|---|--:|--:|--:|")
        wanted = {record.id for record in records}
        for name in options.models:
            encoder = load_encoder(name)
            images = embed(collection, encoder, split=options.split, ids=wanted)
            rows = [images.ids.index(record.id) for record in records]
            for field in FIELDS:
                texts = encode_texts(encoder, [_first(record, field) for record in records])
                numbers = placed(images.vectors[rows], texts.vectors)
                print(f"| {name} | {field} | " + " | ".join(f"{n:.2f}" for n in numbers) + " |")
    except ParagrainError as error:
        sys.exit(f"error: {error}")


def placed(images: np.ndarray, texts: np.ndarray) -> tuple[float, float, float]:
    """Mean cosine of texts with their own and with other images, and the length of their mean.

    >>> placed(np.eye(2), np.array([[0.6, 0.8], [0.0, 1.0]]))  # cosines 0.6 and 1, 0 and 0.8
    (0.8, 0.4, 0.94...)
    """
    cosines = images @ texts.T
    own = float(np.diag(cosines).mean())
    count = len(cosines)
    others = (float(cosines.sum()) - count * own) / (count * (count - 1))
    return own, others, float(np.linalg.norm(texts.mean(axis=0)))


def _first(record: Record, field: str) -> str:
    value = getattr(record, field)
    return value if isinstance(value, str) else value[0]


def _whole(record: Record) -> bool:
    return all(getattr(record, field) for field in FIELDS)


if __name__ == "__main__":
    main()
