"""What a run tells: its notes, the lines of its log, its results, the card of its checkpoint."""

import re
import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import metadata
from typing import Any

from paragrain.encoders.base import ImageTextEncoder
from paragrain.encoders.card import Story
from paragrain.files import write_json
from paragrain.training.batches import TrainingSet
from paragrain.training.checkpoints import MetricsLog, Progress
from paragrain.training.config import TrainConfig
from paragrain.training.gradients import StepReport
from paragrain.training.provenance import split_line
from paragrain.training.recipes import Recipe
from paragrain.training.runs import Run
from paragrain.training.schedule import Schedule, warmup_steps
from paragrain.words import counted

_ON_CARD = ("learning_rate", "batch_size", "epochs", "max_steps", "temperature", "seed")


@dataclass
class Reporter:
    """Tells of one run, on standard error and in its folder.

    Attributes:
        run, recipe, config, data, schedule, model: the parts of the run.
        validates: whether there are texts to validate on.
        splits: what each split is to the run, from `splits_used`.
        failed: (id, reason) of images that could not be used.
    """

    run: Run
    recipe: Recipe
    config: TrainConfig
    data: TrainingSet
    schedule: Schedule
    model: ImageTextEncoder
    validates: bool
    splits: dict[str, dict[str, Any]]
    failed: list[tuple[str, str]]

    def __post_init__(self) -> None:
        self.log = MetricsLog(self.run.folder / "metrics.jsonl")

    def print_beginning(self, step: int) -> None:
        """Say what is about to be trained, from which step, and every note."""
        at = f", going on after step {step:,}" if step else ""
        coverage = "; ".join(map(str, self.data.coverage))
        print(f"training {self.recipe.name} into {self.run.folder}{at}", file=sys.stderr)
        print(split_line(self.splits), file=sys.stderr)
        print(f"texts for {self.recipe.name}: {coverage}", file=sys.stderr)
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)

    def log_step(self, step: int, report: StepReport, norm: float, seconds: float) -> None:
        """Write the line of a step (from 0), if it is one of those that are logged."""
        if (step + 1) % self.config.log_every and step + 1 < self.schedule.steps:
            return
        self.log.append(
            step=step + 1,
            epoch=self.schedule.epoch(step) + 1,
            **report.losses,
            learning_rate=self.schedule.learning_rate(step),
            gradient_norm=norm,
            pairs_per_second=round(report.pairs / seconds, 1),
            tokens_per_second=round(report.tokens / seconds, 1),
        )

    def log_validation(self, step: int, measured: dict[str, Any]) -> None:
        """Write the line of a validation after a step (from 0)."""
        self.log.append(step=step + 1, epoch=self.schedule.epoch(step) + 1, validation=measured)

    @cached_property
    def notes(self) -> list[str]:
        """What a reader should know, because it is not what the settings say."""
        report, config = self.data.report, self.config
        notes = [
            f"{count:,} of {report['images']:,} images {reason}"
            for reason, count in report.items()
            if reason.startswith(("left out", "used without"))
        ]
        notes += [
            f"{used['same_content']:,} of {used['images']:,} images of split {split} are "
            "trained on too, since their bytes are those of images that are"
            for split, used in self.splits.items()
            if used["use"] != "trained" and used["same_content"]
        ]
        shortest = min((stage.steps for stage in config.stages), default=self.schedule.steps)
        warmup = warmup_steps(shortest, config)
        if warmup < config.warmup_steps:
            part = "a stage" if config.stages else "the run"
            notes.append(
                f"the warm-up is {counted(warmup, 'step')}, since {part} has only {shortest}"
            )
        limit = self.model.max_tokens
        notes += [
            f"{name} is truncated at {limit} tokens, not {asked}: the encoder's limit"
            for name in self.recipe.max_lengths
            if (asked := getattr(config.max_length, name)) > limit
        ]
        if config.train_vision:
            notes.append("the image tower trains too, so that image embeddings change with the run")
        if self.validates and config.validation_split == config.split:
            notes.append("the best weights are chosen on the images that are trained on")
        if not self.validates:
            notes.append("there are no texts to validate on, so the last weights are the best")
        if len(self.data) < config.batch_size:
            notes.append(f"a batch is all {len(self.data)} images, fewer than batch_size")
        if self.recipe.note:
            notes.append(f"{self.recipe.name}: {self.recipe.note}")
        return notes

    def write_results(self, progress: Progress) -> None:
        """Write `results.json`, which makes the run a finished one."""
        settings, config = self.run.settings, self.config
        at_best = (
            line["validation"]
            for line in self.log.read()
            if "validation" in line and line["step"] == progress.best_step
        )
        seconds, pairs = progress.seconds, progress.totals["pairs"]
        results = {
            "recipe": self.recipe.name,
            "loss": self.recipe.loss,
            "steps": progress.step,
            "epochs": progress.step / self.schedule.steps_per_epoch,
            "best_step": progress.best_step,
            "best_score": progress.best_score,
            "validation": next(at_best, None),
            "data": self.data.report,
            "found": [asdict(one) for one in self.data.coverage],
            "images_failed": [list(failure) for failure in self.failed],
            "splits": self.splits,
            "totals": progress.totals,
            "max_lengths": {
                name: config.max_length.of(name, self.model.max_tokens)
                for name in self.recipe.max_lengths
            },
            "seconds": round(seconds, 3),
            # None where the time is too short to tell.
            "pairs_per_second": round(pairs / seconds, 1) if seconds > 0.01 else None,
            "seed": config.seed,
            "collection": {**settings["collection"], "split": config.split},
            "start": settings["encoder"],
            "train_vision": config.train_vision,
            "text_fingerprint": progress.best_fingerprint,
            "vision_fingerprint": progress.best_vision_fingerprint
            or settings["encoder"]["vision_fingerprint"],
            "code_version": metadata.version("paragrain"),
            "notes": self.notes,
        }
        write_json(self.run.folder / "results.json", results)

    def story(self, step: int, measured: dict[str, Any] | None) -> Story:
        """How the weights after `step` steps came to be, for the checkpoint's README.md.

        Args:
            step: steps taken.
            measured: what `Validation.measure` gave; `None` without a validation split.
        """
        data, config = self.run.settings["collection"], self.config
        start = _public(self.run.settings["encoder"]["name"])
        licence = data.get("licence") or "not stated"
        side = "Both sides" if config.train_vision else "The text side and its projection"
        return Story(
            start=start,
            sections={
                "Data": f"{side} learned from {len(self.data):,} images and their texts, the split "
                f"`{config.split}` of the collection `{data['name']}` (fingerprint "
                f"`{data['fingerprint']}`), beginning at `{start}`.",
                "Recipe": _recipe_card(self.recipe),
                "Settings": _settings_card(config, step),
                "Recall": _recall_card(config, measured),
            },
            licence=f"Not chosen here. It follows from the start, `{start}`, and from the data, "
            f"whose licence is: {licence}.",
        )


def _public(name: str) -> str:
    """A name that tells no folders of this machine.

    >>> _public("facebook/dinov2-base+/home/me/models/text"), _public("mean-blip:/srv/blip@248")
    ('facebook/dinov2-base+text', 'mean-blip:blip@248')
    """
    return re.sub(r"(^|[+:])/(?:[^+]*/)?", r"\1", name)


def _recipe_card(recipe: Recipe) -> str:
    content = recipe.content()
    lines = [
        f"- {side}: " + ", ".join(f"{key} {value}" for key, value in selection.items())
        for side in ("positives", "negatives")
        for selection in content.get(side, ())
    ]
    return "\n".join([f"`{recipe.name}`, with the {recipe.loss} loss.", "", *lines])


def _settings_card(config: TrainConfig, step: int) -> str:
    values = config.settings()
    rows = [f"| {key} | {values[key]} |" for key in _ON_CARD if values[key] is not None]
    max_lengths = ", ".join(f"{field} {tokens}" for field, tokens in values["max_length"].items())
    rows += [f"| maximum lengths | {max_lengths} |", f"| steps taken | {step:,} |"]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _recall_card(config: TrainConfig, measured: dict[str, Any] | None) -> str:
    if measured is None or not measured["fields"]:
        return "Not measured: there were no texts to validate on."
    rows = []
    for field, scores in measured["fields"].items():
        strict, bounds = scores["strict"], scores["intervals"]["strict"]
        for direction in ("image_to_text", "text_to_image"):
            cells = []
            for k in ("R@1", "R@5", "R@10"):
                low, high = bounds[direction][k]
                cells.append(f"{strict[direction][k]:.1f} [{low:.1f}, {high:.1f}]")
            rows.append(f"| {field} | {direction.replace('_', ' ')} | {' | '.join(cells)} |")
    images = next(iter(measured["fields"].values()))["counts"]["images"]
    return (
        f"In percent, with 95 % intervals, among the {images:,} images of the split "
        f"`{config.validation_split}`, on which these weights were chosen from those of other "
        "epochs; texts are truncated at the maximum lengths above.\n\n"
        "| texts | direction | R@1 | R@5 | R@10 |\n|---|---|---|---|---|\n" + "\n".join(rows)
    )
