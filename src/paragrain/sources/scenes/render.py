"""Pictures of scenes: anti-aliased, 96 px or more, deterministic in the graph.

Shapes are drawn as coverage masks (8 x 8 samples a pixel) that are computed once for each shape,
size and pattern and then blended onto the canvas, which makes some thousand pictures a second.
"""

import io
import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paragrain.sources.scenes.graph import GRID, Scene

PIXELS = 96
_SAMPLES = 8

RGB: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "orange": (247, 140, 30),
    "yellow": (250, 220, 50),
    "green": (45, 150, 60),
    "blue": (40, 90, 220),
    "purple": (130, 50, 170),
    "pink": (250, 130, 190),
    "brown": (120, 72, 32),
    "black": (20, 20, 22),
    "white": (250, 250, 250),
}
BACKGROUND_RGB: dict[str, tuple[int, int, int]] = {
    "cream": (245, 235, 205),
    "grey": (165, 165, 168),
    "teal": (60, 150, 150),
    "lavender": (205, 195, 240),
    "mint": (185, 235, 205),
    "navy": (28, 38, 84),
    "peach": (250, 205, 175),
    "charcoal": (66, 66, 72),
}
_RADIUS = {"small": 0.19, "medium": 0.29, "large": 0.42}  # in cells
_OUTLINE = 0.035  # in cells


def render(scene: Scene, pixels: int = PIXELS) -> NDArray[np.uint8]:
    """Draw `scene`.

    Args:
        scene: the graph; `scene.look` decides placement inside the cells and slight tints.
        pixels: side of the square picture, a multiple of 3, at least 96.

    Returns:
        uint8 array [pixels, pixels, 3], RGB.
    """
    rng = random.Random(scene.look)
    cell = pixels // GRID
    canvas = np.empty((pixels, pixels, 3), np.float32)
    canvas[:] = _tint(BACKGROUND_RGB[scene.background], rng)
    shifts = [(rng.random(), rng.random(), _tint((0, 0, 0), rng)) for _ in range(GRID * GRID)]
    for thing in scene.things:
        outline, body, marks = _masks(thing.shape, thing.size, thing.pattern, cell)
        across, down, tint = shifts[thing.cell]
        slack = cell - outline.shape[0]
        top = thing.row * cell + round(slack * (0.2 + 0.6 * down))
        left = thing.column * cell + round(slack * (0.2 + 0.6 * across))
        patch = canvas[top : top + outline.shape[0], left : left + outline.shape[1]]
        colour = np.asarray(RGB[thing.colour], np.float32) + tint
        bright = colour.mean() > 128
        ink = np.float32(30 if bright else 235)
        patch += outline * (ink - patch)
        patch += body * (colour - patch)
        if marks is not None:
            patch += marks * (0.75 * (ink - patch))
    return np.clip(canvas + 0.5, 0, 255).astype(np.uint8)


def png(scene: Scene, pixels: int = PIXELS) -> bytes:
    """The picture of `scene` as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(render(scene, pixels)).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def _tint(colour: tuple[int, int, int], rng: random.Random) -> NDArray[np.float32]:
    return np.asarray([c + rng.uniform(-7, 7) for c in colour], np.float32)


@lru_cache(maxsize=4096)
def _masks(
    shape: str, size: str, pattern: str, cell: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None]:
    """Coverage in [0, 1] of outline, body and pattern marks, each [side, side, 1]."""
    radius = _RADIUS[size]
    side = int(np.ceil(2 * cell * (radius + _OUTLINE)))
    steps = (np.arange(side * _SAMPLES) + 0.5) / _SAMPLES - side / 2
    y, x = np.meshgrid(steps, steps, indexing="ij")
    scale = radius * cell
    inside = _inside(shape, x / scale, y / scale)
    grown = scale + _OUTLINE * cell
    outline = _inside(shape, x / grown, y / grown) | inside
    marks = inside & _marked(pattern, x, y, cell)
    return _cover(outline), _cover(inside), _cover(marks) if pattern != "plain" else None


def _cover(samples: NDArray[np.bool_]) -> NDArray[np.float32]:
    side = samples.shape[0] // _SAMPLES
    blocks = samples.reshape(side, _SAMPLES, side, _SAMPLES)
    return blocks.mean(axis=(1, 3), dtype=np.float32)[..., None]


def _marked(
    pattern: str, x: NDArray[np.float64], y: NDArray[np.float64], cell: int
) -> NDArray[np.bool_]:
    """Where a pattern puts its second tone; measured in cells, so that every size shows it."""
    step = 0.14 * cell
    if pattern == "striped":
        return np.asarray(((x + y) / (1.5 * step)) % 1 < 0.45)
    u, v = (x / step) % 1 - 0.5, (y / step) % 1 - 0.5
    return np.asarray(u * u + v * v < 0.1)


def _inside(shape: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points lie in the unit-sized shape; y points down."""
    r2 = x * x + y * y
    if shape == "circle":
        return r2 < 0.92
    if shape == "square":
        return (np.abs(x) < 0.82) & (np.abs(y) < 0.82)
    if shape == "triangle":
        return (y < 0.8) & (y > 1.9 * np.abs(x) - 0.98)
    if shape == "diamond":
        return np.abs(x) * 1.25 + np.abs(y) < 1
    if shape == "star":
        angle = np.arctan2(x, -y)
        wedge = np.abs((angle / (2 * np.pi / 5) + 0.5) % 1 - 0.5) * 2 * np.pi / 5
        return np.sqrt(r2) * np.cos(wedge) + np.sqrt(r2) * np.sin(wedge) * 1.35 < 1.0
    if shape == "cross":
        a, b = np.abs(x), np.abs(y)
        return ((a < 0.32) & (b < 0.95)) | ((b < 0.32) & (a < 0.95))
    if shape == "heart":
        a, b = x * 1.2, -y * 1.2 + 0.1
        return (a * a + b * b - 1) ** 3 - a * a * b**3 < 0
    if shape == "crescent":
        return (r2 < 0.95) & ((x - 0.45) ** 2 + y * y > 0.6)
    if shape == "ring":
        return (r2 < 0.98) & (r2 > 0.3)
    if shape == "arrow":
        head = (x > 0) & (x < 0.95) & (np.abs(y) < 0.9 * (0.95 - x))
        return head | ((np.abs(y) < 0.28) & (x > -0.95) & (x <= 0.05))
    raise ValueError(f"unknown shape {shape!r}")
