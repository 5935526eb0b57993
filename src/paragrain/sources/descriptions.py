"""JSON lines that name an image and hold text about it, and DOCCI, which is one such set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.collection.record import LIST_FIELDS, TEXT_FIELDS
from paragrain.errors import UsageError
from paragrain.sources.cells import text_problem
from paragrain.sources.listing import Listing, record_id
from paragrain.sources.photo import said
from paragrain.sources.registry import importer
from paragrain.sources.tables import JSON_SUFFIXES, table_rows
from paragrain.sources.texts import ID_COLUMNS, NAME_COLUMNS

Rows = list[tuple[int, Mapping[str, Any]]]

IMAGE_KEYS = ("image/key", *NAME_COLUMNS)
"""Keys of JSON lines that name the image, if none is given; `image/key` is IIW's."""

TEXT_KEYS = (
    "description", "IIW", "GT_Caption_GPT4O", "gt_caption_gpt4o", "IIW-P5B",
    "captions", "caption", "text", "paragraph",
)  # fmt: skip
"""Keys of JSON lines that hold the text, if none is given: IIW's text by people comes before the
one by its model, and of DetailCaps' three (`GT_Caption_*`) GPT-4o's is taken."""

ID_KEYS = ("example_id", *ID_COLUMNS)
"""Keys of JSON lines that hold the id, if none is given; without any, the image's name is it."""


@importer("jsonl")
def import_jsonl(
    file: Path,
    images: Path,
    out: Path,
    *,
    image_key: str | None = None,
    text_keys: Sequence[str] = (),
    id_key: str | None = None,
    field: str = "description",
    split: str | None = None,
    texts: Path | Sequence[Path] | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    r"""Bring JSON lines that name an image and hold text about it into a collection.

    A key that is not given is the first of `IMAGE_KEYS`, `TEXT_KEYS` or `ID_KEYS` that any line
    has; a note says which were used. So IIW (`image/key` or `image`, and `IIW`) and DetailCaps
    need none. Lines end at "\n" alone and texts are kept to the last character. A line may hold
    `split` and `url` of its own. An image without a text stays. See `Listing` for how an image
    is found.

    If `field` is a list (captions, generated, negatives), a text may be a list of texts, several
    keys may be read, and the texts of all lines with the same id and image are gathered.

    Args:
        file: `.jsonl`, `.jsonlines` or `.ndjson`.
        images: the folder with the images.
        out: the collection's folder.
        image_key: which key names the image, with or without an extension.
        text_keys: which key holds the text, or several if `field` is a list.
        id_key: which key holds the id.
        field: the field of the record that takes the text.
        split: of all images whose line does not say another.
        texts: tables of further texts; see `Texts`, `read_texts` and `TextTable.join`.
        options: see `WriteOptions`.

    Raises:
        UsageError: a path does not hold what it should, or no line has a key that is needed.
        ParagrainError: none of the images is there.
    """
    _check_field(field, text_keys)
    listing = Listing(file, images)
    rows = _read(listing)
    image_key = _first_key(listing, rows, [image_key] if image_key else IMAGE_KEYS, "image")
    choices: list[Sequence[str]] = [[key] for key in text_keys] or [TEXT_KEYS]
    text_keys = [_first_key(listing, rows, keys, "text") for keys in choices]
    id_keys = [id_key] if id_key else [*ID_KEYS, image_key]
    id_key = _first_key(listing, rows, id_keys, "id")
    for number, row in rows:
        _add_row(listing, f"line {number}", row, (image_key, text_keys, id_key), field, split=split)
    keys = ", ".join(f"`{key}`" for key in text_keys)
    listing.notes.append(f"image from `{image_key}`, {field} from {keys}, id from `{id_key}`")
    return listing.write(
        out,
        name=file.stem,
        source="jsonl",
        field=field,
        texts=texts,
        **options,
    )


@importer("docci")
def import_docci(
    file: Path,
    images: Path,
    out: Path,
    *,
    texts: Path | Sequence[Path] | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    """Bring DOCCI into a collection: `docci_descriptions.jsonlines` and the folder of images.

    `example_id` is the id, `description` the description, and the splits (train, test, qual_dev,
    qual_test) stay as they are; a line without one is named among the skipped. For the rest, the
    arguments and the errors see `import_jsonl`.
    """
    listing = Listing(file, images)
    for number, row in _read(listing):
        keys = ("image_file", ["description"], "example_id")
        _add_row(listing, f"line {number}", row, keys, "description", says_split=True)
    return listing.write(
        out,
        name="docci",
        source="docci",
        field="description",
        texts=texts,
        **options,
    )


# --- What data sets share that are a list of images -------------------------------------------


def _check_field(field: str, text_keys: Sequence[str]) -> None:
    if field not in TEXT_FIELDS:
        choices = ", ".join(TEXT_FIELDS)
        raise UsageError(f"a record has no texts called {field!r}: choose from {choices}")
    if len(text_keys) > 1 and field not in LIST_FIELDS:
        raise UsageError(f"{field} holds one text: give one text key, or use the field captions")


def _read(listing: Listing) -> Rows:
    if listing.path.suffix.lower() not in JSON_SUFFIXES:
        kinds = ", ".join(JSON_SUFFIXES)
        raise UsageError(f"{listing.path} is not a file of JSON lines: its name ends in {kinds}")

    def report(where: str, reason: str) -> None:
        listing.problems.append((where, reason))

    return list(table_rows(listing.path, report, check_columns=lambda path, columns: None))


def _has(rows: Rows, key: str) -> bool:
    """Whether any line has a name or text under the key, rather than an object or nothing."""
    return any(isinstance(row.get(key), str | int | float | list) for _, row in rows)


def _first_key(listing: Listing, rows: Rows, keys: Sequence[str], what: str) -> str:
    for key in keys:
        if _has(rows, key):
            return key
    raise UsageError(
        f"no line of {listing.path} has a key for the {what}: looked for {', '.join(keys)}; name "
        f"another with --{what}-key"
    )


def _add_row(
    listing: Listing,
    where: str,
    row: Mapping[str, Any],
    keys: tuple[str, Sequence[str], str],
    field: str,
    *,
    split: str | None = None,
    says_split: bool = False,
) -> None:
    image_key, text_keys, id_key = keys
    name, id = record_id(row.get(image_key)), record_id(row.get(id_key))
    says_split = says_split or row.get("split") is not None
    own_split = record_id(row.get("split")) if says_split else split
    raw = [row[key] for key in text_keys if row.get(key) is not None]
    if field in LIST_FIELDS:
        raw = [text for value in raw for text in (value if isinstance(value, list) else [value])]
    if says_split and own_split is None:
        listing.problems.append((id or where, "it has no valid split"))
        return
    good = listing.kept(id or where, raw)
    if id is not None and field in LIST_FIELDS and listing.names.get(id) == [name]:
        listing.values[id].setdefault(field, []).extend(good)
        return
    url = row["url"] if text_problem(row.get("url")) is None else None
    values = said(split=own_split, url=url)
    if good:
        values[field] = good if field in LIST_FIELDS else good[0]
    listing.add(where, id, [name], values)
