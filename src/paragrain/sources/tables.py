"""The rows of CSV, TSV and JSON lines files, read so that one bad line costs one line."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from paragrain.errors import UsageError

Report = Callable[[str, str], None]
"""Takes where something is wrong, such as "line 3", and what."""

Cells = tuple[int, list[str] | str]
"""The first line of a row, and its cells or else why it cannot be read."""

CELL_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")


def table_rows(
    path: Path, report: Report, *, check_columns: Callable[[Path, list[str]], None]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number and values by column of every row that can be read; the others are reported.

    Args:
        path: the file; its extension says the kind, `texts.read_texts` the rules of each.
        report: called for each line that cannot be read.
        check_columns: raises if the columns of a CSV or TSV file will not do.

    Raises:
        UsageError: the file cannot be read as text, or is of another kind.
    """
    suffix = path.suffix.lower()
    if suffix not in CELL_SUFFIXES + JSON_SUFFIXES:
        raise UsageError(f"{path} is not a table of texts: use a .csv, .tsv or .jsonl file")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the texts in {path} cannot be read: {reason}") from error
    if suffix in JSON_SUFFIXES:
        yield from _json_rows(report, text)
        return
    rows = iter(_csv_rows(text) if suffix == ".csv" else _tsv_rows(text))
    _, header = next(rows, (1, []))
    check_columns(path, header if isinstance(header, list) else [])
    for line, cells in rows:
        if isinstance(cells, str):
            report(f"line {line}", cells)
        elif len(cells) != len(header):
            report(f"line {line}", f"it has {len(cells)} cells, the first has {len(header)}")
        else:
            yield line, dict(zip(header, cells, strict=True))


def read_text(path: Path) -> str:
    """The text of a file in UTF-8 or, if it begins with a byte order mark, UTF-16.

    Bytes that are neither become surrogates, which `texts.text_problem` finds: so they cost the
    text that they stand in, and not the file.

    Raises:
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "surrogatepass")
    return data.decode("utf-8-sig", "surrogateescape")


def _json_rows(report: Report, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            report(f"line {number}", f"not JSON ({error})")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            report(f"line {number}", "JSON, but not an object with names and values")


def _csv_rows(text: str) -> list[Cells]:
    return _quoted(text, max(",;\t", key=text.partition("\n")[0].count))


def _tsv_rows(text: str) -> list[Cells]:
    rows = _quoted(text, "\t")
    if all(isinstance(cells, list) for _, cells in rows):
        return rows
    lines = enumerate(text.split("\n"), 1)
    return [(n, line.removesuffix("\r").split("\t")) for n, line in lines if line.strip()]


def _quoted(text: str, delimiter: str) -> list[Cells]:
    """First line and cells of each row; where it cannot be read, a reason in place of cells.

    Reading then goes on at the next line, so that one stray quote does not swallow the file.
    """
    lines = io.StringIO(text, newline="\n").readlines()  # only "\n" ends a line
    rows: list[Cells] = []
    limit = csv.field_size_limit(len(text) + 1)
    try:
        start = 0
        while start < len(lines):
            rest = (lines[i] for i in range(start, len(lines)))
            reader = csv.reader(rest, delimiter=delimiter, strict=True)
            taken = 0
            try:
                for cells in reader:
                    if cells:
                        rows.append((start + taken + 1, cells))
                    taken = reader.line_num
                break
            except csv.Error as error:
                rows.append((start + taken + 1, f"it cannot be read as a row ({error})"))
                start += taken + 1
    finally:
        csv.field_size_limit(limit)
    return rows
