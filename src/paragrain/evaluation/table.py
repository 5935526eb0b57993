"""Results as a table: a row for each number, for a CSV file or pandas."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paragrain.errors import ParagrainError
from paragrain.evaluation.stored import DIRECTIONS, JUDGEMENTS
from paragrain.files import replacing


def rows_of(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each result, direction, judgement and K.

    Args:
        results: as `Result.as_dict` makes them, or as they lie in a result file.

    Returns:
        rows of `model`, `collection`, `split`, `texts`, `tokens`, `cut`, `images`, `trained_on`
        (how many of the images the model has learned from; None if that is not known), `direction`,
        `judgement`, `k`, `recall`, `low` and `high` (the 95 % interval; all three in percent).
    """
    rows = []
    for result in results:
        protocol, known = result["protocol"], result.get("trained_on")
        what = {
            "model": result["encoder"]["name"],
            "collection": result["collection"]["name"],
            "split": result["collection"]["split"],
            "texts": protocol["text_field"],
            "tokens": protocol["token_budget"],
            "cut": protocol["text_cut"],
            "images": result["scores"]["counts"]["images"],
            "trained_on": known and sum(split["trained"] for split in known["splits"].values()),
        }
        for direction in DIRECTIONS:
            for judgement in JUDGEMENTS:
                bounds = result["intervals"][judgement][direction]
                for name, (low, high) in bounds.items():
                    rows.append(
                        {
                            **what,
                            "direction": direction,
                            "judgement": judgement,
                            "k": int(name.removeprefix("R@")),
                            "recall": result["scores"][judgement][direction][name],
                            "low": low,
                            "high": high,
                        }
                    )
    return rows


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as a pandas table.

    Raises:
        ParagrainError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ParagrainError(
            "a table in memory needs pandas: `pip install pandas`, or save the result as a .csv"
        ) from None
    return pandas.DataFrame(rows)


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as UTF-8 CSV with a header, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
