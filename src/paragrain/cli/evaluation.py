"""What `paragrain evaluate` prints: lines for people."""

from typing import TYPE_CHECKING, Any

from paragrain.words import printable

if TYPE_CHECKING:
    from paragrain.evaluation import Result


def result_lines(results: list["Result"]) -> list[str]:
    """Everything that is told of the results of one model or several, at one length or several."""
    models = list(dict.fromkeys(result.about["encoder"]["name"] for result in results))
    lines = [_headline(results[0], models), *_trained_on(results, models), *_sizes(results[0])]
    lines += [*_table(results, models), *_lenient(results, models), *_intervals(results, models)]
    for result in results:
        for entry in ("trained_on", "audited"):
            lines += _parts(result, entry, _who(result, models))
    return lines


def _headline(result: "Result", models: list[str]) -> str:
    about, counts = result.about, result.scores
    who = about["encoder"]["name"] if len(models) == 1 else f"{len(models)} models"
    return (
        f"{printable(who)} on {about['collection']['name']}, "
        f"split {about['collection']['split']}: {counts.images:,} images "
        f"({counts.images_with_texts:,} with texts), {counts.texts:,} texts of "
        f"{about['protocol']['text_field']}, cut by {about['protocol']['truncation']}"
    )


def _who(result: "Result", models: list[str]) -> str:
    """The model, where there are several."""
    return printable(result.about["encoder"]["name"]) if len(models) > 1 else ""


def _trained_on(results: list["Result"], models: list[str]) -> list[str]:
    """What each model has learned of these very images."""
    from paragrain.evaluation import trained_on_lines

    told: dict[str, None] = {}
    for result in results:
        who = _who(result, models)
        for line in trained_on_lines(result.about):
            told[f"NOTE: {who}: {printable(line)}" if who else f"NOTE: {printable(line)}"] = None
    return list(told)


def _sizes(result: "Result") -> list[str]:
    """Which protocol it was, and whether the collection has the sizes that it should have."""
    protocol = result.about["protocol"]
    if protocol["name"] == "custom":
        return []
    name, changed, sizes = protocol["name"], protocol["changed"], protocol["sizes"]
    lines = [f"protocol {name}" + (f", with other {', '.join(changed)}" if changed else "")]
    if not sizes["as_expected"]:
        found = sizes["found"]
        wanted = " or ".join(
            f"{size['images']:,} images and {size['texts']:,} texts" for size in sizes["expected"]
        )
        lines.append(
            f"this is not all of {name}: {found['images']:,} images and {found['texts']:,} texts "
            f"were found where {wanted} are expected"
        )
    return lines


def _intervals(results: list["Result"], models: list[str]) -> list[str]:
    """The 95 % intervals, one line a direction, maximum length and model."""
    lines = []
    for result in results:
        who = _who(result, models)
        for name in ("image_to_text", "text_to_image"):
            cells = "  ".join(
                f"{k} [{low:.1f}, {high:.1f}]"
                for k, (low, high) in result.intervals["strict"][name].items()
            )
            max_length = result.about["protocol"]["max_length"]
            line = f"95 % at {max_length} tokens, {name.replace('_', ' ')}: {cells}"
            lines.append(f"{line} | {who}" if who else line)
    return lines


def _table(results: list["Result"], models: list[str]) -> list[str]:
    from paragrain.tables import Table

    header: list[Any] = ["tokens", "cut", "%", "lost"]
    header += [(d, f"R@{k}") for d in ("image to text", "text to image") for k in (1, 5, 10)]
    rows: list[list[Any]] = []
    for result in results:
        told = result.about["protocol"]
        recalls = [r[k] for r in (result.image_to_text, result.text_to_image) for k in (1, 5, 10)]
        counts = (told["max_length"], told["texts_truncated"], 100 * told["share_truncated"])
        rows.append([*counts, told["tokens_lost"], *recalls])
    if len(models) > 1:
        header.append(("model", ""))
        rows = [[*row, _who(one, models)] for row, one in zip(rows, results, strict=True)]
    return Table("", header, rows).text().splitlines()


def _lenient(results: list["Result"], models: list[str]) -> list[str]:
    """What judging leniently changes, at the last maximum length of each model."""
    lines = []
    for result in {result.about["encoder"]["name"]: result for result in results}.values():
        scores, who = result.scores, _who(result, models)
        why = []
        if scores.grouped_images:
            why.append(f"{scores.grouped_images:,} images share their group with others")
        if scores.shared_texts:
            why.append(f"{scores.shared_texts:,} texts stand under several images")
        if why:
            i2t, t2i = (d.recall[1] for d in _directions(result))
            line = f"{' and '.join(why)}; with any of them right, R@1 is {i2t:.1f} and {t2i:.1f}"
            lines.append(f"{line} | {who}" if who else line)
    return lines


def _directions(result: "Result") -> tuple[Any, Any]:
    return result.scores.lenient.image_to_text, result.scores.lenient.text_to_image


def _parts(result: "Result", entry: str, who: str) -> list[str]:
    """Scores of all queries, of those that training has seen, and of the others."""
    from paragrain.tables import Table

    about = result.about.get(entry)
    if about is None or about["parts"] is None:
        return []
    ways = ("image to text", "text to image")
    header = [f"{result.about['protocol']['max_length']} tokens", "images", "texts"]
    columns = [(way, name) for way in ways for name in ("R@1", "95 %")]
    rows = [
        [
            name,
            part["images"],
            part["texts"],
            *(cell for way in ways for cell in _recall(part, way)),
        ]
        for name, part in about["parts"].items()
    ]
    table = Table(who, [*header, *columns], rows).text().splitlines()
    return ([_shared(about)] if entry == "audited" else []) + table


def _shared(audited: dict[str, Any]) -> str:
    train, parts = audited["train"], audited["parts"]
    marked = ", ".join(f"{count:,} by {why}" for why, count in audited["marked"].items() if count)
    return (
        f"{parts['overlapping']['images']:,} of {parts['all']['images']:,} images with texts are "
        f"shared with {train['name']}, split {train['split']}" + (f" ({marked})" if marked else "")
    )


def _recall(part: dict[str, Any], direction: str) -> tuple[float | None, str]:
    """R@1 of a part and its interval."""
    if part["scores"] is None:
        return None, ""
    direction = direction.replace(" ", "_")
    low, high = part["intervals"]["strict"][direction]["R@1"]
    return part["scores"]["strict"][direction]["R@1"], f"[{low:.1f}, {high:.1f}]"
