"""A measurement and everything that says what it is of, as one file with its ranks beside it."""

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, Tokens
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation.benchmark import Benchmark
from paragrain.evaluation.stored import QueryRanks
from paragrain.evaluation.told import results_table, trained_on_lines
from paragrain.files import read_json, write_json
from paragrain.retrieval import RetrievalScores


@dataclass(frozen=True, repr=False)
class Result:
    """Scores of one encoder on one benchmark at one maximum length.

    Attributes:
        scores: recall and ranks, both directions, strict and lenient.
        about: what was measured: data, split, encoder, tokenizer, length, cuts, code version, and
            what the encoder had learned from.
        queries: how each query fared.
    """

    scores: RetrievalScores
    about: dict[str, Any]
    queries: QueryRanks = field(compare=False)

    def __repr__(self) -> str:
        """Model, data and recalls in a few lines."""
        about, protocol = self.about, self.about["protocol"]
        recalls = [
            f"{name}: " + ", ".join(f"R@{k} {value:.1f}" for k, value in recall.items())
            for name, recall in (
                ("image to text", self.image_to_text),
                ("text to image", self.text_to_image),
            )
        ]
        head = (
            f"<{about['encoder']['name']} on {about['collection']['name']}, split "
            f"{about['collection']['split']}: {self.scores.images:,} images, "
            f"{self.scores.texts:,} texts of {protocol['text_field']}, "
            f"{protocol['max_length']} tokens"
        )
        return "\n".join([head, *trained_on_lines(about), *recalls]) + ">"

    @property
    def image_to_text(self) -> dict[int, float]:
        """Strict Recall@K in percent, by K."""
        return self.scores.strict.image_to_text.recall

    @property
    def text_to_image(self) -> dict[int, float]:
        """Strict Recall@K in percent, by K."""
        return self.scores.strict.text_to_image.recall

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """95 % intervals of every Recall@K in percent; see `QueryRanks.intervals`."""
        return self.queries.intervals(list(self.image_to_text))

    def as_dict(self) -> dict[str, Any]:
        """The content of a result file; `ranks` is the fingerprint of the file beside it."""
        return {
            **self.about,
            "scores": self.scores.as_dict(),
            "intervals": self.intervals,
            "ranks": self.queries.fingerprint,
        }

    def to_frame(self) -> Any:
        """A pandas table with a row for each direction, judgement and K; see `results_table`.

        Raises:
            ParagrainError: pandas is not installed.
        """
        return frame([self])

    def save(self, path: str | Path) -> None:
        """Write the result: a `.json` with the ranks beside it as `.npz`, or a `.csv` table.

        Raises:
            UsageError: the name has another end, or is a folder's.
            ParagrainError: there is no room.
        """
        save_results([self], path)


def save_results(results: Sequence[Result], path: str | Path) -> None:
    """Write results of several models, at several maximum lengths, or a single one, as one file.

    A `.json` holds everything, and the ranks of each result lie beside it; a `.csv` is a table of
    the scores (see `results_table`).

    Raises:
        UsageError: the name has another end, or is a folder's.
        ParagrainError: there is no room.
    """
    path = Path(path)
    check_out(path)
    if path.suffix == ".csv":
        results_table([result.as_dict() for result in results]).write_csv(path)
        return
    entries = [result.as_dict() for result in results]
    for result, file in zip(results, ranks_files(path, entries), strict=True):
        result.queries.save(file)
    write_json(path, entries[0] if len(entries) == 1 else {"results": entries})


def frame(results: Sequence[Result]) -> Any:
    """Results as one pandas table; see `results_table`.

    Raises:
        ParagrainError: pandas is not installed.
    """
    return results_table([result.as_dict() for result in results]).data_frame()


def check_out(path: Path) -> None:
    """Refuse a name for a result file, before anything is computed.

    Raises:
        UsageError: it is a folder, ends with neither .json nor .csv, or cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file for the result")
    if path.suffix not in (".json", ".csv"):
        raise UsageError(f"{path} is no name for a result: let it end with .json or .csv")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise UsageError(f"{path} cannot be written: choose another folder for the result")


def figure_path(path: Path) -> Path:
    """Where the plot of a sweep lies, beside its result file.

    >>> figure_path(Path("runs/sweep.json")).name
    'sweep.svg'
    """
    return path.with_suffix(".svg")


def ranks_files(path: Path, entries: Sequence[dict[str, Any]]) -> list[Path]:
    """Where the ranks of each entry of a result file lie.

    >>> def entry(name: str, max_length: int) -> dict[str, Any]:
    ...     return {"encoder": {"name": name}, "protocol": {"max_length": max_length}}
    >>> [file.name for file in ranks_files(Path("r.json"), [entry("a", 40)])]
    ['r.npz']
    >>> [file.name for file in ranks_files(Path("r.json"), [entry("a", 40), entry("a", 60)])]
    ['r-40.npz', 'r-60.npz']
    >>> [file.name for file in ranks_files(Path("r.json"), [entry("a", 40), entry("b", 40)])]
    ['r-1-40.npz', 'r-2-40.npz']
    """
    if len(entries) == 1:
        return [path.with_suffix(".npz")]
    names = list(dict.fromkeys(entry["encoder"]["name"] for entry in entries))
    files = []
    for entry in entries:
        model = f"{names.index(entry['encoder']['name']) + 1}-" if len(names) > 1 else ""
        files.append(path.with_name(f"{path.stem}-{model}{entry['protocol']['max_length']}.npz"))
    return files


@dataclass(frozen=True, repr=False)
class SavedResult:
    """A result that was read from its file.

    Attributes:
        path: the result file; what an error calls it, where there is none.
        about: what it says of itself, as `Result.as_dict` wrote it.
        queries: the ranks from beside it.
    """

    path: Path
    about: dict[str, Any]
    queries: QueryRanks

    def __repr__(self) -> str:
        """Where it is from."""
        return f"<result of {self.about['encoder']['name']} from {self.path}>"


def load_result(
    path: str | Path, max_length: int | None = None, model: str | None = None
) -> SavedResult:
    """Read a result file and its ranks; of several results, that of a maximum length and a model.

    Args:
        path: a result file.
        max_length: of the texts.
        model: see `models_in`; it has to name one.

    Raises:
        UsageError: there is no such file, or no such result in it.
        UsageError: it is no result, or is damaged.
        ParagrainError: the ranks beside it belong to another.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a result is read from its file, not from {type(path).__name__}")
    path = Path(path)
    entries = result_entries(path)
    files = ranks_files(path, entries)
    if model is not None:
        model, *others = models_in(path, model)
        if others:
            raise UsageError(f"{path} has {', '.join([model, *others])}: say which with --model")
    length, name = "{0[protocol][max_length]} tokens", "model {0[encoder][name]}"
    wanted = list(range(len(entries)))
    for what, asked, told, option in (
        (name, model, f"model {model}", "--model"),
        (length, max_length, f"{max_length} tokens", "--max-length"),
    ):
        there = list(dict.fromkeys(what.format(entries[place]) for place in wanted))
        if asked is None and len(there) > 1:
            raise UsageError(f"{path} has results of {', '.join(there)}: say which with {option}")
        if asked is not None and told not in there:
            raise UsageError(f"{path} has no result of {told}: it has {', '.join(there)}")
        told = there[0] if asked is None else told
        wanted = [place for place in wanted if what.format(entries[place]) == told]
    place = wanted[0]
    queries = QueryRanks.load(files[place])
    if queries.fingerprint != entries[place]["ranks"]:
        raise ParagrainError(
            f"the ranks {files[place]} are not those of {path}: evaluate again with --out"
        )
    return SavedResult(path, entries[place], queries)


def models_in(path: str | Path, like: str | None = None) -> list[str]:
    """The names of the models of a result file, in their order.

    Args:
        path: a result file.
        like: only those of this name: a model's, that of its run's folder, or either with `*` for
            what differs between several, such as "runs/c5/seed*".

    Raises:
        UsageError: it has no such model.
        UsageError, ParagrainError: see `load_result`.
    """
    names = dict.fromkeys(str(entry["encoder"]["name"]) for entry in result_entries(Path(path)))
    if like is None:
        return list(names)
    like = like.rstrip("/")
    exact = [name for name in names if like in _called(name)]
    found = exact or [name for name in names if fnmatch.filter(_called(name), like)]
    if not found:
        raise UsageError(f"{path} has no result of model {like}: it has {', '.join(names)}")
    return found


def _called(name: str) -> list[str]:
    """What people call a model: its name, and the folder of the run whose checkpoint it is.

    >>> _called("runs/c5/checkpoint"), _called("blip0")
    (['runs/c5/checkpoint', 'runs/c5'], ['blip0'])
    """
    return list(dict.fromkeys((name, name.removesuffix("/checkpoint"))))


def result_entries(path: Path) -> list[dict[str, Any]]:
    """What a result file says of each of its results, without their ranks.

    Raises:
        UsageError, ParagrainError: see `load_result`.
    """
    try:
        content = read_json(path)
        entries: list[dict[str, Any]] = content.get("results", [content])
        for entry in entries:
            entry["protocol"]["max_length"], entry["encoder"]["name"], entry["ranks"]
        entries[0]
    except FileNotFoundError:
        raise UsageError(f"there is no result file {path}: check the path") from None
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{path} is not a result file with ranks: write one with `paragrain evaluate --out` "
            "and a name that ends with .json"
        ) from error
    return entries


def describe(
    benchmark: Benchmark,
    collection: Collection,
    encoder: ImageTextEncoder,
    tokens: Tokens,
    scores: RetrievalScores,
    queries: QueryRanks,
    protocol: dict[str, Any],
) -> Result:
    """Put scores and what they are of together; `protocol` is what the protocol says of itself."""
    about = {
        "collection": {
            "name": collection.name,
            "fingerprint": collection.fingerprint,
            "split": benchmark.split or "all",
            "contents": benchmark.fingerprint,
        },
        "encoder": {
            "name": encoder.name,
            "vision_fingerprint": encoder.vision_fingerprint,
            "text_fingerprint": encoder.text_fingerprint,
            "tokenizer": type(encoder.tokenizer).__name__,
        },
        "protocol": {
            **protocol,
            "text_field": benchmark.text_field,
            **tokens.summary(),
        },
        "images_failed": [list(failure) for failure in benchmark.failed],
        "empty_texts_left_out": benchmark.empty_texts,
        "seed": None,  # exact ranks over all texts: nothing is drawn but what the protocol samples
        "code_version": version("paragrain"),
    }
    return Result(scores, about, queries)
