"""What a text may be: one string or many, special tokens in letters, nothing, and strange signs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from paragrain.encoders import ImageTextEncoder, encode_images, encode_texts, load_encoder, stretch
from paragrain.encoders.tokenization import plain_tokenizer
from paragrain.errors import UsageError
from paragrain.images import BadImage

KINDS = ["blip", "clip", "longclip", "siglip", "pair"]
NAMES = (
    "[SEP] [CLS] [MASK] [PAD] [ENC] [DEC] <|endoftext|> <|startoftext|> </s> <s> <eos> <bos> <pad> "
    "<mask>"
).split()


HOW = ["{0}", "a red {0} star", "red{0}star", "{0}{0} a star", "star {0}"]
STRANGE = ["", " ", "\n\t \u3000", "\0", "\0\0a", "\ud83d", "a \udc00 b", "\ufeff"]


@pytest.fixture(params=KINDS)
def encoder(request: pytest.FixtureRequest) -> ImageTextEncoder:
    if request.param == "longclip":
        return stretch(request.getfixturevalue("clip"), 120)
    return request.getfixturevalue(request.param)


def ends(encoder: ImageTextEncoder) -> set[int]:
    """The special ids, without the one of unknown signs."""
    return set(encoder.tokenizer.all_special_ids) - {encoder.tokenizer.unk_token_id}


@pytest.mark.parametrize("how", HOW)
def test_the_name_of_a_special_token_is_text(encoder: ImageTextEncoder, how: str) -> None:
    texts = [how.format(name) for name in NAMES]
    rows = encoder.tokenize(texts, encoder.max_tokens).ids
    begin = 0 if encoder.token_ids([""])[0][0] == encoder.tokenizer.eos_token_id else 1
    for text, row in zip(texts, rows, strict=True):
        assert not ends(encoder) & set(row[begin:-1]), text
    together = encode_texts(encoder, [*texts, "a much longer text " * 20]).vectors
    for text, vector in zip(texts, together, strict=False):
        np.testing.assert_allclose(encode_texts(encoder, text).vectors[0], vector, atol=1e-5)


def test_what_comes_behind_the_name_of_an_end_token_counts(encoder: ImageTextEncoder) -> None:
    for name in NAMES:
        one, other = encode_texts(encoder, [f"a {name} red star", f"a {name} square b"]).vectors
        assert np.abs(one - other).max() > 1e-4, name


def special(model: Any) -> PreTrainedTokenizerFast:
    """A tokenizer whose end token "</s>" is an entry of the model's own vocabulary."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    keys = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "!"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **keys)


def test_a_token_behind_the_vocabulary_keeps_its_number() -> None:
    tokenizer = special(models.WordLevel({"<unk>": 0, "</s>": 1, "!": 2, "a": 3}, "<unk>"))
    tokenizer.add_tokens(["photo"])  # number 4
    tokenizer.add_special_tokens({"cls_token": "[X]"})  # number 5
    tokenizer.add_tokens(["paint"])  # number 6
    plain = plain_tokenizer(tokenizer)
    assert plain.encode("a photo paint").ids == [3, 4, 6, 1]
    assert not {1, 5} & set(plain.encode("a [X] </s> paint").ids[:-1])
    # "!" fills, and is a sign of the vocabulary all the same.
    assert plain.encode("a!").ids == [3, 2, 1]
    assert plain_tokenizer(tokenizer).encode("").ids == [1]
    assert tokenizer("a </s>")["input_ids"] == [3, 1, 1]  # the tokenizer itself is untouched


@pytest.mark.parametrize("number", range(len(STRANGE)))
def test_a_text_of_nothing_or_of_strange_signs(encoder: ImageTextEncoder, number: int) -> None:
    text = STRANGE[number]  # the name of a test can hold no lone surrogate
    vectors = encode_texts(encoder, [text, "a red star", text]).vectors
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[0], vectors[2])
    np.testing.assert_allclose(encode_texts(encoder, text).vectors[0], vectors[0], atol=1e-5)
    if not text:
        assert encoder.tokenize([text], 20).ids[0] == encoder.token_ids([""])[0]
    assert encoder.token_ids([text])  # lone surrogates too


def test_one_text_is_one_vector(blip: ImageTextEncoder, random_blip: Path) -> None:
    one = encode_texts(blip, "a dog").vectors
    assert one.shape == (1, blip.dim)
    np.testing.assert_array_equal(one, encode_texts(blip, ["a dog"]).vectors)
    np.testing.assert_array_equal(one, encode_texts(random_blip, "a dog").vectors)
    np.testing.assert_array_equal(one, encode_texts(str(random_blip), ("a dog",)).vectors)
    assert blip.tokenize("a dog", 20).ids == blip.tokenize(["a dog"], 20).ids
    assert blip.token_ids("a dog") == blip.token_ids(["a dog"])
    for texts in ((t for t in ["a", "b"]), np.array(["a", "b"]), {"a": 1, "b": 2}.keys()):
        if isinstance(texts, type({}.keys())):
            texts = list(texts)
        assert len(encode_texts(blip, texts).vectors) == 2
    assert encode_texts(blip, []).vectors.shape == (0, blip.dim)


@pytest.mark.parametrize(
    "texts", [None, 5, b"a dog", {"a": 1}, {"a", "b"}, ["a", None], [["a"]], [b"a"], [float("nan")]]
)
def test_what_is_no_text_is_a_sentence(blip: ImageTextEncoder, texts: Any) -> None:
    with pytest.raises(UsageError) as error:
        encode_texts(blip, texts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("what", [None, 3, object(), ["blip0"], b"blip0"])
def test_what_is_no_encoder_is_a_sentence(what: Any) -> None:
    for call in (lambda: encode_texts(what, "a"), lambda: load_encoder(what)):
        with pytest.raises(UsageError, match="a model is an encoder"):
            call()


def test_images_may_be_files(blip: ImageTextEncoder, tmp_path: Path) -> None:
    from PIL import Image

    picture = Image.effect_noise((40, 30), 80)
    picture.convert("RGB").save(tmp_path / "a.png")
    rgb = Image.open(tmp_path / "a.png")
    one = encode_images(blip, rgb)
    assert one.shape == (1, blip.dim)
    for images in (tmp_path / "a.png", str(tmp_path / "a.png"), [tmp_path / "a.png"], [picture]):
        np.testing.assert_array_equal(encode_images(blip, images), one)
    (tmp_path / "b.png").write_bytes(b"no")
    with pytest.raises(BadImage):
        encode_images(blip, tmp_path / "b.png")
    for images in (None, 3, [b"x"], [None]):
        with pytest.raises(UsageError):
            encode_images(blip, images)  # type: ignore[arg-type]


def test_cut_texts_with_special_names_keep_their_own_end(encoder: ImageTextEncoder) -> None:
    for name in NAMES:
        text = f"a {name} " * 200
        row = encoder.tokenize(text, 20).ids[0]
        assert len(row) == 20
        assert row[-1] == encoder.token_ids([""])[0][-1]
        assert not ends(encoder) & set(row[1:-1])


def test_a_copy_reads_as_the_first(blip: ImageTextEncoder) -> None:
    import copy

    again = copy.deepcopy(blip)
    text = "a [SEP] b </s>"
    assert again.token_ids([text]) == blip.token_ids([text])


def test_vectors_of_long_texts_are_short_to_look_at(blip: ImageTextEncoder) -> None:
    found = encode_texts(blip, ["a red star", "a star " * 200])
    assert repr(found.tokens) == "<Tokens of 2 texts, at most 128 of each, 1 truncated>"
    assert repr(found) == f"<TextVectors [2, 16] of {found.tokens!r}>"
