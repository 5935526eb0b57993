"""What `test_distributed.py` runs in two processes: gradients, then short runs."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders.base import TrainSpec
from paragrain.encoders.loading import load_encoder
from paragrain.training.batches import TrainingSet
from paragrain.training.config import TrainConfig
from paragrain.training.distributed import Processes
from paragrain.training.gradients import accumulate_gradients
from paragrain.training.pictures import Pictures
from paragrain.training.supervision import load_recipe
from paragrain.training.trainer import train


def main(collection: str, model: str, recipe: str, out: str) -> None:
    photos, encoder = Collection.open(collection), load_encoder(model, device="cpu")
    processes = Processes.join(encoder.device)
    folder = Path(out)

    images = embed(photos, encoder, split="train", progress=False)
    data = TrainingSet.load(photos, images, load_recipe(recipe), split="train", seed=0)
    ids = [record.id for record in data.records]
    pictures = Pictures(photos, encoder, "train", ids, folder, progress=False)
    for vision in (False, True):
        name = "vision" if vision else "text"
        twin = encoder.trainable_copy(TrainSpec(vision=vision)).train()
        report = accumulate_gradients(
            twin,
            data.batch(range(8), epoch=0),
            TrainConfig(),
            pixels=list(pictures.stream(range(8)[processes.part(8)], 8)) if vision else None,
            processes=processes,
        )
        found = {key: p.grad for key, p in twin.trained_parameters().items()}
        found["report"] = torch.tensor(report, dtype=torch.float64)
        save_file(found, folder / f"{name}-{processes.index}.safetensors")
        train(
            photos,
            encoder,
            recipe=recipe,
            out=folder / f"{name}-run",
            batch_size=8,
            max_steps=4,
            learning_rate=1e-3,
            train_vision=vision,
            progress=False,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
