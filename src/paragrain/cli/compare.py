"""`paragrain compare`: two models on the same queries."""

from typing import TYPE_CHECKING, Annotated

import typer

from paragrain.cli.common import JsonOption, tell
from paragrain.errors import UsageError
from paragrain.words import printable

if TYPE_CHECKING:
    from paragrain.evaluation import Comparison
    from paragrain.evaluation.compare import Row

VERSUS = "vs"


def compare(
    results: Annotated[
        list[str],
        typer.Argument(
            help="Two result files; several of each model with the word vs between; or one file "
            "that holds two models."
        ),
    ],
    max_length: Annotated[
        int | None,
        typer.Option(help="Of result files that hold a sweep, the maximum length to compare."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Of one result file with several models, the two to compare: a name, a run's "
            "folder, or either with * for all seeds of one, as in 'runs/c5/seed*'."
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Draws of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    json: JsonOption = False,
) -> None:
    """Compare two models query by query: difference, 95 % interval, p-value and sign test.

    Nothing is ranked anew: the ranks lie beside the files that `paragrain evaluate --out` wrote.
    Files of several seeds of one model are averaged, and what the seeds differ by is shown.

    Example: `paragrain compare c1.json c5.json`

    Example with seeds: `paragrain compare c1/seed0.json c1/seed1.json vs c5/seed0.json
    c5/seed1.json`
    """
    from paragrain.evaluation import compare as run
    from paragrain.evaluation import load_result, models_in

    if len(results) == 1:
        names = model or models_in(results[0])
        if len(names) != 2:
            raise UsageError(
                f"{results[0]} alone holds {', '.join(models_in(results[0]))}: name two result "
                "files, those of several seeds as in A1 A2 vs B1 B2, or two models with --model"
            )
        sides = [
            [load_result(results[0], max_length, name) for name in models_in(results[0], like)]
            for like in names
        ]
    elif model:
        raise UsageError("--model names two models of one result file: name one file only")
    else:
        sides = [[load_result(path, max_length) for path in side] for side in _sides(results)]
    found = run(*sides, resamples=resamples, seed=seed)
    tell(json, found.as_dict(), _lines(found))


def _sides(words: list[str]) -> tuple[list[str], list[str]]:
    """The files of both models.

    >>> _sides(["a", "b"]), _sides(["a1", "a2", "vs", "b"])
    ((['a'], ['b']), (['a1', 'a2'], ['b']))
    """
    if words.count(VERSUS) == 1:
        place = words.index(VERSUS)
        first, second = words[:place], words[place + 1 :]
    else:
        first, second = words[:1], words[1:]
    if not first or not second or VERSUS in second or (VERSUS not in words and len(words) != 2):
        raise UsageError(
            "name two result files, or those of several seeds as in A1 A2 vs B1 B2, "
            f"not {len(words)} words"
        )
    return first, second


def _lines(found: "Comparison") -> list[str]:
    several = max(len(found.first["files"]), len(found.second["files"])) > 1
    lines = [
        f"{letter}: {printable(side['name'])} ({', '.join(map(printable, side['files']))})"
        for letter, side in (("A", found.first), ("B", found.second))
    ]
    lines += [
        f"NOTE: {letter}: {printable(line)}"
        for letter, side in (("A", found.first), ("B", found.second))
        for line in side["trained_on"]
    ]
    head = (
        "                      A      B   B - A   95 % interval        p  "
        " hit by A, B alone  sign p"
    )
    lines += ["", head, "-" * len(head)]
    for row in found.rows:
        low, high = row.interval
        cells = (
            f"{_words(row)}{row.first.mean:5.1f} {row.second.mean:6.1f} "
            f"{row.difference:+7.2f}  [{low:+6.2f}, {high:+6.2f}] {row.p:8.4f}"
        )
        if row.sign_test is not None:
            test = row.sign_test
            cells += f" {test.first:11,d} {test.second:7,d} {test.p:7.4f}"
        lines.append(cells)
    lines += _by_image(found)
    lines += _seeds(found) if several else []
    what = "the queries" + (", and the seeds of whom has several" if several else " alone")
    lines.append(
        f"Percent, strictly judged; {found.resamples:,} draws of {found.units:,} images or groups "
        f"of them, seed {found.seed}; interval and p hold the spread from {what}."
    )
    return lines


def _by_image(found: "Comparison") -> list[str]:
    """The sign test with one vote an image, where that is another one."""
    return [
        f"{row.direction.replace('_', ' ')} with one vote an image, since the texts of one image "
        f"do not vote independently: {row.sign_test_images.first:,} against "
        f"{row.sign_test_images.second:,}, sign p {row.sign_test_images.p:.4f}"
        for row in found.rows
        if row.sign_test_images is not None and row.sign_test_images != row.sign_test
    ]


def _seeds(found: "Comparison") -> list[str]:
    """Both sources of spread, at R@1."""
    lines = [
        "",
        "standard deviation        seeds  from queries  from seeds  one run  mean of seeds",
    ]
    for row in (row for row in found.rows if row.k == 1):
        for letter, side in (("A", row.first), ("B", row.second)):
            spread = side.spread
            seeds = "unknown" if spread.seeds is None else f"{spread.seeds:.2f}"
            lines.append(
                f"{letter} {_words(row)} {len(side.recalls):9d} "
                f"{spread.queries:13.2f} {seeds:>11} {spread.run:8.2f} {spread.mean:14.2f}"
            )
    return lines


def _words(row: "Row") -> str:
    return f"{row.direction.replace('_', ' '):14}R@{row.k:<3}"
