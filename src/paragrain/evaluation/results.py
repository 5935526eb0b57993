"""A measurement and everything that says what it is of, as one file with its ranks beside it."""

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
from paragrain.files import read_json, write_json
from paragrain.retrieval import RetrievalScores


@dataclass(frozen=True)
class Result:
    """Scores of one encoder on one benchmark at one token budget.

    Attributes:
        scores: recall and ranks, both directions, strict and lenient.
        about: what was measured: data, split, encoder, tokenizer, budget, cuts, code version.
        queries: how each query fared.
    """

    scores: RetrievalScores
    about: dict[str, Any]
    queries: QueryRanks = field(compare=False, repr=False)

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

    def save(self, path: Path) -> None:
        """Write the result file, and the ranks beside it under the same name with `.npz`.

        Raises:
            UsageError: the name ends with `.npz`.
        """
        self.queries.save(ranks_path(path))
        write_json(path, self.as_dict())


def save_sweep(results: Sequence[Result], path: Path) -> dict[str, Any]:
    """Write results at several budgets as one file, and the ranks of each beside it.

    Returns:
        the content of the file.
    """
    for result in results:
        result.queries.save(ranks_path(path, result.about["protocol"]["token_budget"]))
    content = {"sweep": [result.as_dict() for result in results]}
    write_json(path, content)
    return content


def check_out(path: Path, sweep: bool) -> None:
    """Refuse a name for a result file, of a sweep or not, that what lies beside it needs.

    Raises:
        UsageError: it is a folder, or ends with .npz, or for a sweep with .svg.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file for the result")
    ranks_path(path)
    if sweep:
        figure_path(path)


def figure_path(path: Path) -> Path:
    """Where the plot of a sweep lies, beside its result file.

    >>> figure_path(Path("runs/sweep.json")).name
    'sweep.svg'
    """
    if path.suffix == ".svg":
        raise UsageError(f"{path} is where the plot goes: give the result a name with .json")
    return path.with_suffix(".svg")


def ranks_path(path: Path, budget: int | None = None) -> Path:
    """Where the ranks of a result file lie, or those of a budget of a sweep.

    >>> ranks_path(Path("runs/results.json")).name, ranks_path(Path("sweep.json"), 40).name
    ('results.npz', 'sweep-40.npz')
    """
    if path.suffix == ".npz":
        raise UsageError(f"{path} is where the ranks go: give the result a name with .json")
    if budget is not None:
        path = path.with_name(f"{path.stem}-{budget}{path.suffix}")
    return path.with_suffix(".npz")


@dataclass(frozen=True)
class SavedResult:
    """A result that was read from its file.

    Attributes:
        path: the result file.
        about: what it says of itself, as `Result.as_dict` wrote it.
        queries: the ranks from beside it.
    """

    path: Path
    about: dict[str, Any]
    queries: QueryRanks


def load_result(path: str | Path, tokens: int | None = None) -> SavedResult:
    """Read a result file and its ranks; of a sweep, the result at the budget `tokens`.

    Raises:
        UsageError: there is no such file, or no such budget in it.
        ParagrainError: it is no result, is damaged, or the ranks beside it belong to another.
    """
    path = Path(path)
    try:
        content = read_json(path)
        sweep = content.get("sweep", [content])
        budgets = [entry["protocol"]["token_budget"] for entry in sweep]
        ranks = [entry["ranks"] for entry in sweep]
    except FileNotFoundError:
        raise UsageError(f"there is no result file {path}: check the path") from None
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ParagrainError(
            f"{path} is not a result file with ranks: write one with `paragrain evaluate --out`"
        ) from error
    if tokens is None and len(sweep) > 1:
        raise UsageError(
            f"{path} has results at {', '.join(map(str, budgets))} tokens: say which with --tokens"
        )
    if tokens is not None and tokens not in budgets:
        raise UsageError(
            f"{path} has no result at {tokens} tokens: it has {', '.join(map(str, budgets))}"
        )
    place = 0 if tokens is None else budgets.index(tokens)
    file = ranks_path(path, budgets[place] if "sweep" in content else None)
    queries = QueryRanks.load(file)
    if queries.fingerprint != ranks[place]:
        raise ParagrainError(f"the ranks {file} are not those of {path}: evaluate again with --out")
    return SavedResult(path, sweep[place], queries)


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
