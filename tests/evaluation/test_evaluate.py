"""Measuring an encoder on a collection."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paragrain.collection import Collection, ImageRef, Record
from paragrain.collection.fields import to_table
from paragrain.encoders import ImageTextEncoder, encode_texts
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Benchmark, evaluate, sweep
from paragrain.images import content_hash


def test_it_ranks_what_the_encoder_says(world: Collection, encoder: ImageTextEncoder) -> None:
    """Recall computed by hand from the whole score matrix of the split."""
    result = evaluate(world, encoder, texts="captions", max_length=77, progress=False)
    benchmark = Benchmark.load(world, encoder, "captions", split="test", progress=False)
    texts = encode_texts(encoder, benchmark.texts, max_length=77).vectors
    scores = benchmark.images @ texts.T
    order = np.argsort(-scores, axis=0)  # images, best first, for each text
    hits = (order[:5] == benchmark.text_image).any(axis=0)
    assert result.text_to_image[5] == pytest.approx(100 * hits.mean(), abs=1e-9)
    order = np.argsort(-scores, axis=1)
    right = benchmark.text_image[order[:, :10]] == np.arange(len(benchmark.ids))[:, None]
    assert result.image_to_text[10] == pytest.approx(100 * right.any(axis=1).mean(), abs=1e-9)


def test_the_test_split_is_the_default_and_all_means_all(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    one = evaluate(world, encoder, progress=False)
    assert one.scores.images == 20
    assert one.about["collection"]["split"] == "test"
    everything = evaluate(world, encoder, split="all", progress=False)
    assert everything.scores.images == len(world)
    assert everything.about["collection"]["split"] == "all"


def test_a_result_file_says_what_was_measured(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    result = evaluate(world, encoder, texts="paragraph", max_length=40, progress=False)
    result.save(tmp_path / "r.json")
    value = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert value["collection"]["fingerprint"] == world.fingerprint
    assert value["encoder"]["vision_fingerprint"] == encoder.vision_fingerprint
    assert value["encoder"]["text_fingerprint"] == encoder.text_fingerprint
    assert value["protocol"]["text_field"] == "paragraph"
    assert value["protocol"]["max_length"] == 40
    assert (
        value["protocol"]["texts_truncated"] == 20
    )  # the letters of this vocabulary make long texts
    assert value["protocol"]["tokens_lost"] > 0
    assert value["code_version"]
    assert "seed" in value
    assert set(value["scores"]["strict"]) == {"image_to_text", "text_to_image"}


def test_a_budget_that_cuts_nothing_is_the_uncut_evaluation(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    short, whole, more = sweep(world, encoder, [20, 500, 512], texts="captions", progress=False)
    assert short.about["protocol"]["texts_truncated"] > 0
    assert whole.about["protocol"]["texts_truncated"] == 0
    assert whole.scores == more.scores
    assert (
        whole.scores
        == evaluate(world, encoder, texts="captions", max_length=512, progress=False).scores
    )


@pytest.mark.parametrize("batch_tokens", [100, 700, 6400])
def test_recall_does_not_depend_on_the_batch(
    world: Collection, encoder: ImageTextEncoder, batch_tokens: int
) -> None:
    benchmark = Benchmark.load(world, encoder, "captions", split="test", progress=False)
    tokens = benchmark.tokenize(encoder, 77)
    one = benchmark.score(encoder, tokens, batch_tokens=batch_tokens)
    assert one == benchmark.score(encoder, tokens)


def test_a_text_of_700_words_is_cut_counted_and_reported(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    collection = small(tmp_path, [["a red star"], ["a blue square " * 233], ["a green circle"]])
    for max_length in (77, 512):
        result = evaluate(
            collection, encoder, texts="captions", max_length=max_length, progress=False
        )
        assert result.about["protocol"]["texts_truncated"] == 1
        assert result.about["protocol"]["longest_text"] == 701
        assert result.about["protocol"]["tokens_lost"] == 701 - max_length
        assert result.scores.texts == 3


def test_images_without_texts_stay_in_the_gallery_and_three_images_do_for_recall_at_10(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    collection = small(tmp_path, [["a red star"], [], ["a blue circle", "  "]])
    result = evaluate(collection, encoder, texts="captions", max_length=77, progress=False)
    assert (result.scores.images, result.scores.images_with_texts, result.scores.texts) == (3, 2, 2)
    assert result.image_to_text[10] == result.text_to_image[10] == 100
    assert result.about["empty_texts_left_out"] == 1


def test_copies_of_an_image_are_a_group(tmp_path: Path, encoder: ImageTextEncoder) -> None:
    collection = small(
        tmp_path, [["a red star"], ["a star"], ["a blue circle"]], shades=[10, 10, 200]
    )
    result = evaluate(collection, encoder, texts="captions", max_length=77, progress=False)
    assert result.scores.grouped_images == 2


def test_an_image_that_cannot_be_read_is_named_and_the_rest_evaluated(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    collection = small(tmp_path, [["a red star"], ["a blue circle"]])
    (tmp_path / "data" / "0.png").write_bytes(b"no picture")
    result = evaluate(collection, encoder, texts="captions", max_length=77, progress=False)
    assert result.scores.images == 1
    assert [item[0] for item in result.about["images_failed"]] == ["0"]


def test_what_cannot_be_evaluated_is_told_in_one_sentence(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"no split 'nope'.*train, val, test, twins"):
        evaluate(world, encoder, split="nope", progress=False)
    for field in ("title", "negatives"):
        with pytest.raises(UsageError, match=f"by '{field}': choose from paragraph, captions"):
            evaluate(world, encoder, texts=field, progress=False)
    with pytest.raises(UsageError, match="513 is more than"):
        evaluate(world, encoder, max_length=513, progress=False)
    collection = small(tmp_path, [["a red star"], ["a blue circle"]])
    with pytest.raises(ParagrainError, match=r"no image .* 'paragraph': evaluate on captions"):
        evaluate(collection, encoder, progress=False)


def test_blip_s_own_way_of_treating_texts_is_an_option_that_the_result_names(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    plain, treated = (
        evaluate(world, encoder, texts="description", max_length=512, normalise=how, progress=False)
        for how in ("none", "blip-original")
    )
    assert plain.about["protocol"]["words_dropped_by_normalisation"] == 0
    assert treated.about["protocol"]["text_normalisation"] == "blip-original"
    assert treated.about["protocol"]["words_dropped_by_normalisation"] > 0
    assert treated.about["protocol"]["longest_text"] < plain.about["protocol"]["longest_text"]


def test_vectors_of_another_vision_side_are_refused(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    benchmark = Benchmark.load(world, encoder, "captions", split="test", progress=False)
    other = encoder.trainable_copy()
    assert benchmark.score(other, benchmark.tokenize(other, 77))  # the same image tower
    stranger = encoder.trainable_copy()
    stranger._vision_fingerprint = "another"
    with pytest.raises(UsageError, match="another image tower"):
        benchmark.score(stranger, benchmark.tokenize(stranger, 77))


def small(folder: Path, captions: list[list[str]], shades: list[int] | None = None) -> Collection:
    """A collection of plain pictures that are files in its folder, as another tool may write it."""
    out = folder / "data"
    (out / "records").mkdir(parents=True)
    records = []
    for row, own in enumerate(captions):
        shade = shades[row] if shades else 20 * row
        path = out / f"{row}.png"
        Image.new("RGB", (32, 32), (shade, shade, 255 - shade)).save(path)
        content = content_hash(path.read_bytes())
        records.append(Record(str(row), ImageRef(path=path.name), captions=own, content=content))
    pq.write_table(to_table(records), out / "records" / "part-0.parquet")
    return Collection.open(out)
