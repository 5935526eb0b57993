"""Rows as tables that other tools take: CSV files, and pandas where it is installed."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paragrain.errors import ParagrainError
from paragrain.files import replacing


def data_frame(rows: Sequence[Any], columns: Sequence[str] | None = None) -> Any:
    """Rows as a pandas table.

    Args:
        rows: mappings, or sequences in the order of `columns`.
        columns: their names; by default the keys of the rows.

    Raises:
        ParagrainError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ParagrainError(
            "a table in memory needs pandas: `pip install pandas`, or save the result as a .csv"
        ) from None
    return pandas.DataFrame(rows, columns=None if columns is None else list(columns))


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as UTF-8 CSV with a header, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
