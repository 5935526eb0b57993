"""Fixtures that several rooms share: the command line, a tiny BLIP, the shared photographs."""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest

# A shell without job control has what it puts into the background ignore Ctrl-C, and so would all
# that is started from here: the tests of what Ctrl-C does begin where a terminal would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from paragrain.collection import Collection
    from paragrain.encoders import ImageTextEncoder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real photographs and texts beside the checkout; tests skip without it."""
    folder = Path(os.environ.get("PARAGRAIN_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "photos" / "captions.json").is_file():
        pytest.skip(f"needs the shared photographs, and {folder} does not hold them")
    return folder


def make_random_blip(folder: Path, *, seed: int = 0, width: int = 32, image_size: int = 32) -> Path:
    """Save a tiny BlipForImageTextRetrieval of random weights, with processor, to `folder`."""
    import torch
    from transformers import (
        BertTokenizerFast,
        BlipConfig,
        BlipForImageTextRetrieval,
        BlipProcessor,
    )
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    words = "a an the of on in to and with red blue green square circle star left right above below"
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    vocabulary += [c for c in letters if c not in vocabulary] + [f"##{c}" for c in letters]
    vocabulary += ["[DEC]", "[ENC]"]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = BertTokenizerFast(
        vocab={token: index for index, token in enumerate(vocabulary)}, do_lower_case=True
    )
    common = {
        "hidden_size": width,
        "intermediate_size": width * 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_range": 0.2,
    }
    config = BlipConfig(
        text_config={
            **common,
            "vocab_size": len(vocabulary),
            "max_position_embeddings": 512,
            "bos_token_id": vocabulary.index("[DEC]"),
            "sep_token_id": vocabulary.index("[SEP]"),
            "eos_token_id": vocabulary.index("[SEP]"),
            "pad_token_id": 0,
        },
        vision_config={**common, "image_size": image_size, "patch_size": 8},
        image_text_hidden_size=16,
        initializer_range=0.2,
    )
    torch.manual_seed(seed)
    BlipForImageTextRetrieval(config).save_pretrained(folder)
    processor = BlipProcessor(
        BlipImageProcessorPil(size={"height": image_size, "width": image_size}), tokenizer
    )
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def random_blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BLIP of random weights (16-wide vectors, 32 px, 512 positions)."""
    return make_random_blip(tmp_path_factory.mktemp("models") / "random-blip")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> "Collection":
    """A small procedural world: 30 training scenes, 20 each to test on and as twins."""
    from paragrain.collection import Collection
    from paragrain.sources.scenes import import_scenes

    folder = tmp_path_factory.mktemp("worlds") / "world"
    import_scenes(folder, size=30, seed=1, progress=False)
    return Collection.open(folder)


@pytest.fixture(scope="session")
def encoder(random_blip: Path) -> "ImageTextEncoder":
    """The tiny random BLIP on the CPU, which nothing may change."""
    from paragrain.encoders import load_encoder

    return load_encoder(random_blip, "cpu")


@dataclass
class Outcome:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        return json.loads(self.out)


@pytest.fixture
def paragrain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run `paragrain ARGS` in this process and tell how it ended."""
    from paragrain.cli import main

    def run(*args: object) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["paragrain", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        said = capsys.readouterr()
        return Outcome(code if isinstance(code, int) else int(bool(code)), said.out, said.err)

    return run
