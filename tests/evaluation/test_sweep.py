"""A sweep by tokens, words and sentences: what is cut, what is written, what is compared."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import UsageError
from paragrain.evaluation import (
    Benchmark,
    compare,
    evaluate,
    load_result,
    save_sweep_figure,
    sweep,
    sweep_figure,
)
from paragrain.retrieval import saved_counts, tiles
from paragrain.sources.scenes import import_scenes


@pytest.mark.parametrize("cut", ["words", "sentences"])
def test_a_budget_that_cuts_nothing_is_the_plain_evaluation(
    world: Collection, encoder: ImageTextEncoder, cut: str
) -> None:
    plain = evaluate(world, encoder, texts="captions", max_length=512, progress=False)
    short, whole = sweep(
        world, encoder, [20, 512], texts="captions", truncation=cut, progress=False
    )
    assert whole.queries.fingerprint == plain.queries.fingerprint
    assert whole.scores == plain.scores
    said = short.about["protocol"]
    assert (said["truncation"], said["share_truncated"]) == (
        cut,
        said["texts_truncated"] / said["texts"],
    )
    by_tokens = evaluate(world, encoder, texts="captions", max_length=20, progress=False)
    assert said["texts_truncated"] == by_tokens.about["protocol"]["texts_truncated"]
    assert said["tokens_lost"] > by_tokens.about["protocol"]["tokens_lost"]


def test_results_of_different_cuts_are_no_pairs(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    files = {}
    for cut in ("tokens", "words"):
        files[cut] = tmp_path / f"{cut}.json"
        evaluate(world, encoder, max_length=40, truncation=cut, progress=False).save(files[cut])
    with pytest.raises(UsageError, match=r"differ in truncation \(tokens and words\)"):
        compare(*([load_result(file)] for file in files.values()))


def test_a_protocol_says_that_its_truncation_was_changed(
    world: Collection, encoder: ImageTextEncoder
) -> None:
    result = evaluate(world, encoder, protocol="docci-test", truncation="words", progress=False)
    assert result.about["protocol"]["changed"] == ["truncation"]
    with pytest.raises(UsageError, match="truncated to 'lines'"):
        evaluate(world, encoder, truncation="lines", progress=False)


def test_the_plot_shows_what_the_results_say(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path
) -> None:
    results = sweep(world, encoder, [40, 20, 512], texts="captions", progress=False)
    above, below = sweep_figure(results).axes
    ordered = [results[1], results[0], results[2]]
    for line, direction in zip(above.lines, ("image_to_text", "text_to_image"), strict=True):
        recalls = [getattr(result, direction)[1] for result in ordered]
        assert np.array_equal(line.get_data(), ([20, 40, 512], recalls))
    shares = [100 * result.about["protocol"]["share_truncated"] for result in ordered]
    assert np.array_equal(below.lines[0].get_data(), ([20, 40, 512], shares))
    assert (above.get_ylabel(), below.get_ylabel(), below.get_xlabel()) == (
        "Recall@1, % (band: 95 %)", "truncated, %", "maximum length of a text",
    )  # fmt: skip
    (band, _) = above.collections
    low, high = ordered[0].intervals["strict"]["image_to_text"]["R@1"]
    heights = band.get_paths()[0].vertices
    assert {low, high} <= set(heights[heights[:, 0] == 20, 1].tolist())
    for name in ("a.svg", "b.svg"):
        save_sweep_figure(results, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_command_writes_table_file_and_plot(
    paragrain: Callable, world: Collection, random_blip: Path, tmp_path: Path
) -> None:
    words = (
        "evaluate",
        world.folder,
        "--model",
        random_blip,
        "--sweep",
        "20,400",
        "--truncation",
        "words",
    )
    done = paragrain(*words, "--out", tmp_path / "s.json")
    assert done.code == 0, done.err
    assert "truncated by words" in done.out
    cells = [line.split() for line in done.out.splitlines()]
    assert ["20", "20", "100.0"] in [row[:3] for row in cells]
    entries = json.loads((tmp_path / "s.json").read_text("utf-8"))["results"]
    assert entries[0]["protocol"]["share_truncated"] == 1.0
    assert (tmp_path / "s.svg").read_text("utf-8").startswith("<?xml")
    done = paragrain(*words, "--out", tmp_path / "s.svg")
    assert (done.code, "let it end with .json or .csv" in done.err) == (2, True)


class Killed(BaseException):
    pass


def test_a_killed_evaluation_goes_on(
    world: Collection, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_counts, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(tiles, "HOST_TILE", (6, 50))
    benchmark = Benchmark.load(world, encoder, "captions", split="test", progress=False)
    tokens = benchmark.tokenize(encoder, 77)
    whole = benchmark.rank(encoder, tokens)
    walked: list[int] = []
    real = tiles.spans

    def spans(total: int, size: int, first: int = 0):
        for part in real(total, size, first):
            if (total, size) == (20, 6):
                walked.append(part.start)
                if len(walked) == 3:
                    raise Killed
            yield part

    monkeypatch.setattr(tiles, "spans", spans)
    with pytest.raises(Killed):
        benchmark.rank(encoder, tokens)
    assert benchmark.cache is not None
    assert len(list(benchmark.cache.glob(".ranking-*.npz"))) == 1
    again = evaluate(world, encoder, texts="captions", max_length=77, progress=False)
    assert walked == [0, 6, 12, 12, 18]  # the first two were not done again
    assert again.queries.fingerprint == whole.fingerprint
    assert not list(benchmark.cache.glob(".ranking-*"))


def test_without_a_cache_nothing_is_kept(
    world: Collection, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(*_: object) -> None:
        raise AssertionError("there is no place to write to")

    loaded = Benchmark.load(world, encoder, "captions", split="test", progress=False)
    monkeypatch.setattr(saved_counts.SavedCounts, "save", written)
    alone = replace(loaded, cache=None)
    assert len(alone.rank(encoder, alone.tokenize(encoder, 77)).ids) == 20


def test_the_sample_alone_is_embedded(encoder: ImageTextEncoder, tmp_path: Path) -> None:
    import_scenes(tmp_path / "w", size=24, seed=9, progress=False)
    data = Collection.open(tmp_path / "w")
    ids = data.ids("test")[2:6]
    benchmark = Benchmark.load(data, encoder, "captions", split="test", ids=ids, progress=False)
    assert benchmark.ids == ids
    assert benchmark.images.shape == (4, encoder.dim)
    assert benchmark.cache is not None
    assert len(np.load(benchmark.cache / "pooled.npy")) == 4
    whole = Benchmark.load(data, encoder, "captions", split="test", progress=False)
    np.testing.assert_array_equal(whole.images[2:6], benchmark.images)
