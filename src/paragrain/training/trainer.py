"""Training: the text encoder and its projection learn, everything else stays as it is.

(With `train_vision` the vision tower and its projection learn too.)

`train` prepares a run and `_Trainer` takes its steps. All that a step does follows from the data,
the seed and its number, so a run that was killed goes on with the same curve.
"""

import math
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import metadata
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders.base import ImageTextEncoder, TrainSpec
from paragrain.encoders.checkpoint import recover
from paragrain.encoders.loading import load_encoder
from paragrain.encoders.roundtrip import check_returns
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import write_json
from paragrain.progress import progress_bar
from paragrain.training.batches import Schedule, TrainingSet
from paragrain.training.cards import story
from paragrain.training.checkpoints import (
    MetricsLog,
    Progress,
    load_progress,
    save_progress,
)
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.distributed import Processes
from paragrain.training.found import found_line, settle_recipe
from paragrain.training.gradients import StepReport, accumulate_gradients
from paragrain.training.optimisation import (
    learning_rate,
    make_optimizer,
    warmup_steps,
)
from paragrain.training.pictures import Pictures
from paragrain.training.runs import (
    Run,
    begin_run,
    check_folder,
    default_folder,
    describe_run,
    difference,
)
from paragrain.training.splits import images_used, split_line, splits_used
from paragrain.training.supervision import Recipe, load_recipe
from paragrain.training.validation import Validation


def train(
    collection: Collection | str | PathLike[str],
    encoder: ImageTextEncoder | str | PathLike[str],
    *,
    recipe: str | Path | Recipe = "c5",
    out: str | Path | None = None,
    config: TrainConfig | None = None,
    fallback: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Fine-tune the text side of an encoder (or both sides) on the texts of a collection.

    A folder that holds the same run unfinished is continued, and finished is given back.

    Args:
        collection: images and texts, or their folder; embeddings are computed once and cached.
        encoder: the start, or what `load_encoder` takes; it is not changed.
        recipe: which texts supervise an image: a name (`c1` to `c10`), a YAML file or a `Recipe`.
        out: folder of the run; `runs/RECIPE-seedSEED` if not given.
        config: the settings; the paper's if not given.
        fallback: a field of texts that takes the place of one of the recipe's if no image has that
            one; the recipe's name says so. Without it such a recipe is refused.
        overwrite: delete the run that the folder holds, and begin anew.
        progress: show progress and notes on standard error.
        overrides: single settings of `TrainConfig`, such as `epochs=3`.

    Returns:
        The run: `.folder`, `.encoder` (the best), `.history`, `.results`.

    Raises:
        UsageError: a setting or recipe does not exist, the data lack what it is made of, or the
            folder holds another run.
        ParagrainError: too few images with texts, or the loss is no longer finite.
    """
    config = make_config(config, overrides)
    collection, encoder = Collection.open(collection), load_encoder(encoder)
    recipe = settle_recipe(collection, load_recipe(recipe), config.split, fallback)
    if config.precision == "bf16" and encoder.device.type == "cpu":
        raise UsageError("bf16 is hundreds of times slower than fp32 on a CPU: use precision fp32")
    spec = TrainSpec(vision=config.train_vision)
    encoder.check_trainable(spec)
    check_returns(encoder)
    processes = Processes.join(encoder.device)
    progress = progress and processes.main
    folder = Path(out) if out is not None else default_folder(recipe, config.seed)
    settings = describe_run(collection, encoder, recipe, config, processes.count)
    check_folder(folder, settings, overwrite=overwrite)
    run = Run(folder, encoder.device)
    if run.finished and not overwrite:
        return run

    with processes.main_first():
        images = embed(collection, encoder, split=config.split, progress=progress)
        validation = Validation.load(collection, encoder, config, progress=progress)
    data = TrainingSet.load(collection, images, recipe, split=config.split, seed=config.seed)
    if processes.main:
        begin_run(folder, settings, overwrite=overwrite)
        recover(folder / "checkpoint")
    processes.wait()
    model = encoder.trainable_copy(spec).train()
    model.max_length = max(
        config.max_length.of(name, model.max_tokens) for name in recipe.max_lengths
    )
    parameters = model.trained_parameters()
    pictures = None
    if config.train_vision:
        ids = [record.id for record in data.records]
        pictures = Pictures(collection, model, config.split, ids, folder, progress=progress)
    schedule = Schedule(len(data), config.batch_size, config.epochs, config.max_steps, config.seed)
    model.trained_on = images_used(collection, encoder, config, images, data, schedule, validation)
    trainer = _Trainer(
        run=run,
        config=config,
        recipe=recipe,
        data=data,
        validation=validation,
        model=model,
        parameters=parameters,
        optimizer=make_optimizer(parameters, config, model.vision_tensors()),
        schedule=schedule,
        processes=processes,
        pictures=pictures,
    )
    failed = [*images.failed, *(validation.failed if validation else [])]
    trainer.results["images_failed"] = [list(failure) for failure in failed]
    trainer.results["splits"] = splits_used(collection, config, model.trained_on, validation)
    trainer.go(progress)
    return run


def repeat(run: str | Path | Run, *, out: str | Path, progress: bool = True) -> Run:
    """Train again what the `run.yaml` of a run describes, into another folder.

    Raises:
        UsageError: the data or the encoder are no longer those of the run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    recipe, config = run.recipe, run.config
    collection = Collection.open(run.settings["collection"]["path"])
    encoder = load_encoder(run.settings["encoder"]["name"])
    changed = difference(run.settings, describe_run(collection, encoder, recipe, config, 1))
    if changed:
        raise UsageError(f"{run.folder} cannot be repeated as it was: {changed}")
    return train(collection, encoder, recipe=recipe, config=config, out=out, progress=progress)


@dataclass
class _Trainer:
    """The parts of a run, and its steps."""

    run: Run
    config: TrainConfig
    recipe: Recipe
    data: TrainingSet
    validation: Validation | None
    model: ImageTextEncoder
    parameters: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.AdamW
    schedule: Schedule
    processes: Processes
    pictures: Pictures | None
    progress: Progress = field(default_factory=Progress)
    results: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = MetricsLog(self.run.folder / "metrics.jsonl")
        self.state_path = self.run.folder / "last" / "state.safetensors"

    def go(self, progress: bool) -> None:
        """Take the steps that are still to be taken, and finish the run."""
        self.progress = load_progress(self.state_path, self.parameters, self.optimizer)
        self.processes.wait()
        if self.processes.main:
            self.log.trim(self.progress.step)
        notes = self._notes()
        if self.processes.main and self.model.trained_on is not None:
            self.model.trained_on.save_pretrained(self.run.folder)
        if progress:
            at = f", going on after step {self.progress.step:,}" if self.progress.step else ""
            print(f"training {self.recipe.name} into {self.run.folder}{at}", file=sys.stderr)
            print(split_line(self.results["splits"]), file=sys.stderr)
            print(f"texts for {self.recipe.name}: {found_line(self.data.found)}", file=sys.stderr)
            for note in notes:
                print(f"note: {note}", file=sys.stderr)

        pairs = self.data.report["pairs"] * self.schedule.steps // self.schedule.steps_per_epoch
        title = f"training {self.recipe.name}"
        saved = time.monotonic()
        with (
            progress_bar(title, pairs, unit="pairs", show=progress) as advance,
            closing(self._pixels()) as pixels,
        ):
            advance(self.progress.totals.get("pairs", 0))
            for step in range(self.progress.step, self.schedule.steps):
                report = self._step(step, pixels)
                advance(report.pairs, f"loss {report.loss:.3f}")
                if self.schedule.ends_epoch(step):
                    self._end_epoch(step)
                elif not self._due(step, saved):
                    continue
                self._save()
                saved = time.monotonic()
        self._finish(notes)

    def _pixels(self) -> Generator[list[torch.Tensor] | None, None, None]:
        """For each step to come, the pixels of this process's images; `None` for frozen vision."""
        steps = range(self.progress.step, self.schedule.steps)
        if self.pictures is None:
            yield from (None for _ in steps)
            return
        rows = (row for step in steps for row in self._own_rows(step))
        stream = self.pictures.stream(rows, self.config.batch_size)
        for step in steps:
            yield list(islice(stream, len(self._own_rows(step))))

    def _own_rows(self, step: int) -> np.ndarray:
        """The images of a step that this process encodes."""
        rows = self.schedule.rows(step)
        return rows[self.processes.part(len(rows))]

    def _step(self, step: int, pixels: Iterator[list[torch.Tensor] | None]) -> StepReport:
        """One step of AdamW on one batch; the weights are touched only if all is finite."""
        began = time.perf_counter()
        epoch = self.schedule.epoch(step)
        batch = self.data.batch(self.schedule.rows(step), epoch)
        rate = learning_rate(step, self.schedule.steps, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.optimizer.zero_grad()
        report = accumulate_gradients(
            self.model,
            batch,
            self.config,
            pixels=next(pixels),
            processes=self.processes,
            dropout_seed=step,
        )
        limit = self.config.clip_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit))
        if not (math.isfinite(report.loss) and math.isfinite(norm)):
            raise ParagrainError(
                f"training stopped at step {step + 1}, whose loss is {report.loss} and gradient "
                f"norm {norm}: try a lower learning rate than {self.config.learning_rate}"
            )
        self.optimizer.step()
        seconds = time.perf_counter() - began
        self._count(step, report, seconds)
        if self.processes.main and self._logs(step):
            self.log.append(
                step=step + 1,
                epoch=epoch + 1,
                loss=report.loss,
                image_to_text=report.image_to_text,
                text_to_image=report.text_to_image,
                learning_rate=rate,
                gradient_norm=norm,
                pairs_per_second=round(report.pairs / seconds, 1),
                tokens_per_second=round(report.tokens / seconds, 1),
            )
        return report

    def _logs(self, step: int) -> bool:
        return (step + 1) % self.config.log_every == 0 or step + 1 == self.schedule.steps

    def _count(self, step: int, report: StepReport, seconds: float) -> None:
        self.progress.step = step + 1
        self.progress.seconds += seconds
        totals = self.progress.totals
        for name in ("pairs", "texts", "tokens", "texts_truncated", "tokens_lost"):
            totals[name] = totals.get(name, 0) + getattr(report, name)

    def _due(self, step: int, saved: float) -> bool:
        """Whether the state should be saved in the middle of an epoch."""
        every = self.config.save_steps
        late = time.monotonic() - saved > 60 * self.config.save_minutes
        return late or (every is not None and (step + 1) % every == 0)

    def _end_epoch(self, step: int) -> None:
        """Measure, and keep the weights if they are the best so far."""
        if self.processes.main:
            score = measured = None
            if self.validation is not None:
                measured = self.validation.measure(self.model)
                score = measured["score"]
                self.log.append(
                    step=step + 1, epoch=self.schedule.epoch(step) + 1, validation=measured
                )
            best = self.progress.best_score
            if best is None or score is None or score > best:
                told = story(
                    self.run.settings,
                    self.recipe,
                    self.config,
                    len(self.data),
                    step + 1,
                    measured,
                )
                self.model.save(self.run.folder / "checkpoint", told)
                self.progress.best_step = step + 1
                self.progress.best_score = score
                self.progress.best_fingerprint = self.model.text_fingerprint
                if self.config.train_vision:
                    self.progress.best_vision_fingerprint = self.model.vision_fingerprint
        self.processes.wait()

    def _save(self) -> None:
        if self.processes.main:
            save_progress(self.state_path, self.progress, self.parameters, self.optimizer)

    def _finish(self, notes: list[str]) -> None:
        """Write `results.json`, which makes the run a finished one."""
        if self.processes.main:
            progress, settings = self.progress, self.run.settings
            at_best = [
                line["validation"]
                for line in self.log.read()
                if "validation" in line and line["step"] == progress.best_step
            ]
            results = {
                "recipe": self.recipe.name,
                "loss": self.recipe.loss,
                "steps": progress.step,
                "epochs": progress.step / self.schedule.steps_per_epoch,
                "best_step": progress.best_step,
                "best_score": progress.best_score,
                "validation": at_best[0] if at_best else None,
                "data": self.data.report,
                "found": [one.as_dict() for one in self.data.found],
                **self.results,
                "totals": progress.totals,
                "max_lengths": {name: self._max_length(name) for name in self.recipe.max_lengths},
                "seconds": round(progress.seconds, 3),
                "pairs_per_second": _rate(progress.totals["pairs"], progress.seconds),
                "seed": self.config.seed,
                "collection": {**settings["collection"], "split": self.config.split},
                "start": settings["encoder"],
                "train_vision": self.config.train_vision,
                "text_fingerprint": progress.best_fingerprint,
                "vision_fingerprint": progress.best_vision_fingerprint
                or settings["encoder"]["vision_fingerprint"],
                "code_version": metadata.version("paragrain"),
                "notes": notes,
            }
            write_json(self.run.folder / "results.json", results)
        self.processes.wait()

    def _max_length(self, name: str) -> int:
        return self.config.max_length.of(name, self.model.max_tokens)

    def _notes(self) -> list[str]:
        """What a reader should know, because it is not what the settings say."""
        notes = []
        report = self.data.report
        for reason, count in report.items():
            if reason.startswith(("left out", "used without")):
                notes.append(f"{count:,} of {report['images']:,} images {reason}")
        for split, used in self.results["splits"].items():
            if used["use"] != "trained" and used["same_content"]:
                notes.append(
                    f"{used['same_content']:,} of {used['images']:,} images of split {split} are "
                    "trained on too, since their bytes are those of images that are"
                )
        steps, warmup = self.schedule.steps, warmup_steps(self.schedule.steps, self.config)
        if warmup < self.config.warmup_steps:
            notes.append(f"the warm-up is {warmup} steps, since the run has only {steps}")
        for name in self.recipe.max_lengths:
            asked = getattr(self.config.max_length, name)
            if self._max_length(name) < asked:
                limit = self.model.max_tokens
                notes.append(f"{name} is cut at {limit} tokens, not {asked}: the encoder's limit")
        if self.config.train_vision:
            notes.append(
                "the vision tower trains too, so that image embeddings change with the run"
            )
        if self.validation is not None and self.config.validation_split == self.config.split:
            notes.append("the best weights are chosen on the images that are trained on")
        if self.validation is None:
            notes.append("there are no texts to validate on, so the last weights are the best")
        if len(self.data) < self.config.batch_size:
            notes.append(f"a batch is all {len(self.data)} images, fewer than batch_size")
        if self.recipe.note:
            notes.append(f"{self.recipe.name}: {self.recipe.note}")
        return notes


def _rate(count: int, seconds: float) -> float | None:
    """So many a second; None where the time is too short to tell."""
    return round(count / seconds, 1) if seconds > 0.01 else None
