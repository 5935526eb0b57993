"""Some images with everything that was written about them, for a person to read."""

from collections.abc import Iterable

from paragrain.pages import old as pages
from paragrain.annotation.loop import provenance
from paragrain.annotation.measures.agreement import drawn
from paragrain.annotation.sending import prepare
from paragrain.annotation.settings import ImageRule
from paragrain.collection import Collection, Record
from paragrain.images import BadImage

SAMPLES = 6
_THUMBNAIL = ImageRule(min_side=1, max_ratio=1000, max_side=400, quality=80)


def samples(collection: Collection, split: str | None = None, count: int = SAMPLES) -> str:
    """A part of a page with some annotated images, drawn at random, the same in every call.

    Args:
        collection: where they are; HTML in their texts is escaped.
        split: from this split only.
        count: number of images.
    """
    records = collection.records(split, fields=["annotation"])
    annotated = (record.id for record in records if record.annotation is not None)
    records_drawn = collection.get(drawn(annotated, count, seed=0)).values()
    shown = [_shown(collection, record) for record in records_drawn]
    return "".join([pages.heading("Some of them"), *shown]) if shown else ""


def _shown(collection: Collection, record: Record) -> str:
    try:
        picture = prepare(collection.image_bytes(record), _THUMBNAIL)
        image = pages.picture(picture.data, picture.media_type, record.id)
    except BadImage as error:
        image = pages.paragraph(error.reason, dim=True)
    notes = provenance(record).get("paragraph", {})
    attempts = [
        f"{attempt.get('score', '-')}: {attempt.get('text', '')}"
        for attempt in notes.get("attempts", [])
        if isinstance(attempt, dict)
    ]
    texts = [
        _list("Came with the image", record.captions),
        _list("Captions", record.generated),
        _list("Hard negatives", record.negatives),
        _list("Paragraphs, with their scores", attempts or record.texts("paragraph")),
    ]
    return f"<div class=sample>{image}<div>{''.join(texts)}</div></div>"


def _list(title: str, texts: Iterable[str]) -> str:
    items = "".join(f"<li>{pages.text(text)}</li>" for text in texts)
    return f"<b>{pages.text(title)}</b><ul>{items}</ul>" if items else ""
