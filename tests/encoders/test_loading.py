import contextlib
import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoProcessor,
    BlipForConditionalGeneration,
    BlipForImageTextRetrieval,
    BlipModel,
)

from paragrain.encoders import BlipEncoder, encode_texts, load_encoder, loading
from paragrain.errors import ParagrainError, UsageError

Rewrite = Callable[[Path, Callable[[dict], dict]], None]
TEXTS = ["a red circle", "a star above the blue square"]


def vectors(encoder: BlipEncoder) -> np.ndarray:
    return encode_texts(encoder, TEXTS, max_length=32).vectors


def one_sentence(error: pytest.ExceptionInfo) -> str:
    """What a user sees: short, on one line."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


# --- What loads -------------------------------------------------------------------------------


def test_a_loaded_encoder_is_frozen_quiet_and_ready(
    random_blip: Path, capfd: pytest.CaptureFixture
) -> None:
    encoder = load_encoder(str(random_blip), device="cpu")
    assert capfd.readouterr() == ("", "")
    assert encoder.name == str(random_blip)
    assert (encoder.dim, encoder.max_tokens) == (16, 512)
    assert encoder.device.type == "cpu"
    assert not encoder.training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_progress_bars_of_transformers_come_back(random_blip: Path) -> None:
    from transformers.utils import logging as theirs

    theirs.enable_progress_bar()
    level = theirs.get_verbosity()
    load_encoder(random_blip)
    assert theirs.is_progress_bar_enabled()
    assert theirs.get_verbosity() == level == logging.WARNING


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loads_into_float32(
    checkpoint: Path, rewrite: Rewrite, dtype: torch.dtype
) -> None:
    rewrite(checkpoint, lambda state: {k: v.to(dtype) for k, v in state.items()})
    config = json.loads((checkpoint / "config.json").read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    (checkpoint / "config.json").write_text(json.dumps(config))
    encoder = load_encoder(checkpoint)
    assert {tensor.dtype for tensor in encoder.model.state_dict().values()} == {torch.float32}
    assert np.isfinite(vectors(encoder)).all()
    encoder.save(checkpoint.parent / "saved")
    saved = load_file(checkpoint.parent / "saved" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    again = load_encoder(checkpoint.parent / "saved")
    assert again.vision_fingerprint == encoder.vision_fingerprint
    assert again.text_fingerprint == encoder.text_fingerprint


@pytest.mark.parametrize("prefix", ["module.", "module.module."])
def test_every_name_prefixed_by_a_wrapper_loads(
    checkpoint: Path, rewrite: Rewrite, blip: BlipEncoder, prefix: str
) -> None:
    rewrite(checkpoint, lambda state: {prefix + k: v for k, v in state.items()})
    encoder = load_encoder(checkpoint)
    np.testing.assert_array_equal(vectors(encoder), vectors(blip))
    encoder.save(checkpoint)
    BlipForImageTextRetrieval.from_pretrained(checkpoint)
    assert not any(
        name.startswith("module.") for name in load_file(checkpoint / "model.safetensors")
    )


def test_position_ids_of_old_checkpoints_are_ignored(
    checkpoint: Path, rewrite: Rewrite, blip: BlipEncoder
) -> None:
    extra = {
        "text_encoder.embeddings.position_ids": torch.arange(512)[None],
        "vision_model.embeddings.position_ids": torch.arange(17)[None],
    }
    rewrite(checkpoint, lambda state: {**state, **extra})
    np.testing.assert_array_equal(vectors(load_encoder(checkpoint)), vectors(blip))


def test_the_older_layout_of_files_loads(checkpoint: Path, blip: BlipEncoder) -> None:
    """As in Salesforce's own folders: vocab.txt, and a preprocessor_config.json."""
    vocabulary = blip.tokenizer.get_vocab()
    (checkpoint / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    (checkpoint / "tokenizer.json").unlink()
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    processor = json.loads((checkpoint / "processor_config.json").read_text())["image_processor"]
    (checkpoint / "processor_config.json").unlink()
    (checkpoint / "preprocessor_config.json").write_text(json.dumps(processor))
    encoder = load_encoder(checkpoint)
    long = "A red, CIRCLE on the left! " * 200
    assert encoder.tokenize([long, ""], 512).ids == blip.tokenize([long, ""], 512).ids
    assert encoder.vision_fingerprint == blip.vision_fingerprint
    assert encoder.text_fingerprint == blip.text_fingerprint


def test_sharded_weights_load(checkpoint: Path, blip: BlipEncoder) -> None:
    (checkpoint / "model.safetensors").unlink()
    blip.model.save_pretrained(checkpoint, max_shard_size="60KB")
    assert len(list(checkpoint.glob("model-*.safetensors"))) > 1
    np.testing.assert_array_equal(vectors(load_encoder(checkpoint)), vectors(blip))


def test_a_shards_name_never_leads_out_of_the_folder(checkpoint: Path) -> None:
    outside = (checkpoint / "model.safetensors").rename(checkpoint.parent / "elsewhere.safetensors")
    names = load_file(outside)
    index = {"weight_map": dict.fromkeys(names, "../elsewhere.safetensors")}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ParagrainError, match="cannot be read"):
        load_encoder(checkpoint)


# --- .bin files -------------------------------------------------------------------------------


def test_a_bin_file_loads_where_there_is_no_safetensors(
    checkpoint: Path, blip: BlipEncoder
) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save(blip.model.state_dict(), checkpoint / "pytorch_model.bin")
    np.testing.assert_array_equal(vectors(load_encoder(checkpoint)), vectors(blip))


class Trap:
    """Unpickled, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_never_runs_code(checkpoint: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
    load_encoder(checkpoint)  # safetensors first: the pickle is not even opened
    (checkpoint / "model.safetensors").unlink()
    for write in (pickle.dump, torch.save):
        with (checkpoint / "pytorch_model.bin").open("wb") as file:
            write({"a": Trap(mark)}, file)
        with pytest.raises(ParagrainError, match="cannot be read") as error:
            load_encoder(checkpoint)
        one_sentence(error)
    assert not mark.exists()


# --- What does not load, and how it says so ---------------------------------------------------


def test_missing_left_over_and_misshapen_weights_are_listed(
    checkpoint: Path, rewrite: Rewrite
) -> None:
    def change(state: dict) -> dict:
        del state["text_proj.bias"]
        state["vision_proj.bias"] = torch.zeros(5)
        return {**state, "queue": torch.zeros(2)}

    rewrite(checkpoint, change)
    with pytest.raises(ParagrainError) as error:
        load_encoder(checkpoint)
    text = one_sentence(error)
    for part in (
        "1 missing: text_proj.bias",
        "1 of another shape: vision_proj.bias",
        "1 unexpected: queue",
    ):
        assert part in text


def test_a_long_list_is_shortened_and_counted(checkpoint: Path, rewrite: Rewrite) -> None:
    rewrite(checkpoint, lambda state: {k: v for k, v in state.items() if "crossatt" not in k})
    with pytest.raises(ParagrainError, match=r"20 missing: .* and 16 more\)"):
        load_encoder(checkpoint)


def test_some_prefixed_names_are_no_wrapper(checkpoint: Path, rewrite: Rewrite) -> None:
    rewrite(
        checkpoint,
        lambda state: {("module." + k if "proj" in k else k): v for k, v in state.items()},
    )
    with pytest.raises(ParagrainError, match="missing: text_proj"):
        load_encoder(checkpoint)


@pytest.mark.parametrize("kind", [BlipModel, BlipForConditionalGeneration])
def test_another_class_of_blip_is_told_apart(
    checkpoint: Path, blip: BlipEncoder, kind: type
) -> None:
    (checkpoint / "model.safetensors").unlink()
    kind(blip.model.config).save_pretrained(checkpoint)
    with pytest.raises(ParagrainError, match="weights of a BlipForImageTextRetrieval") as error:
        load_encoder(checkpoint)
    assert "missing: itm_head.bias" in one_sentence(error)


@pytest.mark.parametrize("model_type", ["siglip2", "blip-2"])
def test_another_architecture_says_what_is_supported(checkpoint: Path, model_type: str) -> None:
    (checkpoint / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(ParagrainError, match=f"type '{model_type}', .*type blip, clip, siglip,"):
        load_encoder(checkpoint)


@pytest.mark.parametrize("config", ["{", "[]", "{}", '"x"'])
def test_a_broken_configuration(checkpoint: Path, config: str) -> None:
    (checkpoint / "config.json").write_text(config)
    with pytest.raises(ParagrainError, match="does not tell its model_type"):
        load_encoder(checkpoint)


def test_a_nonsensical_configuration(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config["text_config"]["num_attention_heads"] = 5
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParagrainError, match=r"check its config\.json") as error:
        load_encoder(checkpoint)
    one_sentence(error)


def test_damaged_and_absent_files(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ParagrainError, match=r"model\.safetensors cannot be read") as error:
        load_encoder(checkpoint)
    one_sentence(error)
    weights.unlink()
    with pytest.raises(ParagrainError, match="holds no weights"):
        load_encoder(checkpoint)
    (checkpoint / "processor_config.json").unlink()
    with pytest.raises(ParagrainError, match="lacks its image processor") as error:
        load_encoder(checkpoint)
    one_sentence(error)


def test_a_missing_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "tokenizer_config.json").unlink()
    with pytest.raises(ParagrainError, match="lacks its tokenizer") as error:
        load_encoder(checkpoint)
    one_sentence(error)


def test_a_damaged_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("{}")
    with pytest.raises(ParagrainError, match=r"the tokenizer of .* cannot be read") as error:
        load_encoder(checkpoint)
    one_sentence(error)


def test_code_in_a_checkpoint_is_never_run(checkpoint: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (checkpoint / "strange.py").write_text(f"open({str(mark)!r}, 'w')\nclass Strange: pass\n")
    for name, key in (
        ("config.json", "AutoModel"),
        ("tokenizer_config.json", "AutoTokenizer"),
        ("processor_config.json", "AutoProcessor"),
    ):
        settings = json.loads((checkpoint / name).read_text())
        settings["auto_map"] = {key: ["strange.Strange", "strange.Strange"]}
        (checkpoint / name).write_text(json.dumps(settings))
    with contextlib.suppress(ParagrainError):
        load_encoder(checkpoint)
    assert not mark.exists()


def test_a_run_folder_points_to_its_checkpoint(checkpoint: Path) -> None:
    with pytest.raises(ParagrainError, match=r"no config\.json; did you mean .*checkpoint\?"):
        load_encoder(checkpoint.parent)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "runs/c5/checkpoint", "a b"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        load_encoder(name)


def test_a_file_is_no_folder(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="is a file"):
        load_encoder(checkpoint / "model.safetensors")


def test_a_device_that_is_not_there(random_blip: Path) -> None:
    for device in ("cuda:77", "toaster"):
        with pytest.raises(UsageError, match=f"the device {device} cannot be used") as error:
            load_encoder(random_blip, device=device)
        one_sentence(error)


def test_blip0_is_refused_clearly_where_it_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "MODELS", tmp_path)
    with pytest.raises(ParagrainError, match="lacks its model blip0"):
        load_encoder("blip0")


# --- The Hub ----------------------------------------------------------------------------------


@pytest.fixture
def hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put_into_cache(hub: Path, source: Path, name: str) -> Path:
    model = hub / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    return Path(shutil.copytree(source, model / "snapshots" / ("0" * 40)))


def test_a_hub_name_is_found_in_the_cache_offline(
    hub_cache: Path, random_blip: Path, blip: BlipEncoder
) -> None:
    snapshot = put_into_cache(hub_cache, random_blip, "someone/tiny-blip")
    encoder = load_encoder("someone/tiny-blip")
    assert encoder.name == "someone/tiny-blip"
    np.testing.assert_array_equal(vectors(encoder), vectors(blip))
    torch.save(load_file(snapshot / "model.safetensors"), snapshot / "pytorch_model.bin")
    (snapshot / "model.safetensors").unlink()
    np.testing.assert_array_equal(vectors(load_encoder("someone/tiny-blip")), vectors(blip))


def test_a_hub_that_cannot_be_reached(hub_cache: Path) -> None:
    with pytest.raises(ParagrainError, match="while HF_HUB_OFFLINE is set: check") as error:
        load_encoder("someone/absent")
    one_sentence(error)
    assert "…" not in str(error.value)


# --- Saving -----------------------------------------------------------------------------------


def test_a_saved_folder_opens_in_plain_transformers(
    blip: BlipEncoder, random_blip: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    copy = blip.trainable_copy()
    with torch.no_grad():
        for parameter in copy.text_tensors().values():
            parameter.mul_(1.5)
    copy.save(tmp_path / "out" / "checkpoint")
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint"]
    model, info = BlipForImageTextRetrieval.from_pretrained(
        tmp_path / "out" / "checkpoint", output_loading_info=True
    )
    assert not any(info.values())
    before = load_file(random_blip / "model.safetensors")
    after = model.state_dict()
    assert set(before) == set(after)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    moved = {n for n, p in copy.text_tensors().items() if p.abs().sum() > 0}
    assert changed == moved
    processor = AutoProcessor.from_pretrained(tmp_path / "out" / "checkpoint")
    assert processor(text="a star")["input_ids"] == copy.tokenizer("a star")["input_ids"]
    assert processor.image_processor.size.height == 32
    again = load_encoder(tmp_path / "out" / "checkpoint")
    np.testing.assert_allclose(vectors(again), vectors(copy), atol=1e-6)
    assert again.vision_fingerprint == blip.vision_fingerprint
    assert again.text_fingerprint == copy.text_fingerprint != blip.text_fingerprint


def test_saving_takes_the_place_of_an_older_checkpoint(blip: BlipEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    blip.save(folder)  # an empty folder is no obstacle
    (folder / "stale.txt").write_text("old")
    (tmp_path / "link").symlink_to(folder)
    blip.save(tmp_path / "link")
    assert not (folder / "stale.txt").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "link"]
    load_encoder(tmp_path / "link")


def test_saving_never_sweeps_away_other_files(blip: BlipEncoder, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for place in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(UsageError, match="is no checkpoint"):
            blip.save(place)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_save_that_fails_leaves_the_old_folder(
    blip: BlipEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    blip.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(blip.tokenizer, "save_pretrained", fail)
    with pytest.raises(ParagrainError, match=r"cannot be written .*no space"):
        blip.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_tied_tensors_save_and_reload(random_blip: Path, tmp_path: Path) -> None:
    encoder = load_encoder(random_blip)
    layers = encoder.model.text_encoder.encoder.layer
    layers[1].attention.self.query.weight = layers[0].attention.self.query.weight
    layers[1].crossattention.self.key = layers[0].crossattention.self.key
    copy = encoder.trainable_copy()
    copy.save(tmp_path / "tied")
    again = load_encoder(tmp_path / "tied")
    np.testing.assert_array_equal(vectors(again), vectors(encoder))
    BlipForImageTextRetrieval.from_pretrained(tmp_path / "tied")


def test_tied_tensors_in_a_bin_file_load(checkpoint: Path, random_blip: Path) -> None:
    state = load_file(checkpoint / "model.safetensors")
    name = "text_encoder.encoder.layer.{}.attention.self.query.weight"
    state[name.format(1)] = state[name.format(0)]
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(state, checkpoint / "model.safetensors")  # why it comes as .bin
    (checkpoint / "model.safetensors").unlink()
    torch.save(state, checkpoint / "pytorch_model.bin")
    load_encoder(checkpoint).save(checkpoint)
    assert not (checkpoint / "pytorch_model.bin").exists()
    saved = load_file(checkpoint / "model.safetensors")
    assert torch.equal(saved[name.format(1)], saved[name.format(0)])


def test_an_interrupted_save_leaves_the_older_checkpoint(
    blip: BlipEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    blip.save(folder)
    (folder / "mark.txt").write_text("older")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == ".checkpoint.tmp":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        blip.save(folder)
    monkeypatch.undo()
    assert (folder / "mark.txt").read_text() == "older"
    # A kill in that instant leaves it under its hidden name: the next save finds it there.
    folder.rename(tmp_path / ".checkpoint.old")
    blip.save(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]
    assert not (folder / "mark.txt").exists()


def test_a_checkpoint_whose_successor_was_killed_on_its_way(
    checkpoint: Path, blip: BlipEncoder
) -> None:
    """Between two renames the old one has a hidden name: it is found, and recovered by a save."""
    aside = checkpoint.with_name(".checkpoint.old")
    checkpoint.rename(aside)
    (checkpoint.with_name(".checkpoint.tmp")).mkdir()
    np.testing.assert_array_equal(vectors(load_encoder(checkpoint)), vectors(blip))
    assert aside.is_dir()  # a reader moves nothing, since somebody may be saving
    blip.save(checkpoint)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint"]


class Command:
    """Pickled, a command that opening would run."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("opened",)


def test_a_pickle_of_more_than_weights_is_a_sentence_without_bad_advice(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (checkpoint / "model.safetensors").unlink()
    torch.save({"a": Command()}, checkpoint / "pytorch_model.bin")
    with pytest.raises(ParagrainError, match="holds more than weights") as found:
        load_encoder(checkpoint)
    assert "weights_only" not in str(found.value)
    assert not Path("opened").exists()


def test_a_config_nested_without_end_is_a_sentence(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(ParagrainError, match="does not tell its model_type"):
        load_encoder(checkpoint)


@pytest.mark.parametrize("place", ["text_config", "vision_config"])
def test_more_layers_than_weights_are_refused_before_any_is_made(
    checkpoint: Path, place: str
) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config[place]["num_hidden_layers"] = 10**7  # which would take hours
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParagrainError, match="10,000,000 layers are asked for") as error:
        load_encoder(checkpoint)
    one_sentence(error)
