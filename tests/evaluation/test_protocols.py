"""Protocols as data: what they say, what they draw, and what a result says of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from paragrain.collection import Collection, ImageRef, Record
from paragrain.collection.fields import to_table
from paragrain.encoders import ImageTextEncoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import evaluate, load_protocol, load_result, protocols, sweep
from paragrain.evaluation.protocols import Protocol, Sample

NAMES = [
    "flickr30k-full", "flickr30k-1k", "coco-train2017-full", "coco-5k", "sharegpt4v-80k",
    "sharegpt4v-80k-128", "sharegpt4v-1k", "docci-all", "docci-test", "urban1k",
]  # fmt: skip


def collection(folder: Path, records: list[Record]) -> Collection:
    (folder / "records").mkdir(parents=True)
    for number, record in enumerate(records):
        record.image = ImageRef(path=f"{number}.png")
        Image.new("RGB", (32, 32), (number % 255, 90, 200)).save(folder / f"{number}.png")
    pq.write_table(to_table(records), folder / "records" / "part-0.parquet")
    return Collection.open(folder)


def docci(folder: Path) -> Collection:
    splits = ("train", "train", "test", "qual_dev")
    return collection(
        folder,
        [Record(f"{s}_{n}", split=s, description=f"a red {n} star") for n, s in enumerate(splits)],
    )


def test_the_protocols_of_the_study_are_there() -> None:
    assert list(protocols()) == NAMES
    lengths = {name: protocols()[name].max_length for name in NAMES}
    assert (lengths["flickr30k-full"], lengths["coco-train2017-full"]) == (77, 77)
    assert (lengths["sharegpt4v-80k"], lengths["sharegpt4v-80k-128"], lengths["docci-all"]) == (
        77, 128, 128,
    )  # fmt: skip
    for protocol in protocols().values():
        sample = protocol.sample
        if sample is not None and sample.parts:
            assert sum(part.images for part in sample.parts) == protocol.expected[0].images
        for size in protocol.expected:
            assert (size.texts == size.images) == protocol.one_to_one
    with pytest.raises(UsageError, match=r"no protocol 'docci': use one of flickr30k-full"):
        load_protocol("docci")


@pytest.mark.parametrize(
    "wrong",
    [{"tokenz": 5}, {"texts": "negatives"}, {"normalise": "lower"}, {"sample": {}},
     {"sample": {"seed": 0, "parts": []}}, {"sample": {"seed": 0, "parts": [{"match": "a"}]}},
     {"expected": []}],
)  # fmt: skip
def test_a_protocol_is_checked(wrong: dict[str, object]) -> None:
    right = load_protocol("urban1k").model_dump()
    with pytest.raises(ValidationError):
        Protocol(**{**right, **wrong})


def test_another_size_is_evaluated_and_the_result_says_so(
    tmp_path: Path, encoder: ImageTextEncoder
) -> None:
    data = docci(tmp_path / "docci")
    said = evaluate(data, encoder, protocol="docci-all", progress=False).about
    assert said["collection"]["split"] == "all"
    assert said["protocol"]["name"] == "docci-all"
    assert (said["protocol"]["text_field"], said["protocol"]["max_length"]) == (
        "description",
        128,
    )
    assert said["protocol"]["changed"] == []
    sizes = said["protocol"]["sizes"]
    assert (sizes["found"], sizes["as_expected"]) == ({"images": 4, "texts": 4}, False)
    assert sizes["expected"][0]["images"] == 14847

    test = evaluate(data, encoder, protocol="docci-test", max_length=77, progress=False).about
    assert test["collection"]["split"] == "test"
    assert test["protocol"]["changed"] == ["max_length"]
    assert test["protocol"]["sizes"]["found"]["images"] == 1
    only = collection(tmp_path / "only", [Record("a", description="a star")])
    with pytest.raises(UsageError, match="no split 'test'"):
        evaluate(only, encoder, protocol="docci-test", progress=False)


def test_the_expected_size_is_recognised() -> None:
    protocol = load_protocol("coco-5k")
    assert protocol.account(5000, 25010)["as_expected"]
    assert not protocol.account(5000, 25000)["as_expected"]
    assert load_protocol("flickr30k-full").account(31783, 158915)["of"].startswith("the release")


def test_one_to_one_takes_the_first_text_and_keeps_images_without(
    tmp_path: Path, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Protocol(**{**load_protocol("urban1k").model_dump(), "texts": "captions"})
    monkeypatch.setitem(protocols(), "urban1k", rules)
    data = collection(
        tmp_path / "c",
        [
            Record("a", captions=[" ", "a star", "a circle"]),
            Record("b"),
            Record("c", captions=["x"]),
        ],
    )
    result = evaluate(data, encoder, protocol="urban1k", progress=False)
    assert (result.scores.images, result.scores.texts) == (3, 2)
    assert result.about["empty_texts_left_out"] == 1


def shared_gpt(folder: Path) -> Collection:
    records = [Record(f"sam/{n}", description=f"a {n} star") for n in range(3)]
    records += [Record(f"coco/train2017/{n}", description=f"a red {n}") for n in range(6)]
    records += [Record(f"llava/llava_pretrain/{n}", description=f"a blue {n}") for n in range(5)]
    return collection(folder, records)


def test_the_sample_is_drawn_by_its_seed_and_listed(
    tmp_path: Path, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [{"match": "coco/", "images": 3}, {"match": "llava_pretrain/", "images": 2}]
    small = {**load_protocol("sharegpt4v-80k").model_dump(), "sample": {"seed": 0, "parts": parts}}
    monkeypatch.setitem(protocols(), "sharegpt4v-80k", Protocol(**small))
    data = shared_gpt(tmp_path / "c")
    one, other = sweep(data, encoder, [20, 77], protocol="sharegpt4v-80k", progress=False)
    one.save(tmp_path / "r.json")
    ids = load_result(tmp_path / "r.json").queries.ids
    assert len(ids) == 5
    assert sum(id.startswith("coco/") for id in ids) == 3
    assert not any(id.startswith("sam/") for id in ids)
    assert ids == other.queries.ids
    assert one.about["protocol"]["sample"] == {"seed": 0, "parts": parts}
    assert (one.about["protocol"]["changed"], other.about["protocol"]["changed"]) == (
        ["max_length"],
        [],
    )

    monkeypatch.setitem(protocols(), "sharegpt4v-80k",
                        Protocol(**{**small, "sample": {"seed": 1, "parts": parts}}))  # fmt: skip
    assert evaluate(data, encoder, protocol="sharegpt4v-80k", progress=False).queries.ids != ids
    with pytest.raises(ParagrainError, match="with coco/ or llava_pretrain/ in their id"):
        evaluate(docci(tmp_path / "d"), encoder, protocol="sharegpt4v-80k", progress=False)


def test_an_image_that_is_missing_leaves_the_others_of_the_sample_alone() -> None:
    ids = [f"coco/{n}" for n in range(200)]
    sample = Sample(seed=0, parts=[{"match": "coco/", "images": 50}])
    drawn = sample.draw(ids)
    assert len(drawn) == len(set(drawn)) == 50
    without = sample.draw([id for id in ids if id != drawn[7]])
    assert len(set(drawn) & set(without)) == 49
    assert sorted(sample.draw(ids[::-1])) == sorted(drawn)


def test_the_command_says_what_is_not_as_expected(
    paragrain: Callable, tmp_path: Path, random_blip: Path
) -> None:
    data = docci(tmp_path / "docci")
    done = paragrain("evaluate", data.folder, "--model", random_blip, "--protocol", "docci-all",
                     "--max-length", 40, "--out", tmp_path / "r.json")  # fmt: skip
    assert done.code == 0, done.err
    assert "protocol docci-all, with other max_length" in done.out
    assert "4 images and 4 texts were found where 14,847 images and 14,847 texts" in done.out
    value = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert value["intervals"]["strict"]["image_to_text"]["R@1"]
    for words, message in (
        (("--protocol", "docci"), "there is no protocol 'docci'"),
        (("--max-length", 20, "--sweep", "20,40"), "both say the maximum length"),
        (("--out", tmp_path / "r.npz"), "let it end with .json or .csv"),
    ):
        done = paragrain("evaluate", data.folder, "--model", random_blip, *words)
        assert done.code == 2
        assert message in done.err


OWN = {
    "title": "My shop, test",
    "split": "test",
    "texts": "captions",
    "one_to_one": True,
    "max_length": 40,
    "expected": [{"images": 20, "texts": 20, "of": "the world of these tests"}],
    "source": "own",
}


def test_another_package_adds_a_protocol(
    world: Collection, encoder: ImageTextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[paragrain.protocols]\nshop-test = shop_rules:OWN\nbroken = shop_rules:BROKEN\n"
        "number = shop_rules:NUMBER\n"
    )
    (tmp_path / "shop_rules.py").write_text(
        f"OWN = {OWN!r}\nBROKEN = {{**OWN, 'texts': 'negatives'}}\nNUMBER = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = evaluate(world, encoder, protocol="shop-test", progress=False)
    assert result.about["protocol"]["name"] == "shop-test"
    assert result.about["protocol"]["sizes"]["as_expected"]
    for name in ("broken", "number"):
        with pytest.raises(ParagrainError, match=rf"protocol {name} of shop_rules:.*shop 1\.0"):
            load_protocol(name)
    with pytest.raises(UsageError, match=r"urban1k, .*shop-test"):
        load_protocol("none")
