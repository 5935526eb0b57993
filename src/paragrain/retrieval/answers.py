"""Which answers are right, laid out in ranges, and the best score that any of them gets.

Images are sorted so that groups of several, and images that share a wording with others, come
first, each group in one piece; texts follow the order of their images. The right texts of an image
are then one range, strictly; leniently that of its group, and the same wordings elsewhere beside.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from paragrain.retrieval.tiles import Targets, spans
from paragrain.retrieval.vectors import Vectors, on_host, take

_CHUNK = 1 << 20  # numbers in a temporary array

_Scored = Callable[["Layout", Vectors, Vectors], Iterator[tuple[Any, Any, np.ndarray]]]


@dataclass(frozen=True)
class Layout:
    """The order in which images and texts are ranked.

    Attributes:
        image_order, text_order: [N], [M]; the caller's row at each place.
        owner: [M]; the place of the image that the text at each place belongs to, rising.
        edges: [N + 1]; the image at place i owns the texts at places edges[i] to edges[i + 1].
        group_edges: [G + 1]; group g is the images at places group_edges[g] to group_edges[g + 1].
            It has two images or more, or a wording that other groups have too. All further images
            stand for themselves.
        shared: places of the texts of each wording that several groups have.
        grouped_images: number of images that share their group.
    """

    image_order: np.ndarray
    text_order: np.ndarray
    owner: np.ndarray
    edges: np.ndarray
    group_edges: np.ndarray
    shared: list[np.ndarray]
    grouped_images: int

    @classmethod
    def of(
        cls, text_image: np.ndarray, groups: np.ndarray, wordings: np.ndarray | None = None
    ) -> "Layout":
        """Lay out texts that belong to images `text_image` [M], and images in `groups` [N].

        Texts of one number in `wordings` [M] say the same; without it, each says its own.

        >>> layout = Layout.of(np.array([2, 0, 2]), np.array([5, 9, 5]))
        >>> layout.image_order, layout.edges, layout.group_edges
        (array([0, 2, 1]), array([0, 1, 3, 3]), array([0, 2]))
        """
        _, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        wordings = np.arange(len(text_image)) if wordings is None else wordings
        several = _several(wordings, number[text_image])
        asked = sizes > 1
        asked[number[text_image[several]]] = True
        alone = ~asked[number]
        image_order = np.lexsort((np.where(alone, 0, number), alone))
        place = np.empty_like(image_order)
        place[image_order] = np.arange(len(groups))
        text_order = np.argsort(place[text_image], kind="stable")
        text_place = np.empty_like(text_order)
        text_place[text_order] = np.arange(len(text_order))
        rows = several[np.argsort(wordings[several], kind="stable")]
        cuts = np.flatnonzero(np.diff(wordings[rows])) + 1
        owner = place[text_image[text_order]]
        return cls(
            image_order=image_order,
            text_order=text_order,
            owner=owner,
            edges=np.searchsorted(owner, np.arange(len(groups) + 1)),
            group_edges=np.concatenate([[0], np.cumsum(sizes[asked])]),
            shared=[text_place[part] for part in np.split(rows, cuts)] if len(rows) else [],
            grouped_images=int(sizes[sizes > 1].sum()),
        )

    @property
    def asked_images(self) -> int:
        """Number of images that are also judged leniently; they hold the first places."""
        return int(self.group_edges[-1])

    @property
    def asked_texts(self) -> int:
        """Number of texts of those images; they hold the first places too."""
        return int(self.edges[self.asked_images])

    @property
    def shared_texts(self) -> int:
        """Number of texts whose wording another group has too."""
        return sum(map(len, self.shared))


def _several(wordings: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The texts whose wording texts of several groups have; `group` [M] is that of each text.

    >>> _several(np.array([4, 4, 7, 7]), np.array([0, 1, 1, 1]))
    array([0, 1])
    """
    pairs = np.unique(np.stack([wordings, group]), axis=1)
    named, groups = np.unique(pairs[0], return_counts=True)
    return np.flatnonzero(np.isin(wordings, named[groups > 1]))


@dataclass(frozen=True)
class Answers:
    """One way of judging: the ranges, the scores to beat, and how many right answers share them.

    Attributes:
        targets: input of `tiles.count_tiles`, and its counts.
        image_tied_positives: [N]; right texts that tie with the best, 0 where none is asked for.
        text_tied_positives: [M]; right images that tie with the best.
        image_outside, text_outside: [N], [M]; how many of these lie outside the range, so that
            `count_tiles` counts them among the wrong ones.
    """

    targets: Targets
    image_tied_positives: np.ndarray
    text_tied_positives: np.ndarray
    image_outside: np.ndarray
    text_outside: np.ndarray


def strict_answers(layout: Layout, images: Vectors, texts: Vectors, tie: float) -> Answers:
    """Only an image's own texts are right, and only a text's own image."""
    scores = np.empty(len(texts), np.float32)
    for chunk in spans(len(texts), max(1, _CHUNK // texts.shape[1])):
        scores[chunk] = on_host((images[layout.owner[chunk]] * texts[chunk]).sum(1))
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, layout.owner, scores)
    ties = scores >= best[layout.owner] - np.float32(tie)
    targets = Targets(
        first=layout.edges[:-1],
        last=layout.edges[1:],
        image_best=np.where(best == -np.inf, np.float32(np.inf), best),
        text_best=scores,
        images=len(images),
        texts=len(texts),
        tie=tie,
    )
    image_tied_positives = np.bincount(layout.owner[ties], minlength=len(images))
    none = np.zeros(len(images), np.int64), np.zeros(len(texts), np.int64)
    return Answers(targets, image_tied_positives, np.ones(len(texts), np.int64), *none)


def lenient_answers(layout: Layout, images: Vectors, texts: Vectors, tie: float) -> Answers:
    """Every text of a group is right for its images, and every image of it for its texts.

    So is every text that says the same as one of the group's, and every image of its group. Only
    images and texts of groups that share something are asked: the others' answers do not differ.
    """
    count, edges = layout.asked_images, layout.edges
    first, last = edges[:-1].copy(), edges[1:].copy()
    for start, stop in zip(layout.group_edges[:-1], layout.group_edges[1:], strict=True):
        first[start:stop], last[start:stop] = edges[start], edges[stop]

    image_best = np.full(len(images), -np.inf, np.float32)
    text_best = np.full(len(texts), -np.inf, np.float32)
    ways: tuple[_Scored, ...] = (_group_scores, _shared_scores)
    for scored in ways:
        for rows, columns, scores in scored(layout, images, texts):
            image_best[rows] = np.maximum(image_best[rows], scores.max(1))
            text_best[columns] = np.maximum(text_best[columns], scores.max(0))
    own = [np.zeros((2, side), np.int64) for side in (len(images), len(texts))]
    for place, scored in enumerate(ways):
        for rows, columns, scores in scored(layout, images, texts):
            own[0][place, rows] += (scores >= image_best[rows, None] - np.float32(tie)).sum(1)
            own[1][place, columns] += (scores >= text_best[columns] - np.float32(tie)).sum(0)

    asked = (np.diff(edges) > 0) & (np.arange(len(images)) < count)
    targets = Targets(
        first=first,
        last=last,
        image_best=np.where(asked, image_best, np.float32(np.inf)),
        text_best=np.where(text_best == -np.inf, np.float32(np.inf), text_best),
        images=count,
        texts=layout.asked_texts,
        tie=tie,
    )
    return Answers(targets, own[0].sum(0), own[1].sum(0), own[0][1], own[1][1])


def _group_scores(
    layout: Layout, images: Vectors, texts: Vectors
) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Scores of the images of each group against all its texts, in pieces of bounded size."""
    for start, stop in zip(layout.group_edges[:-1], layout.group_edges[1:], strict=True):
        columns = slice(int(layout.edges[start]), int(layout.edges[stop]))
        width = columns.stop - columns.start
        if width:
            for part in spans(int(stop - start), max(1, _CHUNK // width)):
                rows = slice(int(start) + part.start, int(start) + part.stop)
                yield rows, columns, on_host(images[rows] @ texts[columns].T)


def _shared_scores(
    layout: Layout, images: Vectors, texts: Vectors
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Scores of each wording's texts against the images of all groups that have it, in pieces.

    Pairs within a group, which `_group_scores` has, are at minus infinity here.
    """
    starts = layout.group_edges[:-1]
    for columns in layout.shared:
        group_of = np.searchsorted(starts, layout.owner[columns], "right") - 1
        carriers = np.unique(group_of)
        spanned = [np.arange(*layout.group_edges[group : group + 2]) for group in carriers]
        every = np.concatenate(spanned)
        groups = np.repeat(carriers, [len(span) for span in spanned])
        for part in spans(len(every), max(1, _CHUNK // len(columns))):
            scores = on_host(take(images, every[part]) @ take(texts, columns).T)
            own = groups[part, None] == group_of[None]
            yield every[part], columns, np.where(own, np.float32(-np.inf), scores)
