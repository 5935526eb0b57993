"""How images and texts lie on the sphere: three numbers with intervals, and a flat map.

- **Modality gap**: length of the difference between the centroid of the images and that of the
  texts (Liang et al., arXiv 2203.02053). From 0 to 2.
- **Alignment**: mean squared distance of matched pairs; 0 is perfect (Wang and Isola, arXiv
  2005.10242, alpha = 2).
- **Uniformity** of each modality: logarithm of the mean of exp(-2 d^2) over pairs of different
  vectors at distance d; 0 if all are one point, about -4 if they are spread evenly over a sphere of
  many dimensions (the same paper, t = 2).

Intervals resample images, each with its text. A copy of an image is no pair with itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import plots
from paragrain.collection import Collection
from paragrain.pages import Block, Figure, Heading
from paragrain.stats import RESAMPLES, Estimate
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.analyses.sample import EmbeddedPairs, image_draws
from paragrain.study.plan import Study
from paragrain.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

UNIFORMITY_T = 2.0
_CHUNK = 250  # resamples whose centroids are held together

TSNE: dict[str, Any] = {
    "perplexity": 30.0,
    "metric": "cosine",
    "init": "pca",
    "learning_rate": "auto",
    "early_exaggeration": 12.0,
    "max_iter": 1000,
    "method": "barnes_hut",
    "angle": 0.5,
}
"""Settings of `sklearn.manifold.TSNE`: its defaults, written down, but for the cosine."""


def modality_gap(images: np.ndarray, texts: np.ndarray) -> float:
    """Length of the difference of the centroids of [N, D] and [M, D].

    Centroids (1, 0) and (0.5, 0.5).

    >>> round(modality_gap(np.array([[1.0, 0.0]]), np.eye(2)), 4)
    0.7071
    """
    return float(np.linalg.norm(_double(images).mean(0) - _double(texts).mean(0)))


def alignment(images: np.ndarray, texts: np.ndarray) -> float:
    """Mean squared distance of the rows of [N, D] and [N, D], which belong together.

    Squared distances 0 and 2.

    >>> float(alignment(np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]])))
    1.0
    """
    return float(_squared_distances(images, texts).mean())


def uniformity(vectors: np.ndarray) -> float:
    """log of the mean of exp(-2 d^2) over pairs of different rows of [N, D].

    Three vectors: one pair at squared distance 0, two at 2, so log((1 + 2 exp(-4)) / 3).

    >>> round(uniformity(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])), 4)
    -1.0626
    >>> bool(np.isclose(-1.0626, np.log((1 + 2 * np.exp(-4)) / 3), atol=1e-4))
    True
    """
    potentials = _potentials(vectors)
    pairs = len(vectors) * (len(vectors) - 1)
    return float(np.log(potentials.sum() / pairs))


@dataclass(frozen=True, eq=False)
class TsneMap:
    """Images and texts laid flat by t-SNE; distances between far points mean little.

    Attributes:
        ids: of the N images.
        images, texts: [N, 2], without a unit.
        perplexity, seed: of t-SNE; the other settings are `TSNE`.
        divergence: Kullback-Leibler divergence that t-SNE ended with, in nats.
    """

    ids: list[str]
    images: np.ndarray
    texts: np.ndarray
    perplexity: float
    seed: int
    divergence: float


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the N pairs of a benchmark lie, with intervals; `seed` and `resamples` are theirs.

    The cosine of matched pairs is 1 - alignment / 2.
    """

    pairs: int
    modality_gap: Estimate
    alignment: Estimate
    uniformity_images: Estimate
    uniformity_texts: Estimate
    matched_cosine: Estimate
    seed: int
    resamples: int
    map: TsneMap | None = None


def geometry(pairs: EmbeddedPairs, *, resamples: int = RESAMPLES, seed: int = 0) -> Geometry:
    """Measure gap, alignment and uniformity of pairs, with intervals over images.

    Memory is that of N x N and R x N numbers: 16 MB each for a thousand pairs.
    """
    images, texts = _double(pairs.images), _double(pairs.texts)
    draws = image_draws(len(images), resamples=resamples, seed=seed)
    between = images - texts
    gaps = [
        np.linalg.norm(part @ between, axis=1) / len(images)
        for part in np.array_split(draws, -(-resamples // _CHUNK))
    ]
    distances = _squared_distances(images, texts)
    drawn = draws @ distances / len(images)
    mean = float(distances.mean())
    return Geometry(
        len(images),
        Estimate.from_draws(modality_gap(images, texts), np.concatenate(gaps)),
        Estimate.from_draws(mean, drawn),
        _uniformity(images, draws),
        _uniformity(texts, draws),
        Estimate.from_draws(1 - mean / 2, 1 - drawn / 2),
        seed,
        resamples,
    )


def _uniformity(vectors: np.ndarray, draws: np.ndarray) -> Estimate:
    potentials = _potentials(vectors)
    pairs = draws.sum(1) ** 2 - (draws**2).sum(1)
    means = ((draws @ potentials) * draws).sum(1) / pairs
    return Estimate.from_draws(uniformity(vectors), np.log(means))


def _potentials(vectors: np.ndarray) -> np.ndarray:
    """[N, N]: exp(-2 d^2), and nothing on the diagonal."""
    vectors = _double(vectors)
    squares = (vectors**2).sum(1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * vectors @ vectors.T, 0)
    potentials: np.ndarray = np.exp(-UNIFORMITY_T * distances)
    np.fill_diagonal(potentials, 0)
    return potentials


def _squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    squares: np.ndarray = ((_double(one) - _double(other)) ** 2).sum(1)
    return squares


def _double(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors, dtype=np.float64)


# --- The map ----------------------------------------------------------------------------------


def tsne_map(pairs: EmbeddedPairs, *, seed: int = 0) -> TsneMap:
    """Lay images and texts of N pairs flat, together.

    The same seed gives the same map on the same machine. A thousand points take some 20 s on one
    core. With fewer than 91 points the perplexity is a third of their number.
    """
    from sklearn.manifold import TSNE as Tsne

    points = np.concatenate([pairs.images, pairs.texts]).astype(np.float64)
    perplexity = min(TSNE["perplexity"], (len(points) - 1) / 3)
    model = Tsne(random_state=seed, **{**TSNE, "perplexity": perplexity})
    images, texts = np.split(model.fit_transform(points).astype(np.float64).round(2), 2)
    return TsneMap(pairs.ids, images, texts, perplexity, seed, float(model.kl_divergence_))


_COLOURS = {"images": "#7d8590", "texts": "#c2419f"}  # on light and dark alike, of no recipe
_MARKERS = {"images": "o", "texts": "x"}


def draw_maps(maps: Mapping[str, TsneMap]) -> "Drawing":
    """One panel a model: images as dots, texts as crosses, a thin line between matched ones."""
    drawing, panels = plots.panels(len(maps), across=2, size=(2.8, 2.9))
    for axes, (name, found) in zip(panels, maps.items(), strict=True):
        apart = np.full((len(found.ids), 2), np.nan)  # all lines in one path, with gaps
        joined = np.stack([found.images, found.texts, apart], 1).reshape(-1, 2)
        axes.plot(joined[:, 0], joined[:, 1], color=plots.FRAME, linewidth=0.4, alpha=0.5, zorder=1)
        for side, colour in _COLOURS.items():
            across, up = getattr(found, side).T
            marks = axes.scatter(across, up, s=9, c=colour, marker=_MARKERS[side], linewidths=0.9)
            marks.set(label=side, rasterized=True)
        plots.dress(axes, "", "", name, grid=False)
        axes.spines[:].set(visible=True, color=plots.FRAME)
        axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(
        handles, names, loc="outside lower center", ncols=2, frameon=False,
        fontsize=plots.SMALL, markerscale=1.6, labelcolor=plots.INK,
    )  # fmt: skip
    return drawing


# --- In a study -------------------------------------------------------------------------------


def _compute(context: AnalysisContext) -> dict[str, Geometry]:
    benchmark = context.spec.map or context.spec.benchmark
    found = {}
    for name in context.models():
        pairs = context.pairs(name, benchmark)
        found[name] = replace(geometry(pairs), map=tsne_map(pairs))
    return found


def _blocks(
    study: Study, found: Mapping[str, Geometry], collection: Collection | None
) -> Iterator[Block]:
    assert study.file.analyses is not None
    where = study.benchmark_title(study.file.analyses.map or study.file.analyses.benchmark)
    yield Heading("Where images and texts lie", 3)
    maps = {study.title(name): one.map for name, one in found.items() if one.map}
    if maps:
        pairs = len(next(iter(maps.values())).images)
        yield Figure(
            draw_maps(maps),
            f"t-SNE of images and texts together, {pairs:,} pairs of {where}. Distances between "
            "clumps mean nothing.",
            "tsne",
        )
    yield Table(
        "Gap: distance of the centroids of images and texts (Liang et al. 2022). Alignment: mean "
        "squared distance of matched pairs, lower is closer. Uniformity: log of the mean Gaussian "
        "potential, lower is more even (Wang and Isola 2020). With 95 % intervals over images.",
        ["model", "modality gap", "alignment", "uniformity of images", "uniformity of texts"],
        [
            [study.title(name), *(
                getattr(one, part)
                for part in ("modality_gap", "alignment", "uniformity_images", "uniformity_texts")
            )]
            for name, one in found.items()
        ],
        {1: ".3f", 2: ".3f", 3: ".2f", 4: ".2f"},
    )  # fmt: skip


ANALYSIS = Analysis(Geometry, _compute, _blocks)
