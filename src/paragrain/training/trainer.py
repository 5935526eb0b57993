"""Training: the text encoder and its projection learn, everything else stays as it is.

(With `train_vision` the image tower and its projection learn too.)

`train` prepares a run and `_Trainer` takes its steps. All that a step does follows from the data,
the seed and its number, so a run that was killed goes on with the same curve.
"""

import copy
import math
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from paragrain.collection import Collection
from paragrain.embeddings import embed
from paragrain.encoders.base import ImageTextEncoder, TrainSpec, check_output
from paragrain.encoders.checkpoint import recover
from paragrain.encoders.loading import check_returns, load_encoder
from paragrain.errors import ParagrainError, UsageError
from paragrain.progress import progress_bar
from paragrain.training.batches import TrainingSet
from paragrain.training.checkpoints import load_progress, save_progress
from paragrain.training.config import TrainConfig, make_config
from paragrain.training.coverage import with_fallback
from paragrain.training.distributed import Processes
from paragrain.training.gradients import accumulate_gradients
from paragrain.training.images import ImageReader
from paragrain.training.objectives import (
    IMAGE_FEATURES,
    POOLED,
    WeightedSum,
    make_objectives,
    objective_class,
    required_features,
)
from paragrain.training.optimizer import make_optimizer, trained
from paragrain.training.provenance import images_used, splits_used
from paragrain.training.recipes import Recipe, load_recipe
from paragrain.training.reporting import Reporter
from paragrain.training.runs import (
    Run,
    begin_run,
    check_folder,
    default_folder,
    describe_run,
    difference,
)
from paragrain.training.schedule import Schedule
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
        progress: whether to show progress and notes on standard error.
        overrides: single settings of `TrainConfig`, such as `epochs=3`.

    Returns:
        The run: `.folder`, `.encoder` (the best), `.history`, `.results`.

    Raises:
        UsageError: a setting, recipe or loss does not exist, the data lack what it is made of, or
            the folder holds another run.
        ParagrainError: too few images with texts, or the loss is no longer finite.
    """
    config = make_config(config, overrides)
    collection, encoder = Collection.open(collection), load_encoder(encoder)
    recipe = with_fallback(collection, load_recipe(recipe), config.split, fallback)
    reads_images = _needs_images(encoder, recipe, config)
    processes = Processes.join(encoder.device)
    progress = progress and processes.is_main
    folder = Path(out) if out is not None else default_folder(recipe, config.seed)
    settings = describe_run(collection, encoder, recipe, config, processes.world_size)
    check_folder(folder, settings, overwrite=overwrite)
    run = Run(folder, encoder.device)
    if run.finished and not overwrite:
        return run

    reader, embeddings = None, None
    with processes.main_first():
        if reads_images:
            reader = ImageReader(collection, encoder, config.split, folder, progress=progress)
            contents, failed = reader.contents, reader.failed
        else:
            images = embed(collection, encoder, split=config.split, progress=progress)
            contents = dict(zip(images.ids, images.contents, strict=True))
            failed, embeddings = images.failed, images.vectors
        validation = Validation.load(collection, encoder, config, progress=progress)
    data = TrainingSet.load(
        collection,
        contents,
        recipe,
        split=config.split,
        seed=config.seed,
        embeddings=embeddings,
        fields=[field for name in recipe.losses for field in objective_class(name).fields],
    )
    schedule = Schedule(len(data), config)
    model = encoder.trainable_copy(TrainSpec(vision=config.train_vision)).train()
    model.max_length = max(
        config.max_length.of(name, model.max_tokens) for name in recipe.max_lengths
    )
    model.trained_on = images_used(collection, encoder, config, data, schedule, validation)
    reporter = Reporter(
        run,
        recipe,
        config,
        data,
        schedule,
        model,
        validates=validation is not None,
        splits=splits_used(collection, config, model.trained_on, validation),
        failed=[*failed, *(validation.failed if validation else [])],
    )
    objectives = make_objectives(recipe.losses, model, config)
    if processes.is_main:
        begin_run(folder, settings, overwrite=overwrite)
        recover(folder / "checkpoint")
        model.trained_on.save_pretrained(folder)
    processes.barrier()
    _Trainer(
        config, recipe, data, schedule, model, objectives, processes, validation, reader, reporter
    ).go(progress)
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


def _needs_images(encoder: ImageTextEncoder, recipe: Recipe, config: TrainConfig) -> bool:
    """Whether steps read images themselves, and not only their cached embeddings.

    Raises:
        UsageError: the encoder, the losses and the settings do not go together.
    """
    if config.precision == "bf16" and encoder.device.type == "cpu":
        raise UsageError("bf16 is hundreds of times slower than fp32 on a CPU: use precision fp32")
    encoder.check_trainable(TrainSpec(vision=config.train_vision))
    for stage in config.stages:
        for name in stage.weights or ():
            if name not in recipe.losses:
                raise UsageError(
                    f"a stage weighs the loss {name}, which {recipe.name} does not have: add it to "
                    "the recipe"
                )
    required = required_features(recipe.losses)
    for name, output, offered in (
        ("image_states", "patches", encoder.image_outputs),
        ("text_states", "tokens", encoder.text_outputs),
    ):
        if name in required:
            check_output(encoder.name, output, offered)
    check_returns(encoder)
    return config.train_vision or bool(required & IMAGE_FEATURES - POOLED)


@dataclass
class _Trainer:
    """The parts of a run, and its steps."""

    config: TrainConfig
    recipe: Recipe
    data: TrainingSet
    schedule: Schedule
    model: ImageTextEncoder
    objectives: nn.ModuleDict
    processes: Processes
    validation: Validation | None
    reader: ImageReader | None
    reporter: Reporter

    def __post_init__(self) -> None:
        own = {f"objectives.{name}": p for name, p in self.objectives.named_parameters()}
        vision = self.model.vision_tensors() if self.config.train_vision else {}
        # The image tower first, as when BLIP0 was made: the order decides how norms are rounded.
        self.parameters = trained({**vision, **self.model.trained_parameters(), **own})
        self.optimizer = make_optimizer(self.parameters, self.config, vision)
        # Queues and momentum copies, which are saved but not trained.
        self.buffers = {
            name: tensor
            for name, tensor in self.objectives.state_dict(prefix="objectives.").items()
            if name not in self.parameters
        }
        self.state_path = self.reporter.run.folder / "last" / "state.safetensors"

    def go(self, progress: bool) -> None:
        """Take the steps that are still to be taken, and finish the run."""
        self._resume()
        if progress:
            self.reporter.print_beginning(self.progress.step)
        with closing(self._pixels()) as pixels:
            self._steps(pixels, progress)
        if self.processes.is_main:
            self.reporter.write_results(self.progress)
        self.processes.barrier()

    def _steps(self, pixels: Iterator[list[Tensor] | None], progress: bool) -> None:
        config, schedule, saved = self.config, self.schedule, time.monotonic()
        pairs = self.data.report["pairs"] * schedule.steps // schedule.steps_per_epoch
        title = f"training {self.recipe.name}"
        with progress_bar(title, pairs, unit="pairs", show=progress) as advance:
            advance(pairs * self.progress.step // schedule.steps)
            for step in range(self.progress.step, schedule.steps):
                began = time.perf_counter()
                batch = self.data.batch(schedule.rows(step), step=step, epoch=schedule.epoch(step))
                for group in self.optimizer.param_groups:
                    group["lr"] = schedule.learning_rate(step) * group["scale"]
                self.optimizer.zero_grad()
                report = accumulate_gradients(  # forward, losses, backward
                    self.model,
                    self._loss(step),
                    batch,
                    config,
                    pixels=next(pixels),
                    processes=self.processes,
                    step=step,
                )
                most = config.clip_norm or math.inf
                norm = float(nn.utils.clip_grad_norm_(self.parameters.values(), most))
                self._check_finite(step, report.loss, norm)
                self.optimizer.step()
                seconds = time.perf_counter() - began
                self.progress.count(report, seconds)
                if self.processes.is_main:
                    self.reporter.log_step(step, report, norm, seconds)
                advance(int((~batch.negative).sum()), f"loss {report.loss:.3f}")
                if schedule.ends_epoch(step):
                    self._end_epoch(step)
                if schedule.ends_epoch(step) or self._is_due(step, saved):
                    self._save()
                    saved = time.monotonic()

    def _loss(self, step: int) -> WeightedSum:
        """What a step minimises."""
        stage, _ = self.schedule.stage(step)
        weights = self.recipe.weights if stage.weights is None else stage.weights
        return WeightedSum(self.objectives, weights)

    def _pixels(self) -> Generator[list[Tensor] | None]:
        """For each step to come, the pixels of this process's images, if steps read images."""
        steps = range(self.progress.step, self.schedule.steps)
        if self.reader is None:
            yield from (None for _ in steps)
            return
        ids = (self.data.records[row].id for step in steps for row in self._own_rows(step))
        stream = self.reader.stream(ids, self.config.batch_size)
        for step in steps:
            yield list(islice(stream, len(self._own_rows(step))))

    def _own_rows(self, step: int) -> np.ndarray:
        """The images of a step that this process encodes."""
        rows = self.schedule.rows(step)
        return rows[self.processes.part(len(rows))]

    def _check_finite(self, step: int, loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ParagrainError(
                f"training stopped at step {step + 1}, whose loss is {loss} and gradient "
                f"norm {norm}: try a lower learning rate than {self.config.learning_rate}"
            )

    def _is_due(self, step: int, saved: float) -> bool:
        """Whether the state should be saved in the middle of an epoch."""
        every = self.config.save_steps
        late = time.monotonic() - saved > 60 * self.config.save_minutes
        return late or (every is not None and (step + 1) % every == 0)

    def _end_epoch(self, step: int) -> None:
        """Measure, and keep the weights if they are the best so far."""
        if self.processes.is_main:
            measured, best = None, self.progress.best_score
            if self.validation is not None:
                measured = self.validation.measure(self.model)
                self.reporter.log_validation(step, measured)
            score = measured["score"] if measured else None
            if best is None or score is None or score > best:
                self._keep(step, measured)
                self.progress.best_score = score
        self.processes.barrier()

    def _keep(self, step: int, measured: dict[str, Any] | None) -> None:
        """Write the weights to `checkpoint/`, and remember what they are."""
        kept = self.model
        if self.config.checkpoint_dtype == "float16":
            kept = copy.deepcopy(kept).half()
        kept.save(self.reporter.run.folder / "checkpoint", self.reporter.story(step + 1, measured))
        kept.float()  # as it will be loaded
        self.progress.best_step = step + 1
        self.progress.best_fingerprint = kept.text_fingerprint
        if self.config.train_vision:
            self.progress.best_vision_fingerprint = kept.vision_fingerprint

    def _resume(self) -> None:
        """Go back to where a killed run was saved."""
        self.progress = load_progress(
            self.state_path, self.parameters, self.optimizer, self.buffers
        )
        began_with, now = self.progress.images, len(self.data)
        if began_with not in (0, now):
            raise ParagrainError(
                f"the run in {self.reporter.run.folder} began with {began_with:,} images and "
                f"{now:,} of them can be used now: put them back, or --overwrite it"
            )
        self.progress.images = now
        self.processes.barrier()
        if self.processes.is_main:
            self.reporter.log.trim(self.progress.step)

    def _save(self) -> None:
        if self.processes.is_main:
            save_progress(
                self.state_path, self.progress, self.parameters, self.optimizer, self.buffers
            )
