"""Pages are safe to open, whatever is in the texts."""

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


def test_a_figure_is_one_svg_without_a_file_header() -> None:
    html = pages.figure(titled("t"), "c")
    assert html.startswith("<figure><svg")
    assert "<?xml" not in html
    assert "<!DOCTYPE" not in html
