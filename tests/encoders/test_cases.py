"""What stops other programs, for every encoder: long neighbours, 700 words, batches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, encode_texts, load_encoder, stretch
from paragrain.encoders.base import encode_pixels, pad
from paragrain.evaluation import evaluate
from paragrain.images import decode
from paragrain.retrieval import retrieval_scores

LIMITS = {"blip": 512, "clip": 77, "old clip": 77, "stretched clip": 248, "siglip": 64}
SHORT = "a red star"


@pytest.fixture(scope="module", params=LIMITS)
def any_encoder(
    request: pytest.FixtureRequest,
    clip_maker: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> ImageTextEncoder:
    """Each encoder in turn: BLIP, CLIP, an old CLIP, a CLIP made as long as Long-CLIP, SigLIP."""
    if request.param == "old clip":
        return load_encoder(clip_maker(tmp_path_factory.mktemp("old"), old=True), "cpu")
    encoder = request.getfixturevalue(request.param.removeprefix("stretched "))
    made = stretch(encoder, 248) if request.param.startswith("stretched") else encoder
    assert made.max_tokens == LIMITS[request.param]
    return made


def test_700_words_among_three_texts_are_cut_counted_and_disturb_nobody(
    any_encoder: ImageTextEncoder,
) -> None:
    limit = any_encoder.max_tokens
    made = encode_texts(any_encoder, [SHORT, "red " * 700, "a star"], max_length=limit)
    assert made.tokens.texts_truncated == 1
    assert made.tokens.tokens_lost == made.tokens.lengths[1] - limit >= 700 - limit
    assert made.tokens.kept[1] == limit
    end = any_encoder.token_ids([SHORT])[0][-1]
    assert {row[-1] for row in made.tokens.ids} == {end}  # the end token survives
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    for place, text in ((0, SHORT), (2, "a star")):
        alone = encode_texts(any_encoder, [text], max_length=limit).vectors[0]
        assert alone @ made.vectors[place] >= 0.9999


def test_a_short_caption_beside_one_of_400_words_keeps_its_vector(
    any_encoder: ImageTextEncoder,
) -> None:
    rows = any_encoder.tokenize([SHORT, "star " * 400], any_encoder.max_tokens).ids
    ids, mask = pad(rows, any_encoder.pad_id)
    assert mask[0].sum() < mask[1].sum() == min(402, any_encoder.max_tokens)
    with torch.inference_mode():
        beside = any_encoder.text_features(ids, mask)[0].numpy()
    alone = encode_texts(any_encoder, [SHORT], max_length=any_encoder.max_tokens).vectors[0]
    assert alone @ beside >= 0.9999


def test_the_same_recall_at_batch_1_7_and_64(
    any_encoder: ImageTextEncoder, world: Collection
) -> None:
    """Images and texts in batches of so many, as they come, against `evaluate`."""
    records = list(world.records("test"))
    texts = [text for record in records for text in record.captions]
    owners = np.repeat(np.arange(len(records)), [len(record.captions) for record in records])
    pixels = [any_encoder.pixels(decode(world.image_bytes(r))) for r in world.records("test")]
    tokens = any_encoder.tokenize(texts, min(77, any_encoder.max_tokens))
    found = []
    for size in (1, 7, 64):
        images, said = [], []
        for start in range(0, len(pixels), size):
            images.append(encode_pixels(any_encoder, pixels[start : start + size]))
        for start in range(0, len(texts), size):
            rows = [tokens.row(place) for place in range(start, min(start + size, len(texts)))]
            ids, mask = pad(rows, any_encoder.pad_id)
            with torch.inference_mode():
                said.append(any_encoder.text_features(ids, mask).numpy())
        found.append((np.concatenate(images), np.concatenate(said)))
    one, *others = (retrieval_scores(images, said, owners).as_dict() for images, said in found)
    assert all(other == one for other in others)
    whole = evaluate(
        world, any_encoder, texts="captions", max_length=tokens.max_length, progress=False
    )
    assert whole.scores.as_dict() == one
