"""Several models in one table; results as files, tables and in Python; what names are taken."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import paragrain as pg
from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import compare, evaluate, evaluate_models, load_result, models_in, sweep


@pytest.fixture(scope="module")
def models(encoder: ImageTextEncoder, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three checkpoints of which the last has other weights."""
    import torch

    folder = tmp_path_factory.mktemp("models")
    other = encoder.trainable_copy()
    with torch.no_grad():
        other.model.text_proj.weight.mul_(torch.linspace(0.2, 2, 16)[:, None])
    for name, one in (("a", encoder), ("b", encoder), ("c", other)):
        one.save(folder / name)
    return [str(folder / name) for name in "abc"]


def test_several_models_are_one_table_and_one_file(
    world: Collection, models: list[str], paragrain: Callable, tmp_path: Path
) -> None:
    words = ["evaluate", world.folder, "--texts", "captions"]
    for model in models:
        words += ["--model", model]
    done = paragrain(*words, "--out", tmp_path / "all.json")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("3 models on")
    assert [line.split(" | ")[-1] for line in lines if line.startswith("   128")] == models
    intervals = [line for line in lines if line.startswith("95 %")]
    assert [line.split(" | ")[-1] for line in intervals[::2]] == models
    content = json.loads((tmp_path / "all.json").read_text())
    assert [entry["encoder"]["name"] for entry in content["results"]] == models
    assert models_in(tmp_path / "all.json") == models
    for model in models:
        alone = evaluate(world, model, texts="captions", progress=False)
        kept = load_result(tmp_path / "all.json", model=model)
        assert kept.queries.fingerprint == alone.queries.fingerprint
    with pytest.raises(UsageError, match="say which with --model"):
        load_result(tmp_path / "all.json")
    pair = ("--model", models[0], "--model", models[2])
    assert paragrain("compare", tmp_path / "all.json", *pair).code == 0
    assert paragrain("compare", tmp_path / "all.json").code == 2
    assert len(paragrain(*words, "--sweep", "20,40", "--json").json["results"]) == 6


def test_compare_takes_runs_and_the_seeds_of_a_run_by_their_folders(
    world: Collection,
    encoder: ImageTextEncoder,
    paragrain: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    folders = ["a/seed0", "a/seed1", "b"]
    for number, folder in enumerate(folders):
        one = encoder.trainable_copy()
        with torch.no_grad():
            one.model.text_proj.weight.mul_(torch.linspace(1, 1 + number, 16)[:, None])
        one.save(Path(folder) / "checkpoint")
        Path(folder, "run.yaml").write_text("{}")
    named = [word for folder in folders for word in ("--model", folder)]
    evaluated = ("evaluate", world.folder.resolve(), "--texts", "captions", "--out", "all.json")
    assert paragrain(*evaluated, *named).code == 0
    assert load_result("all.json", model="b/").about["encoder"]["name"] == "b/checkpoint"
    found = paragrain("compare", "all.json", "--model", "b", "--model", "a/seed*")
    assert found.code == 0, found.err
    assert "B: a/seed0/checkpoint, a/seed1/checkpoint" in found.out
    assert paragrain("compare", "all.json", "--model", "b", "--model", "a/seed0").code == 0
    absent = paragrain("compare", "all.json", "--model", "b", "--model", "a/seed2*")
    assert absent.code == 2
    assert "no result of model a/seed2*: it has a/seed0/checkpoint" in absent.err
    with pytest.raises(UsageError, match="say which"):
        load_result("all.json", model="a/*")


def test_a_model_named_twice_or_absent_is_refused_before_any_work(
    models: list[str], paragrain: Callable, tmp_path: Path
) -> None:
    from paragrain.sources.scenes import import_scenes

    import_scenes(tmp_path / "w", size=8, seed=1, progress=False)
    for extra, message in (
        (["--model", models[0], "--model", models[0]], "is named twice"),
        (["--model", models[0], "--model", str(tmp_path / "none")], "there is no folder"),
        (["--model", models[0], "--model", models[1], "--max-length", "900"], "512"),
        (["--model", models[0], "--out", str(tmp_path / "a.md")], "end with .json or .csv"),
        (["--model", models[0], "--out", str(tmp_path / "a")], "end with .json or .csv"),
        (["--model", models[0], "--out", str(tmp_path)], "is a folder"),
    ):
        done = paragrain("evaluate", tmp_path / "w", *extra)
        assert done.code == 2, done.err
        assert message in done.err
    assert not (tmp_path / "w" / "embeddings").exists()


def test_a_csv_holds_every_number(
    world: Collection, models: list[str], paragrain: Callable, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "r.csv"
    words = ("evaluate", world.folder, "--texts", "captions", "--sweep", "20,40")
    done = paragrain(*words, "--model", models[0], "--model", models[2], "--out", out)
    assert done.code == 0, done.err
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 2 * 3  # models, maximum lengths, directions, judgements, K
    result = evaluate(world, models[2], texts="captions", max_length=40, progress=False)
    (row,) = [
        row
        for row in rows
        if (row["model"], row["max_length"], row["direction"], row["judgement"], row["k"])
        == (models[2], "40", "text_to_image", "strict", "5")
    ]
    assert float(row["recall"]) == result.text_to_image[5]
    assert row["trained_on"] == ""  # not known
    assert [path.name for path in out.parent.iterdir()] == ["r.csv"]


def test_results_are_tables_and_short_to_look_at(
    world: Collection, models: list[str], tmp_path: Path
) -> None:
    one, other = evaluate_models(world, models[1:], texts="captions", progress=False)
    frame = one.to_frame()
    assert list(frame.columns)[:3] == ["model", "collection", "split"]
    assert len(frame) == 12
    found = compare(one, other)
    assert len(found.to_frame()) == 6
    for thing in (one, found, one.queries, [one, other]):
        assert len(repr(thing).splitlines()) < 10
        assert len(repr(thing)) < 900
    found.save(str(tmp_path / "c.json"))
    assert json.loads((tmp_path / "c.json").read_text())["rows"][0]["k"] == 1
    found.save(tmp_path / "c.csv")
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 7
    with pytest.raises(UsageError, match=r"let it end with \.json or \.csv"):
        found.save(tmp_path / "c.txt")


def test_without_pandas_it_is_a_sentence(
    world: Collection, encoder: ImageTextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ParagrainError, match="pip install pandas"):
        evaluate(world, encoder, texts="captions", progress=False).to_frame()


def test_names_and_paths_are_taken_for_collections_and_models(
    world: Collection, models: list[str], tmp_path: Path
) -> None:
    wanted = evaluate(world, load_encoder(models[0]), texts="captions", progress=False)
    for collection in (world.folder, str(world.folder)):
        for model in (models[0], Path(models[0])):
            assert (
                evaluate(collection, model, texts="captions", progress=False).scores
                == wanted.scores
            )
    assert sweep(str(world.folder), models[0], texts="captions", progress=False)[0] == wanted
    run = pg.train(world.folder, models[0], recipe="c4", out=tmp_path / "r", max_steps=1,
                   batch_size=8, progress=False)  # fmt: skip
    by_run = [
        evaluate(world, one, texts="captions", progress=False).scores
        for one in (run, run.folder, str(run.folder / "checkpoint"), run.encoder)
    ]
    assert all(scores == by_run[0] for scores in by_run)
    assert len(repr(run)) < 300
    for collection, model in ((5, models[0]), (world, 5), (world, None), (None, models[0])):
        with pytest.raises(UsageError):
            evaluate(collection, model, progress=False)
    for collection, model in (("f8k", "blip0"), (world, "no such/model/at all")):
        with pytest.raises(UsageError, match="there is no folder"):
            evaluate(collection, model, progress=False)
    for sides in ((5, wanted), (wanted, None), ([], wanted), ([5], wanted)):
        with pytest.raises(UsageError):
            compare(*sides)


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("{}")
    with pytest.raises(ParagrainError, match="has no checkpoint yet"):
        load_encoder(tmp_path)


def test_what_python_shows_is_short(encoder: ImageTextEncoder, world: Collection) -> None:
    assert "[2, 16]" in repr(pg.encode_texts(encoder, ["a", "b"]))
    assert "identical files" not in repr(found := pg.audit(world, progress=False))
    assert repr(found).startswith(f"<audit of {world.name} and {world.name}: ")
    assert dir(pg) == sorted(set(pg.__all__))
