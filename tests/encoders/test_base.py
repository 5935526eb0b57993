import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from paragrain.encoders import (
    BlipEncoder,
    Tokens,
    encode_images,
    encode_texts,
    encode_tokens,
    load_encoder,
    tokenization,
)
from paragrain.encoders.base import pad
from paragrain.errors import ParagrainError, UsageError

SHORT = "a red circle on the left of a blue square"


def images(count: int) -> list[Image.Image]:
    random = np.random.default_rng(5)
    return [
        Image.fromarray(random.integers(0, 256, (20 + 9 * i, 50 - 3 * i, 3), dtype=np.uint8))
        for i in range(count)
    ]


# --- Padding never changes a vector -----------------------------------------------------------


def test_a_short_caption_is_the_same_alone_and_beside_one_of_400_words(blip: BlipEncoder) -> None:
    long = " ".join(["star"] * 400)
    alone = encode_texts(blip, [SHORT], max_length=512).vectors[0]
    ids, mask = pad(blip.tokenize([SHORT, long], 512).ids, blip.pad_id)
    assert mask[0].sum() < mask[1].sum()
    with torch.inference_mode():
        beside = blip.text_features(ids, mask)[0].numpy()
    assert alone @ beside >= 1 - 1e-6
    np.testing.assert_allclose(alone, beside, atol=1e-6)
    together = encode_texts(blip, [long, SHORT], max_length=512, batch_tokens=10**6).vectors[1]
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_vectors_are_the_same_at_batch_1_7_and_64(blip: BlipEncoder) -> None:
    words = "red green blue square circle star left right above below".split()
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(words, random.integers(1, 60))) for _ in range(64)]
    tokens = blip.tokenize(texts, 77)
    rows = [tokens.row(i) for i in range(64)]
    by_size = []
    for size in (1, 7, 64):
        parts = []
        for start in range(0, 64, size):
            ids, mask = pad(rows[start : start + size], blip.pad_id)
            with torch.inference_mode():
                parts.append(blip.text_features(ids, mask).numpy())
        by_size.append(np.concatenate(parts))
    ours = encode_tokens(blip, tokens, batch_tokens=300)
    for vectors in by_size:
        np.testing.assert_allclose(ours, vectors, atol=1e-5)
    pictures = images(7)
    one, seven = (encode_images(blip, pictures, batch_size=size) for size in (1, 7))
    np.testing.assert_allclose(one, seven, atol=1e-5)


# --- Lengths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_length", [77, 128, 512])
def test_700_words_among_three_are_cut_and_counted(blip: BlipEncoder, max_length: int) -> None:
    long = " ".join(["green"] * 700)
    made = encode_texts(blip, [SHORT, long, "a star"], max_length=max_length)
    assert made.vectors.shape == (3, blip.dim)
    assert made.tokens.lengths.tolist() == [12, 702, 4]
    assert made.tokens.texts_truncated == 1
    assert made.tokens.tokens_lost == 702 - max_length
    ids = made.tokens.ids[1]
    assert len(ids) == max_length
    assert ids[0] == blip.tokenizer.cls_token_id
    assert ids[-1] == blip.tokenizer.sep_token_id
    unharmed = encode_texts(blip, [SHORT, "a star"], max_length=max_length).vectors
    np.testing.assert_allclose(made.vectors[[0, 2]], unharmed, atol=1e-6)


def test_long_texts_draw_no_warning(blip: BlipEncoder, capfd: pytest.CaptureFixture) -> None:
    blip.tokenize(["star " * 2000], 512)
    assert capfd.readouterr() == ("", "")


def test_a_budget_out_of_range_names_the_limit(blip: BlipEncoder) -> None:
    with pytest.raises(UsageError, match=r"513 .* ask for 512 or fewer"):
        encode_texts(blip, ["a"], max_length=513)
    with pytest.raises(UsageError, match="ask for 3 or more"):
        blip.tokenize(["a"], 2)


def test_tokens_are_those_of_the_tokenizer(blip: BlipEncoder) -> None:
    texts = [SHORT, "", "Ünïcode: 2 ★ stars, left!"]
    assert blip.tokenize(texts, 512).ids == blip.tokenizer(texts)["input_ids"]


def test_another_use_of_the_tokenizer_changes_nothing(blip: BlipEncoder) -> None:
    before, fingerprint = list(blip.tokenize([SHORT, "a"], 64).ids), blip.text_fingerprint
    blip.tokenizer([SHORT, "a"], padding="max_length", truncation=True, max_length=5)
    assert blip.tokenize([SHORT, "a"], 64).ids == before
    assert blip.text_fingerprint == fingerprint


def test_empty_texts_and_none_at_all(blip: BlipEncoder) -> None:
    made = encode_texts(blip, ["", "a"], max_length=16)
    assert made.tokens.ids[0] == [blip.tokenizer.cls_token_id, blip.tokenizer.sep_token_id]
    assert encode_texts(blip, [], max_length=16).vectors.shape == (0, blip.dim)
    assert encode_images(blip, []).shape == (0, blip.dim)


def test_what_is_no_text_is_refused_by_its_place(blip: BlipEncoder) -> None:
    with pytest.raises(UsageError, match="text 1 is NoneType"):
        blip.tokenize(["a", None], 16)  # type: ignore[list-item]


def test_lone_surrogates_do_not_stop_a_run(blip: BlipEncoder) -> None:
    assert encode_texts(blip, ["a \ud800 star"], max_length=16).tokens.ids == [
        blip.tokenizer("a � star")["input_ids"]
    ]


def test_the_named_normalisation_is_used_and_reported(blip: BlipEncoder) -> None:
    text = "A red! circle " + "star " * 40
    made = encode_texts(blip, [text], max_length=128, normalise="blip-original")
    plain = encode_texts(blip, ["a red circle " + "star " * 27], max_length=128)
    assert made.tokens.ids == plain.tokens.ids
    np.testing.assert_array_equal(made.vectors, plain.vectors)
    summary = made.tokens.summary()
    assert summary["text_normalisation"] == "blip-original"
    assert summary["words_dropped_by_normalisation"] == 13
    assert made.tokens.at(64).summary()["text_normalisation"] == "blip-original"


def test_many_texts_pass_the_tokenizer_in_pieces(
    blip: BlipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"star {i}" for i in range(23)]
    whole = blip.tokenize(texts, 16).ids
    monkeypatch.setattr(tokenization, "TOKENIZE_BATCH", 5)
    assert blip.tokenize(texts, 16).ids == whole


def test_tokenizing_from_threads(blip: BlipEncoder) -> None:
    texts = [[f"{word} {i} " * (i + 1) for i in range(30)] for word in ("red", "blue", "star")] * 4
    expected = [list(blip.tokenize(batch, 20 + i).ids) for i, batch in enumerate(texts)]
    with ThreadPoolExecutor(6) as pool:
        made = pool.map(lambda i: list(blip.tokenize(texts[i], 20 + i).ids), range(len(texts)))
        assert list(made) == expected


# --- Order, repeats, modes --------------------------------------------------------------------


def test_equal_texts_are_encoded_once(blip: BlipEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    features = blip.text_features
    monkeypatch.setattr(
        blip, "text_features", lambda ids, mask: (rows.append(len(ids)), features(ids, mask))[1]
    )
    vectors = encode_texts(blip, ["a star", SHORT, "A STAR", "a star"], max_length=16).vectors
    assert sum(rows) == 2
    np.testing.assert_array_equal(vectors[0], vectors[3])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1])


def test_vectors_have_unit_length(blip: BlipEncoder) -> None:
    for vectors in (encode_texts(blip, [SHORT, "star"]).vectors, encode_images(blip, images(2))):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_encoding_leaves_the_mode_and_asks_no_gradients(blip: BlipEncoder) -> None:
    copy = blip.trainable_copy().train()
    encode_texts(copy, ["star"])
    encode_images(copy, images(1))
    assert copy.training
    assert copy.model.text_encoder.training
    assert not blip.training


def test_vectors_that_are_not_finite_are_an_error(blip: BlipEncoder) -> None:
    broken = blip.trainable_copy()
    with torch.no_grad():
        broken.model.text_proj.weight[0, 0] = float("nan")
    with pytest.raises(ParagrainError, match="1 of 1 text vectors that are not finite"):
        encode_texts(broken, ["star"])


# --- Copies and fingerprints ------------------------------------------------------------------


def test_a_trainable_copy_owns_its_text_side_and_shares_the_rest(blip: BlipEncoder) -> None:
    copy = blip.trainable_copy()
    own = copy.text_tensors()
    ours = dict(blip.model.named_parameters())
    for name, parameter in copy.model.named_parameters():
        assert (parameter is ours[name]) == (name not in own), name
        assert parameter.requires_grad == (name in own), name
    np.testing.assert_array_equal(
        encode_texts(copy, [SHORT]).vectors, encode_texts(blip, [SHORT]).vectors
    )
    before = blip.text_fingerprint
    assert copy.text_fingerprint == before
    with torch.no_grad():
        copy.model.text_proj.bias.add_(1)
    assert copy.text_fingerprint != before
    assert blip.text_fingerprint == before
    assert copy.vision_fingerprint == blip.vision_fingerprint


def test_a_copy_of_a_half_precision_model_trains_in_float32(random_blip: Path) -> None:
    half = load_encoder(random_blip, device="cpu").half()
    copy = half.trainable_copy()
    assert {p.dtype for p in copy.text_tensors().values()} == {torch.float32}


def test_fingerprints_follow_what_decides_a_vector(blip: BlipEncoder) -> None:
    copy = blip.trainable_copy()
    vision, text = copy.vision_fingerprint, copy.text_fingerprint
    assert len(vision) == 32
    copy.model.vision_proj.weight = torch.nn.Parameter(copy.model.vision_proj.weight * 2)
    assert copy.vision_fingerprint != vision  # it may change, so it is computed anew
    assert copy.text_fingerprint == text
    processor = type(blip.image_processor)(size={"height": 32, "width": 32}, do_normalize=False)
    other = BlipEncoder(blip.model, processor, blip.tokenizer, "other")
    assert other.vision_fingerprint != vision
    renamed = BlipEncoder(blip.model, blip.image_processor, blip.tokenizer, "renamed")
    assert (renamed.vision_fingerprint, renamed.text_fingerprint) == (vision, text)


def test_fingerprints_ignore_the_matching_head(blip: BlipEncoder) -> None:
    copy = blip.trainable_copy()
    copy.model.itm_head = torch.nn.Linear(*reversed(copy.model.itm_head.weight.shape))
    assert copy.text_fingerprint == blip.text_fingerprint
    assert copy.vision_fingerprint == blip.vision_fingerprint


def test_pixels_from_threads(blip: BlipEncoder, shared: Path) -> None:
    paths = sorted((shared / "photos" / "images").glob("*.jpg"))[:8]
    pictures = [Image.open(path).convert("RGB") for path in paths]
    expected = [blip.pixels(picture) for picture in pictures]
    start = threading.Barrier(8)

    def work(picture: Image.Image) -> torch.Tensor:
        start.wait()
        return blip.pixels(picture)

    with ThreadPoolExecutor(8) as pool:
        for made, wanted in zip(pool.map(work, pictures), expected, strict=True):
            assert torch.equal(made, wanted)


def test_tokens_of_one_encoder_feed_it_at_any_budget(blip: BlipEncoder) -> None:
    texts = [SHORT, "a star " * 60]
    tokens: Tokens = blip.tokenize(texts, 20)
    for max_length in (5, 20, 100):
        np.testing.assert_array_equal(
            encode_tokens(blip, tokens.at(max_length)),
            encode_texts(blip, texts, max_length=max_length).vectors,
        )
