"""How each query of a benchmark fared, kept beside the result, so that nothing is ranked twice.

The file is a plain compressed `.npz` without pickled objects:

    ids          uint8, the image ids as a JSON list in UTF-8
    groups       int32 [N], equal for images that show the same thing
    text_image   int32 [M], the row of the image of each text
    strict_image_to_text, strict_text_to_image    int32 [3, Q]: greater, tied, own
    lenient_...  likewise; absent where nothing is shared, since they are the strict ones
    shared_texts int32 [1], texts that say the same as one of another group

An image with texts is an image-to-text query, in the order of ids; each text is a text-to-image
query, in the order of the collection.
"""

import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from paragrain.errors import ParagrainError, UsageError
from paragrain.files import replacing
from paragrain.retrieval import DirectionRanks, Ranks, RanksPair, hit_probability
from paragrain.stats import LEVEL, RESAMPLES, Units, recall_interval, resample

KS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")
JUDGEMENTS = ("strict", "lenient")
_DAMAGED = (
    *(OSError, ValueError, LookupError, EOFError, TypeError, AttributeError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, eq=False, repr=False)
class QueryRanks:
    """The ranks of all queries of a benchmark, and who asked.

    Attributes:
        ids: N image ids.
        groups: int64 [N].
        text_image: int64 [M].
        ranks: of the image-to-text and text-to-image queries.
    """

    ids: list[str]
    groups: np.ndarray
    text_image: np.ndarray
    ranks: Ranks

    def direction(self, direction: str, judgement: str = "strict") -> DirectionRanks:
        """The ranks of one direction under one way of judging."""
        pair: RanksPair = getattr(self.ranks, judgement)
        ranks: DirectionRanks = getattr(pair, direction)
        return ranks

    def __repr__(self) -> str:
        """How many there are."""
        return f"<QueryRanks of {len(self.ids):,} images and {len(self.text_image):,} texts>"

    def units(self, direction: str) -> np.ndarray:
        """int64 [Q]: the unit of resampling of each query: the group of its image.

        Units are numbered by the first of their ids in the order of the alphabet, so that a draw
        of the bootstrap is the same in whatever order the collection has its records.
        """
        rows = self.ranks.image_queries if direction == "image_to_text" else self.text_image
        return self._unit_of_image[rows]

    @cached_property
    def _unit_of_image(self) -> np.ndarray:
        """int64 [N]: the number of the unit of each image."""
        order = np.asarray(sorted(range(len(self.ids)), key=self.ids.__getitem__), dtype=np.int64)
        _, first, inverse = np.unique(self.groups[order], return_index=True, return_inverse=True)
        units = np.empty(len(order), dtype=np.int64)
        units[order] = np.argsort(np.argsort(first))[inverse]
        return units

    def by_id(self) -> "QueryRanks":
        """The same queries with images in the order of their ids; texts follow their images.

        Groups are numbered as units are, so that two results whose collections have the same
        records in another order become comparable row by row.
        """
        order = np.asarray(sorted(range(len(self.ids)), key=self.ids.__getitem__), dtype=np.int64)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        texts = np.argsort(place[self.text_image], kind="stable")
        queries = np.argsort(place[self.ranks.image_queries], kind="stable")

        def pair(whole: RanksPair) -> RanksPair:
            sides = ((whole.image_to_text, queries), (whole.text_to_image, texts))
            return RanksPair(*(_taken(side, rows) for side, rows in sides))

        ranks = replace(
            self.ranks,
            strict=pair(self.ranks.strict),
            lenient=pair(self.ranks.lenient),
            image_queries=place[self.ranks.image_queries][queries],
        )
        ids = [self.ids[row] for row in order]
        text_image = place[self.text_image][texts]
        return QueryRanks(ids, self._unit_of_image[order], text_image, ranks)

    def hits(
        self, direction: str, k: int, judgement: str = "strict"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probability [Q] of a hit in the top `k`, and the unit [Q] of each query."""
        probability = hit_probability(self.direction(direction, judgement), k)
        return probability, self.units(direction)

    def part(self, rows: np.ndarray) -> "QueryRanks":
        """Only the queries of the images with `rows` [N] bool and of their texts, ranked as before.

        Images, groups and the gallery stay whole.
        """
        images, texts = rows[self.ranks.image_queries], rows[self.text_image]

        def pair(whole: RanksPair) -> RanksPair:
            sides = ((whole.image_to_text, images), (whole.text_to_image, texts))
            return RanksPair(*(_taken(side, rows) for side, rows in sides))

        ranks = replace(
            self.ranks,
            strict=pair(self.ranks.strict),
            lenient=pair(self.ranks.lenient),
            image_queries=self.ranks.image_queries[images],
        )
        return replace(self, text_image=self.text_image[texts], ranks=ranks)

    def intervals(
        self, ks: Sequence[int] = KS, *, resamples: int = RESAMPLES, seed: int = 0
    ) -> dict[str, Any]:
        """95 % intervals of every Recall@K in percent; see `stats.recall_interval`.

        Returns:
            for result files, `{"strict": {"image_to_text": {"R@1": [39.1, 43.0], ...}, ...},
            "lenient": ..., "level": 0.95, "resamples": 2000, "seed": 0, "units": 5000}`.
        """
        judgements = self._judgements()
        names = [(j, d, k) for j in judgements for d in DIRECTIONS for k in ks]
        units = Units.of([self.hits(d, k, j) for j, d, k in names])
        bounds = 100 * recall_interval(units, resample(units, resamples=resamples, seed=seed))
        found: dict[str, dict[str, dict[str, list[float]]]] = {}
        for (judgement, direction, k), (low, high) in zip(names, bounds.T.tolist(), strict=True):
            found.setdefault(judgement, {}).setdefault(direction, {})[f"R@{k}"] = [low, high]
        found.setdefault("lenient", found["strict"])
        about = {"level": LEVEL, "resamples": resamples, "seed": seed, "units": len(units)}
        return {**found, **about}

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits over all that is stored."""
        state = blake2b(digest_size=16)
        for name, values in self._arrays().items():
            state.update(f"{name} {values.dtype} {values.shape}\n".encode())
            state.update(np.ascontiguousarray(values).tobytes())
        return state.hexdigest()

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        arrays: Any = self._arrays()
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> "QueryRanks":
        """Read the file; nothing in it is executed.

        Raises:
            UsageError: there is no such file.
            ParagrainError: it is damaged, or holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                return cls._of({name: stored[name] for name in stored.files})
        except FileNotFoundError:
            raise UsageError(
                f"the ranks {path} are not there: keep them beside their result file, "
                "or evaluate again with --out"
            ) from None
        except _DAMAGED as error:
            raise ParagrainError(
                f"the ranks {path} cannot be read ({error}): evaluate again with --out"
            ) from error

    def _judgements(self) -> tuple[str, ...]:
        """The ways of judging that differ."""
        return (
            JUDGEMENTS if self.ranks.grouped_images or self.ranks.shared_texts else JUDGEMENTS[:1]
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        text = json.dumps(self.ids, ensure_ascii=True).encode()
        arrays: dict[str, np.ndarray] = {
            "ids": np.frombuffer(text, np.uint8),
            "groups": self.groups.astype(np.int32),
            "text_image": self.text_image.astype(np.int32),
            "shared_texts": np.array([self.ranks.shared_texts], np.int32),
        }
        for judgement in self._judgements():
            for direction in DIRECTIONS:
                ranks = self.direction(direction, judgement)
                counts = np.stack([ranks.greater, ranks.tied, ranks.own]).astype(np.int32)
                arrays[f"{judgement}_{direction}"] = counts
        return arrays

    @classmethod
    def _of(cls, arrays: dict[str, np.ndarray]) -> "QueryRanks":
        ids = json.loads(arrays["ids"].tobytes())
        groups, text_image = (arrays[name].astype(np.int64) for name in ("groups", "text_image"))
        queries = np.flatnonzero(np.bincount(text_image, minlength=len(ids)))
        asked = {"image_to_text": len(queries), "text_to_image": len(text_image)}
        gallery = {"image_to_text": len(text_image), "text_to_image": len(ids)}
        if groups.shape != (len(ids),) or (len(queries) and queries[-1] >= len(ids)):
            raise ValueError("ids, groups and texts do not fit each other")

        def pair(judgement: str) -> RanksPair:
            directions = []
            for direction in DIRECTIONS:
                counts = arrays[f"{judgement}_{direction}"].astype(np.int64)
                if counts.shape != (3, asked[direction]):
                    raise ValueError(f"{judgement} {direction} has the shape {counts.shape}")
                greater, tied, own = counts
                directions.append(DirectionRanks(greater, tied, own, gallery[direction]))
            return RanksPair(*directions)

        strict = pair("strict")
        grouped = int((np.bincount(groups)[groups] > 1).sum())
        (shared,) = arrays["shared_texts"].tolist()
        lenient = pair("lenient") if grouped or shared else strict
        ranks = Ranks(strict, lenient, queries, len(ids), grouped, shared)
        return cls(ids, groups, text_image, ranks)


def _taken(ranks: DirectionRanks, rows: np.ndarray) -> DirectionRanks:
    """Some queries of a direction; the gallery stays."""
    return DirectionRanks(ranks.greater[rows], ranks.tied[rows], ranks.own[rows], ranks.gallery)
