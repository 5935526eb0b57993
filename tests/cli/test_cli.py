"""Every verb from the outside: what it prints, where it writes, how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from PIL import Image
from transformers import BlipForImageTextRetrieval

from paragrain.cli.app import app
from paragrain.training.runs import Run


def verbs(command: Any, *names: str) -> list[list[str]]:
    """The words of every command below one."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [list(names)]
    return [words for name, part in inner.items() for words in verbs(part, *names, name)]


VERBS = verbs(typer.main.get_command(app))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example(paragrain: Callable, verb: list[str]) -> None:
    done = paragrain(*verb, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert "--json" in done.out
    assert "130 stopped by Ctrl-C" in " ".join(done.out.split())
    assert paragrain(*verb, "-h").out == done.out


def test_version_and_exit_codes_are_documented(paragrain: Callable) -> None:
    assert paragrain("--version").out.startswith("paragrain 0.")
    assert "3 done with some items failed" in " ".join(paragrain("--help").out.split())


def test_the_whole_way(paragrain: Callable, tmp_path: Path, random_blip: Path) -> None:
    """import, embed, train, evaluate, search: each in JSON, and again, which repeats no work."""
    world = tmp_path / "world"
    made = paragrain("import", "scenes", "--size", 24, world, "--json")
    assert (made.code, made.json["written"]) == (0, 74)
    assert paragrain("import", "scenes", "--size", 24, world, "--json").json["kept"] == 74

    embedded = paragrain("embed", world, "--model", random_blip, "--json")
    assert embedded.json["computed"] == 74
    assert Path(embedded.json["folder"]).is_dir()
    assert paragrain("embed", world, "--model", random_blip, "--json").json["computed"] == 0

    settings = ("--epochs", 1, "--batch-size", 8, "--set", "max_length.paragraph=60",
                "--set", "betas=0.9,0.98", "--set", "validation_texts=captions")  # fmt: skip
    order = ("train", world, "--model", random_blip, "--out", tmp_path / "c5", *settings, "--json")
    trained = paragrain(*order)
    assert trained.code == 0, trained.err
    assert trained.json["steps"] == 3
    assert trained.json["max_lengths"]["paragraph"] == 60
    config = Run.open(tmp_path / "c5").config
    assert (config.betas, config.validation_texts) == ((0.9, 0.98), ("captions",))
    BlipForImageTextRetrieval.from_pretrained(trained.json["checkpoint"])
    assert paragrain(*order).json == trained.json

    checkpoint = tmp_path / "c5" / "checkpoint"
    result = tmp_path / "result.json"
    measured = paragrain("evaluate", world, "--model", checkpoint, "--texts", "paragraph",
                         "--max-length", 128, "--out", result, "--json")  # fmt: skip
    assert measured.code == 0, measured.err
    assert measured.json == json.loads(result.read_text("utf-8"))
    assert measured.json["collection"]["split"] == "test"

    found = paragrain("search", world, "--model", checkpoint, "a red star", "-k", 3, "--json")
    assert [hit["id"] for hit in found.json["hits"]] != []
    assert len(found.json["hits"]) == 3


def test_lines_for_people(paragrain: Callable, world: Path, random_blip: Path) -> None:
    measured = paragrain("evaluate", world, "--model", random_blip, "--texts", "captions",
                         "--sweep", "20,77,128")  # fmt: skip
    assert measured.code == 0, measured.err
    assert "20 images" in measured.out
    assert [line.split()[0] for line in measured.out.splitlines()[3:6]] == ["20", "77", "128"]
    found = paragrain(
        "search", world, "--model", random_blip, "a red star above", "--max-length", 4
    )
    assert found.code == 0
    assert "not read, beyond 4 of 6 tokens: 'star above'" in found.out


def test_pretrain(paragrain: Callable, world: Path, tmp_path: Path) -> None:
    done = paragrain("pretrain", world, "--out", tmp_path / "run", "--dense-steps", 1,
                     "--contrast-steps", 1, "--batch-size", 4, "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert (Path(done.json["checkpoint"]) / "model.safetensors").is_file()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for shade in range(3):
        Image.new("RGB", (40, 40), (shade * 80, 10, 10)).save(folder / f"{shade}.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    return folder


def test_bad_items_are_named_counted_and_seen_in_the_exit_code(
    paragrain: Callable, pictures: Path, tmp_path: Path
) -> None:
    done = paragrain("import", "folder", pictures, tmp_path / "out")
    assert done.code == 3
    assert "3 records" in done.out
    assert "1 skipped" in done.err
    assert "broken.jpg" in done.err
    done = paragrain("import", "folder", pictures, tmp_path / "out", "--json")
    assert done.code == 3
    assert [item[0] for item in done.json["skipped"]] == ["broken.jpg"]


def test_mistakes_are_one_sentence_without_a_traceback(
    paragrain: Callable, world: Path, random_blip: Path, tmp_path: Path
) -> None:
    for code, *args in (
        (2, "embed", tmp_path / "nowhere", "--model", random_blip),
        (2, "embed", world, "--model", tmp_path / "nowhere"),
        (2, "train", world, "--model", random_blip, "--recipe", "c11"),
        (2, "train", world, "--model", random_blip, "--set", "epochs"),
        (2, "train", world, "--model", random_blip, "--set", "epochz=3"),
        (2, "train", world, "--model", random_blip, "--batch-size", 1),
        (2, "evaluate", world, "--model", random_blip, "--max-length", 4000),
        (2, "evaluate", world, "--model", random_blip, "--sweep", "20;40"),
        (2, "evaluate", world, "--model", random_blip, "--sweep", ""),
        (2, "evaluate", world, "--model", random_blip, "--out", tmp_path),
        (2, "train", world, "--model", random_blip, "--set", "recipe=c4"),
        (2, "train", world, "--model", random_blip, "--set", "a=["),
        (2, "train", world, "--model", random_blip, "--set", "tokens=5", "--set", "max_length.a=6"),
        (2, "search", world, "--model", random_blip, "star", "--max-length", 0),
        (1, "train", world, "--model", random_blip, "--out", world / "collection.json" / "run"),
        (2, "import", "folder", tmp_path, tmp_path / "w", "--max-pixels", -1),
        (2, "search", world, "--model", random_blip, " "),
        (2, "search", world, "--model", random_blip, "star", "--split", "dev"),
        (2, "import", "scenes", tmp_path / "w", "--size", 0),
        (2, "nothing"),
    ):
        done = paragrain(*args)
        assert done.code == code, (args, done.code, done.err)
        assert "Traceback" not in done.err
        assert done.err.strip()


def test_a_shared_photograph_set(
    paragrain: Callable, shared: Path, tmp_path: Path, random_blip: Path
) -> None:
    photos = shared / "photos"
    done = paragrain("import", "coco", "--images", photos / "images", "--captions",
                     photos / "captions.json", "--texts", photos / "paragraphs.jsonl",
                     tmp_path / "photos", "--json")  # fmt: skip
    assert (done.code, done.json["written"]) == (0, 50)
    measured = paragrain("evaluate", tmp_path / "photos", "--model", random_blip, "--texts",
                         "captions", "--max-length", 77, "--json")  # fmt: skip
    assert measured.json["scores"]["counts"]["images"] == 50
    assert measured.json["scores"]["counts"]["texts"] == 250


def test_a_folder_of_bad_images_alone_fails(paragrain: Callable, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"")
    done = paragrain("import", "folder", tmp_path / "in", tmp_path / "out")
    assert done.code == 1
    assert "none of the 1 items" in done.err


def test_a_split_needs_a_name(paragrain: Callable, pictures: Path, tmp_path: Path) -> None:
    assert paragrain("import", "folder", pictures, tmp_path / "o", "--split", "").code == 2


def test_a_checkpoint_can_be_read_by_whoever_reads_other_files(
    paragrain: Callable, world: Path, tmp_path: Path, random_blip: Path
) -> None:
    done = paragrain("train", world, "--model", random_blip, "--out", tmp_path / "r",
                     "--set", "max_steps=1", "--json")  # fmt: skip
    modes = {path.stat().st_mode for path in Path(done.json["checkpoint"]).iterdir()}
    assert len(modes) == 1
