"""How much each place in a text weighs, for the mechanism behind truncation curves.

Two measures of a token's weight, both as shares over the words of a text (tokens that stand for no
word are told apart):

- **gradient**: length of the gradient of the cosine with the text's own image, at the vector of the
  token as it is looked up;
- **attention**: what the token that becomes the text's vector gives to it, mean over heads and
  layers: [CLS] for BLIP, the end token for CLIP, the last position for SigLIP.

Texts differ in length, so the weight by position is told relative to an even spread: a token that
carries just its part of the text has 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from paragrain import plots
from paragrain.collection import Collection
from paragrain.encoders.base import ImageTextEncoder, evaluating, length_batches, pad
from paragrain.errors import ParagrainError, UsageError
from paragrain.evaluation import Benchmark
from paragrain.pages import Block, Figure, Heading
from paragrain.stats import RESAMPLES, Estimate
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.analyses.saliency import read_spans, watched
from paragrain.study.analyses.sample import check_images, draw_rows, mean_over_images
from paragrain.study.figures import Band, Styles, draw_bands
from paragrain.study.plan import Study
from paragrain.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MEASURES = {"gradient": "gradient of the pair's cosine", "attention": "attention"}
"""What each is called in a report."""

BEHIND = 60
"""Tokens that a maximum length of 60 would not read are "behind"."""

WIDTH = 8
"""Tokens in a bin of the profile by position."""

TENTHS = 10
_BATCH_TOKENS = 2048  # a backward pass holds every layer
_ATTENTION = (".attention.self", ".self_attn")


@dataclass(frozen=True, eq=False)
class Positions:
    """The weight of the places of N texts.

    Attributes:
        measure: one of `MEASURES`.
        texts: N, one of each image.
        tokens: the maximum length.
        starts: [P] first position of each bin of `WIDTH` tokens; the start token is position 0.
        by_position: [P] mean weight of a token in the bin, 1 where it is even; over the texts that
            reach it.
        reach: [P] texts that reach each bin.
        by_tenth: [10] share of each tenth of the words of a text; even is 0.1.
        behind, behind_even: share of the mass on tokens that a length of `BEHIND` would not read,
            and what it would be if all tokens weighed the same.
        mean_place: mean place of the mass from 0 (first word) to 1 (last); even is 0.5.
        special: share of all mass on tokens that stand for no word: start and end tokens. What
            fills a short text up is left out.
        seed, resamples: of sample and intervals.
    """

    measure: str
    texts: int
    max_length: int
    starts: list[int]
    by_position: list[Estimate]
    reach: list[int]
    by_tenth: list[Estimate]
    behind: Estimate
    behind_even: Estimate
    mean_place: Estimate
    special: Estimate
    seed: int
    resamples: int


def positions(
    benchmark: Benchmark,
    encoder: ImageTextEncoder,
    *,
    max_length: int,
    measure: str = "gradient",
    size: int = 300,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Positions:
    """Weigh the places of `size` texts of a benchmark, one of each image that is drawn.

    The same seed draws the same texts for every model, so profiles can be laid side by side.

    Raises:
        UsageError: unknown measure, another image tower, or as `draw_rows`.
        ParagrainError: the encoder gives no attention weights (see `can_attend`), or does not tell
            where it looks tokens up.
    """
    if measure not in MEASURES:
        raise UsageError(f"unknown measure {measure!r}: choose one of {', '.join(MEASURES)}")
    check_images(benchmark, encoder)
    images, texts = draw_rows(benchmark, size, seed)
    written = [benchmark.texts[row] for row in texts]
    vectors = torch.from_numpy(benchmark.images[images]).to(encoder.device)
    found = encoder.tokenize(written, max_length)
    rows = [found.row(index) for index in range(len(found))]
    weigh = _gradients if measure == "gradient" else _attentions
    weights: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for batch in length_batches([len(row) for row in rows], _BATCH_TOKENS):
        ids, mask = pad([rows[index] for index in batch], encoder.pad_id)
        ids, mask = ids.to(encoder.device), mask.to(encoder.device)
        by_text = weigh(encoder, ids, mask, vectors[torch.from_numpy(batch)])
        for place, index in enumerate(batch.tolist()):
            weights[index] = by_text[place, : len(rows[index])]
    words = [
        np.array([end > start for start, end in read_spans(encoder, text, row)])
        for text, row in zip(written, rows, strict=True)
    ]
    return summarise(
        weights, words, measure=measure, max_length=max_length, resamples=resamples, seed=seed
    )


def summarise(
    weights: Sequence[np.ndarray],
    words: Sequence[np.ndarray],
    *,
    measure: str,
    max_length: int,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Positions:
    """Sum up the weights of N texts.

    Args:
        weights: of each text [L], at least 0, for its start token and on.
        words: of each text bool [L]: False for tokens that stand for no word.
        measure, max_length, resamples, seed: as in `positions`.

    A start token, three words that weigh 1, 1 and 2, an end token.

    >>> weights, words = np.array([4.0, 1, 1, 2, 0]), np.array([False, True, True, True, False])
    >>> found = summarise([weights], [words], measure="gradient", max_length=8, resamples=1)
    >>> found.special.value, found.by_position[0].value, found.mean_place.value
    (0.5, 1.0, 0.625)
    """
    bins = -(-max_length // WIDTH)
    by_position = np.full((len(weights), bins), np.nan)
    numbers = np.full((len(weights), TENTHS + 4), np.nan)  # tenths, behind, even, place, special
    for index, (all_weights, is_word) in enumerate(zip(weights, words, strict=True)):
        places = np.flatnonzero(is_word)
        total, own = all_weights.sum(), all_weights[places]
        if not len(places) or own.sum() <= 0:
            continue  # a text of special tokens alone, or a model that does not look
        shares = own / own.sum()
        binned = np.bincount(places // WIDTH, shares, bins)
        with np.errstate(invalid="ignore", divide="ignore"):
            counts = np.bincount(places // WIDTH, minlength=bins)
            by_position[index] = len(places) * binned / counts
        # The maximum length keeps its end token, so the last word token read is at BEHIND - 2.
        behind = places > BEHIND - 2
        middle = np.arange(len(places)) / max(len(places) - 1, 1)
        numbers[index] = [
            *_tenths(shares),
            shares[behind].sum(),
            behind.mean(),
            (shares * middle).sum() if len(places) > 1 else 0.5,
            1 - own.sum() / total,
        ]
    profile = mean_over_images(by_position, resamples=resamples, seed=seed)
    reach = (~np.isnan(by_position)).sum(0).tolist()
    used = [place for place in range(bins) if reach[place]]
    told = mean_over_images(numbers, resamples=resamples, seed=seed)
    behind_share, even, mean_place, special = told[TENTHS:]
    return Positions(
        measure,
        len(weights),
        max_length,
        [place * WIDTH for place in used],
        [profile[place] for place in used],
        [reach[place] for place in used],
        told[:TENTHS],
        behind_share,
        even,
        mean_place,
        special,
        seed,
        resamples,
    )


def _tenths(shares: np.ndarray) -> np.ndarray:
    """Shares [T] of tokens in order, as [10]: each token fills an equal part of the axis.

    >>> _tenths(np.array([0.75, 0.25])).tolist()
    [0.15, 0.15, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05, 0.05, 0.05]
    """
    heaped = np.concatenate([[0.0], np.cumsum(shares)])
    edges = np.linspace(0, 1, TENTHS + 1)
    tenths: np.ndarray = np.diff(np.interp(edges, np.linspace(0, 1, len(heaped)), heaped))
    return np.round(tenths, 12)


# --- The weights ------------------------------------------------------------------------------


def _gradients(
    encoder: ImageTextEncoder, ids: torch.Tensor, mask: torch.Tensor, images: torch.Tensor
) -> np.ndarray:
    """[B, L]: length of the gradient of each text's cosine with its image, at each token."""
    with watched(encoder) as leaves:
        cosines = (encoder.text_features(ids, mask) * images).sum()
        (gradient,) = torch.autograd.grad(cosines, leaves)
    lengths: np.ndarray = gradient.norm(dim=-1).double().cpu().numpy()
    return lengths


def can_attend(encoder: ImageTextEncoder) -> str:
    """Why an encoder's attention cannot be told, or "" if it can."""
    if encoder.pooled_token is not None:
        return ""
    return f"it is not known which token of {type(encoder).__name__} becomes the text's vector"


def _attentions(
    encoder: ImageTextEncoder, ids: torch.Tensor, mask: torch.Tensor, images: torch.Tensor
) -> np.ndarray:
    """[B, L]: what the token that becomes the vector attends to, mean over heads and layers."""
    reason = can_attend(encoder)
    if reason:
        raise ParagrainError(f"attention cannot be weighed ({reason}): use the gradient")
    seen: list[torch.Tensor] = []
    last = mask.sum(1) - 1

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        heads = output[1]  # [B, heads, asking, L]
        at_end = torch.full_like(last, heads.shape[2] - 1)
        places = {"first": torch.zeros_like(last), "end": last, "last": at_end}
        asking = places[str(encoder.pooled_token)]
        seen.append(heads.mean(1)[torch.arange(len(last), device=last.device), asking])

    with _attending(encoder.text_tower, keep), evaluating(encoder):
        encoder.text_features(ids, mask)
    weights: np.ndarray = torch.stack(seen).mean(0).double().cpu().numpy()
    return weights


@contextmanager
def _attending(tower: Any, keep: Any) -> Iterator[None]:
    """Call `keep` with what each self-attention of a text tower gives, weights included."""
    before = tower.config._attn_implementation
    handles = [
        module.register_forward_hook(keep)
        for name, module in tower.named_modules()
        if name.endswith(_ATTENTION)
    ]
    if before != "eager":
        tower.set_attn_implementation("eager")  # the faster kernels keep no weights
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        if tower.config._attn_implementation != before:
            tower.set_attn_implementation(before)


# --- In a study -------------------------------------------------------------------------------


def draw_positions(found: Mapping[str, Positions], styles: Styles, *, least: int = 20) -> "Drawing":
    """Weight by position, and share by tenth, one line a model; 1 and 10 % are an even spread.

    Args:
        found: by model, all of one measure.
        styles: of each model.
        least: bins that fewer texts reach are not drawn.
    """
    drawing, (above, below) = plots.panels(2, size=(5.4, 3.3))
    measure = next(iter(found.values())).measure
    by_position, by_tenth = {}, {}
    for name, one in found.items():
        shown = [place for place, reach in enumerate(one.reach) if reach >= min(least, one.texts)]
        middles = [one.starts[place] + (WIDTH - 1) / 2 for place in shown]
        by_position[name] = Band.of(middles, [one.by_position[place] for place in shown])
        by_tenth[name] = Band.of(
            [5.0 + 10 * place for place in range(TENTHS)], one.by_tenth, scale=100
        )
    for axes, bands, even in ((above, by_position, 1), (below, by_tenth, 10)):
        axes.axhline(even, color=plots.SOFT, linewidth=0.9)
        draw_bands(axes, bands, styles)
    plots.dress(above, "position of the token", f"{measure} of a token, even = 1")
    plots.dress(below, "place in the text, %", f"share of {measure}, %")
    for axes, bands in ((above, by_position), (below, by_tenth)):
        axes.set_ylim(bottom=0)
        plots.name_ends(axes, [end for name, band in bands.items() if (end := band.end(name))])
    return drawing


def _compute(context: AnalysisContext) -> dict[str, dict[str, Positions]]:
    return {
        name: {
            measure: positions(
                context.benchmark(name),
                context.encoder(name),
                max_length=context.max_length(name),
                measure=measure,
            )
            for measure in MEASURES
            if measure == "gradient" or not can_attend(context.encoder(name))
        }
        for name in context.models()
    }


def _blocks(
    study: Study, found: Mapping[str, Mapping[str, Positions]], collection: Collection | None
) -> Iterator[Block]:
    yield Heading("Which places of a text count?", 3, folded=True)
    for measure, what in MEASURES.items():
        own = {study.title(name): by[measure] for name, by in found.items() if measure in by}
        if not own:
            continue
        yield Figure(
            draw_positions(own, study.styles),
            f"Share of the {what} over the places of the tokens, with 95 % bands.",
            f"positions-{measure}",
        )
        yield Table(
            f"The same {what} in numbers, with 95 % intervals over images.",
            ["model", f"share behind token {BEHIND}", "if spread evenly", "mean place, 0 to 1"],
            [
                [title, one.behind, one.behind_even.value, one.mean_place]
                for title, one in own.items()
            ],
            {1: ".3f", 2: ".3f", 3: ".3f"},
        )


ANALYSIS = Analysis(dict[str, Positions], _compute, _blocks)
