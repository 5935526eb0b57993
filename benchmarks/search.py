"""What a query costs an open `Searcher`, what of it is ranking, and whether its hits are exact.

    python benchmarks/search.py                       # 100,000 images x 256
    python benchmarks/search.py --images 1000000

A collection of that many images of one pixel is written, and random unit vectors are given to it as
embeddings, as if BLIP0 had made them. Each query is asked of the searcher, and its embedding of
a gallery alone: `query_ms` is the whole, `ranking_ms` what there is in it beside the encoding. The
first query, which compiles, is told apart.
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = ("red", "blue", "green", "yellow", "white")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    from paragrain.runtime import tune

    tune()
    import torch

    from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
    from paragrain.embeddings import EmbeddingStore, known_contents
    from paragrain.encoders import encode_texts, load_encoder
    from paragrain.retrieval import Gallery, top_k
    from paragrain.searching import Searcher

    def record(n: int) -> Record:
        file = io.BytesIO()
        Image.new("RGB", (1, 1), (n >> 16 & 255, n >> 8 & 255, n & 255)).save(file, "BMP")
        return Record(f"{n:07}", ImageRef(file.getvalue()))

    items = [
        Item(f"{n:07}", str(n), partial(record, n), trusted=True) for n in range(options.images)
    ]

    torch.set_num_threads(options.threads)
    texts = [
        f"a {COLOURS[n % 5]} star above {n} {COLOURS[n // 5 % 5]} circles"
        for n in range(options.queries + 1)
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_collection(
            folder / "images", items, name="pixels", source="benchmark", progress=False
        )
        collection = Collection.open(folder / "images")
        vectors = np.random.default_rng(0).standard_normal((options.images, 256), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        encoder = load_encoder("blip0")
        place = collection.folder / "embeddings" / encoder.vision_fingerprint
        store = EmbeddingStore.open(place, (encoder.dim,))
        store.add([str(content) for content in known_contents(collection).values()], vectors)
        store.tidy()
        began = time.perf_counter()
        searcher = Searcher.open(collection, encoder, progress=False)
        opened = time.perf_counter() - began
        began = time.perf_counter()
        searcher.search(texts[0], k=options.k)
        first = time.perf_counter() - began
        gallery = Gallery(searcher.embeddings.vectors)
        searches, rankings = [], []
        exact = True
        for text in texts[1:]:
            query = encode_texts(encoder, text, progress=False).vectors
            began = time.perf_counter()
            found = searcher.search(text, k=options.k)
            searched = time.perf_counter()
            gallery.top_k(query, options.k)
            searches.append(searched - began)
            rankings.append(time.perf_counter() - searched)
            expected, _ = top_k(query, searcher.embeddings.vectors, options.k)
            exact &= [hit.id for hit in found] == [searcher.embeddings.ids[n] for n in expected[0]]
    report = {
        "images": options.images,
        "queries": options.queries,
        "open_seconds": round(opened, 2),
        "first_query_ms": round(1000 * first, 1),
        "query_ms": round(1000 * statistics.median(searches), 2),
        "ranking_ms": round(1000 * statistics.median(rankings), 2),
        "exact": exact,
    }
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name:>16}  {value:,}" if not isinstance(value, bool) else f"{name:>16}  {value}")


if __name__ == "__main__":
    main()
