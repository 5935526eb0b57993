"""What `test_distributed.py` runs in two processes: gradients, then short runs."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from paragrain.collection import Collection
from paragrain.encoders.base import TrainSpec
from paragrain.encoders.loading import load_encoder
from paragrain.training.batches import Batch, TrainingSet
from paragrain.training.config import TrainConfig
from paragrain.training.distributed import Processes
from paragrain.training.gradients import accumulate_gradients
from paragrain.training.images import ImageReader
from paragrain.training.objectives import (
    Features,
    Objective,
    WeightedSum,
    make_objectives,
    register_objective,
)
from paragrain.training.recipes import load_recipe
from paragrain.training.trainer import train


class States(Objective):
    """Each patch against each token of the texts of its image, through a matrix of its own."""

    requires = frozenset({"image_states", "text_states", "attention_mask"})

    def __init__(self, encoder, config) -> None:
        super().__init__(encoder, config)
        self.bridge = nn.Linear(encoder.model.config.vision_config.hidden_size, 8, bias=False)

    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        images = features.image_states[torch.from_numpy(batch.text_image)]  # [N, P, W]
        attention = self.bridge(images) @ self.bridge(features.text_states).transpose(1, 2)
        mask = features.attention_mask[:, None, :]  # [N, 1, L]
        return {"attention": (attention.tanh() * mask).sum() / mask.sum()}


LOSSES = {
    "text": {"contrastive": {}},
    "vision": {"contrastive": {"temperature": "learned"}},
    "states": {"contrastive": {}, "states": {"weight": 3.0}},
}


def main(collection: str, model: str, recipe: str, out: str) -> None:
    register_objective("states")(States)  # not on import: the tests' collection imports this too
    photos, encoder = Collection.open(collection), load_encoder(model, device="cpu")
    processes = Processes.join(encoder.device)
    folder = Path(out)

    reader = ImageReader(photos, encoder, "train", folder, progress=False)
    data = TrainingSet.load(photos, reader.contents, load_recipe(recipe), split="train", seed=0)
    batch = data.batch(range(8), step=0, epoch=0)
    own = [record.id for record in batch.records[processes.part(8)]]
    for name, losses in LOSSES.items():
        vision = name != "text"
        twin = encoder.trainable_copy(TrainSpec(vision=vision)).train()
        objectives = make_objectives(losses, twin, TrainConfig())
        weights = {loss: options.get("weight", 1.0) for loss, options in losses.items()}
        report = accumulate_gradients(
            twin,
            WeightedSum(objectives, weights),
            batch,
            TrainConfig(),
            pixels=list(reader.stream(own, 8)),
            processes=processes,
        )
        named = twin.trained_parameters() | dict(objectives.named_parameters())
        found = {key: parameter.grad for key, parameter in named.items()}
        found["report"] = torch.tensor([*report.losses.values(), *report[1:]], dtype=torch.float64)
        save_file(found, folder / f"{name}-{processes.rank}.safetensors")
        train(
            photos,
            encoder,
            recipe=load_recipe(recipe).model_copy(update={"losses": losses}),
            out=folder / f"{name}-run",
            batch_size=8,
            max_steps=4,
            learning_rate=1e-3,
            train_vision=vision,
            progress=False,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
