"""What `paragrain evaluate` prints: lines for people."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paragrain.evaluation import Result


def result_lines(results: list["Result"]) -> list[str]:
    """Everything that is told of the results of one encoder, one for each token budget."""
    first = results[0]
    lines = [_headline(first), *_sizes(first), *_table(results), *_intervals(results)]
    return lines + [line for result in results for line in _parts(result)]


def _headline(result: "Result") -> str:
    about, counts = result.about, result.scores
    return (
        f"{about['encoder']['name']} on {about['collection']['name']}, "
        f"split {about['collection']['split']}: {counts.images:,} images "
        f"({counts.images_with_texts:,} with texts), {counts.texts:,} texts of "
        f"{about['protocol']['text_field']}, cut by {about['protocol']['text_cut']}"
    )


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


def _intervals(results: list["Result"]) -> list[str]:
    """The 95 % intervals, one line a direction and budget."""
    lines = []
    for result in results:
        for name in ("image_to_text", "text_to_image"):
            cells = "  ".join(
                f"{k} [{low:.1f}, {high:.1f}]"
                for k, (low, high) in result.intervals["strict"][name].items()
            )
            budget = result.about["protocol"]["token_budget"]
            lines.append(f"95 % at {budget} tokens, {name.replace('_', ' ')}: {cells}")
    return lines


def _table(results: list["Result"]) -> list[str]:
    head = (
        "tokens   cut       %    lost "
        "| image to text R@1   R@5  R@10 | text to image R@1   R@5  R@10"
    )
    lines = [head, "-" * len(head)]
    for result in results:
        protocol = result.about["protocol"]
        strict = (result.image_to_text, result.text_to_image)
        values = " | ".join(
            f"{recall[1]:17.1f} {recall[5]:5.1f} {recall[10]:5.1f}" for recall in strict
        )
        lines.append(
            f"{protocol['token_budget']:6d} {protocol['texts_cut']:5,d} "
            f"{100 * protocol['share_cut']:7.1f} {protocol['tokens_lost']:7,d} | {values}"
        )
    lenient = results[-1].scores
    if lenient.grouped_images:
        i2t, t2i = (d.recall[1] for d in _directions(results[-1]))
        lines.append(
            f"{lenient.grouped_images:,} images share their group with others; with any member "
            f"of the group right, R@1 is {i2t:.1f} and {t2i:.1f}"
        )
    return lines


def _directions(result: "Result") -> tuple[Any, Any]:
    return result.scores.lenient.image_to_text, result.scores.lenient.text_to_image


def _parts(result: "Result") -> list[str]:
    """Scores for all, overlapping and disjoint queries, if the result was audited."""
    audited = result.about.get("audited")
    if audited is None:
        return []
    train, parts = audited["train"], audited["parts"]
    marked = ", ".join(f"{count:,} by {why}" for why, count in audited["marked"].items() if count)
    budget = f"{result.about['protocol']['token_budget']} tokens"
    lines = [
        f"{parts['overlapping']['images']:,} of {parts['all']['images']:,} images with texts are "
        f"shared with {train['name']}, split {train['split']}" + (f" ({marked})" if marked else ""),
        f"{budget:11}  images   texts "
        "| image to text R@1         95 % | text to image R@1         95 %",
    ]
    for name, part in parts.items():
        cells = " | ".join(_part_cell(part, way) for way in ("image_to_text", "text_to_image"))
        lines.append(f"{name:11} {part['images']:7,d} {part['texts']:7,d} | {cells}")
    return lines


def _part_cell(part: dict[str, Any], direction: str) -> str:
    if part["scores"] is None:
        return f"{'-':>17} {'':>12}"
    low, high = part["intervals"]["strict"][direction]["R@1"]
    return f"{part['scores']['strict'][direction]['R@1']:17.1f} {f'[{low:.1f}, {high:.1f}]':>12}"
