"""JSON lines that name an image and hold text about it, and DOCCI, which is one such set."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from paragrain.collection import ImportReport, WriteOptions
from paragrain.collection.fields import LIST_FIELDS, TEXT_FIELDS
from paragrain.errors import UsageError
from paragrain.sources.cells import Values, take
from paragrain.sources.listing import Listing, record_id
from paragrain.sources.names import shown
from paragrain.sources.photo import said
from paragrain.sources.registry import importer
from paragrain.sources.tables import JSON_SUFFIXES, table_rows
from paragrain.sources.texts import ID_COLUMNS, NAME_COLUMNS, field_of, is_prose

Rows = list[tuple[int, Mapping[str, Any]]]

IMAGE_KEYS = ("image/key", *NAME_COLUMNS)
"""Keys of JSON lines that name the image, if none is given; `image/key` is IIW's."""

TEXT_KEYS = ("IIW", "GT_Caption_GPT4O", "gt_caption_gpt4o", "IIW-P5B")
"""Keys of JSON lines that hold a description though they are not called after a field of a record:
IIW's text by people comes before the one by its model, and of DetailCaps' three (`GT_Caption_*`)
GPT-4o's is taken. They count where no key is called after a field of texts."""

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
    field: str | None = None,
    split: str | None = None,
    texts: Path | Sequence[Path] | None = None,
    **options: Unpack[WriteOptions],
) -> ImportReport:
    r"""Bring JSON lines that name an image and hold text about it into a collection.

    Keys that are called as the columns of `texts.read_texts` (`captions`, `generated`,
    `paragraph`, `caption`, `split`, ...) fill the same fields, lists included, as they do in
    `texts`. Other keys hold a text if `text_keys` says so, or if no key is called after a field
    of texts and one is of `TEXT_KEYS`: so IIW (`image/key` or `image`, and `IIW`) and DetailCaps
    need none. The keys of the image and of the id are the first of `IMAGE_KEYS` and `ID_KEYS` that
    any line has. A note says what was used, and another which texts were not.

    Lines end at "\n" alone and texts are kept to the last character. The texts of all lines with
    the same id and image are gathered; where a field holds one text, the first counts, and a
    different later one is named. An image without a text stays. See `Listing` for how an image is
    found.

    Args:
        file: `.jsonl`, `.jsonlines` or `.ndjson`.
        images: the folder with the images.
        out: the collection's folder.
        image_key: which key names the image, with or without an extension.
        text_keys: which key holds the text of `field`, or several if that is a list.
        id_key: which key holds the id.
        field: the field that takes the texts of `text_keys`; by default the description.
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
    id_key = _first_key(listing, rows, [id_key] if id_key else [*ID_KEYS, image_key], "id")
    fields = _fields(listing, rows, {image_key, id_key}, text_keys, field)
    for number, row in rows:
        _add_row(listing, f"line {number}", row, (image_key, id_key), fields, said(split=split))
    told = [f"{name} from `{key}`" for key, name in fields.items() if name in TEXT_FIELDS]
    listing.notes.append(", ".join([f"image from `{image_key}`", *told, f"id from `{id_key}`"]))
    return listing.write(
        out,
        name=file.stem,
        source="jsonl",
        field=next(name for name in fields.values() if name in TEXT_FIELDS),
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
    rows = _read(listing)
    keys = ("image_file", "example_id")
    fields = {"description": "description", **_named(rows, {*keys}), "split": "split"}
    for number, row in rows:
        if record_id(row.get("split")) is not None:
            _add_row(listing, f"line {number}", row, keys, fields, {})
        else:
            id = record_id(row.get("example_id"))
            listing.problems.append((id or f"line {number}", "it has no valid split"))
    return listing.write(
        out,
        name="docci",
        source="docci",
        field="description",
        texts=texts,
        **options,
    )


# --- What data sets share that are a list of images -------------------------------------------


def _check_field(field: str | None, text_keys: Sequence[str]) -> None:
    if field is not None and field not in TEXT_FIELDS:
        choices = ", ".join(TEXT_FIELDS)
        raise UsageError(f"a record has no texts called {field!r}: choose from {choices}")
    if len(text_keys) > 1 and field not in LIST_FIELDS:
        field = field or "description"
        raise UsageError(f"{field} holds one text: give one text key, or use the field captions")


def _named(rows: Rows, taken: Collection[str]) -> dict[str, str]:
    """The fields of the keys that are called after one, in the order of the lines."""
    keys = dict.fromkeys(key for _, row in rows for key in row if key not in taken)
    return {key: name for key in keys if (name := field_of(key)) and _has(rows, key)}


def _fields(
    listing: Listing,
    rows: Rows,
    taken: Collection[str],
    text_keys: Sequence[str],
    field: str | None,
) -> dict[str, str]:
    """Which key fills which field of a record; a note names keys whose texts are not used."""
    fields = _named(rows, taken)
    chosen = [_first_key(listing, rows, [key], "text") for key in text_keys]
    if not chosen and not set(fields.values()) & set(TEXT_FIELDS):
        chosen = [_first_key(listing, rows, TEXT_KEYS, "text")]
    elif not chosen and field is not None and field not in fields.values():
        chosen = [next(key for key in fields if fields[key] in TEXT_FIELDS)]
    if chosen:
        aim = field or "description"
        fields = {key: name for key, name in fields.items() if name != aim}
        fields |= dict.fromkeys(chosen, aim)
    counts = Counter(
        key
        for _, row in rows
        for key, value in row.items()
        if key not in fields and key not in taken and is_prose(value)
    )
    if counts:
        names = ", ".join(f"`{shown(key)}` ({n:,} texts)" for key, n in counts.most_common(8))
        listing.notes.append(f"keys that are not used: {names}")
    return fields


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
    keys: tuple[str, str],
    fields: Mapping[str, str],
    values: Values,
) -> None:
    """Take a line in; `values` are those of fields of which it says nothing."""
    name, id = (record_id(row.get(key)) for key in keys)
    own: Values = {}
    problems: list[str] = []
    for key, field in fields.items():
        if row.get(key) is not None:
            take(own, field, row[key], problems)
    listing.problems += [(id or where, problem) for problem in problems]
    if id is not None and listing.names.get(id) == [name]:
        _gather(listing, id, where, own)
    else:
        listing.add(where, id, [name], {**values, **own})


def _gather(listing: Listing, id: str, where: str, own: Values) -> None:
    """Add what another line says of an image; what contradicts the first is named."""
    values = listing.values[id]
    for name, value in own.items():
        if name in LIST_FIELDS:
            values.setdefault(name, []).extend(value)
        elif values.setdefault(name, value) != value:
            listing.problems.append((id, f"{where} has another {name} than a line before"))
