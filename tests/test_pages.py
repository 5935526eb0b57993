"""Pages are safe to open, whatever is in the texts."""

import re

from matplotlib.figure import Figure

from paragrain import pages

EVIL = "<script>alert('x')</script> & \"quotes\""


def titled(title: str) -> Figure:
    drawing = Figure()
    drawing.subplots().set_title(title)
    return drawing


def test_everything_shown_is_escaped() -> None:
    html = pages.page(
        EVIL,
        pages.paragraph(EVIL),
        pages.heading(EVIL),
        pages.table([EVIL], [[EVIL]], EVIL),
        pages.picture(b"\x89PNG", "image/png", EVIL),
        pages.figure(titled(EVIL), EVIL),
    )
    assert "<script" not in html
    assert "alert(&#x27;x&#x27;)" in html


def test_the_best_number_of_each_column_is_marked_and_ties_share_it() -> None:
    html = pages.table(["m", "a", "b"], [["x", 1.0, 3.0], ["y", 2.0, 3.0]], "c", mark_best=True)
    assert "<td class=best>2.0</td>" in html
    assert html.count("<td class=best>3.0</td>") == 2
    assert "<td>1.0</td>" in html
    assert "<th scope=row>x</th>" in html


def test_a_figure_is_one_svg_without_a_file_header() -> None:
    html = pages.figure(titled("t"), "c")
    assert html.startswith("<figure class=plot><svg")
    assert "<?xml" not in html
    assert "<!DOCTYPE" not in html


def test_headings_become_the_contents_and_every_link_has_its_place() -> None:
    parts = [pages.heading(EVIL), pages.part("Two", pages.heading("Inner", 3), folded=True)]
    html = pages.page("t", *parts, pages.heading("Two"), pages.heading("Last"))
    links = re.findall(r"<a href='#(s\d+)'>", html)
    assert len(links) == 5
    assert links == re.findall(r"<h[23] id=(s\d+)>", html)
    assert "<nav aria-label='Contents'>" in html
    assert "<script" not in html
    assert "<nav" not in pages.page("t", pages.heading("one"), pages.heading("two"))


def test_a_part_is_open_unless_it_is_said_to_be_folded() -> None:
    assert pages.part("a", "x").startswith("<details class=part open>")
    folded = pages.part("a", "x", folded=True, note=EVIL)
    assert folded.startswith("<details class=part><summary>")
    assert "<script" not in folded


def test_columns_have_groups_and_an_interval_stands_below_its_number() -> None:
    html = pages.table(
        ["model", ("Long", "i2t"), ("Long", "t2i"), "n"],
        [["a", "41.4 (39.5 to 43.3)", "+3.1 (1.2 to 5.0)*", "7"]],
        "c",
    )
    assert "<th class=group scope=colgroup colspan=2>Long</th>" in html
    assert html.count("rowspan=2") == 2
    assert "<td>41.4<small>(39.5 to 43.3)</small></td>" in html
    assert "<td>+3.1<small>(1.2 to 5.0)*</small></td>" in html
    assert "tabindex=0 role=region" in html
