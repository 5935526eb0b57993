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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paragrain import plots
from paragrain.stats import RESAMPLES
from paragrain.study.analyses.pairs import Measured, Pairs, image_draws, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIFORMITY_T = 2.0
_AT_ONCE = 250  # resamples whose centroids are held together

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


@dataclass(frozen=True)
class Geometry:
    """How the N pairs of a benchmark lie.

    Attributes:
        pairs: N.
        gap, alignment, images, texts: modality gap, alignment, and uniformity of each modality.
        cosine: mean cosine of matched pairs, which is 1 - alignment / 2.
        seed, resamples: of the intervals.
    """

    pairs: int
    gap: Measured
    alignment: Measured
    images: Measured
    texts: Measured
    cosine: Measured
    seed: int
    resamples: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return rounded(
            {
                "pairs": self.pairs,
                "modality_gap": self.gap.as_dict(),
                "alignment": self.alignment.as_dict(),
                "uniformity_images": self.images.as_dict(),
                "uniformity_texts": self.texts.as_dict(),
                "matched_cosine": self.cosine.as_dict(),
                "uniformity_t": UNIFORMITY_T,
                "seed": self.seed,
                "resamples": self.resamples,
            }
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Geometry":
        """What `as_dict` gave."""
        names = ("modality_gap", "alignment", "uniformity_images", "uniformity_texts")
        gap, near, images, texts, cosine = (
            Measured(**plain[name]) for name in (*names, "matched_cosine")
        )
        about = plain["seed"], plain["resamples"]
        return cls(plain["pairs"], gap, near, images, texts, cosine, *about)


def geometry(pairs: Pairs, *, resamples: int = RESAMPLES, seed: int = 0) -> Geometry:
    """Measure gap, alignment and uniformity of pairs, with intervals over images.

    Memory is that of N x N and R x N numbers: 16 MB each for a thousand pairs.
    """
    images, texts = _double(pairs.images), _double(pairs.texts)
    draws = image_draws(len(images), resamples=resamples, seed=seed)
    between = images - texts
    gaps = [
        np.linalg.norm(part @ between, axis=1) / len(images)
        for part in np.array_split(draws, -(-resamples // _AT_ONCE))
    ]
    distances = _squared_distances(images, texts)
    drawn = draws @ distances / len(images)
    near = Measured.of(float(distances.mean()), drawn)
    return Geometry(
        len(images),
        Measured.of(modality_gap(images, texts), np.concatenate(gaps)),
        near,
        _uniformity(images, draws),
        _uniformity(texts, draws),
        Measured.of(1 - near.value / 2, 1 - drawn / 2),
        seed,
        resamples,
    )


def _uniformity(vectors: np.ndarray, draws: np.ndarray) -> Measured:
    potentials = _potentials(vectors)
    pairs = draws.sum(1) ** 2 - (draws**2).sum(1)
    means = ((draws @ potentials) * draws).sum(1) / pairs
    return Measured.of(uniformity(vectors), np.log(means))


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


_IMAGES, _TEXTS = "#7d8590", "#c2419f"  # pixels: to be read on light and dark, of no recipe

# --- The map ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Map:
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

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        settings = {**TSNE, "perplexity": self.perplexity, "seed": self.seed}
        about = {"ids": self.ids, "settings": settings, "divergence": self.divergence}
        return rounded({**about, "images": self.images, "texts": self.texts}, 2)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Map":
        """What `as_dict` gave."""
        settings = plain["settings"]
        images, texts = (np.array(plain[name], dtype=float) for name in ("images", "texts"))
        about = settings["perplexity"], settings["seed"], plain["divergence"]
        return cls(plain["ids"], images, texts, *about)


def tsne_map(pairs: Pairs, *, seed: int = 0) -> Map:
    """Lay images and texts of N pairs flat, together.

    The same seed gives the same map on the same machine. A thousand points take some 20 s on one
    core. With fewer than 91 points the perplexity is a third of their number.
    """
    from sklearn.manifold import TSNE as Tsne

    points = np.concatenate([pairs.images, pairs.texts]).astype(np.float64)
    perplexity = min(TSNE["perplexity"], (len(points) - 1) / 3)
    model = Tsne(random_state=seed, **{**TSNE, "perplexity": perplexity})
    images, texts = np.split(model.fit_transform(points), 2)
    divergence = float(model.kl_divergence_)
    return Map(pairs.ids, images, texts, perplexity, seed, divergence)


def draw_maps(maps: Mapping[str, Map]) -> "Figure":
    """One panel a model: images as dots, texts as crosses, a thin line between matched ones."""
    drawing, panels = plots.panels(len(maps), across=2, size=(2.8, 2.9))
    for axes, (name, found) in zip(panels, maps.items(), strict=True):
        apart = np.full((len(found.ids), 2), np.nan)  # all lines in one path, with gaps
        joined = np.stack([found.images, found.texts, apart], 1).reshape(-1, 2)
        axes.plot(joined[:, 0], joined[:, 1], color=plots.FRAME, linewidth=0.4, alpha=0.5, zorder=1)
        for points, colour, marker, label in (
            (found.images, _IMAGES, "o", "images"),
            (found.texts, _TEXTS, "x", "texts"),
        ):
            axes.scatter(
                points[:, 0], points[:, 1], s=9, c=colour, marker=marker, linewidths=0.9
            ).set(label=label, rasterized=True)
        plots.dress(axes, "", "", name, grid=False)
        axes.spines[:].set(visible=True, color=plots.FRAME)
        axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(
        handles, names, loc="outside lower center", ncols=2, frameon=False,
        fontsize=plots.SMALL, markerscale=1.6, labelcolor=plots.INK,
    )  # fmt: skip
    return drawing
