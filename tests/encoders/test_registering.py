"""An encoder of another package comes back as itself, or training refuses at the start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from paragrain.collection import Collection
from paragrain.encoders import (
    BlipEncoder,
    PairEncoder,
    check_returns,
    encode_texts,
    load_encoder,
    register_encoder,
)
from paragrain.encoders.checkpoint import GROUP
from paragrain.encoders.loading import lasting_name
from paragrain.errors import ParagrainError, UsageError
from paragrain.plugins import _BY_HAND
from paragrain.training import train

TEXTS = ["a red star", "a blue circle above the star"]
PLUGIN = '''
import torch
from paragrain.encoders import BlipEncoder

class Turned(BlipEncoder):
    """BLIP with its text vectors turned round."""

    def text_features(self, input_ids, attention_mask):
        return -super().text_features(input_ids, attention_mask)

    def text_settings(self):
        return {**super().text_settings(), "turned": True}
'''
SETTINGS = {"recipe": "c1", "epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "progress": False}


class Mirrored(BlipEncoder):
    """BLIP with its text vectors mirrored, unless it is told not to."""

    sign = -1.0

    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.sign * super().text_features(input_ids, attention_mask)


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_BY_HAND, GROUP, {})


def installed(place: Path, code: str = PLUGIN, target: str = "turned_blip:Turned") -> Path:
    """A package in a folder of its own, as pip leaves it."""
    info = place / "turned_blip-0.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turned-blip\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nturned = {target}\n")
    (place / "turned_blip.py").write_text(code)
    return place


def vectors(encoder: object) -> np.ndarray:
    return encode_texts(encoder, TEXTS).vectors  # type: ignore[arg-type]


def open_elsewhere(folder: Path, *more: Path) -> subprocess.CompletedProcess:
    """The first text's vector of a checkpoint, by another process with `more` on its path."""
    code = (
        "import sys, json; from paragrain.encoders import encode_texts; "
        "from paragrain.errors import ParagrainError\n"
        f"try: print(json.dumps(encode_texts(sys.argv[1], {TEXTS[0]!r}).vectors[0].tolist()))\n"
        "except ParagrainError as error: sys.exit(str(error))"
    )
    paths = [*map(str, more), *(os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def test_an_installed_encoder_trains_and_comes_back_as_itself(
    world: Collection, random_blip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = installed(tmp_path / "site")
    monkeypatch.syspath_prepend(package)
    encoder = load_encoder(f"turned:{random_blip}", "cpu")
    assert type(encoder).__name__ == "Turned"
    np.testing.assert_array_equal(vectors(encoder), -vectors(load_encoder(random_blip, "cpu")))

    run = train(world, encoder, out=tmp_path / "run", **SETTINGS)
    checkpoint = run.folder / "checkpoint"
    again = load_encoder(checkpoint, "cpu")
    assert type(run.encoder) is type(again) is type(encoder)
    assert again.text_fingerprint == run.results["text_fingerprint"]
    np.testing.assert_array_equal(vectors(run.encoder), vectors(again))
    assert run.settings["encoder"]["name"] == f"turned:{random_blip}"
    assert lasting_name(f"turned:{random_blip}@248").endswith("@248")

    there = open_elsewhere(checkpoint, package)
    assert there.returncode == 0, there.stderr
    np.testing.assert_allclose(json.loads(there.stdout), vectors(again)[0], atol=1e-6)
    absent = open_elsewhere(checkpoint)
    assert absent.returncode == 1
    assert "was saved by the encoder 'turned' (turned_blip:Turned of turned-blip 0.3)" in (
        absent.stderr
    )
    assert absent.stderr.count("\n") == 1
    card = (checkpoint / "README.md").read_text("utf-8")
    assert "BlipForImageTextRetrieval" not in card
    assert "pg.load_encoder" in card


def test_an_encoder_of_this_process(random_blip: Path, tmp_path: Path) -> None:
    register_encoder("mirrored")(Mirrored)
    encoder = load_encoder(f"mirrored:{random_blip}", "cpu")
    encoder.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out", "cpu")
    assert type(again) is Mirrored
    np.testing.assert_array_equal(vectors(again), vectors(encoder))


class Forgetful(Mirrored):
    """Its settings, which are not saved, show in one place only."""

    sign = 1.0
    turns = ""

    def text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features = super().text_features(input_ids, attention_mask)
        return -features if self.turns == "long texts" and input_ids.shape[1] > 130 else features

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().image_features(pixels.flip(-1) if self.turns == "images" else pixels)

    def write_parts(self, folder: Path) -> None:
        if self.turns == "a bug":
            raise KeyError("bug")
        super().write_parts(folder)


@pytest.mark.parametrize("turns", ["images", "long texts", "a bug"])
def test_what_is_forgotten_is_noticed_wherever_it_shows(turns: str, random_blip: Path) -> None:
    register_encoder("forgetful")(Forgetful)
    encoder = load_encoder(f"forgetful:{random_blip}", "cpu")
    check_returns(encoder)
    encoder.turns = turns
    with pytest.raises(UsageError, match="would not open as Forgetful again") as error:
        check_returns(encoder)
    assert turns.partition(" ")[2].removesuffix("s") in str(error.value)


def test_an_encoder_with_another_method_put_in_is_refused(random_blip: Path) -> None:
    encoder = load_encoder(random_blip, "cpu")
    usual = encoder.text_features
    encoder.text_features = lambda ids, mask: -usual(ids, mask)
    with pytest.raises(UsageError, match=r"again \(its texts get other vectors\)"):
        check_returns(encoder)


@pytest.mark.parametrize("kind", ["not registered", "forgets a setting", "saves nothing", "opens"])
def test_training_refuses_what_would_not_come_back(
    kind: str, world: Collection, random_blip: Path, tmp_path: Path
) -> None:
    class Odd(Mirrored):
        """One that is amiss in one way or another."""

        if kind == "saves nothing":

            def save(self, folder: Path | str, story: object = None) -> None:
                raise UsageError("this one cannot be saved")

        if kind == "opens":

            @classmethod
            def from_folder(cls, folder: Path, name: str) -> BlipEncoder:
                return BlipEncoder.from_folder(folder, name)

    odd = Odd.from_folder(random_blip, "odd")
    if kind == "opens":
        odd = Odd(odd.model, odd.image_processor, odd.tokenizer, "odd")
    odd.requires_grad_(False)
    if kind == "forgets a setting":
        odd.sign = 1.0
    if kind != "not registered":
        register_encoder("odd")(Odd)
    with pytest.raises(UsageError, match="would not open as Odd again") as error:
        train(world, odd, out=tmp_path / "run", **SETTINGS)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_the_image_side_of_a_pair_is_opened_by_its_own_encoder(
    random_blip: Path, text: Path, pair: PairEncoder, world: Collection, tmp_path: Path
) -> None:
    register_encoder("mirrored")(Mirrored)
    both = load_encoder(f"mirrored:{random_blip}+{text}", "cpu")
    both.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out", "cpu")
    assert isinstance(again, PairEncoder)
    assert type(again.model.vision) is Mirrored
    _BY_HAND[GROUP].clear()
    with pytest.raises(ParagrainError, match=r"the image tower of .* saved by the encoder"):
        load_encoder(tmp_path / "out")
    with pytest.raises(UsageError, match="would not open as Mirrored again"):
        train(world, both, out=tmp_path / "run", **SETTINGS)


def test_what_is_saved_unregistered_never_opens_as_something_else(
    random_blip: Path, tmp_path: Path
) -> None:
    Mirrored.from_folder(random_blip, "m").save(tmp_path / "out")
    with pytest.raises(ParagrainError, match=r"saved by the encoder '.*:Mirrored'") as error:
        load_encoder(tmp_path / "out")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("code", "target", "match"),
    [
        ("import nowhere_at_all", "turned_blip:Turned", "the plugin turned .* cannot be loaded"),
        ("Turned = 3", "turned_blip:Turned", "is no subclass of ImageTextEncoder"),
        (PLUGIN, "turned_blip:Turned", None),
    ],
)
def test_a_broken_plugin_harms_no_other_model(
    code: str,
    target: str,
    match: str | None,
    random_blip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sys.modules.pop("turned_blip", None)
    monkeypatch.syspath_prepend(installed(tmp_path / "site", code, target))
    assert type(load_encoder(random_blip)) is BlipEncoder
    if match:
        with pytest.raises(ParagrainError, match=match):
            load_encoder(f"turned:{random_blip}")
    else:
        with pytest.raises(ParagrainError, match="there is no folder /nowhere"):
            load_encoder("turned:/nowhere")
    sys.modules.pop("turned_blip", None)


def test_names_that_are_taken_or_unknown(random_blip: Path) -> None:
    for name in ("blip", "clip", "siglip", "paragrain-pair"):
        with pytest.raises(UsageError, match="of paragrain's own"):
            register_encoder(name)(Mirrored)
    with pytest.raises(UsageError, match="register a subclass"):
        register_encoder("path")(Path)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="no encoder unknown is registered here"):
        load_encoder(f"unknown:{random_blip}")


@pytest.mark.parametrize(
    "note", ["x", {"max_length": "many"}, {"max_length": -1}, {"encoder": ["a"]}, 7]
)
def test_a_damaged_note_is_a_sentence(checkpoint: Path, note: object) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "paragrain": note}))
    with pytest.raises(ParagrainError, match="is damaged") as error:
        load_encoder(checkpoint)
    assert "\n" not in str(error.value)
