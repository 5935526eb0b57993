"""A run on disk: what makes it repeatable, and what came out.

run.yaml         recipe, settings, data and encoder: enough to repeat the run
metrics.jsonl    the curve, one line a step, and one for each validation
trained_on.json  the images that it learns from, as hashes; in the checkpoint too
results.json     written last: a run that has it is finished
checkpoint/      the best encoder: a complete Hugging Face folder
last/            state for resume
"""

import platform
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.loading import lasting_name, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json, write_text
from paragrain.training.checkpoints import MetricsLog
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.recipes import Recipe, parse_recipe

_ONLY_CONVENIENCE = {"save_steps", "save_minutes"}
"""Settings that may differ between the two halves of a resumed run: they change no number."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder."""

    folder: Path
    device: torch.device | None = None

    def __repr__(self) -> str:
        """Folder, recipe, and how far it is, in one line."""
        if not (self.folder / "run.yaml").is_file():
            return f"<Run {self.folder}, not begun>"
        state = "not finished"
        if self.finished:
            score = self.results["best_score"]
            state = f"{self.results['steps']:,} steps"
            state += "" if score is None else f", validation R@1 {score:.1f} %"
        recipe, seed = self.settings["recipe"]["name"], self.settings["config"]["seed"]
        return f"<Run {self.folder}: {recipe}, seed {seed}, {state}>"

    def __fspath__(self) -> str:
        """The folder, so that a run stands wherever the path of a model does."""
        return str(self.folder)

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Open the folder of a run.

        Raises:
            UsageError: it holds no run.
        """
        folder = Path(folder)
        if not (folder / "run.yaml").is_file():
            raise UsageError(f"{folder} holds no run: there is no run.yaml in it")
        return cls(folder)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The content of `run.yaml`."""
        path = self.folder / "run.yaml"
        try:
            settings = yaml.safe_load(path.read_text("utf-8"))
            return {**settings, "config": dict(settings["config"])}
        except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError):
            raise ParagrainError(f"{path} is damaged and cannot be read: restore it") from None

    @property
    def recipe(self) -> Recipe:
        """The recipe it was trained by."""
        recipe = self.settings["recipe"]
        return parse_recipe(yaml.safe_dump(recipe), recipe["name"], where=str(self.folder))

    @property
    def config(self) -> TrainConfig:
        """The settings it was trained with."""
        return make_config(None, self.settings["config"])

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return (self.folder / "results.json").is_file()

    @cached_property
    def encoder(self) -> ImageTextEncoder:
        """The best encoder, loaded from `checkpoint/`."""
        return load_encoder(str(self.folder / "checkpoint"), device=self.device)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return MetricsLog(self.folder / "metrics.jsonl").read()

    @property
    def results(self) -> dict[str, Any]:
        """The content of `results.json`.

        Raises:
            ParagrainError: the run is not finished.
        """
        if not self.finished:
            raise ParagrainError(f"the run {self.folder} is not finished: train it again to go on")
        return read_json(self.folder / "results.json")


def describe_run(
    collection: Collection,
    encoder: ImageTextEncoder,
    recipe: Recipe,
    config: TrainConfig,
    processes: int,
) -> dict[str, Any]:
    """Everything that repeats a run, as plain data for `run.yaml`."""
    return {
        "recipe": recipe.content(),
        "config": config.settings(),
        "collection": {
            "path": str(collection.folder.resolve()),
            "name": collection.name,
            "fingerprint": collection.fingerprint,
            "licence": collection.info.get("licence"),
        },
        "encoder": {
            "name": lasting_name(encoder.name),
            "vision_fingerprint": encoder.vision_fingerprint,
            "text_fingerprint": encoder.text_fingerprint,
        },
        "made_with": {
            "paragrain": metadata.version("paragrain"),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "device": str(encoder.device),
            "processes": processes,
            "threads": torch.get_num_threads(),
        },
    }


def default_folder(recipe: Recipe, seed: int) -> Path:
    """Where a run goes if nothing else is said.

    >>> default_folder(parse_recipe("positives: [{from: generated}]", "c1 (a from b)"), 3).name
    'c1-a-from-b-seed3'
    """
    name = re.sub(r"[^\w.-]+", "-", recipe.name).strip("-")
    return Path("runs") / f"{name}-seed{seed}"


def check_folder(folder: Path, settings: dict[str, Any], *, overwrite: bool) -> None:
    """See that a run with these settings can begin or go on in `folder`; writes nothing.

    Raises:
        UsageError: the folder holds a run with other settings, or something that is no run.
    """
    if (folder / "run.yaml").is_file():
        changed = "" if overwrite else difference(Run.open(folder).settings, settings)
        if changed:
            raise UsageError(
                f"{folder} holds a run with other settings ({changed}): choose another folder "
                "with --out, or --overwrite it"
            )
    elif folder.exists() and (not folder.is_dir() or any(_visible(folder))):
        raise UsageError(f"{folder} is in use and holds no run: choose another folder with --out")


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, without the temporary files of a run that was killed early."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def begin_run(folder: Path, settings: dict[str, Any], *, overwrite: bool) -> None:
    """Write `run.yaml` unless it is there; with `overwrite`, remove an older run first."""
    if overwrite:
        _remove_run(folder)
    if not (folder / "run.yaml").is_file():
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        write_text(folder / "run.yaml", text)


def _remove_run(folder: Path) -> None:
    """Delete what a run has written to `folder`, and nothing else."""
    # A kill in between leaves a folder that still counts as a run, and as an unfinished one.
    (folder / "results.json").unlink(missing_ok=True)
    for name in ("last", "checkpoint"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("metrics.jsonl", "trained_on.json", "run.yaml"):
        (folder / name).unlink(missing_ok=True)


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first thing in which two runs differ in what they compute, in words; "" if in none."""
    before, after = _essence(old), _essence(new)
    for key in (*after, *before):
        if before.get(key) != after.get(key):
            return f"{key} is {before.get(key)} there and {after.get(key)} here"
    return ""


def _essence(settings: dict[str, Any]) -> dict[str, Any]:
    """What decides the numbers of a run: not names, paths and versions."""
    essence = {k: v for k, v in settings["config"].items() if k not in _ONLY_CONVENIENCE}
    for part, keys in {
        "recipe": ("positives", "negatives", "sample", "loss"),
        "collection": ("fingerprint",),
        "encoder": ("vision_fingerprint", "text_fingerprint"),
    }.items():
        for key in keys:
            essence[f"the {part}'s {key.replace('_', ' ')}"] = settings.get(part, {}).get(key)
    return essence
