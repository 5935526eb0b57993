"""One palette, dark mode, and names in any script."""

import re
import warnings
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from paragrain import plots

# Severe deuteranopia, protanopia and tritanopia (Machado, Oliveira and Fernandes 2009), and none.
SIGHTS = np.array(
    [
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
        np.eye(3),
    ]
)
NAMES = [
    "照片集",
    "صور",
    "🐕🏔️",
    "naïve $x_1$ & <b>",
    "a\x1b[31mb\nc",
    "\ud800half",
    "한국 Фото हिन्दी",
    "",
]


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(light, 0, 1) / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other))
    return lights[1] / lights[0]


@pytest.mark.parametrize(("theme", "paper"), [(0, "#ffffff"), (1, plots.PAPER_DARK)])
def test_the_colours_of_recipes_can_be_told_apart_by_all_on_light_and_dark(
    theme: int, paper: str
) -> None:
    colours = {name: look[theme] for name, look in plots._FAMILIES.items()}
    for one, other in combinations(colours, 2):
        seen = [
            np.linalg.norm(lab(sight @ linear(colours[one])) - lab(sight @ linear(colours[other])))
            for sight in SIGHTS
        ]
        often_together = {one, other} <= {plots.BASE, "c1", "c4", "c5"}
        assert min(seen) > (30 if often_together else 15), (one, other)
    assert min(contrast(colour, paper) for colour in colours.values()) >= 3
    assert len({marker for *_, marker in plots._FAMILIES.values()}) == len(colours)


def test_a_recipe_keeps_its_colour_and_variants_show_theirs() -> None:
    whole = plots.families({"BLIP": plots.BASE, "C1": "c1", "C4": "c4", "Mine": "mine"})
    part = plots.families({"C4": "c4", "C4, cut": "c4"})
    assert whole["C4"] == part["C4"]
    assert part["C4, cut"]["color"] == part["C4"]["color"]
    assert part["C4, cut"]["linestyle"] != part["C4"]["linestyle"]
    assert whole["Mine"]["color"] not in {whole[n]["color"] for n in ("BLIP", "C1", "C4")}


def drawing(name: str) -> Figure:
    drawn, (axes,) = plots.panels()
    axes.plot([1, 2], [3, 4], color=plots.COLOURS[0], label=name)
    plots.dress(axes, name, name, name)
    plots.name_ends(axes, [(name, 2, 4)])
    plots.legend_below(axes)
    return drawn


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_script_are_drawn_without_a_warning(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = plots.svg(drawing(name))
        plots.save_png(drawing(name), tmp_path / "a.png")
    root = ElementTree.fromstring(whole)  # sound XML, whatever was in the name
    shown = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert plots.label(name) in shown or not name
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_letters_that_no_font_has_are_spelled_out_in_pixels() -> None:
    assert plots.spelled("naïve café") == "naïve café"
    assert plots.spelled("中 한국 🐕") == "[4E2D] hangug :dog:"


def test_a_drawing_follows_the_readers_dark_mode_and_is_plain_without_it() -> None:
    whole = plots.svg(drawing("a"))
    assert f"stroke: {plots.COLOURS[0]}" in whole  # for renderers that know no style sheets
    dark = re.search(r"@media \(prefers-color-scheme: dark\) {(.*?)}}", whole, re.DOTALL)
    assert dark
    for light, own in plots.DARK.items():
        assert f"[style*='stroke: {light}']{{stroke:{own}!important}}" in whole
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", whole.split("</style>")[1]))
    assert used <= {*plots.DARK}, "a colour that stays as it is on a dark page"
