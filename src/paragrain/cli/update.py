"""`paragrain update`: an import once more, as it was asked for."""

from paragrain.cli.common import CollectionArgument, JsonOption
from paragrain.cli.import_.options import DropTextsOption, VerifyOption, tell_report


def update(
    collection: CollectionArgument,
    verify: VerifyOption = False,
    drop_texts: DropTextsOption = False,
    json: JsonOption = False,
) -> None:
    """Import again what the collection was made of, with the options of its imports.

    Example: `paragrain update photos`
    """
    from paragrain.sources import update

    report = update(collection, verify=verify, drop_texts=drop_texts, progress=not json)
    tell_report(report, json)
