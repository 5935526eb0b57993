"""Code that comes with a checkpoint runs only for those who ask for it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from paragrain.collection import Collection
from paragrain.encoders import encode_images, encode_texts, encoder_for, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.training import train

CODE = """
from pathlib import Path
import torch
from transformers import PretrainedConfig, PreTrainedModel

Path(__file__).parent.joinpath("ran").touch()

class OddConfig(PretrainedConfig):
    model_type = "odd_clip"

class OddModel(PreTrainedModel):
    config_class = OddConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(config.words, 8)
        self.patch = torch.nn.Linear(3, 8)
        self.post_init()

    def get_text_features(self, input_ids, attention_mask):
        states = self.words(input_ids) * attention_mask[..., None]
        return states.sum(1) / attention_mask.sum(1, keepdim=True)

    def get_image_features(self, pixel_values):
        return self.patch(pixel_values.mean((2, 3)))
"""


@pytest.fixture
def odd(clip_maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model of an unknown type whose class lies beside its weights."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    folder = clip_maker(tmp_path / "odd")
    from safetensors.torch import save_file

    words = json.loads((folder / "config.json").read_text())["text_config"]["vocab_size"]
    torch.manual_seed(0)
    weights = {"words.weight": torch.randn(words, 8), "patch.weight": torch.randn(8, 3)}
    weights["patch.bias"] = torch.randn(8)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "odd.py").write_text(CODE)
    names = {"AutoConfig": "odd.OddConfig", "AutoModel": "odd.OddModel"}
    config = {"model_type": "odd_clip", "auto_map": names, "words": words, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    before = list(sys.path)
    yield folder
    sys.path[:] = before


def ran(tmp_path: Path) -> bool:
    return any(tmp_path.rglob("ran"))


def test_without_being_asked_it_is_a_sentence(odd: Path, tmp_path: Path) -> None:
    with pytest.raises(ParagrainError, match=r"code of its own \(odd\.OddModel\)") as error:
        load_encoder(odd)
    assert "--trust-remote-code" in str(error.value)
    assert "\n" not in str(error.value)
    assert not ran(tmp_path)


@pytest.mark.parametrize("name", ["jinaai/jina-clip-implementation--modeling_clip.JinaCLIPModel"])
def test_jina_clip_is_refused_by_its_name(odd: Path, name: str) -> None:
    """Its towers, EVA-02 and a BERT with ALiBi, are no classes of transformers."""
    config = {"model_type": "jina_clip", "auto_map": {"AutoModel": name}}
    (odd / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParagrainError, match=f"type 'jina_clip' that runs .* \\({name}\\)"):
        load_encoder(odd)


def test_asked_for_it_encodes_and_neither_trains_nor_saves(
    odd: Path, world: Collection, tmp_path: Path
) -> None:
    encoder = encoder_for(world, odd, "cpu", trust_remote_code=True)
    assert ran(tmp_path)
    assert (encoder.dim, encoder.remote_code, encoder.towers) == (8, True, ())
    pair = encode_texts(encoder, ["a red star", "a much longer text beside it"]).vectors
    np.testing.assert_allclose(encode_texts(encoder, "a red star").vectors[0], pair[0], atol=1e-6)
    from PIL import Image

    image = encode_images(encoder, Image.new("RGB", (50, 40), "red"))
    np.testing.assert_allclose(np.linalg.norm(image, axis=1), 1, atol=1e-6)
    again = load_encoder(odd, "cpu", trust_remote_code=True)
    assert again.vision_fingerprint == encoder.vision_fingerprint
    with pytest.raises(UsageError, match=r"text tower of .* cannot be trained"):
        train(world, encoder, recipe="c1", out=tmp_path / "run", progress=False)
    with pytest.raises(UsageError, match="is not saved"):
        encoder.save(tmp_path / "saved")


def test_code_that_fails_is_a_sentence(odd: Path) -> None:
    (odd / "odd.py").write_text(CODE + "\nimport nowhere_at_all\n")
    with pytest.raises(ParagrainError, match=r"nowhere_at_all") as error:
        load_encoder(odd, trust_remote_code=True)
    assert "\n" not in str(error.value)


def test_the_option_of_the_command_line(odd: Path, world: Collection) -> None:
    line = [sys.executable, "-m", "paragrain", "search", str(world.folder), "a star"]
    line += ["--model", str(odd), "--device", "cpu", "--json"]
    refused = subprocess.run(line, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "--trust-remote-code" in refused.stdout + refused.stderr
    found = subprocess.run(
        [*line, "--trust-remote-code"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["hits"]
