"""A result as people and other tools are told of it: rows of a table, and notes above it."""

from collections.abc import Mapping, Sequence
from typing import Any

from paragrain.evaluation.stored import DIRECTIONS, JUDGEMENTS
from paragrain.tables import Table


def results_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each result, direction, judgement and K.

    `trained_on` is how many of the images the model has learned from, None if that is not known;
    `recall`, `low` and `high` (the 95 % interval) are in percent.

    Args:
        results: as `Result.as_dict` makes them, or as they lie in a result file.
    """
    names = (
        "model collection split texts max_length truncation images trained_on "
        "direction judgement k recall low high"
    )
    rows = []
    for result in results:
        protocol, known = result["protocol"], result.get("trained_on")
        what = (
            result["encoder"]["name"],
            result["collection"]["name"],
            result["collection"]["split"],
            protocol["text_field"],
            protocol["max_length"],
            protocol["truncation"],
            result["scores"]["counts"]["images"],
            known and sum(split["trained"] for split in known["splits"].values()),
        )
        rows += [
            (
                *(*what, direction, judgement, int(name.removeprefix("R@"))),
                *(result["scores"][judgement][direction][name], low, high),
            )
            for direction in DIRECTIONS
            for judgement in JUDGEMENTS
            for name, (low, high) in result["intervals"][judgement][direction].items()
        ]
    return Table("", names.split(), rows)


def trained_on_lines(about: Mapping[str, Any]) -> list[str]:
    """What a reader of a result must know before its numbers; nothing if it is a test.

    Args:
        about: of a `Result` or a `SavedResult`.

    >>> count = {"images": 500, "trained": 400, "same_content": 398, "validated": 50}
    >>> for line in trained_on_lines({"trained_on": {"splits": {"t": count}, "same_id": 0}}):
    ...     print(line)  # doctest: +ELLIPSIS
    400 of 500 images of split t were trained on (398 same content, 2 same group): this...
    the best step was chosen on 50 of 500 images of split t: this is not quite a test
    """
    known = about.get("trained_on")
    if known is None:
        return []
    lines = []
    for split, count in known["splits"].items():
        whole = f"of {count['images']:,} images of split {split}"
        same, trained = count["same_content"], count["trained"]
        kinds = (f"{same:,} same content", f"{trained - same:,} same group")
        if trained:
            told = ", ".join(kind for kind in kinds if not kind.startswith("0 "))
            lines.append(f"{trained:,} {whole} were trained on ({told}): this is not a test")
        if count["validated"]:
            lines.append(
                f"the best step was chosen on {count['validated']:,} {whole}: this is not quite "
                "a test"
            )
    if known["same_id"]:
        lines.append(
            f"{known['same_id']:,} more images have the id of an image that was trained on, in a "
            "data set of the same name, but other bytes: if they are the same pictures saved "
            "anew, this is not a test (`paragrain audit` tells)"
        )
    return lines
