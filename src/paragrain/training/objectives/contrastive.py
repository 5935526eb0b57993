"""The contrastive losses, which are one formula: InfoNCE, multi-positive and hard-negative.

With s(i, t) = v_i · t / temperature over a batch of B images and T texts, of which K_i belong to
image i:

- image to text: the mean over the texts t of image i of
  -log( exp s(i,t) / (sum over all texts of the batch + sum over the hard negatives of i) );
- text to image: the cross-entropy of each text over the B images;
- the mean over the K_i texts of an image is taken first, then the mean over images, so that every
  image weighs the same however many texts it has; the loss is the average of both directions.

With one text for each image it is InfoNCE exactly; with several, the multi-positive loss; with
negatives, the hard-negative loss. (Source: the paragraph study; its multi-positive and
hard-negative forms are this project's reading of it.)

Texts and images of other records of the same group are left out of each other's denominators:
they show the same thing, so they are neither right nor wrong.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.objectives import Features, Objective

MAX_SCALE = 100.0
"""The largest factor that similarities are multiplied with, as in CLIP (temperature 0.01)."""


LEARNED_RANGE = (1 / MAX_SCALE, 0.5)
"""Where a learned temperature stays; BLIP's own bounds are 0.001 and 0.5."""


class Contrastive(Objective):
    """The contrastive loss of the batch's images with their texts.

    Args:
        encoder, config: see `Objective`; `config.temperature` is the (first) temperature.
        temperature: `fixed`, or `learned` as in BLIP.
    """

    def __init__(
        self,
        encoder: ImageTextEncoder,
        config: TrainConfig,
        temperature: Literal["fixed", "learned"] = "fixed",
    ) -> None:
        super().__init__(encoder, config)
        if temperature not in ("fixed", "learned"):
            raise UsageError(f"a temperature is fixed or learned, not {temperature!r}")
        self.temperature = config.temperature
        self.log_temperature: nn.Parameter | None = None
        if temperature == "learned":
            self.log_temperature = nn.Parameter(torch.tensor(math.log(config.temperature)))

    def forward(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """Both directions and, as `total`, their mean."""
        images, texts, temperature = (
            features.image_embeddings,
            features.text_embeddings,
            self.temperature,
        )
        groups, text_image, negative = (
            torch.from_numpy(array).to(texts.device)
            for array in (batch.groups, batch.text_image, batch.negative)
        )
        if self.log_temperature is not None:
            images = images / self.log_temperature.exp().clamp(*LEARNED_RANGE)
            temperature = 1.0
        loss = contrastive_loss(
            images,
            texts[~negative],
            text_image[~negative],
            negatives=texts[negative],
            negative_image=text_image[negative],
            groups=groups,
            temperature=temperature,
        )
        return loss._asdict()


class ContrastiveLoss(NamedTuple):
    """A loss and its two halves, as tensors without dimensions."""

    total: Tensor
    image_to_text: Tensor
    text_to_image: Tensor


def contrastive_loss(
    images: Tensor,
    texts: Tensor,
    text_image: Tensor,
    *,
    negatives: Tensor | None = None,
    negative_image: Tensor | None = None,
    groups: Tensor | None = None,
    temperature: float = 0.07,
) -> ContrastiveLoss:
    """Contrast B images with T texts; see the top of this file for the formula.

    It is computed in float32 whatever autocast says, and its largest tensors are B x T.

    Args:
        images: `[B, D]` unit vectors.
        texts: `[T, D]` unit vectors; every image has at least one text.
        text_image: `[T]` int64, the row of the image that each text belongs to.
        negatives: `[H, D]` unit vectors of texts that are wrong on purpose.
        negative_image: `[H]` int64, the row of the image that each negative was written for.
        groups: `[B]` int64; images with the same number show the same thing.
        temperature: divisor of the similarities; below 0.01 it acts as 0.01.

    Two images with two texts each, and vectors that are all in the right place. The two texts of
    an image share its probability, so that image to text cannot fall below log 2:

    >>> images = torch.eye(2)
    >>> texts = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> loss = contrastive_loss(images, texts, torch.tensor([0, 0, 1, 1]))
    >>> [round(float(part), 4) for part in loss]
    [0.3466, 0.6931, 0.0]
    """
    with torch.autocast(images.device.type, enabled=False):
        images, texts = images.float(), texts.float()
        scale = min(1.0 / temperature, MAX_SCALE)
        scores = scale * images @ texts.T  # [B, T]
        rows = torch.arange(len(texts), device=texts.device)
        positives = scores[text_image, rows]  # [T]
        if groups is not None:
            same = groups[:, None] == groups[text_image][None, :]  # [B, T]
            same[text_image, rows] = False
            scores = scores.masked_fill(same, -torch.inf)

        all_texts = scores.logsumexp(dim=1)  # [B]
        all_images = scores.logsumexp(dim=0)  # [T]
        if negatives is not None and negative_image is not None and len(negatives):
            wrong = scale * (images[negative_image] * negatives.float()).sum(dim=1)  # [H]
            beside = _one_row_an_image(wrong, negative_image, len(images))  # [B, M]
            all_texts = torch.cat([all_texts[:, None], beside], dim=1).logsumexp(dim=1)

        texts_of = torch.bincount(text_image, minlength=len(images))  # [B], the K of each image
        weights = 1.0 / (texts_of[text_image] * len(images))  # [T], adds up to 1
        image_to_text = (weights * (all_texts[text_image] - positives)).sum()
        text_to_image = (weights * (all_images - positives)).sum()
        return ContrastiveLoss((image_to_text + text_to_image) / 2, image_to_text, text_to_image)


def _one_row_an_image(values: Tensor, image: Tensor, images: int) -> Tensor:
    """Lay `[H]` values out as `[images, M]`, the ones of each image in its row, the rest -inf."""
    counts = torch.bincount(image, minlength=images)
    starts = counts.cumsum(0) - counts
    ordered, order = image.sort(stable=True)
    place = torch.arange(len(image), device=image.device) - starts[ordered]
    table = values.new_full((images, int(counts.max())), -torch.inf)
    return table.index_put((ordered, place), values[order])
