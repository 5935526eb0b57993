"""Which answers are right, laid out in ranges, and the best score that any of them gets.

Images are sorted so that groups of several come first, each in one piece; texts follow the order of
their images. The right texts of an image are then one range, strictly and leniently.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paragrain.retrieval.tiles import Judgement, spans
from paragrain.retrieval.vectors import Vectors, on_host

_CHUNK = 1 << 20  # numbers in a temporary array


@dataclass(frozen=True)
class Layout:
    """The order in which images and texts are ranked.

    Attributes:
        image_order, text_order: [N], [M]; the caller's row at each place.
        owner: [M]; the place of the image that the text at each place belongs to, rising.
        edges: [N + 1]; the image at place i owns the texts at places edges[i] to edges[i + 1].
        group_edges: [G + 1]; group g, of two images or more, is the images at places
            group_edges[g] to group_edges[g + 1]. All further images stand for themselves.
    """

    image_order: np.ndarray
    text_order: np.ndarray
    owner: np.ndarray
    edges: np.ndarray
    group_edges: np.ndarray

    @classmethod
    def of(cls, text_image: np.ndarray, groups: np.ndarray) -> "Layout":
        """Lay out texts that belong to images `text_image` [M], and images in `groups` [N].

        >>> layout = Layout.of(np.array([2, 0, 2]), np.array([5, 9, 5]))
        >>> layout.image_order, layout.edges, layout.group_edges
        (array([0, 2, 1]), array([0, 1, 3, 3]), array([0, 2]))
        """
        _, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        alone = sizes[number] == 1
        image_order = np.lexsort((np.where(alone, 0, number), alone))
        place = np.empty_like(image_order)
        place[image_order] = np.arange(len(groups))
        text_order = np.argsort(place[text_image], kind="stable")
        owner = place[text_image[text_order]]
        return cls(
            image_order=image_order,
            text_order=text_order,
            owner=owner,
            edges=np.searchsorted(owner, np.arange(len(groups) + 1)),
            group_edges=np.concatenate([[0], np.cumsum(sizes[sizes > 1])]),
        )

    @property
    def grouped_images(self) -> int:
        """Number of images that share their group; they hold the first places."""
        return int(self.group_edges[-1])

    @property
    def grouped_texts(self) -> int:
        """Number of texts of those images; they hold the first places too."""
        return int(self.edges[self.grouped_images])


@dataclass(frozen=True)
class Answers:
    """One way of judging: the ranges, the scores to beat, and how many right answers share them.

    Attributes:
        judgement: input of `tiles.count_tiles`, and its counts.
        image_own: [N]; right texts that tie with the best, 0 for images that are not asked.
        text_own: [M]; right images that tie with the best.
    """

    judgement: Judgement
    image_own: np.ndarray
    text_own: np.ndarray


def strict_answers(layout: Layout, images: Vectors, texts: Vectors, tie: float) -> Answers:
    """Only an image's own texts are right, and only a text's own image."""
    scores = np.empty(len(texts), np.float32)
    for chunk in spans(len(texts), max(1, _CHUNK // texts.shape[1])):
        scores[chunk] = on_host((images[layout.owner[chunk]] * texts[chunk]).sum(1))
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, layout.owner, scores)
    ties = scores >= best[layout.owner] - np.float32(tie)
    judgement = Judgement(
        first=layout.edges[:-1],
        last=layout.edges[1:],
        image_best=np.where(best == -np.inf, np.float32(np.inf), best),
        text_best=scores,
        images=len(images),
        texts=len(texts),
        tie=tie,
    )
    image_own = np.bincount(layout.owner[ties], minlength=len(images))
    return Answers(judgement, image_own, np.ones(len(texts), np.int64))


def lenient_answers(layout: Layout, images: Vectors, texts: Vectors, tie: float) -> Answers:
    """Every text of a group is right for its images, and every image of it for its texts.

    Only images and texts of groups of several are asked, since the others' answers do not differ.
    """
    count, edges = layout.grouped_images, layout.edges
    first, last = edges[:-1].copy(), edges[1:].copy()
    for start, stop in zip(layout.group_edges[:-1], layout.group_edges[1:], strict=True):
        first[start:stop], last[start:stop] = edges[start], edges[stop]

    image_best = np.full(len(images), -np.inf, np.float32)
    text_best = np.full(len(texts), -np.inf, np.float32)
    for rows, columns, scores in _group_scores(layout, images, texts):
        image_best[rows] = scores.max(1)
        text_best[columns] = np.maximum(text_best[columns], scores.max(0))
    image_own, text_own = np.zeros(len(images), np.int64), np.zeros(len(texts), np.int64)
    for rows, columns, scores in _group_scores(layout, images, texts):
        image_own[rows] = (scores >= image_best[rows, None] - np.float32(tie)).sum(1)
        text_own[columns] += (scores >= text_best[columns] - np.float32(tie)).sum(0)

    asked = (np.diff(edges) > 0) & (np.arange(len(images)) < count)
    judgement = Judgement(
        first=first,
        last=last,
        image_best=np.where(asked, image_best, np.float32(np.inf)),
        text_best=np.where(text_best == -np.inf, np.float32(np.inf), text_best),
        images=count,
        texts=layout.grouped_texts,
        tie=tie,
    )
    return Answers(judgement, image_own, text_own)


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
