"""One cell of a study: trained if need be, measured on every benchmark, each result a file.

    cells/<name>-<key>/[seed<N>/]
        run/                  the run of `paragrain.training`
        <benchmark>-<key>.json, .npz       a result and its ranks
        curve-<curve>-<key>.json, .npz     results at several maximum lengths
        failed.txt            why it failed, if it did when it last ran

What is there is not done again: a cell is finished when all of these are there.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.errors import ParagrainError
from paragrain.evaluation import save_results, sweep
from paragrain.files import read_json, slug, write_text
from paragrain.study.plan import Cell, Study, short_hash
from paragrain.study.schema import BenchmarkSpec
from paragrain.training import train
from paragrain.training.runs import Run
from paragrain.training.token_counts import steps_for_tokens

FAILED = "failed.txt"


def cell_folder(cell: Cell, out: Path) -> Path:
    """Where a cell lies."""
    return out / "cells" / cell.folder


def result_path(study: Study, cell: Cell, benchmark: str, out: Path) -> Path:
    """The result file of a cell on a benchmark."""
    spec = study.file.benchmarks[benchmark]
    key = short_hash([_key(spec), cell_max_length(cell, spec)]) if cell.max_length else _key(spec)
    return cell_folder(cell, out) / f"{slug(benchmark)}-{key}.json"


def curve_path(study: Study, cell: Cell, curve: str, out: Path) -> Path:
    """The file of a cell's results at several maximum lengths."""
    spec = study.file.curves[curve]
    key = short_hash([_key(study.file.benchmarks[spec.benchmark]), spec.max_lengths])
    return cell_folder(cell, out) / f"curve-{slug(curve)}-{key}.json"


def _key(spec: BenchmarkSpec) -> str:
    """Eight digits of what decides a result, besides the model."""
    return short_hash(spec.model_dump(mode="json", exclude={"kind", "title", "models"}))


def missing(study: Study, cell: Cell, out: Path) -> list[Path]:
    """The files that the cell still lacks."""
    folder = cell_folder(cell, out)
    wanted = [] if cell.recipe is None else [folder / "run" / "results.json"]
    wanted += [result_path(study, cell, name, out) for name in study.benchmarks(cell.name)]
    wanted += [curve_path(study, cell, name, out) for name in study.curves(cell.name)]
    return [path for path in wanted if not path.is_file()]


def failure(cell: Cell, out: Path) -> str:
    """Why a cell failed when it last ran; "" if it did not."""
    path = cell_folder(cell, out) / FAILED
    return path.read_text("utf-8") if path.is_file() else ""


def note_failure(cell: Cell, out: Path, why: str) -> None:
    """Keep why a cell failed, for the report; "" once it ran well."""
    path = cell_folder(cell, out) / FAILED
    if why:
        write_text(path, why)
    else:
        path.unlink(missing_ok=True)


def run_cell(
    study: Study,
    cell: Cell,
    out: Path,
    collections: Mapping[str, Collection],
    *,
    device: str | None = None,
    progress: bool = False,
) -> dict[str, float]:
    """Do what a cell still lacks.

    Returns:
        seconds of its parts, those of this call.

    Raises:
        ParagrainError: the training or a measurement failed, in words.
    """
    began = time.monotonic()
    seconds = {}
    if cell.recipe is None:
        encoder = load_encoder(cell.model, device)
    else:
        encoder = _trained(cell, out, collections[cell.collection or ""], device, progress)
        seconds["training"] = time.monotonic() - began
    began = time.monotonic()
    for name in study.benchmarks(cell.name):
        collection = collections[study.file.benchmarks[name].collection]
        _measure(study, cell, name, encoder, collection, out)
    if cell.settings is not None and cell.settings.train_vision:
        start = training_results(cell, out)["start"]["vision_fingerprint"]
        if encoder.vision_fingerprint != start:
            _drop_vectors(collections, encoder)
    seconds["measuring"] = time.monotonic() - began
    return seconds


def _drop_vectors(collections: Mapping[str, Collection], encoder: ImageTextEncoder) -> None:
    """Delete the image embeddings of a image tower that no other cell has, once all is measured."""
    for collection in collections.values():
        folder = collection.folder / "embeddings" / encoder.vision_fingerprint
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    study: Study,
    cell: Cell,
    benchmark: str,
    encoder: ImageTextEncoder,
    collection: Collection,
    out: Path,
) -> None:
    """Write the result on a benchmark and its curves, as far as they lack, from one encoding."""
    spec = study.file.benchmarks[benchmark]
    own = min(cell_max_length(cell, spec), encoder.max_tokens)
    wanted = {result_path(study, cell, benchmark, out): [own]}
    for name in study.curves(cell.name):
        curve = study.file.curves[name]
        if curve.benchmark == benchmark:
            read = {min(max_length, encoder.max_tokens) for max_length in curve.max_lengths}
            wanted[curve_path(study, cell, name, out)] = sorted(read)
    lacking = {path: max_lengths for path, max_lengths in wanted.items() if not path.is_file()}
    if not lacking:
        return
    together = sorted({max_length for asked in lacking.values() for max_length in asked})
    results = sweep(collection, encoder, together, progress=False, **spec.what())
    found = dict(zip(together, results, strict=True))
    for path, asked in lacking.items():
        if path == result_path(study, cell, benchmark, out):
            found[own].save(path)
        else:
            save_results([found[max_length] for max_length in asked], path)


def cell_max_length(cell: Cell, spec: BenchmarkSpec) -> int:
    """The maximum length of a benchmark, or the model's own where the text is long."""
    return cell.max_length if cell.max_length and spec.kind != "short" else spec.length


def _trained(
    cell: Cell, out: Path, collection: Collection, device: str | None, progress: bool
) -> ImageTextEncoder:
    assert cell.recipe is not None
    assert cell.settings is not None
    run = Run(cell_folder(cell, out) / "run", None if device is None else torch.device(device))
    if not run.finished:
        start = load_encoder(cell.model, device)
        config = cell.settings
        if cell.like is not None:
            assert cell.like.recipe is not None
            assert cell.like.settings is not None
            steps = steps_for_tokens(
                collection, start, cell.recipe, config, cell.like.recipe, cell.like.settings
            )
            config = config.model_copy(update={"max_steps": steps, "epochs": 1_000_000})
        run = train(
            collection,
            start,
            recipe=cell.recipe,
            out=run.folder,
            config=config,
            progress=progress,
        )
    # The state for resume is three times the model, and a finished run needs it no more.
    shutil.rmtree(run.folder / "last", ignore_errors=True)
    return load_encoder(str(run.folder / "checkpoint"), device)


def training_results(cell: Cell, out: Path) -> dict[str, Any]:
    """What the finished training of a cell says of itself.

    Raises:
        ParagrainError: it is not finished.
    """
    path = cell_folder(cell, out) / "run" / "results.json"
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise ParagrainError(
            f"the training of {cell.label} is not finished: run the study on"
        ) from error
