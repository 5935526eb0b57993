"""`paragrain compare`: two models on the same queries."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragrain.cli.common import JsonOption, tell
from paragrain.errors import UsageError
from paragrain.words import printable

if TYPE_CHECKING:
    from paragrain.evaluation import Comparison
    from paragrain.evaluation.compare import ComparedRecall
    from paragrain.tables import Table

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
    from paragrain.tables import Table

    models = (("A", found.first), ("B", found.second))
    several = max(len(model["files"]) for _, model in models) > 1
    lines = [
        f"{letter}: {printable(model['name'])} ({', '.join(map(printable, model['files']))})"
        for letter, model in models
    ]
    lines += [
        f"NOTE: {letter}: {printable(line)}"
        for letter, model in models
        for line in model["trained_on"]
    ]
    header = ["", "A", "B", "B - A", "95 % interval", "p", "hit by A alone", "by B alone", "sign p"]
    rows: list[list[Any]] = []
    for row in found.rows:
        change, test = row.difference, row.sign_test
        votes = (test.first, test.second, test.p) if test else ("", "", "")
        bounds = f"[{change.low:+6.2f}, {change.high:+6.2f}]"
        models_at_k = (row.first.value, row.second.value)
        rows.append([_name(row), *models_at_k, change.value, bounds, change.p, *votes])
    table = Table("", header, rows, {3: "+.2f", 5: ".4f", 8: ".4f"})
    lines += ["", *table.text().splitlines(), *_by_image(found)]
    if several:
        lines += ["", *_standard_deviations(found).text().splitlines()]
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


def _standard_deviations(found: "Comparison") -> "Table":
    """Both sources of spread, at R@1."""
    from paragrain.tables import Table

    header = "standard deviation,seeds,from queries,from seeds,one run,mean of seeds".split(",")
    rows = [
        (
            f"{letter} {_name(row)}",
            len(model.seeds),
            std.queries,
            "unknown" if std.seeds is None else std.seeds,
            std.run,
            std.mean,
        )
        for row in found.rows
        if row.k == 1
        for letter, model, std in zip("AB", (row.first, row.second), row.std, strict=True)
    ]
    return Table("", header, rows, dict.fromkeys(range(2, 6), ".2f"))


def _name(row: "ComparedRecall") -> str:
    return f"{row.direction.replace('_', ' ')} R@{row.k}"
